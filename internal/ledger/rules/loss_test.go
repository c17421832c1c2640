package rules

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/purserhq/purser/internal/base/money"
)

// paid is a settled payment of 100 of which some was reversed.
func paid(lost, refunded money.MC) *Payment {
	p := &Payment{}
	p.Fold(PaymentRecord{Kind: "opened", PaymentID: "top_1", AccountID: "A", AmountMC: 100})
	p.Fold(PaymentRecord{Kind: "settled", AmountMC: 100})
	p.Fold(PaymentRecord{Kind: "reversed", Reason: ReasonDisputeLost, AmountMC: lost})
	p.Fold(PaymentRecord{Kind: "reversed", Reason: "refunded", AmountMC: refunded})
	return p
}

func TestDisputedOfPayment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ lost, refunded, contested, disputed, open money.MC }{
		"no dispute":                    {0, 0, 0, 0, 0},
		"an open one":                   {0, 0, 30, 30, 30},
		"a lost one":                    {30, 0, 30, 30, 0},
		"one of each":                   {30, 0, 50, 50, 20},
		"a refunded part is not lost":   {0, 80, 100, 20, 20},
		"more than was paid":            {60, 0, 200, 100, 40},
		"lost, and Stripe says no more": {60, 0, 0, 60, 0},
		"all refunded":                  {0, 100, 100, 0, 0},
	} {
		d := paid(c.lost, c.refunded).Disputed(c.contested)
		if d.DisputedMC != c.disputed || d.OpenMC != c.open {
			t.Errorf("%s: %d, open %d, want %d, %d", name, d.DisputedMC, d.OpenMC, c.disputed, c.open)
		}
	}
	pending := &Payment{Status: PaymentPending, AmountMC: 100}
	if d := pending.Disputed(100); d.DisputedMC != 0 || d.OpenMC != 0 {
		t.Errorf("a payment that was not credited: %+v", d)
	}
}

// TestAssessLoss is the rule by example: what the balance bears is no loss, each call is counted once, and calls that
// older payments had paid for are left alone.
func TestAssessLoss(t *testing.T) {
	t.Parallel()
	calls := func(list ...AppCharges) []AppCharges { return list }
	x, y := AppCharges{"x", 20, 10}, AppCharges{"y", 40, 10}
	both := calls(x, y)
	for name, c := range map[string]struct {
		balance  money.MC
		payments []DisputedPayment // the oldest first
		loss     money.MC
		shares   map[string]money.MC
	}{
		"nothing is disputed":  {80, nil, 0, nil},
		"all is open":          {80, []DisputedPayment{{100, 100, 1, calls(x)}}, 20, map[string]money.MC{"x": 10}},
		"all is lost":          {-20, []DisputedPayment{{100, 0, 1, calls(x)}}, 20, map[string]money.MC{"x": 10}},
		"the balance bears it": {80, []DisputedPayment{{80, 80, 1, calls(x)}}, 0, nil},
		"but a part":           {80, []DisputedPayment{{91, 91, 1, calls(x)}}, 11, map[string]money.MC{"x": 5}},
		"five of a stolen card": {480, []DisputedPayment{
			{100, 100, 1, calls(x)}, {100, 100, 2, calls(x)}, {100, 100, 3, calls(x)}, {100, 100, 4, calls(x)},
			{100, 100, 5, calls(x)}}, 20, map[string]money.MC{"x": 10}},
		"two apps bear it by their charges": {0, []DisputedPayment{{30, 30, 1, both}}, 30,
			map[string]money.MC{"x": 5, "y": 5}},
		"what was lost long ago, and borne, leaves older calls alone": {0, []DisputedPayment{
			{100, 0, 1, calls(AppCharges{"x", 2000, 1000}, y)}, {40, 40, 9, calls(y)}}, 40,
			map[string]money.MC{"y": 10}},
		"a disputed payment had repaid an older loss": {0, []DisputedPayment{
			{20, 0, 1, calls(x)}, {20, 20, 9, nil}}, 20, map[string]money.MC{"x": 10}},
		"the newer dispute is too small for the loss": {0, []DisputedPayment{
			{29, 29, 1, both}, {1, 1, 9, calls(y)}}, 30, map[string]money.MC{"x": 5, "y": 5}},
		"a debt of another kind is not the dispute's": {-500, []DisputedPayment{{5, 5, 1, calls(x)}}, 5,
			map[string]money.MC{"x": 2}},
		"an app without margin owes nothing": {0, []DisputedPayment{{30, 30, 1, calls(x, AppCharges{"z", 10, 0})}}, 30,
			map[string]money.MC{"x": 10}},
		"the calls were refunded": {-20, []DisputedPayment{{100, 0, 1, nil}}, 20, nil},
		"a call below its margin": {0, []DisputedPayment{{20, 20, 1, calls(AppCharges{"x", 20, 50})}}, 20,
			map[string]money.MC{"x": 20}},
		"all the money there is": {0, []DisputedPayment{{money.Max, money.Max, 1,
			calls(AppCharges{"x", money.Max * 3, money.Max})}}, money.Max, map[string]money.MC{"x": money.Max / 3}},
	} {
		loss, shares, ok := AssessLoss(c.balance, c.payments)
		if !ok || loss != c.loss || !maps.Equal(shares, c.shares) {
			t.Errorf("%s: %d, %v, want %d, %v", name, loss, shares, c.loss, c.shares)
		}
	}
	detached := []DisputedPayment{{100, 0, 0, nil}, {20, 20, 9, calls(x)}}
	if _, shares, ok := AssessLoss(0, detached); !ok || shares["x"] != 10 {
		t.Errorf("a payment without its row that the loss does not reach: %v, %t", shares, ok)
	}
	if _, _, ok := AssessLoss(-10, detached); ok {
		t.Error("the calls of a loss are gone, and its shares are said to be known")
	}
}

