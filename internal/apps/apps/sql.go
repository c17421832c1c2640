package apps

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
)

const appColumns = `id, owner_id, name, client_id, client_type, redirect_uris, allowed_models, default_max_tokens,
		fit <> 0, fit_min_tokens, tier, provider_mode, test_allowlist, dev_margin_ppm, prompt_cache <> 0, own_work <> 0,
		transcripts <> 0,
	suspended <> 0, COALESCE(suspended_us, 0), suspension_by, suspension_reason, suspension_us, COALESCE(lifted_us, 0),
		created_us,
	COALESCE((SELECT hash FROM app_logos WHERE app_id = apps.id), ''), secret_hash,
	COALESCE(previous_secret_hash, ''), COALESCE(previous_secret_until_us, 0),
	developer_name, website_url, privacy_policy_url, support, domain, domain_verified_us, proposed`

// secretHashes are the hashes of an app's client secrets.
type secretHashes struct {
	present  string
	previous string // "" = there is none
}

func scanApp(row db.Row) (a App, secrets secretHashes, err error) {
	var uris, models, testers, proposed string
	var by, reason *string
	var sinceUS *int64
	err = row.Scan(&a.ID, &a.OwnerID, &a.Name, &a.ClientID, &a.ClientType, &uris, &models, &a.DefaultMaxTokens, &a.Fit,
		&a.FitMinTokens, &a.Tier, &a.ProviderMode, &testers, &a.DevMargin, &a.PromptCache, &a.OwnWork, &a.Transcripts,
		&a.SwitchedOff, &a.SwitchedOffUS, &by, &reason, &sinceUS, &a.LiftedUS, &a.CreatedUS, &a.LogoHash,
		&secrets.present, &secrets.previous, &a.OldSecretUntilUS,
		&a.Profile.DeveloperName, &a.Profile.WebsiteURL, &a.Profile.PrivacyPolicyURL, &a.Profile.Support,
		&a.Profile.Domain, &a.Profile.DomainVerifiedUS, &proposed)
	if err != nil {
		return App{}, secretHashes{}, err
	}
	err = errors.Join(json.Unmarshal([]byte(uris), &a.RedirectURIs), json.Unmarshal([]byte(models), &a.AllowedModels),
		json.Unmarshal([]byte(testers), &a.TestAllowlist))
	if proposed != "" {
		err = errors.Join(err, json.Unmarshal([]byte(proposed), &a.Proposed))
	}
	if err != nil {
		return App{}, secretHashes{}, fmt.Errorf("apps: lists of %s: %w", a.ID, err)
	}
	if by != nil {
		a.Suspension = &Suspension{By: *by}
		if reason != nil && sinceUS != nil {
			a.Suspension.Reason, a.Suspension.SinceUS = *reason, *sinceUS
		}
	}
	a.Suspended = a.SwitchedOff || by != nil
	return a, secrets, nil
}

// getApp returns the app whose column where has the value, and the hashes of its secrets.
func getApp(ctx context.Context, q db.Queryer, where, value string) (App, secretHashes, error) {
	return scanApp(q.QueryRowContext(ctx, `SELECT `+appColumns+` FROM apps WHERE `+where+` = $1`, value))
}

// lockApp locks an app with the suffix lock, and returns it. It reads by a second statement: on PostgreSQL, one that
// has waited for the lock sees the row as it is then, and the logo as it was before.
func lockApp(ctx context.Context, tx *db.Tx, appID, lock string) (App, error) {
	if lock != "" {
		err := tx.QueryRowContext(ctx, `SELECT id FROM apps WHERE id = $1`+lock, appID).Scan(&appID)
		if err != nil {
			return App{}, err
		}
	}
	a, _, err := getApp(ctx, tx, "id", appID)
	return a, err
}

// lockOwned locks the apps of a developer, in the order of their ids.
func lockOwned(ctx context.Context, tx *db.Tx, ownerID string) error {
	_, err := db.QueryAll(ctx, tx, db.ScanColumn[string], `SELECT id FROM apps WHERE owner_id = $1
		ORDER BY id`+tx.Engine.ForUpdate(), ownerID)
	return err
}

// SuspendedSQL returns the condition that an app is suspended, by its developer or by the
// service. The table is "apps" or its alias.
func SuspendedSQL(table string) string {
	return `(` + table + `.suspended = 1 OR ` + table + `.suspension_by IS NOT NULL)`
}

// listSuspended returns suspended apps in the order of their ids.
func listSuspended(ctx context.Context, q db.Queryer, after string, limit int) ([]App, error) {
	return queryApps(ctx, q, `SELECT `+appColumns+` FROM apps
		WHERE `+SuspendedSQL("apps")+` AND id > $1 ORDER BY id LIMIT $2`, after, limit)
}

