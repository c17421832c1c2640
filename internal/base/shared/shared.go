// Package shared runs work whose result belongs to several callers: a call that retries join, a value that many read.
//
// One rule holds for all of it: shared work depends on no single caller. It runs on the context of the Work, never on
// the context of the caller that began it. It goes on while any caller waits, and ends with ErrAbandoned when the last
// one leaves. The end of one caller's context is that caller's own error and reaches no other. So what leads shared
// work takes the context of the Work as its argument, and has no request whose context it could use by mistake.
package shared

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrAbandoned is why work ends that no caller waits for. It is a context.Canceled.
var ErrAbandoned = fmt.Errorf("no caller waits any more: %w", context.Canceled)

// A Work is a piece of work and those who wait for it.
type Work struct {
	over context.Context // ends with the work
	end  context.CancelCauseFunc

	mu      sync.Mutex
	callers int
	kept    bool // it goes on without callers
	ended   bool
}

// NewWork returns the work that a caller begins, which is its first one.
func NewWork() *Work {
	w := &Work{callers: 1}
	w.over, w.end = context.WithCancelCause(context.Background())
	return w
}

// Context returns the context that the work runs on. It has the values of ctx, the context of the caller that leads the
// work, and ends with the work.
func (w *Work) Context(ctx context.Context) context.Context { return workContext{w.over, ctx} }

type workContext struct {
	context.Context
	values context.Context
}

// Value returns a value of the leader's context. What makes a context end is asked of the work's.
func (c workContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// Callers returns how many callers wait.
func (w *Work) Callers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.callers
}

// Cause returns why the work has ended, or nil.
func (w *Work) Cause() error { return context.Cause(w.over) }

// Join adds a caller. It returns false if the work has ended: the caller waits until its results are out of the way,
// and then begins the work anew.
func (w *Work) Join() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return false
	}
	w.callers++
	return true
}

// Leave removes a caller, and reports whether it was the last. The last one ends the work, unless it is kept.
func (w *Work) Leave() (last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.callers--
	if w.callers > 0 {
		return false
	}
	if !w.kept {
		w.ended = true
		w.end(ErrAbandoned)
	}
	return true
}

// Keep lets the work go on without callers, from a point at which its result is worth more than the wait. It returns
// false if the work has ended.
func (w *Work) Keep() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = w.kept || !w.ended
	return !w.ended
}

// End ends the work for a cause, whoever waits. Work that has ended keeps its first cause.
func (w *Work) End(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.end(cause)
}

// A Flight makes one value at a time for all callers that want it meanwhile. The zero Flight is ready.
type Flight[T any] struct {
	mu      sync.Mutex
	running *flight[T]
}

type flight[T any] struct {
	work  *Work
	done  chan struct{} // closed when value and err are set
	value T
	err   error
}

// Do returns what f returns, or the error of ctx if that ends first. A caller that comes while f runs waits for the
// same result. A panic of f is an error for all who wait.
func (g *Flight[T]) Do(ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	run := g.join(ctx, f)
	defer run.work.Leave()
	select {
	case <-run.done:
		return run.value, run.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// join returns the flight that runs, or a new one. Flights that no caller waits for are not joined.
func (g *Flight[T]) join(ctx context.Context, f func(context.Context) (T, error)) *flight[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running != nil && g.running.work.Join() {
		return g.running
	}
	run := &flight[T]{work: NewWork(), done: make(chan struct{}), err: errors.New("shared: the work has panicked")}
	g.running = run
	go func() {
		defer close(run.done)
		defer func() {
			if p := recover(); p != nil {
				run.err = fmt.Errorf("shared: the work has panicked: %v", p)
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.running == run {
				g.running = nil
			}
		}()
		run.value, run.err = f(run.work.Context(ctx))
	}()
	return run
}
