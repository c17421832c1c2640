package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/ledger/limits"
)

// TestDurationsInMessages: a refusal writes windows and waits in words.
func TestDurationsInMessages(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		24 * time.Hour:         "24 hours",
		time.Hour:              "1 hour",
		10 * time.Minute:       "10 minutes",
		time.Minute:            "60 seconds",
		61 * time.Second:       "61 seconds",
		time.Second:            "1 second",
		59*time.Second + 1:     "60 seconds",
		300 * time.Millisecond: "1 second",
	} {
		if got := formatWait(d); got != want {
			t.Errorf("%s is written %q, want %q", d, got, want)
		}
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := NewState()
	spent := limits.Series{Width: time.Second}
	for range 2 {
		spent = spent.Add(now, 1, time.Minute)
	}
	s.Counters["rate/conn_1/f"] = &Counter{Spent: spent}
	err := s.checkCallRates(Hold{Limits: []limits.Limit{{
		Subject: "rate/conn_1/f",
		Unit:    limits.Calls,
		Window:  time.Minute,
		Max:     2,
		Code:    apierr.RateLimited,
		Owner:   "feature f",
	}}}, now)
	if err == nil || !strings.Contains(err.Error(), "feature f allows 2 calls in 60 seconds; try again in 61 seconds") {
		t.Errorf("%v", err)
	}
}
