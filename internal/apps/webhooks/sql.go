package webhooks

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// secretPlace is the place that the sealed secret of an endpoint is bound to.
func secretPlace(endpointID string) seal.Place { return seal.Place{"webhooks", "sealed", endpointID} }

const endpointColumns = `id, app_id, url, events, status, sealed, created_us`

func scanEndpoint(row db.Row) (e Endpoint, err error) {
	var events string
	if err := row.Scan(&e.ID, &e.AppID, &e.URL, &events, &e.Status, &e.sealed, &e.CreatedUS); err != nil {
		return e, err
	}
	return e, json.Unmarshal([]byte(events), &e.Events)
}

func getEndpoint(ctx context.Context, q db.Queryer, endpointID, lock string) (Endpoint, error) {
	return scanEndpoint(q.QueryRowContext(ctx, `SELECT `+endpointColumns+` FROM webhooks
		WHERE id = $1 AND deleted_us IS NULL`+lock, endpointID))
}

// listEndpoints returns an app's endpoints, newest first, those older than after.
func listEndpoints(ctx context.Context, q db.Queryer, appID, after string, limit int, lock string) ([]Endpoint, error) {
	if after == "" {
		after = "~" // after every id
	}
	return db.QueryAll(ctx, q, scanEndpoint, `SELECT `+endpointColumns+` FROM webhooks
		WHERE app_id = $1 AND id < $2 AND deleted_us IS NULL ORDER BY id DESC LIMIT $3`+lock, appID, after, limit)
}

// lockAndCount locks an app and counts its endpoints. Until tx ends no other transaction can add one.
func lockAndCount(ctx context.Context, tx *db.Tx, appID string) (n int, err error) {
	var locked string
	if err := tx.QueryRowContext(ctx, `SELECT id FROM apps
		WHERE id = $1`+tx.Engine.ForUpdate(), appID).Scan(&locked); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM webhooks WHERE app_id = $1 AND deleted_us IS NULL`,
		appID).Scan(&n)
	return n, err
}

func marshalEvents(list []string) string {
	if len(list) == 0 {
		return "[]"
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic("webhooks: strings are always JSON: " + err.Error())
	}
	return string(text)
}

func insertEndpoint(ctx context.Context, tx *db.Tx, e Endpoint) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO webhooks (`+endpointColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		e.ID, e.AppID, e.URL, marshalEvents(e.Events), e.Status, e.sealed, e.CreatedUS)
	return err
}

func updateEndpoint(ctx context.Context, tx *db.Tx, e Endpoint) error {
	_, err := tx.ExecContext(ctx, `UPDATE webhooks SET url = $2, events = $3, status = $4, sealed = $5
		WHERE id = $1`, e.ID, e.URL, marshalEvents(e.Events), e.Status, e.sealed)
	return err
}

