package journal

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// TestPost posts each kind of row.
func TestPost(t *testing.T) {
	t.Parallel()
	call := rules.Amounts{ProviderCostMC: 100, SvcFeeMC: 5, DevMarginMC: 15, UserChargeMC: 120}
	for name, tt := range map[string]struct {
		e     rules.Entry
		cause Cause
		want  []Posting
	}{
		"call": {
			rules.Entry{Type: rules.EntrySpend, Status: "settled", Amounts: call, ReservedDeltaMC: -120}, Cause{},
			[]Posting{{Users, 120}, {Providers, -100}, {Developers, -15}, {Fee, -5}},
		},
		"call of a revoked connection": {
			rules.Entry{
				Type:             rules.EntrySpend,
				Status:           "settled",
				Amounts:          call,
				ReservedDeltaMC:  -200,
				AvailableDeltaMC: 80,
			}, Cause{},
			[]Posting{{Users, 120}, {Providers, -100}, {Developers, -15}, {Fee, -5}},
		},
		"call whose fee took a shortfall": {
			rules.Entry{
				Type:            rules.EntrySpend,
				Status:          "settled",
				Amounts:         rules.Amounts{ProviderCostMC: 100, SvcFeeMC: -7, DevMarginMC: 15, UserChargeMC: 108},
				ReservedDeltaMC: -108,
			}, Cause{},
			[]Posting{{Users, 108}, {Providers, -100}, {Developers, -15}, {Fee, 7}},
		},
		"call paid by free credit": {
			rules.Entry{
				Type:    rules.EntrySpend,
				Status:  "settled",
				PaidBy:  rules.PaidByFreeCredit,
				Amounts: rules.Amounts{ProviderCostMC: 100, UserChargeMC: 100},
			}, Cause{},
			[]Posting{{FreeCredit, 100}, {Providers, -100}},
		},
		"call of a child whose budget bounded free credit": {
			rules.Entry{
				Type:    rules.EntrySpend,
				Status:  "settled",
				PaidBy:  rules.PaidByFreeCredit,
				Amounts: rules.Amounts{ProviderCostMC: 100, SvcFeeMC: -30, UserChargeMC: 70},
			}, Cause{},
			[]Posting{{FreeCredit, 70}, {Providers, -100}, {Fee, 30}},
		},
		"refund": {
			rules.Entry{Type: rules.EntrySpend, Status: "reversed", Amounts: call, ReservedDeltaMC: 120}, Cause{},
			[]Posting{{Users, -120}, {Refunds, 100}, {Developers, 15}, {Fee, 5}},
		},
		"refund by the app, from its margin": {
			rules.Entry{Type: rules.EntrySpend, Status: "reversed", Amounts: call, ReservedDeltaMC: 120},
			Cause{MarginMC: new(money.MC(120))},
			[]Posting{{Users, -120}, {Refunds, -5}, {Developers, 120}, {Fee, 5}},
		},
		"refund by the app, from the developer's balance": {
			rules.Entry{Type: rules.EntrySpend, Status: "reversed", Amounts: call, ReservedDeltaMC: 120},
			Cause{MarginMC: new(money.MC(0))},
			[]Posting{{Users, -120}, {Refunds, 115}, {Fee, 5}},
		},
		"top-up": {
			rules.Entry{Type: rules.EntryTopUp, Status: "settled", AmountMC: 500, AvailableDeltaMC: 500}, Cause{},
			[]Posting{{Cash, 500}, {Users, -500}},
		},
		"pending top-up": {rules.Entry{Type: rules.EntryTopUp, Status: "pending", AmountMC: 500}, Cause{}, nil},
		"failed top-up":  {rules.Entry{Type: rules.EntryTopUp, Status: "reversed", AmountMC: 500}, Cause{}, nil},
		"dispute": {
			rules.Entry{Type: rules.EntryTopUp, Status: "reversed", AmountMC: 500, AvailableDeltaMC: -500}, Cause{},
			[]Posting{{Cash, -500}, {Users, 500}},
		},
		"goodwill": {
			rules.Entry{Type: rules.EntryTopUp, Status: "settled", AmountMC: 9, AvailableDeltaMC: 9},
			Cause{Goodwill: true},
			[]Posting{{Goodwill, 9}, {Users, -9}},
		},
		"goodwill withdrawn": {
			rules.Entry{Type: rules.EntryTopUp, Status: "reversed", AmountMC: 9, AvailableDeltaMC: -9},
			Cause{Goodwill: true},
			[]Posting{{Goodwill, -9}, {Users, 9}},
		},
		"debit of a developer": {
			rules.Entry{Type: rules.EntryTopUp, Status: "settled", AmountMC: -70, AvailableDeltaMC: -70}, Cause{},
			[]Posting{{Refunds, -70}, {Users, 70}},
		},
		"connect": {
			rules.Entry{Type: rules.EntryConnect, Status: "settled", AvailableDeltaMC: -10, ReservedDeltaMC: 10},
			Cause{}, nil,
		},
	} {
		got, err := Post(&tt.e, tt.cause)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	wrong := rules.Entry{ID: "led_1", Type: rules.EntrySpend, Status: "settled", Amounts: call, ReservedDeltaMC: -121}
	if _, err := Post(&wrong, Cause{}); err == nil {
		t.Error("a row that moves another amount than it charges is posted")
	}
}

// TestPostMargin posts what happens to an app's margin besides its calls.
func TestPostMargin(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		r    rules.MarginRecord
		want []Posting
	}{
		"payout to the developer": {
			rules.MarginRecord{Kind: "begun", AmountMC: 9}, []Posting{{Developers, 9}, {Cash, -9}},
		},
		"payout failed: closed": {
			rules.MarginRecord{Kind: "failed", AmountMC: -9, Detail: "closed"}, []Posting{{Developers, -9}, {Cash, 9}},
		},
		"margin of a disputed payment": {
			rules.MarginRecord{Kind: "disputed", AmountMC: 5}, []Posting{{Developers, 5}, {Disputes, -5}},
		},
		"margin of a payment no longer disputed": {
			rules.MarginRecord{Kind: "disputed", AmountMC: -5}, []Posting{{Developers, -5}, {Disputes, 5}},
		},
	} {
		if d := cmp.Diff(tt.want, PostMargin(&tt.r)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if got := DescribeMargin(&tt.r); got != name {
			t.Errorf("%s is described as %q", name, got)
		}
	}
	if list := PostMargin(&rules.MarginRecord{Kind: "paid"}); list != nil {
		t.Errorf("that Stripe has a payout moves %v", list)
	}
}

// TestRounding: whatever the totals, the rounded entry is in whole cents and adds up to 0. Each account is at most
// half a cent from its true balance, and the difference at most half a cent an account.
func TestRounding(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		totals := Totals{}
		for range rapid.IntRange(0, 20).Draw(t, "rows") {
			cost := money.MC(rapid.Int64Range(0, 3e8).Draw(t, "cost"))
			fee := money.MC(rapid.Int64Range(-1e6, 1e7).Draw(t, "fee"))
			e := rules.Entry{
				Type:    rules.EntrySpend,
				Status:  rapid.SampledFrom([]string{"settled", "reversed"}).Draw(t, "status"),
				Amounts: rules.Amounts{ProviderCostMC: cost, SvcFeeMC: fee, DevMarginMC: cost / 7},
			}
			e.UserChargeMC = cost + fee + cost/7
			if e.ReservedDeltaMC = e.UserChargeMC; e.Status == "settled" {
				e.ReservedDeltaMC = -e.UserChargeMC
			}
			list, err := Post(&e, Cause{})
			if err != nil {
				t.Fatal(err)
			}
			totals.Add(list)
		}
		var sum money.MC
		for _, line := range totals.Lines() {
			sum += line.RoundedMC
			off, most := line.RoundedMC-line.DebitMC+line.CreditMC, money.Cent/2
			if line.Account == Rounding {
				most *= money.MC(len(accounts))
			}
			if line.RoundedMC%money.Cent != 0 || max(off, -off) > most {
				t.Fatalf("%+v is rounded wrongly", line)
			}
		}
		if sum != 0 {
			t.Fatalf("the rounded entry adds up to %d", sum)
		}
	})
}
