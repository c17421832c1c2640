package identity

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/purserhq/purser/internal/base/db"
)

// A linkKind is the purpose of a mailed link.
type linkKind string

const (
	signUpLink   linkKind = "sign-up"
	resetLink    linkKind = "reset"
	newEmailLink linkKind = "email"
)

// Lifetimes of links.
const (
	signUpLinkTTL = 24 * time.Hour
	resetLinkTTL  = time.Hour
)

// A link is the row of a mailed link.
type link struct {
	kind         linkKind
	accountID    string // "" = no account: the email had no link
	email        string
	passwordHash string
	epoch        int64
	next         string
	expiresUS    int64
}

func insertLink(ctx context.Context, tx *db.Tx, tokenHash string, l link) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO identity_links (token_hash, kind, account_id, email, password_hash,
			epoch, next, expires_us)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		tokenHash, string(l.kind), sql.NullString{String: l.accountID, Valid: l.accountID != ""}, l.email,
		l.passwordHash, l.epoch, l.next, l.expiresUS)
	return err
}

func getLink(ctx context.Context, q db.Queryer, tokenHash string) (l link, err error) {
	err = q.QueryRowContext(ctx, `SELECT kind, COALESCE(account_id, ''), email, password_hash, epoch, next, expires_us
		FROM identity_links WHERE token_hash = $1`, tokenHash).
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

// deleteAddressLinks deletes the links that would change the address of an account.
func deleteAddressLinks(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM identity_links WHERE account_id = $1 AND kind = $2`, accountID,
		string(newEmailLink))
	return err
}

func deleteExpiredLinks(ctx context.Context, d *db.DB, nowUS int64) error {
	_, err := d.DeleteSlices(ctx, "identity_links", `expires_us <= $1`, "expires_us", nowUS)
	return err
}

// canBeConfirmed reports whether a link or an invitation to an account is still valid.
func canBeConfirmed(ctx context.Context, tx *db.Tx, accountID string, nowUS int64) (yes bool, err error) {
	err = tx.QueryRowContext(ctx, `
		SELECT EXISTS (SELECT 1 FROM identity_links WHERE account_id = $1 AND expires_us > $2)
		OR EXISTS (SELECT 1 FROM invitations WHERE account_id = $1 AND expires_us > $2)`, accountID, nowUS).Scan(&yes)
	return yes, err
}

// deleteIdentity deletes the links, invitations, logins, second factors and passkeys of an account.
func deleteIdentity(ctx context.Context, tx *db.Tx, accountID string) error {
	var err error
	for _, table := range []string{"identity_links", "invitations", "openid_attempts", "openid_logins"} {
		_, failed := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE account_id = $1`, accountID)
		err = errors.Join(err, failed)
	}
	return errors.Join(err, deleteTOTPSeed(ctx, tx, accountID), deleteRecoveryCodes(ctx, tx, accountID),
		deletePasskeys(ctx, tx, accountID))
}

// A totpSeed is the sealed secret of an authenticator app.
type totpSeed struct {
	sealed    []byte
	active    bool
	lastStep  int64
	epoch     int64  // of a set-up, as of a challenge
	holder    string // of a set-up: the browser
	expiresUS int64
}

func getTOTPSeed(ctx context.Context, q db.Queryer, accountID string) (s totpSeed, err error) {
	err = q.QueryRowContext(ctx, `SELECT sealed, active <> 0, last_step, epoch, holder, expires_us FROM totp_seeds
		WHERE account_id = $1`, accountID).Scan(&s.sealed, &s.active, &s.lastStep, &s.epoch, &s.holder, &s.expiresUS)
	return s, err
}

// setTOTPSeed stores the seed of a set-up in place of an earlier one; an active seed stays unchanged.
func setTOTPSeed(ctx context.Context, tx *db.Tx, accountID string, s totpSeed) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO totp_seeds (account_id, sealed, active, last_step, epoch, holder,
			expires_us)
		VALUES ($1, $2, 0, 0, $3, $4, $5)
		ON CONFLICT (account_id) DO UPDATE SET sealed = excluded.sealed, epoch = excluded.epoch,
			holder = excluded.holder, expires_us = excluded.expires_us
		WHERE totp_seeds.active = 0`, accountID, s.sealed, s.epoch, s.holder, s.expiresUS)
	return err
}

// isExpiredSetup is the condition that a seed is of a set-up that has expired. Its index has no active seeds.
const isExpiredSetup = `active = 0 AND expires_us <= $1`

func deleteExpiredSetups(ctx context.Context, d *db.DB, nowUS int64) error {
	_, err := d.DeleteSlices(ctx, "totp_seeds", isExpiredSetup, "expires_us", nowUS)
	return err
}

func activateTOTPSeed(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.ExecContext(ctx, `UPDATE totp_seeds SET active = 1 WHERE account_id = $1`, accountID)
	return err
}

// useTOTPStep marks the time step of a code as used, unless it or a later one was used.
func useTOTPStep(ctx context.Context, tx *db.Tx, accountID string, step int64) (bool, error) {
	res, err := tx.ExecContext(ctx, `UPDATE totp_seeds SET last_step = $2
		WHERE account_id = $1 AND last_step < $2`, accountID, step)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

func deleteTOTPSeed(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM totp_seeds WHERE account_id = $1`, accountID)
	return err
}

func insertRecoveryCode(ctx context.Context, tx *db.Tx, accountID, codeHash string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO recovery_codes (account_id, code_hash)
		VALUES ($1, $2)`, accountID, codeHash)
	return err
}

func useRecoveryCode(ctx context.Context, tx *db.Tx, accountID, codeHash string) (bool, error) {
	res, err := tx.ExecContext(ctx, `DELETE FROM recovery_codes
		WHERE account_id = $1 AND code_hash = $2`, accountID, codeHash)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

func deleteRecoveryCodes(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM recovery_codes WHERE account_id = $1`, accountID)
	return err
}

func countRecoveryCodes(ctx context.Context, q db.Queryer, accountID string) (n int, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) FROM recovery_codes WHERE account_id = $1`, accountID).Scan(&n)
	return n, err
}

// Of a change of the envelope key.
const (
	listSealed    = `SELECT account_id, sealed FROM totp_seeds WHERE account_id > $1 ORDER BY account_id LIMIT $2`
	replaceSealed = `UPDATE totp_seeds SET sealed = $1 WHERE account_id = $2 AND sealed = $3`
)
