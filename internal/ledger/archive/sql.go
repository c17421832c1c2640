package archive

import (
	"context"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
)

// List returns the archived years, oldest first.
func List(ctx context.Context, q db.Queryer) ([]Record, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(r *Record) []any {
		return []any{&r.Year, &r.File, &r.SHA256, &r.Rows, &r.FirstID, &r.LastID, &r.FromID, &r.ToID, &r.LastCreatedUS,
			&r.ArchivedUS}
	}), `SELECT year, file, sha256, row_count, first_id, last_id, from_id, to_id, last_created_us, archived_us
		FROM ledger_archives ORDER BY year`)
}

// yearTable returns the name of the table of a year.
func yearTable(year int) string { return fmt.Sprintf("%s_y%d", table, year) }

// allRows returns the query for the rows of a partition in the order of a file.
func allRows(partition string) string { return `SELECT * FROM ` + partition + ` ORDER BY id` }

// lockRows keeps everyone from writing rows of a partition until tx ends. They can be read.
func lockRows(ctx context.Context, tx *db.Tx, partition string) error {
	_, err := tx.ExecContext(ctx, `LOCK TABLE `+partition+` IN SHARE MODE`)
	return err
}

// obstacles count what keeps a year from being archived.
type obstacles struct{ rows, earlier, holds, payments, unpublished int64 }

func countObstacles(ctx context.Context, tx *db.Tx, y db.Year) (c obstacles, err error) {
	for _, count := range []struct {
		into  *int64
		query string
		args  []any
	}{
		{&c.rows, `SELECT COUNT(*) FROM ` + y.Name, nil},
		{&c.earlier, `SELECT COUNT(*) FROM ledger WHERE id < $1`, []any{y.From}},
		{&c.holds, `SELECT COUNT(*) FROM holds WHERE state <> 'failed' AND request_id < $1`,
			[]any{firstRequest(y.To)}},
		{&c.payments, `SELECT COUNT(*) FROM payment_records o WHERE o.kind = 'opened' AND o.entry_id < $1
			AND NOT EXISTS (SELECT 1 FROM payment_records e WHERE e.payment_id = o.payment_id
				AND (e.kind = 'settled' OR e.kind = 'failed'))`, []any{y.To}},
		{&c.unpublished, `SELECT COUNT(*) FROM (SELECT account_id, MAX(seq) AS seq FROM ` + y.Name + `
				GROUP BY account_id) r LEFT JOIN log_accounts a ON a.account_id = r.account_id
			WHERE COALESCE(a.seq, 0) < r.seq AND EXISTS (SELECT 1 FROM log_state WHERE checkpoint <> '')`, nil},
	} {
		if err := tx.QueryRowContext(ctx, count.query, count.args...).Scan(count.into); err != nil {
			return c, err
		}
	}
	return c, nil
}

func countRows(ctx context.Context, tx *db.Tx, partition string) (n int64, err error) {
	err = tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM `+partition).Scan(&n)
	return n, err
}

// insertRecord records a year with what stays known of its rows, and fills in the rest of the record.
func insertRecord(ctx context.Context, tx *db.Tx, partition string, r *Record) error {
	err := tx.QueryRowContext(ctx, `SELECT COUNT(*), MIN(id), MAX(id), MAX(created_us) FROM `+partition).
		Scan(&r.Rows, &r.FirstID, &r.LastID, &r.LastCreatedUS)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO ledger_archives (year, file, sha256, row_count, first_id, last_id,
			from_id, to_id, last_created_us, archived_us) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		r.Year, r.File, r.SHA256, r.Rows, r.FirstID, r.LastID, r.FromID, r.ToID, r.LastCreatedUS, r.ArchivedUS)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO ledger_archived_keys (key_hash, connection_id)
		SELECT key_hash, connection_id FROM `+partition+` WHERE key_hash IS NOT NULL ORDER BY 1 ON CONFLICT DO NOTHING`)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO ledger_archived_accounts (account_id, year, last_seq, last_hash,
			last_created_us)
		SELECT e.account_id, $1, e.seq, l.hash, e.created_us FROM (SELECT account_id, MAX(seq) AS seq,
			MAX(created_us) AS created_us FROM `+partition+` GROUP BY account_id) e
		JOIN `+partition+` l ON l.account_id = e.account_id AND l.seq = e.seq`, r.Year)
	return err
}

// deleteRecord deletes the record of a year whose rows are in their table again.
func deleteRecord(ctx context.Context, tx *db.Tx, r *Record) error {
	for _, statement := range []string{
		`DELETE FROM ledger_archived_keys k USING ` + yearTable(r.Year) + ` l
			WHERE l.key_hash = k.key_hash AND l.connection_id = k.connection_id`,
		fmt.Sprintf(`DELETE FROM ledger_archived_accounts WHERE year = %d`, r.Year),
		fmt.Sprintf(`DELETE FROM ledger_archives WHERE year = %d`, r.Year),
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// archivedRows is the temporary table of Overlay.
const archivedRows = "archived_ledger_rows"

// createCopy creates the temporary table.
func createCopy(ctx context.Context, tx *db.Tx) error {
	create := `CREATE TEMPORARY TABLE ` + archivedRows + ` (LIKE ledger INCLUDING DEFAULTS)`
	if tx.Engine == db.SQLite {
		create = `CREATE TEMPORARY TABLE ` + archivedRows + ` AS SELECT * FROM ledger WHERE 1 = 0`
	}
	_, err := tx.ExecContext(ctx, create)
	return err
}

// compareKept compares the kept keys and ends of hash chains with the rows of the files.
func compareKept(ctx context.Context, tx *db.Tx) error {
	var keys, chains int64
	err := tx.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM `+archivedRows+` r WHERE r.key_hash IS NOT NULL
			AND NOT EXISTS (SELECT 1 FROM ledger_archived_keys k
				WHERE k.key_hash = r.key_hash AND k.connection_id = r.connection_id)),
		(SELECT COUNT(*) FROM ledger_archived_accounts a WHERE NOT EXISTS (SELECT 1 FROM `+archivedRows+` r
			WHERE r.account_id = a.account_id AND r.seq = a.last_seq AND r.hash = a.last_hash))`).Scan(&keys, &chains)
	if err == nil && keys+chains > 0 {
		err = fmt.Errorf("the database has lost %d keys of archived calls, which could be billed again, and has %d "+
			"ends of hash chains that the files do not have", keys, chains)
	}
	return err
}

// createView creates the indexes of the temporary table, and the view.
func createView(ctx context.Context, tx *db.Tx) error {
	schema, index := "main", "temp."
	if tx.Engine == db.Postgres {
		index = ""
		if err := tx.QueryRowContext(ctx, `SELECT quote_ident(current_schema())`).Scan(&schema); err != nil {
			return err
		}
	}
	statements := []string{`CREATE TEMPORARY VIEW ledger AS SELECT * FROM ` + schema + `.ledger
		UNION ALL SELECT * FROM ` + archivedRows}
	if tx.Engine == db.Postgres {
		statements = append(statements, `ANALYZE `+archivedRows)
	}
	for _, columns := range []string{"id", "account_id, seq", "key_hash", "reversal_of", "app_id"} {
		name, _, _ := strings.Cut(columns, ",")
		statements = append([]string{`CREATE INDEX ` + index + `archived_by_` + name + ` ON ` + archivedRows + ` (` +
			columns + `)`}, statements...)
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
