package backup

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/purserhq/purser/internal/base/db"
)

// eachRow calls begin with the columns of a table, and then row with each of its rows. The values are valid only
// during the call.
func eachRow(ctx context.Context, tx *db.Tx, table string, begin func(columns []string), row func([]any) error,
) (n int64, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT * FROM `+table)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	begin(columns)
	values, into := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for ; rows.Next(); n++ {
		if err := rows.Scan(into...); err != nil {
			return n, err
		}
		if err := row(values); err != nil {
			return n, err
		}
	}
	return n, rows.Err()
}

// insertRows inserts the rows that next returns, until that is nil, and returns their number.
func insertRows(ctx context.Context, tx *db.Tx, table string, columns []string, next func() ([]any, error),
) (n int64, err error) {
	if err := checkColumns(ctx, tx, table, columns); err != nil {
		return 0, err
	}
	if tx.Engine == db.Postgres {
		return copyRows(ctx, tx, table, columns, next)
	}
	marks := make([]string, len(columns))
	for i := range marks {
		marks[i] = fmt.Sprintf("$%d", i+1)
	}
	insert, err := tx.PrepareContext(ctx, `INSERT INTO `+table+` (`+quoteNames(columns)+`) VALUES (`+
		strings.Join(marks, ", ")+`)`)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, insert.Close()) }()
	for ; ; n++ {
		values, err := next()
		if err != nil || values == nil {
			return n, err
		}
		if _, err := insert.ExecContext(ctx, values...); err != nil {
			return n, err
		}
	}
}

// checkColumns returns an error unless a table has exactly these columns, in any order.
func checkColumns(ctx context.Context, tx *db.Tx, table string, columns []string) (err error) {
	rows, err := tx.QueryContext(ctx, `SELECT * FROM `+table+` LIMIT 0`)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	have, err := rows.Columns()
	if err != nil {
		return err
	}
	if !slices.Equal(slices.Sorted(slices.Values(have)), slices.Sorted(slices.Values(columns))) {
		return fmt.Errorf("%w: its columns differ from those of the schema", errDamaged)
	}
	return rows.Err()
}

func quoteNames(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }

// copyRows inserts rows by COPY, the fast way of PostgreSQL. It does not convert between texts and byte strings, which
// SQLite stores as they were given.
func copyRows(ctx context.Context, tx *db.Tx, table string, columns []string, next func() ([]any, error),
) (n int64, err error) {
	binary, err := listByteColumns(ctx, tx, table)
	if err != nil {
		return 0, err
	}
	convert := func(values []any) {
		for i, value := range values {
			switch v := value.(type) {
			case string:
				if binary[columns[i]] {
					values[i] = []byte(v)
				}
			case []byte:
				if !binary[columns[i]] {
					values[i] = string(v)
				}
			}
		}
	}
	err = tx.Raw(func(driverConn any) error {
		conn, ok := driverConn.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("connection of type %T", driverConn)
		}
		n, err = conn.Conn().CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromFunc(func() ([]any, error) {
			values, err := next()
			convert(values)
			return values, err
		}))
		return err
	})
	return n, err
}

// listByteColumns returns the columns of a table in PostgreSQL that hold byte strings.
func listByteColumns(ctx context.Context, tx *db.Tx, table string) (map[string]bool, error) {
	names, err := db.QueryAll(ctx, tx, db.ScanColumn[string],
		`SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND atttypid = 'bytea'::regtype`, table)
	if err != nil {
		return nil, err
	}
	columns := map[string]bool{}
	for _, name := range names {
		columns[name] = true
	}
	return columns, nil
}

// sumHeads reads the newest row of each hash chain.
func sumHeads(ctx context.Context, tx *db.Tx) (h Heads, err error) {
	rows, err := tx.QueryContext(ctx,
		`SELECT account_id, seq, head FROM balances ORDER BY account_id`+tx.Engine.OrderBytes())
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	digest := sha256.New()
	for ; rows.Next(); h.Accounts++ {
		var account, head string
		var seq int64
		if err := rows.Scan(&account, &seq, &head); err != nil {
			return h, err
		}
		h.Entries += seq
		fmt.Fprintf(digest, "%s %d %s\n", account, seq, head)
	}
	if err := rows.Err(); err != nil {
		return h, err
	}
	h.Digest = hex.EncodeToString(digest.Sum(nil))
	return h, nil
}

// findNewestEntry returns the time of the newest ledger row; 0 = there is none.
func findNewestEntry(ctx context.Context, tx *db.Tx) (createdUS int64, err error) {
	var newest sql.NullInt64
	err = tx.QueryRowContext(ctx, `SELECT MAX(created_us) FROM ledger`).Scan(&newest)
	return newest.Int64, err
}

// countLiveNodes counts the nodes whose lease has not ended.
func countLiveNodes(ctx context.Context, q db.Queryer, nowUS int64) (n int, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) FROM nodes WHERE lease_us > $1`, nowUS).Scan(&n)
	return n, err
}
