package watch

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/watch/rules"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// bundle is a watch at a fixed time, and an app for it to look at.
type bundle struct {
	*Watch
	t     *testing.T
	at    time.Time
	n     int
	calls int

	reported []string // the apps whose suspension the developer was told
}

func newBundle(t *testing.T, d *db.DB) *bundle {
	b := &bundle{t: t, at: time.Date(2026, 11, 21, 10, 5, 0, 0, time.UTC)}
	now := func() time.Time { return b.at }
	b.Watch = &Watch{DB: d, Apps: apps.NewStore(d, now, false), Log: slog.New(slog.DiscardHandler), Now: now}
	b.Watch.Apps.OnChange = func(string) { b.calls++ }
	b.Report = func(_ context.Context, _ *db.Tx, a apps.App) error {
		if a.Suspension == nil || a.Suspension.Reason == "" {
			b.t.Errorf("reported without a reason: %+v", a)
		}
		b.reported = append(b.reported, a.ID)
		return nil
	}
	b.exec(`INSERT INTO accounts (id, email, password_hash, developer, created_us)
		VALUES ('wac_dev', 'developer@example.com', 'x', 1, 1), ('wac_real', 'person@example.com', 'x', 0, 1)`)
	b.exec(`INSERT INTO accounts (id, email, password_hash, sandbox, owner_id, created_us)
		VALUES ('wac_test', 'tester@example.com', 'x', 1, 'wac_dev', 1)`)
	return b
}

func (b *bundle) exec(text string, args ...any) {
	b.t.Helper()
	if _, err := b.DB.ExecContext(b.t.Context(), text, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) app(tier string) (appID string) {
	b.t.Helper()
	err := b.DB.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		app, _, err := b.Apps.Create(ctx, tx, apps.New{OwnerID: "wac_dev", Name: "Reader", Tier: tier})
		appID = app.ID
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return appID
}

// connections adds so many, created an age ago, and revoked if revoked is not 0.
func (b *bundle) connections(appID, accountID string, n int, age, revoked time.Duration) {
	b.t.Helper()
	for range n {
		b.n++
		status, at := "active", any(nil)
		if revoked != 0 {
			status, at = "revoked", b.at.Add(-revoked).UnixMicro()
		}
		// One account has one live connection to an app.
		if status == "active" {
			b.exec(`INSERT INTO accounts (id, email, password_hash, created_us)
				VALUES ($1, $1, 'x', 1)`, fmt.Sprint("wac_", b.n))
			accountID = fmt.Sprint("wac_", b.n)
		}
		b.exec(`INSERT INTO connections (id, app_id, account_id, allocation_mc, consumed_mc, held_mc, status, spent,
				event_seq, created_us, revoked_us)
			VALUES ($1, $2, $3, 0, 0, 0, $4, '', 0, $5, $6)`,
			fmt.Sprint("conn_", b.n), appID, accountID, status, b.at.Add(-age).UnixMicro(), at)
	}
}

// spend adds a charge of an age; its call began a minute earlier.
func (b *bundle) spend(appID, accountID string, mc money.MC, age time.Duration) {
	b.t.Helper()
	b.row(appID, accountID, "settled", nil, nil, mc, age)
}

func (b *bundle) row(appID, accountID, status string, reversalOf, reason any, mc money.MC, age time.Duration) {
	b.t.Helper()
	b.n++
	at := b.at.Add(-age)
	b.exec(`INSERT INTO ledger (id, account_id, seq, type, status, reversal_of, reason, app_id, provider_cost_mc,
			svc_fee_mc, dev_margin_mc, user_charge_mc,
		available_delta_mc, reserved_delta_mc, allocation_delta_mc, consumed_delta_mc, created_us, hash)
		VALUES ($1, $2, $3, 'spend', $4, $5, $6, $7, $8, 0, 0, $8, 0, 0, 0, 0, $9, '')`,
		id.New(id.Ledger, at.Add(-time.Minute)), accountID, b.n, status, reversalOf, reason, appID, mc, at.UnixMicro())
}

// look takes the next turn, and says whether the app is suspended, and why.
func (b *bundle) look(appID string) string {
	b.t.Helper()
	b.at = b.at.Add(interval)
	if err := b.Run(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	app, err := b.Apps.Get(b.t.Context(), appID)
	if err != nil {
		b.t.Fatal(err)
	}
	if app.Suspension == nil {
		return ""
	}
	if app.Suspension.By != apps.ByRisk || !app.Suspended {
		b.t.Errorf("%+v", app.Suspension)
	}
	return app.Suspension.Reason
}

func (b *bundle) want(what, appID, says string) {
	b.t.Helper()
	if got := b.look(appID); (got == "") != (says == "") || !strings.Contains(got, says) {
		b.t.Errorf("%s: suspended because %q, want %q", what, got, says)
	}
}

func (b *bundle) lift(appID string) {
	b.t.Helper()
	err := b.DB.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, _, err := b.Apps.Lift(ctx, tx, appID)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestRevocationSpike(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		sandbox, app, calm := b.app(apps.Sandbox), b.app(apps.LimitedLive), b.app(apps.FullLive)
		const old, hour = 48 * time.Hour, time.Hour
		b.connections(sandbox, "wac_real", 20, old, hour)
		b.connections(app, "wac_test", 50, old, hour)    // test accounts left with the promotion
		b.connections(app, "wac_real", 50, old, 30*hour) // yesterday
		b.connections(app, "wac_real", 50, hour, hour/2) // came and went within the day
		b.connections(app, "wac_real", 9, old, hour)
		b.connections(calm, "wac_real", 10, old, hour)
		b.connections(calm, "", 41, old, 0)
		b.want("a sandbox app", sandbox, "")
		b.want("nine", app, "")
		b.want("ten of 51", calm, "")
		b.connections(app, "wac_real", 1, old, hour)
		b.want("ten", app, "10 of the 10 connections")
		if b.calls != 1 || !slices.Equal(b.reported, []string{app}) {
			t.Errorf("told %d times, reported %q", b.calls, b.reported)
		}
		b.lift(app)
		b.want("forgiven", app, "")
		b.connections(app, "", 15, 10*time.Minute, 0)
		b.at = b.at.Add(2 * hour)
		b.connections(app, "wac_real", 10, 3*hour, time.Minute)
		b.want("again, after it was lifted", app, "10 of the ")
	})
}

func TestSpendAnomaly(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		app, fresh := b.app(apps.LimitedLive), b.app(apps.LimitedLive)
		for n := range 30 { // $3 in each of 30 hours of the week: the limit is $60
			b.spend(app, "wac_real", 3*money.Dollar, time.Duration(2+5*n)*time.Hour)
		}
		b.spend(app, "wac_real", 5000*money.Dollar, 200*time.Hour) // more than a week ago
		b.spend(app, "wac_test", 5000*money.Dollar, 10*time.Minute)
		b.row(app, "wac_real", "reversed", "led_x", "provider_error", 5000*money.Dollar, 10*time.Minute)
		b.spend(app, "wac_real", 60*money.Dollar, 20*time.Minute)
		b.spend(fresh, "wac_real", 30*money.Dollar, 40*time.Minute)
		b.spend(fresh, "wac_real", 220*money.Dollar, time.Second)
		b.want("20 times the usual hour", app, "")
		b.want("the first good hour", fresh, "")
		b.spend(app, "wac_real", 1, 0)
		b.spend(fresh, "wac_real", 1, 0)
		b.want("above 20 times", app, "more than $60.00")
		b.want("above the day of its tier", fresh, "more than $250.00")
		b.lift(fresh)
		b.want("forgiven", fresh, "")
		b.at = b.at.Add(20 * time.Minute)
		b.spend(fresh, "wac_real", 601*money.Dollar, 0) // by now the first $30 are history
		b.want("again, after it was lifted", fresh, "$601.00 within an hour, more than $600.00")
		b.lift(fresh)
		b.at = b.at.Add(2 * time.Hour)
		b.want("over", fresh, "")
	})
}

