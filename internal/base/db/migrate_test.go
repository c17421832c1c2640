package db_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestMigrationsAreAppendOnly compares the migrations with testdata/migrations.sha256, which lists those of
// released versions. A listed file never changes, because databases exist that were made by it; a file that is
// not listed is newer than all listed ones. A release lists its new files:
//
//	cd internal/base/db/migrations && sha256sum *.sql > ../testdata/migrations.sha256
func TestMigrationsAreAppendOnly(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("testdata/migrations.sha256")
	if err != nil {
		t.Fatal(err)
	}
	listed, newest := map[string]bool{}, ""
	for lines := bufio.NewScanner(bytes.NewReader(list)); lines.Scan(); {
		want, name, ok := strings.Cut(lines.Text(), "  ")
		if !ok || name <= newest {
			t.Fatalf("the list has the line %q", lines.Text())
		}
		listed[name], newest = true, name
		text, err := os.ReadFile(filepath.Join("migrations", name))
		if err != nil {
			t.Errorf("a released migration is missing: %v", err)
			continue
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s was released and has changed: undo it, and add a migration", name)
		}
	}
	files, err := filepath.Glob("migrations/*")
	if err != nil || len(listed) == 0 {
		t.Fatalf("%d migrations are listed, %v", len(listed), err)
	}
	for _, file := range files {
		if name := filepath.Base(file); !listed[name] && name <= newest {
			t.Errorf("%s is new, and must come after %s", name, newest)
		}
	}
}

// TestNewerSchemaIsRefused opens a database that a later version has migrated: nothing is read or written there.
func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			target := dbtest.URL(t, e)
			d := open(t, target)
			const later = `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)`
			if _, err := d.ExecContext(t.Context(), later); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			for name, openTarget := range map[string]func() (*db.DB, error){
				"Open":         func() (*db.DB, error) { return db.Open(t.Context(), target) },
				"OpenReadOnly": func() (*db.DB, error) { return db.OpenReadOnly(t.Context(), target) },
			} {
				d, err := openTarget()
				if err == nil {
					_ = d.Close()
					t.Errorf("%s opened a newer schema", name)
				} else if !strings.Contains(err.Error(), "version 9999") ||
					!strings.HasPrefix(err.Error(), "database: ") {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// TestChangedMigrationIsRefused opens a database that was made by another text of a migration: the error names it.
func TestChangedMigrationIsRefused(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			target := dbtest.URL(t, e)
			d := open(t, target)
			var noted, applied int
			if err := d.QueryRowContext(t.Context(), `SELECT (SELECT COUNT(*) FROM migration_hashes),
				(SELECT COUNT(*) FROM goose_db_version WHERE version_id > 0)`).Scan(&noted, &applied); err != nil ||
				noted != applied {
				t.Errorf("%d hashes of %d migrations, %v", noted, applied, err)
			}
			change := func(statement string) {
				t.Helper()
				if _, err := d.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			change(`DELETE FROM migration_hashes WHERE version = 2`) // of a node that was killed
			change(`UPDATE migration_hashes SET sha256 = 'x' WHERE version = 3`)
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if again, err := db.Open(t.Context(), target); err == nil {
				_ = again.Close()
				t.Error("it was opened")
			} else if !strings.Contains(err.Error(), "0003_webhooks.sql") {
				t.Error(err)
			}
		})
	}
}

// TestKilledMigration: a migration that failed may have another text the next time, and the one that ran is noted.
func TestKilledMigration(t *testing.T) { // not parallel, as it has a migration of its own
	targets := map[db.Engine]string{db.SQLite: dbtest.URL(t, db.SQLite), db.Postgres: dbtest.URL(t, db.Postgres)}
	for e, target := range targets {
		for _, statement := range []string{"ALTER TABLE nothing", "ALTER TABLE realtime_sessions"} {
			db.AddMigration(t, "-- +goose Up\n"+statement+" ADD COLUMN colour TEXT;\n")
			d, err := db.Open(t.Context(), target)
			if err == nil {
				err = d.Close()
			}
			if failed := err != nil; failed != strings.Contains(statement, "nothing") {
				t.Errorf("%s: %s: %v", e, statement, err)
			}
		}
		db.AddMigration(t, "-- +goose Up\nALTER TABLE nodes ADD COLUMN colour TEXT;\n")
		if d, err := db.Open(t.Context(), target); err == nil {
			_ = d.Close()
			t.Errorf("%s: a text that was not applied is taken for the one that was", e)
		}
	}
}

