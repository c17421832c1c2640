// Package limits has rolling limits as data: a Limit bounds calls or spend in a rolling
// window, and a Series counts them. Both are pure; the ledger enforces them in the hold's
// transaction (contract §7, §8).
package limits

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
)

// A Unit is what a limit counts.
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
	Subject string        // the counter, for example "rate/app_…/wac_…/slug"
	Unit    Unit          // what is counted
	Window  time.Duration // the time that is counted; 0 = all time
	Max     int64         // calls, or micro-cents
	Code    apierr.Code   // the refusal of contract §7
	Owner   string        // who sets the limit, for the message: "feature summarize"
	Event   string        // type of the event when the limit is reached, once per crossing; "" = none
}

// Widths of buckets. A bucket counts as a whole until its end has left the window, so a
// limit refuses too early by at most one width, and never too late.
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

// ParseSeries parses the form that String writes.
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

// Add counts n at now and deletes buckets that ended before now − keep. Also when the clock
// has stepped back, it counts in the bucket of now, so that each bucket is the sum of the
// ledger rows of its time.
func (s Series) Add(now time.Time, n int64, keep time.Duration) Series {
	index := s.bucketIndex(now)
	old := s.buckets
	for len(old) > 0 && !s.inWindow(old[0], now, keep) {
		old = old[1:]
	}
	fresh := make([]bucket, len(old), len(old)+1)
	copy(fresh, old)
	i := len(fresh)
	for i > 0 && fresh[i-1].index > index {
		i--
	}
	if i > 0 && fresh[i-1].index == index {
		fresh[i-1].n += n
	} else {
		fresh = slices.Insert(fresh, i, bucket{index, n})
	}
	return Series{Width: s.Width, buckets: fresh}
}

// Remove takes back n that Add counted at a time. A bucket that is deleted already has no
// count to lose.
func (s Series) Remove(at time.Time, n int64) Series {
	return s.Minus(Series{Width: s.Width, buckets: []bucket{{s.bucketIndex(at), n}}})
}

// Since returns the buckets of the window that ends at now.
func (s Series) Since(now time.Time, window time.Duration) Series {
	out := Series{Width: s.Width}
	for _, b := range s.buckets {
		if s.inWindow(b, now, window) {
			out.buckets = append(out.buckets, b)
		}
	}
	return out
}

// Minus returns s without what other counts in the same buckets. No bucket falls below 0.
func (s Series) Minus(other Series) Series {
	if len(other.buckets) == 0 {
		return s
	}
	out := Series{Width: s.Width, buckets: make([]bucket, 0, len(s.buckets))}
	for _, b := range s.buckets {
		for _, o := range other.buckets {
			if o.index == b.index {
				b.n = max(b.n-o.n, 0)
			}
		}
		if b.n != 0 {
			out.buckets = append(out.buckets, b)
		}
	}
	return out
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

// Sum returns the count of the window that ends at now.
func (s Series) Sum(now time.Time, window time.Duration) (sum int64) {
	for _, b := range s.buckets {
		if s.inWindow(b, now, window) {
			sum += b.n
		}
	}
	return sum
}

// RetryAfter returns the time until the sum of the window is at most max, without new
// counts. It returns the window itself if max is negative.
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
