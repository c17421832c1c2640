package db

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// errNotDurable says that a commit may not have reached the disk.
var errNotDurable = errors.New("database: the disk does not take what is written")

// wal makes the commits of a SQLite file durable (group commit). With synchronous=NORMAL, SQLite writes commits to
// its write-ahead log and syncs the log only before a checkpoint. A commit survives a power cut once sync has
// returned after it. So the next transaction runs while the last one is being written to the disk, and one sync
// serves all commits before it.
//
// wal opens the log with a file descriptor of its own. SQLite's locks are on the database file and on its -shm file:
// those must never be opened here, because closing any descriptor of them would drop the locks.
type wal struct {
	path      string
	fdatasync func(*os.File) error  // replaced in tests
	requested atomic.Int64          // calls of sync
	failed    atomic.Pointer[error] // the first failure, which lasts until restart
	onFailure func(error)           // is told of it

	mu     sync.Mutex // held during a sync
	served int64      // calls of sync that a finished sync has served
	file   *os.File
}

// sync returns when everything that was committed before is on the disk. After a failure it is not known what is
// there, even if a later sync succeeds (the kernel forgets pages that it could not write), so every later call
// returns the failure until restart.
func (l *wal) sync() error {
	n := l.requested.Add(1)
	l.mu.Lock() // a call that waits here is usually served by the sync before
	defer l.mu.Unlock()
	if err := l.failure(); err != nil || l.served >= n {
		return err
	}
	upTo := l.requested.Load()
	if err := l.syncFile(); err != nil {
		return l.fail(err)
	}
	l.served = upTo
	return nil
}

// fail stores the first failure, which ends the use of the file. The caller holds mu.
func (l *wal) fail(err error) error {
	err = fmt.Errorf("%w: %w", errNotDurable, err)
	l.failed.Store(&err)
	l.onFailure(err)
	return err
}

// check fails the log if it is not at its path any more, as the next sync would: a node that is idle syncs nothing.
func (l *wal) check() {
	if !l.mu.TryLock() { // a sync runs, which looks itself
		return
	}
	defer l.mu.Unlock()
	if l.file == nil || l.failure() != nil {
		return
	}
	if err := l.comparePlace(); err != nil {
		_ = l.fail(err) // every later sync returns it
	}
}

// errLogReplaced says that another file is in the place of the log. SQLite itself deletes the log only when its last
// connection closes, and DB.pinned is open.
var errLogReplaced = errors.New("its log was replaced by another file")

// syncFile syncs the log. What was written to a log that is not at its path any more is lost: nothing reads it after a
// restart.
func (l *wal) syncFile() error {
	if l.file == nil {
		file, err := openLog(l.path)
		if err != nil {
			return err
		}
		l.file = file
	}
	if err := l.comparePlace(); err != nil {
		return err
	}
	return l.fdatasync(l.file)
}

// comparePlace returns an error if the log that is open is not at its path.
func (l *wal) comparePlace() error {
	current, err := os.Stat(l.path)
	if err != nil {
		return err
	}
	opened, err := l.file.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(current, opened) {
		return errLogReplaced
	}
	return nil
}

// failure returns the failure of an earlier sync.
func (l *wal) failure() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// close closes the log. The caller holds mu.
func (l *wal) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// Sync returns when every transaction that was committed before is on the disk. Only users of Conn call it, and it
// matters only on SQLite: InTx and ExecContext call it themselves, and PostgreSQL syncs at each commit.
func (d *DB) Sync() error {
	if d.wal == nil {
		return nil
	}
	return d.wal.sync()
}
