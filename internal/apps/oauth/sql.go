package oauth

import (
	"context"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// approvalColumns are what a user has approved, in both tables of codes.
const approvalColumns = `COALESCE(account_id, ''), allocation_mc, velocity_limit_mc, keeps_cap <> 0,
			keeps_velocity <> 0, own_work <> 0, transcripts <> 0,
			COALESCE(approver_id, account_id, ''), approver_epoch, revocations`

func approvalFields(a *verdict.Approval) []any {
	return []any{&a.AccountID, &a.AllocationMC, &a.VelocityMC, &a.KeepCap, &a.KeepVelocity, &a.OwnWork,
		&a.Transcripts, &a.ApproverID, &a.ApproverEpoch, &a.Revocations}
}

func insertCode(ctx context.Context, tx *db.Tx, hash string, c verdict.Code) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO oauth_codes (hash, app_id, account_id, redirect_uri, challenge,
			allocation_mc, velocity_limit_mc, expires_us, own_work, approver_id, approver_epoch, revocations,
			keeps_cap, keeps_velocity, transcripts)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
		hash, c.AppID, c.AccountID, c.RedirectURI, c.Challenge, c.AllocationMC, c.VelocityMC, c.ExpiresUS,
		db.BoolInt(c.OwnWork), c.ApproverID, c.ApproverEpoch, c.Revocations, db.BoolInt(c.KeepCap),
		db.BoolInt(c.KeepVelocity), db.BoolInt(c.Transcripts))
	return err
}

// lockCode returns a code and locks it, so that other exchanges of it wait. It was approved when its time began.
func lockCode(ctx context.Context, tx *db.Tx, hash string) (c verdict.Code, err error) {
	err = tx.QueryRowContext(ctx, `SELECT app_id, redirect_uri, challenge, expires_us, failures, used_us, family_id,
			`+approvalColumns+`
		FROM oauth_codes
		WHERE hash = $1`+tx.Engine.ForUpdate(), hash).
		Scan(append([]any{&c.AppID, &c.RedirectURI, &c.Challenge, &c.ExpiresUS, &c.Failures, &c.UsedUS, &c.FamilyID},
			approvalFields(&c.Approval)...)...)
	c.ApprovedUS = c.ExpiresUS - verdict.CodeTTL.Microseconds()
	return c, err
}

func countFailure(ctx context.Context, tx *db.Tx, hash string) error {
	_, err := tx.ExecContext(ctx, `UPDATE oauth_codes SET failures = failures + 1 WHERE hash = $1`, hash)
	return err
}

// consumeCode consumes a code; sql.ErrNoRows says that it was consumed before.
func consumeCode(ctx context.Context, tx *db.Tx, hash, connectionID, familyID string, nowUS int64) error {
	return tx.QueryRowContext(ctx, `UPDATE oauth_codes SET used_us = $2, connection_id = $3, family_id = $4
		WHERE hash = $1 AND used_us IS NULL RETURNING hash`,
		hash, nowUS, connectionID, familyID).Scan(&hash)
}

// insertDeviceCode stores a device code; sql.ErrNoRows says that a stored one has its user code.
func insertDeviceCode(ctx context.Context, d db.Queryer, hash, userCodeHash string, c verdict.DeviceCode) error {
	return d.QueryRowContext(ctx, `INSERT INTO oauth_device_codes (hash, user_code_hash, app_id, requested_mc, features,
			expires_us, interval_us)
		VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (user_code_hash) DO NOTHING
		RETURNING hash`,
		hash, userCodeHash, c.AppID, c.RequestedMC, strings.Join(c.Features, ","), c.ExpiresUS,
		c.IntervalUS).Scan(&hash)
}

// getDeviceCode returns the device code whose column where has the value.
func getDeviceCode(ctx context.Context, q db.Queryer, where, value, lock string) (c verdict.DeviceCode, err error) {
	var features string
	err = q.QueryRowContext(ctx, `SELECT app_id, requested_mc, features, expires_us, interval_us, polled_us,
			decided_us, used_us, family_id, `+approvalColumns+`
		FROM oauth_device_codes WHERE `+where+` = $1`+lock, value).
		Scan(append([]any{&c.AppID, &c.RequestedMC, &features, &c.ExpiresUS, &c.IntervalUS, &c.PolledUS,
			&c.DecidedUS, &c.UsedUS, &c.FamilyID}, approvalFields(&c.Approval)...)...)
	if c.DecidedUS != nil {
		c.ApprovedUS = *c.DecidedUS
	}
	if features != "" {
		c.Features = strings.Split(features, ",")
	}
	return c, err
}

// lockDeviceCode returns a device code and locks it, so that other polls and decisions wait.
func lockDeviceCode(ctx context.Context, tx *db.Tx, where, value string) (verdict.DeviceCode, error) {
	return getDeviceCode(ctx, tx, where, value, tx.Engine.ForUpdate())
}

