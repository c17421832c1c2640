package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// paymentCommand reads a line about a payment:
//
//	open T1 A 1000     pay T1 pi_1 [until]     clear T1     fail T1 why     back T1 why 300     dispute T1 du_1
func paymentCommand(t *testing.T, f []string) rules.Command {
	t.Helper()
	num := func(s string) money.MC {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(f, err)
		}
		return money.MC(n)
	}
	switch f[0] {
	case "open":
		return rules.OpenPayment{PaymentID: f[1], AccountID: f[2], AmountMC: num(f[3])}
	case "pay":
		c := rules.MarkPaymentPaid{PaymentID: f[1], PaymentIntent: f[2]}
		if len(f) > 3 {
			d, err := time.ParseDuration(f[3])
			if err != nil {
				t.Fatal(f, err)
			}
			c.HoldUntilUS = epoch.Add(d).UnixMicro()
		}
		return c
	case "clear":
		return rules.SettlePayment{PaymentID: f[1]}
	case "fail":
		return rules.FailPayment{PaymentID: f[1], Reason: f[2]}
	case "reopen":
		return rules.ReopenPayment{PaymentID: f[1]}
	case "back":
		return rules.ReversePayment{PaymentID: f[1], Reason: f[2], TotalMC: num(f[3])}
	case "decide":
		return rules.EndDispute{PaymentID: f[1], DisputeID: f[2]}
	}
	return rules.DisputePayment{PaymentID: f[1], DisputeID: f[2], Lost: slices.Contains(f[3:], "lost")}
}

func prefixPayment(c rules.Command, p string) rules.Command {
	switch c := c.(type) {
	case rules.OpenPayment:
		c.PaymentID, c.AccountID = p+c.PaymentID, p+c.AccountID
		return c
	case rules.MarkPaymentPaid:
		c.PaymentID, c.PaymentIntent = p+c.PaymentID, p+c.PaymentIntent
		return c
	case rules.SettlePayment:
		return rules.SettlePayment{PaymentID: p + c.PaymentID}
	case rules.ReopenPayment:
		return rules.ReopenPayment{PaymentID: p + c.PaymentID}
	case rules.FailPayment:
		return rules.FailPayment{PaymentID: p + c.PaymentID, Reason: c.Reason}
	case rules.ReversePayment:
		return rules.ReversePayment{PaymentID: p + c.PaymentID, Reason: c.Reason, TotalMC: c.TotalMC}
	case rules.DisputePayment:
		return rules.DisputePayment{PaymentID: p + c.PaymentID, DisputeID: p + c.DisputeID, Lost: c.Lost}
	case rules.EndDispute:
		return rules.EndDispute{PaymentID: p + c.PaymentID, DisputeID: p + c.DisputeID}
	}
	return c
}

func toldPayment(r rules.Result, b rules.Balance) string {
	done := map[rules.Outcome]string{rules.Applied: "ok", rules.Done: "done", rules.Waiting: "waiting"}[r.Outcome]
	return fmt.Sprintf("%s %s row=%s moved=%d back=%d rest=%d available=%d reserved=%d", done, r.Payment.Status,
		r.Entry.Status, r.Entry.AvailableDeltaMC, r.Payment.ReversedMC, r.RestMC, b.AvailableMC, b.ReservedMC)
}

// TestPaymentsOfAnAccount reads more payments than one statement does, each with its records, newest first.
func TestPaymentsOfAnAccount(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const payments = 2*paymentsPerStep + 100
		for _, kind := range []string{"1, 'opened', 'led_'", "2, 'settled', 'led_s'"} {
			if _, err := d.ExecContext(t.Context(), fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL
				SELECT i + 1 FROM n WHERE i < %d)
				INSERT INTO payment_records (payment_id, n, kind, entry_id, account_id, amount_mc, created_us)
				SELECT 'top_' || i, %s || i, CASE i %% 2 WHEN 0 THEN 'A' ELSE 'B' END, i, i
				FROM n`, 1000+2*payments-1, kind)); err != nil {
				t.Fatal(err)
			}
		}
		for _, limit := range []int{1, paymentsPerStep, 2 * paymentsPerStep, payments - 1, payments, payments + 1} {
			list, err := PaymentsOfAccount(t.Context(), d, "A", limit)
			if err != nil || len(list) != min(limit, payments) {
				t.Fatalf("%d payments of %d, %v", len(list), limit, err)
			}
			for i, p := range list {
				if p.ID != fmt.Sprint("top_", 1000+2*(payments-1-i)) || p.Status != rules.PaymentSettled {
					t.Fatalf("%d of %d: %+v", i, limit, p)
				}
			}
		}
	})
}

// TestOverdraftOfAReversal reverses a payment more and more: the balance may fall below zero only once money of it is
// really reversed, and no other balance may.
func TestOverdraftOfAReversal(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := writers(t, d, 1)[0]
		ctx := t.Context()
		for account, payment := range map[string]string{"A": "top_1", "B": "top_2"} {
			if _, err := d.ExecContext(ctx, `INSERT INTO checkouts (id, account_id, token, cents, created_us)
				VALUES ($1, $2, $1, 1, 1)`, payment, account); err != nil {
				t.Fatal(err)
			}
			must(t)(w.Do(ctx, rules.OpenPayment{PaymentID: payment, AccountID: account, AmountMC: money.Cent}))
		}
		reverse := func(total money.MC) rules.ReversePayment {
			return rules.ReversePayment{PaymentID: "top_1", Reason: "refunded", TotalMC: total}
		}
		wants := func(step, want string) {
			t.Helper()
			list, err := db.QueryAll(ctx, d, db.ScanColumn[string], `SELECT account_id FROM balances
				WHERE disputed = 1 ORDER BY account_id`)
			if got := strings.Join(list, " "); err != nil || got != want {
				t.Errorf("%s: %q may be overdrawn, want %q; %v", step, got, want, err)
			}
		}
		must(t)(w.Do(ctx, reverse(5)))
		wants("not settled yet", "")
		for _, payment := range []string{"top_1", "top_2"} {
			must(t)(w.Do(ctx, rules.MarkPaymentPaid{PaymentID: payment, PaymentIntent: "pi_" + payment}))
			must(t)(w.Do(ctx, rules.SettlePayment{PaymentID: payment}))
		}
		must(t)(w.Do(ctx, reverse(0)))
		wants("nothing is reversed", "")
		must(t)(w.Do(ctx, reverse(5)))
		wants("something is reversed", "A")
	})
}
