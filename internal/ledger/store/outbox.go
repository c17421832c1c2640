package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// appsOfNewEvents is the part of a query that finds the apps with unclaimed events: one index look-up for each.
const appsOfNewEvents = `WITH RECURSIVE waiting(app_id) AS (SELECT MIN(app_id) FROM events WHERE passed = 0
	UNION ALL SELECT (SELECT MIN(app_id) FROM events WHERE passed = 0 AND app_id > waiting.app_id)
		FROM waiting WHERE waiting.app_id IS NOT NULL)`

// ownedOfNewEvents adds the owners of those apps, and how many of them each has.
const ownedOfNewEvents = appsOfNewEvents + `, owned AS (SELECT w.app_id, COALESCE(a.owner_id, w.app_id) AS owner_id,
		COUNT(*) OVER (PARTITION BY COALESCE(a.owner_id, w.app_id)) AS apps
	FROM waiting w LEFT JOIN apps a ON a.id = w.app_id WHERE w.app_id IS NOT NULL)`

// afterShareOfApp is an expression for the id of the first event of an app beyond its part of its owner's share, $2.
// OFFSET cannot name a column, so the part is that of the next power of two of apps.
var afterShareOfApp = func() string {
	var b strings.Builder
	b.WriteString("CASE ")
	for apps := 1; apps <= 256; apps *= 2 {
		when := fmt.Sprintf("WHEN apps <= %d THEN", apps)
		if apps == 256 {
			when = "ELSE"
		}
		fmt.Fprintf(&b, `%s (SELECT id FROM events WHERE passed = 0 AND app_id = owned.app_id
			ORDER BY id LIMIT 1 OFFSET CAST($2 AS BIGINT) / %d + 1) `, when, apps)
	}
	return b.String() + "END"
}()

// ClaimEvents takes at most limit unclaimed events and marks them in tx: when it commits, each event is claimed exactly
// once. Each developer has the same share of them, and each of their apps the same part of it, oldest first, so that
// many events of one, in however many apps, do not delay those of the others. more tells that there are others.
//
// Events are found by a mark, not by the last id that was read: identifiers rise with
// time, but a transaction that began earlier may commit later, and a reader that
// remembers an id would skip its events.
func ClaimEvents(ctx context.Context, tx *db.Tx, limit int) (list []rules.Event, more bool, err error) {
	var owners int
	if err := tx.QueryRowContext(ctx, ownedOfNewEvents+` SELECT COUNT(DISTINCT owner_id) FROM owned`).
		Scan(&owners); err != nil {
		return nil, false, err
	}
	list, err = db.QueryAll(ctx, tx, db.ScanFields(func(e *rules.Event) []any {
		return []any{&e.ID, &e.Type, &e.AppID, &e.ConnectionID, &e.Seq, &e.Data, &e.CreatedUS}
	}), ownedOfNewEvents+`, shares AS MATERIALIZED (SELECT app_id, owner_id, COALESCE(`+afterShareOfApp+`, '~') AS after
			FROM owned),
		ranked AS MATERIALIZED (SELECT e.id, ROW_NUMBER() OVER (PARTITION BY shares.owner_id ORDER BY e.id) AS place
			FROM shares JOIN events e ON e.app_id = shares.app_id WHERE e.passed = 0 AND e.id < shares.after),
		fresh AS MATERIALIZED (SELECT e.id FROM ranked JOIN events e ON e.id = ranked.id
			WHERE e.passed = 0 ORDER BY ranked.place, e.id LIMIT $1`+tx.Engine.ForUpdate()+`)
		UPDATE events SET passed = 1 WHERE id IN (SELECT id FROM fresh)
		RETURNING id, type, app_id, COALESCE(connection_id, ''), seq, data, created_us`, limit, limit/max(owners, 1))
	if err != nil {
		return nil, false, err
	}
	orderEvents(list)
	more, err = HasUnclaimedEvents(ctx, tx)
	return list, more, err
}

// orderEvents sorts events by time, and those of a connection by their numbers, whatever the time: a clock may step
// back between two of them.
func orderEvents(list []rules.Event) {
	slices.SortFunc(list, func(a, b rules.Event) int { // identifiers know only milliseconds
		return cmp.Or(cmp.Compare(a.CreatedUS, b.CreatedUS), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.ID, b.ID))
	})
	places := map[string][]int{} // of each connection's events
	for i, e := range list {
		if e.ConnectionID != "" {
			places[e.ConnectionID] = append(places[e.ConnectionID], i)
		}
	}
	for _, at := range places {
		events := make([]rules.Event, len(at))
		for i, place := range at {
			events[i] = list[place]
		}
		slices.SortFunc(events, func(a, b rules.Event) int { return cmp.Compare(a.Seq, b.Seq) })
		for i, place := range at {
			list[place] = events[i]
		}
	}
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

// DeleteTestEvents deletes test events with an id below before that match a condition.
func DeleteTestEvents(ctx context.Context, d *db.DB, condition, before string) error {
	_, err := d.DeleteSlices(ctx, "events", `test = 1 AND passed = 1 AND id < $1 AND `+condition, "id", before)
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
