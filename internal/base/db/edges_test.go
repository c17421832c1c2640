package db_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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
			INSERT INTO stripe_events (id, type, created_us)
			SELECT 'evt_' || i, CASE i % 2 WHEN 0 THEN 'x' ELSE 'y' END, i FROM n`); err != nil {
			t.Fatal(err)
		}
		var keys []string // where each slice begins
		d.Trace(func(_ string, args []any) { keys = append(keys, fmt.Sprint(args[1:]...)) })
		n, err := d.DeleteSlices(ctx, "stripe_events", `created_us <= $1`, "type, created_us", 2500)
		d.Trace(nil)
		if err != nil || n != 2500 || count() != 100 {
			t.Errorf("%d rows deleted, %v; %d are left", n, err, count())
		}
		isOfY := func(key string) bool { return strings.HasPrefix(key, "y") }
		if len(keys) < 13 || keys[0] != "" || keys[1] != "x400" || !slices.ContainsFunc(keys, isOfY) {
			t.Errorf("the slices began at %q", keys)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if n, err := d.DeleteSlices(ended, "stripe_events", `created_us > $1`, "created_us", 0); n != 0 ||
			!errors.Is(err, db.ErrUnfinished) {
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
			d.RelaxLimits(12)
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

// TestLogRescued deletes or replaces the log of an open SQLite file: what was committed is in the file then, without
// the log. While a snapshot holds a part of the log it cannot be copied, and no start takes the file for whole.
func TestLogRescued(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name            string
		replace, reader bool
	}{{name: "deleted"}, {name: "replaced", replace: true}, {name: "held", reader: true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			target := dbtest.URL(t, db.SQLite)
			path := strings.TrimPrefix(target, "sqlite:")
			d, err := db.Open(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			d.RelaxLimits(12)
			defer d.Close()
			write := func(value string) {
				t.Helper()
				if _, err := d.ExecContext(t.Context(),
					`INSERT INTO settings (name, value) VALUES ('x', $1) ON CONFLICT (name) DO UPDATE SET value = $1`,
					value); err != nil {
					t.Fatal(err)
				}
			}
			write("1")
			lose := func(ctx context.Context, tx *db.Tx) error {
				var value string
				if tx != nil { // the snapshot begins with its first read
					err := tx.QueryRowContext(ctx, `SELECT value FROM settings WHERE name = 'x'`).Scan(&value)
					if err != nil {
						return err
					}
				}
				write("2")
				if err := os.Remove(path + "-wal"); err != nil {
					return err
				}
				if tt.replace {
					if err := os.WriteFile(path+"-wal", nil, 0o600); err != nil {
						return err
					}
				}
				return d.CheckFile(ctx)
			}
			if tt.reader {
				err = d.InSnapshot(t.Context(), lose)
			} else {
				err = lose(t.Context(), nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			<-d.Lost()
			if got := strings.Contains(d.LostReason().Error(), "all that was committed is in"); got == tt.reader {
				t.Errorf("lost because %v", d.LostReason())
			}
			copied := copyTo(t, t.TempDir(), target, "")
			after, err := db.Open(t.Context(), copied)
			if tt.reader {
				if !errors.Is(err, db.ErrLostLog) {
					t.Fatalf("a file that lacks rows opens: %v", err)
				}
				if err := d.RescueLog(); err != nil { // the snapshot has ended
					t.Fatal(err)
				}
				copied = copyTo(t, t.TempDir(), target, "")
				after, err = db.Open(t.Context(), copied)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer after.Close()
			var value string
			if err := after.QueryRowContext(t.Context(),
				`SELECT value FROM settings WHERE name = 'x'`).Scan(&value); err != nil || value != "2" {
				t.Errorf("the file has %q, %v", value, err)
			}
		})
	}
}

// TestFileCut cuts an open SQLite file: its process ends. A file that VACUUM has made smaller is whole.
func TestFileCut(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		target := dbtest.URL(t, db.SQLite)
		path := strings.TrimPrefix(target, "sqlite:")
		d, err := db.Open(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		d.RelaxLimits(12)
		defer d.Close()
		run := func(statements ...string) {
			t.Helper()
			conn, err := d.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, statement := range statements {
				if _, err := conn.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
		}
		run(`CREATE TABLE big (x)`, `INSERT INTO big VALUES (zeroblob(1000000))`, `PRAGMA wal_checkpoint(TRUNCATE)`)
		if err := d.CheckFile(t.Context()); err != nil {
			t.Fatal(err)
		}
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if cut {
			if err := os.Truncate(path, before.Size()/2/4096*4096); err != nil {
				t.Fatal(err)
			}
		} else {
			run(`DROP TABLE big`, `VACUUM`, `PRAGMA wal_checkpoint(TRUNCATE)`)
		}
		if now, err := os.Stat(path); err != nil || now.Size() >= before.Size() {
			t.Fatalf("the file did not shrink: %v", err)
		}
		if err := d.CheckFile(t.Context()); err != nil {
			t.Error(err)
		}
		lost := false
		select {
		case <-d.Lost():
			lost = true
		default:
		}
		if lost != cut {
			t.Errorf("cut %t: lost %t, %v", cut, lost, d.LostReason())
		}
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
	d.RelaxLimits(12)
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

// emptyLog makes an empty log beside a file, as a program does that reads it and may not delete the log at its end.
func emptyLog(t *testing.T, target string) string {
	t.Helper()
	if err := os.WriteFile(strings.TrimPrefix(target, "sqlite:")+"-wal", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return target
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
	d.RelaxLimits(12)
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
		"the running file":  target,
		"with its log":      copyTo(t, t.TempDir(), target, "", "-wal"),
		"without its log":   copyTo(t, t.TempDir(), target, ""),
		"with an empty one": emptyLog(t, copyTo(t, t.TempDir(), target, "")),
		"VACUUM INTO":       "sqlite:" + vacuumed,
	}
	check := func(name, at string) {
		t.Helper()
		lacks := name == "without its log" || name == "with an empty one"
		for range 2 { // the first look leaves no log
			c, err := db.OpenForAudit(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			if c.LacksLog() != lacks {
				t.Errorf("%s: lacks its log %t", name, c.LacksLog())
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		c, err := db.OpenReadOnly(t.Context(), at)
		if err == nil {
			defer c.Close()
		}
		if errors.Is(err, db.ErrLostLog) != lacks || err != nil && !lacks {
			t.Errorf("%s: %v", name, err)
		}
		if !lacks {
			return
		}
		for range 2 {
			if _, err := db.Open(t.Context(), at); !errors.Is(err, db.ErrLostLog) {
				t.Errorf("%s: a start: %v", name, err)
			}
		}
		if _, err := db.Inspect(t.Context(), at); !errors.Is(err, db.ErrLostLog) {
			t.Errorf("%s: a look: %v", name, err)
		}
		refuse := errors.New("the caller's rows are refused")
		for _, f := range []error{refuse, nil} {
			lacked, err := db.AcceptLostLog(t.Context(), at, func(context.Context, *db.Tx) error {
				if _, err := db.Open(t.Context(), at); err == nil || errors.Is(err, db.ErrLostLog) {
					t.Errorf("%s: a start meanwhile: %v", name, err)
				}
				return f
			})
			if !lacked || !errors.Is(err, f) {
				t.Fatalf("%s: lacked %t, %v", name, lacked, err)
			}
			if _, err := db.Inspect(t.Context(), at); errors.Is(err, db.ErrLostLog) != (f != nil) {
				t.Errorf("%s: after %v a look: %v", name, f, err)
			}
		}
		accepted, err := db.Open(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		accepted.RelaxLimits(12)
		if err := accepted.Close(); err != nil {
			t.Error(err)
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
