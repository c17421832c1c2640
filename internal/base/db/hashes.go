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

// checkHashes returns an error that names a migration up to a version which the database has applied with another text
// than this binary has. Of a migration without a hash it notes that of this binary: a node that applied it was killed
// before it could. It creates the table, which is of the migrations, as that of their versions is, and not of the
// schema.
func checkHashes(ctx context.Context, pool *sql.DB, version int64) error {
	_, err := pool.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS migration_hashes (
		version BIGINT PRIMARY KEY, sha256 TEXT NOT NULL)`)
	if err != nil {
		return err
	}
	applied := map[int64]string{}
	rows, err := QueryAll(ctx, pool, ScanFields(func(m *migrationText) []any { return []any{&m.version, &m.hash} }),
		`SELECT version, sha256 FROM migration_hashes`)
	if err != nil {
		return err
	}
	for _, m := range rows {
		applied[m.version] = m.hash
	}
	list, err := listMigrations()
	if err != nil {
		return err
	}
	for _, m := range list {
		switch hash := applied[m.version]; {
		case m.version > version || hash == m.hash:
		case hash != "":
			return fmt.Errorf("the migration %s was applied with another text (SHA-256 %s) than this purser has (%s): "+
				"use the purser that applied it", m.name, hash, m.hash)
		default:
			_, err := pool.ExecContext(ctx, `INSERT INTO migration_hashes (version, sha256) VALUES ($1, $2)
				ON CONFLICT (version) DO NOTHING`, m.version, m.hash)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
