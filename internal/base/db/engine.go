package db

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
)

// Engine is the kind of database.
type Engine string

// The engines that Purser runs on.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
)

// ForUpdate returns the suffix of a SELECT that locks its rows. On SQLite a write transaction locks the whole file.
func (e Engine) ForUpdate() string {
	if e == Postgres {
		return " FOR UPDATE"
	}
	return ""
}

// SkipLocked returns the suffix of a SELECT that locks its rows and leaves out rows that are locked already, so that
// several nodes share a queue.
func (e Engine) SkipLocked() string {
	if e == Postgres {
		return " FOR UPDATE SKIP LOCKED"
	}
	return ""
}

// ForShare returns the suffix of a SELECT whose rows cannot change until the transaction ends. Other transactions may
// read them with ForShare at the same time.
func (e Engine) ForShare() string {
	if e == Postgres {
		return " FOR SHARE"
	}
	return ""
}

// OrderBytes returns the suffix of an ORDER BY that compares texts byte by byte, as SQLite does anyway.
func (e Engine) OrderBytes() string {
	if e == Postgres {
		return ` COLLATE "C"`
	}
	return ""
}

func (e Engine) dialect() goose.Dialect {
	if e == Postgres {
		return goose.DialectPostgres
	}
	return goose.DialectSQLite3
}

// snapshotIsolation returns the isolation level in which a transaction sees one state.
func (e Engine) snapshotIsolation() sql.IsolationLevel {
	if e == Postgres {
		return sql.LevelRepeatableRead
	}
	return sql.LevelDefault // every read transaction does in WAL mode
}

// appendOnlyTables are the tables whose rows the database itself refuses to change or delete.
var appendOnlyTables = []string{"ledger", "payment_records"}

// countSchemaTables counts the table of the schema's version, which a Purser database has.
func (e Engine) countSchemaTables() string { return e.countTables("goose_db_version") }

// countTables counts the tables of a name.
func (e Engine) countTables(name string) string {
	if e == Postgres {
		return `SELECT COUNT(*) FROM pg_tables
			WHERE tablename = '` + name + `' AND schemaname = ANY(current_schemas(false))`
	}
	return `SELECT COUNT(*) FROM sqlite_master WHERE name = '` + name + `'`
}

// createTriggers returns the statements that make the database refuse it. Each creates one trigger; on
// PostgreSQL the first statement of a table also creates the function that the triggers call.
func (e Engine) createTriggers() (statements []string) {
	for _, table := range appendOnlyTables {
		var templates []string
		if e == Postgres {
			templates = []string{
				`CREATE OR REPLACE FUNCTION {table}_is_append_only() RETURNS trigger LANGUAGE plpgsql
				AS $$ BEGIN RAISE EXCEPTION '{table} is append-only'; END $$;
				CREATE OR REPLACE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table}
				FOR EACH ROW EXECUTE FUNCTION {table}_is_append_only()`,
				`CREATE OR REPLACE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
				FOR EACH STATEMENT EXECUTE FUNCTION {table}_is_append_only()`,
			}
		} else {
			templates = []string{
				`CREATE TRIGGER IF NOT EXISTS {table}_no_update BEFORE UPDATE ON {table}
				BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END`,
				`CREATE TRIGGER IF NOT EXISTS {table}_no_delete BEFORE DELETE ON {table}
				BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END`,
			}
		}
		for _, template := range templates {
			statements = append(statements, strings.ReplaceAll(template, "{table}", table))
		}
	}
	return statements
}

// createTruncateTriggers returns the statements that make a partition of an append-only table refuse TRUNCATE. The
// other triggers of the table hold on its partitions by themselves.
func (e Engine) createTruncateTriggers(table, partition string) []string {
	if e != Postgres || !slices.Contains(appendOnlyTables, table) {
		return nil
	}
	return []string{`CREATE OR REPLACE TRIGGER ` + table + `_no_truncate BEFORE TRUNCATE ON ` + partition + `
		FOR EACH STATEMENT EXECUTE FUNCTION ` + table + `_is_append_only()`}
}

// listUnguarded returns the query for the partitions of the ledger that do not refuse TRUNCATE.
func (e Engine) listUnguarded() string {
	return `SELECT i.inhrelid::regclass::text FROM pg_inherits i WHERE i.inhparent = 'ledger'::regclass
		AND NOT EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgrelid = i.inhrelid AND t.tgname = 'ledger_no_truncate'
			AND t.tgenabled = 'O')`
}

// countTriggers returns the query that counts the triggers of createTriggers that exist and are enabled.
func (e Engine) countTriggers() string {
	if e == Postgres {
		return `SELECT COUNT(*) FROM pg_trigger
			WHERE tgrelid IN ('ledger'::regclass, 'payment_records'::regclass) AND tgenabled = 'O' AND tgname
			IN ('ledger_no_change', 'ledger_no_truncate', 'payment_records_no_change', 'payment_records_no_truncate')`
	}
	return `SELECT COUNT(*) FROM sqlite_schema WHERE type = 'trigger' AND name
		IN ('ledger_no_update', 'ledger_no_delete', 'payment_records_no_update', 'payment_records_no_delete')`
}

// runAlone runs f in one process at a time. On PostgreSQL the others try to take an advisory lock, which is
// released when the first is done or its connection is lost.
func (e Engine) runAlone(ctx context.Context, pool *sql.DB, f func() error) (err error) {
	if e != Postgres {
		return f() // the file is ours
	}
	const key = 7_821_669_314 // of the advisory lock: arbitrary, the same in every version
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for locked := false; ; {
		if err := conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, key).Scan(&locked); err != nil {
			return err
		}
		if locked {
			return f() // the lock ends with the pool's connections
		}
		// A statement that waits has a snapshot, for whose end CREATE INDEX CONCURRENTLY of the first process waits.
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
