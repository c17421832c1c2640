// Package db opens the database: an embedded SQLite file, or PostgreSQL 15 and later. Every SQL statement of Purser
// is one text that both accept ($1, ON CONFLICT, RETURNING, no now(); decision 052); engine.go holds the differences.
// Reads have their own pool, so that a handler which reads inside a transaction always gets a connection. Writes go
// through InTx.
package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// DB is an open database. It is safe for concurrent use.
type DB struct {
	Engine Engine
	read   *sql.DB

	poolSize int        // PostgreSQL: connections of each of the two pools
	stmts    *stmtCache // SQLite: frequent reads, prepared
	write    *sql.DB    // nil if the database is open for reading only
	lock     *os.File   // SQLite: locked while this process owns the file
	wal      *wal       // SQLite: makes commits durable
	clock    clock
	offset   atomic.Int64 // PostgreSQL: the database's clock minus ours, in nanoseconds
	lag      atomic.Int64 // how far Now is set back, in nanoseconds; 0 except in tests and while sample history is made

	discarding  atomic.Bool // discardIdle runs
	fullMu      sync.Mutex
	full        *time.Timer   // ends the pause of isFull; nil: pools open connections
	limitFactor time.Duration // how many times longer its time limits are

	pinned    *sql.Conn     // SQLite: a reader that is open for as long as the database
	path      string        // SQLite: of the file
	temporary string        // SQLite: the folder of a copy, which Close removes
	diskAt    atomic.Int64  // SQLite: when the room on the disk was looked at, Unix nanoseconds
	diskLow   atomic.Bool   // SQLite: whether it was low
	logGone   atomic.Bool   // SQLite: the log is not at its path, and was not copied into the file
	lacksLog  bool          // SQLite: the log of the file that is open for reading is missing
	opened    os.FileInfo   // SQLite: the file that was opened
	largest   atomic.Int64  // SQLite: the largest size in bytes that CheckFile has seen of it
	lost      chan struct{} // SQLite: closed when the file is lost
	ending    sync.Once     // closes lost
	reason    error         // why it was closed

	connStateOnce sync.Once
	connState     any

	trace    tracer // see Trace and Fail
	turnOnce sync.Once
	turn     chan struct{} // has one element while a slice of a job's work runs; see InTurn
}

// WriteConnState returns the state that the ledger keeps with the one write connection of a SQLite database. The
// first call creates it; only the holder of the connection may use it.
func (d *DB) WriteConnState(create func() any) any {
	d.connStateOnce.Do(func() { d.connState = create() })
	return d.connState
}

// Queryer runs reads: a *DB, or a *Tx.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Execer runs single writes: a *DB, or a *Tx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Tx is a transaction of InTx or InSnapshot, which also end it.
type Tx struct {
	*sql.Tx
	Engine Engine
	conn   *sql.Conn
	trace  tracer
}

// QueryContext runs a read.
func (tx *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	ctx = tx.trace.see(ctx, query, args)
	return tx.Tx.QueryContext(ctx, query, args...)
}

// QueryRowContext runs a read of one row.
func (tx *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	ctx = tx.trace.see(ctx, query, args)
	return tx.Tx.QueryRowContext(ctx, query, args...)
}

// ExecContext runs a write.
func (tx *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	ctx = tx.trace.see(ctx, query, args)
	return tx.Tx.ExecContext(ctx, query, args...)
}

// Trace calls f with each statement before it runs, until the database is closed, but with those of Raw. It is for
// tests, which ask how the statements are answered. It must be called before any statement.
func (d *DB) Trace(f func(query string, args []any)) {
	if d.trace = nil; f != nil {
		d.trace = func(query string, args []any) bool { f(query, args); return false }
	}
}

// Fail lets each statement fail for which f returns true, but those of Raw. It is for tests, as Trace is, whose place
// it takes.
func (d *DB) Fail(f func(query string, args []any) bool) { d.trace = f }

// A tracer is told each statement before it runs, and says whether it fails. nil is none.
type tracer func(query string, args []any) (fails bool)

