package rules

import (
	"slices"
	"testing"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/tiers"
)

func TestRules(t *testing.T) {
	t.Parallel()
	const cent = money.Cent
	hours := func(n int, mc ...money.MC) []money.MC { return slices.Repeat(mc, n) }
	for _, c := range []struct {
		name string
		got  *Finding
		want bool
	}{
		{"nobody revoked", JudgeRevocations(0, 0), false},
		{"9 of 9", JudgeRevocations(9, 9), false},
		{"10 of 10", JudgeRevocations(10, 10), true},
		{"10 of 50, a fifth", JudgeRevocations(50, 10), true},
		{"10 of 51", JudgeRevocations(51, 10), false},
		{"11 of 55", JudgeRevocations(55, 11), true},
		{"a new app: the day of its tier", JudgeSpend(250*money.Dollar, nil), false},
		{"a new app: above it", JudgeSpend(250*money.Dollar+1, nil), true},
		{"23 hours of history", JudgeSpend(250*money.Dollar, hours(23, cent)), false},
		{"a small app: $50 is the floor", JudgeSpend(50*money.Dollar, hours(24, cent)), false},
		{"a small app: above it", JudgeSpend(50*money.Dollar+1, hours(24, cent)), true},
		{"20 times the median", JudgeSpend(60*money.Dollar, hours(8, 1, 3*money.Dollar, 900*money.Dollar)), false},
		{"above 20 times the median", JudgeSpend(60*money.Dollar+1, hours(8, 1, 3*money.Dollar, 900*money.Dollar)),
			true},
		{"a new app with good hours", JudgeSpend(400*money.Dollar, hours(3, 20*money.Dollar)), false},
		{"2 chargebacks", JudgeChargebacks(2), false},
		{"3 chargebacks", JudgeChargebacks(3), true},
	} {
		if (c.got != nil) != c.want {
			t.Errorf("%s: %+v", c.name, c.got)
		}
	}
}

// TestNewAppFloor holds the floor of new apps against what their tier allows in a day.
func TestNewAppFloor(t *testing.T) {
	t.Parallel()
	if day := tiers.PolicyOf(tiers.LimitedLive).AppDayMC; newAppFloor < day {
		t.Errorf("the floor is %s, the tier allows %s in a day", newAppFloor.Display(), day.Display())
	}
}

func TestHoursAreCountedBackwards(t *testing.T) {
	t.Parallel()
	got := SumHours(map[int64]money.MC{100: 1, 99: 2, 94: 3, 93: 4, 88: 0, 81: 5}, 100)
	if m := median(got); len(got) != 3 || m != 5 { // 2+3, 4, 5; bucket 100 is in the hour itself, 88 is empty
		t.Errorf("%v, median %d", got, m)
	}
}
