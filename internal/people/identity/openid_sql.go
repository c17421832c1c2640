package identity

import (
	"context"
	"database/sql"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/accounts"
)

// A storedAuthRequest is the row of an authorization request.
type storedAuthRequest struct {
	accountID string // account to link; "" = sign-in
	epoch     int64
	next      string
	expiresUS int64
}

// isOf reports whether a asked to link a login, and may still.
func (s storedAuthRequest) isOf(a accounts.Account) bool {
	return s.accountID == a.ID && s.epoch == a.Epoch
}

func insertAuthRequest(ctx context.Context, d *db.DB, stateHash, browserHash string, a storedAuthRequest) error {
	_, err := d.ExecContext(ctx, `INSERT INTO openid_attempts (state_hash, browser_hash, account_id, epoch, next,
			expires_us) VALUES ($1, $2, $3, $4, $5, $6)`,
		stateHash, browserHash, sql.NullString{String: a.accountID, Valid: a.accountID != ""}, a.epoch, a.next,
		a.expiresUS)
	return err
}

// consumeAuthRequest deletes and returns a request; only one of several callers gets it.
func consumeAuthRequest(ctx context.Context, tx *db.Tx,
	stateHash, browserHash string) (a storedAuthRequest, err error) {
	err = tx.QueryRowContext(ctx, `DELETE FROM openid_attempts WHERE state_hash = $1 AND browser_hash = $2
		RETURNING COALESCE(account_id, ''), epoch, next, expires_us`, stateHash, browserHash).
		Scan(&a.accountID, &a.epoch, &a.next, &a.expiresUS)
	return a, err
}

func deleteExpiredAuthRequests(ctx context.Context, d *db.DB, nowUS int64) error {
	_, err := d.DeleteSlices(ctx, "openid_attempts", `expires_us <= $1`, "expires_us", nowUS)
	return err
}

// getLoginAccount returns the id of the account that a login is linked to.
func getLoginAccount(ctx context.Context, q db.Queryer, issuer, subject string) (accountID string, err error) {
	err = q.QueryRowContext(ctx, `SELECT account_id FROM openid_logins
		WHERE issuer = $1 AND subject = $2`, issuer, subject).Scan(&accountID)
	return accountID, err
}

func insertLogin(ctx context.Context, tx *db.Tx, l login, accountID string, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO openid_logins (issuer, subject, account_id, email, created_us)
		VALUES ($1, $2, $3, $4, $5)`,
		l.issuer, l.subject, accountID, l.email, nowUS)
	return err
}

// A linkedLogin is a login of an account, as its owner sees it.
type linkedLogin struct {
	email     string
	createdUS int64
}

func getLogin(ctx context.Context, q db.Queryer, accountID, issuer string) (l linkedLogin, err error) {
	err = q.QueryRowContext(ctx, `SELECT email, created_us FROM openid_logins
		WHERE account_id = $1 AND issuer = $2`, accountID, issuer).Scan(&l.email, &l.createdUS)
	return l, err
}

// A Login is a linked login of an account.
type Login struct {
	Issuer, Email string // Email as of the time of linking
	CreatedUS     int64
}

// listLogins returns all logins of an account, also those at former providers.
func listLogins(ctx context.Context, q db.Queryer, accountID string) ([]Login, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(l *Login) []any { return []any{&l.Issuer, &l.Email, &l.CreatedUS} }),
		`SELECT issuer, email, created_us FROM openid_logins
			WHERE account_id = $1 ORDER BY created_us, issuer`, accountID)
}

func deleteLogin(ctx context.Context, tx *db.Tx, accountID, issuer string) (int64, error) {
	res, err := tx.ExecContext(ctx, `DELETE FROM openid_logins
		WHERE account_id = $1 AND issuer = $2`, accountID, issuer)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
