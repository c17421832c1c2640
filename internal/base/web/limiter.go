package web

import (
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/time/rate"

	"github.com/purserhq/purser/internal/base/apierr"
)

// maxLimiterKeys bounds the token buckets of one Limiter, about 10 MB if full. The cache drops the least recently used
// keys, whose token buckets are full again.
const maxLimiterKeys = 100_000

// A Limiter is a token bucket for each key, for example a client_id. It is in the memory of one node and protects the
// node; the limits of the contract are in the database.
type Limiter struct {
	every   rate.Limit
	burst   int
	now     func() time.Time
	buckets bucketCache
}

// A bucketCache is an otter.Cache. As a field, that type would be compiled anew in each package that knows Limiter: 375
// functions, half a second of a processor (docs/internals/modules.md).
type bucketCache interface {
	ComputeIfAbsent(key string, makeBucket func() (*rate.Limiter, bool)) (*rate.Limiter, bool)
}

// NewLimiter returns a Limiter whose token buckets hold burst tokens and gain one per interval.
func NewLimiter(interval time.Duration, burst int, now func() time.Time) *Limiter {
	return &Limiter{
		every:   rate.Every(interval),
		burst:   burst,
		now:     now,
		buckets: otter.Must(&otter.Options[string, *rate.Limiter]{MaximumSize: maxLimiterKeys}),
	}
}

// Allow takes a token of key. If there is none, it returns the time until the next one.
func (l *Limiter) Allow(key string) (retryAfter time.Duration, ok bool) {
	now := l.now()
	r := l.bucket(key).ReserveN(now, 1)
	if wait := r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return wait, false
	}
	return 0, true
}

// Check is Allow with a refusal of its own: 429 with Retry-After.
func (l *Limiter) Check(key, message string) error {
	wait, ok := l.Allow(key)
	if ok {
		return nil
	}
	e := apierr.RateLimited.Errorf("%s", message)
	e.RetryAfter = max(wait, time.Second)
	return e
}

// AllowN takes n tokens of key, if it has them.
func (l *Limiter) AllowN(key string, n int) bool { return l.bucket(key).AllowN(l.now(), n) }

// Charge takes n tokens of key although it may have fewer, at most a burst: Peek then refuses until they are there
// again. A negative n gives back what was taken.
func (l *Limiter) Charge(key string, n int) { l.bucket(key).ReserveN(l.now(), min(n, l.burst)) }

// Peek is Allow without taking a token. To count only failures, call Peek before an attempt and Allow after a failure.
func (l *Limiter) Peek(key string) (retryAfter time.Duration, ok bool) {
	tokens := l.bucket(key).TokensAt(l.now())
	if tokens >= 1 {
		return 0, true
	}
	return time.Duration((1 - tokens) / float64(l.every) * float64(time.Second)), false
}

func (l *Limiter) bucket(key string) *rate.Limiter {
	b, _ := l.buckets.ComputeIfAbsent(key, func() (*rate.Limiter, bool) {
		return rate.NewLimiter(l.every, l.burst), false
	})
	return b
}
