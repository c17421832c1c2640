package world

import (
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// A wallClock is the clock that people, Stripe and the product read, and that steps. Timers do not.
type wallClock struct {
	ahead  atomic.Int64 // by steps
	passed atomic.Int64 // the time that has passed for all and that nobody has waited for: outside of a bubble
}

// Now is the time.
func (c *wallClock) Now() time.Time { return c.steady().Add(time.Duration(c.ahead.Load())) }

// steady is Now without steps.
func (c *wallClock) steady() time.Time { return time.Now().Add(time.Duration(c.passed.Load())) }

// set lets the product read the clock, as it was back then.
func (c *wallClock) set(d *db.DB, back time.Duration) {
	d.SetBack(back - time.Duration(c.ahead.Load()+c.passed.Load()))
}

// clockSteps are how far the clock steps. A machine that was asleep is behind by hours, one whose clock is put right is
// ahead by seconds (decision 121).
var clockSteps = []time.Duration{-time.Second, -4 * time.Second, -20 * time.Second, 3 * time.Minute, 47 * time.Minute,
	5 * time.Hour, 26 * time.Hour}

// stepClock lets the clock step. The product notices steps of more than five seconds, as its monotonic clock does not.
func (w *world) stepClock(s bank.Step) error {
	step := clockSteps[s.A%len(clockSteps)]
	w.clock.ahead.Add(int64(step))
	w.clock.set(w.Server.DB, 0)
	if step.Abs() > 5*time.Second {
		w.Server.DB.DoubtClock()
	}
	w.api.drawn["met: clock-steps"]++
	return nil
}
