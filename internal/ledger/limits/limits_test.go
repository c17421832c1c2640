package limits

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// TestWait shows the boundary: an instant before the bucket has left, and at it.
func TestWait(t *testing.T) {
	t.Parallel()
	s := Series{Width: time.Second}
	for range 3 {
		s = s.Add(start, 1, time.Minute)
	}
	if wait := s.RetryAfter(start, time.Minute, 3); wait != 0 {
		t.Errorf("3 of 3: wait %s", wait)
	}
	if wait := s.RetryAfter(start, time.Minute, 2); wait != 61*time.Second {
		t.Errorf("3 of 2: wait %s", wait)
	}
	last := start.Add(61*time.Second - time.Microsecond)
	if wait := s.RetryAfter(last, time.Minute, 2); wait != time.Microsecond || s.Sum(last, time.Minute) != 3 {
		t.Errorf("an instant before: wait %s, sum %d", wait, s.Sum(last, time.Minute))
	}
	if at := start.Add(61 * time.Second); s.RetryAfter(at, time.Minute, 0) != 0 || s.Sum(at, time.Minute) != 0 {
		t.Errorf("at the boundary: sum %d", s.Sum(at, time.Minute))
	}
	if wait := (Series{Width: time.Second}).RetryAfter(start, time.Minute, -1); wait != time.Minute {
		t.Errorf("what never fits: wait %s", wait)
	}
}

// TestClockStepsBack counts in the bucket of the time, and keeps the order: each bucket is the sum of
// what was added within it, so that ledger rows and buckets agree (I-25).
func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	s := Series{Width: time.Second}
	for i, back := range []time.Duration{0, 2 * time.Second, time.Second, 2 * time.Second, 0} {
		s = s.Add(start.Add(-back), int64(1)<<i, time.Minute)
	}
	second := start.Unix()
	if got, want := s.String(), fmt.Sprintf("%d:10 %d:4 %d:17", second-2, second-1, second); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := s.Sum(start, time.Minute); got != 31 {
		t.Errorf("sum %d", got)
	}
	s = s.Remove(start.Add(-2*time.Second), 10).Remove(start, 7).Remove(start.Add(-time.Hour), 1)
	if got, want := s.String(), fmt.Sprintf("%d:4 %d:10", second-1, second); got != want {
		t.Errorf("after the removal %s, want %s", got, want)
	}
}

func TestParseSeries(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1", "1:", ":1", "a:1", "1:b", "1:1  2:2", "1:1,2:2"} {
		if s, err := ParseSeries(time.Second, text); err == nil {
			t.Errorf("%q was read as %q", text, s)
		}
	}
}

// TestSeries compares with a plain list of what was added, over random times.
func TestSeries(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Minute}).Draw(t, "width")
		window := width * time.Duration(rapid.IntRange(1, 20).Draw(t, "window"))
		type added struct {
			at time.Time
			n  int64
		}
		var list []added
		s, now := Series{Width: width}, start
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*width)).Draw(t, "pass")))
			n := rapid.Int64Range(0, 100).Draw(t, "n")
			s = s.Add(now, n, window)
			list = append(list, added{now, n})
			sum := func(at time.Time) (total int64) {
				for _, a := range list {
					if a.at.Truncate(width).Add(width + window).After(at) {
						total += a.n
					}
				}
				return total
			}
			if got, want := s.Sum(now, window), sum(now); got != want {
				t.Fatalf("sum %d, want %d", got, want)
			}
			most := rapid.Int64Range(0, 300).Draw(t, "max")
			wait := s.RetryAfter(now, window, most)
			if wait > 0 && sum(now.Add(wait-time.Microsecond)) <= most || sum(now.Add(wait)) > most {
				t.Fatalf("wait %s is not exact", wait)
			}
			again, err := ParseSeries(width, s.String())
			if err != nil || again.String() != s.String() {
				t.Fatalf("%q reads as %q, %v", s, again, err)
			}
		}
	})
}
