package db

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

const addSession = `INSERT INTO sessions (token_hash, data, expires_us) VALUES ($1, $2, 0)`

// TestCommitsWaitForTheDisk shows that InTx and ExecContext return after a sync that began after their commit.
func TestCommitsWaitForTheDisk(t *testing.T) {
	t.Parallel()
	d, err := Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "purser.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	committed := -1
	d.wal.fdatasync = func(f *os.File) error {
		if err := d.QueryRowContext(context.Background(),
			`SELECT COUNT(*) FROM sessions`).Scan(&committed); err != nil {
			t.Error(err)
		}
		return fdatasync(f)
	}
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *Tx) error {
		_, err := tx.ExecContext(ctx, addSession, "1", []byte{0})
		return err
	}); err != nil || committed != 1 {
		t.Errorf("InTx: %d rows were there at the sync, %v", committed, err)
	}
	if _, err := d.ExecContext(t.Context(), addSession, "2", []byte{0}); err != nil || committed != 2 {
		t.Errorf("ExecContext: %d rows were there at the sync, %v", committed, err)
	}
}

// TestSyncFails shows that nothing is written after a failed sync: what the disk holds is not known, and a second
// sync that succeeds would not prove that the first commits are there.
func TestSyncFails(t *testing.T) {
	t.Parallel()
	d, err := Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "purser.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	broken, syncs := errors.New("I/O error"), 0
	d.wal.fdatasync = func(*os.File) error {
		if syncs++; syncs == 1 {
			return broken
		}
		return nil
	}
	for range 2 {
		_, err := d.ExecContext(t.Context(), addSession, "1", []byte{0})
		if !errors.Is(err, broken) || !IsUnavailable(err) {
			t.Errorf("ExecContext: %v", err)
		}
	}
	err = d.InTx(t.Context(), func(context.Context, *Tx) error {
		t.Error("a transaction began")
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("InTx: %v", err)
	}
	if _, err := d.Conn(t.Context()); !errors.Is(err, broken) {
		t.Errorf("Conn: %v", err)
	}
	if err := d.Sync(); !errors.Is(err, broken) || syncs != 1 {
		t.Errorf("Sync: %v, after %d syncs", err, syncs)
	}
}

// TestReplacedLog replaces the log: a sync of either file would not make the commits durable.
func TestReplacedLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	var synced os.FileInfo
	l := &wal{path: path, onFailure: func(error) {}, fdatasync: func(f *os.File) (err error) {
		synced, err = f.Stat()
		return errors.Join(err, fdatasync(f))
	}}
	defer func() { _ = l.close() }()
	if err := l.sync(); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a log that is not there: %v", err)
	}
	l.failed.Store(nil)
	for i, name := range []string{path, path, path + "2"} {
		if i != 1 {
			if err := os.WriteFile(name, []byte{0}, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(name, path); err != nil {
				t.Fatal(err)
			}
		}
		err := l.sync()
		if i == 2 {
			if !errors.Is(err, errLogReplaced) || !errors.Is(l.failure(), errLogReplaced) {
				t.Errorf("a replaced log: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if now, err := os.Stat(path); err != nil || !os.SameFile(now, synced) {
			t.Errorf("sync %d was of another file (%v)", i, err)
		}
	}
}
