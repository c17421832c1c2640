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

// wal makes the commits of a SQLite file durable. SQLite commits with
// synchronous=NORMAL, which writes the log and syncs it before a checkpoint only;
// whoever needs a commit to survive a power cut calls sync after it. So the next
// transaction runs while the last one is on its way to the disk, and one sync
// serves all that were committed before it.
//
// It has a descriptor of its own for the log. SQLite's locks are on the file
// itself and on its -shm: those must never be opened here, because closing any
// descriptor of theirs would drop the locks.
type wal struct {
	path   string
	flush  func(*os.File) error  // replaced in tests
	asked  atomic.Int64          // how often sync was called
	failed atomic.Pointer[error] // since then nothing is known

	mu     sync.Mutex // held while the disk works
	served int64      // calls of sync that are answered
	file   *os.File
}

// sync returns when everything that was committed before is on the disk. After a
// failure nobody knows what is there, even if a later sync succeeds (the kernel
// forgets what it could not write), so the failure is answered until restart.
func (l *wal) sync() error {
	n := l.asked.Add(1)
	l.mu.Lock() // who waits here is likely served by the one before
	defer l.mu.Unlock()
	if err := l.state(); err != nil || l.served >= n {
		return err
	}
	upto := l.asked.Load()
	if err := l.once(); err != nil {
		err = fmt.Errorf("%w: %w", errNotDurable, err)
		l.failed.Store(&err)
		return err
	}
	l.served = upto
	return nil
}

// once syncs the log that is at the path now. SQLite may have deleted the one
// that we know, after a checkpoint that made all of it durable, and begun another.
func (l *wal) once() error {
	now, err := os.Stat(l.path)
	if err != nil {
		return err
	}
	if l.file != nil {
		known, err := l.file.Stat()
		if err != nil {
			return err
		}
		if !os.SameFile(now, known) {
			if err := l.close(); err != nil {
				return err
			}
		}
	}
	if l.file == nil {
		if l.file, err = os.Open(l.path); err != nil {
			return err
		}
	}
	return l.flush(l.file)
}

// state returns the failure of an earlier sync.
func (l *wal) state() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// close is called with mu held.
func (l *wal) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// Sync returns when everything that was committed before, by anybody, is on the
// disk. Only the connection of Conn needs it, and only on SQLite: transactions of
// InTx and ExecContext have done it, and PostgreSQL does it as it commits.
func (d *DB) Sync() error {
	if d.wal == nil {
		return nil
	}
	return d.wal.sync()
}
