package shared

import (
	"context"
	"errors"
	"testing"
)

type key struct{}

// TestWork: the work has the values of its leader's context, outlives it while a caller waits, and ends with the last
// caller unless it is kept.
func TestWork(t *testing.T) {
	t.Parallel()
	leader, leave := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	w := NewWork()
	ctx := w.Context(leader)
	below, cancel := context.WithCancel(ctx)
	defer cancel()
	if ctx.Value(key{}) != "value" || !w.Join() {
		t.Fatal("no value, or not joined")
	}
	leave()
	if w.Leave() || below.Err() != nil {
		t.Errorf("the leader has left, and one who joined waits: %v", below.Err())
	}
	if !w.Leave() || !errors.Is(context.Cause(below), ErrAbandoned) || !errors.Is(w.Cause(), context.Canceled) {
		t.Errorf("all have left: %v", context.Cause(below))
	}
	if w.Join() || w.Keep() {
		t.Error("work that has ended was joined or kept")
	}

	kept := NewWork()
	if !kept.Keep() || !kept.Leave() || kept.Cause() != nil || !kept.Join() {
		t.Errorf("kept work: %v", kept.Cause())
	}
	kept.End(errors.ErrUnsupported)
	if kept.End(context.Canceled); !errors.Is(kept.Cause(), errors.ErrUnsupported) {
		t.Errorf("work that was ended: %v", kept.Cause())
	}
}

// TestFlight: the first caller of a value leaves while a second one waits, which gets it. Without callers it ends, and
// the next caller gets a new one. A panic is an error for who waits.
func TestFlight(t *testing.T) {
	t.Parallel()
	var g Flight[int]
	begun, release := make(chan context.Context, 1), make(chan struct{})
	load := func(ctx context.Context) (int, error) {
		begun <- ctx
		select {
		case <-release:
			return 7, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	type result struct {
		n   int
		err error
	}
	do := func(ctx context.Context) <-chan result {
		got := make(chan result, 1)
		go func() {
			n, err := g.Do(ctx, load)
			got <- result{n, err}
		}()
		return got
	}
	first, leave := context.WithCancel(t.Context())
	a := do(first)
	<-begun
	run := g.running
	b := do(t.Context())
	for run.work.Callers() < 2 {
		select {
		case r := <-b:
			t.Fatal(r)
		default:
		}
	}
	leave()
	if r := <-a; !errors.Is(r.err, context.Canceled) {
		t.Errorf("who left got %v", r)
	}
	close(release)
	if r := <-b; r.n != 7 || r.err != nil {
		t.Errorf("who stayed got %v", r)
	}

	release = make(chan struct{})
	alone, leave := context.WithCancel(t.Context())
	c := do(alone)
	abandoned := <-begun
	leave()
	<-c
	if <-abandoned.Done(); !errors.Is(context.Cause(abandoned), ErrAbandoned) {
		t.Errorf("a value that nobody wants: %v", context.Cause(abandoned))
	}
	close(release)
	if r := <-do(t.Context()); r.n != 7 || r.err != nil {
		t.Errorf("the next caller got %v", r)
	}
	if _, err := g.Do(t.Context(), func(context.Context) (int, error) { panic("broken") }); err == nil {
		t.Error("a panic is no error")
	}
}
