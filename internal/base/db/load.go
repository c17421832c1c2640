package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"

	"github.com/pressly/goose/v3"
)

// This file is about copies of all rows: what a backup reads, and how a restore fills a new database.

// changedTable finds the tables that a migration creates or drops on both engines.
var changedTable = regexp.MustCompile(`(?m)^(CREATE|DROP) TABLE (?:IF NOT EXISTS )?([a-z_]+)`)

// Tables returns the tables of a version of the schema in the order in which the migrations create them, so that a
// table comes after those that it refers to.
func Tables(version int64) (tables []string, err error) {
	names, err := fs.Glob(migrations, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		n, err := goose.NumericComponent(name)
		if err != nil {
			return nil, err
		}
		if n > version {
			break
		}
		text, err := fs.ReadFile(migrations, path.Join("migrations", path.Base(name)))
		if err != nil {
			return nil, err
		}
		for _, m := range changedTable.FindAllStringSubmatch(string(text), -1) {
			if m[1] == "CREATE" {
				tables = append(tables, m[2])
			} else {
				tables = slices.DeleteFunc(tables, func(table string) bool { return table == m[2] })
			}
		}
	}
	return tables, nil
}

// SchemaVersion returns the version of a database's schema.
func SchemaVersion(ctx context.Context, q Queryer) (version int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT MAX(version_id) FROM goose_db_version`).Scan(&version)
	return version, err
}

// ErrNotEmpty says that Load found accounts or ledger rows.
var ErrNotEmpty = errors.New("database: it has data already, and must be empty")

// Load creates the schema of a version in the database at url, calls f to fill it in one transaction, and applies the
// later migrations. The database must be empty: without the schema, or with that version of it and without accounts
// and ledger rows. A Load that was killed may have left an earlier version, from which it goes on. Load deletes the
// rows that the migrations insert before it calls f. After an error the database is still empty. No time limit applies
// but that of ctx.
func Load(ctx context.Context, url string, version int64, f func(ctx context.Context, tx *Tx) error) (err error) {
	if err := refuseNewerSchema(version); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	d, err := open(url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	pool, closePool, err := d.migrationPool(url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePool()) }()
	err = d.Engine.runAlone(ctx, pool, func() error { return d.load(ctx, pool, version, f) })
	if err != nil && !errors.Is(err, ErrNotEmpty) {
		return fmt.Errorf("database: %w", err)
	}
	return err
}

func (d *DB) load(ctx context.Context, pool *sql.DB, version int64, f func(context.Context, *Tx) error) error {
	if err := d.checkEmpty(ctx, pool, version); err != nil {
		return err
	}
	p, err := goose.NewProvider(d.Engine.dialect(), pool, engineFS{d.Engine}, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	if err := d.applyMigrations(ctx, pool, p, have, version); err != nil {
		return err
	}
	if err := d.ensureFirstYears(ctx, pool); err != nil {
		return err
	}
	tables, err := Tables(version)
	if err != nil {
		return err
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	err = d.runTx(ctx, conn, &sql.TxOptions{}, func(ctx context.Context, tx *Tx) error {
		if d.Engine == SQLite { // rows of one table may refer to each other
			if _, err := tx.ExecContext(ctx, `PRAGMA defer_foreign_keys = 1`); err != nil {
				return err
			}
		}
		for _, table := range slices.Backward(tables) {
			if err := clearTable(ctx, tx, table); err != nil {
				return err
			}
		}
		return f(ctx, tx)
	})
	if err := errors.Join(err, conn.Close()); err != nil { // SQLite has one connection for writing
		return err
	}
	if err := d.migrate(ctx, pool); err != nil || d.Engine != Postgres {
		return err
	}
	_, err = pool.ExecContext(ctx, `ANALYZE`) // the planner knows nothing of a new table
	return err
}

// checkEmpty returns an error unless Load may fill the database.
func (d *DB) checkEmpty(ctx context.Context, pool *sql.DB, version int64) error {
	var schemas int
	if err := pool.QueryRowContext(ctx, d.Engine.countSchemaTables()).Scan(&schemas); err != nil || schemas == 0 {
		return err
	}
	var have int64
	err := pool.QueryRowContext(ctx, `SELECT MAX(version_id) FROM goose_db_version`).Scan(&have)
	if err != nil {
		return err
	}
	if have == 0 {
		return nil // a migration was interrupted before its first step
	}
	if have > version {
		return fmt.Errorf("%w: its schema has version %d, and the rows are of version %d", ErrNotEmpty, have, version)
	}
	tables, err := Tables(have)
	if err != nil {
		return err
	}
	for _, table := range []string{"accounts", "ledger"} {
		if !slices.Contains(tables, table) {
			continue
		}
		if has, err := hasRows(ctx, pool, table); err != nil {
			return err
		} else if has {
			return ErrNotEmpty
		}
	}
	return nil
}

func hasRows(ctx context.Context, q Queryer, table string) (has bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM `+table+`)`).Scan(&has)
	return has, err
}

// clearTable deletes the rows of a table, if it has any: some tables refuse every DELETE.
func clearTable(ctx context.Context, tx *Tx, table string) error {
	if has, err := hasRows(ctx, tx, table); err != nil || !has {
		return err
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM `+table)
	return err
}
