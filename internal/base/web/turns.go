package web

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
)

const (
	maxTurns    = 2         // steps of heavy pages that a node reads or computes at a time
	maxPages    = 100       // heavy pages that have begun; most of them wait for their client to read
	pageTimeout = time.Hour // a page that a client reads more slowly ends
)

// turnWait is after what time another try is worth it, of a page that takes seconds.
const turnWait = 5 * time.Second

// Turns lets heavy pages, which read or compute for seconds, run one at a time for an account and few at a time for the
// node, so that they take neither the connections of the database nor the processors from calls. While a client reads
// what was written, the turn is another page's: clients that read slowly keep nobody from downloading. New pages do not
// wait for a turn; pages that have begun wait for their next one, in order. The zero Turns is ready.
type Turns struct {
	mu      sync.Mutex
	pages   map[string]bool // by account
	running int             // pages that have a turn
	waiting []chan struct{} // of pages that have begun; closed when they have a turn
}

// Serve serves a heavy page of an account in turns, or refuses it with 429 or 503.
func (t *Turns) Serve(
	w http.ResponseWriter, r *http.Request, accountID string, next func(http.ResponseWriter, *http.Request) error,
) error {
	if err := t.begin(accountID); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	page := &turnWriter{ResponseWriter: w, turns: t, ctx: ctx, hasTurn: true}
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.pages, accountID)
		if page.hasTurn {
			t.passOn()
		}
	}()
	return next(page, r.WithContext(ctx))
}

// begin counts a page of an account, which has a turn then.
func (t *Turns) begin(accountID string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var refusal *apierr.Error
	switch {
	case t.pages[accountID]:
		refusal = apierr.RateLimited.Errorf(
			"Another download of yours is still being made. Try again when it has ended.")
	case t.running >= maxTurns, len(t.pages) >= maxPages:
		refusal = apierr.Unavailable.Errorf("Too many downloads are being made right now. Try again in a few seconds.")
	default:
		if t.pages == nil {
			t.pages = map[string]bool{}
		}
		t.pages[accountID] = true
		t.running++
		return nil
	}
	refusal.RetryAfter = turnWait
	return refusal
}

// passOn gives a turn to the page that has waited longest. t.mu is held.
func (t *Turns) passOn() {
	if len(t.waiting) == 0 {
		t.running--
		return
	}
	close(t.waiting[0])
	t.waiting = t.waiting[1:]
}

// wait returns when the page has a turn, or ctx ends.
func (t *Turns) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.running < maxTurns {
		t.running++
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	t.waiting = append(t.waiting, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, turn); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else { // it has got one just now
		t.passOn()
	}
	return ctx.Err()
}

// A turnWriter writes a heavy page, which has no turn while its client reads.
type turnWriter struct {
	http.ResponseWriter
	turns   *Turns
	ctx     context.Context
	hasTurn bool
}

func (w *turnWriter) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	w.turns.mu.Lock()
	w.turns.passOn()
	w.hasTurn = false
	w.turns.mu.Unlock()
	n, err := w.ResponseWriter.Write(b)
	waitErr := w.turns.wait(w.ctx)
	w.hasTurn = waitErr == nil
	if err == nil {
		err = waitErr
	}
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *turnWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
