package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// payoutCommand reads a command of a payout: payout, transfer and found of it, and disputed of an account.
func payoutCommand(f []string, num func(string) money.MC, option func(string) (string, bool)) rules.Command {
	read := func(name string) (n money.MC) {
		if v, ok := option(name); ok {
			n = num(v)
		}
		return n
	}
	switch f[0] {
	case "payout":
		c := rules.BeginPayout{
			PayoutID:    f[1],
			AppID:       "app",
			DeveloperID: "D",
			MinimumMC:   read("minimum"),
			Margin: rules.MaturedMargin{
				Refunds:    int64(read("refunds")),
				Records:    int64(read("seen")),
				Day:        "2026-11-20",
				MaturedMC:  read("matured"),
				ReversedMC: read("reversed"),
			},
		}
		if _, ok := option("other"); ok { // what is matured of the developer's other app
			c.Others = map[string]rules.MaturedMargin{
				"app2": {MaturedMC: read("other"), Records: int64(read("otherseen"))},
			}
		}
		return c
	case "found":
		return rules.RecordPayout{
			PayoutID: f[1], AppID: "app", DeveloperID: "D", TransferID: f[2], AmountMC: num(f[3]),
		}
	case "transfer":
		c := rules.EndPayout{PayoutID: f[1], AppID: "app", DeveloperID: "D"}
		if f = f[2:]; len(f) > 0 && strings.HasPrefix(f[0], "tr_") {
			c.TransferID, f = f[0], f[1:]
		}
		c.Failure = strings.Join(f, " ")
		return c
	}
	// disputed A <loss> <share>… after=<row> [was=<payment>]
	c := rules.TakeDisputedMargin{Loss: rules.Loss{
		AccountID: f[1], Seq: int64(read("after")), DisputedCents: 1, LossMC: num(f[2]),
	}}
	for i, share := range f[3:] {
		if !strings.Contains(share, "=") {
			appID := []string{"app", "app2"}[i]
			c.Shares = append(c.Shares, rules.DisputedShare{AppID: appID, DeveloperID: "D", TotalMC: num(share)})
		}
	}
	if payment, ok := option("was"); ok {
		c.Payments = []string{payment}
	}
	return c
}

func prefixPayout(c rules.Command, p string) rules.Command {
	switch c := c.(type) {
	case rules.BeginPayout:
		c.PayoutID, c.AppID, c.DeveloperID = p+c.PayoutID, p+c.AppID, p+c.DeveloperID
		others := map[string]rules.MaturedMargin{}
		for appID, m := range c.Others {
			others[p+appID] = m
		}
		c.Others = others
		return c
	case rules.EndPayout:
		c.PayoutID, c.AppID, c.DeveloperID = p+c.PayoutID, p+c.AppID, p+c.DeveloperID
		return c
	case rules.RecordPayout:
		c.PayoutID, c.AppID, c.DeveloperID = p+c.PayoutID, p+c.AppID, p+c.DeveloperID
		return c
	case rules.TakeDisputedMargin:
		c.Loss.AccountID, c.Shares, c.Payments = p+c.Loss.AccountID, slices.Clone(c.Shares), slices.Clone(c.Payments)
		for i, share := range c.Shares {
			c.Shares[i].AppID, c.Shares[i].DeveloperID = p+share.AppID, p+share.DeveloperID
		}
		for i := range c.Payments {
			c.Payments[i] = p + c.Payments[i]
		}
		return c
	}
	return c
}

func formatPayout(r rules.Result) string {
	done := map[rules.Outcome]string{rules.Applied: "ok", rules.Done: "done", rules.Waiting: "waiting"}[r.Outcome]
	return fmt.Sprintf("%s %s amount=%d", done, r.Payout.Status, r.Payout.AmountMC)
}

