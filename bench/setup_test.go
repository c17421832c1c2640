package main

import (
	"testing"

	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// What the bench seeds is what Purser finds, and the generated past agrees with
// balances and counters: the next settlement continues it.
func TestSeedAndFill(t *testing.T) {
	t.Parallel()
	for _, engine := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			target := dbtest.URL(t, engine)
			grants, err := seedDatabase(t.Context(), target, connectionsOfApp+1)
			if err != nil {
				t.Fatal(err)
			}
			count := int64(1000)
			if err := fillLedger(t.Context(), target, grants, &count); err != nil {
				t.Fatal(err)
			}
			if count != 986 {
				t.Errorf("%d rows", count)
			}
			d, err := db.Open(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
			var bad, indexes int
			err = d.QueryRowContext(t.Context(),
				`SELECT COUNT(*) FROM connections c JOIN balances b ON b.account_id = c.account_id
				WHERE b.reserved_mc <> c.allocation_mc - c.consumed_mc
				OR b.seq <> (SELECT MAX(seq) FROM ledger l WHERE l.account_id = c.account_id)
				OR b.seq <> (SELECT COUNT(*) FROM ledger l WHERE l.account_id = c.account_id)
				OR c.consumed_mc <> (SELECT SUM(consumed_delta_mc) FROM ledger l WHERE l.connection_id = c.id)`).Scan(
				&bad)
			if err != nil || bad > 0 {
				t.Errorf("%d connections do not agree with their rows: %v", bad, err)
			}
			names := `SELECT COUNT(*) FROM sqlite_master
				WHERE name IN ('ledger_chain', 'ledger_key', 'ledger_reversal')`
			if engine == db.Postgres {
				names = `SELECT COUNT(*) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indisvalid
					AND relname IN ('ledger_app', 'ledger_key', 'ledger_reversal')`
			}
			if err := d.QueryRowContext(t.Context(), names).Scan(&indexes); err != nil || indexes != 3 {
				t.Errorf("%d of 3 indexes are there again: %v", indexes, err)
			}
			if r, err := audit.Verify(t.Context(), target, d.Now(), nil); err != nil || r.Findings > 0 {
				t.Errorf("an audit of the generated past: %v\n%s", err, r.Report)
			}
			tokens := &oauth.Store{DB: d, Now: d.Now}
			for _, g := range grants {
				if found, err := tokens.LookupAccessToken(t.Context(), g.Token); err != nil ||
					found.ConnectionID != g.Connection {
					t.Errorf("token of %s finds %+v: %v", g.Connection, found, err)
				}
			}
			base := database{url: target, spends: count}
			if a := base.checkLedger(t.Context(), "purser", 0); a.SpendRows != 0 || a.OpenHolds != 0 || a.Error != "" {
				t.Errorf("%+v", a)
			}
		})
	}
}
