package statements

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// entries are rows as the ledger writes them, by what they move for an amount.
var entries = []func(mc money.MC, app string) Group{
	func(mc money.MC, _ string) Group {
		return Group{Type: rules.EntryTopUp, Status: "settled", MovedMC: mc}
	},
	func(money.MC, string) Group { return Group{Type: rules.EntryTopUp, Status: "pending"} },
	func(mc money.MC, _ string) Group {
		return Group{Type: rules.EntryTopUp, Status: "settled", Goodwill: true, MovedMC: mc}
	},
	func(mc money.MC, _ string) Group {
		return Group{Type: rules.EntryTopUp, Status: "reversed", Goodwill: true, MovedMC: -mc}
	},
	func(mc money.MC, _ string) Group {
		return Group{Type: rules.EntryTopUp, Status: "reversed", Reason: "returned_to_card", MovedMC: -mc}
	},
	func(mc money.MC, _ string) Group {
		return Group{Type: rules.EntryTopUp, Status: "reversed", Reason: "chargeback", MovedMC: -mc}
	},
	func(mc money.MC, _ string) Group {
		return Group{Type: rules.EntryTopUp, Status: "settled", Negative: true, MovedMC: -mc}
	},
	func(mc money.MC, app string) Group {
		return Group{Type: rules.EntrySpend, Status: "settled", PaidBy: rules.PaidByWallet, AppID: app, MovedMC: -mc}
	},
	func(mc money.MC, app string) Group {
		return Group{Type: rules.EntrySpend, Status: "reversed", PaidBy: rules.PaidByWallet, AppID: app, MovedMC: mc}
	},
	func(_ money.MC, app string) Group {
		return Group{Type: rules.EntrySpend, Status: "settled", PaidBy: rules.PaidByFreeCredit, AppID: app}
	},
	func(_ money.MC, app string) Group { return Group{Type: rules.EntryCap, Status: "settled", AppID: app} },
}

// TestMonthsAddUp makes 10,000 random months, each from the closing balance of the one before: opening, lines and
// closing add up to the micro-cent, the lines say where each amount came from, and nothing is counted twice.
func TestMonthsAddUp(t *testing.T) {
	t.Parallel()
	months := 0
	rapid.Check(t, func(t *rapid.T) {
		balance := money.MC(rapid.Int64Range(-1000, 1_000_000).Draw(t, "opening"))
		for range 100 {
			months++
			var groups []Group
			moved, free := money.MC(0), int64(0)
			for range rapid.IntRange(0, 12).Draw(t, "groups") {
				mc := money.MC(rapid.Int64Range(1, 1_000_000_000).Draw(t, "amount"))
				g := rapid.SampledFrom(entries).Draw(t, "row")(mc, rapid.SampledFrom([]string{"p", "q"}).Draw(t, "app"))
				g.Rows = rapid.Int64Range(1, 1000).Draw(t, "rows")
				groups, moved = append(groups, g), moved+g.MovedMC
				if g.PaidBy == rules.PaidByFreeCredit {
					free += g.Rows
				}
			}
			s, err := Make(balance, groups)
			if err != nil {
				t.Fatal(err)
			}
			sum, seen := s.OpeningMC, map[Line]bool{}
			for _, line := range s.Lines {
				sum += line.AmountMC
				at := Line{Kind: line.Kind, AppID: line.AppID}
				if seen[at] {
					t.Fatalf("two lines of %+v", at)
				}
				seen[at] = true
				out := line.Kind == Calls || line.Kind == PaidRefunds || line.Kind == ReturnedToCard ||
					line.Kind == PaymentsReversed || line.Kind == GoodwillWithdrawn
				if out != (line.AmountMC < 0) || line.Rows == 0 {
					t.Fatalf("%+v", line)
				}
			}
			if s.OpeningMC != balance || sum != s.ClosingMC || s.ClosingMC != balance+moved || s.FreeCalls != free {
				t.Fatalf("%+v of %+v", s, groups)
			}
			balance = s.ClosingMC
		}
	})
	t.Logf("%d months", months)
}

// TestUnknownRows refuses rows that moved money for no known reason.
func TestUnknownRows(t *testing.T) {
	t.Parallel()
	if _, err := Make(5, []Group{{Type: rules.EntryCap, Status: "settled", Rows: 1, MovedMC: 1}}); err == nil {
		t.Error("a cap moved money")
	}
}
