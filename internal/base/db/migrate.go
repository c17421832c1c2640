package db

import (
	"bytes"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"testing/fstest"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// prepare brings the schema at target up to date and its guards in place.
func (d *DB) prepare(ctx context.Context, target string) error {
	pool, done, err := d.migrationPool(target)
	if err != nil {
		return err
	}
	err = d.Engine.alone(ctx, pool, func() error { return d.migrate(ctx, pool) })
	if err := errors.Join(err, done()); err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		return err
	}
	return d.SyncClock(ctx)
}

func (d *DB) migrate(ctx context.Context, pool *sql.DB) error {
	files, err := d.Engine.schema()
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(d.Engine.dialect(), pool, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	var guards int
	if err := pool.QueryRowContext(ctx, d.Engine.countGuards()).Scan(&guards); err != nil {
		return fmt.Errorf("look for the ledger's guards: %w", err)
	}
	// Looked for first, because a CREATE TRIGGER locks the ledger of running nodes.
	if texts := d.Engine.guards(); guards < len(texts) {
		for _, text := range texts {
			if _, err := pool.ExecContext(ctx, text); err != nil {
				return fmt.Errorf("guard the ledger: %w", err)
			}
		}
	}
	return nil
}

// schema are the migrations. A line "-- sqlite: …" or "-- postgres: …" in them
// holds for that engine only.
func (e Engine) schema() (fs.FS, error) {
	files := fstest.MapFS{}
	names, err := fs.Glob(migrations, "migrations/*.sql")
	for _, name := range names {
		text, readErr := migrations.ReadFile(name)
		err = errors.Join(err, readErr)
		files[path.Base(name)] = &fstest.MapFile{Data: bytes.ReplaceAll(text, []byte("\n-- "+string(e)+": "), []byte("\n"))}
	}
	return files, err
}
