package ledger

import (
	"context"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
)

// Kinds of notices. An allocation's say how many percent of it are consumed.
const (
	Allocation50  = "allocation_50"
	Allocation80  = "allocation_80"
	Allocation100 = "allocation_100"
	FrozenNotice  = "frozen"
	PaymentNotice = "frozen_payment" // frozen, because a payment went back or is disputed
	AskedNotice   = "allocation_request"
)

// Notice is something that a user is told by mail.
type Notice struct {
	ID, Kind, AccountID, ConnectionID, AppID string
	Data                                     string // JSON object: the connection, or the allocation request
	CreatedUS                                int64
}

// PassNotices takes at most limit notices that nobody has passed on yet, oldest
// first, and marks them in tx: with its commit they are passed on, exactly once.
func PassNotices(ctx context.Context, tx *db.Tx, limit int) (list []Notice, err error) {
	list, err = db.QueryAll(ctx, tx, db.ScanFields(func(n *Notice) []any {
		return []any{&n.ID, &n.Kind, &n.AccountID, &n.ConnectionID, &n.AppID, &n.Data, &n.CreatedUS}
	}), `WITH fresh AS MATERIALIZED (SELECT id FROM notices WHERE passed = 0 ORDER BY id LIMIT $1`+tx.Engine.ForUpdate()+`)
		UPDATE notices SET passed = 1 WHERE id IN (SELECT id FROM fresh)
		RETURNING id, kind, account_id, connection_id, app_id, data, created_us`, limit)
	slices.SortFunc(list, func(a, b Notice) int { return strings.Compare(a.ID, b.ID) })
	return list, err
}
