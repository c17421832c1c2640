package topups

import (
	"context"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/db"
)

const refundColumns = `id, payment_id, account_id, cents, total_cents, state, error, next_us, created_us, by_user,
	is_unwanted, COALESCE(token, '')`

func (r *refund) fields() []any {
	return []any{&r.ID, &r.PaymentID, &r.AccountID, &r.Cents, &r.TotalCents, &r.State, &r.Error, &r.NextUS,
		&r.CreatedUS, &r.byUser, &r.isUnwanted, &r.Token}
}

func listOpenRefunds(ctx context.Context, q db.Queryer, accountID string) ([]refund, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*refund).fields), `SELECT `+refundColumns+` FROM refunds
		WHERE account_id = $1 AND state = 'open' ORDER BY id`, accountID)
}

func insertRefund(ctx context.Context, tx *db.Tx, r refund) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO refunds (id, payment_id, account_id, cents, total_cents, state, error,
			next_us, created_us, by_user, token) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		r.ID, r.PaymentID, r.AccountID, r.Cents, r.TotalCents, string(r.State), r.Error, r.NextUS, r.CreatedUS,
		r.byUser, db.NullText(r.Token))
	return err
}

// listRefunds returns the refunds that an account has asked for, newest first.
func listRefunds(ctx context.Context, q db.Queryer, accountID string, limit int) ([]refund, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*refund).fields), `SELECT `+refundColumns+` FROM refunds
		WHERE account_id = $1 AND by_user = 1 ORDER BY id DESC LIMIT $2`, accountID, limit)
}

// refundsOfForm returns the refunds that a form has asked for.
func refundsOfForm(ctx context.Context, q db.Queryer, accountID, token string) ([]refund, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*refund).fields), `SELECT `+refundColumns+` FROM refunds
		WHERE account_id = $1 AND token = $2 ORDER BY id`, accountID, token)
}

// refundsOfPayment returns the refunds of a payment, oldest first.
func refundsOfPayment(ctx context.Context, q db.Queryer, paymentID string) ([]refund, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*refund).fields), `SELECT `+refundColumns+` FROM refunds
		WHERE payment_id = $1 ORDER BY id`, paymentID)
}

// listRefusedPayments returns the payments of an account of which its user asked for a refund that Stripe refused.
func listRefusedPayments(ctx context.Context, q db.Queryer, accountID string) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT DISTINCT payment_id FROM refunds
		WHERE account_id = $1 AND by_user = 1 AND state = 'refused' AND is_unwanted = 0 ORDER BY payment_id`, accountID)
}

// getRefund returns a refund, or sql.ErrNoRows.
func getRefund(ctx context.Context, q db.Queryer, refundID string) (r refund, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+refundColumns+` FROM refunds WHERE id = $1`, refundID).Scan(r.fields()...)
	return r, err
}

// setRefundState sets the state of a refund. One that was done may be refused, because at Stripe a refund may fail
// after it succeeded, and one that was refused may be open or done. It reports whether it changed anything.
func setRefundState(ctx context.Context, q db.Execer, refundID string, state refundState, isUnwanted int64,
	why string) (bool, error) {
	r, err := q.ExecContext(ctx, `UPDATE refunds SET state = $2, error = $3, is_unwanted = $4
		WHERE id = $1 AND state <> $2`, refundID, string(state), why, isUnwanted)
	if err != nil {
		return false, fmt.Errorf("topups: refund %s: %w", refundID, err)
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

// clearUnwanted records that Stripe has made a refund that its terms had ended here.
func clearUnwanted(ctx context.Context, q db.Execer, refundID string) error {
	_, err := q.ExecContext(ctx, `UPDATE refunds SET is_unwanted = 0 WHERE id = $1`, refundID)
	return err
}

// claimDueRefund returns the open refund that is due for the longest time, and moves its next time, or sql.ErrNoRows.
func claimDueRefund(ctx context.Context, d *db.DB, now time.Time) (r refund, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.QueryRowContext(ctx, `SELECT `+refundColumns+` FROM refunds
			WHERE state = 'open' AND next_us <= $1 ORDER BY next_us, id LIMIT 1`+tx.Engine.ForUpdate(),
			now.UnixMicro()).Scan(r.fields()...); err != nil {
			return err
		}
		next := now.Add(retryRefund(now.Sub(time.UnixMicro(r.CreatedUS))))
		_, err := tx.ExecContext(ctx, `UPDATE refunds SET next_us = $2
			WHERE id = $1`, r.ID, next.UnixMicro())
		return err
	})
	return r, err
}
