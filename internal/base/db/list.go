package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// A Row is one row of a result: a *sql.Row, or the current row of *sql.Rows.
type Row interface{ Scan(dest ...any) error }

// QueryAll runs a query and returns all its rows, each read by scan.
func QueryAll[T any](
	ctx context.Context, q Queryer, scan func(Row) (T, error), query string, args ...any,
) (list []T, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

// ScanFields returns a scan for QueryAll. The argument returns pointers to the fields of a T, in the order of the
// columns.
func ScanFields[T any](fields func(*T) []any) func(Row) (T, error) {
	return func(row Row) (v T, err error) {
		err = row.Scan(fields(&v)...)
		return v, err
	}
}

// ScanColumn is the scan for a query of one column.
func ScanColumn[T any](row Row) (v T, err error) {
	err = row.Scan(&v)
	return v, err
}

// Places returns the places of the values of rows in a statement, which inserts them all: ($1, $2), ($3, $4) for two
// rows of two columns.
func Places(rows, columns int) string {
	var b strings.Builder
	for i := range rows * columns {
		switch {
		case i%columns > 0:
			b.WriteString(", ")
		case i > 0:
			b.WriteString("), (")
		default:
			b.WriteByte('(')
		}
		fmt.Fprintf(&b, "$%d", i+1)
	}
	b.WriteByte(')')
	return b.String()
}
