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
// whether each key is paid once, and whether the sums are right; here both calls of a key must be told the same. The
// provider is late with an answer, so that a node has the time to take the other one for dead.
func (w *world) together(s bank.Step) error {
	if err := w.asker.connect(s); err != nil || len(w.api.tokens) == 0 {
		return err
	}
	w.spread()
	var calls sync.WaitGroup
	token, wrong := w.api.token(0), make([]error, 2*(1+s.B%4))
	statuses := make([]int, len(wrong))
	keys := make([]string, len(wrong)/2)
	for i := range keys {
		keys[i] = id.NewUUID()
	}
	w.providers.arm(saying(0), s.C, []answerFault{late})
	for i := range wrong {
		calls.Go(func() {
			body := strings.Replace(chatBody, "hello", saying(i/2), 1)
			a, err := w.send(context.Background(), nil, "POST", "/v1/chat/completions", body, "Authorization",
				"Bearer "+token, "Content-Type", "application/json", "Idempotency-Key", keys[i/2])
			if err == nil && isOurFault(a.Status) {
				err = fmt.Errorf("a call is answered by %d: %s", a.Status, a.Body)
			}
			statuses[i], wrong[i] = a.Status, err
		})
	}
	calls.Wait()
	for pair := range slices.Chunk(statuses, 2) {
		slices.Sort(pair)
		if w.api.drawn[fmt.Sprint("two calls together: ", pair)]++; pair[0] == 200 && pair[1] == 502 {
			wrong = append(wrong, errors.New("of two calls with one key one is paid, and one is told that none is"))
		}
	}
	return errors.Join(wrong...)
}

// saying is what the calls of one key say.
func saying(n int) string { return fmt.Sprint(canaryPrompt, " ", n) }
