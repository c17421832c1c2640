package db

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// State is what Inspect finds at a database URL.
type State struct {
	Engine      Engine
	Path        string        // of a SQLite file; "" for PostgreSQL
	Exists      bool          // false: the SQLite file is not there yet
	Schema      int64         // version of the schema; 0 = empty
	NewerSchema bool          // a later version of Purser has migrated it
	OldSchema   bool          // the next start migrates it
	ClockOffset time.Duration // the database's clock minus ours

	// Of PostgreSQL: the connections that the server offers to users like this one, and the most of a node.
	ServerConnections, NodeConnections int
}

// Inspect looks at the database at url, also while a server runs on it. It changes nothing and does not migrate.
func Inspect(ctx context.Context, url string) (s State, err error) {
	s.Engine = Postgres
	if !isPostgres(url) {
		s.Engine = SQLite
		if s.Path, err = sqlitePath(url); err != nil {
			return s, err
		}
	}
	d, err := openReadOnly(url)
	if s.Engine == SQLite && errors.Is(err, os.ErrNotExist) {
		return s, refuseRemains(s.Path, true)
	} else if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	s.Exists = true
	if d.lacksLog {
		return s, lostLogError(s.Path)
	}
	if err := d.read.PingContext(ctx); err != nil {
		return s, fmt.Errorf("database: %w", err)
	}
	var tables int
	if err := d.QueryRowContext(ctx, d.Engine.countSchemaTables()).Scan(&tables); err != nil {
		return s, fmt.Errorf("database: %w", err)
	}
	if tables > 0 {
		if s.Schema, err = SchemaVersion(ctx, d); err != nil {
			return s, fmt.Errorf("database: read the schema's version: %w", err)
		}
		newest, err := newestSchema()
		if err != nil {
			return s, err
		}
		s.NewerSchema, s.OldSchema = s.Schema > newest, s.Schema < newest
	}
	if err := d.StartClock(ctx); err != nil {
		return s, err
	}
	s.ClockOffset = d.ClockOffset()
	if s.Engine == Postgres {
		s.NodeConnections = 2 * d.poolSize
		err = d.QueryRowContext(ctx, `SELECT current_setting('max_connections')::int -
			current_setting('superuser_reserved_connections')::int`).Scan(&s.ServerConnections)
	}
	return s, err
}