// updateDecision stores what the user decided. An empty AccountID denies.
func updateDecision(ctx context.Context, tx *db.Tx, userCodeHash string, c verdict.DeviceCode) error {
	var accountID *string
	if c.AccountID != "" {
		accountID = &c.AccountID
	}
	_, err := tx.ExecContext(ctx, `UPDATE oauth_device_codes
		SET account_id = $2, allocation_mc = $3, velocity_limit_mc = $4, decided_us = $5, own_work = $6,
			approver_id = $7, approver_epoch = $8, revocations = $9, keeps_cap = $10, keeps_velocity = $11,
			transcripts = $12
		WHERE user_code_hash = $1`,
		userCodeHash, accountID, c.AllocationMC, c.VelocityMC, c.DecidedUS, db.BoolInt(c.OwnWork), c.ApproverID,
		c.ApproverEpoch, c.Revocations, db.BoolInt(c.KeepCap), db.BoolInt(c.KeepVelocity), db.BoolInt(c.Transcripts))
	return err
}

func updatePoll(ctx context.Context, tx *db.Tx, hash string, intervalUS, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE oauth_device_codes SET interval_us = $2, polled_us = $3 WHERE hash = $1`,
		hash, intervalUS, nowUS)
	return err
}

// consumeDeviceCode is consumeCode for a device code.
func consumeDeviceCode(ctx context.Context, tx *db.Tx, hash, connectionID, familyID string, nowUS int64) error {
	return tx.QueryRowContext(ctx, `UPDATE oauth_device_codes SET used_us = $2, connection_id = $3, family_id = $4
		WHERE hash = $1 AND used_us IS NULL RETURNING hash`,
		hash, nowUS, connectionID, familyID).Scan(&hash)
}

func insertToken(ctx context.Context, tx *db.Tx, kind string, t verdict.Token, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO oauth_tokens (hash, kind, family_id, connection_id, app_id, expires_us,
			created_us) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		t.Hash, kind, t.FamilyID, t.ConnectionID, t.AppID, t.ExpiresUS, nowUS)
	return err
}

const tokenColumns = `hash, family_id, connection_id, app_id, expires_us, used_us, revoked_us`

func tokenFields(t *verdict.Token) []any {
	return []any{&t.Hash, &t.FamilyID, &t.ConnectionID, &t.AppID, &t.ExpiresUS, &t.UsedUS, &t.RevokedUS}
}

// lockRefreshToken returns a refresh token and locks it, so that other exchanges of it wait.
func lockRefreshToken(ctx context.Context, tx *db.Tx, hash string, nowUS int64) (t verdict.Token, err error) {
	var successor *string
	err = tx.QueryRowContext(ctx, `SELECT `+tokenColumns+`, successor FROM oauth_tokens
		WHERE hash = $1 AND kind = 'refresh'`+tx.Engine.ForUpdate(), hash).
		Scan(append(tokenFields(&t), &successor)...)
	if err != nil || successor == nil {
		return t, err
	}
	err = tx.QueryRowContext(ctx, `SELECT
			EXISTS (SELECT 1 FROM oauth_tokens WHERE hash = $1 AND used_us IS NOT NULL),
			COALESCE((SELECT key FROM oauth_replays WHERE successor = $1 AND expires_us > $2), '')`,
		*successor, nowUS).Scan(&t.SuccessorUsed, &t.AnswerKey)
	return t, err
}

// consumeRefreshToken exchanges a refresh token for its successor; sql.ErrNoRows says that it was exchanged or revoked
// before. The token stays as long as its successor, for retries and to detect its reuse.
func consumeRefreshToken(ctx context.Context, tx *db.Tx, hash, successor string, nowUS, expiresUS int64) error {
	return tx.QueryRowContext(ctx, `UPDATE oauth_tokens SET used_us = $2, successor = $3, expires_us = $4
		WHERE hash = $1 AND used_us IS NULL AND revoked_us IS NULL RETURNING hash`,
		hash, nowUS, successor, expiresUS).Scan(&hash)
}

// lockToken returns and locks an access token or refresh token of an app.
func lockToken(ctx context.Context, tx *db.Tx, hash, appID string) (kind, familyID string, err error) {
	err = tx.QueryRowContext(ctx, `SELECT kind, family_id FROM oauth_tokens
		WHERE hash = $1 AND app_id = $2`+tx.Engine.ForUpdate(), hash, appID).Scan(&kind, &familyID)
	return kind, familyID, err
}

func revokeToken(ctx context.Context, tx *db.Tx, hash string, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE oauth_tokens SET revoked_us = $2
		WHERE hash = $1 AND revoked_us IS NULL`, hash, nowUS)
	return err
}

