package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
)

// Node is one running process. It owns the holds of its calls; when it dies its
// lease ends, and any other node may end them (decision 028).
type Node struct {
	ID    string
	Lease time.Duration // how long the node's holds outlive it; renewed every tenth
	db    *db.DB
	now   func() time.Time
	clock func() time.Time // for durations; replaced in tests

	startedUS int64
	mu        sync.Mutex
	renewedAt time.Time // of the last renewal that succeeded, when it began
	steadyAt  time.Time // since then no renewal has come later than half a lease after the one before
	endUS     int64     // of the lease, as the last renewal has set it
	triedAt   time.Time // of the last renewal, when it began
	lapses    int64     // see Lapses
	left      bool
	settings  string // JSON, see SetSettings
}

// JoinNode registers a node. On SQLite no other process uses the database, so every
// earlier node is dead and its lease ends now.
func JoinNode(ctx context.Context, d *db.DB, nodeID string, lease time.Duration, now func() time.Time) (*Node, error) {
	n := &Node{ID: nodeID, Lease: lease, db: d, now: now, clock: time.Now, startedUS: now().UnixMicro()}
	if d.Engine == db.SQLite {
		if _, err := d.ExecContext(ctx, `UPDATE nodes SET lease_us = 0`); err != nil {
			return nil, err
		}
	}
	return n, n.renew(ctx) // a slow start is no failure: nothing runs yet that the lease protects
}

// CountLiveNodes counts the nodes whose lease has not ended.
func CountLiveNodes(ctx context.Context, q db.Queryer, nowUS int64) (n int, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) FROM nodes WHERE lease_us > $1`, nowUS).Scan(&n)
	return n, err
}

// EndLeases ends the leases of all nodes, in a copy of a database: its nodes do not run on the copy.
func EndLeases(ctx context.Context, tx *db.Tx, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE nodes SET lease_us = $1 WHERE lease_us > $1`, nowUS)
	return err
}

// RenewLease extends the lease. It also revives a node whose lease had ended or whose row was
// deleted: attempt numbers fence what it did meanwhile. It returns an error after a fifth of
// the lease, but not before half a second.
func (n *Node) RenewLease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(n.Lease/5, time.Second/2))
	defer cancel()
	return n.renew(ctx)
}

func (n *Node) renew(ctx context.Context) error {
	began := n.clock()
	n.mu.Lock()
	left, settings := n.left, n.settings
	n.lapses += n.standstill(began)
	n.triedAt = began
	n.mu.Unlock()
	if left {
		return nil
	}
	end := db.At(n.now())
	if n.db.Engine == db.Postgres {
		end = n.db.Moment()
	}
	end = end.Add(n.Lease)
	var endUS int64
	err := n.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return tx.QueryRowContext(ctx, `INSERT INTO nodes (id, started_us, lease_us, settings)
			VALUES ($1, $2, `+end.SQL("$3")+`, $4)
			ON CONFLICT (id) DO UPDATE SET lease_us = excluded.lease_us, settings = excluded.settings
				WHERE nodes.lease_us > 0
			RETURNING lease_us`, n.ID, n.startedUS, end.Arg(), settings).Scan(&endUS)
	})
	if errors.Is(err, sql.ErrNoRows) { // the node has left while this was under way
		return nil
	}
	if err == nil {
		n.noteRenewal(began, endUS)
	}
	return err
}

// noteRenewal notes a renewal that began at a time and succeeded, and when the lease now ends
// by the database's clock. A step of that clock counts as a gap between the renewals: for all
// nodes it seems to end the leases of others.
func (n *Node) noteRenewal(began time.Time, endUS int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if began.Before(n.renewedAt) {
		return
	}
	passed := began.Sub(n.renewedAt)
	step := time.Duration(endUS-n.endUS)*time.Microsecond - passed
	if passed > n.Lease/2 || n.endUS > 0 && step.Abs() > n.Lease/2 {
		n.steadyAt = began
	}
	if n.endUS > 0 && endUS-n.Lease.Microseconds() > n.endUS {
		n.lapses++
	}
	n.renewedAt, n.endUS = began, endUS
}

