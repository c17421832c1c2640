package identity

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/purserhq/purser/internal/base/db"
)

// A Passkey is a WebAuthn credential of an account.
type Passkey struct {
	ID        string
	Name      string
	CreatedUS int64
	UsedUS    int64 // 0 = never
	record    webauthn.Credential
}

func listPasskeys(ctx context.Context, q db.Queryer, accountID string) ([]Passkey, error) {
	return db.QueryAll(ctx, q, scanPasskey,
		`SELECT id, name, credential_id, public_key, transports, backup_eligible <> 0,
			counter, created_us, used_us FROM passkeys WHERE account_id = $1 ORDER BY id`, accountID)
}

func scanPasskey(row db.Row) (k Passkey, err error) {
	transports := ""
	r := &k.record
	err = row.Scan(&k.ID, &k.Name, &r.ID, &r.PublicKey, &transports, &r.Flags.BackupEligible,
		&r.Authenticator.SignCount, &k.CreatedUS, &k.UsedUS)
	for t := range strings.SplitSeq(transports, ",") {
		if t != "" {
			r.Transport = append(r.Transport, protocol.AuthenticatorTransport(t))
		}
	}
	return k, err
}

func insertPasskey(ctx context.Context, tx *db.Tx, accountID string, k Passkey) error {
	var transports []string
	for _, t := range k.record.Transport {
		transports = append(transports, string(t))
	}
	r := k.record
	_, err := tx.ExecContext(ctx, `INSERT INTO passkeys (id, account_id, credential_id, public_key, name, transports,
			backup_eligible, counter, created_us, used_us)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0)`,
		k.ID, accountID, r.ID, r.PublicKey, k.Name, strings.Join(transports, ","), db.BoolInt(r.Flags.BackupEligible),
		int64(r.Authenticator.SignCount), k.CreatedUS)
	return err
}

func updatePasskeyUse(ctx context.Context, tx *db.Tx, passkeyID string, counter uint32, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE passkeys SET counter = $2, used_us = $3
		WHERE id = $1`, passkeyID, int64(counter), nowUS)
	return err
}

func deletePasskey(ctx context.Context, tx *db.Tx, accountID, passkeyID string) (int64, error) {
	res, err := tx.ExecContext(ctx, `DELETE FROM passkeys WHERE id = $1 AND account_id = $2`, passkeyID, accountID)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// deletePasskeys deletes all passkeys and challenges of an account.
func deletePasskeys(ctx context.Context, tx *db.Tx, accountID string) error {
	_, keys := tx.ExecContext(ctx, `DELETE FROM passkeys WHERE account_id = $1`, accountID)
	_, asked := tx.ExecContext(ctx, `DELETE FROM passkey_challenges WHERE account_id = $1`, accountID)
	return errors.Join(keys, asked)
}

// countFactors counts the second factors of an account, apart from recovery codes.
func countFactors(ctx context.Context, q db.Queryer, accountID string) (n int, err error) {
	err = q.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM passkeys WHERE account_id = $1) + (SELECT COUNT(*)
			FROM totp_seeds WHERE account_id = $1 AND active = 1)`, accountID).Scan(&n)
	return n, err
}

// A challengeKind is the purpose of a challenge.
type challengeKind string

const (
	registerChallenge   challengeKind = "add"
	signInChallenge     challengeKind = "sign-in"
	secondStepChallenge challengeKind = "second-step"
)

// A challenge is a WebAuthn challenge that a browser has not answered yet.
type challenge struct {
	kind      challengeKind
	accountID string // "" for signInChallenge
	epoch     int64
	name      string // registerChallenge: name of the new passkey
	options   string // for the browser
	session   string // of the library
	expiresUS int64
}

const challengeColumns = `kind, COALESCE(account_id, ''), epoch, name, options, session, expires_us`

func (c *challenge) fields() []any {
	return []any{&c.kind, &c.accountID, &c.epoch, &c.name, &c.options, &c.session, &c.expiresUS}
}

// upsertChallenge stores a challenge and replaces the browser's former one.
func upsertChallenge(ctx context.Context, d *db.DB, holder string, c challenge) error {
	_, err := d.ExecContext(ctx, `INSERT INTO passkey_challenges (holder, kind, account_id, epoch, name, options,
			session, expires_us)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (holder) DO UPDATE
		SET kind = excluded.kind, account_id = excluded.account_id, epoch = excluded.epoch, name = excluded.name,
			options = excluded.options, session = excluded.session, expires_us = excluded.expires_us`,
		holder, string(c.kind), sql.NullString{String: c.accountID, Valid: c.accountID != ""}, c.epoch, c.name,
		c.options, c.session, c.expiresUS)
	return err
}

func getChallenge(ctx context.Context, q db.Queryer, holder string) (c challenge, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+challengeColumns+` FROM passkey_challenges
		WHERE holder = $1`, holder).Scan(c.fields()...)
	return c, err
}

// consumeChallenge deletes and returns a challenge; only one of several callers gets it.
func consumeChallenge(ctx context.Context, q db.Queryer, holder string) (c challenge, err error) {
	err = q.QueryRowContext(ctx, `DELETE FROM passkey_challenges WHERE holder = $1
		RETURNING `+challengeColumns, holder).Scan(c.fields()...)
	return c, err
}

func deleteExpiredChallenges(ctx context.Context, d *db.DB, nowUS int64) error {
	_, err := d.DeleteSlices(ctx, "passkey_challenges", `expires_us <= $1`, "expires_us", nowUS)
	return err
}
