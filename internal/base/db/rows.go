package db

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// This file is about whole rows, as files of package rowfile have them.

// EachRow calls begin with the columns of a query, and then row with each of its rows, and returns their number. The
// values are valid only during the call.
func EachRow(ctx context.Context, q Queryer, query string, begin func(columns []string), row func([]any) error,
) (n int64, err error) {
	rows, err := q.QueryContext(ctx, query)
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

// InsertRows inserts into a table the rows that next returns, until that is nil, and returns their number.
func InsertRows(ctx context.Context, tx *Tx, table string, columns []string, next func() ([]any, error),
) (n int64, err error) {
	if tx.Engine == Postgres {
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

func quoteNames(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }

// copyRows inserts rows by COPY, the fast way of PostgreSQL. It does not convert between texts and byte strings, which
// SQLite stores as they were given.
func copyRows(ctx context.Context, tx *Tx, table string, columns []string, next func() ([]any, error),
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
func listByteColumns(ctx context.Context, tx *Tx, table string) (map[string]bool, error) {
	names, err := QueryAll(ctx, tx, ScanColumn[string],
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
