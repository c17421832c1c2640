package store

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
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
