// Package db opens the store: an embedded SQLite file, or PostgreSQL 15. Every
// statement of Purser is one text that both read; engine.go holds all that
// differs. Reads go to a pool of their own; writes go through InTx.
package db

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// DB is an open store.
type DB struct {
	Engine Engine
	read   *sql.DB
	write  *sql.DB
	lock   *os.File     // SQLite: held while this process owns the file
	offset atomic.Int64 // PostgreSQL: the database's clock minus ours, in nanoseconds
}

// Queryer is what reads need: a DB, a Tx or a snapshot.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Tx is a write transaction. Raw reaches the driver's connection that it runs on.
type Tx struct {
	*sql.Tx
	Engine Engine
	conn   *sql.Conn
}

// Raw gives f the driver's connection of the transaction: a driver.Conn on
// SQLite, a *stdlib.Conn on PostgreSQL.
func (tx *Tx) Raw(f func(driverConn any) error) error { return tx.conn.Raw(f) }

// Open opens the store at url and brings its schema up to date.
func Open(ctx context.Context, url string) (*DB, error) {
	d, err := open(url, false)
	if err != nil {
		return nil, err
	}
	if err := d.prepare(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// OpenReadOnly opens the store at url to look at it, beside a running server or
// on a copy of the file. It changes nothing, and does not migrate.
func OpenReadOnly(ctx context.Context, url string) (*DB, error) {
	d, err := open(url, true)
	if err != nil {
		return nil, err
	}
	if err := d.read.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot read the database: %w", err), d.Close())
	}
	return d, nil
}

func (d *DB) prepare(ctx context.Context) error {
	if err := d.migrate(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	for _, text := range d.Engine.guards() {
		if _, err := d.write.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("guard the ledger: %w", err)
		}
	}
	return d.SyncClock(ctx)
}

// migrate lets one of several nodes that start at once do the work.
func (d *DB) migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if d.Engine == Postgres {
		locker, err := lock.NewPostgresTableLocker(lock.WithTableLockTimeout(100*time.Millisecond, 600))
		if err != nil {
			return err
		}
		options = append(options, goose.WithLocker(locker))
	}
	p, err := goose.NewProvider(d.Engine.dialect(), d.write, files, options...)
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// Close closes the store and gives the file free.
func (d *DB) Close() error {
	var errs []error
	for _, pool := range []*sql.DB{d.read, d.write} {
		if pool != nil {
			errs = append(errs, pool.Close())
		}
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	return errors.Join(errs...)
}

// QueryContext reads.
func (d *DB) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return d.read.QueryContext(ctx, query, args...)
}

// QueryRowContext reads one row.
func (d *DB) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return d.read.QueryRowContext(ctx, query, args...)
}

// ExecContext runs one writing statement.
func (d *DB) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return d.write.ExecContext(ctx, query, args...)
}

// Conn returns a connection for writing. On SQLite it is the only one: give it
// back soon.
func (d *DB) Conn(ctx context.Context) (*sql.Conn, error) { return d.write.Conn(ctx) }

// attempts bounds how often InTx runs a transaction that lost a conflict.
const attempts = 10

// InTx runs f in a write transaction and commits it if f returns nil. f may run
// again when the transaction lost a conflict, so it must have no other effects.
func (d *DB) InTx(ctx context.Context, f func(ctx context.Context, tx *Tx) error) (err error) {
	for n := range attempts {
		if err = d.inTx(ctx, f); !isConflict(err) {
			return err
		}
		select {
		case <-time.After(time.Duration(rand.Int64N(int64(time.Millisecond) << n))):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

func (d *DB) inTx(ctx context.Context, f func(context.Context, *Tx) error) (err error) {
	conn, err := d.write.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(ctx, &Tx{tx, d.Engine, conn}); err != nil {
		_ = tx.Rollback() // the first error counts
		return err
	}
	return tx.Commit()
}

// Snapshot gives f one unchanging view of the whole store.
func (d *DB) Snapshot(ctx context.Context, f func(Queryer) error) error {
	tx, err := d.read.BeginTx(ctx, &sql.TxOptions{Isolation: d.Engine.snapshot(), ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it only read
	return f(tx)
}

// Now is the time by which money moves: on PostgreSQL the database's clock, so
// that all nodes agree on it.
func (d *DB) Now() time.Time { return time.Now().Add(time.Duration(d.offset.Load())) }

// SyncClock samples the database's clock. On SQLite ours is the only one.
func (d *DB) SyncClock(ctx context.Context) error {
	if d.Engine != Postgres {
		return nil
	}
	before := time.Now()
	var there time.Time
	if err := d.read.QueryRowContext(ctx, `SELECT clock_timestamp()`).Scan(&there); err != nil {
		return err
	}
	after := time.Now()
	d.offset.Store(int64(there.Sub(before.Add(after.Sub(before) / 2))))
	return nil
}
