// Package retry repeats work that failed, with exponential back-off.
package retry

import (
	"context"
	"time"
)

// A Backoff is a sequence of pauses: the first is First, each next one is twice as long, and none exceeds Max.
type Backoff struct {
	First, Max time.Duration
	last       time.Duration
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	if b.last == 0 {
		b.last = b.First
	} else {
		b.last = min(2*b.last, b.Max)
	}
	return b.last
}

// Sleep pauses for d. It returns false if ctx ends before.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Do calls f until it succeeds, until it fails with an error that retryable refuses,
// or until ctx ends in a pause between two calls. It returns what f returned last.
func Do[T any](
	ctx context.Context, b Backoff, f func(context.Context) (T, error), retryable func(error) bool,
) (T, error) {
	for {
		v, err := f(ctx)
		if err == nil || !retryable(err) || !Sleep(ctx, b.Next()) {
			return v, err
		}
	}
}