// A clock that was ahead for one check neither hides a later burst nor makes a steady app suspicious.
func TestClockThatWasAhead(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		for _, ahead := range []time.Duration{8 * time.Hour, 10 * rules.Day} {
			app := b.app(apps.FullLive)
			for n := range 30 { // $3 in each of 30 hours of the week: the limit is $60
				b.spend(app, "wac_real", 3*money.Dollar, time.Duration(2+5*n)*time.Hour)
			}
			b.spend(app, "wac_real", 55*money.Dollar, 2*time.Minute)
			b.want("steady", app, "")
			b.at = b.at.Add(ahead)
			b.want("ahead", app, "")
			b.at = b.at.Add(-ahead)
			b.want("steady by the right clock", app, "")
			b.spend(app, "wac_real", 6*money.Dollar, time.Second)
			b.want("a burst", app, "more than $60.00")
		}
	})
}

func TestChargebacks(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		app := b.app(apps.FullLive)
		const day = 24 * time.Hour
		for n, reason := range []string{"chargeback", "chargeback", "provider_error", "provider_error"} {
			b.row(app, "wac_real", "reversed", fmt.Sprint("led_", n), reason, 1, 29*day)
		}
		b.row(app, "wac_real", "reversed", "led_old", "chargeback", 1, 31*day)
		b.want("two within 30 days", app, "")
		b.row(app, "wac_real", "reversed", "led_new", "chargeback", 1, day)
		b.want("three", app, "3 charges were taken back")
		b.lift(app)
		b.want("forgiven", app, "")
	})
}

// Of nodes that look at once one has the turn, and an app is suspended once.
func TestOneNodeHasTheTurn(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		app := b.app(apps.FullLive)
		b.spend(app, "wac_real", 251*money.Dollar, time.Minute) // above the floor of a new app
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if err := b.Run(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if b.calls != 1 {
			t.Errorf("%d nodes had the turn", b.calls)
		}
	})
}

// No statement reads a whole table of the ledger.
func TestIndexesServe(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	plans := 0
	explain := func(text string, args ...any) {
		rows, err := d.QueryContext(t.Context(), `EXPLAIN QUERY PLAN `+text, args...)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var a, b, c int
			var detail string
			if err := rows.Scan(&a, &b, &c, &detail); err != nil {
				t.Fatal(err)
			}
			if plans++; detail == "SCAN ledger" || detail == "SCAN connections" || detail == "SCAN app_spend" {
				t.Errorf("%s\nin %s", detail, text)
			}
		}
	}
	q := recorder{DB: d, explain: explain}
	for _, f := range []func() error{
		func() error { _, err := sumSpend(t.Context(), q, 1, 2); return err },
		func() error { _, err := listCountedBetween(t.Context(), q, 1, 2); return err },
		func() error { _, err := listCounted(t.Context(), q, "app_x", 1); return err },
		func() error { _, err := listRevocationCandidates(t.Context(), q, 1, 10); return err },
		func() error { _, _, err := countRevocations(t.Context(), q, "app_x", 1); return err },
		func() error { _, err := listChargebackCandidates(t.Context(), q, 1, 3); return err },
		func() error { _, err := countChargebacks(t.Context(), q, "app_x", 1); return err },
	} {
		if err := f(); err != nil {
			t.Error(err)
		}
	}
	if plans < 8 {
		t.Errorf("only %d steps were looked at", plans)
	}
}
