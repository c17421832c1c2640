package db_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestDeleteSlices deletes more rows than fit one transaction, and no other ones. A purge that
// has no time left has deleted some.
func TestDeleteSlices(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		count := func() (rows int) {
			t.Helper()
			if err := d.QueryRowContext(ctx, `SELECT COUNT(*) FROM stripe_events`).Scan(&rows); err != nil {
				t.Fatal(err)
			}
			return rows
		}
		if _, err := d.ExecContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2600)
			INSERT INTO stripe_events (id, type, created_us) SELECT 'evt_' || i, 'x', i FROM n`); err != nil {
			t.Fatal(err)
		}
		n, err := d.DeleteSlices(ctx, "stripe_events", `created_us <= $1`, 2500)
		if err != nil || n != 2500 || count() != 100 {
			t.Errorf("%d rows deleted, %v; %d are left", n, err, count())
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if n, err := d.DeleteSlices(ended, "stripe_events", `created_us > $1`, 0); n != 0 || err != nil {
			t.Errorf("a purge without time: %d rows, %v", n, err)
		}
	})
}

// TestFileLost deletes or replaces the file or the log of an open SQLite database: the database says that the process
// must end.
func TestFileLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		lose func(path string) error
		want string
	}{
		{"deleted", os.Remove, "was deleted while in use"},
		{"replaced", func(path string) error {
			if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}, "was replaced by another file while in use"},
		{"its log deleted", func(path string) error { return os.Remove(path + "-wal") }, "the disk does not take"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			target := dbtest.URL(t, db.SQLite)
			d, err := db.Open(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			write := func() error {
				_, err := d.ExecContext(t.Context(), `UPDATE nodes SET lease_us = 0`)
				return err
			}
			if err := write(); err != nil {
				t.Fatal(err)
			}
			if err := tt.lose(strings.TrimPrefix(target, "sqlite:")); err != nil {
				t.Fatal(err)
			}
			_ = write() // it finds that the log is lost
			if err := d.CheckFile(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-d.Lost()
			if err := d.LostReason(); !strings.Contains(err.Error(), tt.want) {
				t.Errorf("lost because %v", err)
			}
		})
	}
}

// TestDamagedPage overwrites a page of a SQLite file.
func TestDamagedPage(t *testing.T) {
	t.Parallel()
	target := dbtest.URL(t, db.SQLite)
	path := strings.TrimPrefix(target, "sqlite:")
	d, err := db.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.CheckPages(t.Context()); err != nil {
		t.Errorf("a good file: %v", err)
	}
	_, err = d.ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2600)
		INSERT INTO stripe_events (id, type, created_us) SELECT 'evt_' || i, 'x', i FROM n`)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(strings.Repeat("?", 8192)), info.Size()-8192); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err = db.Open(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.CheckPages(t.Context()); !db.IsDamaged(err) {
		t.Errorf("a damaged file: %v", err)
	}
}

// copyTo copies a database file, with its log or without, and returns the copy's URL.
func copyTo(t *testing.T, folder, target string, suffixes ...string) string {
	t.Helper()
	for _, suffix := range suffixes {
		text, err := os.ReadFile(strings.TrimPrefix(target, "sqlite:") + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(folder+"/copy"+suffix, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "sqlite:" + folder + "/copy"
}

// TestCopyWithoutLog copies the file of a running server in several ways: only the copy that
// lacks the log is noticed.
func TestCopyWithoutLog(t *testing.T) {
	t.Parallel()
	target := dbtest.URL(t, db.SQLite)
	d, err := db.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.ExecContext(t.Context(), `UPDATE nodes SET lease_us = 0`); err != nil {
		t.Fatal(err)
	}
	vacuumed := t.TempDir() + "/copy"
	conn, err := d.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.ExecContext(t.Context(), `VACUUM INTO '`+vacuumed+`'`)
	if err := errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	copies := map[string]string{
		"the running file": target,
		"with its log":     copyTo(t, t.TempDir(), target, "", "-wal"),
		"without its log":  copyTo(t, t.TempDir(), target, ""),
		"VACUUM INTO":      "sqlite:" + vacuumed,
	}
	check := func(name, at string) {
		t.Helper()
		c, err := db.OpenReadOnly(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if lacks, err := c.LacksLog(t.Context()); err != nil || lacks != (name == "without its log") {
			t.Errorf("%s: lacks its log %t, %v", name, lacks, err)
		}
	}
	for name, at := range copies {
		check(name, at)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	check("closed", copyTo(t, t.TempDir(), target, ""))
}
