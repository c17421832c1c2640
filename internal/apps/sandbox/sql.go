package sandbox

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
)

// listLiveConnections returns the ids of an account's connections that are not revoked. While the caller holds the lock
// of the account, no new one is created.
func listLiveConnections(ctx context.Context, tx *db.Tx, accountID string) ([]string, error) {
	return db.QueryAll(ctx, tx, db.ScanColumn[string], `SELECT id FROM connections
		WHERE account_id = $1 AND status <> 'revoked' ORDER BY id`, accountID)
}
