package retry

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := Backoff{First: 20 * time.Millisecond, Max: 100 * time.Millisecond}
	var got []time.Duration
	for range 5 {
		got = append(got, b.Next()/time.Millisecond)
	}
	if want := []time.Duration{20, 40, 80, 100, 100}; !slices.Equal(got, want) {
		t.Errorf("pauses of %v ms, want %v", got, want)
	}
}

var errAway, errWrong = errors.New("away"), errors.New("wrong")

// TestDo shows each way in which repeated work ends, how often it was called, and
// how long that took.
func TestDo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		fails []error // one a call; after them it succeeds
		limit time.Duration
		want  error
		calls int
		took  time.Duration
	}{
		{name: "it succeeds", limit: time.Minute, calls: 1},
		{
			name:  "it succeeds after three failures",
			fails: []error{errAway, errAway, errAway},
			limit: time.Minute,
			calls: 4,
			took:  4 * time.Second, // pauses of 1, 1.5 and 1.5 s
		},
		{
			name:  "an error is final",
			fails: []error{errAway, errWrong},
			limit: time.Minute,
			want:  errWrong,
			calls: 2,
			took:  time.Second,
		},
		{
			name:  "the context ends in a pause",
			fails: slices.Repeat([]error{errAway}, 10),
			limit: 2 * time.Second,
			want:  errAway,
			calls: 2,
			took:  2 * time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
				defer cancel()
				start, calls := time.Now(), 0
				n, err := Do(ctx, Backoff{First: time.Second, Max: 1500 * time.Millisecond},
					func(context.Context) (int, error) {
						calls++
						if calls <= len(tt.fails) {
							return calls, tt.fails[calls-1]
						}
						return calls, nil
					}, func(err error) bool { return errors.Is(err, errAway) })
				if took := time.Since(start); n != tt.calls || calls != tt.calls || !errors.Is(err, tt.want) ||
					took != tt.took {
					t.Errorf("%d calls, result %d, %v, in %s; want %d, %v, in %s", calls, n, err, took, tt.calls,
						tt.want, tt.took)
				}
			})
		})
	}
}
