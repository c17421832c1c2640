package upstream

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
)

// Bounds of the tries before the first byte of a response.
const (
	maxTries  = 3
	maxWait   = 8 * time.Second // a longer Retry-After ends the tries
	firstWait = 250 * time.Millisecond
)

// Reliable wraps a provider with retries and circuit breakers. It retries a call that failed before the first byte of
// the response, after the time that the provider asks for. While a breaker is open it refuses calls, so that a dead
// provider ties up neither money nor sockets.
type Reliable struct {
	provider.Provider
	Alarm func(provider, alarm string, cause error) // reports a failure that the operator must fix

	breakers breakers
	log      *slog.Logger
	now      func() time.Time
	sleep    func(context.Context, time.Duration) error
}

// NewReliable returns p with tries and a circuit breaker. alarm may be nil.
func NewReliable(p provider.Provider, now func() time.Time, log *slog.Logger,
	alarm func(provider, alarm string, cause error)) *Reliable {
	return &Reliable{Provider: p, Alarm: alarm, log: log, now: now, sleep: sleep}
}

// Complete runs a request to its end.
func (r *Reliable) Complete(ctx context.Context, q *provider.Request) (*provider.Response, error) {
	return tryCall(ctx, r, q, func() (*provider.Response, error) { return r.Provider.Complete(ctx, q) })
}

// Stream starts a streamed request. It retries failures before the first chunk.
func (r *Reliable) Stream(ctx context.Context, q *provider.Request) (provider.Stream, error) {
	return tryCall(ctx, r, q, func() (provider.Stream, error) { return r.Provider.Stream(ctx, q) })
}

func tryCall[T any](ctx context.Context, r *Reliable, q *provider.Request, call func() (T, error)) (T, error) {
	key := keyOf(q)
	if wait, ok := r.breakers.admit(key, r.now()); !ok {
		var none T
		return none, &provider.Error{
			Message: "the provider is not answering", RetryAfter: wait, Unsent: true, Cause: errOpen,
		}
	}
	answer, err := runTries(ctx, r, call)
	if err == nil || ctx.Err() == nil { // a call that was cut says nothing about its provider
		r.breakers.report(key, r.now(), isOutage(err))
	}
	return answer, err
}

func runTries[T any](ctx context.Context, r *Reliable, call func() (T, error)) (T, error) {
	for n, pause := 1, firstWait; ; n, pause = n+1, 2*pause {
		answer, err := call()
		var e *provider.Error
		if err == nil || !errors.As(err, &e) {
			return answer, err
		}
		if e.Alarm != "" && r.Alarm != nil {
			r.Alarm(r.Name(), e.Alarm, err)
		}
		wait := max(e.RetryAfter, pause/2+rand.N(pause))
		if !e.Retry || n == maxTries || wait > maxWait || ctx.Err() != nil {
			return answer, err
		}
		r.log.WarnContext(ctx, "provider call retried", "provider", r.Name(), "try", n, "wait", wait,
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

// isOutage reports whether a failure concerns the provider as a whole, and not one request, one key or a rate limit.
func isOutage(err error) bool {
	var e *provider.Error
	if err == nil || !errors.As(err, &e) {
		return err != nil
	}
	return e.Kind == provider.Failed && e.Alarm == "" && (e.Status == 0 || e.Status >= 500)
}

// breakers are the circuit breakers of one provider: one for each model and app, so that neither
// an overloaded model nor a text that one app sends again and again stops the calls of others, and
// one for each connection within them. It counts calls, not tries. Only models, apps and connections
// whose last call failed are in the map.
//
// A connection whose last call did not fail is never refused: so one connection that fails does not
// stop the others, whose calls are probes at the same time.
type breakers struct {
	mu    sync.Mutex
	byKey map[breakerKey]*breaker
}

// A breakerKey is a model and an app, or one connection of it.
type breakerKey struct{ model, appID, connectionID string }

func keyOf(q *provider.Request) breakerKey { return breakerKey{q.Model, q.AppID, q.ConnectionID} }

// ofApp returns the key of the breaker that all connections of an app share.
func (k breakerKey) ofApp() breakerKey { return breakerKey{model: k.model, appID: k.appID} }

// A breaker opens after consecutive failures that took a while, so that one prompt that always fails, sent again and
// again, does not stop the other calls of its connection: they succeed in between. Then it admits one probe per
// interval until a call succeeds.
type breaker struct {
	failures int       // in a row
	since    time.Time // the first of them
	until    time.Time // open until then; zero: closed
}

const (
	failuresToOpen = 20
	failingToOpen  = 10 * time.Second
	openDuration   = 5 * time.Second
	maxBreakers    = 10_000 // a full map is emptied
)

// admit reports whether a call may be sent, and otherwise after which time to retry. A connection that has opened its
// own breaker does not take the probes of the others.
func (b *breakers) admit(key breakerKey, now time.Time) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.byKey[key]
	if own == nil {
		return 0, true
	}
	if !own.until.IsZero() {
		return own.admit(now)
	}
	if all := b.byKey[key.ofApp()]; all != nil {
		return all.admit(now)
	}
	return 0, true
}

func (b *breaker) admit(now time.Time) (time.Duration, bool) {
	switch {
	case b.until.IsZero():
		return 0, true
	case now.Before(b.until):
		return b.until.Sub(now), false
	}
	b.until = now.Add(openDuration) // this call is the probe
	return 0, true
}

// report notes how a call ended.
func (b *breakers) report(key breakerKey, now time.Time, broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range slices.Compact([]breakerKey{key, key.ofApp()}) {
		if !broken {
			delete(b.byKey, k)
			continue
		}
		one := b.byKey[k]
		if one == nil {
			if b.byKey == nil || len(b.byKey) >= maxBreakers {
				b.byKey = map[breakerKey]*breaker{}
			}
			one = &breaker{since: now}
			b.byKey[k] = one
		}
		one.failures++
		if one.until.IsZero() && one.failures >= failuresToOpen && now.Sub(one.since) >= failingToOpen {
			one.until = now.Add(openDuration)
		}
	}
}
