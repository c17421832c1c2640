package store

import (
	"context"
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
}

// JoinNode registers a node. On SQLite no other process uses the database, so every
// earlier node is dead and its lease ends now.
func JoinNode(ctx context.Context, d *db.DB, nodeID string, lease time.Duration, now func() time.Time) (*Node, error) {
	n := &Node{ID: nodeID, Lease: lease, db: d, now: now}
	return n, d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if d.Engine == db.SQLite {
			if _, err := tx.ExecContext(ctx, `UPDATE nodes SET lease_us = 0`); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO nodes (id, started_us, lease_us) VALUES ($1, $2, $3)`, n.ID,
			now().UnixMicro(), now().Add(lease).UnixMicro())
		return err
	})
}

// RenewLease extends the lease. It also revives a node whose lease had ended: attempt
// numbers fence what it did meanwhile.
func (n *Node) RenewLease(ctx context.Context) error {
	_, err := n.db.ExecContext(ctx, `UPDATE nodes SET lease_us = $1 WHERE id = $2`, n.now().Add(n.Lease).UnixMicro(),
		n.ID)
	return err
}

// EndLease ends the lease, after the last call has settled.
func (n *Node) EndLease(ctx context.Context) error {
	_, err := n.db.ExecContext(ctx, `UPDATE nodes SET lease_us = 0 WHERE id = $1`, n.ID)
	return err
}

// A Checkpoint is the next piece of a running stream, for joiners on other nodes
// and for recovery.
type Checkpoint struct {
	RequestID  string
	Attempt, N int64
	Body       []byte
}

// SaveCheckpoints stores checkpoints. It moves no money.
func (n *Node) SaveCheckpoints(ctx context.Context, list []Checkpoint) error {
	return n.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, c := range list {
			if _, err := tx.ExecContext(ctx,
				`INSERT INTO chunks (request_id, attempt, n, body) VALUES ($1, $2, $3, $4) ON CONFLICT (request_id,
					attempt, n) DO NOTHING`,
				c.RequestID, c.Attempt, c.N, c.Body); err != nil {
				return err
			}
		}
		return nil
	})
}

// Retention of what is not money (decision 027).
const (
	ResponseRetention = 7 * 24 * time.Hour
	RefusalRetention  = 30 * 24 * time.Hour
)

// DeleteExpired deletes stored responses, refusals, checkpoints of ended calls and
// dead nodes that are past their retention. It never touches the ledger.
func (n *Node) DeleteExpired(ctx context.Context) error {
	now := n.now()
	for _, p := range []struct {
		text string
		arg  any
	}{
		// ids rise with time
		{`DELETE FROM answers WHERE request_id < $1 AND request_id NOT IN (SELECT request_id FROM deferred)`,
			id.Floor(id.Request, now.Add(-ResponseRetention))},
		{`DELETE FROM refusals WHERE created_us < $1`, now.Add(-RefusalRetention).UnixMicro()},
		{`DELETE FROM chunks WHERE request_id < $1 AND request_id NOT IN (SELECT request_id FROM holds
			WHERE state = 'open')`, id.Floor(id.Request, now.Add(-time.Hour))},
		{`DELETE FROM nodes WHERE lease_us < $1 AND id NOT IN (SELECT node_id FROM holds WHERE state = 'open')`,
			now.Add(-24 * time.Hour).UnixMicro()},
	} {
		if _, err := n.db.ExecContext(ctx, p.text, p.arg); err != nil {
			return err
		}
	}
	return nil
}
