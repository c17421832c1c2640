package world

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// together lets an app ask all processes at once for one person, by calls of which two each have one key. Judges say
// whether each key is paid once, and whether the sums are right.
func (w *world) together(s bank.Step) error {
	if err := w.asker.connect(s); err != nil || len(w.api.tokens) == 0 {
		return err
	}
	w.spread()
	var calls sync.WaitGroup
	token, wrong := w.api.token(0), make([]error, 2*(1+s.B%4))
	keys := make([]string, len(wrong)/2)
	for i := range keys {
		keys[i] = id.NewUUID()
	}
	for i := range wrong {
		calls.Go(func() {
			body := strings.Replace(chatBody, "hello", fmt.Sprint(canaryPrompt, " ", i/2), 1)
			a, err := w.send(context.Background(), nil, "POST", "/v1/chat/completions", body, "Authorization",
				"Bearer "+token, "Content-Type", "application/json", "Idempotency-Key", keys[i/2])
			if err == nil && isOurFault(a.Status) {
				err = fmt.Errorf("a call is answered by %d: %s", a.Status, a.Body)
			}
			wrong[i] = err
		})
	}
	calls.Wait()
	return errors.Join(wrong...)
}
