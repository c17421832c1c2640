package identity

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/accounts"
)

// A kind says what a link is for.
type kind string

const (
	signUp   kind = "sign-up"
	reset    kind = "reset"
	newEmail kind = "email"
)

// How long links work.
const (
	signUpLasts = 24 * time.Hour
	resetLasts  = time.Hour
)

// A link is what a token in a mail stands for.
type link struct {
	kind         kind
	accountID    string // "" = it was never sent
	email        string
	passwordHash string
	epoch        int64
	next         string
	expiresUS    int64
}

func insertLink(ctx context.Context, tx *db.Tx, tokenHash string, l link) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO identity_links (token_hash, kind, account_id, email, password_hash, epoch, next, expires_us) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		tokenHash, string(l.kind), sql.NullString{String: l.accountID, Valid: l.accountID != ""}, l.email, l.passwordHash, l.epoch, l.next, l.expiresUS)
	return err
}

func getLink(ctx context.Context, q db.Queryer, tokenHash string) (l link, err error) {
	err = q.QueryRowContext(ctx, `SELECT kind, COALESCE(account_id, ''), email, password_hash, epoch, next, expires_us FROM identity_links WHERE token_hash = $1`, tokenHash).
		Scan(&l.kind, &l.accountID, &l.email, &l.passwordHash, &l.epoch, &l.next, &l.expiresUS)
	return l, err
}

func deleteLink(ctx context.Context, tx *db.Tx, tokenHash string) (int64, error) {
	res, err := tx.ExecContext(ctx, `DELETE FROM identity_links WHERE token_hash = $1`, tokenHash)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func deleteLinks(ctx context.Context, d *db.DB, nowUS int64) error {
	_, err := d.ExecContext(ctx, `DELETE FROM identity_links WHERE expires_us <= $1`, nowUS)
	return err
}

// accountByEmail reads the account of a normal address.
func accountByEmail(ctx context.Context, tx *db.Tx, email string) (accounts.Account, error) {
	var accountID string
	if err := tx.QueryRowContext(ctx, `SELECT id FROM accounts WHERE email = $1`, email).Scan(&accountID); err != nil {
		return accounts.Account{}, err
	}
	return accounts.GetAccount(ctx, tx, accountID)
}

// erase deletes all that proves who somebody is.
func erase(ctx context.Context, tx *db.Tx, accountID string) error {
	var err error
	for _, table := range []string{"identity_links", "openid_attempts", "openid_logins"} {
		_, failed := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE account_id = $1`, accountID)
		err = errors.Join(err, failed)
	}
	return errors.Join(err, deleteSeed(ctx, tx, accountID), deleteCodes(ctx, tx, accountID), deletePasskeys(ctx, tx, accountID))
}

// A seed makes one-time codes.
type seed struct {
	sealed   []byte
	active   bool
	lastStep int64
}

func getSeed(ctx context.Context, q db.Queryer, accountID string) (s seed, err error) {
	err = q.QueryRowContext(ctx, `SELECT sealed, active <> 0, last_step FROM totp_seeds WHERE account_id = $1`, accountID).Scan(&s.sealed, &s.active, &s.lastStep)
	return s, err
}

// setSeed begins a set-up anew; a seed that is in use stays as it is.
func setSeed(ctx context.Context, tx *db.Tx, accountID string, sealed []byte) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO totp_seeds (account_id, sealed, active, last_step) VALUES ($1, $2, 0, 0)
		ON CONFLICT (account_id) DO UPDATE SET sealed = excluded.sealed WHERE totp_seeds.active = 0`, accountID, sealed)
	return err
}

func activateSeed(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.ExecContext(ctx, `UPDATE totp_seeds SET active = 1 WHERE account_id = $1`, accountID)
	return err
}

// takeStep marks the time step of a code as used, if no later one was.
func takeStep(ctx context.Context, tx *db.Tx, accountID string, step int64) (bool, error) {
	res, err := tx.ExecContext(ctx, `UPDATE totp_seeds SET last_step = $2 WHERE account_id = $1 AND last_step < $2`, accountID, step)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

func deleteSeed(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM totp_seeds WHERE account_id = $1`, accountID)
	return err
}

func insertCode(ctx context.Context, tx *db.Tx, accountID, codeHash string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO recovery_codes (account_id, code_hash) VALUES ($1, $2)`, accountID, codeHash)
	return err
}

func takeCode(ctx context.Context, tx *db.Tx, accountID, codeHash string) (bool, error) {
	res, err := tx.ExecContext(ctx, `DELETE FROM recovery_codes WHERE account_id = $1 AND code_hash = $2`, accountID, codeHash)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

func deleteCodes(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM recovery_codes WHERE account_id = $1`, accountID)
	return err
}

func countCodes(ctx context.Context, q db.Queryer, accountID string) (n int, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) FROM recovery_codes WHERE account_id = $1`, accountID).Scan(&n)
	return n, err
}