// Lapses changes when another node may have ended calls of this one: it has stood still for half a lease, in which it
// did not even try to renew it, or a renewal came after the end of the lease. On SQLite there is no other node.
func (n *Node) Lapses() int64 {
	if n.db.Engine == db.SQLite {
		return 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lapses + n.standstill(n.clock())
}

// standstill returns 1 if no renewal has begun for half a lease, else 0. n.mu is held.
func (n *Node) standstill(now time.Time) int64 {
	if !n.triedAt.IsZero() && now.Sub(n.triedAt) > n.Lease/2 {
		return 1
	}
	return 0
}

// LeaseAge returns how long ago the lease was renewed.
func (n *Node) LeaseAge() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.clock().Sub(n.renewedAt)
}

// IsLeaseFresh reports whether the node may make holds: it has renewed its lease within half
// the lease. On SQLite there is no other node that could end its holds.
func (n *Node) IsLeaseFresh() bool { return n.db.Engine == db.SQLite || n.LeaseAge() < n.Lease/2 }

// CanJudge reports whether the node may take others for dead whose leases have ended: it has
// renewed its own lease without a gap for a whole lease. After a time in which the database
// was away for every node, each has so long to renew. On SQLite earlier nodes are dead.
func (n *Node) CanJudge() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock()
	return n.db.Engine == db.SQLite ||
		now.Sub(n.renewedAt) < n.Lease/2 && now.Sub(n.steadyAt) >= n.Lease
}

// EndLease ends the lease, after the last call has settled.
func (n *Node) EndLease(ctx context.Context) error {
	n.mu.Lock()
	n.left = true
	n.mu.Unlock()
	_, err := n.db.ExecContext(ctx, `UPDATE nodes SET lease_us = 0 WHERE id = $1`, n.ID)
	return err
}

// A Checkpoint is the next piece of a running stream, for joiners on other nodes
// and for recovery.
type Checkpoint struct {
	RequestID       string
	Attempt, N      int64
	Body            []byte
	DeliveredTokens int64 // output of the whole stream so far, if it is too long for its frames to be saved
}

// SaveCheckpoints stores checkpoints, all or none. It moves no money. On PostgreSQL they go in one statement, because
// each statement waits for the network.
func (n *Node) SaveCheckpoints(ctx context.Context, list []Checkpoint) error {
	if n.db.Engine == db.Postgres {
		return n.insertCheckpoints(ctx, list)
	}
	return n.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, c := range list {
			if _, err := tx.ExecContext(ctx,
				`INSERT INTO checkpoints (request_id, attempt, n, body, delivered_tokens) VALUES ($1, $2, $3, $4, $5)
				ON CONFLICT (request_id, attempt, n) DO NOTHING`,
				c.RequestID, c.Attempt, c.N, c.Body, c.DeliveredTokens); err != nil {
				return err
			}
		}
		return nil
	})
}

// insertCheckpoints stores checkpoints on PostgreSQL.
func (n *Node) insertCheckpoints(ctx context.Context, list []Checkpoint) error {
	requests, bodies := make([]string, len(list)), make([][]byte, len(list))
	attempts, numbers, delivered := make([]int64, len(list)), make([]int64, len(list)), make([]int64, len(list))
	for i, c := range list {
		requests[i], attempts[i], numbers[i] = c.RequestID, c.Attempt, c.N
		bodies[i], delivered[i] = c.Body, c.DeliveredTokens
	}
	_, err := n.db.ExecContext(ctx, `INSERT INTO checkpoints (request_id, attempt, n, body, delivered_tokens)
		SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bigint[])
		ON CONFLICT (request_id, attempt, n) DO NOTHING`, requests, attempts, numbers, bodies, delivered)
	return err
}

