package db_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
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

// TestMigrationBesideALongReader: a node that migrates while a long transaction reads the table, as a backup does,
// holds up the running nodes only briefly, and is told to try again. After the transaction it migrates.
func TestMigrationBesideALongReader(t *testing.T) {
	t.Parallel()
	target := dbtest.EmptyURL(t)
	const version = 55 // 0056 changes the table
	stop := errors.New("only the schema is wanted")
	err := db.Load(t.Context(), target, version, func(context.Context, *db.Tx) error { return stop })
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	running, err := sql.Open("pgx", target+"&lock_timeout=30s")
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	reader, err := sql.Open("pgx", target)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	snapshot, err := reader.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := snapshot.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM realtime_sessions`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	tried := make(chan error)
	go func() {
		_, err := db.Open(t.Context(), target)
		tried <- err
	}()
	for err = nil; err == nil; {
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
	if err := d.QueryRowContext(t.Context(), `SELECT COUNT(hang_up_us) FROM realtime_sessions`).Scan(&n); err != nil {
		t.Error(err)
	}
}

// TestIndexesBesideCalls: while a node builds the indexes of a new version it waits for a long transaction, and so does
// a node that starts with it. Calls of running nodes wait for neither.
func TestIndexesBesideCalls(t *testing.T) {
	t.Parallel()
	target := dbtest.EmptyURL(t)
	const version = 92 // 0095 builds indexes
	stop := errors.New("only the schema is wanted")
	err := db.Load(t.Context(), target, version, func(context.Context, *db.Tx) error { return stop })
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	running, err := sql.Open("pgx", target+"&lock_timeout=30s")
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	snapshot, err := running.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := snapshot.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM goose_db_version`).Scan(&n); err != nil {
		t.Fatal(err)
	}
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
			WHERE datname = current_database() AND query LIKE 'CREATE INDEX CONCURRENTLY rollups%'
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
	if _, err := running.ExecContext(t.Context(), `INSERT INTO rollups (day, connection_id, feature, model, app_id,
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
	err = running.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM pg_index WHERE NOT indisvalid`).Scan(&n)
	if err != nil || n > 0 {
		t.Errorf("%d indexes are not valid, %v", n, err)
	}
}
