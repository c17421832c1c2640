package upstream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
)

// script is a provider that fails as told, and then works.
type script struct {
	fails []error
	calls int
}

func (s *script) Name() string { return "openai" }

func (s *script) Complete(context.Context, *provider.Request) (*provider.Response, error) {
	s.calls++
	if s.calls <= len(s.fails) {
		return nil, s.fails[s.calls-1]
	}
	return &provider.Response{}, nil
}

func (s *script) Stream(ctx context.Context, r *provider.Request) (provider.Stream, error) {
	_, err := s.Complete(ctx, r)
	return nil, err
}

// patient returns s with tries, and the waits that it made.
func patient(s *script) (*Reliable, *[]time.Duration, *time.Time) {
	now, waits := time.Unix(1_800_000_000, 0), new([]time.Duration)
	r := NewReliable(s, func() time.Time { return now }, slog.New(slog.NewTextHandler(io.Discard, nil)), nil)
	r.sleep = func(_ context.Context, d time.Duration) error {
		*waits = append(*waits, d)
		now = now.Add(d)
		return nil
	}
	return r, waits, &now
}

func busy(after time.Duration) *provider.Error {
	return &provider.Error{Status: 429, Retry: true, RetryAfter: after}
}

func TestTries(t *testing.T) {
	t.Parallel()
	final := &provider.Error{Status: 429, Alarm: "the account is out of quota"}
	for _, c := range []struct {
		name  string
		fails []error
		calls int
		ok    bool
		least []time.Duration // of each wait
	}{
		{"works at once", nil, 1, true, nil},
		{"works at the second try", []error{busy(0)}, 2, true, []time.Duration{firstWait / 2}},
		{"waits as the provider asks", []error{busy(3 * time.Second), busy(time.Second)}, 3, true,
			[]time.Duration{3 * time.Second, time.Second}},
		{"not a fourth time", []error{busy(0), busy(0), busy(0)}, 3, false, []time.Duration{0, 0}},
		{"a wait that is too long is the client's", []error{busy(maxWait + 1)}, 1, false, nil},
		{"out of quota", []error{final}, 1, false, nil},
		{"rejected", []error{&provider.Error{Kind: provider.Rejected, Status: 400}}, 1, false, nil},
		{"unknown", []error{errors.New("x")}, 1, false, nil},
	} {
		for _, stream := range []bool{false, true} {
			s := &script{fails: c.fails}
			r, waits, _ := patient(s)
			alarms := 0
			r.Alarm = func(string, string, error) { alarms++ }
			var err error
			if stream {
				_, err = r.Stream(t.Context(), &provider.Request{})
			} else {
				_, err = r.Complete(t.Context(), &provider.Request{})
			}
			if s.calls != c.calls || (err == nil) != c.ok || len(*waits) != len(c.least) {
				t.Errorf("%s: %d calls, waits %v, %v", c.name, s.calls, *waits, err)
				continue
			}
			for i, least := range c.least {
				if (*waits)[i] < least {
					t.Errorf("%s: wait %d is %v", c.name, i, (*waits)[i])
				}
			}
			if (alarms == 1) != (len(c.fails) == 1 && c.fails[0] == error(final)) {
				t.Errorf("%s: %d alarms", c.name, alarms)
			}
		}
	}
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	dead := &provider.Error{Status: 503}
	s := &script{}
	for range failuresToOpen + 1 {
		s.fails = append(s.fails, dead)
	}
	r, _, now := patient(s)
	failUntilOpen(r, now, &provider.Request{})
	if _, err := r.Complete(t.Context(), &provider.Request{}); !errors.Is(err, errOpen) || s.calls != failuresToOpen {
		t.Fatalf("%d calls reached a dead provider: %v", s.calls, err)
	}
	var e *provider.Error
	_, err := r.Complete(t.Context(), &provider.Request{})
	if !errors.As(err, &e) || e.RetryAfter <= 0 || e.RetryAfter > openDuration {
		t.Errorf("the app is not told when to come again: %v", err)
	}
	*now = now.Add(openDuration)
	if _, err := r.Complete(t.Context(), &provider.Request{}); errors.Is(err, errOpen) || s.calls != failuresToOpen+1 {
		t.Errorf("no probe: %v", err)
	}
	if _, err := r.Complete(t.Context(), &provider.Request{}); !errors.Is(err, errOpen) {
		t.Errorf("a failed probe closes nothing: %v", err)
	}
	*now = now.Add(openDuration)
	for range 3 {
		if _, err := r.Complete(t.Context(), &provider.Request{}); err != nil {
			t.Errorf("the provider is back: %v", err)
		}
	}
}

// TestCutCallsSayNothing: calls that their users end, or that the node cuts, neither close an open circuit nor open
// one.
func TestCutCallsSayNothing(t *testing.T) {
	t.Parallel()
	dead := &provider.Error{Status: 503}
	s := &script{}
	for range 3 * failuresToOpen {
		s.fails = append(s.fails, dead)
	}
	r, _, now := patient(s)
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	for range failuresToOpen - 1 {
		if _, err := r.Complete(t.Context(), &provider.Request{}); errors.Is(err, errOpen) {
			t.Fatal("open too soon")
		}
		*now = now.Add(failingToOpen / 2)
	}
	for range 3 {
		if _, err := r.Complete(cut, &provider.Request{}); errors.Is(err, errOpen) {
			t.Error("cut calls have opened the circuit")
		}
	}
	_, _ = r.Complete(t.Context(), &provider.Request{})
	*now = now.Add(openDuration)
	if _, err := r.Complete(cut, &provider.Request{}); errors.Is(err, errOpen) {
		t.Fatal("the cut call is no probe")
	}
	if _, err := r.Complete(t.Context(), &provider.Request{}); !errors.Is(err, errOpen) {
		t.Errorf("a cut probe has closed the circuit: %v", err)
	}
}