// Retention is how long what is not money is kept (decision 027).
type Retention struct {
	Responses time.Duration // stored for replays
	Refusals  time.Duration
}

// DefaultRetention is the retention if the operator sets none.
var DefaultRetention = Retention{Responses: 7 * 24 * time.Hour, Refusals: 30 * 24 * time.Hour}

// unbilledKept is how long unbilled attempts are kept: longer than the day in which they are counted.
const unbilledKept = 30 * 24 * time.Hour

// DeleteExpired deletes stored responses, refusals, failed holds, checkpoints of ended calls, unbilled attempts,
// stops and dead nodes that are past their retention. It never touches the ledger.
func (n *Node) DeleteExpired(ctx context.Context, keep Retention) error {
	now := n.now()
	for _, p := range []struct {
		table, condition, order string
		arg                     any
	}{
		// ids rise with time
		{"stored_responses", `request_id < $1 AND request_id NOT IN (SELECT request_id FROM deferrals)`, "request_id",
			id.Floor(id.Request, now.Add(-keep.Responses))},
		{"refusals", `created_us < $1`, "created_us", now.Add(-keep.Refusals).UnixMicro()},
		{"checkpoints", `request_id < $1 AND request_id NOT IN (SELECT request_id FROM holds WHERE ` + isOpen + `)`,
			"request_id", id.Floor(id.Request, now.Add(-time.Hour))},
		{"unbilled_attempts", `created_us < $1`, "created_us", now.Add(-unbilledKept).UnixMicro()},
		{"stops", `id < $1`, "id", id.Floor(id.Stop, now.Add(-24*time.Hour))},
		{"nodes", `lease_us < $1 AND id NOT IN (SELECT node_id FROM holds WHERE ` + isOpen + `)`, "id",
			now.Add(-24 * time.Hour).UnixMicro()},
	} {
		if _, err := n.db.DeleteSlices(ctx, p.table, p.condition, p.order, p.arg); err != nil {
			return err
		}
	}
	return n.deleteFailedHolds(ctx, now.Add(-keep.Refusals))
}

// holdSlice is how many failed holds one transaction deletes. Each is looked up by its key, and needs its connection.
const holdSlice = 100

// deleteFailedHolds deletes the holds of keys whose last attempt has failed before a time, in turn with other jobs.
// Such a key is free again, also for another request. On PostgreSQL the connections are locked, as for every change of
// a hold; those that are locked by others are left to the next purge.
func (n *Node) deleteFailedHolds(ctx context.Context, before time.Time) error {
	old := fmt.Sprintf(`SELECT connection_id, key FROM holds
		WHERE state = 'failed' AND request_id < $1 AND created_us < $2
		ORDER BY request_id LIMIT %d`, holdSlice)
	slice := `DELETE FROM holds WHERE (connection_id, key) IN (` + old + `)`
	if n.db.Engine == db.Postgres {
		slice = `WITH old AS (` + old + `), locked AS (SELECT id FROM connections
				WHERE id IN (SELECT connection_id FROM old) ORDER BY id FOR UPDATE SKIP LOCKED)
			DELETE FROM holds h USING old, locked WHERE h.connection_id = old.connection_id AND h.key = old.key
				AND h.connection_id = locked.id AND h.state = 'failed' AND h.created_us < $2`
	}
	for {
		var deleted int64
		err := n.db.InTurn(ctx, func() error {
			r, err := n.db.ExecContext(ctx, slice, id.Floor(id.Request, before), before.UnixMicro())
			if err == nil {
				deleted, err = r.RowsAffected()
			}
			return err
		})
		switch {
		case ctx.Err() != nil && (err != nil || deleted == holdSlice):
			return fmt.Errorf("%w: failed holds", db.ErrUnfinished)
		case err != nil || deleted < holdSlice:
			return err
		}
	}
}
