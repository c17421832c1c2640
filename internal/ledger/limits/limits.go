// Package limits is policy as data: a Limit says how much of what may happen in
// a rolling window, and a Series remembers what happened. Both are pure; the
// ledger enforces them inside the hold's transaction (contract §7, §8).
package limits

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
)

// Unit says what a limit counts.
type Unit int

// Calls counts admitted calls. Spend counts what users pay and Cost what providers
// are paid, in micro-cents, settled plus held.
const (
	Calls Unit = iota
	Spend
	Cost
)

// A Limit bounds what may happen to one subject in a rolling window.
type Limit struct {
	Subject string        // the row that remembers, for example "rate/conn_…/slug"; "" = the connection's own spend
	Unit    Unit          // what is counted
	Window  time.Duration // how far back it counts; 0 = for ever
	Max     int64         // calls, or micro-cents
	Code    apierr.Code   // the refusal of contract §7
	Owner   string        // for the message: "feature summarize"
	Event   string        // emitted to the app when the limit is reached, once per crossing; "" = none
}

// Widths of buckets. A bucket counts whole until its end has left the window,
// so a limit errs on the safe side by at most one width.
const (
	CallsBucketWidth = time.Second
	SpendBucketWidth = 10 * time.Minute
)

// BucketWidth returns the width of the buckets of a counter of this kind. A row stores
// every bucket of the window, so a limit of calls per day needs a coarser width than a
// second.
func (u Unit) BucketWidth(window time.Duration) time.Duration {
	switch {
	case window == 0:
		return 0
	case u == Calls:
		return CallsBucketWidth
	}
	return SpendBucketWidth
}

// A Series counts in buckets of equal width, oldest first.
type Series struct {
	Width   time.Duration // 0 = one bucket for all time
	buckets []bucket
}

type bucket struct{ index, n int64 }

// ParseSeries reads what String wrote.
func ParseSeries(width time.Duration, text string) (Series, error) {
	s := Series{Width: width}
	for len(text) > 0 {
		var word string
		word, text, _ = strings.Cut(text, " ")
		i, n, ok := strings.Cut(word, ":")
		index, err1 := strconv.ParseInt(i, 10, 64)
		count, err2 := strconv.ParseInt(n, 10, 64)
		if !ok || err1 != nil || err2 != nil {
			return s, fmt.Errorf("limits: bad bucket %q", word)
		}
		s.buckets = append(s.buckets, bucket{index, count})
	}
	return s, nil
}

// String writes the series as "index:count index:count".
func (s Series) String() string {
	b := make([]byte, 0, 24*len(s.buckets))
	for i, k := range s.buckets {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, k.index, 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, k.n, 10)
	}
	return string(b)
}

// Add counts n at now and forgets what is older than keep. A clock that stepped
// back counts in the newest bucket.
func (s Series) Add(now time.Time, n int64, keep time.Duration) Series {
	index := s.bucketIndex(now)
	old := s.buckets
	for len(old) > 0 && !s.inWindow(old[0], now, keep) {
		old = old[1:]
	}
	fresh := make([]bucket, len(old), len(old)+1)
	copy(fresh, old)
	if last := len(fresh) - 1; last >= 0 && fresh[last].index >= index {
		fresh[last].n += n
	} else {
		fresh = append(fresh, bucket{index, n})
	}
	return Series{Width: s.Width, buckets: fresh}
}

// Median returns what a bucket counts as a rule: the median of those that are not empty and ended a window ago.
func (s Series) Median(now time.Time, window time.Duration) int64 {
	var old []int64
	for _, b := range s.buckets {
		if b.n > 0 && !s.inWindow(b, now, window) {
			old = append(old, b.n)
		}
	}
	if len(old) == 0 {
		return 0
	}
	slices.Sort(old)
	return old[(len(old)-1)/2]
}

// Sum returns what was counted in the window that ends at now.
func (s Series) Sum(now time.Time, window time.Duration) (sum int64) {
	for _, b := range s.buckets {
		if s.inWindow(b, now, window) {
			sum += b.n
		}
	}
	return sum
}

// RetryAfter returns how long until enough has left the window that its sum is at
// most max. It returns the window itself when even an empty one is too full.
func (s Series) RetryAfter(now time.Time, window time.Duration, max int64) time.Duration {
	sum := s.Sum(now, window)
	for _, b := range s.buckets {
		if sum <= max {
			return 0
		}
		if s.inWindow(b, now, window) {
			sum -= b.n
			if sum <= max {
				return s.bucketEnd(b).Add(window).Sub(now)
			}
		}
	}
	if sum <= max {
		return 0
	}
	return window
}

func (s Series) bucketIndex(t time.Time) int64 {
	if s.Width == 0 {
		return 0
	}
	return t.UnixMicro() / s.Width.Microseconds()
}

func (s Series) bucketEnd(b bucket) time.Time {
	return time.UnixMicro((b.index + 1) * s.Width.Microseconds())
}

func (s Series) inWindow(b bucket, now time.Time, window time.Duration) bool {
	return s.Width == 0 || s.bucketEnd(b).Add(window).After(now)
}