// listSuspendedByOperator returns the apps that an operator has suspended at a time or later.
func listSuspendedByOperator(ctx context.Context, q db.Queryer, sinceUS int64) ([]App, error) {
	return queryApps(ctx, q, `SELECT `+appColumns+` FROM apps
		WHERE `+SuspendedSQL("apps")+` AND suspension_by = 'operator' AND suspension_us >= $1`, sinceUS)
}

// searchApps ignores the case of names, at least of ASCII letters. It scans the table, because there are few apps.
func searchApps(ctx context.Context, q db.Queryer, text, after string, limit int) ([]App, error) {
	if after == "" {
		after = "~" // after every id
	}
	if text == "" {
		return queryApps(ctx, q, `SELECT `+appColumns+` FROM apps
			WHERE id < $1 ORDER BY id DESC LIMIT $2`, after, limit)
	}
	like := likeText(strings.ToLower(text))
	return queryApps(ctx, q, `SELECT `+appColumns+` FROM apps
		WHERE id < $1 AND (id = $3 OR client_id = $3 OR LOWER(name) LIKE $4 ESCAPE '\') ORDER BY id DESC LIMIT $2`,
		after, limit, text, like)
}

// likeText returns the pattern of LIKE with ESCAPE '\' for what contains a text.
func likeText(text string) string {
	return "%" + strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(text) + "%"
}

// listOwned returns a developer's apps, newest first.
func listOwned(ctx context.Context, q db.Queryer, ownerID string) ([]App, error) {
	return queryApps(ctx, q, `SELECT `+appColumns+` FROM apps WHERE owner_id = $1 ORDER BY id DESC`, ownerID)
}

func queryApps(ctx context.Context, q db.Queryer, text string, args ...any) ([]App, error) {
	return db.QueryAll(ctx, q, func(row db.Row) (App, error) {
		a, _, err := scanApp(row)
		return a, err
	}, text, args...)
}

// updateApp stores all members of an app that can change.
func updateApp(ctx context.Context, tx *db.Tx, a App) error {
	lists := make([]string, 3)
	for i, l := range [][]string{a.RedirectURIs, a.AllowedModels, a.TestAllowlist} {
		text, err := marshalList(l)
		if err != nil {
			return err
		}
		lists[i] = text
	}
	proposed := ""
	if len(a.Proposed.Members()) > 0 {
		text, err := json.Marshal(a.Proposed)
		if err != nil {
			return err
		}
		proposed = string(text)
	}
	off := 0
	if a.SwitchedOff {
		off = 1
	}
	var by, reason *string
	var sinceUS *int64
	if n := a.Suspension; n != nil {
		by, reason, sinceUS = &n.By, &n.Reason, &n.SinceUS
	}
	_, err := tx.ExecContext(ctx, `UPDATE apps
		SET name = $2, redirect_uris = $3, allowed_models = $4, default_max_tokens = $5, tier = $6, provider_mode = $7,
			test_allowlist = $8,
		dev_margin_ppm = $9, suspended = $10, suspended_us = $11, suspension_by = $12, suspension_reason = $13,
			suspension_us = $14, lifted_us = $15, client_type = $16, fit = $17, fit_min_tokens = $18,
			prompt_cache = $19, developer_name = $20, website_url = $21, privacy_policy_url = $22, support = $23,
			domain = $24, domain_verified_us = $25, own_work = $26, proposed = $27, transcripts = $28
		WHERE id = $1`,
		a.ID, a.Name, lists[0], lists[1], a.DefaultMaxTokens, a.Tier, a.ProviderMode, lists[2], a.DevMargin, off,
		a.SwitchedOffUS, by, reason, sinceUS, a.LiftedUS, a.ClientType, db.BoolInt(a.Fit),
		a.FitMinTokens, db.BoolInt(a.PromptCache), a.Profile.DeveloperName, a.Profile.WebsiteURL,
		a.Profile.PrivacyPolicyURL, a.Profile.Support, a.Profile.Domain, a.Profile.DomainVerifiedUS,
		db.BoolInt(a.OwnWork), proposed, db.BoolInt(a.Transcripts))
	return err
}

