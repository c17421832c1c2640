package webhooks_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/faulttest"
)

// addEvents adds test events of an app that are not claimed, each a millisecond after the one before it.
func addEvents(t *testing.T, b *bundle, appID string, n int) {
	t.Helper()
	if err := b.db.InTx(db.ForJob(t.Context()), func(ctx context.Context, tx *db.Tx) error {
		for range n {
			b.clock.move(time.Millisecond)
			now := b.clock.now()
			if _, err := tx.ExecContext(ctx, `INSERT INTO events (id, type, app_id, seq, data, created_us, passed, test)
				VALUES ($1, 'connection.updated', $2, 0, '{}', $3, 0, 1)`, id.New(id.Event, now), appID,
				now.UnixMicro()); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// addApp adds an app of a developer, and the developer if there is none of that id.
func addApp(t *testing.T, d *db.DB, appID, ownerID string) {
	t.Helper()
	for _, text := range []string{
		`INSERT INTO accounts (id, email, password_hash, developer, created_us)
			VALUES ('` + ownerID + `', '` + ownerID + `@example.com', 'x', 1, 1) ON CONFLICT DO NOTHING`,
		`INSERT INTO apps (id, owner_id, name, client_id, secret_hash, redirect_uris, allowed_models,
			default_max_tokens, tier, provider_mode, test_allowlist, dev_margin_ppm, suspended, created_us)
			VALUES ('` + appID + `', '` + ownerID + `', 'App', '` + appID + `', '', '[]', '[]',
			1, 'sandbox', 'mock', '[]', 0, 0, 1)`,
	} {
		if _, err := d.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
}

func count(t *testing.T, d *db.DB, query string, args ...any) (n int) {
	t.Helper()
	if err := d.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A batch of events for twenty endpoints is queued with few statements, each of many rows: one by one they would need
// longer than their transaction may take, over a database whose answers take a while.
func TestManyDeliveriesAreQueuedAtOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t, db.Postgres)
	proxy := faulttest.NewProxy(t, url)
	d, err := db.Open(t.Context(), proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	t.Cleanup(func() { _ = d.Close() })
	b := newBundle(t, d, loopback)
	for range webhooks.MaxPerApp {
		b.create(t, `{"url":"http://127.0.0.1:1/"}`)
	}
	addEvents(t, b, b.mineID, 200)
	addEvents(t, b, b.otherID, 1)
	before := proxy.Answers()
	if err := b.node().QueueEvents(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := proxy.Answers() - before; n > 100 {
		t.Errorf("%d answers of the database for one batch", n)
	}
	if n := count(t, d, `SELECT COUNT(*) FROM deliveries`); n < 100*webhooks.MaxPerApp {
		t.Errorf("%d deliveries", n)
	}
	if n := count(t, d, `SELECT COUNT(*) FROM event_log WHERE app_id = $1`, b.otherID); n != 1 {
		t.Error("the other app had no turn")
	}
	for range 2 {
		if err := b.node().QueueEvents(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, d, `SELECT COUNT(*) FROM deliveries`); n != 200*webhooks.MaxPerApp {
		t.Errorf("%d deliveries", n)
	}
	if n := count(t, d, `SELECT COUNT(*) FROM event_log`); n != 201 {
		t.Errorf("%d events in the log", n)
	}
}

// Each app has its turn, however many events another one has, and the order of an app's events stays.
func TestAppsHaveTurns(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		addEvents(t, b, b.mineID, 1000)
		oldest := b.clock.now()
		addEvents(t, b, b.otherID, 3)
		node := b.node()
		if err := node.QueueEvents(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := count(t, d, `SELECT COUNT(*) FROM event_log WHERE app_id = $1`, b.otherID); n != 3 {
			t.Errorf("%d events of the other app had their turn", n)
		}
		if us, err := store.OldestUnclaimedEvent(t.Context(), d); err != nil || us == 0 || us > oldest.UnixMicro() {
			t.Error(us, err)
		}
		b.work(t)
		if n := count(t, d, `SELECT COUNT(*) FROM event_log a JOIN event_log b ON b.app_id = a.app_id
			AND b.place > a.place AND b.event_id < a.event_id`); n != 0 {
			t.Errorf("%d events stand behind later ones", n)
		}
		if n := count(t, d, `SELECT COUNT(*) FROM event_log`); n != 1003 {
			t.Errorf("%d events in the log", n)
		}
		if us, err := store.OldestUnclaimedEvent(t.Context(), d); err != nil || us != 0 {
			t.Error(us, err)
		}
	})
}

// TestDevelopersHaveTurns: a developer with many apps has the same share of a batch as one with one app, and many of
// their apps have their turn in it.
func TestDevelopersHaveTurns(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		for i := range 31 {
			owner := "wac_dev"
			if i == 30 {
				owner = "wac_two"
			}
			appID := fmt.Sprint("app_", i)
			addApp(t, d, appID, owner)
			addEvents(t, b, appID, 20)
		}
		addEvents(t, b, "app_30", 100)
		node := b.node()
		if err := node.QueueEvents(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := count(t, d, `SELECT COUNT(*) FROM event_log WHERE app_id = 'app_30'`); n < 100 {
			t.Errorf("%d events of the developer with one app", n)
		}
		if n := count(t, d, `SELECT COUNT(DISTINCT app_id) FROM event_log`); n < 20 {
			t.Errorf("%d apps had their turn", n)
		}
		b.work(t)
		if n := count(t, d, `SELECT COUNT(*) FROM event_log`); n != 31*20+100 {
			t.Errorf("%d events in the log", n)
		}
	})
}

// TestDevelopersShareAttempts: a developer with many endpoints that do not answer leaves attempts of the node to
// others, over all apps of theirs, and what is reserved and not begun is given back.
func TestDevelopersShareAttempts(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite), loopback)
	addApp(t, b.db, "app_two", "wac_two")
	owners := map[string]string{} // of endpoints
	add := func(appID, ownerID string, endpoints int) {
		for i := range endpoints {
			endpointID := fmt.Sprint("whk_", appID, i)
			owners[endpointID] = ownerID
			if _, err := b.db.ExecContext(t.Context(), `INSERT INTO webhooks (id, app_id, url, events, status, sealed,
				created_us) VALUES ($1, $2, 'http://127.0.0.1:1/', '[]', 'active', '', 1)`, endpointID,
				appID); err != nil {
				t.Fatal(err)
			}
		}
		addEvents(t, b, appID, 20)
	}
	add(b.mineID, "wac_dev", webhooks.MaxPerApp)
	add(b.otherID, "wac_dev", webhooks.MaxPerApp)
	node := b.node()
	for range 3 {
		if err := node.QueueEvents(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	hung := slices.Collect(maps.Keys(owners))
	for range 3 {
		if _, err := node.Step(t.Context(), hung...); err != nil {
			t.Fatal(err)
		}
	}
	if n := node.RunningOf("wac_dev"); n < webhooks.MaxAttempts*8/10 || n > webhooks.MaxAttempts*9/10 {
		t.Errorf("%d attempts of the greedy developer", n)
	}
	add("app_two", "wac_two", 1)
	claims, err := node.Step(t.Context(), append(hung, "whk_app_two0")...)
	if err != nil || claims["whk_app_two0"] < 10 {
		t.Errorf("%d attempts of the other developer, %v", claims["whk_app_two0"], err)
	}
	if n := node.RunningOf("wac_dev") + node.RunningOf("wac_two"); n != node.Running() {
		t.Errorf("%d attempts run, and %d are counted", n, node.Running())
	}
}

// A transaction that fails has a smaller one after it, down to one event, and the batches grow again.
func TestBatchesShrink(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite), loopback)
	addEvents(t, b, b.mineID, 300)
	node := b.node()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	logged := func() int { return count(t, b.db, `SELECT COUNT(*) FROM event_log`) }
	for range 3 {
		if err := node.FailBatch(ended); err == nil || logged() != 0 {
			t.Fatalf("%v, %d", err, logged())
		}
	}
	for _, want := range []int{25, 75, 175, 300} {
		if err := node.QueueEvents(t.Context()); err != nil || logged() != want {
			t.Errorf("%d, want %d, %v", logged(), want, err)
		}
	}
}

// An endpoint that had no deliveries leaves no row when it is deleted.
func TestUnusedEndpointsLeaveNoRow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		stays := b.create(t, `{"url":"http://127.0.0.1:2/"}`)
		gone := b.create(t, `{"url":"http://127.0.0.1:1/"}`)
		want(t, b.mine.Do(t, "DELETE", b.collection()+"/"+gone.ID, ""), 200, "")
		want(t, b.mine.Do(t, "DELETE", b.collection()+"/"+gone.ID, ""), 404, "not_found")
		if n := count(t, d, `SELECT COUNT(*) FROM webhooks`); n != 1 {
			t.Errorf("%d rows, want that of %s", n, stays.ID)
		}
	})
}