// revokeFamily revokes all tokens of a family. The first statement does not see the tokens of a concurrent refresh, but
// it waits for a row that the refresh has locked. So it repeats the statement until it finds no more tokens.
func revokeFamily(ctx context.Context, tx *db.Tx, familyID string, nowUS int64) error {
	for {
		res, err := tx.ExecContext(ctx, `UPDATE oauth_tokens SET revoked_us = $2
			WHERE family_id = $1 AND revoked_us IS NULL`, familyID, nowUS)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
	}
}

// getAccessGrant looks up the access token of a call.
func getAccessGrant(ctx context.Context, q db.Queryer, hash string, nowUS int64) (Grant, error) {
	return queryAccessGrant(ctx, q, "", hash, nowUS)
}

// lockAccessGrant is getAccessGrant with a lock of the token, for which a revocation waits.
func lockAccessGrant(ctx context.Context, tx *db.Tx, hash string, nowUS int64) (Grant, error) {
	return queryAccessGrant(ctx, tx, tx.Engine.ForShare(), hash, nowUS)
}

func queryAccessGrant(ctx context.Context, q db.Queryer, lock, hash string, nowUS int64) (g Grant, err error) {
	err = q.QueryRowContext(ctx, `SELECT connection_id, app_id, family_id, expires_us FROM oauth_tokens
		WHERE hash = $1 AND kind = 'access' AND expires_us > $2 AND revoked_us IS NULL`+lock, hash, nowUS).
		Scan(&g.ConnectionID, &g.AppID, &g.FamilyID, &g.ExpiresUS)
	return g, err
}

// isRevoked reports whether a token was revoked by itself, or with its family. A refresh token is never revoked by
// itself, so any one of the family tells: one that was refreshed for months has thousands.
func isRevoked(ctx context.Context, q db.Queryer, hash, familyID string) (revoked bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM oauth_tokens WHERE hash = $1 AND revoked_us IS NOT NULL)
		OR EXISTS (SELECT 1 FROM (SELECT revoked_us FROM oauth_tokens
			WHERE family_id = $2 AND kind = 'refresh' LIMIT 1) AS one WHERE revoked_us IS NOT NULL)`, hash, familyID).
		Scan(&revoked)
	return revoked, err
}

// getFamilyConnection returns the connection of a grant family; sql.ErrNoRows says that it has no tokens any more.
func getFamilyConnection(ctx context.Context, tx *db.Tx, familyID string) (connectionID string, err error) {
	err = tx.QueryRowContext(ctx, `SELECT connection_id FROM oauth_tokens WHERE family_id = $1 LIMIT 1`, familyID).
		Scan(&connectionID)
	return connectionID, err
}

// A replay is a stored response.
type replay struct {
	Fingerprint string
	Sealed      string
	Successor   string // hash of the refresh token in it, in the response to a refresh; "" = of another grant
	ExpiresUS   int64
}

// insertReplay stores a response. It returns sql.ErrNoRows if another response has its key.
func insertReplay(ctx context.Context, tx *db.Tx, appID, key string, r replay, nowUS int64) error {
	var successor *string
	if r.Successor != "" {
		successor = &r.Successor
	}
	return tx.QueryRowContext(ctx, `INSERT INTO oauth_replays (app_id, key, fingerprint, sealed, successor, expires_us)
		VALUES ($1, $2, $3, $4, $5, $7)
		ON CONFLICT (app_id, key) DO UPDATE
		SET fingerprint = excluded.fingerprint, sealed = excluded.sealed, successor = excluded.successor,
			expires_us = excluded.expires_us
		WHERE oauth_replays.expires_us <= $6
		RETURNING key`, appID, key, r.Fingerprint, r.Sealed, successor, nowUS, r.ExpiresUS).Scan(&key)
}

func getReplay(ctx context.Context, tx *db.Tx, appID, key string, nowUS int64) (r replay, err error) {
	err = tx.QueryRowContext(ctx, `SELECT fingerprint, sealed, COALESCE(successor, ''), expires_us FROM oauth_replays
		WHERE app_id = $1 AND key = $2 AND expires_us > $3`, appID, key, nowUS).
		Scan(&r.Fingerprint, &r.Sealed, &r.Successor, &r.ExpiresUS)
	return r, err
}

// deleteReplay deletes the response that a refresh token came in: its first use shows that the response arrived.
func deleteReplay(ctx context.Context, tx *db.Tx, successor string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM oauth_replays WHERE successor = $1`, successor)
	return err
}

