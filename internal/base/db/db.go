// Package db opens the store: an embedded SQLite file, or PostgreSQL 15 and
// later. Every statement of Purser is one text that both read ($1, ON CONFLICT,
// RETURNING, no now()); engine.go holds what differs. Reads go to a pool of
// their own, so that a handler which reads while it holds a transaction can
// never starve for a connection; writes go through InTx.
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

// DB is an open store. It is safe for concurrent use.
type DB struct {
	Engine Engine
	read   *sql.DB
	texts  *texts       // SQLite: of reads that come often
	write  *sql.DB      // nil when the store is open for reading only
	lock   *os.File     // SQLite: held while this process owns the file
	wal    *wal         // SQLite: makes commits durable
	offset atomic.Int64 // PostgreSQL: the database's clock minus ours, in nanoseconds

	besideOnce sync.Once
	beside     any
}

// Beside returns what the ledger keeps beside the one write connection of a
// SQLite store, made once: whoever has the connection has that too.
func (d *DB) Beside(make func() any) any {
	d.besideOnce.Do(func() { d.beside = make() })
	return d.beside
}

// Queryer is what reads need: a *DB, or a *Tx.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Execer is what a single write needs: a *DB, or a *Tx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Tx is a transaction of InTx or Snapshot, which also end it.
type Tx struct {
	*sql.Tx
	Engine Engine
	conn   *sql.Conn
}

// Raw gives f the driver's connection that the transaction runs on: a
// driver.Conn on SQLite, a *stdlib.Conn on PostgreSQL. What f does there is part
// of the transaction.
func (tx *Tx) Raw(f func(driverConn any) error) error { return tx.conn.Raw(f) }

// errReadOnly answers a write on a store that is open for reading only.
var errReadOnly = errors.New("database: open for reading only")

// Open opens the store at url ("sqlite:PATH" or "postgres://…") and brings its
// schema up to date. Several processes may open one PostgreSQL at once; a SQLite
// file belongs to one process, and the error for a second one names the file.
func Open(ctx context.Context, url string) (*DB, error) {
	d, err := open(url)
	if err != nil {
		return nil, err
	}
	if err := d.prepare(ctx, url); err != nil {
		return nil, errors.Join(fmt.Errorf("database: %w", err), d.Close())
	}
	return d, nil
}

// OpenReadOnly opens the store at url to look at it, beside a running server or
// on a copy of the file. It changes nothing and does not migrate.
func OpenReadOnly(ctx context.Context, url string) (*DB, error) {
	d, err := openReadOnly(url)
	if err != nil {
		return nil, err
	}
	var version int64
	if err := d.QueryRowContext(ctx, `SELECT MAX(version_id) FROM goose_db_version`).Scan(&version); err != nil {
		return nil, errors.Join(fmt.Errorf("database: no Purser database can be read there: %w", err), d.Close())
	}
	if err := refuseNewerSchema(version); err != nil {
		return nil, errors.Join(fmt.Errorf("database: %w", err), d.Close())
	}
	return d, nil
}

// Close closes the store and gives the file free. A second Close does nothing.
func (d *DB) Close() error {
	var errs []error
	for _, pool := range []*sql.DB{d.read, d.write} {
		if pool != nil {
			errs = append(errs, pool.Close())
		}
	}
	if d.wal != nil {
		d.wal.mu.Lock()
		errs = append(errs, d.wal.close())
		d.wal.mu.Unlock()
	}
	if d.lock != nil {
		if err := d.lock.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// QueryContext reads.
func (d *DB) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if s := d.texts.find(ctx, query); s != nil {
		return s.QueryContext(ctx, args...)
	}
	return d.read.QueryContext(ctx, query, args...)
}

// QueryRowContext reads one row.
func (d *DB) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if s := d.texts.find(ctx, query); s != nil {
		return s.QueryRowContext(ctx, args...)
	}
	return d.read.QueryRowContext(ctx, query, args...)
}

// ExecContext runs one writing statement, a transaction of its own.
func (d *DB) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := d.writable(); err != nil {
		return nil, err
	}
	res, err := d.write.ExecContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return res, d.Sync()
}

// Conn returns a connection for writing, for the ledger's batches. On SQLite it
// is the only one: Close it soon; and what it commits is durable after Sync.
func (d *DB) Conn(ctx context.Context) (*sql.Conn, error) {
	if err := d.writable(); err != nil {
		return nil, err
	}
	return d.write.Conn(ctx)
}

func (d *DB) writable() error {
	switch {
	case d.write == nil:
		return errReadOnly
	case d.wal != nil:
		return d.wal.state()
	}
	return nil
}

const (
	attempts  = 10               // how often InTx runs a transaction that loses conflicts
	txTimeout = 20 * time.Second // how long a transaction and its retries may take
)

// InTx runs f in a write transaction and commits it if f returns nil; on an error
// or a panic it rolls back. f runs again when the transaction lost a conflict
// (40001, 40P01), so it must have no other effects than on tx. After the last
// attempt the conflict is returned, and IsUnavailable.
func (d *DB) InTx(ctx context.Context, f func(ctx context.Context, tx *Tx) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	for n := range attempts {
		if err = d.once(ctx, f); err == nil {
			return d.Sync() // without the connection, which others may use meanwhile
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

func (d *DB) once(ctx context.Context, f func(context.Context, *Tx) error) error {
	conn, err := d.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // gives it back: what failed, failed before
	return within(ctx, conn, &sql.TxOptions{}, d.Engine, f)
}

// Snapshot runs f in a transaction that only reads and sees one unchanging state
// of the whole store.
func (d *DB) Snapshot(ctx context.Context, f func(ctx context.Context, tx *Tx) error) error {
	conn, err := d.read.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return within(ctx, conn, &sql.TxOptions{Isolation: d.Engine.snapshot(), ReadOnly: true}, d.Engine, f)
}

// within runs f in a transaction of conn.
func within(ctx context.Context, conn *sql.Conn, o *sql.TxOptions, e Engine, f func(context.Context, *Tx) error) error {
	tx, err := conn.BeginTx(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit; after an error or a panic, that counts
	if err := f(ctx, &Tx{tx, e, conn}); err != nil {
		return err
	}
	return tx.Commit()
}

// Now is the time by which money moves: on PostgreSQL the database's clock as
// last sampled by SyncClock, so that all nodes agree on it.
func (d *DB) Now() time.Time { return time.Now().Add(d.ClockOffset()) }

// ClockOffset is the database's clock minus ours, as last sampled.
func (d *DB) ClockOffset() time.Duration { return time.Duration(d.offset.Load()) }

// SyncClock samples the database's clock. On SQLite ours is the only one.
func (d *DB) SyncClock(ctx context.Context) error {
	if d.Engine != Postgres {
		return nil
	}
	best := time.Duration(-1)
	for range 3 { // the fastest answer says it best: it is off by half its time at most
		var there time.Time
		before := time.Now()
		if err := d.QueryRowContext(ctx, `SELECT clock_timestamp()`).Scan(&there); err != nil {
			return fmt.Errorf("sample the database's clock: %w", err)
		}
		if took := time.Since(before); best < 0 || took < best {
			best = took
			d.offset.Store(int64(there.Sub(before.Add(took / 2))))
		}
	}
	return nil
}
