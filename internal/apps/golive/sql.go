package golive

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
)

const requestColumns = `id, app_id, from_tier, to_tier, status, COALESCE(reason, ''), created_us, COALESCE(decided_us,
		0), reviewed`

func (r *Request) fields() []any {
	return []any{&r.ID, &r.AppID, &r.From, &r.To, &r.Status, &r.Reason, &r.CreatedUS, &r.DecidedUS, &r.Reviewed}
}

func getRequest(ctx context.Context, q db.Queryer, requestID string) (r Request, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+requestColumns+` FROM golive_requests
		WHERE id = $1`, requestID).Scan(r.fields()...)
	return r, err
}

// getPending returns the pending request of an app.
func getPending(ctx context.Context, q db.Queryer, appID string) (r Request, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+requestColumns+` FROM golive_requests
		WHERE app_id = $1 AND status = 'pending'`, appID).Scan(r.fields()...)
	return r, err
}

// listRequests returns an app's requests, newest first.
func listRequests(ctx context.Context, q db.Queryer, appID string, limit int) ([]Request, error) {
	return queryRequests(ctx, q, `SELECT `+requestColumns+` FROM golive_requests
		WHERE app_id = $1 ORDER BY id DESC LIMIT $2`, appID, limit)
}

// listPending returns pending requests, oldest first, after the id after.
func listPending(ctx context.Context, q db.Queryer, after string, limit int) ([]Request, error) {
	return queryRequests(ctx, q, `SELECT `+requestColumns+` FROM golive_requests
		WHERE status = 'pending' AND id > $1 ORDER BY id LIMIT $2`, after, limit)
}

// listDecided returns decided requests, newest first, before the id before.
func listDecided(ctx context.Context, q db.Queryer, before string, limit int) ([]Request, error) {
	if before == "" {
		before = "~" // sorts after every id
	}
	return queryRequests(ctx, q, `SELECT `+requestColumns+` FROM golive_requests
		WHERE status <> 'pending' AND id < $1 ORDER BY id DESC LIMIT $2`, before, limit)
}

func queryRequests(ctx context.Context, q db.Queryer, text string, args ...any) ([]Request, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*Request).fields), text, args...)
}

func insertRequest(ctx context.Context, tx *db.Tx, r Request) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO golive_requests (id, app_id, from_tier, to_tier, status, created_us,
			reviewed)
		VALUES ($1, $2, $3, $4, 'pending', $5, $6)`,
		r.ID, r.AppID, r.From, r.To, r.CreatedUS, r.Reviewed)
	return err
}

func updateDecision(ctx context.Context, tx *db.Tx, r Request) error {
	var reason *string
	if r.Reason != "" {
		reason = &r.Reason
	}
	_, err := tx.ExecContext(ctx, `UPDATE golive_requests SET status = $2, reason = $3, decided_us = $4
		WHERE id = $1`, r.ID, r.Status, reason, r.DecidedUS)
	return err
}

// deleteReplaced deletes requests of an app that Follow has ended, all but the newest kept. What an operator has
// decided stays.
func deleteReplaced(ctx context.Context, tx *db.Tx, appID string, kept int) error {
	const ended = `app_id = $1 AND status = 'refused' AND reason IN ($2, $3)`
	_, err := tx.ExecContext(ctx, `DELETE FROM golive_requests WHERE `+ended+` AND id <= (SELECT id FROM golive_requests
		WHERE `+ended+` ORDER BY id DESC LIMIT 1 OFFSET CAST($4 AS BIGINT))`,
		appID, reasonChanged, reasonWithdrawn, kept)
	return err
}

func eraseReviewed(ctx context.Context, tx *db.Tx, appID string) error {
	_, err := tx.ExecContext(ctx, `UPDATE golive_requests SET reviewed = '' WHERE app_id = $1`, appID)
	return err
}

func countFeatures(ctx context.Context, q db.Queryer, appID string) (n int, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) FROM features WHERE app_id = $1`, appID).Scan(&n)
	return n, err
}

// lockTestConnections locks and returns the connections of test accounts to an app. It locks in the
// order of the ledger's batches, balances first and each in key order, so that they do not deadlock.
func lockTestConnections(ctx context.Context, tx *db.Tx, appID string) (ids []string, err error) {
	const of = ` FROM connections
		WHERE app_id = $1 AND status <> 'revoked' AND account_id IN (SELECT id FROM accounts WHERE sandbox = 1)`
	if _, err := db.QueryAll(ctx, tx, db.ScanColumn[string], `SELECT account_id FROM balances
		WHERE account_id IN (SELECT account_id`+of+`) ORDER BY account_id`+tx.Engine.ForUpdate(), appID); err != nil {
		return nil, err
	}
	return db.QueryAll(ctx, tx, db.ScanColumn[string], `SELECT id`+of+` ORDER BY id`+tx.Engine.ForUpdate(), appID)
}
