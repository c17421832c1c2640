package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/statements"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A history is a random history of an app, and what its revenue statements must say by month.
type history struct {
	t       *testing.T
	d       *db.DB
	b       *bench
	random  *rand.Rand
	app     string
	n       int
	calls   []rules.Entry // that were not refunded
	open    []string      // payouts that have not ended
	paid    map[string]money.MC
	dispute money.MC // what is taken for it
	months  map[string]*statements.AppRevenue
}

func (h *history) month() *statements.AppRevenue {
	name := h.b.now.UTC().Format("2006-01")
	if h.months[name] == nil {
		h.months[name] = &statements.AppRevenue{AppID: h.app}
	}
	return h.months[name]
}

func (h *history) id(prefix string) string {
	h.n++
	return fmt.Sprintf("%s%s_%04d", prefix, h.app, h.n)
}

func (h *history) do(c rules.Command) (rules.Result, bool) {
	h.t.Helper()
	r, err := h.b.do(c)
	if err != nil && r.Refused == nil {
		return r, false
	}
	return r, r.Outcome == rules.Applied
}

// call bills a call of an account. One of a test account's counts nowhere.
func (h *history) call(account string) {
	key := h.id("")
	call := rules.Call{
		ConnectionID: "C" + account + h.app, AccountID: account, AppID: h.app, Key: key, RequestID: "req_" + key,
		Fingerprint: key, Model: "m", Terms: "{}", HoldMC: 200_000_000,
	}
	held, ok := h.do(rules.Hold{Call: call, NodeID: "n", Claim: key})
	if !ok {
		h.t.Fatal("a call is refused")
	}
	cost, margin := money.MC(h.random.Int64N(50_000_000)), money.MC(h.random.Int64N(50_000_000))
	c := rules.Settle{
		Call: call, Attempt: held.Attempt, Settlement: rules.Settled, Usage: rules.Usage{JSON: "{}"},
		Charge: rules.Amounts{ProviderCostMC: cost, SvcFeeMC: 7, DevMarginMC: margin, UserChargeMC: cost + margin + 7},
	}
	if h.random.IntN(5) == 0 {
		c.Waiver = &rules.Waiver{DayMC: 60_000_000, Usage: rules.Usage{JSON: "{" + rules.WaivedEmpty + "}"}}
	}
	r, ok := h.do(c)
	if !ok {
		h.t.Fatal("a call is not settled")
	}
	if account == "S" {
		return
	}
	m := h.month()
	m.Calls++
	m.Charged = sumOf(m.Charged, r.Entry.Amounts)
	if !r.Waived {
		h.calls = append(h.calls, r.Entry)
	}
}

// refund refunds a call, by its app or by the service.
func (h *history) refund() {
	if len(h.calls) == 0 {
		return
	}
	i := h.random.IntN(len(h.calls))
	e := h.calls[i]
	var r rules.Result
	ok := false
	if h.random.IntN(2) == 0 {
		r, ok = h.do(rules.Reverse{EntryID: e.ID, AccountID: "A", Reason: "failed"})
	} else {
		m, err := ReadAppMargin(h.t.Context(), h.d, h.app, h.b.now)
		if err != nil {
			h.t.Fatal(err)
		}
		r, ok = h.do(rules.RefundCall{
			EntryID: e.ID, AccountID: "A", AppID: h.app, DeveloperID: "D", Margin: m, Reason: "late",
		})
		if ok {
			h.month().RefundsPaidMC += r.CallRefund.MarginMC - e.DevMarginMC
		}
	}
	if ok {
		h.calls = append(h.calls[:i], h.calls[i+1:]...)
		m := h.month()
		m.Refunds++
		m.Refunded = sumOf(m.Refunded, e.Amounts)
	}
}

func (h *history) payOut() {
	m, err := ReadMaturedMargin(h.t.Context(), h.d, h.app, h.b.now.Add(-5*24*time.Hour))
	if err != nil {
		h.t.Fatal(err)
	}
	payoutID := h.id("po_")
	c := rules.BeginPayout{PayoutID: payoutID, AppID: h.app, DeveloperID: "D", Margin: m}
	if r, ok := h.do(c); ok {
		h.open, h.paid[payoutID] = append(h.open, payoutID), r.Payout.AmountMC
		h.month().Payouts++
		h.month().PaidOutMC += r.Payout.AmountMC
	}
}

func (h *history) endPayout() {
	if len(h.open) == 0 {
		return
	}
	c := rules.EndPayout{PayoutID: h.open[0], AppID: h.app, DeveloperID: "D", TransferID: "tr_1"}
	if h.random.IntN(2) == 0 {
		c.TransferID, c.Failure = "", "refused"
		h.month().PaidOutMC -= h.paid[h.open[0]]
	}
	if _, ok := h.do(c); !ok {
		h.t.Fatal("a payout does not end")
	}
	h.open = h.open[1:]
}

