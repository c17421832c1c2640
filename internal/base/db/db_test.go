package db_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestParametersBindByNumber guards against a driver that binds by position, which would exchange amounts.
func TestParametersBindByNumber(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var got string
		const query = `SELECT CAST($2 AS TEXT) || CAST($1 AS TEXT) || CAST($2 AS TEXT)`
		err := d.QueryRowContext(t.Context(), query, "a", "b").Scan(&got)
		if err != nil || got != "bab" {
			t.Fatalf("SELECT $2 || $1 || $2 of a, b = %q, %v", got, err)
		}
	})
}

func TestInTxCommitsOrLeavesNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		failure := errors.New("no")
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return save(ctx, tx, "kept")
		}); err != nil {
			t.Fatal(err)
		}
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return errors.Join(save(ctx, tx, "failed"), failure)
		})
		if !errors.Is(err, failure) {
			t.Errorf("InTx returned %v", err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is lost")
				}
			}()
			_ = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if err := save(ctx, tx, "panicked"); err != nil {
					t.Error(err)
				}
				panic("no")
			})
		}()
		if got := saved(t, d); got != "kept" {
			t.Errorf("saved: %s", got)
		}
	})
}

// TestReadsDoNotWaitForTheWriter reads inside an open transaction.
func TestReadsDoNotWaitForTheWriter(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if err := save(ctx, tx, "new"); err != nil {
				return err
			}
			if got := saved(t, d); got != "" {
				t.Errorf("uncommitted, and already read: %s", got)
			}
			return nil
		})
		if got := saved(t, d); err != nil || got != "new" {
			t.Errorf("saved: %s, %v", got, err)
		}
	})
}

// TestInTxRetriesDeadlocks lets two transactions lock the same rows in opposite order: both commit.
func TestInTxRetriesDeadlocks(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.Postgres)
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return errors.Join(save(ctx, tx, "a"), save(ctx, tx, "b"))
	}); err != nil {
		t.Fatal(err)
	}
	var runs int
	var mu sync.Mutex
	var both sync.WaitGroup
	both.Add(2)
	lockBoth := func(first, second string) error {
		met := sync.OnceFunc(func() { both.Done(); both.Wait() }) // only in the first run
		return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			mu.Lock()
			runs++
			mu.Unlock()
			const lock = `UPDATE sessions SET expires_us = expires_us + 1 WHERE token_hash = $1`
			if _, err := tx.ExecContext(ctx, lock, first); err != nil {
				return err
			}
			met()
			_, err := tx.ExecContext(ctx, lock, second)
			return err
		})
	}
	var g errgroup.Group
	g.Go(func() error { return lockBoth("a", "b") })
	g.Go(func() error { return lockBoth("b", "a") })
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	var sum int
	err := d.QueryRowContext(t.Context(), `SELECT SUM(expires_us) FROM sessions`).Scan(&sum)
	if err != nil || sum != 4 {
		t.Errorf("sum %d, %v", sum, err)
	}
	if runs < 3 {
		t.Errorf("%d runs: nothing was retried", runs)
	}
}

func TestSnapshotSeesOneState(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		err := d.InSnapshot(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			before := saved(t, tx)
			if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				return save(ctx, tx, "later")
			}); err != nil {
				return err
			}
			if after := saved(t, tx); before != "" || after != "" {
				t.Errorf("saw %q, then %q", before, after)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		err = d.InSnapshot(t.Context(), func(ctx context.Context, tx *db.Tx) error { return save(ctx, tx, "written") })
		if err == nil || saved(t, d) != "later" {
			t.Errorf("a snapshot wrote: %v", err)
		}
	})
}

func TestReadOnlyBesideAServer(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			target := dbtest.URL(t, e)
			server := open(t, target)
			auditor, err := db.OpenReadOnly(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = auditor.Close() })
			write := func(ctx context.Context, tx *db.Tx) error { return save(ctx, tx, "x") }
			if err := server.InTx(t.Context(), write); err != nil {
				t.Fatal(err)
			}
			if got := saved(t, auditor); got != "x" {
				t.Errorf("the auditor reads %q", got)
			}
			if err := auditor.InTx(t.Context(), write); err == nil {
				t.Error("InTx of a read-only database works")
			}
			if rows, err := auditor.QueryContext(t.Context(), `DELETE FROM sessions RETURNING token_hash`); err == nil {
				_ = rows.Next()
				if rows.Err() == nil {
					t.Error("a read-only database deletes")
				}
				_ = rows.Close()
			}
			if got := saved(t, server); got != "x" {
				t.Errorf("after the auditor: %q", got)
			}
		})
	}
}