// A deleted endpoint is gone at once, with the address and the secret. Its deliveries, however many, are for the purge.
func TestDeletedEndpointsArePurged(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		gone, stays := b.create(t, `{"url":"http://127.0.0.1:1/"}`), b.create(t, `{"url":"http://127.0.0.1:2/"}`)
		const deliveries = 2500
		for _, e := range []string{gone.ID, stays.ID} {
			b.exec(t, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2)
				INSERT INTO deliveries (id, webhook_id, event_id, event_type, status, due_us, created_us)
				SELECT 'whd_' || substr(CAST($1 AS TEXT), 3) || i, CAST($1 AS TEXT), 'evt_' || i, 't', 'pending', 0, 0
				FROM n`, e, deliveries)
			b.exec(t, `INSERT INTO delivery_attempts (delivery_id, begun_us, duration_ms, excerpt)
				SELECT id, 1, 1, '' FROM deliveries WHERE webhook_id = $1`, e)
			b.exec(t, `INSERT INTO webhook_days (webhook_id, day, succeeded, failed)
				VALUES ($1, '2026-11-20', 1, 1)`, e)
		}
		want(t, b.mine.Do(t, "DELETE", b.collection()+"/"+gone.ID, ""), 200, "")
		want(t, b.mine.Do(t, "DELETE", b.collection()+"/"+gone.ID, ""), 404, "not_found")
		want(t, b.mine.Do(t, "GET", b.collection()+"/"+gone.ID+"/deliveries", ""), 404, "not_found")
		if n := count(t, d, `SELECT COUNT(*) FROM deliveries WHERE webhook_id = $1`, gone.ID); n != deliveries {
			t.Errorf("the request deleted %d deliveries itself", deliveries-n)
		}
		if n := count(t, d, `SELECT COUNT(*) FROM webhooks WHERE url = '' AND status = 'disabled'`); n != 1 {
			t.Error("the address stays")
		}
		if list, _, err := b.store.List(t.Context(), b.mineID, web.Page{Limit: 9}); err != nil || len(list) != 1 {
			t.Errorf("%v, %v", list, err)
		}
		if days, err := b.store.ListDays(t.Context(), b.mineID, 5); err != nil || len(days[gone.ID]) != 0 {
			t.Errorf("%v, %v", days, err)
		}
		for range webhooks.MaxPerApp - 1 { // it takes no place
			b.create(t, `{"url":"http://127.0.0.1:1/"}`)
		}
		if _, err := b.store.Get(t.Context(), b.mineID, gone.ID); !errors.Is(err, sql.ErrNoRows) {
			t.Error(err)
		}
		if err := b.store.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		for table, column := range map[string]string{"webhooks": "id", "deliveries": "webhook_id",
			"webhook_days": "webhook_id"} {
			if n := count(t, d, fmt.Sprintf(`SELECT COUNT(*) FROM %s WHERE %s = $1`, table, column), gone.ID); n != 0 {
				t.Errorf("%d rows of %s stay", n, table)
			}
		}
	})
}
