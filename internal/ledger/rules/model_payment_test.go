package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/purserhq/purser/internal/base/money"
)

// reasons are why money leaves a payment again.
var reasons = []string{"refunded", ReasonDisputeLost, "returned_to_card", "paid_elsewhere"}

// payment applies commands of one of an account's payments, in any order.
func (m *machine) payment(t *rapid.T) {
	accountID := rapid.SampledFrom([]string{"A", "B"}).Draw(t, "account")
	id := fmt.Sprint("pay_", accountID, rapid.IntRange(1, 2).Draw(t, "payment"))
	for range 4 {
		m.payOnce(t, accountID, id)
	}
}

// payOnce applies a command of a payment, and compares what it does to the balance with what the payment was before.
func (m *machine) payOnce(t *rapid.T, accountID, id string) {
	was, available := Payment{}, money.MC(0)
	if p := m.s.payments.byID[id]; p != nil {
		was = *p
	}
	if b := m.s.Balances[accountID]; b != nil {
		available = b.AvailableMC
	}
	command := m.drawPayment(t, id, accountID)
	r, err := m.do(t, command)
	if _, opens := command.(OpenPayment); !opens && was.ID == "" {
		if err == nil {
			t.Fatalf("%+v of no payment: %+v", command, r)
		}
		return
	}
	want, applied := m.expectPayment(was, command)
	var moved money.MC
	if b := m.s.Balances[accountID]; b != nil {
		moved = b.AvailableMC - available
	}
	if moved != want || err == nil && (r.Outcome == Applied) != applied {
		t.Fatalf("%+v of %+v moved %d, should move %d and change something: %t; %v, %v", command, was, moved, want,
			applied, r.Outcome, err)
	}
	m.seePayment(was, command, r, err)
	if _, ok := command.(ReversePayment); ok && applied && available+moved < 0 {
		m.seen["below zero"]++
		for _, c := range m.alive(accountID) {
			m.cause(c, FrozenByPayment, BelowZero)
		}
	}
}

func (m *machine) drawPayment(t *rapid.T, id, accountID string) Command {
	switch rapid.IntRange(0, 8).Draw(t, "command") {
	case 0:
		return OpenPayment{PaymentID: id, AccountID: accountID, AmountMC: 200}
	case 1:
		hold := rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "clearance")
		return MarkPaymentPaid{PaymentID: id, PaymentIntent: "pi_" + id, HoldUntilUS: m.now.Add(hold).UnixMicro()}
	case 2, 3:
		return SettlePayment{PaymentID: id}
	case 4:
		return FailPayment{PaymentID: id, Reason: "declined"}
	case 5:
		return ReopenPayment{PaymentID: id}
	}
	return ReversePayment{
		PaymentID: id,
		Reason:    rapid.SampledFrom(reasons).Draw(t, "reason"),
		TotalMC:   money.MC(rapid.Int64Range(0, 250).Draw(t, "total")),
	}
}

// expectPayment says by how much a command moves the balance, and whether it changes the payment.
func (m *machine) expectPayment(was Payment, command Command) (mc money.MC, applied bool) {
	switch c := command.(type) {
	case OpenPayment:
		return 0, was.ID == ""
	case MarkPaymentPaid:
		return 0, !was.Paid() && was.Status != PaymentFailed
	case SettlePayment:
		if was.Status == PaymentPending && was.Paid() && was.HoldUntilUS <= m.now.UnixMicro() {
			return was.AmountMC, true
		}
	case FailPayment:
		return 0, was.Status == PaymentPending
	case ReopenPayment:
		return 0, was.Status == PaymentFailed
	case ReversePayment:
		if was.Status != PaymentSettled {
			return 0, false
		}
		more := min(c.TotalMC-was.ReversedFor(c.Reason), was.AmountMC-was.ReversedMC)
		return -more, more != 0
	}
	return 0, false
}

// seePayment notes the rare ways of a payment.
func (m *machine) seePayment(was Payment, command Command, r Result, err error) {
	see := func(path string, yes bool) { m.seen[path] += int(intOf(yes)) }
	switch c := command.(type) {
	case SettlePayment:
		see("paid", r.Outcome == Applied)
		see("cleared later", r.Outcome == Waiting && was.Paid())
	case MarkPaymentPaid:
		see("paid after it failed", err != nil)
	case ReopenPayment:
		see("reopened", r.Outcome == Applied)
	case ReversePayment:
		applied := err == nil && r.Outcome == Applied
		see("went back", applied && r.Payment.ReversedMC > was.ReversedMC)
		see("restored", applied && r.Payment.ReversedMC < was.ReversedMC)
		see("more than was paid", err == nil && r.RestMC > 0)
		see("settled elsewhere", applied && c.Reason == "paid_elsewhere")
	}
}

// paymentRows are the ledger rows of payments.
func (m *machine) paymentRows() map[string]bool {
	rows := map[string]bool{}
	for _, r := range m.s.Changes.PaymentRecords {
		rows[r.EntryID] = true
	}
	return rows
}

// payments checks that each payment is the fold of its records, that it has moved what it is worth now, and that no
// more has left it for all reasons, or come back for one, than there was.
func (m *machine) payments(t *rapid.T) {
	moved, fold := map[string]money.MC{}, map[string]*Payment{}
	rows := map[string]Entry{}
	for _, e := range m.s.Changes.Entries {
		rows[e.ID] = e
	}
	for _, r := range m.s.Changes.PaymentRecords {
		if strings.HasPrefix(r.PaymentID, "top_") {
			continue // disputed alone; it was never opened
		}
		if fold[r.PaymentID] == nil {
			fold[r.PaymentID] = &Payment{}
		}
		fold[r.PaymentID].Fold(r)
		moved[r.PaymentID] += rows[r.EntryID].AvailableDeltaMC
	}
	for id, p := range fold {
		now := m.s.payments.byID[id]
		worth := money.MC(0)
		if p.Status == PaymentSettled {
			worth = p.AmountMC - p.ReversedMC
		}
		if now.Status != p.Status || now.ReversedMC != p.ReversedMC || now.Paid() != p.Paid() {
			t.Fatalf("I33: %+v is not the fold of its records %+v", now, p)
		}
		if moved[id] != worth || p.ReversedMC < 0 || p.ReversedMC > p.AmountMC {
			t.Fatalf("I33: %s is worth %d of %d, and has moved %d", id, worth, p.AmountMC, moved[id])
		}
		for _, reason := range reasons {
			if p.ReversedFor(reason) < 0 {
				t.Fatalf("I33: of %s %d is gone for %s", id, p.ReversedFor(reason), reason)
			}
		}
	}
}

// settleCauses follows the cause of a balance below zero: ending another cause may add it, and what comes back to the
// balance does not end it.
func (m *machine) settleCauses(c *Connection) (isActive bool) {
	if len(m.causes[c.ID]) == 0 && m.s.Balances[c.AccountID].AvailableMC < 0 {
		m.cause(c, FrozenByPayment, BelowZero)
	}
	return len(m.causes[c.ID]) == 0
}

// hasReversal reports whether something was reversed of a payment of an account: then its balance may be below zero.
func (m *machine) hasReversal(accountID string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(m.s.payments.byID)), func(p *Payment) bool {
		return p.AccountID == accountID && slices.ContainsFunc(p.Records, func(r PaymentRecord) bool {
			return r.Kind == "reversed"
		})
	})
}