// see tells a statement, and returns the context that it runs with.
func (t tracer) see(ctx context.Context, query string, args []any) context.Context {
	if t == nil || !t(query, args) {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// Raw calls f with the driver's connection that the transaction runs on: a driver.Conn on SQLite, a *stdlib.Conn on
// PostgreSQL. Statements that f runs there are part of the transaction.
func (tx *Tx) Raw(f func(driverConn any) error) error { return tx.conn.Raw(f) }

// errReadOnly is the error of a write to a database that is open for reading only.
var errReadOnly = errors.New("database: open for reading only")

// Open opens the database at url ("sqlite:PATH" or "postgres://…") and applies missing migrations. Several processes
// may open one PostgreSQL database. A SQLite file belongs to one process: the error for a second one names the file.
// IsLocked is true of the error if a migration waits for another transaction: try again.
func Open(ctx context.Context, url string) (*DB, error) {
	d, err := open(url)
	if err != nil {
		return nil, err
	}
	d.limitFactor = time.Duration(limitFactor.Load())
	if err := d.prepare(ctx, url); err != nil {
		return nil, errors.Join(fmt.Errorf("database: %w", err), d.Close())
	}
	return d, nil
}

// OpenReadOnly opens the database at url for reading, also while a server runs on it, or a copy of a SQLite file. It
// changes nothing and does not migrate. A SQLite file whose log is missing is an error.
func OpenReadOnly(ctx context.Context, url string) (*DB, error) {
	d, err := OpenForAudit(ctx, url)
	if err == nil && d.lacksLog {
		return nil, errors.Join(lostLogError(d.path), d.Close())
	}
	return d, err
}

// OpenForAudit is OpenReadOnly that also opens a SQLite file whose log is missing, for LacksLog.
func OpenForAudit(ctx context.Context, url string) (*DB, error) {
	d, err := openReadOnly(url)
	if err != nil {
		return nil, err
	}
	d.limitFactor = time.Duration(limitFactor.Load())
	version, err := SchemaVersion(ctx, d)
	if d.Engine == SQLite && isReadOnlyPlace(err) {
		if err := d.Close(); err != nil {
			return nil, err
		}
		if d, err = openReadOnlyPlace(d.path); err != nil {
			return nil, err
		}
		version, err = SchemaVersion(ctx, d)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("database: no Purser database can be read there: %w", err), d.Close())
	}
	if err := refuseNewerSchema(version); err != nil {
		return nil, errors.Join(fmt.Errorf("database: %w", err), d.Close())
	}
	return d, nil
}

// Lost returns a channel that is closed when a SQLite file cannot be used until restart: a sync has failed, its log is
// gone, or another file is in its place. LostReason tells which.
func (d *DB) Lost() <-chan struct{} { return d.lost }

// LostReason returns why Lost was closed.
func (d *DB) LostReason() error { return d.reason }

func (d *DB) lose(reason error) {
	d.ending.Do(func() {
		d.reason = fmt.Errorf("%w; this process must end, and a restart reads what the disk has", reason)
		close(d.lost)
	})
}

// LogSize returns how many bytes the log of a SQLite file has. It is copied into the file, and begins anew, only when
// nobody reads a state from before: it grows for as long as an audit or a backup reads. 0 = there is none.
func (d *DB) LogSize() int64 {
	if d.wal == nil {
		return 0
	}
	info, err := os.Stat(d.wal.path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// CheckFile notices a SQLite file that was deleted, replaced or cut while it is open, or whose log was: what is written
// then reaches no file that a restart would find.
func (d *DB) CheckFile(ctx context.Context) error {
	if d.opened == nil {
		return nil
	}
	d.wal.check()
	current, err := os.Stat(d.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		d.lose(fmt.Errorf("database: %s was deleted while in use", d.path))
	case err != nil:
		return fmt.Errorf("database: %w", err)
	case !os.SameFile(current, d.opened):
		d.lose(fmt.Errorf("database: %s was replaced by another file while in use", d.path))
	case current.Size() < d.largest.Load():
		return d.checkSize(ctx, current.Size())
	default:
		d.largest.Store(current.Size())
	}
	return nil
}

// checkSize tells a file that was cut from one that another program has made smaller by VACUUM: that one has all the
// pages that SQLite expects.
func (d *DB) checkSize(ctx context.Context, size int64) error {
	var pages, pageSize int64
	err := d.read.QueryRowContext(ctx, `PRAGMA page_size`).Scan(&pageSize)
	if err == nil {
		err = d.read.QueryRowContext(ctx, `PRAGMA page_count`).Scan(&pages)
	}
	if err != nil && !IsDamaged(err) {
		return fmt.Errorf("database: %w", err)
	}
	if err != nil || size < pages*pageSize {
		d.lose(fmt.Errorf("database: %s was cut to %d bytes while in use: restore a backup", d.path, size))
	}
	return nil
}

// CheckPages looks for damaged pages of a SQLite file, and returns what it finds first.
func (d *DB) CheckPages(ctx context.Context) error {
	if d.Engine != SQLite {
		return nil
	}
	var finding string
	if err := d.read.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&finding); err != nil {
		return fmt.Errorf("database: check the file: %w", err)
	}
	if finding != "ok" {
		return fmt.Errorf("%w: %s: %s", errDamaged, d.path, finding)
	}
	return nil
}

// Close closes the database and releases the lock of a SQLite file. A second call does nothing.
func (d *DB) Close() error {
	errs := []error{d.unmarkInUse()}
	if d.pinned != nil {
		if err := d.pinned.Close(); !errors.Is(err, sql.ErrConnDone) {
			errs = append(errs, err)
		}
	}
	for _, pool := range []*sql.DB{d.read, d.write} {
		if pool != nil {
			errs = append(errs, pool.Close())
		}
	}
	if d.temporary != "" {
		errs = append(errs, os.RemoveAll(d.temporary))
	}
	if d.wal != nil {
		d.wal.mu.Lock()
		errs = append(errs, d.wal.close())
		d.wal.mu.Unlock()
	}
	return errors.Join(append(errs, unlockFile(d.lock))...)
}

// QueryContext runs a read. On PostgreSQL it and the reading of its rows take at most CallerTimeout, unless ctx is
// that of a job.
func (d *DB) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	ctx = d.trace.see(ctx, query, args)
	if s := d.stmts.lookup(ctx, query); s != nil {
		return s.QueryContext(ctx, args...)
	}
	ctx = d.limitRead(ctx)
	rows, err := d.read.QueryContext(ctx, query, args...)
	for d.isFull(ctx, d.read, err) {
		rows, err = d.read.QueryContext(ctx, query, args...)
	}
	d.NoteError(err)
	return rows, err
}

// QueryRowContext runs a read of one row, as QueryContext does.
func (d *DB) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	ctx = d.trace.see(ctx, query, args)
	if s := d.stmts.lookup(ctx, query); s != nil {
		return s.QueryRowContext(ctx, args...)
	}
	ctx = d.limitRead(ctx)
	row := d.read.QueryRowContext(ctx, query, args...)
	for d.isFull(ctx, d.read, row.Err()) {
		row = d.read.QueryRowContext(ctx, query, args...)
	}
	d.NoteError(row.Err())
	return row
}

