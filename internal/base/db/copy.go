package db

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// This file is about copies of a SQLite file: those that lack the log, and those on a file system that is read-only.

// markInUse writes into the file, not only into its log, that a server uses it: then a copy without the log shows
// that. The mark is user_version with the value of schema_version. SQLite's own ways to copy a database give the copy
// another schema_version, and include the log.
//
// The log of a file with the mark is never empty, whenever this process is killed, for an empty one may be what a
// program has made that read a copy without a log. So the log is emptied while the file has no mark, and then has the
// page with the mark alone: more room in it would hide a full disk for some calls.
func (d *DB) markInUse(ctx context.Context) error {
	if d.Engine != SQLite {
		return nil
	}
	var version, busy, pages, copied int64
	if err := d.write.QueryRowContext(ctx, `PRAGMA schema_version`).Scan(&version); err != nil {
		return err
	}
	if _, err := d.write.ExecContext(ctx, `PRAGMA user_version = 0`); err != nil {
		return err
	}
	err := d.write.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &copied)
	if err != nil {
		return err
	}
	if _, err := d.write.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, version)); err != nil {
		return err
	}
	return d.write.QueryRowContext(ctx, `PRAGMA wal_checkpoint(FULL)`).Scan(&busy, &pages, &copied)
}

// unmarkInUse removes the mark, before the log is copied into the file. Where the mark stays, as on a full disk, the
// log stays, too.
func (d *DB) unmarkInUse() error {
	if d.pinned == nil || d.wal.failure() != nil {
		return nil
	}
	select {
	case <-d.lost:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), CallerTimeout)
	defer cancel()
	if _, err := d.write.ExecContext(ctx, `PRAGMA user_version = 0`); err != nil {
		return d.keepLog()
	}
	return nil
}

// keepLog lets SQLite leave the log where it is when its last connection closes, which is that for writing. One that is
// still in use then is never closed.
func (d *DB) keepLog() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), CallerTimeout)
	defer cancel()
	conn, err := d.write.Conn(ctx)
	if err != nil {
		return nil // it is closed, or still in use, and then the log stays
	}
	defer func() { err = errors.Join(err, conn.Close()) }() // returns it to the pool
	return conn.Raw(func(driverConn any) error {
		c, ok := driverConn.(sqlite.FileControl)
		if !ok {
			return fmt.Errorf("connection of type %T", driverConn)
		}
		_, err := c.FileControlPersistWAL("main", 1)
		return err
	})
}

// LacksLog reports whether a SQLite file lacks its log, so that its newest rows are missing. It is for a database that
// OpenForAudit has opened.
func (d *DB) LacksLog() bool { return d.lacksLog }

// lacksLog reports whether the SQLite file at path says that a server uses it, and its log is not there or empty: the
// file was copied without the log, or the log was deleted. SQLite reads the file as immutable: else it would make a new
// log. An error is that of the first statement that matters.
func lacksLog(path string) bool {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 || hasLog(path) {
		return false
	}
	if isThere(path+"-journal") && hasJournal(path) {
		return true // AcceptLostLog was killed: its journal has the mark
	}
	d, err := sql.Open("sqlite", fileURL(path)+"?mode=ro&immutable=1&_dqs=0")
	if err != nil {
		return false
	}
	defer func() { _ = d.Close() }() // nothing was written
	var schemaVersion, mark int64
	if d.QueryRow(`PRAGMA schema_version`).Scan(&schemaVersion) != nil ||
		d.QueryRow(`PRAGMA user_version`).Scan(&mark) != nil {
		return false
	}
	return mark != 0 && mark == schemaVersion && !hasLog(path) // a server that has just started has one now
}

// ErrLostLog says that a SQLite file lacks its log.
var ErrLostLog = errors.New("its newest rows are missing: the file was copied from a running server without its log " +
	"(the file that ends in -wal), or the log was deleted")

func lostLogError(path string) error {
	return fmt.Errorf("database: %s: %w. Put the log back, or restore a backup. To go on without these rows: "+
		"purser db accept-loss --database sqlite:%[1]s", path, ErrLostLog)
}

func refuseLostLog(path string) error {
	if lacksLog(path) {
		return lostLogError(path)
	}
	return nil
}

