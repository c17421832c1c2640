package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

const requestColumns = `id, connection_id, status, current_mc, target_mc, reason, COALESCE(superseded_by, ''),
	created_us, decided_us`

func scanRequest(row db.Row) (r rules.AllocationRequest, err error) {
	err = row.Scan(&r.ID, &r.ConnectionID, &r.Status, &r.CurrentMC, &r.TargetMC, &r.Reason, &r.SupersededBy,
		&r.CreatedUS, &r.DecidedUS)
	return r, err
}

// GetAllocationRequest returns an allocation request, or sql.ErrNoRows.
func GetAllocationRequest(ctx context.Context, q db.Queryer, requestID string) (rules.AllocationRequest, error) {
	return scanRequest(q.QueryRowContext(ctx, `SELECT `+requestColumns+` FROM allocation_requests WHERE id = $1`,
		requestID))
}

// PendingRequestOfConnection returns the pending allocation request of a connection,
// or sql.ErrNoRows.
func PendingRequestOfConnection(ctx context.Context, q db.Queryer,
	connectionID string) (rules.AllocationRequest, error) {
	return scanRequest(q.QueryRowContext(ctx,
		`SELECT `+requestColumns+` FROM allocation_requests WHERE connection_id = $1 AND status = 'pending'`,
		connectionID))
}

// AllocationRequestsOfConnection returns at most limit allocation requests of a
// connection, newest first; if after is not empty, only those older than the request
// of that id.
func AllocationRequestsOfConnection(ctx context.Context, q db.Queryer, connectionID, after string,
	limit int) (list []rules.AllocationRequest, err error) {
	if after == "" {
		after = "~" // behind every id
	}
	return readRequests(ctx, q, `connection_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, connectionID, after, limit)
}

// StandingRequestOfConnection returns the newest allocation request of a connection that is not superseded, or
// sql.ErrNoRows.
func StandingRequestOfConnection(ctx context.Context, q db.Queryer,
	connectionID string) (rules.AllocationRequest, error) {
	return scanRequest(q.QueryRowContext(ctx, `SELECT `+requestColumns+` FROM allocation_requests
		WHERE connection_id = $1 AND status <> 'superseded' ORDER BY created_us DESC, id DESC LIMIT 1`, connectionID))
}

// PendingRequestsOfAccount returns the pending allocation requests of an account, by
// connection.
func PendingRequestsOfAccount(ctx context.Context, q db.Queryer,
	accountID string) (map[string]rules.AllocationRequest, error) {
	list, err := readRequests(ctx, q,
		`status = 'pending' AND connection_id IN (SELECT id FROM connections WHERE account_id = $1)`, accountID)
	byConnection := map[string]rules.AllocationRequest{}
	for _, r := range list {
		byConnection[r.ConnectionID] = r
	}
	return byConnection, err
}

func readRequests(ctx context.Context, q db.Queryer, where string, args ...any) ([]rules.AllocationRequest, error) {
	return db.QueryAll(ctx, q, scanRequest, `SELECT `+requestColumns+` FROM allocation_requests WHERE `+where, args...)
}

// ConnectionsOfAccount returns the newest connections of an account, at most limit.
func ConnectionsOfAccount(ctx context.Context, q db.Queryer, accountID string,
	limit int) (list []rules.Connection, err error) {
	err = withUnsavedHolds(q, func() (err error) {
		list, err = connectionsOfAccount(ctx, q, accountID, limit)
		return err
	}, func(unsavedMC map[string]money.MC) {
		for i := range list {
			list[i].AddUnsaved(unsavedMC)
		}
	})
	return list, err
}

func connectionsOfAccount(ctx context.Context, q db.Queryer, accountID string, limit int) ([]rules.Connection, error) {
	return db.QueryAll(ctx, q, scanConnection,
		`SELECT `+connectionColumns+` FROM connections WHERE account_id = $1 ORDER BY id DESC LIMIT $2`, accountID,
		limit)
}

// LiveConnectionsOfAccount returns the newest connections of an account that are not revoked, at most limit.
func LiveConnectionsOfAccount(ctx context.Context, q db.Queryer, accountID string,
	limit int) (list []rules.Connection, err error) {
	err = withUnsavedHolds(q, func() (err error) {
		list, err = db.QueryAll(ctx, q, scanConnection, `SELECT `+connectionColumns+` FROM connections
			WHERE account_id = $1 AND status <> 'revoked' ORDER BY id DESC LIMIT $2`, accountID, limit)
		return err
	}, func(unsavedMC map[string]money.MC) {
		for i := range list {
			list[i].AddUnsaved(unsavedMC)
		}
	})
	return list, err
}

// findRequestConnections adds the connections of the requests that are named: a
// request never moves to another.
func findRequestConnections(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	for _, requestID := range keys.AllocationRequests {
		r, err := GetAllocationRequest(ctx, tx, requestID)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return err
		}
		keys.Connections[r.ConnectionID] = ""
	}
	return nil
}

// findRequests reads the requests themselves, under the lock of their account.
func (r *rareRows) findRequests(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	read := func(get func(context.Context, db.Queryer, string) (rules.AllocationRequest, error), keys []string) error {
		for _, key := range keys {
			request, err := get(ctx, tx, key)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			} else if err != nil {
				return err
			}
			r.requests = append(r.requests, &request)
		}
		return nil
	}
	return errors.Join(read(GetAllocationRequest, keys.AllocationRequests),
		read(PendingRequestOfConnection, keys.PendingRequestsOf))
}

// saveRequests writes what changed, in the order of the changes: a request that
// gave way before the one that took its place, so that only one is pending.
func saveRequests(ctx context.Context, tx *db.Tx, s *rules.State) error {
	for _, r := range s.Changes.AllocationRequests {
		_, err := tx.ExecContext(ctx,
			`INSERT INTO allocation_requests (id, connection_id, status, current_mc, target_mc, reason,
				superseded_by, created_us, decided_us)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
			ON CONFLICT (id) DO UPDATE SET status = excluded.status, superseded_by = excluded.superseded_by,
			decided_us = excluded.decided_us`,
			r.ID, r.ConnectionID, r.Status, r.CurrentMC, r.TargetMC, r.Reason, db.NullText(r.SupersededBy), r.CreatedUS,
			r.DecidedUS)
		if err != nil {
			return err
		}
	}
	return nil
}
