package identity

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
)

func saveInvitation(ctx context.Context, tx *db.Tx, i Invitation, tokenHash string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO invitations (email, account_id, token_hash, expires_us)
		VALUES ($1, $2, $3, $4)
		ON CONFLICT (email) DO UPDATE SET account_id = excluded.account_id, token_hash = excluded.token_hash,
			expires_us = excluded.expires_us`, i.Email, i.AccountID, tokenHash, i.ExpiresUS)
	return err
}

func getInvitation(ctx context.Context, q db.Queryer, tokenHash string) (i Invitation, err error) {
	err = q.QueryRowContext(ctx, `SELECT account_id, email, expires_us FROM invitations WHERE token_hash = $1`,
		tokenHash).Scan(&i.AccountID, &i.Email, &i.ExpiresUS)
	return i, err
}

func hasInvitation(ctx context.Context, q db.Queryer, email string, nowUS int64) (invited bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) > 0 FROM invitations WHERE email = $1 AND expires_us > $2`, email,
		nowUS).Scan(&invited)
	return invited, err
}

func deleteInvitation(ctx context.Context, tx *db.Tx, tokenHash string) (int64, error) {
	res, err := tx.ExecContext(ctx, `DELETE FROM invitations WHERE token_hash = $1`, tokenHash)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func deleteExpiredInvitations(ctx context.Context, d *db.DB, nowUS int64) error {
	_, err := d.DeleteSlices(ctx, "invitations", `expires_us <= $1`, "expires_us", nowUS)
	return err
}
