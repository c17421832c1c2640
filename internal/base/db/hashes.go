package db

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"

	"github.com/pressly/goose/v3"
)

// This file is about the texts of migrations that a database was made by (decision 163). A migration never changes once
// a database has applied it: the schema would depend on when it did.

// A migrationText is a migration of this binary.
type migrationText struct {
	version    int64
	name, hash string
}

// listMigrations returns the migrations of this binary, oldest first.
func listMigrations() (list []migrationText, err error) {
	names, err := fs.Glob(migrations, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		m := migrationText{name: path.Base(name)}
		if m.version, err = goose.NumericComponent(name); err != nil {
			return nil, err
		}
		text, err := fs.ReadFile(migrations, name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		m.hash = hex.EncodeToString(sum[:])
		list = append(list, m)
	}
	return list, nil
}

// applyMigrations applies the migrations after a version of the schema up to another. It returns an error that names a
// migration up to the first which the database has applied with another text than this binary has. What this binary is
// about to apply is noted before: a node that is killed meanwhile has left the schema of this text.
func (d *DB) applyMigrations(ctx context.Context, pool *sql.DB, p *goose.Provider, from, to int64) error {
	list, err := listMigrations()
	if err != nil {
		return err
	}
	applied, err := d.readHashes(ctx, pool)
	if err != nil {
		return err
	}
	for _, m := range list {
		switch hash := applied[m.version]; {
		case m.version > to || hash == m.hash:
		case m.version <= from && hash != "":
			return fmt.Errorf("the migration %s was applied with another text (SHA-256 %s) than this purser has (%s): "+
				"use the purser that applied it", m.name, hash, m.hash)
		default:
			_, err := pool.ExecContext(ctx, `INSERT INTO migration_hashes (version, sha256) VALUES ($1, $2)
				ON CONFLICT (version) DO UPDATE SET sha256 = excluded.sha256`, m.version, m.hash)
			if err != nil {
				return err
			}
		}
	}
	if _, err := p.UpTo(ctx, to); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// readHashes returns the hashes of migrations that a database has noted, by their versions. It creates the table if it
// is not there, and asks first: a node may lack the right to create any. The table is of the migrations, as that of
// their versions is, and not of the schema.
func (d *DB) readHashes(ctx context.Context, pool *sql.DB) (map[int64]string, error) {
	var tables int
	if err := pool.QueryRowContext(ctx, d.Engine.countTables("migration_hashes")).Scan(&tables); err != nil {
		return nil, err
	}
	if tables == 0 {
		_, err := pool.ExecContext(ctx, `CREATE TABLE migration_hashes (
			version BIGINT PRIMARY KEY, sha256 TEXT NOT NULL)`)
		if err != nil {
			return nil, err
		}
	}
	rows, err := QueryAll(ctx, pool, ScanFields(func(m *migrationText) []any { return []any{&m.version, &m.hash} }),
		`SELECT version, sha256 FROM migration_hashes`)
	if err != nil {
		return nil, err
	}
	applied := map[int64]string{}
	for _, m := range rows {
		applied[m.version] = m.hash
	}
	return applied, nil
}
