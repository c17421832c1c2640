package ledger

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// paymentCommand reads a line about a payment:
//
//	open T1 A 1000     pay T1 pi_1 [until]     clear T1     fail T1 why     back T1 why 300     dispute T1 du_1
func paymentCommand(t *testing.T, f []string) Command {
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
		return OpenPayment{PaymentID: f[1], AccountID: f[2], AmountMC: num(f[3])}
	case "pay":
		c := PayPayment{PaymentID: f[1], Intent: f[2]}
		if len(f) > 3 {
			d, err := time.ParseDuration(f[3])
			if err != nil {
				t.Fatal(f, err)
			}
			c.HoldUntilUS = epoch.Add(d).UnixMicro()
		}
		return c
	case "clear":
		return SettlePayment{f[1]}
	case "fail":
		return FailPayment{f[1], f[2]}
	case "back":
		return ReversePayment{f[1], f[2], num(f[3])}
	}
	return DisputePayment{f[1], f[2]}
}

func prefixPayment(c Command, p string) Command {
	switch c := c.(type) {
	case OpenPayment:
		c.PaymentID, c.AccountID = p+c.PaymentID, p+c.AccountID
		return c
	case PayPayment:
		c.PaymentID, c.Intent = p+c.PaymentID, p+c.Intent
		return c
	case SettlePayment:
		return SettlePayment{p + c.PaymentID}
	case FailPayment:
		return FailPayment{p + c.PaymentID, c.Reason}
	case ReversePayment:
		return ReversePayment{p + c.PaymentID, c.Reason, c.TotalMC}
	case DisputePayment:
		return DisputePayment{p + c.PaymentID, c.Dispute}
	}
	return c
}

func toldPayment(r Result, b Balance) string {
	done := map[Outcome]string{Applied: "ok", Done: "done", Waiting: "waiting"}[r.Outcome]
	return fmt.Sprintf("%s %s row=%s moved=%d back=%d available=%d reserved=%d", done, r.Payment.Status, r.Entry.Status, r.Entry.Available, r.Payment.ReversedMC, b.AvailableMC, b.ReservedMC)
}
