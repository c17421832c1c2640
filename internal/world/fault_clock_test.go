package world

import (
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// A wallClock is the clock that people, Stripe and the product read, and that steps. Timers do not.
type wallClock struct{ ahead atomic.Int64 }

// Now is the time.
func (c *wallClock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// set lets the product read the clock.
func (c *wallClock) set(d *db.DB) { d.SetBack(-time.Duration(c.ahead.Load())) }

// clockSteps are how far the clock steps. A machine that was asleep is behind by hours, one whose clock is put right is
// ahead by seconds (decision 121).
var clockSteps = []time.Duration{-time.Second, -4 * time.Second, -20 * time.Second, 3 * time.Minute, 47 * time.Minute,
	5 * time.Hour, 26 * time.Hour}

// stepClock lets the clock step. The product notices steps of more than five seconds, as its monotonic clock does not.
func (w *world) stepClock(s bank.Step) error {
	step := clockSteps[s.A%len(clockSteps)]
	w.clock.ahead.Add(int64(step))
	w.clock.set(w.Server.DB)
	if step.Abs() > 5*time.Second {
		w.Server.DB.DoubtClock()
	}
	w.api.drawn["met: clock-steps"]++
	return nil
}
