package store

import (
	"context"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// PendingCall says which record of the provider the charge of a pending hold will come
// from.
type PendingCall struct {
	rules.HoldRow
	Provider string
	RecordID string // the provider's id of the answer; "" = not known
	Tries    int64  // how often it was asked, this time included
	Delivery rules.Delivery
	SinceUS  int64

	DeliveredTokens int64 // output that was delivered; 0 = not known
}

// firstPollDelay is how long a provider may take to store a record of its response.
const firstPollDelay = 5 * time.Second

// GetPendingCall returns a pending call with where its charge will come from, or
// sql.ErrNoRows.
func GetPendingCall(ctx context.Context, q db.Queryer, requestID string) (d PendingCall, err error) {
	var k rules.Key
	err = q.QueryRowContext(ctx,
		`SELECT connection_id, key, provider, record, tries, since_us, COALESCE(first_byte_ms, 0),
			COALESCE(duration_ms, 0), COALESCE(finish_reason, ''), delivered_tokens
			FROM deferrals WHERE request_id = $1`, requestID).
		Scan(&k.ConnectionID, &k.Key, &d.Provider, &d.RecordID, &d.Tries, &d.SinceUS,
			&d.Delivery.FirstByteMS, &d.Delivery.DurationMS, &d.Delivery.FinishReason, &d.DeliveredTokens)
	if err == nil {
		d.HoldRow, err = GetHold(ctx, q, k)
	}
	return d, err
}

// ClaimPendingCalls takes at most limit pending calls whose next poll is due, and
// postpones them by lease: if this node dies, another polls after that. A caller that
// got no record postpones them with PostponePendingCall.
func (n *Node) ClaimPendingCalls(ctx context.Context, lease time.Duration, limit int) (list []PendingCall, err error) {
	now := n.now().UnixMicro()
	ids, err := db.QueryAll(ctx, n.db, db.ScanColumn[string],
		`SELECT request_id FROM deferrals WHERE next_us <= $1 ORDER BY next_us LIMIT $2`, now, limit)
	if err != nil || len(ids) == 0 { // nearly always, and without a transaction
		return nil, err
	}
	err = n.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		list = nil
		ids, err := db.QueryAll(ctx, tx, db.ScanColumn[string],
			`SELECT request_id FROM deferrals WHERE next_us <= $1 ORDER BY next_us LIMIT $2`+tx.Engine.ForUpdate(), now,
			limit)
		if err != nil {
			return err
		}
		for _, requestID := range ids {
			if _, err := tx.ExecContext(ctx,
				`UPDATE deferrals SET next_us = $1, tries = tries + 1 WHERE request_id = $2`, now+lease.Microseconds(),
				requestID); err != nil {
				return err
			}
			d, err := GetPendingCall(ctx, tx, requestID)
			if err != nil {
				return err
			}
			list = append(list, d)
		}
		return nil
	})
	return list, err
}

// PostponePendingCall sets the next poll of a claimed call.
func (n *Node) PostponePendingCall(ctx context.Context, requestID string, by time.Duration) error {
	_, err := n.db.ExecContext(ctx, `UPDATE deferrals SET next_us = $1 WHERE request_id = $2`,
		n.now().Add(by).UnixMicro(), requestID)
	return err
}
