package tiers

import (
	"testing"

	"github.com/purserhq/purser/internal/base/money"
)

// TestTerms is the table of contract §8.
func TestTerms(t *testing.T) {
	t.Parallel()
	for tier, want := range map[string]Policy{
		Sandbox:     {10 * money.Dollar, money.Max, 0, 0},
		LimitedLive: {10 * money.Dollar, 25 * money.Dollar, 5 * money.Dollar, 250 * money.Dollar},
		FullLive:    {10 * money.Dollar, money.Max, 0, 0},
	} {
		if got := PolicyOf(tier); got != want {
			t.Errorf("%s: %+v, want %+v", tier, got, want)
		}
	}
	if n := len(PolicyOf(FullLive).Limits("app_1", "acc_1")) + len(PolicyOf(Sandbox).Limits("app_1", "acc_1")); n != 0 {
		t.Errorf("%d limits on tiers without limits", n)
	}
}
