package upstream

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
)

// A keyedProvider answers as its key is told to.
type keyedProvider struct {
	id    string
	err   error // nil = it answers
	calls int
}

func (k *keyedProvider) Name() string { return "openai" }

func (k *keyedProvider) Complete(context.Context, *provider.Request) (*provider.Response, error) {
	k.calls++
	return &provider.Response{Body: []byte(k.id)}, k.err
}

func (k *keyedProvider) Stream(context.Context, *provider.Request) (provider.Stream, error) {
	k.calls++
	return nil, k.err
}

// Errors of providers.
var (
	errKey     = &provider.Error{Status: 401, Alarm: "the key is refused"}
	errQuota   = &provider.Error{Status: 429, Alarm: "the account is out of credit", OutOfQuota: true}
	errLimit   = &provider.Error{Status: 429, Retry: true, RetryAfter: 20 * time.Second}
	errBusy    = &provider.Error{Status: 503, Retry: true}
	errRequest = &provider.Error{Status: 400, Kind: provider.Rejected}
)

type poolWorld struct {
	*Pool
	now    time.Time
	keys   []*keyedProvider
	alarms []string
}

func newPoolWorld(n int) *poolWorld {
	w := &poolWorld{now: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	var keys []Key
	for i := range n {
		k := &keyedProvider{id: string(rune('a' + i))}
		w.keys, keys = append(w.keys, k), append(keys, Key{k.id, k})
	}
	w.Pool = NewPool(keys, func() time.Time { return w.now }, slog.New(slog.DiscardHandler),
		func(name, alarm string, _ error) { w.alarms = append(w.alarms, name+": "+alarm) })
	return w
}

// serve makes n calls, and returns which keys served them; "!" = the call failed.
func (w *poolWorld) serve(t *testing.T, n int) (by string) {
	t.Helper()
	for range n {
		answer, err := w.Complete(t.Context(), &provider.Request{})
		if err != nil {
			by += "!"
			continue
		}
		by += string(answer.Body)
	}
	return by
}

// TestPoolTakesTurns: the keys serve in turn, whole answers and streams.
func TestPoolTakesTurns(t *testing.T) {
	t.Parallel()
	w := newPoolWorld(3)
	if by := w.serve(t, 7); by != "abcabca" {
		t.Errorf("served by %s", by)
	}
	for range 3 {
		if _, err := w.Stream(t.Context(), &provider.Request{}); err != nil {
			t.Error(err)
		}
	}
	if w.keys[0].calls != 4 || w.keys[1].calls != 3 || w.keys[2].calls != 3 {
		t.Errorf("calls: %+v", w.States())
	}
}

// TestPoolFailsOver has one of two keys fail in each way: what the key is the cause of goes to the other key, for as
// long as the key rests, and everything else stays with the call.
func TestPoolFailsOver(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err   error
		rest  time.Duration // 0 = it does not
		alarm bool
	}{
		"refused":      {errKey, 10 * time.Minute, true},
		"out of quota": {errQuota, time.Minute, true},
		"rate limit":   {errLimit, 20 * time.Second, false},
		"busy":         {errBusy, 0, false},
		"bad request":  {errRequest, 0, false},
		"no answer":    {errors.New("reset"), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPoolWorld(2)
			w.keys[0].err = tt.err
			want := "bbbb"
			if tt.rest == 0 {
				want = "!b!b"
			}
			if by := w.serve(t, 4); by != want {
				t.Errorf("served by %s, want %s", by, want)
			}
			if alarmed := len(w.alarms) == 1; alarmed != tt.alarm {
				t.Errorf("alarms: %q", w.alarms)
			}
			if tt.rest == 0 {
				return
			}
			w.now = w.now.Add(tt.rest - time.Millisecond)
			if w.serve(t, 2); w.keys[0].calls != 1 {
				t.Errorf("it is called in its rest: %+v", w.States())
			}
			w.keys[0].err, w.now = nil, w.now.Add(time.Millisecond)
			if by := w.serve(t, 4); by != "abab" && by != "baba" {
				t.Errorf("after its rest: %s", by)
			}
			if s := w.States()[0]; len(s.Rests) != 0 || s.Failed != 1 || s.Served != 2 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestPoolRestsByModel: a refusal that is about a model leaves the key to the other models, one that is about the key
// does not, and no shorter rest ends a longer one.
func TestPoolRestsByModel(t *testing.T) {
	t.Parallel()
	errModel := &provider.Error{Status: 403, Alarm: "the key may not use the model"}
	ask := func(w *poolWorld, model string) string {
		answer, err := w.Complete(t.Context(), &provider.Request{Model: model})
		if err != nil {
			return "!"
		}
		return string(answer.Body)
	}
	w := newPoolWorld(2)
	w.keys[0].err, w.keys[1].err = errModel, errModel
	if by := ask(w, "forbidden"); by != "!" {
		t.Errorf("served by %s", by)
	}
	w.keys[0].err, w.keys[1].err = errLimit, nil
	for range 4 { // the first key is over its limit: the other one serves
		if by := ask(w, "allowed"); by != "b" {
			t.Errorf("another model is served by %s; %+v", by, w.States())
		}
	}
	if s := w.States()[0].Rests; len(s) != 2 || s[0].Model != "allowed" || s[1].Model != "forbidden" {
		t.Errorf("rests: %+v", s)
	}
	w.keys[0].err = errKey
	w.now = w.now.Add(time.Minute)
	if by := ask(w, "allowed") + ask(w, "allowed") + ask(w, "other"); by != "bbb" || w.keys[0].calls != 3 {
		t.Errorf("%s, %+v", by, w.States())
	}

	w = newPoolWorld(2)
	w.keys[0].err, w.keys[1].err = errModel, errModel
	ask(w, "m")
	w.keys[0].err, w.keys[1].err = errLimit, errLimit // both rest, so that one is asked, and says another reason
	w.now = w.now.Add(time.Minute)
	ask(w, "m")
	w.now = w.now.Add(time.Minute)
	for i, s := range w.States() {
		if len(s.Rests) != 1 || s.Rests[0].Why != "refused" {
			t.Errorf("key %d: a shorter rest ended the longer one: %+v", i, s)
		}
	}
	w.keys[0].err, w.keys[1].err = nil, nil
	by, states := ask(w, "m")+ask(w, "m"), w.States()
	if by != "aa" && by != "bb" || len(states[0].Rests)+len(states[1].Rests) != 1 {
		t.Errorf("an answer ends the rest: %s, %+v", by, states)
	}
}

// TestPoolWithoutAKey: with all keys at rest a call still gets a true answer, of one key, and the one whose rest ends
// first serves again as soon as it can.
func TestPoolWithoutAKey(t *testing.T) {
	t.Parallel()
	w := newPoolWorld(3)
	w.keys[0].err, w.keys[1].err, w.keys[2].err = errKey, errQuota, errLimit
	_, err := w.Complete(t.Context(), &provider.Request{})
	if !errors.Is(err, errLimit) || len(w.alarms) != 2 {
		t.Errorf("%v, alarms %q", err, w.alarms)
	}
	if by := w.serve(t, 3); by != "!!!" || w.keys[2].calls != 4 || w.keys[0].calls != 1 {
		t.Errorf("%s, %+v", by, w.States())
	}
	w.keys[2].err = nil
	if by := w.serve(t, 1); by != "c" {
		t.Errorf("%s", by)
	}
}

// TestPoolOfOne: a single key is always called, whatever it answers.
func TestPoolOfOne(t *testing.T) {
	t.Parallel()
	w := newPoolWorld(1)
	for _, err := range []error{errKey, errQuota, errLimit, errBusy, nil} {
		w.keys[0].err = err
		if _, got := w.Complete(t.Context(), &provider.Request{}); !errors.Is(got, err) {
			t.Errorf("%v, want %v", got, err)
		}
	}
	if len(w.alarms) != 0 || w.Choose("m") != 0 { // Reliable reports what a call fails of
		t.Errorf("alarms: %q", w.alarms)
	}
}

// TestPoolIsConcurrent has many callers share keys that come and go.
func TestPoolIsConcurrent(t *testing.T) {
	t.Parallel()
	good := Key{"good", steady{}}
	p := NewPool([]Key{{"bad", steady{errKey}}, good}, time.Now, slog.New(slog.DiscardHandler), nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if _, err := p.Complete(t.Context(), &provider.Request{}); err != nil {
					t.Error(err)
				}
				p.States()
			}
		})
	}
	wg.Wait()
	if s := p.States(); s[1].Served != 1600 || s[0].Failed < 1 || s[0].Failed > 8 {
		t.Errorf("%+v", s)
	}
}

type steady struct{ err error }

func (s steady) Name() string { return "openai" }

func (s steady) Complete(context.Context, *provider.Request) (*provider.Response, error) {
	return &provider.Response{}, s.err
}

func (s steady) Stream(context.Context, *provider.Request) (provider.Stream, error) {
	return nil, s.err
}