// markDeleted marks endpoints as deleted, and erases what they are: their URLs and secrets. A condition finds them. The
// purge deletes the rows with their deliveries, of which there may be millions. Those without any are deleted at once,
// so that an app that makes and deletes endpoints all the time leaves no rows: the mark has locked them, and a delivery
// is inserted under that lock.
func markDeleted(ctx context.Context, tx *db.Tx, nowUS int64, condition, arg string) error {
	_, err := tx.ExecContext(ctx, `UPDATE webhooks SET deleted_us = $1, status = 'disabled', url = '', events = '[]',
			sealed = $2
		WHERE `+condition+` = $3 AND deleted_us IS NULL`, nowUS, []byte{}, arg)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM webhooks WHERE `+condition+` = $1 AND deleted_us IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.webhook_id = webhooks.id)
		AND NOT EXISTS (SELECT 1 FROM webhook_days d WHERE d.webhook_id = webhooks.id)`, arg)
	return err
}

// purgeDeleted deletes endpoints that are marked as deleted: first their deliveries, then their days, then those that
// have no deliveries.
func purgeDeleted(ctx context.Context, d *db.DB) error {
	list, err := db.QueryAll(ctx, d, db.ScanColumn[string], `SELECT id FROM webhooks WHERE deleted_us IS NOT NULL
		ORDER BY id LIMIT 1000`)
	if err != nil {
		return err
	}
	for _, webhookID := range list {
		for _, p := range []struct{ table, condition, order string }{
			// For PostgreSQL an order by one value is none: it would look for the endpoint along the primary key,
			// through the deliveries of all others. BETWEEN leaves it the index that begins with the endpoint. A join
			// would read all deliveries.
			{"deliveries", `webhook_id BETWEEN $1 AND $1`, "webhook_id, id"},
			{"webhook_days", `webhook_id = $1`, "webhook_id, day"},
			{"webhooks", `id = $1 AND (SELECT d.id FROM deliveries d
				WHERE d.webhook_id BETWEEN webhooks.id AND webhooks.id ORDER BY d.webhook_id, d.id LIMIT 1) IS NULL`,
				"id"},
		} {
			if _, err := d.DeleteSlices(ctx, p.table, p.condition, p.order, webhookID); err != nil {
				return err
			}
		}
	}
	return nil
}

const deliveryColumns = `id, webhook_id, event_id, event_type, status, attempts, next_us, lease, last_error,
		response_status, delivered_us, created_us`

func scanDelivery(row db.Row) (d Delivery, err error) {
	err = row.Scan(&d.ID, &d.EndpointID, &d.EventID, &d.EventType, &d.Status, &d.Attempts, &d.NextUS, &d.lease,
		&d.LastError, &d.ResponseStatus, &d.DeliveredUS, &d.CreatedUS)
	return d, err
}

// findDelivery returns a delivery of any endpoint.
func findDelivery(ctx context.Context, q db.Queryer, deliveryID string) (Delivery, error) {
	return scanDelivery(q.QueryRowContext(ctx, `SELECT `+deliveryColumns+` FROM deliveries WHERE id = $1`, deliveryID))
}

func getDelivery(ctx context.Context, q db.Queryer, endpointID, deliveryID, lock string) (Delivery, error) {
	return scanDelivery(q.QueryRowContext(ctx, `SELECT `+deliveryColumns+` FROM deliveries
		WHERE id = $1 AND webhook_id = $2`+lock, deliveryID, endpointID))
}

// maxRowsPerStatement bounds the rows that one statement inserts or changes. Time limits are those of transactions, so
// what has many rows has few statements: each one takes a round trip to the database.
const maxRowsPerStatement = 500

// insertDeliveries queues events for endpoints, each at most one time. On PostgreSQL the index that has both is unique
// in each year only; a second transaction with the event waits for the lock of the endpoint, and finds the delivery.
func insertDeliveries(ctx context.Context, tx *db.Tx, list []Delivery) error {
	for rows := range slices.Chunk(list, maxRowsPerStatement) {
		var values strings.Builder
		args := make([]any, 0, 5*len(rows))
		for i, d := range rows {
			if i > 0 {
				values.WriteByte(',')
			}
			n := len(args)
			fmt.Fprintf(&values, `($%d, $%d, $%d, $%d, CAST($%d AS BIGINT))`, n+1, n+2, n+3, n+4, n+5)
			args = append(args, d.ID, d.EndpointID, d.EventID, d.EventType, d.CreatedUS)
		}
		if _, err := tx.ExecContext(ctx, `WITH new(id, webhook_id, event_id, event_type, created_us) AS (
				VALUES `+values.String()+`)
			INSERT INTO deliveries (id, webhook_id, event_id, event_type, status, next_us, due_us, created_us)
			SELECT id, webhook_id, event_id, event_type, 'pending', created_us, created_us, created_us FROM new
			WHERE NOT EXISTS (SELECT 1 FROM deliveries d
				WHERE d.webhook_id = new.webhook_id AND d.event_id = new.event_id)
			ON CONFLICT DO NOTHING`, args...); err != nil {
			return err
		}
	}
	return nil
}

// requeueDeliveries queues deliveries again in any state, with all their attempts, and deletes all but the latest kept
// attempts of each, so that their number stays bounded.
func requeueDeliveries(ctx context.Context, tx *db.Tx, list []Delivery, nowUS int64, kept int) error {
	for rows := range slices.Chunk(list, maxRowsPerStatement) {
		var marks strings.Builder
		args := []any{nowUS}
		for i, d := range rows {
			if i > 0 {
				marks.WriteByte(',')
			}
			args = append(args, d.ID)
			fmt.Fprintf(&marks, `$%d`, len(args))
		}
		if _, err := tx.ExecContext(ctx, `UPDATE deliveries
			SET status = 'pending', attempts = 0, next_us = $1, due_us = $1, lease = '', delivered_us = NULL
			WHERE id IN (`+marks.String()+`)`, args...); err != nil {
			return err
		}
		args[0] = kept
		if _, err := tx.ExecContext(ctx, `DELETE FROM delivery_attempts
			WHERE delivery_id IN (`+marks.String()+`) AND begun_us <= (SELECT begun_us FROM delivery_attempts a
				WHERE a.delivery_id = delivery_attempts.delivery_id ORDER BY begun_us DESC LIMIT 1
				OFFSET CAST($1 AS BIGINT))`, args...); err != nil {
			return err
		}
	}
	return nil
}

// A readyEndpoint is an active endpoint with due deliveries, of the developer who owns its app.
type readyEndpoint struct{ id, ownerID string }

// listReadyEndpoints returns the active endpoints with due deliveries. It costs one index lookup for each endpoint,
// whatever the length of its queue.
func listReadyEndpoints(ctx context.Context, q db.Queryer, nowUS int64) ([]readyEndpoint, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(e *readyEndpoint) []any { return []any{&e.id, &e.ownerID} }),
		`SELECT w.id, (SELECT a.owner_id FROM apps a WHERE a.id = w.app_id) FROM webhooks w
		WHERE w.deleted_us IS NULL AND w.status = 'active' AND EXISTS (SELECT 1 FROM deliveries d
			WHERE d.webhook_id = w.id AND d.status = 'pending' AND d.due_us <= $1)`, nowUS)
}

// claimDeliveries leases at most limit due deliveries of an endpoint until leaseUS.
func claimDeliveries(ctx context.Context, tx *db.Tx, endpointID, lease string, nowUS, leaseUS int64,
	limit int) ([]Delivery, error) {
	return db.QueryAll(ctx, tx, scanDelivery, `WITH due AS MATERIALIZED (SELECT id FROM deliveries
			WHERE webhook_id = $1 AND status = 'pending' AND due_us <= $2
		ORDER BY due_us, id LIMIT $3`+tx.Engine.SkipLocked()+`)
		UPDATE deliveries SET lease = $4, due_us = $5 WHERE id IN (SELECT id FROM due)
		RETURNING `+deliveryColumns, endpointID, nowUS, limit, lease, leaseUS)
}

// updateDelivery stores the outcome of an attempt. It reports false if the lease now belongs to another node or the
// delivery is no longer pending.
func updateDelivery(ctx context.Context, tx *db.Tx, v Delivery, dueUS int64) (bool, error) {
	r, err := tx.ExecContext(ctx, `UPDATE deliveries
		SET status = $3, attempts = $4, next_us = $5, due_us = $6, lease = '', last_error = $7, response_status = $8,
			delivered_us = $9
		WHERE id = $1 AND lease = $2 AND status = 'pending'`,
		v.ID, v.lease, v.Status, v.Attempts, v.NextUS, dueUS, v.LastError, v.ResponseStatus, v.DeliveredUS)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

// filterDeliveries returns at most limit deliveries of an endpoint, newest first. A status stands in the text of the
// query, because a partial index is used only then.
func filterDeliveries(ctx context.Context, q db.Queryer, endpointID string, f Filter, limit int) ([]Delivery, error) {
	before := f.Before
	if before == "" {
		before = "~" // after every id
	}
	if until := id.Floor(id.Delivery, f.Until); !f.Until.IsZero() && until < before {
		before = until
	}
	since := "" // before every id
	if !f.Since.IsZero() {
		since = id.Floor(id.Delivery, f.Since)
	}
	where, args := `webhook_id = $1 AND id < $2 AND id >= $4`, []any{endpointID, before, limit, since}
	if f.Status != "" {
		where += ` AND status = '` + f.Status + `'`
	}
	if f.Type != "" {
		where, args = where+` AND event_type = $5`, append(args, f.Type)
	}
	return db.QueryAll(ctx, q, scanDelivery, `SELECT `+deliveryColumns+` FROM deliveries
		WHERE `+where+` ORDER BY id DESC LIMIT $3`, args...)
}

// listFailed locks and returns deliveries of an endpoint with an id from from on, oldest first: those that have failed,
// and those that wait for a retry after now.
func listFailed(ctx context.Context, tx *db.Tx, endpointID, from string, nowUS int64, limit int) ([]Delivery, error) {
	failed, err := db.QueryAll(ctx, tx, scanDelivery, `SELECT `+deliveryColumns+` FROM deliveries
		WHERE webhook_id = $1 AND id >= $2 AND status = 'failed'
		ORDER BY id LIMIT $3`+tx.Engine.ForUpdate(), endpointID, from, limit)
	if err != nil {
		return nil, err
	}
	waiting, err := db.QueryAll(ctx, tx, scanDelivery, `SELECT `+deliveryColumns+` FROM deliveries
		WHERE webhook_id = $1 AND id >= $2 AND status = 'pending' AND attempts > 0 AND lease = '' AND next_us > $4
		ORDER BY id LIMIT $3`+tx.Engine.ForUpdate(), endpointID, from, limit, nowUS)
	if err != nil {
		return nil, err
	}
	list := append(failed, waiting...)
	slices.SortFunc(list, func(a, b Delivery) int { return cmp.Compare(a.ID, b.ID) })
	return list[:min(len(list), limit)], nil
}

const attemptColumns = `begun_us, duration_ms, response_status, error, excerpt`

func listAttempts(ctx context.Context, q db.Queryer, deliveryID string, limit int) ([]Attempt, error) {
	return db.QueryAll(ctx, q, func(row db.Row) (a Attempt, err error) {
		err = row.Scan(&a.BegunUS, &a.DurationMS, &a.ResponseStatus, &a.Error, &a.Excerpt)
		return a, err
	}, `SELECT `+attemptColumns+` FROM delivery_attempts
		WHERE delivery_id = $1 ORDER BY begun_us DESC LIMIT $2`, deliveryID, limit)
}

func insertAttempt(ctx context.Context, tx *db.Tx, deliveryID string, o attemptOutcome) error {
	var status, failed any
	if o.status != 0 {
		status = o.status
	}
	if o.failed != "" {
		failed = o.failed
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO delivery_attempts (delivery_id, `+attemptColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (delivery_id, begun_us) DO NOTHING`,
		deliveryID, o.begun.UnixMicro(), o.took.Milliseconds(), status, failed, o.excerpt)
	return err
}

// countAttempt counts an attempt on its day, and a delivery that it was the last one of.
func countAttempt(ctx context.Context, tx *db.Tx, endpointID, day string, succeeded, lost bool) error {
	column := "failed"
	if succeeded {
		column = "succeeded"
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO webhook_days (webhook_id, day, succeeded, failed, lost)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT (webhook_id, day) DO UPDATE
			SET `+column+` = webhook_days.`+column+` + 1, lost = webhook_days.lost + EXCLUDED.lost`,
		endpointID, day, boolInt(succeeded), boolInt(!succeeded), boolInt(lost))
	return err
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// endpointDay is a Day with its endpoint.
type endpointDay struct {
	Day
	endpointID string
}

