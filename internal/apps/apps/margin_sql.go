package apps

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
)

// ListMarginChanges returns the changes of an app after a time, oldest first.
func ListMarginChanges(ctx context.Context, q db.Queryer, appID string, afterUS int64) ([]MarginChange, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*MarginChange).fields), `SELECT app_id, feature, name, before_ppm,
			after_ppm, changed_us FROM margin_changes
		WHERE app_id = $1 AND changed_us > $2 ORDER BY changed_us, id`, appID, afterUS)
}

func (c *MarginChange) fields() []any {
	return []any{&c.AppID, &c.Feature, &c.Name, &c.Before, &c.After, &c.ChangedUS}
}

// ListUntoldMargins returns the newest change of each app of which users have to be told still.
func ListUntoldMargins(ctx context.Context, q db.Queryer, limit int) ([]MarginChange, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(c *MarginChange) []any { return []any{&c.AppID, &c.ChangedUS} }),
		`SELECT app_id, MAX(changed_us) FROM margin_changes WHERE done = 0 GROUP BY app_id ORDER BY 2 LIMIT $1`, limit)
}

// EndMarginChanges notes that all users of an app have been told of its changes up to a time.
func EndMarginChanges(ctx context.Context, d *db.DB, appID string, untilUS int64) error {
	_, err := d.ExecContext(ctx, `UPDATE margin_changes SET done = 1
		WHERE app_id = $1 AND changed_us <= $2 AND done = 0`, appID, untilUS)
	return err
}

func insertMarginChange(ctx context.Context, tx *db.Tx, changeID string, c MarginChange) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO margin_changes (id, app_id, feature, name, before_ppm, after_ppm,
			changed_us)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, changeID, c.AppID, c.Feature, c.Name, c.Before, c.After, c.ChangedUS)
	return err
}