// CheckReadable returns nil if the database answers a read.
func (d *DB) CheckReadable(ctx context.Context) error {
	var one int
	return d.QueryRowContext(ctx, `SELECT 1`).Scan(&one)
}

// CallerTimeout is how long a caller waits for the database at most (decision 050).
const CallerTimeout = 5 * time.Second

// jobTxTimeout is how long a transaction of a job takes at most, with its retries.
const jobTxTimeout = 20 * time.Second

// limitFactor is how many times longer the time limits of databases are that are opened; 0 is 1.
var limitFactor atomic.Int64

// RelaxLimits makes the time limits of databases that are opened later longer by a factor. Tests call it that ask
// nothing about a slow database, so that a starved machine does not turn them red.
func RelaxLimits(factor int) { limitFactor.Store(int64(factor)) }

// RelaxLimits does it for one database, before it is used.
func (d *DB) RelaxLimits(factor int) { d.limitFactor = time.Duration(factor) }

// Limit returns a time limit of what waits for this database: t, but in tests.
func (d *DB) Limit(t time.Duration) time.Duration { return t * max(d.limitFactor, 1) }

// jobKey is the key of a context value: the context is that of a job.
type jobKey struct{}

// ForJob returns ctx for work that no caller waits for. Its own deadline limits it, not CallerTimeout.
func ForJob(ctx context.Context) context.Context { return context.WithValue(ctx, jobKey{}, true) }