// TestLossOfRandomAccounts assesses random accounts: no share is above the margin of the calls, all together are at
// most the loss, the loss is at most what is disputed and what the account is short of, and a won dispute takes less.
func TestLossOfRandomAccounts(t *testing.T) {
	t.Parallel()
	const accounts = 100_000
	taken, borne := 0, 0
	for seed := range uint64(accounts) {
		r := rand.New(rand.NewPCG(seed, 110))
		var balance, disputed, open money.MC
		payments := make([]DisputedPayment, 1+r.IntN(4))
		var since []AppCharges
		for i := len(payments) - 1; i >= 0; i-- { // each call is since all older payments, too
			if c := money.MC(r.Int64N(1000)); r.IntN(3) > 0 {
				since = append([]AppCharges{{string(rune('a' + i)), c, money.MC(r.Int64N(int64(c) + 1))}}, since...)
			}
			d := DisputedPayment{DisputedMC: money.MC(r.Int64N(1000)), SettledSeq: int64(i + 1), Since: since}
			d.OpenMC = money.MC(r.Int64N(int64(d.DisputedMC) + 1))
			payments[i], disputed, open = d, disputed+d.DisputedMC, open+d.OpenMC
		}
		balance = money.MC(r.Int64N(3000)) - 1500
		loss, shares, ok := AssessLoss(balance, payments)
		if !ok || loss < 0 || loss > disputed || loss > max(open-balance, 0) {
			t.Fatalf("seed %d: a loss of %d of %d", seed, loss, disputed)
		}
		var sum money.MC
		for _, c := range payments[0].Since {
			if share := shares[c.AppID]; share < 0 || share > c.MarginMC {
				t.Fatalf("seed %d: %d of a margin of %d", seed, share, c.MarginMC)
			}
			sum += shares[c.AppID]
		}
		if sum > loss {
			t.Fatalf("seed %d: %d of a loss of %d", seed, sum, loss)
		}
		if won, _, _ := AssessLoss(balance+payments[0].OpenMC, payments); won > loss {
			t.Fatalf("seed %d: a higher balance, and a loss of %d after %d", seed, won, loss)
		}
		if sum > 0 {
			taken++
		} else if disputed > 0 && loss == 0 {
			borne++
		}
	}
	if taken < accounts/10 || borne < accounts/10 {
		t.Errorf("%d losses were taken, %d were borne: the accounts are too tame", taken, borne)
	}
}
