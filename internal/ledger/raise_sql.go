package ledger

import (
	"context"
	"database/sql"
	"errors"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
)

// raiseWants are the allocation requests that a command needs: those named, and
// the pending ones of connections. resolve finds them.
type raiseWants struct {
	ids, of []string
	found   []*Raise
}

const raiseColumns = `id, connection_id, status, current_mc, target_mc, reason, COALESCE(superseded_by, ''), created_us, decided_us`

func scanRaise(row db.Row) (r Raise, err error) {
	err = row.Scan(&r.ID, &r.ConnectionID, &r.Status, &r.CurrentMC, &r.TargetMC, &r.Reason, &r.SupersededBy, &r.CreatedUS, &r.DecidedUS)
	return r, err
}

// GetRaise returns an allocation request, or sql.ErrNoRows.
func GetRaise(ctx context.Context, q db.Queryer, requestID string) (Raise, error) {
	return scanRaise(q.QueryRowContext(ctx, `SELECT `+raiseColumns+` FROM allocation_requests WHERE id = $1`, requestID))
}

// PendingRaise returns the request of a connection that waits for its user, or
// sql.ErrNoRows.
func PendingRaise(ctx context.Context, q db.Queryer, connectionID string) (Raise, error) {
	return scanRaise(q.QueryRowContext(ctx, `SELECT `+raiseColumns+` FROM allocation_requests WHERE connection_id = $1 AND status = 'pending'`, connectionID))
}

// RaisesOfConnection returns at most limit allocation requests of a connection,
// newest first, those older than the one named by after if it is not empty.
func RaisesOfConnection(ctx context.Context, q db.Queryer, connectionID, after string, limit int) (list []Raise, err error) {
	if after == "" {
		after = "~" // behind every id
	}
	return readRaises(ctx, q, `connection_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, connectionID, after, limit)
}

// PendingRaises returns the requests that wait for an account, by connection.
func PendingRaises(ctx context.Context, q db.Queryer, accountID string) (map[string]Raise, error) {
	list, err := readRaises(ctx, q, `status = 'pending' AND connection_id IN (SELECT id FROM connections WHERE account_id = $1)`, accountID)
	byConnection := map[string]Raise{}
	for _, r := range list {
		byConnection[r.ConnectionID] = r
	}
	return byConnection, err
}

func readRaises(ctx context.Context, q db.Queryer, where string, args ...any) ([]Raise, error) {
	return db.QueryAll(ctx, q, scanRaise, `SELECT `+raiseColumns+` FROM allocation_requests WHERE `+where, args...)
}

// ConnectionsOfAccount returns the newest connections of an account, at most limit.
func ConnectionsOfAccount(ctx context.Context, q db.Queryer, accountID string, limit int) (list []Connection, err error) {
	err = whole(q, func() (err error) {
		list, err = connectionsOfAccount(ctx, q, accountID, limit)
		return err
	}, func(unsavedMC map[string]money.MC) {
		for i := range list {
			list[i].HeldMC += unsavedMC[list[i].ID]
		}
	})
	return list, err
}

func connectionsOfAccount(ctx context.Context, q db.Queryer, accountID string, limit int) ([]Connection, error) {
	return db.QueryAll(ctx, q, scanConnection, `SELECT `+connectionColumns+` FROM connections WHERE account_id = $1 ORDER BY id DESC LIMIT $2`, accountID, limit)
}

// findRaiseConnections adds the connections of the requests that are named: a
// request never moves to another.
func findRaiseConnections(ctx context.Context, tx *db.Tx, w *wants) error {
	for _, requestID := range w.raises.ids {
		r, err := GetRaise(ctx, tx, requestID)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return err
		}
		w.connections[r.ConnectionID] = ""
	}
	return nil
}

// findRaises reads the requests themselves, under the lock of their account.
func findRaises(ctx context.Context, tx *db.Tx, w *wants) error {
	read := func(get func(context.Context, db.Queryer, string) (Raise, error), keys []string) error {
		for _, key := range keys {
			r, err := get(ctx, tx, key)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			} else if err != nil {
				return err
			}
			w.raises.found = append(w.raises.found, &r)
		}
		return nil
	}
	return errors.Join(read(GetRaise, w.raises.ids), read(PendingRaise, w.raises.of))
}

// saveRaises writes what changed, in the order of the changes: a request that
// gave way before the one that took its place, so that only one is pending.
func saveRaises(ctx context.Context, tx *db.Tx, s *State) error {
	for _, r := range s.raises.dirty {
		_, err := tx.ExecContext(ctx, `INSERT INTO allocation_requests (id, connection_id, status, current_mc, target_mc, reason, superseded_by, created_us, decided_us)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
			ON CONFLICT (id) DO UPDATE SET status = excluded.status, superseded_by = excluded.superseded_by, decided_us = excluded.decided_us`,
			r.ID, r.ConnectionID, r.Status, r.CurrentMC, r.TargetMC, r.Reason, orNull(r.SupersededBy), r.CreatedUS, r.DecidedUS)
		if err != nil {
			return err
		}
	}
	return nil
}
