package upstream

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
)

// Bounds of the tries before the first byte of an answer.
const (
	maxTries  = 3
	maxWait   = 8 * time.Second // a provider that asks for more is not waited for
	firstWait = 250 * time.Millisecond
)

// Reliable carries calls to a provider with patience: what failed before a byte
// of an answer came is tried again, as the provider asks, and a provider that is
// dead is not asked for a while, so that it holds neither money nor sockets.
type Reliable struct {
	provider.Provider
	Alarm func(provider, alarm string, cause error) // what the operator must mend; called for each failure that says so

	breaker breaker
	log     *slog.Logger
	now     func() time.Time
	sleep   func(context.Context, time.Duration) error
}

// NewReliable returns p with tries and a circuit breaker. alarm may be nil.
func NewReliable(p provider.Provider, now func() time.Time, log *slog.Logger,
	alarm func(provider, alarm string, cause error)) *Reliable {
	return &Reliable{Provider: p, Alarm: alarm, log: log, now: now, sleep: sleep}
}

// Complete runs a request to its end.
func (r *Reliable) Complete(ctx context.Context, q *provider.Request) (*provider.Response, error) {
	return tries(ctx, r, func() (*provider.Response, error) { return r.Provider.Complete(ctx, q) })
}

// Stream starts a streamed request: what fails before its first chunk is tried again.
func (r *Reliable) Stream(ctx context.Context, q *provider.Request) (provider.Stream, error) {
	return tries(ctx, r, func() (provider.Stream, error) { return r.Provider.Stream(ctx, q) })
}

func tries[T any](ctx context.Context, r *Reliable, call func() (T, error)) (T, error) {
	for n, pause := 1, firstWait; ; n, pause = n+1, 2*pause {
		wait, ok := r.breaker.admit(r.now())
		if !ok {
			var none T
			return none, &provider.Error{Message: "the provider is not answering", RetryAfter: wait, Cause: errOpen}
		}
		answer, err := call()
		r.breaker.report(r.now(), ctx.Err() == nil && broken(err))
		var e *provider.Error
		if err == nil || !errors.As(err, &e) {
			return answer, err
		}
		if e.Alarm != "" && r.Alarm != nil {
			r.Alarm(r.Name(), e.Alarm, err)
		}
		wait = max(e.RetryAfter, pause/2+rand.N(pause))
		if !e.Retry || n == maxTries || wait > maxWait || ctx.Err() != nil {
			return answer, err
		}
		r.log.WarnContext(ctx, "provider failed, trying again", "provider", r.Name(), "try", n, "wait", wait,
			"error", err)
		if r.sleep(ctx, wait) != nil {
			return answer, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errOpen = errors.New("the circuit is open: the provider failed many times in a row")

// broken says whether a failure is one of the provider as a whole, and not of
// one request, one key or one busy minute.
func broken(err error) bool {
	var e *provider.Error
	if err == nil || !errors.As(err, &e) {
		return err != nil
	}
	return e.Kind == provider.Failed && e.Alarm == "" && (e.Status == 0 || e.Status >= 500)
}

// A breaker opens after a run of failures, and then lets one call a while find
// out whether the provider is back.
type breaker struct {
	mu     sync.Mutex
	failed int       // in a row
	until  time.Time // open until then
}

const (
	failuresToOpen = 20
	openFor        = 5 * time.Second
)

// admit says whether a call may go out, and else when to come again.
func (b *breaker) admit(now time.Time) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.failed < failuresToOpen:
		return 0, true
	case now.Before(b.until):
		return b.until.Sub(now), false
	}
	b.until = now.Add(openFor) // this call is the probe; the others wait for what it finds
	return 0, true
}

func (b *breaker) report(now time.Time, broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !broken {
		b.failed = 0
		return
	}
	if b.failed++; b.failed == failuresToOpen {
		b.until = now.Add(openFor)
	}
}