func scanDay(row db.Row) (d endpointDay, err error) {
	err = row.Scan(&d.endpointID, &d.Day.Day, &d.Succeeded, &d.Failed)
	return d, err
}

// listDays returns the days of an app's endpoints from a day on.
func listDays(ctx context.Context, q db.Queryer, appID, from string) ([]endpointDay, error) {
	return db.QueryAll(ctx, q, scanDay, `SELECT d.webhook_id, d.day, d.succeeded, d.failed
		FROM webhooks w JOIN webhook_days d ON d.webhook_id = w.id
		WHERE w.app_id = $1 AND w.deleted_us IS NULL AND d.day >= $2 ORDER BY d.webhook_id, d.day`, appID, from)
}

// claimLostDays marks at most limit days on which deliveries have failed for good as reported, and returns them with
// their number in place of the attempts. Two nodes never get the same.
func claimLostDays(ctx context.Context, tx *db.Tx, limit int) ([]endpointDay, error) {
	return db.QueryAll(ctx, tx, scanDay, `WITH due AS MATERIALIZED (SELECT webhook_id, day FROM webhook_days
			WHERE lost > 0 AND lost_reported = 0 ORDER BY day, webhook_id LIMIT $1`+tx.Engine.SkipLocked()+`)
		UPDATE webhook_days SET lost_reported = 1
		WHERE lost_reported = 0 AND (webhook_id, day) IN (SELECT webhook_id, day FROM due)
		RETURNING webhook_id, day, succeeded, lost`, limit)
}

