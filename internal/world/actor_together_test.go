package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// together lets an app ask all processes at once for one person, by calls of which two each have one key. Judges say
// whether each key is paid once, and whether the sums are right; here both calls of a key must be told the same, and so
// must who asks again afterwards, whichever process answers. The provider is late with an answer, so that a node has
// the time to take the other one for dead.
func (w *world) together(s bank.Step) error {
	if err := w.asker.connect(s); err != nil || len(w.api.tokens) == 0 {
		return err
	}
	w.spread()
	var calls sync.WaitGroup
	token, wrong := w.api.token(0), make([]error, 2*(1+s.B%4))
	answers := make([]bank.Answer, len(wrong))
	keys := make([]string, len(wrong)/2)
	for i := range keys {
		keys[i] = id.NewUUID()
	}
	w.providers.arm(saying(0), s.C, []answerFault{late})
	ask := func(n int) (bank.Answer, error) {
		body := strings.Replace(chatBody, "hello", saying(n), 1)
		a, err := w.send(context.Background(), nil, "POST", "/v1/chat/completions", body, "Authorization",
			"Bearer "+token, "Content-Type", "application/json", "Idempotency-Key", keys[n])
		if err == nil && isOurFault(a.Status) {
			err = fmt.Errorf("a call is answered by %d: %s", a.Status, a.Body)
		}
		return a, err
	}
	for i := range wrong {
		calls.Go(func() { answers[i], wrong[i] = ask(i / 2) })
	}
	calls.Wait()
	for i := range keys {
		pair := []int{answers[2*i].Status, answers[2*i+1].Status}
		slices.Sort(pair)
		if w.api.drawn[fmt.Sprint("two calls together: ", pair)]++; pair[0] == 200 && pair[1] == 502 {
			wrong = append(wrong, errors.New("of two calls with one key one is paid, and one is told that none is"))
		}
		again, err := ask(i)
		wrong = append(wrong, err, sameAnswers(answers[2*i], answers[2*i+1], again))
		if err == nil {
			w.api.drawn[fmt.Sprint("asked again after two calls together: ", again.Status)]++
		}
	}
	return errors.Join(wrong...)
}

// sameAnswers returns an error unless all that are paid are the same.
func sameAnswers(answers ...bank.Answer) error {
	paid := slices.DeleteFunc(answers, func(a bank.Answer) bool { return a.Status != 200 })
	for i := 1; i < len(paid); i++ {
		if paid[i].Body != paid[0].Body {
			return fmt.Errorf("two answers to one key differ:\n%s\n%s", paid[0].Body, paid[i].Body)
		}
	}
	return nil
}

// saying is what the calls of one key say.
func saying(n int) string { return fmt.Sprint(canaryPrompt, " ", n) }
