package topups

import (
	"context"
	"errors"

	"github.com/stripe/stripe-go/v85"

	"github.com/purserhq/purser/internal/base/db"
)

// saveDisputes stores the disputes of a payment as Stripe tells them.
func saveDisputes(ctx context.Context, tx *db.Tx, paymentID string, list []*stripe.Dispute, nowUS int64) (err error) {
	for _, d := range list {
		_, failed := tx.ExecContext(ctx, `INSERT INTO disputes (id, payment_id, cents, contested, changed_us)
			VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO UPDATE SET cents = excluded.cents,
				contested = excluded.contested, changed_us = excluded.changed_us
			WHERE disputes.cents <> excluded.cents OR disputes.contested <> excluded.contested`,
			d.ID, paymentID, d.Amount, db.BoolInt(isContested(d)), nowUS)
		err = errors.Join(err, failed)
	}
	return err
}

// A DisputedPayment is a payment of which disputes are known.
type DisputedPayment struct {
	AccountID, PaymentID string
	Cents                int64 // in disputes that are open or lost; 0 = all were won
}

// ListDisputedPayments returns all disputed payments of the accounts of which a dispute has changed since a time, by
// account, oldest first.
func ListDisputedPayments(ctx context.Context, q db.Queryer, sinceUS int64) ([]DisputedPayment, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(p *DisputedPayment) []any {
		return []any{&p.AccountID, &p.PaymentID, &p.Cents}
	}), `SELECT c.account_id, d.payment_id, CAST(SUM(d.cents * d.contested) AS BIGINT)
		FROM disputes d JOIN checkouts c ON c.id = d.payment_id
		WHERE c.account_id IN (SELECT o.account_id FROM disputes n JOIN checkouts o ON o.id = n.payment_id
			WHERE n.changed_us >= $1)
		GROUP BY c.account_id, d.payment_id ORDER BY c.account_id, d.payment_id`, sinceUS)
}
