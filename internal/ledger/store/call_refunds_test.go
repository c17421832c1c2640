package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestCallRefundsRaced refunds ten calls from two nodes, each eight times at once. Each is refunded once, and the
// margin that the app has earned pays once: 10 calls of 40 with 10 of margin, and 200 of margin from a call that stays.
func TestCallRefundsRaced(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		nodes := []*bench{databaseBench(t, d, ""), databaseBench(t, d, "")}
		if d.Engine == db.SQLite { // one process
			nodes = nodes[:1]
		}
		b := nodes[0]
		do := func(c rules.Command) rules.Result {
			t.Helper()
			r, err := b.do(c)
			if err != nil {
				t.Fatalf("%T: %v", c, err)
			}
			return r
		}
		do(rules.GiveGoodwill{GoodwillID: "g1", AccountID: "A", AmountMC: 10_000, Reason: "hello"})
		do(rules.GiveGoodwill{GoodwillID: "g2", AccountID: "D", AmountMC: 1000, Reason: "hello"})
		do(rules.Connect{ConnectionID: "C1", AppID: "app", AccountID: "A", RequestedMC: 5000})
		bill := func(key string, cost, margin money.MC) {
			call := rules.Call{
				ConnectionID: "C1", AccountID: "A", AppID: "app", Key: key, RequestID: "req_" + key, Fingerprint: key,
				Model: "m", Terms: "{}", HoldMC: 400,
			}
			attempt := do(rules.Hold{Call: call, NodeID: "n", Claim: key}).Attempt
			do(rules.Settle{
				Call:       call,
				Attempt:    attempt,
				Charge:     rules.Amounts{ProviderCostMC: cost, DevMarginMC: margin, UserChargeMC: cost + margin},
				Settlement: rules.Settled,
				Usage:      rules.Usage{JSON: "{}"},
			})
		}
		bill("stays", 100, 200)
		for i := range 10 {
			bill(fmt.Sprint("k", i), 40, 10)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		applied := map[string]int{}
		for n := range 80 {
			wg.Go(func() {
				key := fmt.Sprint("k", n%10)
				for { // as a caller does: what it read may be out of date
					margin, err := ReadAppMargin(context.Background(), d, "app", epoch)
					if err != nil {
						t.Error(err)
						return
					}
					r, err := nodes[n/10%len(nodes)].do(rules.RefundCall{
						EntryID:     "led_" + key,
						AccountID:   "A",
						AppID:       "app",
						DeveloperID: "D",
						Margin:      margin,
						Reason:      "late",
					})
					if err != nil {
						t.Errorf("%s: %v", key, err)
						return
					}
					if r.Outcome == rules.Waiting {
						continue
					}
					mu.Lock()
					applied[key] += map[rules.Outcome]int{rules.Applied: 1}[r.Outcome]
					mu.Unlock()
					return
				}
			})
		}
		wg.Wait()
		for i := range 10 {
			if n := applied[fmt.Sprint("k", i)]; n != 1 {
				t.Errorf("k%d was refunded %d times", i, n)
			}
		}
		user, developer := b.read("A"), b.read("D")
		if user.AvailableMC+user.ReservedMC != 9700 || developer.AvailableMC != 1000-(10*50-300) {
			t.Errorf("user %+v, developer %+v", user, developer)
		}
	})
}

// TestAppMarginSumsFromTheLastRefund reads the margin of an app with its totals of past days: a refund keeps their sum,
// so that the next one does not read them again.
func TestAppMarginSumsFromTheLastRefund(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		exec := func(query string, args ...any) {
			t.Helper()
			if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				_, err := tx.ExecContext(ctx, query, args...)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		for account, sandbox := range map[string]int{"A": 0, "T": 1} {
			exec(`INSERT INTO balances (account_id, sandbox, available_mc, reserved_mc, seq, head)
				VALUES ($1, $2, 0, 0, 0, '')`, account, sandbox)
		}
		total := func(day, account string, margin int) {
			exec(`INSERT INTO daily_totals (day, connection_id, feature, model, app_id, account_id, calls, input_tokens,
					output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
				VALUES ($1, $2, '', 'm', 'app', $2, 1, 0, 0, 0, 0, $3, $3)`, day, account, margin)
		}
		total("2026-11-01", "A", 1)
		total("2026-11-19", "A", 2)
		total("2026-11-20", "A", 4)
		total("2026-11-21", "A", 8)
		total("2026-11-19", "T", 100)
		now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		read := func(want rules.AppMargin) {
			t.Helper()
			if got, err := ReadAppMargin(ctx, d, "app", now); err != nil || got != want {
				t.Fatalf("%+v, %v; want %+v", got, err, want)
			}
		}
		read(rules.AppMargin{EarnedMC: 15, ClosedDay: "2026-11-20", ClosedMC: 3})
		exec(`INSERT INTO call_refunds (app_id, n, entry_id, reversal_id, developer_id, sandbox, margin_mc, balance_mc,
				debit_id, margin_used_mc, earned_day, earned_mc, reason, created_us)
			VALUES ('app', 7, 'e', 'r', 'D', 0, 2, 0, NULL, 2, '2026-11-20', 1003, 'late', 1)`)
		read(rules.AppMargin{Refunds: 7, EarnedMC: 1015, ClosedDay: "2026-11-20", ClosedMC: 1003})
		now = now.Add(24 * time.Hour)
		read(rules.AppMargin{Refunds: 7, EarnedMC: 1015, ClosedDay: "2026-11-21", ClosedMC: 1007})
		now = now.Add(-72 * time.Hour) // a clock that steps back opens no day again
		read(rules.AppMargin{Refunds: 7, EarnedMC: 1015, ClosedDay: "2026-11-20", ClosedMC: 1003})
	})
}