// claimDays marks at most limit unreported days before today as reported and returns them, with no failed attempts of
// one that has been reported for its lost deliveries. Two nodes never get the same.
func claimDays(ctx context.Context, tx *db.Tx, today string, limit int) ([]endpointDay, error) {
	return db.QueryAll(ctx, tx, scanDay, `WITH due AS MATERIALIZED (SELECT webhook_id, day FROM webhook_days
			WHERE reported = 0 AND day < $1 ORDER BY day, webhook_id LIMIT $2`+tx.Engine.SkipLocked()+`)
		UPDATE webhook_days SET reported = 1
		WHERE reported = 0 AND (webhook_id, day) IN (SELECT webhook_id, day FROM due)
		RETURNING webhook_id, day, succeeded, CASE WHEN lost_reported = 1 THEN 0 ELSE failed END`, today, limit)
}

// deleteOldDays deletes the days before a day.
func deleteOldDays(ctx context.Context, d *db.DB, before string) error {
	_, err := d.DeleteSlices(ctx, "webhook_days", `day < $1`, "day", before)
	return err
}

// releaseDelivery ends a lease without an attempt.
func releaseDelivery(ctx context.Context, d *db.DB, v Delivery, nowUS int64) error {
	_, err := d.ExecContext(ctx, `UPDATE deliveries SET lease = '', due_us = $3
		WHERE id = $1 AND lease = $2 AND status = 'pending'`, v.ID, v.lease, nowUS)
	return err
}

