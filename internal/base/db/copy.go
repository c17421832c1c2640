package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	sqlite3 "modernc.org/sqlite/lib"
)

// This file is about copies of a SQLite file: those that lack the log, and those on a file system that is read-only.

// markInUse writes into the file, not only into its log, that a server uses it: then a copy without the log shows
// that. The mark is user_version with the value of schema_version. SQLite's own ways to copy a database give the copy
// another schema_version, and include the log.
func (d *DB) markInUse(ctx context.Context) error {
	if d.Engine != SQLite {
		return nil
	}
	var version, busy, pages, copied int64
	if err := d.write.QueryRowContext(ctx, `PRAGMA schema_version`).Scan(&version); err != nil {
		return err
	}
	if _, err := d.write.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, version)); err != nil {
		return err
	}
	// TRUNCATE leaves no room in the log that would hide a full disk for some calls.
	return d.write.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &copied)
}

// unmarkInUse removes the mark, before the log is copied into the file. A mark that stays does no harm: the log stays,
// too.
func (d *DB) unmarkInUse() {
	if d.pinned == nil || d.wal.failure() != nil {
		return
	}
	select {
	case <-d.lost:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), CallerTimeout)
	defer cancel()
	_, _ = d.write.ExecContext(ctx, `PRAGMA user_version = 0`)
}

// LacksLog reports whether a SQLite file was copied from a running server without its log, so that its newest rows are
// missing. It is for a database that OpenReadOnly has opened.
func (d *DB) LacksLog(ctx context.Context) (bool, error) {
	if d.Engine != SQLite || d.hadLog {
		return false, nil
	}
	var schemaVersion, mark int64
	if err := d.read.QueryRowContext(ctx, `PRAGMA schema_version`).Scan(&schemaVersion); err != nil {
		return false, err
	}
	if err := d.read.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&mark); err != nil {
		return false, err
	}
	return mark != 0 && mark == schemaVersion, nil
}

// hasLog reports whether there is something in the log of a file.
func hasLog(path string) bool {
	info, err := os.Stat(path + "-wal")
	return err == nil && info.Size() > 0
}

// isReadOnlyPlace reports whether a read failed because SQLite cannot make its files beside the database.
func isReadOnlyPlace(err error) bool {
	c := sqliteCode(err) & 0xff
	return c == sqlite3.SQLITE_CANTOPEN || c == sqlite3.SQLITE_READONLY
}

// openReadOnlyPlace opens the file at path on a file system that is read-only. Without a log the file is read as it is;
// with one, both are copied to a temporary folder, which Close removes.
func openReadOnlyPlace(path string) (*DB, error) {
	if !hasLog(path) {
		d, err := openSQLiteReadOnly(path, "&immutable=1")
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	folder, err := os.MkdirTemp("", "purser-copy-")
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	copied := filepath.Join(folder, "purser.db")
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(copied+suffix, path+suffix); err != nil {
			return nil, errors.Join(fmt.Errorf("database: %w", err), os.RemoveAll(folder))
		}
	}
	d, err := openSQLiteReadOnly(copied, "")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	d.temporary = folder
	return d, nil
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
