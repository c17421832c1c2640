package apps

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"purser/internal/db"
)

const columns = `id, owner_id, name, client_id, redirect_uris, allowed_models, default_max_tokens, tier, provider_mode, test_allowlist, dev_margin_ppm, suspended <> 0, created_us`

// read reads the app that where names, and the hash of its secret.
func read(ctx context.Context, q db.Queryer, where, value string) (a App, secretHash string, err error) {
	var uris, models, testers string
	err = q.QueryRowContext(ctx, `SELECT `+columns+`, secret_hash FROM apps WHERE `+where+` = $1`, value).Scan(
		&a.ID, &a.OwnerID, &a.Name, &a.ClientID, &uris, &models, &a.DefaultMaxTokens, &a.Tier, &a.ProviderMode, &testers, &a.DevMargin, &a.Suspended, &a.CreatedUS, &secretHash)
	if err != nil {
		return App{}, "", err
	}
	if err := errors.Join(json.Unmarshal([]byte(uris), &a.RedirectURIs), json.Unmarshal([]byte(models), &a.AllowedModels), json.Unmarshal([]byte(testers), &a.TestAllowlist)); err != nil {
		return App{}, "", fmt.Errorf("apps: lists of %s: %w", a.ID, err)
	}
	return a, secretHash, nil
}

func insert(ctx context.Context, tx *db.Tx, a App, secretHash string) error {
	uris, err := list(a.RedirectURIs)
	if err != nil {
		return err
	}
	models, err := list(a.AllowedModels)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO apps (id, owner_id, name, client_id, secret_hash, redirect_uris, allowed_models, default_max_tokens, tier, provider_mode, test_allowlist, dev_margin_ppm, suspended, created_us)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '[]', $11, 0, $12)`,
		a.ID, a.OwnerID, a.Name, a.ClientID, secretHash, uris, models, a.DefaultMaxTokens, a.Tier, a.ProviderMode, a.DevMargin, a.CreatedUS)
	return err
}

// updateList replaces a list; the column's name is a constant of this package.
func updateList(ctx context.Context, d *db.DB, appID, column string, values []string) error {
	text, err := list(values)
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

func list(s []string) (string, error) {
	if s == nil {
		s = []string{}
	}
	b, err := json.Marshal(s)
	return string(b), err
}
