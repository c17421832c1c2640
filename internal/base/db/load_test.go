package db_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// Tables lists exactly the tables that the migrations leave in a database.
func TestTablesAreThoseOfTheSchema(t *testing.T) {
	t.Parallel()
	queries := map[db.Engine]string{
		db.SQLite: `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`,
		db.Postgres: `SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
			AND relnamespace = current_schema()::regnamespace`,
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		version, err := db.SchemaVersion(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		listed, err := db.Tables(version)
		if err != nil {
			t.Fatal(err)
		}
		have, err := db.QueryAll(t.Context(), d, db.ScanColumn[string], queries[d.Engine])
		if err != nil {
			t.Fatal(err)
		}
		want := append(slices.Clone(listed), "goose_db_version", "migration_hashes")
		slices.Sort(want)
		slices.Sort(have)
		if !slices.Equal(have, want) {
			t.Errorf("the schema has %q, and Tables lists %q", have, want)
		}
	})
	if tables, err := db.Tables(1); err != nil || !slices.Contains(tables, "accounts") ||
		slices.Contains(tables, "ledger") {
		t.Errorf("version 1: %q, %v", tables, err)
	}
}

// Load leaves an empty database after a failure, and refuses one that has data or another schema.
func TestLoad(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			url := "sqlite:" + t.TempDir() + "/loaded.db"
			if e == db.Postgres {
				url = dbtest.EmptyURL(t)
			}
			insert := func(ctx context.Context, tx *db.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO accounts (id, email, password_hash, created_us)
					VALUES ('wac_1', 'a@example.com', 'h', 1)`)
				return err
			}
			broken := errors.New("broken")
			err := db.Load(t.Context(), url, 6, func(ctx context.Context, tx *db.Tx) error {
				return errors.Join(insert(ctx, tx), broken)
			})
			if !errors.Is(err, broken) {
				t.Errorf("a failure: %v", err)
			}
			if err := db.Load(t.Context(), url, 5, insert); !errors.Is(err, db.ErrNotEmpty) {
				t.Errorf("an earlier schema: %v", err)
			}
			if err := db.Load(t.Context(), url, 7, insert); err != nil {
				t.Errorf("after a failure: %v", err)
			}
			if err := db.Load(t.Context(), url, 7, insert); !errors.Is(err, db.ErrNotEmpty) {
				t.Errorf("a second time: %v", err)
			}
			if err := db.Load(t.Context(), url, 1_000_000, insert); err == nil {
				t.Error("an unknown schema is accepted")
			}
			other := dbtest.URL(t, e) // empty, and made by another text of a migration
			d := open(t, other)
			if _, err := d.ExecContext(t.Context(), `UPDATE migration_hashes SET sha256 = 'x'
				WHERE version = 3`); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if err := db.Load(t.Context(), other, 8, func(context.Context, *db.Tx) error {
				t.Error("rows are loaded into another schema")
				return nil
			}); err == nil {
				t.Error("another schema is accepted")
			}
		})
	}
}
