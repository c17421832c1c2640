package privacy

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/timestamp"
)

// countHolds counts the open and pending holds of an account.
func countHolds(ctx context.Context, q db.Queryer, accountID string) (n int, err error) {
	err = q.QueryRowContext(ctx,
		`SELECT COUNT(*) FROM holds WHERE state <> 'failed'
		AND connection_id IN (SELECT id FROM connections WHERE account_id = $1)`, accountID).Scan(&n)
	return n, err
}

// listUsers returns connections of other accounts to the live apps of an account, at most limit, in any order: an app
// may have a million of them.
func listUsers(ctx context.Context, q db.Queryer, accountID string, limit int) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT c.id FROM apps a CROSS JOIN connections c
		WHERE c.app_id = a.id AND a.owner_id = $1 AND a.tier <> 'sandbox' AND c.status <> 'revoked'
			AND c.account_id <> $1 LIMIT $2`, accountID, limit)
}

// listSharedApps returns the names of an account's apps in which other accounts have a role.
func listSharedApps(ctx context.Context, q db.Queryer, accountID string) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT a.name FROM apps a
		WHERE a.owner_id = $1 AND EXISTS (SELECT 1 FROM app_members m WHERE m.app_id = a.id)
		ORDER BY a.id`, accountID)
}

// liveConnections returns the connections of an account that are not revoked, in the order in which they are locked.
// While the account is locked, no connection is added.
func liveConnections(ctx context.Context, q db.Queryer, accountID string) (list []string, err error) {
	rows, err := q.QueryContext(ctx,
		`SELECT id FROM connections WHERE account_id = $1 AND status <> 'revoked' ORDER BY id`, accountID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var connectionID string
		if err := rows.Scan(&connectionID); err != nil {
			return nil, err
		}
		list = append(list, connectionID)
	}
	return list, rows.Err()
}

// A notice is an email about money that an account was sent.
type notice struct {
	ID           string          `json:"id"`
	Kind         string          `json:"kind"`
	ConnectionID string          `json:"connection_id"`
	AppID        string          `json:"app_id"`
	Data         json.RawMessage `json:"data"`
	CreatedAt    string          `json:"created_at"`
}

// listNotices returns the notices of an account after a notice's id, oldest first.
func listNotices(ctx context.Context, q db.Queryer, accountID, after string, limit int) (list []notice, err error) {
	rows, err := q.QueryContext(ctx,
		`SELECT id, kind, connection_id, app_id, data, created_us FROM notices
		WHERE account_id = $1 AND id > $2 ORDER BY id LIMIT $3`, accountID, after, limit)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var n notice
		var data string
		var createdUS int64
		if err := rows.Scan(&n.ID, &n.Kind, &n.ConnectionID, &n.AppID, &data, &createdUS); err != nil {
			return nil, err
		}
		n.Data, n.CreatedAt = json.RawMessage(data), timestamp.Format(createdUS)
		list = append(list, n)
	}
	return list, rows.Err()
}
