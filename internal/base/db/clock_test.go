package db

import (
	"errors"
	"testing"
	"time"
)

// TestSlowSamplesDoNotCount reads the database's clock by three samples: the fastest counts, and none if one was slow.
func TestSlowSamplesDoNotCount(t *testing.T) {
	t.Parallel()
	at := time.Now()
	fast := clockSample{theirs: at.Add(3), at: at, took: 2 * time.Millisecond}
	faster := clockSample{theirs: at.Add(7), at: at, took: time.Millisecond}
	if s, err := fastestSample([]clockSample{fast, faster, fast}); s != faster || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	slow := clockSample{theirs: at.Add(9), at: at, took: maxSampleTime + 1}
	for i := range 3 {
		samples := []clockSample{fast, faster, fast}
		samples[i] = slow
		if _, err := fastestSample(samples); !errors.Is(err, errSlowSample) {
			t.Errorf("slow sample %d: %v", i, err)
		}
	}
}

// TestStepOfTheMachineChangesNothing: after a sample, Now follows the monotonic clock, wherever the machine's clock is
// set to.
func TestStepOfTheMachineChangesNothing(t *testing.T) {
	t.Parallel()
	machine := time.Now() // has a reading of the monotonic clock too
	c := clock{sample: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC), sampled: machine}
	if got := c.now(machine.Add(7 * time.Second)); !got.Equal(c.sample.Add(7 * time.Second)) {
		t.Errorf("7 s later it is %v", got)
	}
	if got := (&clock{}).now(machine); got != machine {
		t.Errorf("without a sample it is %v, on the machine %v", got, machine)
	}
}

// TestStepsOfAClock: a clock is not steady for ten minutes after it was set, forward or back, and drift is no step.
func TestStepsOfAClock(t *testing.T) {
	t.Parallel()
	start := time.Now()
	var w stepWatch
	passed, ahead := time.Duration(0), time.Duration(0)
	read := func(after, step time.Duration) bool {
		passed, ahead = passed+after, ahead+step
		return w.read(start.Round(0).Add(passed+ahead), start.Add(passed))
	}
	for i, r := range []struct {
		after, step time.Duration
		steady      bool
	}{
		{0, 0, true},
		{time.Second, 0, true},
		{time.Hour, time.Second, true}, // drift
		{time.Second, 400 * 24 * time.Hour, false},
		{6 * time.Second, -400 * 24 * time.Hour, false},
		{ClockWait - time.Second, 0, false},
		{time.Second, 0, true},
		{time.Second, -15 * time.Second, false},
		{ClockWait, 0, true},
	} {
		if got := read(r.after, r.step); got != r.steady {
			t.Errorf("reading %d: steady %t", i, got)
		}
	}
}
