package upstream

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/models/provider"
)

// For how long a key rests that its provider has refused, or whose account may make no more calls for now. Nobody says
// when a refused key is mended, so that one call in a while tries it.
const (
	refusedRest  = 10 * time.Minute
	quotaRest    = time.Minute
	limitedRest  = time.Second
	maxQuotaRest = time.Hour
)

// A Key is one of a Pool's.
type Key struct {
	ID       string // names the key to operators, without telling it
	Provider provider.Provider
}

// A KeyState says how a key of a Pool fares, on this node since its start.
type KeyState struct {
	ID      string
	Served  int64     // calls that it has served, or that failed for another reason
	Failed  int64     // calls that went to another key, or failed, because of it
	Rests   time.Time // until then, other keys go first; zero = it does not rest
	Why     string    // of the last rest: refused, out_of_quota, rate_limited; "" = it has never rested
	LastUse time.Time
}

// A Pool calls a provider by several keys, in turn: they have the same models at the same prices. If a key is refused,
// or its account is out of quota, the call goes to the next key, as long as nothing of the answer has arrived.
type Pool struct {
	alarm func(provider, alarm string, cause error)
	now   func() time.Time
	log   *slog.Logger

	refusals refusalTexts

	mu   sync.Mutex
	keys []*pooledKey
	turn int
}

type pooledKey struct {
	Key
	state KeyState
}

// NewPool returns a Pool of one key or more. It reports a failure that the operator must fix, and that no app sees,
// because another key has served the call.
func NewPool(keys []Key, now func() time.Time, log *slog.Logger,
	alarm func(provider, alarm string, cause error)) *Pool {
	p := &Pool{alarm: alarm, now: now, log: log}
	for _, k := range keys {
		p.keys = append(p.keys, &pooledKey{k, KeyState{ID: k.ID}})
	}
	return p
}

// Name is the provider's.
func (p *Pool) Name() string { return p.keys[0].Provider.Name() }

// Complete runs a request to its end.
func (p *Pool) Complete(ctx context.Context, q *provider.Request) (*provider.Response, error) {
	return callByKeys(ctx, p, func(at provider.Provider) (*provider.Response, error) { return at.Complete(ctx, q) })
}

// Stream starts a streamed request.
func (p *Pool) Stream(ctx context.Context, q *provider.Request) (provider.Stream, error) {
	return callByKeys(ctx, p, func(at provider.Provider) (provider.Stream, error) { return at.Stream(ctx, q) })
}

func callByKeys[T any](ctx context.Context, p *Pool, call func(provider.Provider) (T, error)) (T, error) {
	tried := []*pooledKey{p.choose(nil)}
	for {
		k := tried[len(tried)-1]
		answer, err := call(k.Provider)
		if e, ok := errors.AsType[*provider.Error](err); ok {
			p.noteRefusal(e)
		}
		var next *pooledKey
		rest, why := restAfter(err)
		if p.note(k, rest, why); rest > 0 && ctx.Err() == nil {
			next = p.choose(tried)
		}
		if next == nil {
			if len(p.keys) > 1 {
				web.Log(ctx, slog.String("provider_key", k.ID))
			}
			return answer, err
		}
		e, _ := errors.AsType[*provider.Error](err)
		if e.Alarm != "" && p.alarm != nil {
			p.alarm(p.Name(), e.Alarm, err)
		}
		p.log.WarnContext(ctx, "provider key rests", "provider", p.Name(), "key", k.ID, "why", why, "seconds",
			int64(rest.Seconds()), "error", err)
		tried = append(tried, next)
	}
}

// restAfter returns for how long a key rests after an error, and why; 0 = the key is not the cause.
func restAfter(err error) (rest time.Duration, why string) {
	e, ok := errors.AsType[*provider.Error](err)
	switch {
	case !ok || e.Kind != provider.Failed:
		return 0, ""
	case e.OutOfQuota:
		return min(max(e.RetryAfter, quotaRest), maxQuotaRest), "out_of_quota"
	case e.KeyRefused || e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		return refusedRest, "refused"
	case e.Status == http.StatusTooManyRequests:
		return min(max(e.RetryAfter, limitedRest), quotaRest), "rate_limited"
	}
	return 0, ""
}

// choose returns the key whose turn it is, of those that do not rest and were not tried. At first it returns one in any
// case: if all rest, the one whose rest ends first, whose error is then the true one. Later it may return nil.
func (p *Pool) choose(tried []*pooledKey) (chosen *pooledKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for range p.keys {
		k := p.keys[p.turn%len(p.keys)]
		p.turn++
		if !slices.Contains(tried, k) && !now.Before(k.state.Rests) {
			return k
		}
	}
	if len(tried) > 0 {
		return nil
	}
	return slices.MinFunc(p.keys, func(a, b *pooledKey) int { return a.state.Rests.Compare(b.state.Rests) })
}

// note counts a call.
func (p *Pool) note(k *pooledKey, rest time.Duration, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &k.state
	if s.LastUse = p.now(); rest == 0 {
		s.Served++
		if !s.LastUse.Before(s.Rests) {
			s.Rests = time.Time{}
		}
		return
	}
	s.Failed++
	s.Rests, s.Why = s.LastUse.Add(rest), why
}

// Choose returns the index of a key that does not rest, for a session that stays with one key.
func (p *Pool) Choose() int {
	k := p.choose(nil)
	return slices.Index(p.keys, k)
}

// States returns how the keys fare, in their order.
func (p *Pool) States() (list []KeyState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.keys {
		list = append(list, k.state)
	}
	return list
}
