package calibration

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// run adds n calls of the same ratio, in thousandths.
func (s Stat) run(n int, thousandths int64) Stat {
	for range n {
		s = s.Add(1000, thousandths)
	}
	return s
}

// The factor in thousandths after calls of given ratios.
func TestFactor(t *testing.T) {
	t.Parallel()
	var s Stat
	for _, tt := range []struct {
		name string
		stat Stat
		want int64
	}{
		{"no calls", s, 1000},
		{"49 that were too low", s.run(49, 1300), 1000},
		{"50 that were too low", s.run(50, 1300), 1300},
		{"50 that were too high", s.run(50, 700), 1000},
		{"255 that were too high", s.run(255, 900), 1000},
		{"a whole block that was too high", s.run(256, 900), 900},
		{"one of them was right", s.run(200, 900).run(1, 1000).run(55, 900), 1000},
		{"far too high stops at 0.8", s.run(256, 300), 800},
		{"far too low stops at 1.5", s.run(256, 4000), 1500},
		{"the largest counts, not the mean", s.run(99, 1000).run(1, 1200), 1200},
		{"and at once", s.run(300, 900).run(1, 1200), 1200},
		{"it is remembered for a block", s.run(255, 900).run(1, 1200).run(256, 900), 1200},
		{"and forgotten after two", s.run(1, 1200).run(255, 900).run(256, 900).run(1, 900), 900},
		{"an absurd one is forgotten too", s.run(1, math.MaxInt64).run(511, 1000).run(1, 1000), 1000},
		{"nothing was read at all", s.run(600, 0), 800},
	} {
		if got := tt.stat.FactorPPM(); got != tt.want*1000 {
			t.Errorf("%s: factor %d ppm, want %d; %+v", tt.name, got, tt.want*1000, tt.stat)
		}
	}
}

// A small call is in the mean, and moves no factor.
func TestSmallCalls(t *testing.T) {
	t.Parallel()
	var s Stat
	for range 1000 {
		s = s.Add(minSampledTokens-1, 4*minSampledTokens)
	}
	if s.FactorPPM() != RatioOne || s.Calls != 1000 || s.MeanPPM < 4*RatioOne {
		t.Errorf("%+v", s)
	}
	if s = s.Add(0, 5).Add(-1, 5).Add(5, -1); s.Calls != 1000 {
		t.Errorf("calls that cannot be are counted: %+v", s)
	}
}

func TestMean(t *testing.T) {
	t.Parallel()
	var s Stat
	if s = s.Add(100, 110).Add(100, 130); s.MeanPPM != 1_200_000 {
		t.Errorf("the first calls weigh alike: %d", s.MeanPPM)
	}
	if s = s.run(2000, 900); s.MeanPPM < 900_000 || s.MeanPPM > 900_100 {
		t.Errorf("old calls do not fade: %d", s.MeanPPM)
	}
}

func TestOver(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		held, real int64
		want       bool
	}{
		{100, 100, false}, {100, 105, false}, {100, 106, true}, {1000, 1050, false}, {1000, 1051, true},
		{minSampledTokens - 1, 10 * minSampledTokens, false}, {minSampledTokens, minSampledTokens + 3, false},
		{minSampledTokens, minSampledTokens + 4, true}, {0, 0, false}, {math.MaxInt64 / 2, math.MaxInt64, true},
	} {
		if got := ExceedsHold(tt.held, tt.real); got != tt.want {
			t.Errorf("%d for %d held: over %v", tt.real, tt.held, got)
		}
	}
}

// Whatever is reported, nothing overflows, and the factor keeps its promise: it
// covers each of the last 256 sampled calls, up to its bound.
func TestFactorCovers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s Stat
		var recent []int64
		for range rapid.IntRange(0, 700).Draw(t, "calls") {
			counted := rapid.OneOf(rapid.Int64Range(minSampledTokens, 2000),
				rapid.Int64Range(minSampledTokens, 2_000_000)).Draw(t, "counted")
			real := counted * rapid.Int64Range(600, 1700).Draw(t, "thousandths") / 1000
			s = s.Add(counted, real)
			recent = append(recent, real*RatioOne/counted)
			if f := s.FactorPPM(); f < minFactorPPM || f > maxFactorPPM {
				t.Fatalf("factor %d", f)
			}
		}
		if len(recent) < minRaiseCalls {
			return
		}
		for _, ratio := range recent[max(0, len(recent)-blockCalls):] {
			if s.FactorPPM() < min(ratio, maxFactorPPM) {
				t.Fatalf("factor %d does not cover a ratio of %d", s.FactorPPM(), ratio)
			}
		}
	})
}