// failUntilOpen makes as many calls as open a circuit, in the time that it takes.
func failUntilOpen(r *Reliable, now *time.Time, q *provider.Request) (told []error) {
	for range failuresToOpen {
		_, err := r.Complete(context.Background(), q)
		told = append(told, err)
		*now = now.Add(failingToOpen/(failuresToOpen-1) + 1)
	}
	return told
}

// TestBreakerStaysClosedWhileCallsSucceed: a prompt that always fails, on many lines of one connection, stops none of
// the connection's other calls, which succeed every few seconds.
func TestBreakerStaysClosedWhileCallsSucceed(t *testing.T) {
	t.Parallel()
	r, _, now := patient(nil)
	r.Provider = answerer(func(q *provider.Request) error {
		if q.MaxTokens == 1 {
			return &provider.Error{Status: 500}
		}
		return nil
	})
	for range 20 {
		for range 10 * failuresToOpen {
			if _, err := r.Complete(t.Context(), &provider.Request{MaxTokens: 1}); errors.Is(err, errOpen) {
				t.Fatal("the circuit opened beside calls that succeed")
			}
		}
		*now = now.Add(failingToOpen - time.Second)
		if _, err := r.Complete(t.Context(), &provider.Request{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBreakerMindsOnlyTheProvider: what one request or our key does wrong says
// nothing about the provider.
func TestBreakerMindsOnlyTheProvider(t *testing.T) {
	t.Parallel()
	for _, e := range []*provider.Error{
		{Kind: provider.Rejected, Status: 400},
		{Status: 429},
		{Status: 401, Alarm: "the key is refused"},
	} {
		s := &script{}
		for range 3 * failuresToOpen {
			s.fails = append(s.fails, e)
		}
		r, _, now := patient(s)
		for range 3 {
			failUntilOpen(r, now, &provider.Request{})
		}
		if s.calls != 3*failuresToOpen {
			t.Errorf("%+v opened the circuit after %d calls", e, s.calls)
		}
	}
}

// TestBreakerKeepsAppsAndModelsApart: the failing calls of one app, or of one model, open no
// other's circuit, and the tries of a call count once.
func TestBreakerKeepsAppsAndModelsApart(t *testing.T) {
	t.Parallel()
	busy := &provider.Error{Status: 503, Retry: true}
	s := &script{}
	for range 3 * failuresToOpen {
		s.fails = append(s.fails, busy)
	}
	r, _, now := patient(s)
	bad := &provider.Request{Model: "m", AppID: "app_bad"}
	for _, err := range failUntilOpen(r, now, bad) {
		if errors.Is(err, errOpen) {
			t.Fatal("tries are counted as calls")
		}
	}
	if _, err := r.Complete(t.Context(), bad); !errors.Is(err, errOpen) {
		t.Errorf("the circuit did not open: %v", err)
	}
	for _, good := range []*provider.Request{{Model: "m", AppID: "app_good"}, {Model: "other", AppID: "app_bad"}} {
		if _, err := r.Complete(t.Context(), good); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
}

// TestBreakerKeepsConnectionsApart: one connection whose calls fail again and again stops no other connection of the
// app, takes none of its probes, and does not reach the provider itself. When all fail, each learns it by its own call.
func TestBreakerKeepsConnectionsApart(t *testing.T) {
	t.Parallel()
	r, _, now := patient(nil)
	bad := &provider.Error{Status: 500}
	asked := map[string]int{}
	fails := func(string) bool { return false }
	r.Provider = answerer(func(q *provider.Request) error {
		asked[q.ConnectionID]++
		if fails(q.ConnectionID) {
			return bad
		}
		return nil
	})
	ask := func(connection string) error {
		_, err := r.Complete(t.Context(), &provider.Request{Model: "m", AppID: "app", ConnectionID: connection})
		return err
	}
	fails = func(connection string) bool { return connection == "bad" }
	failUntilOpen(r, now, &provider.Request{Model: "m", AppID: "app", ConnectionID: "bad"})
	for range 10 {
		for range failuresToOpen {
			if err := ask("bad"); err == nil {
				t.Fatal("it is not asked to fail")
			}
		}
		if err := ask("good"); err != nil {
			t.Errorf("another connection: %v", err)
		}
		*now = now.Add(openDuration / 10)
	}
	if asked["good"] != 10 || asked["bad"] > failuresToOpen+2 {
		t.Errorf("asked: %v", asked)
	}

	fails = func(string) bool { return true } // the provider is down
	for range failuresToOpen {
		_ = ask("user")
		*now = now.Add(failingToOpen/(failuresToOpen-1) + 1)
	}
	clear(asked)
	for i := range 200 {
		_ = ask("bad")
		_ = ask("user" + string(rune('a'+i%20)))
	}
	if sum := asked["bad"] + len(asked); len(asked) < 20 || sum > 60 {
		t.Errorf("asked: %v", asked)
	}
	fails = func(connection string) bool { return connection == "bad" } // it is back
	*now = now.Add(openDuration)
	for range 2 {
		if err := ask("usera"); err != nil {
			t.Errorf("a probe that the failing connection has not taken: %v", err)
		}
		_ = ask("bad")
	}
}

// An answerer answers each request, or fails.
type answerer func(*provider.Request) error

func (answerer) Name() string { return "openai" }

func (a answerer) Complete(_ context.Context, q *provider.Request) (*provider.Response, error) {
	return &provider.Response{}, a(q)
}

func (a answerer) Stream(_ context.Context, q *provider.Request) (provider.Stream, error) {
	return nil, a(q)
}
