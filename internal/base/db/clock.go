package db

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// This file decides what time it is (decision 121). Clocks of machines are set: by an operator, by a hypervisor, by
// NTP at a start. So nothing that ends for good may follow from one reading of a clock that was set just now.
//
//   - On PostgreSQL Now is the database's clock at the last sample, plus what the monotonic clock of this machine has
//     counted since. Setting the machine's clock changes nothing.
//   - Leases are written and judged by a Moment: the database's clock while the statement runs.
//   - A step of the clock that Now follows is noticed, and the clock is not steady for ClockWait. Who ends something
//     for good because its time is over asks IsClockSteady, and waits.

const (
	// maxClockStep is the difference between two clocks that is taken for a step, and not for a slow sample.
	maxClockStep = 5 * time.Second
	// ClockWait is for how long a clock is not steady after a step.
	ClockWait = 10 * time.Minute
)

// clock is the state of a database's clock.
type clock struct {
	mu      sync.Mutex
	sample  time.Time // PostgreSQL: the database's clock at sampled; zero = there is no sample
	sampled time.Time // by the monotonic clock
	steps   stepWatch
}

// A stepWatch compares a clock with the monotonic clock.
type stepWatch struct {
	clock, monotonic time.Time // of the last reading
	steppedAt        time.Time // monotonic; zero = no step
}

// read notes a reading of a clock at a time of the monotonic clock, and reports whether it has been steady for
// ClockWait.
func (w *stepWatch) read(clock, monotonic time.Time) bool {
	if !w.monotonic.IsZero() {
		if step := clock.Sub(w.clock) - monotonic.Sub(w.monotonic); step.Abs() > maxClockStep {
			w.steppedAt = monotonic
		}
	}
	w.clock, w.monotonic = clock, monotonic
	return w.steppedAt.IsZero() || monotonic.Sub(w.steppedAt) >= ClockWait
}

// now returns the time at a reading of this machine's clock, without SetBack.
func (c *clock) now(machine time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sample.IsZero() {
		return machine
	}
	return c.sample.Add(machine.Sub(c.sampled))
}

// Now returns the time for rules of money. On PostgreSQL all nodes agree about it.
func (d *DB) Now() time.Time { return d.RealNow().Add(-time.Duration(d.lag.Load())) }

// RealNow is Now without SetBack.
func (d *DB) RealNow() time.Time { return d.clock.now(time.Now()) }

// Real returns the real time of a reading of Now: what is compared with the clocks of others, such as a phone's.
func (d *DB) Real(now time.Time) time.Time { return now.Add(time.Duration(d.lag.Load())) }

// SetBack sets Now back by lag, so that sample history is written by the code that writes the present, and tests have a
// date. A negative lag sets it ahead: package dev has a clock that developers move.
func (d *DB) SetBack(lag time.Duration) { d.lag.Store(int64(lag)) }

// IsClockSteady reports whether the clock has not stepped for ClockWait.
func (d *DB) IsClockSteady() bool {
	d.clock.mu.Lock()
	defer d.clock.mu.Unlock()
	if d.Engine == SQLite {
		now := time.Now()
		return d.clock.steps.read(now.Round(0), now)
	}
	w := d.clock.steps
	return w.steppedAt.IsZero() || time.Since(w.steppedAt) >= ClockWait
}

// DoubtClock notes that the clock seems to be wrong. It is not steady for ClockWait.
func (d *DB) DoubtClock() {
	d.clock.mu.Lock()
	defer d.clock.mu.Unlock()
	d.clock.steps.steppedAt = time.Now()
}

// ClockOffset returns the database's clock minus ours, as SyncClock last sampled it.
func (d *DB) ClockOffset() time.Duration { return time.Duration(d.offset.Load()) }

// errSlowSample says that the database's clock was not sampled because an answer took too long.
var errSlowSample = errors.New("sample the database's clock: the answer took more than a second")

// maxSampleTime is the longest round trip of a sample of the clock.
const maxSampleTime = time.Second

// StartClock is SyncClock for who needs a first sample: it is tried up to ten times while answers are slow, as on a
// machine that starts.
func (d *DB) StartClock(ctx context.Context) (err error) {
	for range 10 {
		if err = d.SyncClock(ctx); !errors.Is(err, errSlowSample) {
			return err
		}
	}
	return err
}

// SyncClock samples the clock of PostgreSQL. It takes over the fastest of three samples, if all succeeded and none was
// slower than a second: a sample whose answer was delayed may be wrong by half of the delay.
func (d *DB) SyncClock(ctx context.Context) error {
	if d.Engine != Postgres {
		return nil
	}
	if err := d.read.PingContext(ctx); err != nil { // a sample does not include the time to connect
		return fmt.Errorf("sample the database's clock: %w", err)
	}
	var samples [3]clockSample
	for i := range samples {
		var theirs time.Time
		before := time.Now()
		if err := d.QueryRowContext(ctx, `SELECT clock_timestamp()`).Scan(&theirs); err != nil {
			return fmt.Errorf("sample the database's clock: %w", err)
		}
		took := time.Since(before)
		samples[i] = clockSample{theirs: theirs, at: before.Add(took / 2), took: took}
	}
	s, err := fastestSample(samples[:])
	if err != nil {
		return err
	}
	d.offset.Store(int64(s.theirs.Sub(s.at)))
	d.clock.mu.Lock()
	defer d.clock.mu.Unlock()
	d.clock.sample, d.clock.sampled = s.theirs, s.at
	d.clock.steps.read(s.theirs, s.at)
	return nil
}

// A clockSample is one reading of the database's clock.
type clockSample struct {
	theirs time.Time
	at     time.Time     // by our clock, also the monotonic one
	took   time.Duration // the round trip
}

// fastestSample returns the fastest sample: its error is at most half the round trip. It returns errSlowSample if one
// took more than maxSampleTime.
func fastestSample(samples []clockSample) (clockSample, error) {
	fastest := samples[0]
	for _, s := range samples {
		if s.took > maxSampleTime {
			return clockSample{}, errSlowSample
		}
		if s.took < fastest.took {
			fastest = s
		}
	}
	return fastest, nil
}

// A Moment is a time in an SQL statement, in microseconds. That of a DB on PostgreSQL is the database's clock while the
// statement runs, so that no wrong or late reading of another clock decides.
type Moment struct {
	clock string // what is added to us; "" = nothing
	us    int64
}

// Moment returns now.
func (d *DB) Moment() Moment {
	if d.Engine == Postgres {
		return Moment{clock: `(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint + `}
	}
	return At(d.Now())
}

// At returns a fixed moment.
func At(t time.Time) Moment { return Moment{us: t.UnixMicro()} }

// Add returns the moment that is later by after.
func (m Moment) Add(after time.Duration) Moment {
	m.us += after.Microseconds()
	return m
}

// SQL returns the expression of the moment. param is the parameter to which Arg is bound, such as $2.
func (m Moment) SQL(param string) string {
	if m.clock == "" {
		return param
	}
	return "(" + m.clock + param + "::bigint)"
}

// Arg returns the argument of the parameter.
func (m Moment) Arg() int64 { return m.us }
