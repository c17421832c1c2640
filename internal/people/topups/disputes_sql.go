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
	PaymentID string
	Cents     int64 // in disputes that are open or lost; 0 = all were won
}

// ListDisputedPayments returns the payments of which a dispute has changed since a time.
func ListDisputedPayments(ctx context.Context, q db.Queryer, sinceUS int64) ([]DisputedPayment, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(p *DisputedPayment) []any {
		return []any{&p.PaymentID, &p.Cents}
	}), `SELECT payment_id, CAST(SUM(cents * contested) AS BIGINT) FROM disputes
		WHERE payment_id IN (SELECT payment_id FROM disputes WHERE changed_us >= $1)
		GROUP BY payment_id ORDER BY payment_id`, sinceUS)
}