// listConsentCounts returns the counts of an app's days, oldest first.
func listConsentCounts(ctx context.Context, q db.Queryer, appID, fromDay, toDay string) ([]ConsentCount, error) {
	return db.QueryAll(ctx, q, func(row db.Row) (c ConsentCount, err error) {
		return c, row.Scan(&c.Day, &c.Shown, &c.Approved, &c.Denied)
	}, `SELECT day, shown, approved, denied FROM consent_counts
		WHERE app_id = $1 AND day >= $2 AND day <= $3 ORDER BY day`, appID, fromDay, toDay)
}

// addConsentCount adds one to a step's count of an app and day. The step is a constant of this package.
func addConsentCount(ctx context.Context, q db.Execer, appID, day, step string) error {
	_, err := q.ExecContext(ctx, `INSERT INTO consent_counts (app_id, day, shown, approved, denied)
		VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (app_id, day) DO UPDATE SET `+step+` = consent_counts.`+step+` + 1`,
		appID, day, db.BoolInt(step == stepShown), db.BoolInt(step == stepApproved), db.BoolInt(step == stepDenied))
	return err
}

// deleteExpired deletes codes one day after they expire, because a reuse is detected until then, and expired tokens and
// stored responses.
func deleteExpired(ctx context.Context, d *db.DB, nowUS, dayUS int64) error {
	if _, err := d.DeleteSlices(ctx, "oauth_codes", `expires_us <= $1`, "expires_us", nowUS-dayUS); err != nil {
		return err
	}
	_, err := d.DeleteSlices(ctx, "oauth_device_codes", `expires_us <= $1`, "expires_us", nowUS-dayUS)
	if err != nil {
		return err
	}
	if _, err := d.DeleteSlices(ctx, "oauth_replays", `expires_us <= $1`, "expires_us", nowUS); err != nil {
		return err
	}
	_, err = d.DeleteSlices(ctx, "oauth_tokens", `expires_us <= $1`, "expires_us", nowUS)
	return err
}

// consentSQL are the statements of one thing that a user allows an app besides calls.
type consentSQL struct{ allow, forbid, has string }

var (
	workConsent = consentSQL{
		`INSERT INTO work_consents (app_id, account_id, connection_id, created_us) VALUES ($1, $2, $3, $4)
			ON CONFLICT (app_id, account_id) DO UPDATE
			SET connection_id = excluded.connection_id, created_us = excluded.created_us`,
		`DELETE FROM work_consents WHERE app_id = $1 AND account_id = $2`,
		`SELECT EXISTS (SELECT 1 FROM work_consents WHERE app_id = $1 AND account_id = $2 AND connection_id = $3)`,
	}
	transcriptConsent = consentSQL{
		`INSERT INTO transcript_consents (app_id, account_id, connection_id, created_us) VALUES ($1, $2, $3, $4)
			ON CONFLICT (app_id, account_id) DO UPDATE
			SET connection_id = excluded.connection_id, created_us = excluded.created_us`,
		`DELETE FROM transcript_consents WHERE app_id = $1 AND account_id = $2`,
		`SELECT EXISTS (SELECT 1 FROM transcript_consents
			WHERE app_id = $1 AND account_id = $2 AND connection_id = $3)`,
	}
)

// saveConsents stores what the user of a connection allows its app besides calls, as the last consent screen said.
func saveConsents(ctx context.Context, tx *db.Tx, c rules.Connection, work, transcripts bool, nowUS int64) error {
	if err := workConsent.save(ctx, tx, c, work, nowUS); err != nil {
		return err
	}
	return transcriptConsent.save(ctx, tx, c, transcripts, nowUS)
}

func (q consentSQL) save(ctx context.Context, tx *db.Tx, c rules.Connection, allowed bool, nowUS int64) (err error) {
	if allowed {
		_, err = tx.ExecContext(ctx, q.allow, c.AppID, c.AccountID, c.ID, nowUS)
	} else {
		_, err = tx.ExecContext(ctx, q.forbid, c.AppID, c.AccountID)
	}
	return err
}

// AllowsWork reports whether the consent screen of a connection told its user that the app charges for work of its own,
// and the user allowed it. What a consent of an earlier connection said does not count.
func (s *Store) AllowsWork(ctx context.Context, appID, accountID, connectionID string) (bool, error) {
	return s.allows(ctx, workConsent, appID, accountID, connectionID)
}

// AllowsTranscripts reports the same of transcripts of what the user says in voice sessions.
func (s *Store) AllowsTranscripts(ctx context.Context, appID, accountID, connectionID string) (bool, error) {
	return s.allows(ctx, transcriptConsent, appID, accountID, connectionID)
}

func (s *Store) allows(
	ctx context.Context, q consentSQL, appID, accountID, connectionID string,
) (allowed bool, err error) {
	if err = s.DB.QueryRowContext(ctx, q.has, appID, accountID, connectionID).Scan(&allowed); err != nil {
		return false, fmt.Errorf("oauth: consent: %w", err)
	}
	return allowed, nil
}
