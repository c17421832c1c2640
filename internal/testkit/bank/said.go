package bank

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// CheckUnknown checks that nothing which was asked of Stripe two days before is unknown (property 10): it is done, or
// refused, or Stripe itself calls it pending, or a bank has yet to decide about its payment. Payouts also wait while
// their developer or app is suspended. Nor is a payment unknown that was made two days before.
func (b *Book) CheckUnknown() error {
	before, waits := b.Now().Add(-48*time.Hour).UnixMicro(), map[string]bool{}
	for _, at := range b.Stripe.Payments() {
		for _, r := range at.Refunds {
			waits[r.Name] = r.Status == "pending"
		}
		waits[at.TopUp] = at.DisputedCents(stripe.Dispute.IsOpen) > 0
		if !at.Paid || at.PaidUS > before || waits[at.TopUp] {
			continue
		}
		p, err := store.GetPayment(context.Background(), b.DB, at.TopUp)
		if err != nil {
			return fmt.Errorf("property 10: payment %s at Stripe: %w", at.TopUp, err)
		} else if p.Status == rules.PaymentPending {
			return fmt.Errorf("property 10: %s is paid, and unknown for two days", at.TopUp)
		}
	}
	list, err := ids(b, `SELECT id FROM refunds WHERE state = 'open' AND created_us < $1
		UNION ALL SELECT id FROM checkouts
			WHERE n IS NOT NULL AND intent_id IS NULL AND next_us IS NOT NULL AND created_us < $1
		UNION ALL SELECT m.subject FROM margin_records m JOIN apps p ON p.id = m.app_id
			JOIN accounts a ON a.id = m.developer_id WHERE m.kind = 'begun' AND m.created_us < $1
			AND p.suspension_by IS NULL AND a.suspended_us IS NULL
			AND NOT EXISTS (SELECT 1 FROM margin_records e WHERE e.subject = m.subject AND e.kind <> 'begun')`, before)
	if err != nil {
		return err
	}
	for _, id := range list {
		payment, err := ids(b, `SELECT payment_id FROM refunds WHERE id = $1`, id)
		if err != nil {
			return err
		}
		if !waits[id] && !slices.ContainsFunc(payment, func(of string) bool { return waits[of] }) {
			return fmt.Errorf("property 10: what became of %s is unknown for two days", id)
		}
	}
	return nil
}

// ids returns what a query of one column selects.
func ids(b *Book, query string, args ...any) ([]string, error) {
	return db.QueryAll(context.Background(), b.DB, db.ScanFields(func(id *string) []any { return []any{id} }),
		query, args...)
}

// A decided is what banks have done with a person's payments.
type decided struct {
	declined int // charges without the person
	refunds  int // at Stripe, whatever became of them
	disputes int
	payouts  int // to the person, as a developer
}

// aboutBanks are what emails say of banks, and whether it can be true.
var aboutBanks = []struct {
	words     string
	isAllowed func(decided) bool
}{
	{"your card was declined", func(d decided) bool { return d.declined >= 3 }}, // three times turn it off
	{"your bank declined the payment", func(d decided) bool { return d.declined >= 3 }},
	{"your bank requires you to confirm payments", func(d decided) bool { return d.declined >= 3 }},
	{"disputed by your bank", func(d decided) bool { return d.refunds+d.disputes > 0 }},
	{"once your bank has decided", func(d decided) bool { return d.refunds+d.disputes > 0 }},
	{"your bank usually shows it", func(d decided) bool { return d.refunds > 0 }},
	{"which pays it to your bank", func(d decided) bool { return d.payouts > 0 }},
}

// CheckTexts compares what emails and receipts say of banks with what banks did (property 9).
func (b *Book) CheckTexts() error {
	for name, accountID := range b.People {
		var is decided
		for _, at := range b.Stripe.Payments() {
			if at.Account != accountID {
				continue
			}
			if at.Declined && at.OffSession {
				is.declined++
			}
			is.refunds, is.disputes = is.refunds+len(at.Refunds), is.disputes+len(at.Disputes)
		}
		paid, err := ids(b, `SELECT subject FROM margin_records WHERE developer_id = $1 AND kind = 'paid'`, accountID)
		if err != nil {
			return err
		}
		is.payouts = len(paid)
		mails, err := ids(b, `SELECT subject || '. ' || text FROM mails WHERE account_id = $1`, accountID)
		if err != nil {
			return err
		}
		for _, text := range mails {
			if err := checkText(text, is); err != nil {
				return fmt.Errorf("property 9: an email to %s %w", name, err)
			}
		}
		if err := b.checkReasons(accountID); err != nil {
			return err
		}
	}
	return nil
}

// checkText checks that an email says nothing of banks that they did not do, and nothing that aboutBanks does not have.
func checkText(text string, is decided) error {
	rest := strings.ToLower(strings.Join(strings.Fields(text), " "))
	for _, said := range aboutBanks {
		if strings.Contains(rest, said.words) && !said.isAllowed(is) {
			return fmt.Errorf("says %q, and banks did %+v: %s", said.words, is, text)
		}
		rest = strings.ReplaceAll(rest, said.words, "")
	}
	if strings.Contains(rest, "bank") || strings.Contains(rest, "decline") {
		return fmt.Errorf("says something else about a bank: %s", text)
	}
	return nil
}

// bankReasons are the reasons of failed payments that receipts give as a bank's.
var bankReasons = []string{"payment_failed", "card_declined", "card_expired", "insufficient_funds",
	"needs_authentication"}

// checkReasons compares why an account's payments have failed with what banks did.
func (b *Book) checkReasons(accountID string) error {
	list, err := store.PaymentsOfAccount(context.Background(), b.DB, accountID, 1000)
	if err != nil {
		return err
	}
	all := b.Stripe.Payments()
	for _, p := range list {
		if p.Status != rules.PaymentFailed || !slices.Contains(bankReasons, p.Reason) {
			continue
		}
		asked := slices.ContainsFunc(all, func(at stripe.Payment) bool {
			return at.TopUp == p.ID && (at.Declined || at.Status == "requires_payment_method")
		})
		if !asked {
			return fmt.Errorf("property 9: %s has failed by %s, and no bank has declined it", p.ID, p.Reason)
		}
	}
	return nil
}
