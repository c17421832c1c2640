package db

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var embedded embed.FS

// migrations are those of this binary. Only a test has others.
var migrations fs.FS = embedded

// prepare applies the missing migrations at target and installs the append-only triggers.
func (d *DB) prepare(ctx context.Context, target string) error {
	if err := d.refusePooler(ctx); err != nil {
		return err
	}
	pool, closePool, err := d.migrationPool(target)
	if err != nil {
		return err
	}
	err = d.Engine.runAlone(ctx, pool, func() error { return d.migrate(ctx, pool) })
	if IsLocked(err) {
		err = fmt.Errorf("another transaction uses a table that the migration changes, such as that of a backup or of "+
			"ledger verify; pg_stat_activity shows it: %w", err)
	}
	if err := errors.Join(err, closePool()); err != nil {
		return err
	}
	if err := d.pin(ctx); err != nil {
		return err
	}
	if err := d.markInUse(ctx); err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		return err
	}
	return d.StartClock(ctx)
}

// pin opens a connection to a SQLite file that stays open, so that SQLite never deletes the log.
func (d *DB) pin(ctx context.Context) (err error) {
	if d.Engine != SQLite {
		return nil
	}
	if d.pinned, err = d.read.Conn(ctx); err != nil {
		return err
	}
	var version int64
	return d.pinned.QueryRowContext(ctx, `SELECT MAX(version_id) FROM goose_db_version`).Scan(&version)
}

func (d *DB) migrate(ctx context.Context, pool *sql.DB) error {
	p, err := goose.NewProvider(d.Engine.dialect(), pool, engineFS{d.Engine}, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	version, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	if err := refuseNewerSchema(version); err != nil {
		return err
	}
	newest, err := newestSchema()
	if err != nil {
		return err
	}
	if err := d.applyMigrations(ctx, pool, p, version, newest); err != nil {
		return err
	}
	if err := d.createTriggers(ctx, pool); err != nil {
		return fmt.Errorf("create the append-only triggers: %w", err)
	}
	return d.ensureFirstYears(ctx, pool)
}

// createTriggers creates the append-only triggers that are missing. They are counted first, because CREATE TRIGGER
// locks the ledger of running nodes.
func (d *DB) createTriggers(ctx context.Context, pool *sql.DB) error {
	var triggers int
	if err := pool.QueryRowContext(ctx, d.Engine.countTriggers()).Scan(&triggers); err != nil {
		return err
	}
	statements := d.Engine.createTriggers()
	if triggers >= len(statements) {
		statements = nil
	}
	if d.Engine == Postgres {
		partitions, err := QueryAll(ctx, pool, ScanColumn[string], d.Engine.listUnguarded())
		if err != nil {
			return err
		}
		for _, partition := range partitions {
			statements = append(statements, d.Engine.createTruncateTriggers("ledger", partition)...)
		}
	}
	for _, statement := range statements {
		if _, err := pool.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// ensureFirstYears creates the partitions of this year and the next. A node that cannot, because a backup reads the
// tables for example, starts all the same: the daily job tries again, and rows of no partition have the default one.
func (d *DB) ensureFirstYears(ctx context.Context, pool *sql.DB) error {
	if d.Engine != Postgres {
		return nil
	}
	var year int
	err := pool.QueryRowContext(ctx, `SELECT extract(year FROM clock_timestamp() AT TIME ZONE 'UTC')::int`).Scan(&year)
	if err != nil {
		return err
	}
	err = ensureYears(ctx, pool, year)
	if IsLocked(err) {
		return nil
	}
	return err
}

// SchemaHash identifies the schema that Open brings a database to: its migrations and its triggers.
func (e Engine) SchemaHash() (string, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, name := range names {
		text, err := fs.ReadFile(engineFS{e}, path.Base(name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(text), text)
	}
	for _, statement := range e.createTriggers() {
		fmt.Fprintf(h, "%d\n%s", len(statement), statement)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// refuseNewerSchema refuses a database that a later version of Purser has migrated: rows that this binary
// writes without knowing a column could be wrong for the later one (decision 051).
func refuseNewerSchema(version int64) error {
	newest, err := newestSchema()
	if err != nil {
		return err
	}
	if version > newest {
		return fmt.Errorf("its schema has version %d, and this purser knows versions up to %d: "+
			"use the purser that wrote it, a newer one or one from before 0.1.0", version, newest)
	}
	return nil
}

// newestSchema returns the version of the last migration.
func newestSchema() (int64, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql") // sorted
	if err != nil {
		return 0, err
	}
	return goose.NumericComponent(names[len(names)-1])
}

// engineFS holds the migrations as an engine runs them: lines "-- sqlite: …" and "-- postgres: …" are
// statements for that engine, and comments for the other.
type engineFS struct{ engine Engine }

// Open implements fs.FS.
func (f engineFS) Open(name string) (fs.File, error) {
	file, err := migrations.Open(path.Join("migrations", name))
	if err != nil || path.Ext(name) != ".sql" {
		return file, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	text = bytes.ReplaceAll(text, []byte("\n-- "+string(f.engine)+": "), []byte("\n"))
	return engineFile{file, bytes.NewReader(text)}, nil
}

// engineFile is a migration with its text as the engine runs it.
type engineFile struct {
	fs.File
	text io.Reader
}

// Read implements fs.File.
func (f engineFile) Read(b []byte) (int, error) { return f.text.Read(b) }
