package store

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// appsOfNewEvents is the part of a query that finds the apps with unclaimed events: one index look-up for each.
const appsOfNewEvents = `WITH RECURSIVE waiting(app_id) AS (SELECT MIN(app_id) FROM events WHERE passed = 0
	UNION ALL SELECT (SELECT MIN(app_id) FROM events WHERE passed = 0 AND app_id > waiting.app_id)
		FROM waiting WHERE waiting.app_id IS NOT NULL)`

// ClaimEvents takes at most limit unclaimed events and marks them in tx: when it commits, each event is claimed exactly
// once. Each app has the same share of them, oldest first, so that many events of one app do not delay those of the
// others. more tells that there are others.
//
// Events are found by a mark, not by the last id that was read: identifiers rise with
// time, but a transaction that began earlier may commit later, and a reader that
// remembers an id would skip its events.
func ClaimEvents(ctx context.Context, tx *db.Tx, limit int) (list []rules.Event, more bool, err error) {
	var apps int
	if err := tx.QueryRowContext(ctx, appsOfNewEvents+` SELECT COUNT(app_id) FROM waiting`).Scan(&apps); err != nil {
		return nil, false, err
	}
	share := limit/max(apps, 1) + 1
	list, err = db.QueryAll(ctx, tx, db.ScanFields(func(e *rules.Event) []any {
		return []any{&e.ID, &e.Type, &e.AppID, &e.ConnectionID, &e.Seq, &e.Data, &e.CreatedUS}
	}), appsOfNewEvents+`, shares AS MATERIALIZED (SELECT app_id, COALESCE((SELECT id FROM events
				WHERE passed = 0 AND app_id = waiting.app_id ORDER BY id LIMIT 1 OFFSET $2), '~') AS after
			FROM waiting WHERE app_id IS NOT NULL),
		fresh AS MATERIALIZED (SELECT e.id FROM shares JOIN events e ON e.app_id = shares.app_id
			WHERE e.passed = 0 AND e.id < shares.after ORDER BY e.id LIMIT $1`+tx.Engine.ForUpdate()+`)
		UPDATE events SET passed = 1 WHERE id IN (SELECT id FROM fresh)
		RETURNING id, type, app_id, COALESCE(connection_id, ''), seq, data, created_us`, limit, share)
	counts := map[string]int{}
	for _, e := range list {
		counts[e.AppID]++
		more = more || counts[e.AppID] == share
	}
	slices.SortFunc(list, func(a, b rules.Event) int { // identifiers know only milliseconds
		return cmp.Or(cmp.Compare(a.CreatedUS, b.CreatedUS), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.ID, b.ID))
	})
	return list, more || len(list) == limit, err
}

// HasUnclaimedEvents reports whether there are events to claim.
func HasUnclaimedEvents(ctx context.Context, q db.Queryer) (some bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM events WHERE passed = 0)`).Scan(&some)
	return some, err
}

// OldestUnclaimedEvent returns when the oldest event was made that waits to be claimed; 0 = there is none.
func OldestUnclaimedEvent(ctx context.Context, q db.Queryer) (createdUS int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT COALESCE(MIN(created_us), 0) FROM events WHERE passed = 0`).Scan(&createdUS)
	return createdUS, err
}

// InsertTestEvent adds an event that reports nothing, with which a developer tests a
// webhook endpoint. If passed is set, ClaimEvents does not return it.
func InsertTestEvent(ctx context.Context, tx *db.Tx, e rules.Event, passed bool) error {
	mark := 0
	if passed {
		mark = 1
	}
	_, err := tx.ExecContext(ctx,
		`INSERT INTO events (id, type, app_id, seq, data, created_us, passed, test) VALUES ($1, $2, $3, 0, $4, $5,
			$6, 1)`,
		e.ID, e.Type, e.AppID, e.Data, e.CreatedUS, mark)
	return err
}

// ClaimNotices takes at most limit unclaimed notices, oldest
// first, and marks them in tx: with its commit they are passed on, exactly once.
func ClaimNotices(ctx context.Context, tx *db.Tx, limit int) (list []rules.Notice, err error) {
	list, err = db.QueryAll(ctx, tx, db.ScanFields(func(n *rules.Notice) []any {
		return []any{&n.ID, &n.Kind, &n.AccountID, &n.ConnectionID, &n.AppID, &n.Data, &n.CreatedUS}
	}), `WITH fresh AS MATERIALIZED (SELECT id FROM notices WHERE passed = 0 ORDER BY id LIMIT $1`+
		tx.Engine.ForUpdate()+`)
		UPDATE notices SET passed = 1 WHERE id IN (SELECT id FROM fresh)
		RETURNING id, kind, account_id, connection_id, app_id, data, created_us`, limit)
	slices.SortFunc(list, func(a, b rules.Notice) int { return strings.Compare(a.ID, b.ID) })
	return list, err
}
