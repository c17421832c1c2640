package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// This file keeps the stops of running calls (decision 067).

const stopColumns = `id, connection_id, request_id, cause, created_us`

func scanStop(row db.Row) (s rules.Stop, err error) {
	err = row.Scan(&s.ID, &s.ConnectionID, &s.RequestID, &s.Cause, &s.CreatedUS)
	return s, err
}

func saveStops(ctx context.Context, tx *db.Tx, s *rules.State) error {
	for _, c := range s.Changes.Stops {
		if err := insertStop(ctx, tx, c); err != nil {
			return err
		}
	}
	return nil
}

func insertStop(ctx context.Context, tx *db.Tx, c rules.Stop) error {
	_, err := tx.ExecContext(ctx,
		`INSERT INTO stops (id, connection_id, request_id, cause, created_us) VALUES ($1, $2, $3, $4, $5)`,
		c.ID, c.ConnectionID, c.RequestID, string(c.Cause), c.CreatedUS)
	return err
}

// ListStops returns the stops that were made at a time or later.
func ListStops(ctx context.Context, q db.Queryer, since time.Time) ([]rules.Stop, error) {
	return db.QueryAll(ctx, q, scanStop, `SELECT `+stopColumns+` FROM stops WHERE id >= $1`, id.Floor(id.Stop, since))
}

// FindStop returns the stop that ended a call: its own, or one of all calls of its connection that was made at since or
// later. It returns sql.ErrNoRows if there is none.
func FindStop(
	ctx context.Context, q db.Queryer, connectionID, requestID string, since time.Time,
) (rules.Stop, error) {
	s, err := scanStop(q.QueryRowContext(ctx, `SELECT `+stopColumns+` FROM stops
		WHERE request_id = $1 AND request_id <> '' AND connection_id = $2 ORDER BY id LIMIT 1`, requestID,
		connectionID))
	if !errors.Is(err, sql.ErrNoRows) {
		return s, err
	}
	return scanStop(q.QueryRowContext(ctx, `SELECT `+stopColumns+` FROM stops
		WHERE id >= $1 AND connection_id = $2 AND request_id = '' ORDER BY id LIMIT 1`,
		id.Floor(id.Stop, since), connectionID))
}

// findConnectionsOf finds the connections of an account that a command names, without revoked ones.
func findConnectionsOf(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	if keys.ConnectionsOf == "" {
		return nil
	}
	return findLiveConnectionsOf(ctx, tx, keys, keys.ConnectionsOf)
}

// findLiveConnectionsOf adds the connections of an account, without revoked ones.
func findLiveConnectionsOf(ctx context.Context, tx *db.Tx, keys *rules.RowKeys, accountID string) error {
	found, err := db.QueryAll(ctx, tx, db.ScanColumn[string],
		`SELECT id FROM connections WHERE account_id = $1 AND status <> 'revoked'`, accountID)
	for _, connectionID := range found {
		keys.Connections[connectionID] = accountID
	}
	return err
}

// InsertStop has one running call or voice session ended, because its user stops it. The call may have ended
// meanwhile: then nothing follows.
func InsertStop(ctx context.Context, d *db.DB, connectionID, requestID string, now time.Time) error {
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return insertStop(ctx, tx, rules.Stop{
			ID:           id.New(id.Stop, now),
			ConnectionID: connectionID,
			RequestID:    requestID,
			Cause:        rules.StoppedByUser,
			CreatedUS:    now.UnixMicro(),
		})
	})
}

// maxWorkHolds is the most holds of apps' own work that ListWorkHolds returns.
const maxWorkHolds = 1000

// ListWorkHolds returns the holds of apps' own work (decision 109), the oldest first: of an account, or of a connection
// of it if that is not empty. The app can charge them after the connection was paused or revoked.
func ListWorkHolds(ctx context.Context, q db.Queryer, accountID, connectionID string) ([]rules.HoldRow, error) {
	return db.QueryAll(ctx, q, scanHold, `SELECT `+holdColumns+` FROM holds
		WHERE account_id = $1 AND ($2 = '' OR connection_id = $2) AND `+isLive+` AND state = 'pending' AND model = $3
		ORDER BY created_us LIMIT $4`, accountID, connectionID, rules.OwnWork, maxWorkHolds)
}

// SumWorkHolds adds up what apps hold for work of their own: of an account, or of one connection of it.
func SumWorkHolds(ctx context.Context, q db.Queryer, accountID, connectionID string) (sum money.MC, err error) {
	list, err := ListWorkHolds(ctx, q, accountID, connectionID)
	for i := range list {
		sum += list[i].HoldMC
	}
	return sum, err
}

// ListRunningCalls returns at most limit calls of an account that run now, newest first, without voice replies. On
// SQLite a call appears when its hold is in the file, after holdFlushDelay.
func ListRunningCalls(ctx context.Context, q db.Queryer, accountID string, limit int) ([]rules.HoldRow, error) {
	return db.QueryAll(ctx, q, scanHold, `SELECT `+holdColumns+` FROM holds
		WHERE account_id = $1 AND `+isOpen+` AND `+isNoReply+`
		ORDER BY holds.created_us DESC LIMIT $2`, accountID, limit)
}
