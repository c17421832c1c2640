package bank

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/purserhq/purser/emulator/stripe"
)

// CheckRequest checks the terms of a charge, a return or a transfer at the moment at which Stripe is asked (property
// 7), and that Stripe does not have it already.
func (b *Book) CheckRequest(path string, form url.Values) error {
	switch path {
	case "/v1/payment_intents":
		return b.checkCharge(form)
	case "/v1/refunds":
		return b.checkRefund(form.Get("metadata[refund_id]"))
	case "/v1/transfers":
		return b.checkTransfer(form.Get("metadata[payout_id]"))
	}
	return nil
}

// isTrue returns what a query of one column says.
func (b *Book) isTrue(query string, args ...any) (yes bool, err error) {
	err = b.DB.QueryRowContext(context.Background(), query, args...).Scan(&yes)
	return yes, err
}

// checkCharge checks that the plan is on and wants this amount, that the balance is low, and that neither is the
// account suspended or closed nor a payment of it disputed.
func (b *Book) checkCharge(form url.Values) error {
	accountID := form.Get("metadata[account_id]")
	isWanted, err := b.isTrue(`SELECT COUNT(*) > 0 FROM auto_topups p
		JOIN balances b ON b.account_id = p.account_id JOIN accounts a ON a.id = p.account_id
		WHERE p.account_id = $1 AND p.enabled = 1 AND p.add_cents = $2 AND p.payment_method = $3
			AND b.available_mc < p.below_cents * 1000000 AND a.suspended_us IS NULL AND a.closed_us IS NULL
			AND NOT EXISTS (SELECT 1 FROM open_disputes d WHERE d.account_id = p.account_id)`,
		accountID, form.Get("amount"), form.Get("payment_method"))
	if err == nil && !isWanted {
		err = fmt.Errorf("property 7: a charge of %s cents of %s is not wanted now: %s", form.Get("amount"), accountID,
			b.describePlan(accountID))
	}
	isMade := func(at stripe.Payment) bool { return at.TopUp == form.Get("metadata[topup_id]") }
	if err == nil && slices.ContainsFunc(b.Stripe.Payments(), isMade) {
		err = fmt.Errorf("property 7: Stripe has the charge of %s already", form.Get("metadata[topup_id]"))
	}
	return err
}

// describePlan tells the terms of automatic top-up of an account.
func (b *Book) describePlan(accountID string) string {
	list, err := ids(b, `SELECT 'on ' || p.enabled || ', add ' || p.add_cents || ' below ' || p.below_cents || ', has '
			|| b.available_mc || ', suspended ' || COALESCE(a.suspended_us, 0) || ', disputes ' || (SELECT COUNT(*)
			FROM open_disputes d WHERE d.account_id = p.account_id) || ', card ' || p.payment_method
		FROM auto_topups p JOIN balances b ON b.account_id = p.account_id JOIN accounts a ON a.id = p.account_id
		WHERE p.account_id = $1`, accountID)
	return fmt.Sprint(list, err)
}

func (b *Book) checkRefund(refundID string) error {
	isWanted, err := b.isTrue(`SELECT COUNT(*) > 0 FROM refunds WHERE id = $1 AND state = 'open'`, refundID)
	if err == nil && !isWanted {
		err = fmt.Errorf("property 7: refund %s is not wanted now", refundID)
	}
	for _, at := range b.Stripe.Payments() {
		isMade := func(r stripe.Refund) bool { return r.Name == refundID }
		if err == nil && slices.ContainsFunc(at.Refunds, isMade) {
			err = fmt.Errorf("property 7: Stripe has refund %s already", refundID)
		}
	}
	return err
}

// checkTransfer checks that the payout has begun and not ended, and that neither its developer nor its app is
// suspended. An app that ended with its developer's account is paid.
func (b *Book) checkTransfer(payoutID string) error {
	isWanted, err := b.isTrue(`SELECT COUNT(*) > 0 FROM margin_records m JOIN apps p ON p.id = m.app_id
		JOIN accounts a ON a.id = p.owner_id WHERE m.subject = $1 AND m.kind = 'begun' AND a.suspended_us IS NULL
			AND (p.suspension_by IS NULL OR a.closed_us IS NOT NULL AND p.suspension_reason = $2)
			AND NOT EXISTS (SELECT 1 FROM margin_records e WHERE e.subject = m.subject AND e.kind <> 'begun')`,
		payoutID, closedReason)
	if err == nil && !isWanted {
		err = fmt.Errorf("property 7: payout %s is not wanted now", payoutID)
	}
	for _, transfer := range b.Stripe.Transfers() {
		if err == nil && strings.Contains(string(transfer), payoutID) {
			err = fmt.Errorf("property 7: Stripe has the transfer of %s already", payoutID)
		}
	}
	return err
}