func (h *history) disputed() {
	total := money.MC(h.random.Int64N(3)) * money.Cent
	balance, err := GetBalance(h.t.Context(), h.d, "A")
	if err != nil {
		h.t.Fatal(err)
	}
	c := rules.TakeDisputedMargin{
		Loss:   rules.Loss{AccountID: "A", Seq: balance.Seq, LossMC: total},
		Shares: []rules.DisputedShare{{AppID: h.app, DeveloperID: "D", TotalMC: total}},
	}
	if _, ok := h.do(c); ok {
		h.month().DisputedMC += total - h.dispute
		h.dispute = total
	}
}

func sumOf(a, b rules.Amounts) rules.Amounts {
	return rules.Amounts{
		ProviderCostMC: a.ProviderCostMC + b.ProviderCostMC,
		SvcFeeMC:       a.SvcFeeMC + b.SvcFeeMC,
		DevMarginMC:    a.DevMarginMC + b.DevMarginMC,
		UserChargeMC:   a.UserChargeMC + b.UserChargeMC,
	}
}

// TestRevenueOfRandomHistories reads revenue statements of apps after random calls, refunds, payouts and disputes, and
// compares each of a month with what happened in it. Each begins with what the one before has left, and the last
// leaves what the app is owed.
func TestRevenueOfRandomHistories(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := databaseBench(t, d, "")
		seen := statements.AppRevenue{}
		for i := range 12 {
			h := &history{
				t: t, d: d, b: b, random: rand.New(rand.NewPCG(7, uint64(i))), app: fmt.Sprint("app", i),
				paid: map[string]money.MC{}, months: map[string]*statements.AppRevenue{},
			}
			h.setUp()
			begun := b.now
			for range 60 {
				b.mu.Lock()
				b.now = b.now.Add(time.Duration(1+h.random.IntN(60)) * time.Hour)
				b.mu.Unlock()
				for range 1 + h.random.IntN(3) {
					h.call("A")
				}
				switch h.random.IntN(6) {
				case 0, 1:
					h.refund()
				case 2:
					h.payOut()
				case 3:
					h.endPayout()
				case 4:
					h.disputed()
				case 5:
					h.call("S")
				}
			}
			seen = h.compare(begun, seen)
		}
		if seen.Refunds == 0 || seen.RefundsPaidMC == 0 || seen.Payouts == 0 || seen.PaidOutMC == 0 ||
			seen.DisputedMC == 0 {
			t.Errorf("vacuous: %+v", seen)
		}
	})
}

// setUp gives the user, a test account and the developer money, and connects the first two with the app.
func (h *history) setUp() {
	for _, account := range []string{"A", "D"} {
		h.do(rules.GiveGoodwill{
			GoodwillID: h.id("g"), AccountID: account, AmountMC: 10_000 * money.Dollar, Reason: "hello",
		})
	}
	h.do(rules.TopUp{AccountID: "S", Sandbox: true, AmountMC: 1000 * money.Dollar})
	h.do(rules.Connect{ConnectionID: "CA" + h.app, AppID: h.app, AccountID: "A", RequestedMC: 1000 * money.Dollar})
	h.do(rules.Connect{
		ConnectionID: "CS" + h.app, AppID: h.app, AccountID: "S", Sandbox: true, RequestedMC: 100 * money.Dollar,
	})
}

// compare reads the statements of all months since a time, and adds what they say to seen.
func (h *history) compare(begun time.Time, seen statements.AppRevenue) statements.AppRevenue {
	month := time.Date(begun.Year(), begun.Month(), 1, 0, 0, 0, 0, time.UTC)
	left := money.MC(0)
	for ; !month.After(h.b.now); month = month.AddDate(0, 1, 0) {
		want := h.months[month.Format("2006-01")]
		if want == nil {
			want = &statements.AppRevenue{AppID: h.app}
		}
		want.OpeningMC = left
		got, err := ReadRevenue(h.t.Context(), h.d, []string{h.app}, month, month.AddDate(0, 1, 0))
		if err != nil || len(got) != 1 {
			h.t.Fatal(len(got), err)
		}
		if diff := cmp.Diff(*want, got[0]); diff != "" {
			h.t.Fatalf("%s of %s: %s", month.Format("2006-01"), h.app, diff)
		}
		left = got[0].ClosingMC()
		seen.Refunds += got[0].Refunds
		seen.Payouts += got[0].Payouts
		seen.RefundsPaidMC |= got[0].RefundsPaidMC
		seen.PaidOutMC |= got[0].PaidOutMC
		seen.DisputedMC |= got[0].DisputedMC
	}
	v, err := ViewAppMargin(h.t.Context(), h.d, h.app, h.b.now, h.b.now)
	if err != nil {
		h.t.Fatal(err)
	}
	if v.EarnedMC-v.TakenMC != left {
		h.t.Errorf("%s is owed %d, the last statement leaves %d", h.app, v.EarnedMC-v.TakenMC, left)
	}
	return seen
}