// AcceptLostLog removes the mark of a SQLite file whose log is missing, so that it can be used without the rows of the
// log, and calls f in the same transaction. It reports whether the file lacked its log; one that does not stays as it
// is. The transaction has a rollback journal: it would else begin a log, and a kill would leave that without the
// transaction, so that the next start would take the file for whole.
func AcceptLostLog(ctx context.Context, url string, f func(context.Context, *Tx) error) (lacked bool, err error) {
	if isPostgres(url) {
		return false, errors.New("database: only a SQLite file has such a log")
	}
	path, err := sqlitePath(url)
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(path); err != nil {
		return false, fmt.Errorf("database: %w", err)
	}
	lock, _, err := takeLock(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, unlockFile(lock)) }()
	if !lacksLog(path) {
		return false, nil
	}
	if err := acceptLostLog(ctx, path, f); err != nil {
		return true, fmt.Errorf("database: %w", err)
	}
	return true, nil
}

// Where the header of a SQLite file says whether it has a rollback journal or a log.
const journalOffset = 18

var rollbackJournal = []byte{1, 1}

// hasJournal reports whether the SQLite file at path has a rollback journal, as only AcceptLostLog writes one. No
// connection of this process may have it open: to close the file ends their locks.
func hasJournal(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false // as of lacksLog
	}
	defer func() { _ = file.Close() }() // nothing was written
	have := make([]byte, len(rollbackJournal))
	_, err = file.ReadAt(have, journalOffset)
	return err == nil && bytes.Equal(have, rollbackJournal)
}

func acceptLostLog(ctx context.Context, path string, f func(context.Context, *Tx) error) (err error) {
	// SQLite would go on with the log if there is one, though it is empty.
	if err := os.Remove(path + "-wal"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(rollbackJournal, journalOffset) // until the next start
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	pool, err := sql.Open("sqlite", fileURL(path)+"?mode=rw&_txlock=immediate&_dqs=0&_pragma=synchronous(full)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	d := &DB{Engine: SQLite}
	err = d.runTx(ctx, conn, &sql.TxOptions{}, func(ctx context.Context, tx *Tx) error {
		if err := f(ctx, tx); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `PRAGMA user_version = 0`)
		return err
	})
	return errors.Join(err, conn.Close())
}

// loseLog ends the use of a file after a failure of its log. Of a log that is not at its path any more it first copies
// what it can into the file.
func (d *DB) loseLog(failure error) {
	if !errors.Is(failure, os.ErrNotExist) && !errors.Is(failure, errLogReplaced) {
		d.lose(failure)
		return
	}
	d.logGone.Store(true)
	if err := d.RescueLog(); err != nil {
		d.lose(fmt.Errorf("%w; not all of it is in %s: %w", failure, d.path, err))
		return
	}
	d.lose(fmt.Errorf("%w; all that was committed is in %s", failure, d.path))
}

// errHeldLog says that the log could not be copied because somebody reads an older state.
var errHeldLog = errors.New("a transaction that reads or writes holds a part of the log")

// RescueLog copies a log that was deleted or replaced while it is in use into the file, by a connection that still has
// it open, and then removes the mark of the file. If that fails the mark stays, and no later start takes the file for
// whole. It does nothing else, and nothing after it has succeeded.
func (d *DB) RescueLog() error {
	if !d.logGone.Load() || d.pinned == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*CallerTimeout)
	defer cancel()
	if err := checkpointAll(ctx, d.pinned); err != nil {
		return err
	}
	for _, statement := range []string{`PRAGMA query_only = 0`, `PRAGMA user_version = 0`} {
		if _, err := d.pinned.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if err := checkpointAll(ctx, d.pinned); err != nil {
		return err
	}
	d.logGone.Store(false)
	return nil
}

// checkpointAll copies the whole log into the file, and syncs the file.
func checkpointAll(ctx context.Context, c *sql.Conn) error {
	var busy, pages, copied int64
	if err := c.QueryRowContext(ctx, `PRAGMA wal_checkpoint(FULL)`).Scan(&busy, &pages, &copied); err != nil {
		return err
	}
	if busy != 0 || copied != pages {
		return errHeldLog
	}
	return nil
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
