package ui

import (
	"testing"
	"time"
)

// TestDurations writes durations as people say them.
func TestDurations(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		72 * time.Hour:              "3 days",
		24 * time.Hour:              "1 day",
		36 * time.Hour:              "36 hours",
		100 * time.Hour:             "4 days",
		time.Hour:                   "1 hour",
		90 * time.Minute:            "90 minutes",
		5*time.Hour + 7*time.Minute: "5 hours",
		time.Minute:                 "1 minute",
		20 * time.Second:            "less than two minutes",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