// deleteOldDeliveries deletes deliveries with an id below before: those that are done, and pending ones of disabled
// endpoints.
func deleteOldDeliveries(ctx context.Context, d *db.DB, before string) error {
	_, err := d.DeleteSlices(ctx, "deliveries",
		`id < $1
			AND (status <> 'pending' OR webhook_id IN (SELECT id FROM webhooks WHERE status = 'disabled'))`,
		"id", before)
	return err
}

func countWaiting(ctx context.Context, q db.Queryer) (n int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) FROM deliveries
		WHERE status = 'pending' AND webhook_id NOT IN (SELECT id FROM webhooks WHERE status = 'disabled')`).Scan(&n)
	return n, err
}

// nextLogged is the event of the app's next entry in the log.
const nextLogged = `(SELECT n.event_id FROM event_log n WHERE n.app_id = event_log.app_id AND n.place > event_log.place
	ORDER BY n.place LIMIT 1)`

// deleteOldLog deletes the log entries of events with an id below before; ids rise with time. The one before an entry
// that stays, or before one to come, stays, too: a reader that has read it has missed nothing.
func deleteOldLog(ctx context.Context, d *db.DB, before string) error {
	_, err := d.DeleteSlices(ctx, "event_log", `event_id < $1 AND `+nextLogged+` < $1`, "event_id", before)
	return err
}

// notSent is the condition that an event is in no log and has no deliveries.
const notSent = `NOT EXISTS (SELECT 1 FROM event_log l WHERE l.event_id = events.id)
	AND NOT EXISTS (SELECT 1 FROM webhooks w JOIN deliveries d ON d.webhook_id = w.id
		WHERE w.app_id = events.app_id AND d.event_id = events.id)`

// findOwner returns the developer of an app.
func findOwner(ctx context.Context, q db.Queryer, appID string) (developerID string, err error) {
	err = q.QueryRowContext(ctx, `SELECT owner_id FROM apps WHERE id = $1`, appID).Scan(&developerID)
	return developerID, err
}

// The last column is the flag sandbox: the event is about a connection of a test account, or has no connection and is
// about an app in the sandbox.
const eventValues = `e.id, e.type, e.app_id, COALESCE(e.connection_id, ''), e.seq, e.data, e.created_us, e.test <> 0,
	CASE WHEN b.account_id IS NOT NULL THEN b.sandbox = 1 ELSE a.tier = 'sandbox' END`

const eventTables = `events e JOIN apps a ON a.id = e.app_id LEFT JOIN connections c ON c.id = e.connection_id LEFT JOIN balances b ON b.account_id = c.account_id`

func scanEvent(row db.Row) (e storedEvent, err error) {
	err = row.Scan(&e.ID, &e.Type, &e.AppID, &e.ConnectionID, &e.Seq, &e.Data, &e.CreatedUS, &e.test, &e.sandbox)
	return e, err
}

func getEvent(ctx context.Context, q db.Queryer, eventID string) (storedEvent, error) {
	return scanEvent(q.QueryRowContext(ctx, `SELECT `+eventValues+` FROM `+eventTables+` WHERE e.id = $1`, eventID))
}

// listCreatedEvents returns the events of a connection that were created at one time. The id of an event has that time
// in milliseconds, so that the index of an app's events finds them.
func listCreatedEvents(ctx context.Context, q db.Queryer, appID, connectionID string, atUS int64) ([]storedEvent,
	error) {
	at := time.UnixMicro(atUS)
	return db.QueryAll(ctx, q, scanEvent, `SELECT `+eventValues+` FROM `+eventTables+`
		WHERE e.app_id = $1 AND e.id >= $2 AND e.id < $3 AND e.connection_id = $4 AND e.created_us = $5
		ORDER BY e.seq`,
		appID, id.Floor(id.Event, at), id.Floor(id.Event, at.Add(time.Millisecond)), connectionID, atUS)
}

// listEventDeliveries returns the deliveries of an event to the endpoints of its app, oldest endpoint first.
func listEventDeliveries(ctx context.Context, q db.Queryer, appID, eventID string) ([]Delivery, error) {
	return db.QueryAll(ctx, q, scanDelivery, `SELECT `+deliveryColumns+` FROM deliveries
		WHERE event_id = $2 AND webhook_id IN (SELECT id FROM webhooks WHERE app_id = $1 AND deleted_us IS NULL)
		ORDER BY webhook_id`, appID, eventID)
}

// loggedEvent is an event with the cursor of its entry in the log.
type loggedEvent struct {
	storedEvent
	cursor string
}

func scanLogged(row db.Row) (l loggedEvent, err error) {
	err = row.Scan(&l.ID, &l.Type, &l.AppID, &l.ConnectionID, &l.Seq, &l.Data, &l.CreatedUS, &l.test, &l.sandbox,
		&l.cursor)
	return l, err
}

// loggedQuery begins a query for the events of an app's log. An entry of an earlier version has no id: its cursor is
// that of its event.
const loggedQuery = `SELECT ` + eventValues + `, COALESCE(l.entry_id, l.event_id) FROM ` + eventTables + `
	JOIN event_log l ON l.event_id = e.id WHERE l.app_id = $1`

// listLoggedBefore returns the events of an app's log before a place, newest first.
func listLoggedBefore(ctx context.Context, q db.Queryer, appID string, before int64, limit int) ([]loggedEvent, error) {
	return db.QueryAll(ctx, q, scanLogged, loggedQuery+` AND l.place < $2 ORDER BY l.place DESC LIMIT $3`, appID,
		before, limit)
}

// listLoggedAfter returns the events of an app's log from the event oldest on and after a place, oldest first.
func listLoggedAfter(ctx context.Context, q db.Queryer, appID, oldest string, after int64, limit int) ([]loggedEvent,
	error) {
	return db.QueryAll(ctx, q, scanLogged, loggedQuery+` AND l.place > $2 AND l.event_id >= $3
		ORDER BY l.place LIMIT $4`, appID, after, oldest, limit)
}

// findPlace returns the first place of an app's log that a condition finds, or sql.ErrNoRows. It finds none after which
// entries are deleted, or may be, because they are of events below oldest.
func findPlace(ctx context.Context, q db.Queryer, condition, appID string, value any, oldest string) (place int64,
	err error) {
	err = q.QueryRowContext(ctx, `SELECT place FROM event_log WHERE `+condition+`
		AND (event_id >= $3 OR COALESCE(`+nextLogged+`, '~') >= $3) ORDER BY place LIMIT 1`,
		appID, value, oldest).Scan(&place)
	return place, err
}

// lockLog locks the log until tx ends, so that only tx appends to it, and returns the last cursor.
func lockLog(ctx context.Context, tx *db.Tx) (last int64, err error) {
	err = tx.QueryRowContext(ctx, `SELECT place FROM event_log_head WHERE one = 1`+tx.Engine.ForUpdate()).Scan(&last)
	return last, err
}

// appendLog appends events after the last place. The log must be locked. Each entry gets an id of its own, which is the
// reader's cursor: after a restore to an earlier moment the same place, and even the same event, has another one.
func (s *Store) appendLog(ctx context.Context, tx *db.Tx, last int64, events ...rules.Event) error {
	now := s.now()
	for rows := range slices.Chunk(events, maxRowsPerStatement) {
		var values strings.Builder
		args := make([]any, 0, 4*len(rows))
		for i, e := range rows {
			if i > 0 {
				values.WriteByte(',')
			}
			n := len(args)
			fmt.Fprintf(&values, `($%d, $%d, $%d, $%d)`, n+1, n+2, n+3, n+4)
			last++
			args = append(args, last, e.AppID, e.ID, id.New(id.LogEntry, now))
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO event_log (place, app_id, event_id, entry_id)
			VALUES `+values.String(), args...); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, `UPDATE event_log_head SET place = $1 WHERE one = 1`, last)
	return err
}

// Of a change of the envelope key.
const (
	listSealed    = `SELECT id, sealed FROM webhooks WHERE id > $1 AND deleted_us IS NULL ORDER BY id LIMIT $2`
	replaceSealed = `UPDATE webhooks SET sealed = $1 WHERE id = $2 AND sealed = $3`
)