// TestPayoutsRaced begins payouts of one app from two nodes while calls are refunded from its margin, a dispute takes
// and returns of it, and payouts fail. In the end no more has been taken than was earned, and the records add up.
func TestPayoutsRaced(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		nodes := []*bench{databaseBench(t, d, ""), databaseBench(t, d, "")}
		if d.Engine == db.SQLite { // one process
			nodes = nodes[:1]
		}
		b, ctx := nodes[0], context.Background()
		do := func(c rules.Command) rules.Result {
			t.Helper()
			r, err := b.do(c)
			if err != nil {
				t.Fatalf("%T: %v", c, err)
			}
			return r
		}
		do(rules.GiveGoodwill{GoodwillID: "g1", AccountID: "A", AmountMC: 1000 * money.Dollar, Reason: "hello"})
		do(rules.GiveGoodwill{GoodwillID: "g2", AccountID: "D", AmountMC: 1000 * money.Dollar, Reason: "hello"})
		do(rules.Connect{ConnectionID: "C1", AppID: "app", AccountID: "A", RequestedMC: 500 * money.Dollar})
		const calls, margin = 10, 10 * money.Dollar
		for i := range calls {
			key := fmt.Sprint("k", i)
			call := rules.Call{
				ConnectionID: "C1", AccountID: "A", AppID: "app", Key: key, RequestID: "req_" + key, Fingerprint: key,
				Model: "m", Terms: "{}", HoldMC: 20 * money.Dollar,
			}
			attempt := do(rules.Hold{Call: call, NodeID: "n", Claim: key}).Attempt
			do(rules.Settle{
				Call: call, Attempt: attempt, Settlement: rules.Settled, Usage: rules.Usage{JSON: "{}"},
				Charge: rules.Amounts{
					ProviderCostMC: money.Cent,
					DevMarginMC:    margin,
					UserChargeMC:   margin + money.Cent,
				},
			})
		}
		matured := epoch.Add(24 * time.Hour)
		for _, node := range nodes { // the day of the calls is over
			node.mu.Lock()
			node.now = epoch.Add(30 * time.Hour)
			node.mu.Unlock()
		}
		var wg sync.WaitGroup
		payout := func(n int) {
			payoutID := fmt.Sprintf("po_%02d", n)
			for { // as a caller does: what it read may be out of date
				m, err := ReadMaturedMargin(ctx, d, "app", matured)
				if err != nil {
					t.Error(err)
					return
				}
				r, err := nodes[n%len(nodes)].do(rules.BeginPayout{
					PayoutID: payoutID, AppID: "app", DeveloperID: "D", Margin: m,
				})
				if err == nil && r.Outcome == rules.Waiting {
					continue
				} else if err != nil { // nothing is left
					return
				}
				end := rules.EndPayout{PayoutID: payoutID, AppID: "app", DeveloperID: "D", TransferID: "tr_1"}
				if n%2 == 0 {
					end.TransferID, end.Failure = "", "refused"
				}
				if _, err := nodes[n%len(nodes)].do(end); err != nil {
					t.Error(err)
				}
				return
			}
		}
		refund := func(n int) {
			for {
				m, err := ReadAppMargin(ctx, d, "app", epoch.Add(30*time.Hour))
				if err != nil {
					t.Error(err)
					return
				}
				r, err := nodes[n%len(nodes)].do(rules.RefundCall{
					EntryID: fmt.Sprint(
						"led_k",
						n,
					), AccountID: "A", AppID: "app", DeveloperID: "D", Margin: m, Reason: "late",
				})
				if err != nil || r.Outcome != rules.Waiting {
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
		}
		take := func(n int, share money.MC) {
			for { // calls are refunded to the account meanwhile
				balance, err := GetBalance(ctx, d, "A")
				if err != nil {
					t.Error(err)
					return
				}
				r, err := nodes[n%len(nodes)].do(rules.TakeDisputedMargin{
					Loss:   rules.Loss{AccountID: "A", Seq: balance.Seq, LossMC: 2 * money.Dollar},
					Shares: []rules.DisputedShare{{AppID: "app", DeveloperID: "D", TotalMC: share}},
				})
				if err != nil || r.Outcome != rules.Waiting {
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
		}
		for n := range 24 {
			wg.Go(func() { payout(n) })
			wg.Go(func() { take(n, money.MC(n%3)*money.Dollar) })
			if n < calls/2 {
				wg.Go(func() { refund(n) })
			}
		}
		wg.Wait()
		take(0, money.Dollar)
		payout(99)
		list, err := readMarginRecords(ctx, d, `app_id = 'app' ORDER BY n`)
		if err != nil {
			t.Fatal(err)
		}
		var taken, disputed money.MC
		for i, r := range list {
			if r.IsDispute() {
				disputed += r.AmountMC
			}
			if disputed < 0 || disputed > 2*money.Dollar {
				t.Errorf("record %d: disputes of an account take %d", i, disputed)
			}
			if taken += r.AmountMC; r.N != int64(i+1) || r.TakenMC != taken {
				t.Errorf("record %d: %+v, Σ %d", i, r, taken)
			}
		}
		if disputed != money.Dollar {
			t.Errorf("disputes take %d in the end", disputed)
		}
		v, err := ViewAppMargin(ctx, d, "app", matured, epoch.Add(30*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if v.Payable(0) != 0 && v.Balance() > 0 || v.MaturedMC != calls*margin {
			t.Errorf("%+v is left with %d", v, v.Balance())
		}
		open, err := OpenPayouts(ctx, d, 100)
		if err != nil || len(open) > 0 {
			t.Errorf("%d payouts are open, %v", len(open), err)
		}
	})
}
