package rules

import (
	"math/rand/v2"
	"testing"

	"github.com/purserhq/purser/internal/base/money"
)

// TestPayable is the rule at its boundaries.
func TestPayable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		margin        Margin
		minimum, want money.MC
	}{
		"nothing":           {Margin{}, 0, 0},
		"less than a cent":  {Margin{MaturedMC: money.Cent - 1}, 0, 0},
		"whole cents":       {Margin{MaturedMC: 3*money.Cent - 1}, 0, 2 * money.Cent},
		"at the minimum":    {Margin{MaturedMC: money.Dollar}, money.Dollar, money.Dollar},
		"below the minimum": {Margin{MaturedMC: money.Dollar - 1}, money.Dollar, 0},
		"returned first":    {Margin{MaturedMC: money.Dollar, ReturnedMC: money.Cent}, 0, 99 * money.Cent},
		"paid before":       {Margin{MaturedMC: money.Dollar, TakenMC: money.Dollar}, 0, 0},
		"carried":           {Margin{MaturedMC: money.Dollar, ReturnedMC: 2 * money.Cent, TakenMC: money.Dollar}, 0, 0},
		"kept":              {Margin{MaturedMC: money.Dollar, KeptMC: 2*money.Cent - 1}, 0, 98 * money.Cent},
	} {
		if got := c.margin.Payable(c.minimum); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// lot is one top-up, call what it paid for. Times are days.
type lot struct {
	paid, disputed int // disputed: -1 = never
	left           int
}

type call struct {
	lot      *lot
	day      int
	reversed int // -1 = never
	margin   money.MC
}

// TestRandomHistories pays an app through random top-ups, calls, reversals and
// disputes, each dispute within the window of its top-up. No payout takes money that
// is disputed, before or later, and what is left in the end is what the app is owed.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	const histories = 100_000
	payouts, carried := 0, 0
	for seed := range uint64(histories) {
		r := rand.New(rand.NewPCG(seed, 110))
		window := 1 + r.IntN(12)
		minimum := money.MC(r.IntN(3)) * 20 * money.Cent
		var lots []*lot
		var calls []*call
		var paid money.MC
		days := 10 + r.IntN(20)
		for day := range days + 2*window + 1 {
			if day < days { // afterwards only time passes
				if r.IntN(3) == 0 {
					l := &lot{paid: day, disputed: -1, left: 1 + r.IntN(4)}
					if r.IntN(4) == 0 {
						l.disputed = day + r.IntN(window+1)
					}
					lots = append(lots, l)
				}
				for _, l := range lots { // the oldest money is spent first
					if l.left > 0 && (l.disputed < 0 || day < l.disputed) && r.IntN(2) == 0 {
						l.left--
						calls = append(calls, &call{l, day, -1, money.MC(r.Int64N(int64(money.Dollar)))})
						break
					}
				}
			}
			if len(calls) > 0 && r.IntN(8) == 0 {
				if c := calls[r.IntN(len(calls))]; c.reversed < 0 && (c.lot.disputed < 0 || day < c.lot.disputed) {
					c.reversed = day
				}
			}
			m := Margin{TakenMC: paid}
			var safe money.MC // of calls that are not reversed and whose top-ups are never disputed
			for _, c := range calls {
				disputed := c.lot.disputed >= 0 && c.lot.disputed <= day
				if c.day < day-window {
					m.MaturedMC += c.margin
				}
				if c.reversed >= 0 || disputed {
					m.ReturnedMC += c.margin
				}
				if c.reversed < 0 && c.lot.disputed < 0 && c.lot.paid < day-window {
					safe += c.margin
				}
			}
			if m.Balance() < 0 && paid > 0 {
				carried++
			}
			amount := m.Payable(minimum)
			paid += amount
			if amount > 0 {
				payouts++
				if paid > safe {
					t.Fatalf("seed %d, day %d: %d paid, of which only %d is safe", seed, day, paid, safe)
				}
			}
			if rest := m.Balance() - amount; rest >= money.Cent && rest >= minimum {
				t.Fatalf("seed %d, day %d: %d is left unpaid", seed, day, rest)
			}
		}
	}
	if payouts == 0 || carried == 0 {
		t.Errorf("%d payouts, %d negative balances: the histories are too tame", payouts, carried)
	}
	t.Logf("%d histories, %d payouts, %d days with a negative balance", histories, payouts, carried)
}

// TestKeepFor keeps what the developer owes besides, and never more than the app is owed.
func TestKeepFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ balance, others, developer, want money.MC }{
		"nothing is owed":               {10, 0, 5, 0},
		"another app is below zero":     {10, -4, 0, 4},
		"a third app pays":              {10, 1, 0, 0},
		"the developer owes, too":       {10, -4, -3, 7},
		"a balance is no margin":        {10, -4, 100, 4},
		"more is owed than the app has": {10, -40, 0, 10},
		"the app itself is below zero":  {-10, -40, -5, 0},
		"the developer alone":           {10, 20, -30, 10},
	} {
		m := Margin{MaturedMC: c.balance}
		if m.KeepFor(c.balance+c.others, c.developer); m.KeptMC != c.want {
			t.Errorf("%s: %d, want %d", name, m.KeptMC, c.want)
		}
	}
}
