package topups

import (
	"context"
	"errors"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/stripe"
)

// saveDisputes stores the disputes of a payment as Stripe tells them.
func saveDisputes(ctx context.Context, tx *db.Tx, paymentID string, list []*stripe.Dispute, nowUS int64) (err error) {
	for _, d := range list {
		_, failed := tx.ExecContext(ctx, `INSERT INTO disputes (id, payment_id, cents, contested, undecided, changed_us)
			VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO UPDATE SET cents = excluded.cents,
				contested = excluded.contested, undecided = excluded.undecided,
				changed_us = CASE WHEN disputes.cents <> excluded.cents OR disputes.contested <> excluded.contested
					THEN excluded.changed_us ELSE disputes.changed_us END
			WHERE disputes.cents <> excluded.cents OR disputes.contested <> excluded.contested
				OR disputes.undecided <> excluded.undecided`,
			d.ID, paymentID, d.Amount, db.BoolInt(isContested(d)), db.BoolInt(isUndecided(d)), nowUS)
		err = errors.Join(err, failed)
	}
	return err
}

// sumContested returns what is in disputes, open or lost, by payment of an account. Each of these payments has a record
// of it, which is written in the same transaction.
func sumContested(ctx context.Context, q db.Queryer, accountID string) (map[string]money.MC, error) {
	list, err := db.QueryAll(ctx, q, db.ScanFields(func(p *DisputedPayment) []any {
		return []any{&p.PaymentID, &p.Cents}
	}), `SELECT payment_id, CAST(SUM(cents) AS BIGINT) FROM disputes WHERE contested = 1 AND payment_id IN
		(SELECT payment_id FROM payment_records WHERE account_id = $1 AND kind = 'disputed') GROUP BY payment_id`,
		accountID)
	sums := map[string]money.MC{}
	for _, p := range list {
		sums[p.PaymentID] = money.MC(p.Cents) * money.Cent
	}
	return sums, err
}

// A DisputedPayment is a payment of which disputes are known.
type DisputedPayment struct {
	AccountID, PaymentID string
	Cents                int64 // in disputes that are open or lost; 0 = all were won
	ChangedUS            int64 // when the newest change of a dispute was stored
}

// ListDisputedPayments returns all disputed payments, by account.
func ListDisputedPayments(ctx context.Context, q db.Queryer) ([]DisputedPayment, error) {
	return listDisputedPayments(ctx, q, "")
}

// DisputedPaymentsOfAccount returns the disputed payments of an account. A transaction that has locked the account's
// balance keeps them as they are.
func DisputedPaymentsOfAccount(ctx context.Context, q db.Queryer, accountID string) ([]DisputedPayment, error) {
	return listDisputedPayments(ctx, q, `WHERE c.account_id = $1`, accountID)
}

func listDisputedPayments(ctx context.Context, q db.Queryer, where string, args ...any) ([]DisputedPayment, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(p *DisputedPayment) []any {
		return []any{&p.AccountID, &p.PaymentID, &p.Cents, &p.ChangedUS}
	}), `SELECT c.account_id, d.payment_id, CAST(SUM(d.cents * d.contested) AS BIGINT), MAX(d.changed_us)
		FROM disputes d JOIN checkouts c ON c.id = d.payment_id `+where+`
		GROUP BY c.account_id, d.payment_id ORDER BY c.account_id, d.payment_id`, args...)
}