func insertApp(ctx context.Context, tx *db.Tx, a App, secretHash string) error {
	uris, err := marshalList(a.RedirectURIs)
	if err != nil {
		return err
	}
	models, err := marshalList(a.AllowedModels)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO apps (id, owner_id, name, client_id, secret_hash, redirect_uris,
			allowed_models, default_max_tokens, tier, provider_mode, test_allowlist, dev_margin_ppm, suspended,
			created_us, client_type)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '[]', $11, 0, $12, $13)`,
		a.ID, a.OwnerID, a.Name, a.ClientID, secretHash, uris, models, a.DefaultMaxTokens, a.Tier, a.ProviderMode,
		a.DevMargin, a.CreatedUS, a.ClientType)
	return err
}

// updateProviderMode sets the provider mode of an app.
func updateProviderMode(ctx context.Context, q db.Execer, appID, mode string) error {
	_, err := q.ExecContext(ctx, `UPDATE apps SET provider_mode = $1 WHERE id = $2`, mode, appID)
	return err
}

// getLogo returns the PNG with a hash.
func getLogo(ctx context.Context, q db.Queryer, hash string) (png []byte, err error) {
	err = q.QueryRowContext(ctx, `SELECT png FROM app_logos WHERE hash = $1
		UNION ALL SELECT png FROM app_logo_proposals WHERE hash = $1 LIMIT 1`, hash).Scan(&png)
	return png, err
}

// eraseProfiles empties what says who is behind the apps of an account, also what waits for a review,
// and their lists of testers.
func eraseProfiles(ctx context.Context, tx *db.Tx, ownerID string) error {
	const own = `app_id IN (SELECT id FROM apps WHERE owner_id = $1)`
	_, err := tx.ExecContext(ctx, `UPDATE apps SET developer_name = '', website_url = '', privacy_policy_url = '',
			support = '', domain = '', domain_verified_us = 0, proposed = '', test_allowlist = '[]'
		WHERE owner_id = $1`, ownerID)
	_, logos := tx.ExecContext(ctx, `DELETE FROM app_logos WHERE `+own, ownerID)
	_, proposals := tx.ExecContext(ctx, `DELETE FROM app_logo_proposals WHERE `+own, ownerID)
	return errors.Join(err, logos, proposals)
}

// listTested returns the ids of the apps that have an address among their testers, in their order. It looks for the
// address as JSON has it in a list, quotes included; ids on SQLite, which ignores the case, may be too many.
func listTested(ctx context.Context, q db.Queryer, email string) ([]string, error) {
	quoted, err := json.Marshal(email)
	if err != nil {
		return nil, err
	}
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT id FROM apps
		WHERE test_allowlist LIKE $1 ESCAPE '\' ORDER BY id`, likeText(string(quoted)))
}

// upsertLogoProposal stores a logo of a live app that waits for review.
func upsertLogoProposal(ctx context.Context, tx *db.Tx, appID, hash string, png []byte, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO app_logo_proposals (app_id, hash, png, created_us)
		VALUES ($1, $2, $3, $4)
		ON CONFLICT (app_id) DO UPDATE SET hash = excluded.hash, png = excluded.png, created_us = excluded.created_us`,
		appID, hash, png, nowUS)
	return err
}

func deleteLogoProposal(ctx context.Context, tx *db.Tx, appID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM app_logo_proposals WHERE app_id = $1`, appID)
	return err
}

// moveLogoProposal makes the logo that has waited the app's own.
func moveLogoProposal(ctx context.Context, tx *db.Tx, appID string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO app_logos (app_id, hash, png, created_us)
		SELECT app_id, hash, png, created_us FROM app_logo_proposals WHERE app_id = $1
		ON CONFLICT (app_id) DO UPDATE SET hash = excluded.hash, png = excluded.png, created_us = excluded.created_us`,
		appID)
	if err != nil {
		return err
	}
	return deleteLogoProposal(ctx, tx, appID)
}

// upsertLogo stores the logo of an app in place of an earlier one.
func upsertLogo(ctx context.Context, tx *db.Tx, appID, hash string, png []byte, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO app_logos (app_id, hash, png, created_us) VALUES ($1, $2, $3, $4)
		ON CONFLICT (app_id) DO UPDATE SET hash = excluded.hash, png = excluded.png, created_us = excluded.created_us`,
		appID, hash, png, nowUS)
	return err
}

func deleteLogo(ctx context.Context, tx *db.Tx, appID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM app_logos WHERE app_id = $1`, appID)
	return err
}

// updateList replaces a list. The column is a constant of this package.
func updateList(ctx context.Context, d db.Execer, appID, column string, values []string) error {
	text, err := marshalList(values)
	if err != nil {
		return err
	}
	res, err := d.ExecContext(ctx, `UPDATE apps SET `+column+` = $2 WHERE id = $1`, appID, text)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, sql.ErrNoRows)
	}
	return nil
}

// updateSecret replaces the client secret of an app. The old one works until untilUS; nil = no longer.
func updateSecret(ctx context.Context, d db.Execer, appID, secretHash string, untilUS *int64) error {
	res, err := d.ExecContext(ctx, `UPDATE apps SET previous_secret_until_us = CAST($3 AS BIGINT),
			previous_secret_hash = CASE WHEN CAST($3 AS BIGINT) IS NULL THEN NULL ELSE secret_hash END, secret_hash = $2
		WHERE id = $1`, appID, secretHash, untilUS)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, sql.ErrNoRows)
	}
	return nil
}

func marshalList(s []string) (string, error) {
	if s == nil {
		s = []string{}
	}
	b, err := json.Marshal(s)
	return string(b), err
}
