package topups

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
)

// getSettlement returns a settlement, or sql.ErrNoRows.
func getSettlement(ctx context.Context, q db.Queryer, settlementID string) (t Settlement, err error) {
	err = q.QueryRowContext(ctx, `SELECT id, account_id, amount_mc, reason FROM settlements WHERE id = $1`,
		settlementID).Scan(&t.ID, &t.AccountID, &t.AmountMC, &t.Reason)
	return t, err
}

// insertSettlement inserts a settlement. Of two with the same id at once, the second fails.
func insertSettlement(ctx context.Context, tx *db.Tx, t Settlement, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO settlements (id, account_id, amount_mc, reason, created_us)
		VALUES ($1, $2, $3, $4, $5)`, t.ID, t.AccountID, int64(t.AmountMC), t.Reason, nowUS)
	return err
}