func isJob(ctx context.Context) bool { return ctx.Value(jobKey{}) != nil }

// limitRead bounds a read of PostgreSQL that a caller waits for, also the wait for a connection. On SQLite a read waits
// for no other machine.
func (d *DB) limitRead(ctx context.Context) context.Context {
	if d.Engine != Postgres || isJob(ctx) {
		return ctx
	}
	ctx, cancel := context.WithTimeout(ctx, d.Limit(CallerTimeout))
	context.AfterFunc(ctx, cancel) // the rows outlive this call
	return ctx
}

// ExecContext runs one write in its own transaction.
func (d *DB) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := d.checkWritable(); err != nil {
		return nil, err
	}
	ctx = d.trace.see(ctx, query, args)
	if !isJob(ctx) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Limit(CallerTimeout))
		defer cancel()
	}
	res, err := d.write.ExecContext(ctx, query, args...)
	for d.isFull(ctx, d.write, err) {
		res, err = d.write.ExecContext(ctx, query, args...)
	}
	if err != nil {
		d.NoteError(err)
		return nil, err
	}
	return res, d.Sync()
}

// Conn returns a connection for writing, for the ledger's batches. On SQLite it is the only one, so Close it soon, and
// its commits are durable after Sync.
func (d *DB) Conn(ctx context.Context) (*sql.Conn, error) {
	if err := d.checkWritable(); err != nil {
		return nil, err
	}
	conn, err := d.write.Conn(ctx)
	for d.isFull(ctx, d.write, err) {
		conn, err = d.write.Conn(ctx)
	}
	return conn, err
}

func (d *DB) checkWritable() error {
	switch {
	case d.write == nil:
		return errReadOnly
	case d.wal != nil:
		return d.wal.failure()
	}
	return nil
}

const maxTxAttempts = 10 // of a transaction that loses conflicts

// InTx runs f in a write transaction, commits if f returns nil, and rolls back on an error or a panic. It runs f again
// if the transaction lost a conflict (SQLSTATE 40001 or 40P01), so f must have no effects but on tx. After the last
// attempt it returns the conflict, for which IsUnavailable is true. All of it takes at most CallerTimeout, unless ctx
// is that of a job.
func (d *DB) InTx(ctx context.Context, f func(ctx context.Context, tx *Tx) error) (err error) {
	limit := CallerTimeout
	if isJob(ctx) {
		limit = jobTxTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, d.Limit(limit))
	defer cancel()
	defer func() { d.NoteError(err) }()
	for n := range maxTxAttempts {
		if err = d.tryTx(ctx, f); err == nil {
			return d.Sync() // the connection is released, so other transactions run meanwhile
		} else if !isConflict(err) {
			return err
		}
		select {
		case <-time.After(rand.N(time.Millisecond << n)):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

func (d *DB) tryTx(ctx context.Context, f func(context.Context, *Tx) error) error {
	conn, err := d.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // returns it to the pool; errors were reported before
	return d.runTx(ctx, conn, &sql.TxOptions{}, f)
}

// InSnapshot runs f in a read-only transaction that sees one state of the whole database.
func (d *DB) InSnapshot(ctx context.Context, f func(ctx context.Context, tx *Tx) error) error {
	conn, err := d.read.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return d.runTx(ctx, conn, &sql.TxOptions{Isolation: d.Engine.snapshotIsolation(), ReadOnly: true}, f)
}

// runTx runs f in a transaction on conn.
func (d *DB) runTx(ctx context.Context, conn *sql.Conn, o *sql.TxOptions, f func(context.Context, *Tx) error) error {
	tx, err := conn.BeginTx(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit; an error of f matters more than one of Rollback
	if err = f(ctx, &Tx{Tx: tx, Engine: d.Engine, conn: conn, trace: d.trace}); err == nil {
		err = tx.Commit()
	}
	if errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil { // database/sql has rolled it back when ctx ended
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}
