package dashboard

import (
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
)

func TestEstimatePace(t *testing.T) {
	t.Parallel()
	today := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		owned money.MC
		spent map[int]money.MC // by days back
		want  ui.Pace
	}{
		"nothing":          {money.Dollar, nil, ui.Pace{}},
		"today alone":      {money.Dollar, map[int]money.MC{0: money.Dollar}, ui.Pace{}},
		"too few days":     {money.Dollar, map[int]money.MC{1: 1, 2: 1, 3: 1, 6: 1}, ui.Pace{}},
		"too little spend": {money.Dollar, map[int]money.MC{1: money.Cent, 14: money.Cent}, ui.Pace{}},
		"empty":            {0, map[int]money.MC{1: money.Cent, 2: money.Cent, 9: money.Cent}, ui.Pace{}},
		"below zero":       {-5, map[int]money.MC{1: money.Cent, 2: money.Cent, 9: money.Cent}, ui.Pace{}},
		"older spend alone": {money.Dollar, map[int]money.MC{
			20: money.Cent,
			30: money.Cent,
			31: money.Cent,
		}, ui.Pace{}},
		"a week": {
			70 * money.Dollar, map[int]money.MC{1: money.Dollar, 3: 2 * money.Dollar, 7: 4 * money.Dollar, 0: 99},
			ui.Pace{Lasts: "about 70 days", Daily: "$1.00", Days: 7},
		},
		"fourteen days, because it began before": {
			money.Dollar, map[int]money.MC{1: 3 * money.Dollar, 3: 2 * money.Dollar, 7: 2 * money.Dollar, 20: 1},
			ui.Pace{Lasts: "about 2 days", Daily: "$0.50", Days: 14},
		},
		"refunds do not count as spend": {
			money.Dollar, map[int]money.MC{1: money.Dollar, 2: -money.Dollar, 3: money.Dollar, 8: 2 * money.Dollar},
			ui.Pace{Lasts: "about 2 days", Daily: "$0.50", Days: 8},
		},
		"years": {
			1e6 * money.Dollar, map[int]money.MC{1: 1, 3: 2, 7: 4},
			ui.Pace{Lasts: "more than a year", Daily: "<$0.0001", Days: 7},
		},
		"hours": {
			1, map[int]money.MC{1: money.Dollar, 3: money.Dollar, 10: money.Dollar},
			ui.Pace{Lasts: "less than a day", Daily: "$0.30", Days: 10},
		},
	} {
		spent := map[string]money.MC{}
		for back, mc := range c.spent {
			spent[formatDay(today, -back)] = mc
		}
		if got := estimatePace(c.owned, spent, today); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestCompareSpend(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spent, before money.MC
		want          string
	}{
		{5, 0, ""}, {0, 0, ""}, {-1, 5, ""}, {5, 5, "about as much as before"}, {86, 100, "14% less than before"},
		{0, 100, "100% less than before"}, {250, 100, "150% more than before"},
		{money.MC(1) << 60, 1, "over ten times more than before"}, {1100, 100, "over ten times more than before"},
	} {
		if got := compareSpend(c.spent, c.before); got != c.want {
			t.Errorf("%d after %d: %q, want %q", c.spent, c.before, got, c.want)
		}
	}
}
