package web

import (
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
)

// maxTurns is how many heavy pages a node makes at a time.
const maxTurns = 2

// turnWait is after what time another try is worth it, of a page that takes seconds.
const turnWait = 5 * time.Second

// Turns lets heavy pages, which read or compute for seconds, run one at a time for an account and few at a time for the
// node, so that they take neither the connections of the database nor the processors from calls. It has no queue: who
// waited there would hold a connection, too. The zero Turns is ready.
type Turns struct {
	mu      sync.Mutex
	running map[string]bool // by account
}

// Take begins a heavy page of an account, which ends with leave, or refuses it with 429 or 503.
func (t *Turns) Take(accountID string) (leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var refusal *apierr.Error
	switch {
	case t.running[accountID]:
		refusal = apierr.RateLimited.Errorf(
			"Another download of yours is still being made. Try again when it has ended.")
	case len(t.running) >= maxTurns:
		refusal = apierr.Unavailable.Errorf("Too many downloads are being made right now. Try again in a few seconds.")
	default:
		if t.running == nil {
			t.running = map[string]bool{}
		}
		t.running[accountID] = true
		return func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			delete(t.running, accountID)
		}, nil
	}
	refusal.RetryAfter = turnWait
	return nil, refusal
}