func TestReadOnlyNeedsADatabase(t *testing.T) {
	t.Parallel()
	noise := filepath.Join(t.TempDir(), "noise")
	if err := os.WriteFile(noise, []byte(strings.Repeat("noise", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	absent := filepath.Join(t.TempDir(), "absent.db")
	for _, path := range []string{noise, absent, t.TempDir()} {
		d, err := db.OpenReadOnly(t.Context(), "sqlite:"+path)
		if err == nil {
			_ = d.Close()
			t.Errorf("%s opened", path)
		}
	}
	if _, err := os.Stat(absent); err == nil {
		t.Error("looking for a file made it")
	}
}

// TestReadOnlyOnACopy reads a copy of a live SQLite file with its log.
func TestReadOnlyOnACopy(t *testing.T) {
	t.Parallel()
	target := dbtest.URL(t, db.SQLite)
	d := open(t, target)
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return save(ctx, tx, "x")
	}); err != nil {
		t.Fatal(err)
	}
	path, folder := strings.TrimPrefix(target, "sqlite:"), t.TempDir()
	for _, suffix := range []string{"", "-wal"} {
		text, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "copy"+suffix), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	auditor, err := db.OpenReadOnly(t.Context(), "sqlite:"+filepath.Join(folder, "copy"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = auditor.Close() })
	if got := saved(t, auditor); got != "x" {
		t.Errorf("read %q", got)
	}
}

// A log without its file has what was acknowledged last. No command takes the place for new, and the log stays.
func TestRemainsOfAFile(t *testing.T) {
	t.Parallel()
	target := dbtest.URL(t, db.SQLite)
	d := open(t, target)
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return save(ctx, tx, "x")
	}); err != nil {
		t.Fatal(err)
	}
	copyOf := filepath.Join(t.TempDir(), "copy")
	killed := "sqlite:" + copyOf
	for _, suffix := range []string{"-wal", ".lock", ""} { // as a kill leaves them
		text, err := os.ReadFile(strings.TrimPrefix(target, "sqlite:") + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copyOf+suffix, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(remains string) {
		t.Helper()
		_, writes := db.Open(t.Context(), killed)
		_, reads := db.OpenReadOnly(t.Context(), killed)
		_, looks := db.Inspect(t.Context(), killed)
		_, loads := db.TakePlace(copyOf)
		for _, err := range []error{writes, reads, looks} {
			if err == nil || !strings.Contains(err.Error(), remains) {
				t.Errorf("%s: %v", remains, err)
			}
		}
		if remains != ".lock is" && loads == nil {
			t.Error("a restore would mix two databases")
		}
	}
	for _, name := range []string{"aside", "empty"} {
		if err := os.Rename(copyOf, copyOf+".aside"); err != nil {
			t.Fatal(err)
		}
		if name == "empty" {
			if err := os.WriteFile(copyOf, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Open(t.Context(), killed); err == nil || !strings.Contains(err.Error(), "-wal is") {
				t.Error(err)
			}
		} else {
			refused("-wal is")
		}
		if err := os.Rename(copyOf+".aside", copyOf); err != nil {
			t.Fatal(err)
		}
	}
	back := open(t, killed)
	if got := saved(t, back); got != "x" {
		t.Errorf("read %q", got)
	}
	if err := back.Close(); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(copyOf + suffix) // some may not be there
	}
	refused(".lock is")
	if err := os.Remove(copyOf + ".lock"); err != nil {
		t.Fatal(err)
	}
	open(t, killed) // is asked for now
}

// While a file is restored to a place nothing else can use it, and no file is replaced.
func TestPlace(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "new", "purser.db")
	p, err := db.TakePlace(file)
	if err != nil {
		t.Fatal(err)
	}
	_, second := db.TakePlace(file)
	_, node := db.Open(t.Context(), "sqlite:"+file)
	for _, err := range []error{second, node} {
		if err == nil || !strings.Contains(err.Error(), "in use") {
			t.Error(err)
		}
	}
	for _, name := range []string{file, file + ".draft"} {
		if err := os.WriteFile(name, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Fill(file + ".draft"); err == nil {
		t.Error("a file was replaced")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != file {
		t.Errorf("%s, %v", text, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := p.Leave(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file + ".lock"); err == nil {
		t.Error("a lock without a file would refuse the next start")
	}
	if p, err = db.TakePlace(file); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Fill(file+".draft"), p.Leave()); err != nil {
		t.Error(err)
	}
	if _, err := db.TakePlace(file); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Error(err)
	}
}

func TestOneServerPerFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path, link := filepath.Join(folder, "purser.db"), filepath.Join(folder, "link.db")
	first := open(t, "sqlite:"+path)
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link} {
		second, err := db.Open(t.Context(), "sqlite:"+name)
		if err == nil {
			_ = second.Close()
			t.Fatalf("two servers on %s", name)
		}
		if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "in use") {
			t.Errorf("the error says neither which file nor why: %v", err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, "sqlite:"+path)
}

func TestSQLitePaths(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"plain.db", "new folder/a b.db", "what?mode=memory#x.db", "100%41é.db",
		"a&b=c+d;e.db", "co:lon"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), name)
			d := open(t, "sqlite:"+path)
			if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return save(ctx, tx, "x")
			}); err != nil {
				t.Fatal(err)
			}
			if got := saved(t, d); got != "x" {
				t.Errorf("the reader has another file: %q", got)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() == 0 || info.Mode().Perm() != 0o600 {
				t.Errorf("%d bytes, mode %v", info.Size(), info.Mode())
			}
			auditor, err := db.OpenReadOnly(t.Context(), "sqlite:"+path)
			if err != nil {
				t.Fatal(err)
			}
			if got := saved(t, auditor); got != "x" {
				t.Errorf("the auditor has another file: %q", got)
			}
			if err := auditor.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestURLsThatNameNoStore(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"", "purser.db", "sqlite:", "sqlite::memory:", "sqlite://purser.db",
		"mysql://u:hunter2@h/d", "postgres://u:hunter2@h:port/d", "sqlite:/dev/null/x"} {
		d, err := db.Open(t.Context(), target)
		if err == nil {
			_ = d.Close()
			t.Errorf("%q opened", target)
			continue
		}
		if !strings.HasPrefix(err.Error(), "database: ") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", target, err)
		}
	}
}

