package ui

import (
	"math"
	"strings"
	"testing"
)

// A sparkline has a point for each value, within its box, and draws nothing for what is below zero.
func TestSparkline(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []int64
		line   string
	}{
		{nil, "1.0,22.0 95.0,22.0"},
		{[]int64{7}, "1.0,22.0 95.0,22.0"},
		{[]int64{0, 0, 0}, "1.0,22.0 48.0,22.0 95.0,22.0"},
		{[]int64{0, 5, 10}, "1.0,22.0 48.0,12.0 95.0,2.0"},
		{[]int64{-4, math.MinInt64, math.MaxInt64}, "1.0,22.0 48.0,22.0 95.0,2.0"},
	} {
		if got := string(Sparkline(c.values)); !strings.Contains(got, `<polyline points="`+c.line+`"/>`) {
			t.Errorf("%v: %s, want the line %s", c.values, got, c.line)
		}
	}
}
