package upstream

import (
	"context"
	"errors"
	"log/slog"
	"maps"
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
	Rests   []KeyRest // that have not ended
	LastUse time.Time
}

// A KeyRest says until when other keys go first.
type KeyRest struct {
	Model string // "" = for all models
	Until time.Time
	Why   string // refused, out_of_quota, rate_limited
}

// A Pool calls a provider by several keys, in turn: they have the same models at the same prices. If a key is refused,
// or its account is out of quota, the call goes to the next key, as long as nothing of the answer has arrived. The key
// then rests: for all models if the refusal is of the key itself, and otherwise for the model.
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
	state  KeyState           // without its rests
	rests  map[string]KeyRest // by model; "" = of the whole key
	rested time.Time          // when the last rest began
}

// restsUntil returns when the key serves a model again; a past time: it serves it now.
func (k *pooledKey) restsUntil(model string) time.Time {
	whole, one := k.rests[""].Until, k.rests[model].Until
	if whole.After(one) {
		return whole
	}
	return one
}

// NewPool returns a Pool of one key or more. It reports a failure that the operator must fix, and that no app sees,
// because another key has served the call.
func NewPool(keys []Key, now func() time.Time, log *slog.Logger,
	alarm func(provider, alarm string, cause error)) *Pool {
	p := &Pool{alarm: alarm, now: now, log: log}
	for _, k := range keys {
		p.keys = append(p.keys, &pooledKey{Key: k, state: KeyState{ID: k.ID}})
	}
	return p
}

// Name is the provider's.
func (p *Pool) Name() string { return p.keys[0].Provider.Name() }

// Complete runs a request to its end.
func (p *Pool) Complete(ctx context.Context, q *provider.Request) (*provider.Response, error) {
	return callByKeys(ctx, p, q.Model, func(at provider.Provider) (*provider.Response, error) {
		return at.Complete(ctx, q)
	})
}

// Stream starts a streamed request.
func (p *Pool) Stream(ctx context.Context, q *provider.Request) (provider.Stream, error) {
	s, err := callByKeys(ctx, p, q.Model, func(at provider.Provider) (provider.Stream, error) {
		return at.Stream(ctx, q)
	})
	if err != nil {
		return nil, err
	}
	return &countedStream{s, p}, nil
}

// A countedStream counts the refusal with which its provider ends it.
type countedStream struct {
	provider.Stream
	pool *Pool
}

// Next returns the chunks that have arrived (see provider.Stream).
func (s *countedStream) Next() (provider.Chunk, error) {
	c, err := s.Stream.Next()
	if err != nil {
		s.pool.noteRefusal(err)
	}
	return c, err
}

// ID returns the provider's id of the response; "" = it has said none.
func (s *countedStream) ID() string {
	if identified, ok := s.Stream.(interface{ ID() string }); ok {
		return identified.ID()
	}
	return ""
}

// ReportedInput returns the input tokens that the provider has reported; 0 = none.
func (s *countedStream) ReportedInput() int64 {
	if reports, ok := s.Stream.(interface{ ReportedInput() int64 }); ok {
		return reports.ReportedInput()
	}
	return 0
}

func callByKeys[T any](ctx context.Context, p *Pool, model string, call func(provider.Provider) (T, error)) (T, error) {
	tried := []*pooledKey{p.choose(model, nil)}
	for {
		k, began := tried[len(tried)-1], p.now()
		answer, err := call(k.Provider)
		var next *pooledKey
		e, _ := errors.AsType[*provider.Error](err)
		p.noteRefusal(err)
		rest, why := restAfter(err)
		switch {
		case rest > 0:
			of := model
			if isOfKey(e) {
				of = ""
			}
			if p.noteRest(k, KeyRest{of, p.now().Add(rest), why}); ctx.Err() == nil {
				next = p.choose(model, tried)
			}
		default:
			p.noteServed(k, model, began, err == nil)
		}
		if next == nil {
			if len(p.keys) > 1 {
				web.Log(ctx, slog.String("provider_key", k.ID))
			}
			return answer, err
		}
		if e.Alarm != "" && p.alarm != nil {
			p.alarm(p.Name(), e.Alarm, err)
		}
		p.log.WarnContext(ctx, "provider key rests", "provider", p.Name(), "key", k.ID, "model", model, "why", why,
			"seconds", int64(rest.Seconds()), "error", err)
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

// isOfKey reports whether a refusal is of the key or its account, and not of the model: providers limit rates by model,
// and 403 is also their answer to a key that may not use a model.
func isOfKey(e *provider.Error) bool {
	return e.OutOfQuota || e.KeyRefused || e.Status == http.StatusUnauthorized
}

// choose returns the key whose turn it is, of those that do not rest and were not tried. At first it returns one in any
// case: if all rest, the one whose rest ends first, whose error is then the true one. Later it may return nil.
func (p *Pool) choose(model string, tried []*pooledKey) (chosen *pooledKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for range p.keys {
		k := p.keys[p.turn%len(p.keys)]
		p.turn++
		if !slices.Contains(tried, k) && !now.Before(k.restsUntil(model)) {
			return k
		}
	}
	if len(tried) > 0 {
		return nil
	}
	return slices.MinFunc(p.keys, func(a, b *pooledKey) int {
		return a.restsUntil(model).Compare(b.restsUntil(model))
	})
}

// noteServed counts a call of which the key is not the cause. A call that began after the key's rest did, and was
// answered, ends the rest.
func (p *Pool) noteServed(k *pooledKey, model string, began time.Time, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k.state.Served++
	k.state.LastUse = p.now()
	if answered && began.After(k.rested) {
		delete(k.rests, "")
		delete(k.rests, model)
	}
}

// noteRest counts a call that the key has failed. A rest is never shortened by a shorter one.
func (p *Pool) noteRest(k *pooledKey, r KeyRest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	k.state.Failed++
	k.state.LastUse, k.rested = now, now
	if k.rests == nil {
		k.rests = map[string]KeyRest{}
	}
	maps.DeleteFunc(k.rests, func(_ string, old KeyRest) bool { return !now.Before(old.Until) })
	if old := k.rests[r.Model]; old.Until.Before(r.Until) {
		k.rests[r.Model] = r
	}
}

// Choose returns the index of a key that does not rest, for a session of a model that stays with one key.
func (p *Pool) Choose(model string) int {
	k := p.choose(model, nil)
	return slices.Index(p.keys, k)
}

// States returns how the keys fare, in their order.
func (p *Pool) States() (list []KeyState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for _, k := range p.keys {
		state := k.state
		for _, model := range slices.Sorted(maps.Keys(k.rests)) {
			if r := k.rests[model]; now.Before(r.Until) {
				state.Rests = append(state.Rests, r)
			}
		}
		list = append(list, state)
	}
	return list
}