// TestNodesStartAtOnce starts six nodes together on an empty database.
func TestNodesStartAtOnce(t *testing.T) {
	t.Parallel()
	target := dbtest.URL(t, db.Postgres)
	d := open(t, target)
	if _, err := d.ExecContext(t.Context(), `DROP SCHEMA public CASCADE; CREATE SCHEMA public`); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	var g errgroup.Group
	for range 6 {
		g.Go(func() error {
			d, err := db.Open(t.Context(), target)
			if err != nil {
				return err
			}
			return d.Close()
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := saved(t, open(t, target)); got != "" {
		t.Errorf("saved: %s", got)
	}
}

func TestTheLedgerIsAppendOnly(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			target := dbtest.URL(t, e)
			d := open(t, target)
			const row = `INSERT INTO ledger (id, account_id, seq, type, status,
					available_delta_mc, reserved_delta_mc, allocation_delta_mc, consumed_delta_mc, created_us, hash)
				VALUES ('led_1', 'acc_1', 1, 'topup', 'settled', 0, 0, 0, 0, 0, 'x')`
			const record = `INSERT INTO payment_records (payment_id, n, kind, account_id, amount_mc, entry_id,
					created_us)
				VALUES ('top_1', 1, 'opened', 'acc_1', 1, 'led_1', 0)`
			for _, text := range []string{row, record} {
				if _, err := d.ExecContext(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			changes := []string{
				`UPDATE ledger SET reason = 'x'`, `DELETE FROM ledger`,
				row + ` ON CONFLICT (id) DO UPDATE SET hash = 'y'`,
				`UPDATE payment_records SET reason = 'x'`, `DELETE FROM payment_records`,
			}
			if e == db.Postgres {
				changes = append(changes, `TRUNCATE ledger`, `TRUNCATE payment_records`)
			}
			refused := func(d *db.DB) {
				t.Helper()
				for _, text := range changes {
					if _, err := d.ExecContext(t.Context(), text); err == nil ||
						!strings.Contains(err.Error(), "append-only") {
						t.Errorf("%s: %v", text, err)
					}
				}
			}
			refused(d)
			drop := map[db.Engine]string{
				db.SQLite: `DROP TRIGGER ledger_no_delete`,
				db.Postgres: `ALTER TABLE ledger DISABLE TRIGGER ledger_no_truncate;
					DROP TRIGGER ledger_no_change ON ledger`,
			}
			if _, err := d.ExecContext(t.Context(), drop[e]); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			refused(open(t, target)) // the next start puts the guards back
		})
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if err := d.SyncClock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if off := d.ClockOffset().Abs(); off > time.Second { // one machine, one clock
			t.Errorf("the database's clock is off by %v", off)
		}
		if d.Engine == db.SQLite && d.ClockOffset() != 0 {
			t.Error("SQLite has a clock of its own")
		}
		if gap := time.Until(d.Now()).Abs(); gap > time.Second+d.ClockOffset().Abs() {
			t.Errorf("Now is %v away", gap)
		}
	})
}

func open(t *testing.T, target string) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func save(ctx context.Context, tx *db.Tx, name string) error {
	const insert = `INSERT INTO sessions (token_hash, data, expires_us) VALUES ($1, $2, 0)`
	_, err := tx.ExecContext(ctx, insert, name, []byte{0})
	return err
}

// saved returns the names that save has saved.
func saved(t *testing.T, q db.Queryer) string {
	t.Helper()
	rows, err := q.QueryContext(t.Context(), `SELECT token_hash FROM sessions ORDER BY token_hash`)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer func() { _ = rows.Close() }()
	var names []string
	for rows.Next() {
		var name sql.NullString
		if err := rows.Scan(&name); err != nil {
			t.Error(err)
		}
		names = append(names, name.String)
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
	return strings.Join(names, " ")
}
