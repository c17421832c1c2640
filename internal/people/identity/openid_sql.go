package identity

import (
	"context"
	"database/sql"

	"github.com/purserhq/purser/internal/base/db"
)

// An attempt is what is kept of somebody who is away at the provider.
type attempt struct {
	accountID string // to link with; "" = to sign in
	epoch     int64
	next      string
	expiresUS int64
}

func insertAttempt(ctx context.Context, d *db.DB, stateHash, browserHash string, a attempt) error {
	_, err := d.ExecContext(ctx, `INSERT INTO openid_attempts (state_hash, browser_hash, account_id, epoch, next, expires_us) VALUES ($1, $2, $3, $4, $5, $6)`,
		stateHash, browserHash, sql.NullString{String: a.accountID, Valid: a.accountID != ""}, a.epoch, a.next, a.expiresUS)
	return err
}

// takeAttempt takes an attempt out of the world; of two who come with it one is
// the first.
func takeAttempt(ctx context.Context, tx *db.Tx, stateHash, browserHash string) (a attempt, err error) {
	err = tx.QueryRowContext(ctx, `DELETE FROM openid_attempts WHERE state_hash = $1 AND browser_hash = $2 RETURNING COALESCE(account_id, ''), epoch, next, expires_us`, stateHash, browserHash).
		Scan(&a.accountID, &a.epoch, &a.next, &a.expiresUS)
	return a, err
}

func deleteAttempts(ctx context.Context, d *db.DB, nowUS int64) error {
	_, err := d.ExecContext(ctx, `DELETE FROM openid_attempts WHERE expires_us <= $1`, nowUS)
	return err
}

// accountOfLogin returns the id of the account that a login signs in to.
func accountOfLogin(ctx context.Context, q db.Queryer, issuer, subject string) (accountID string, err error) {
	err = q.QueryRowContext(ctx, `SELECT account_id FROM openid_logins WHERE issuer = $1 AND subject = $2`, issuer, subject).Scan(&accountID)
	return accountID, err
}

func insertLogin(ctx context.Context, tx *db.Tx, l login, accountID string, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO openid_logins (issuer, subject, account_id, email, created_us) VALUES ($1, $2, $3, $4, $5)`,
		l.issuer, l.subject, accountID, l.email, nowUS)
	return err
}

// A linked is a login of an account, as its owner sees it.
type linked struct {
	email     string
	createdUS int64
}

func loginOf(ctx context.Context, q db.Queryer, accountID, issuer string) (l linked, err error) {
	err = q.QueryRowContext(ctx, `SELECT email, created_us FROM openid_logins WHERE account_id = $1 AND issuer = $2`, accountID, issuer).Scan(&l.email, &l.createdUS)
	return l, err
}

// A Login is how its owner signs in at a provider.
type Login struct {
	Issuer, Email string // Email as the provider gave it when the login was linked
	CreatedUS     int64
}

// loginsOf returns all of an account, also at providers that are asked no longer.
func loginsOf(ctx context.Context, q db.Queryer, accountID string) ([]Login, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(l *Login) []any { return []any{&l.Issuer, &l.Email, &l.CreatedUS} }),
		`SELECT issuer, email, created_us FROM openid_logins WHERE account_id = $1 ORDER BY created_us, issuer`, accountID)
}

func deleteLogin(ctx context.Context, tx *db.Tx, accountID, issuer string) (int64, error) {
	res, err := tx.ExecContext(ctx, `DELETE FROM openid_logins WHERE account_id = $1 AND issuer = $2`, accountID, issuer)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