// TestMigrationBesideALongReader: a node that migrates while a long transaction reads the table, as a backup does,
// holds up the running nodes only briefly, and is told to try again. After the transaction it migrates.
func TestMigrationBesideALongReader(t *testing.T) { // not parallel, as it has a migration of its own
	target := dbtest.URL(t, db.Postgres)
	db.AddMigration(t, "-- +goose Up\nALTER TABLE realtime_sessions ADD COLUMN colour TEXT;\n")
	running, snapshot := openBeside(t, target)
	tried := make(chan error)
	go func() {
		_, err := db.Open(t.Context(), target)
		tried <- err
	}()
	var n int
	for err := error(nil); err == nil; {
		if err := running.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM realtime_sessions`).Scan(&n); err != nil {
			t.Fatal("a running node: ", err)
		}
		select {
		case err = <-tried:
			if !db.IsLocked(err) || !strings.Contains(err.Error(), "pg_stat_activity") {
				t.Fatal(err)
			}
		default:
		}
	}
	if err := snapshot.Rollback(); err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.QueryRowContext(t.Context(), `SELECT COUNT(colour) FROM realtime_sessions`).Scan(&n); err != nil {
		t.Error(err)
	}
}

// TestIndexesBesideCalls: while a node builds the indexes of a new version it waits for a long transaction, and so does
// a node that starts with it. Calls of running nodes wait for neither.
func TestIndexesBesideCalls(t *testing.T) { // not parallel, as it has a migration of its own
	target := dbtest.URL(t, db.Postgres)
	db.AddMigration(t, "-- +goose NO TRANSACTION\n-- +goose Up\n"+
		"CREATE INDEX CONCURRENTLY IF NOT EXISTS daily_totals_model ON daily_totals (model);\n")
	running, snapshot := openBeside(t, target)
	opened := make(chan error)
	for range 2 {
		go func() {
			d, err := db.Open(t.Context(), target)
			if err == nil {
				err = d.Close()
			}
			opened <- err
		}()
	}
	for waits := false; !waits; {
		err := running.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'CREATE INDEX CONCURRENTLY%daily_totals%'
				AND wait_event = 'virtualxid')`).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-opened:
			t.Fatal("a node did not wait: ", err)
		default:
		}
	}
	if _, err := running.ExecContext(t.Context(), `INSERT INTO daily_totals (day, connection_id, feature, model, app_id,
		account_id, calls, input_tokens, output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
		VALUES ('2026-11-21', 'conn_x', '', 'm', 'app_x', 'wac_x', 1, 1, 1, 1, 1, 1, 3)`); err != nil {
		t.Fatal("a call: ", err)
	}
	if err := snapshot.Rollback(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-opened; err != nil {
			t.Error(err)
		}
	}
	var n int
	err := running.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM pg_index WHERE NOT indisvalid`).Scan(&n)
	if err != nil || n > 0 {
		t.Errorf("%d indexes are not valid, %v", n, err)
	}
}

// openBeside returns a pool that waits for no lock longer than a node does, and a transaction that has read a table and
// is still open.
func openBeside(t *testing.T, target string) (running *sql.DB, snapshot *sql.Tx) {
	t.Helper()
	pools := make([]*sql.DB, 2)
	for i, wait := range []string{"&lock_timeout=30s", ""} {
		var err error
		if pools[i], err = sql.Open("pgx", target+wait); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pools[i].Close() })
	}
	snapshot, err := pools[1].BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = snapshot.Rollback() })
	var n int
	if err := snapshot.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM realtime_sessions`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return pools[0], snapshot
}
