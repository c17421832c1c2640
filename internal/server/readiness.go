package server

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

// readinessTimeout is within which GET /readyz is answered.
const readinessTimeout = 2 * time.Second

// readiness answers GET /readyz: whether this node can hold and settle a call now (decision
// 050).
type readiness struct {
	check    func(context.Context) error
	timeout  time.Duration
	draining atomic.Bool

	mu      sync.Mutex
	running *readinessCheck // the check that runs, which all requests share
}

// A readinessCheck is one run of the check.
type readinessCheck struct {
	done chan struct{} // closed when err is set
	err  error
}

var (
	errDraining        = errors.New("this node is shutting down")
	errReadinessTooOld = errors.New("the database does not answer in time")
)

// Check returns why the node is not ready, or nil.
func (r *readiness) Check(ctx context.Context) error {
	if r.draining.Load() {
		return errDraining
	}
	c := r.start()
	timer := time.NewTimer(r.timeout)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.err
	case <-timer.C:
		return errReadinessTooOld
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start returns the running check, or starts one. A check on a disk that hangs may outlive
// its requests, so there is one at a time.
func (r *readiness) start() *readinessCheck {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running != nil {
		return r.running
	}
	c := &readinessCheck{done: make(chan struct{})}
	r.running = c
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
		defer cancel()
		c.err = r.check(ctx)
		r.mu.Lock()
		r.running = nil
		r.mu.Unlock()
		close(c.done)
	}()
	return c
}

// serveReadiness answers 200 while the node can hold and settle calls, and 503 with the
// reason otherwise.
func (s *Server) serveReadiness(w http.ResponseWriter, r *http.Request) error {
	if err := s.ready.Check(r.Context()); err != nil {
		e := apierr.Unavailable.Errorf("not ready: %s", notReadyReason(err)).WithCause(err)
		e.RetryAfter = time.Second
		return e
	}
	return web.WriteJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

// notReadyReason returns the reason that anyone may read. The log has the error.
func notReadyReason(err error) string {
	if errors.Is(err, errDraining) {
		return errDraining.Error()
	}
	return "the database cannot be used"
}

// checkReady returns nil if the node can hold and settle now: a write and a read of the
// database succeed, and the node's lease is renewed.
func (s *Server) checkReady(ctx context.Context) error {
	read := make(chan error, 1)
	go func() { read <- s.DB.CheckReadable(ctx) }()
	return errors.Join(s.Ledger.CheckReady(ctx), <-read)
}
