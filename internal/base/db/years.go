package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/id"
)

// This file is about the partitions of PostgreSQL (decision 115). SQLite has none.

// A yearTable is a table that has a partition for each year of its ids.
type yearTable struct{ name, key, prefix string }

// yearTables are the tables that the migrations partition.
var yearTables = []yearTable{
	{"ledger", "id", id.Ledger}, {"stored_responses", "request_id", id.Request}, {"deliveries", "id", id.Delivery},
}

// defaultSuffix ends the name of the partition of a table that has the rows of no year.
const defaultSuffix = "_default"

// yearName returns the name of the partition of a year.
func yearName(table string, year int) string { return fmt.Sprintf("%s_y%d", table, year) }

// yearFloor returns the lowest id of a year, in UTC.
func yearFloor(prefix string, year int) string {
	return id.Floor(prefix, time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
}

// yearLockTimeout is how long a change of partitions waits for those who use the table: everyone else waits behind it.
const yearLockTimeout = "500ms"

// EnsureYears creates the partitions of this year and of the next one where they are missing, and those between the
// newest partition and them. It passes over a year of which rows are in the default partition already, as after a clock
// that was ahead: its rows stay there, as CheckYears reports, and later years have their partitions. It fails if a
// table is in use for longer than yearLockTimeout, by a backup for example.
func (d *DB) EnsureYears(ctx context.Context) error {
	if d.Engine != Postgres {
		return nil
	}
	return ensureYears(ctx, d.write, d.Now().UTC().Year())
}

// ensureYears is EnsureYears on a pool. A partition is made aside and then attached, which lets calls go on.
func ensureYears(ctx context.Context, pool *sql.DB, year int) error {
	for _, t := range yearTables {
		last, err := newestYear(ctx, pool, t.name)
		if err != nil {
			return fmt.Errorf("partitions of %s: %w", t.name, err)
		}
		for y := last + 1; y <= year+1; y++ {
			if err := addYear(ctx, pool, t, y); err != nil && !IsCheckViolation(err) {
				return fmt.Errorf("partition of %s for %d: %w", t.name, y, err)
			}
		}
	}
	return nil
}

// newestYear returns the year of a table's newest partition.
func newestYear(ctx context.Context, q Queryer, table string) (year int, err error) {
	err = q.QueryRowContext(ctx, `SELECT MAX(substring(relname FROM '_y([0-9]+)$')::int) FROM pg_inherits
		JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = $1::text::regclass`, table).Scan(&year)
	return year, err
}

func addYear(ctx context.Context, pool *sql.DB, t yearTable, year int) error {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return (&DB{Engine: Postgres}).runTx(ctx, conn, &sql.TxOptions{}, func(ctx context.Context, tx *Tx) error {
		_, err := tx.ExecContext(ctx, `SET LOCAL lock_timeout = '`+yearLockTimeout+`'`)
		if err != nil {
			return err
		}
		// Of several nodes one makes the partition, and the others find it.
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, yearsLock); err != nil {
			return err
		}
		if last, err := newestYear(ctx, tx, t.name); err != nil || last >= year {
			return err
		}
		if err := createYear(ctx, tx, t.name, year); err != nil {
			return err
		}
		return attachYear(ctx, tx, t, year)
	})
}

// yearsLock is the key of the advisory lock of those who change partitions: arbitrary, the same in every version.
const yearsLock = 7_821_669_315

// inYearsTx runs f in a write transaction of PostgreSQL that may take long, while no other one creates a
// year. It waits for no lock longer than yearLockTimeout.
func (d *DB) inYearsTx(ctx context.Context, f func(ctx context.Context, tx *Tx) error) error {
	conn, err := d.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return d.runTx(ctx, conn, &sql.TxOptions{}, func(ctx context.Context, tx *Tx) error {
		for _, statement := range []string{
			`SET LOCAL statement_timeout = 0`, `SET LOCAL idle_in_transaction_session_timeout = 0`,
			`SET LOCAL lock_timeout = '` + yearLockTimeout + `'`,
		} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, yearsLock); err != nil {
			return err
		}
		return f(ctx, tx)
	})
}

// KeepYears keeps the partitions of the ledger in place until a snapshot ends: an operator who detaches one meanwhile
// waits. It must be the first statement, or a snapshot from before would silently lack its rows. LOCK takes no
// snapshot.
func (tx *Tx) KeepYears(ctx context.Context) error {
	if tx.Engine != Postgres {
		return nil
	}
	_, err := tx.ExecContext(ctx, `LOCK TABLE ledger IN ACCESS SHARE MODE`)
	return err
}

// createYear creates the table of a year, which is no partition yet.
func createYear(ctx context.Context, tx *Tx, table string, year int) error {
	name := yearName(table, year)
	// The default partition has the unique indexes, which the table itself cannot have.
	_, err := tx.ExecContext(ctx, `CREATE TABLE `+name+` (LIKE `+table+defaultSuffix+` INCLUDING ALL)`)
	if err != nil {
		return err
	}
	var guarded bool // false: a restore fills the database, and Open creates all triggers
	err = tx.QueryRowContext(ctx, `SELECT to_regproc('ledger_is_append_only') IS NOT NULL`).Scan(&guarded)
	if err != nil || !guarded {
		return err
	}
	for _, statement := range Postgres.createTruncateTriggers(table, name) {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// attachYear makes the table of a year a partition for the ids of the year. PostgreSQL trusts the constraint, and need
// not read the rows while it locks the default partition.
func attachYear(ctx context.Context, tx *Tx, t yearTable, year int) error {
	name, from, to := yearName(t.name, year), yearFloor(t.prefix, year), yearFloor(t.prefix, year+1)
	for _, statement := range []string{
		fmt.Sprintf(`ALTER TABLE %s ADD CONSTRAINT %s_bounds CHECK (%s >= '%s' AND %s < '%s')`, name, name, t.key, from,
			t.key, to),
		fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')`, t.name, name, from, to),
		fmt.Sprintf(`ALTER TABLE %s DROP CONSTRAINT %s_bounds`, name, name),
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// ErrStray says that rows are in the default partition of a table.
var ErrStray = errors.New("rows are in no year: a clock was wrong")

// CheckYears returns ErrStray if a table has rows in its default partition.
func (d *DB) CheckYears(ctx context.Context) error {
	if d.Engine != Postgres {
		return nil
	}
	for _, t := range yearTables {
		name := t.name + defaultSuffix
		if has, err := hasRows(ctx, d, name); err != nil {
			return err
		} else if has {
			return fmt.Errorf("%w: %s", ErrStray, name)
		}
	}
	return nil
}

// AnalyzeYears lets PostgreSQL count what is in the partitions together, which it does by itself only for each of them.
// It does nothing for a table that was counted in the last 20 hours, by another node or before a restart.
func (d *DB) AnalyzeYears(ctx context.Context) error {
	if d.Engine != Postgres {
		return nil
	}
	err := d.inYearsTx(ctx, func(ctx context.Context, tx *Tx) error {
		for _, t := range yearTables {
			var recent bool
			err := tx.QueryRowContext(ctx, `SELECT COALESCE(last_analyze > clock_timestamp() - interval '20 hours',
				false) FROM pg_stat_user_tables WHERE relid = $1::text::regclass`, t.name).Scan(&recent)
			if err != nil {
				return err
			}
			if recent {
				continue
			}
			if _, err := tx.ExecContext(ctx, `ANALYZE `+t.name); err != nil {
				return err
			}
		}
		return nil
	})
	if IsLocked(err) {
		return nil // another node or PostgreSQL itself counts
	}
	return err
}
