package topups

import (
	"context"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
)

const refundColumns = `id, payment_id, account_id, cents, total_cents, state, error, next_us, created_us`

func (r *refund) fields() []any {
	return []any{&r.ID, &r.PaymentID, &r.AccountID, &r.Cents, &r.TotalCents, &r.State, &r.Error, &r.NextUS,
		&r.CreatedUS}
}

func listOpenRefunds(ctx context.Context, q db.Queryer, accountID string) ([]refund, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*refund).fields), `SELECT `+refundColumns+` FROM refunds
		WHERE account_id = $1 AND state = 'open' ORDER BY id`, accountID)
}

func insertRefund(ctx context.Context, tx *db.Tx, r refund) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO refunds (`+refundColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		r.ID, r.PaymentID, r.AccountID, r.Cents, r.TotalCents, string(r.State), r.Error, r.NextUS, r.CreatedUS)
	return err
}

// setRefundState ends an open refund.
func setRefundState(ctx context.Context, q db.Execer, refundID string, state refundState, why string) error {
	_, err := q.ExecContext(ctx, `UPDATE refunds SET state = $2, error = $3 WHERE id = $1 AND state = 'open'`,
		refundID, string(state), why)
	if err != nil {
		return fmt.Errorf("topups: refund %s: %w", refundID, err)
	}
	return nil
}

// claimDueRefund returns the open refund that is due for the longest time, and moves its next time, or sql.ErrNoRows.
func claimDueRefund(ctx context.Context, d *db.DB, nowUS, nextUS int64) (r refund, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return tx.QueryRowContext(ctx, `UPDATE refunds SET next_us = $2
			WHERE id = (SELECT id FROM refunds WHERE state = 'open' AND next_us <= $1 ORDER BY next_us, id LIMIT 1)
				AND next_us <= $1
			RETURNING `+refundColumns, nowUS, nextUS).Scan(r.fields()...)
	})
	return r, err
}
