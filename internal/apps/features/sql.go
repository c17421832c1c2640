package features

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
)

const featureColumns = `app_id, slug, display_name, description, max_cost_per_call_mc, max_tokens, rate_limit,
		default_model, dev_margin_ppm, fit, fit_min_tokens`

func (f *Feature) fields() []any {
	return []any{&f.AppID, &f.Slug, &f.DisplayName, &f.Description, &f.MaxCostPerCallMC, &f.MaxTokens, &f.RateLimit,
		&f.DefaultModel, &f.DevMargin, &f.Fit, &f.FitMinTokens}
}

func getFeature(ctx context.Context, q db.Queryer, appID, slug, lock string) (f Feature, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+featureColumns+` FROM features
		WHERE app_id = $1 AND slug = $2`+lock, appID, slug).Scan(f.fields()...)
	return f, err
}

// listNewest returns an app's features, newest first.
func listNewest(ctx context.Context, q db.Queryer, appID string, limit int) ([]Feature, error) {
	return queryFeatures(ctx, q, `SELECT `+featureColumns+` FROM features
		WHERE app_id = $1 ORDER BY created_us DESC, slug DESC LIMIT $2`, appID, limit)
}

// listLocked returns an app's features and locks them for reading.
func listLocked(ctx context.Context, tx *db.Tx, appID string) ([]Feature, error) {
	return queryFeatures(ctx, tx, `SELECT `+featureColumns+` FROM features
		WHERE app_id = $1 ORDER BY slug`+tx.Engine.ForShare(), appID)
}

// listOlder returns the features of an app after one of them in the order of listNewest.
func listOlder(ctx context.Context, q db.Queryer, appID, slug string, limit int) ([]Feature, error) {
	return queryFeatures(ctx, q, `SELECT `+featureColumns+` FROM features WHERE app_id = $1
		AND (created_us, slug) < (SELECT created_us, slug FROM features WHERE app_id = $1 AND slug = $2)
		ORDER BY created_us DESC, slug DESC LIMIT $3`, appID, slug, limit)
}

func queryFeatures(ctx context.Context, q db.Queryer, text string, args ...any) ([]Feature, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*Feature).fields), text, args...)
}

// lockAndCount locks an app and counts its features. Until tx ends no other transaction can add one.
func lockAndCount(ctx context.Context, tx *db.Tx, appID string) (n int, err error) {
	var locked string
	if err := tx.QueryRowContext(ctx, `SELECT id FROM apps
		WHERE id = $1`+tx.Engine.ForUpdate(), appID).Scan(&locked); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM features WHERE app_id = $1`, appID).Scan(&n)
	return n, err
}

// getAppMargin returns the tier of an app and its own margin rate.
func getAppMargin(ctx context.Context, tx *db.Tx, appID string) (tier string, rate money.PPM, err error) {
	err = tx.QueryRowContext(ctx, `SELECT tier, dev_margin_ppm FROM apps WHERE id = $1`, appID).Scan(&tier, &rate)
	return tier, rate, err
}

func insertFeature(ctx context.Context, tx *db.Tx, f Feature, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO features (`+featureColumns+`, created_us)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
		f.AppID, f.Slug, f.DisplayName, f.Description, f.MaxCostPerCallMC, f.MaxTokens, f.RateLimit, f.DefaultModel,
		f.DevMargin, nullBool(f.Fit), f.FitMinTokens, nowUS)
	return err
}

func updateFeature(ctx context.Context, tx *db.Tx, f Feature) error {
	_, err := tx.ExecContext(ctx, `UPDATE features
		SET display_name = $3, description = $4, max_cost_per_call_mc = $5, max_tokens = $6, rate_limit = $7,
			default_model = $8, dev_margin_ppm = $9, fit = $10, fit_min_tokens = $11
		WHERE app_id = $1 AND slug = $2`,
		f.AppID, f.Slug, f.DisplayName, f.Description, f.MaxCostPerCallMC, f.MaxTokens, f.RateLimit, f.DefaultModel,
		f.DevMargin, nullBool(f.Fit), f.FitMinTokens)
	return err
}

// nullBool returns the argument for a column that is 0, 1 or NULL.
func nullBool(b *bool) any {
	if b == nil {
		return nil
	}
	return db.BoolInt(*b)
}
