package db

import (
	"context"
	"errors"
)

// A Row is what a scan reads: a *sql.Row, or *sql.Rows where they stand.
type Row interface{ Scan(dest ...any) error }

// List reads all rows of a query, each by scan.
func List[T any](ctx context.Context, q Queryer, scan func(Row) (T, error), query string, args ...any) (list []T, err error) {
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

// Fields is a scan into the fields that are named, in the order of the columns.
func Fields[T any](fields func(*T) []any) func(Row) (T, error) {
	return func(row Row) (v T, err error) {
		err = row.Scan(fields(&v)...)
		return v, err
	}
}

// Column is the scan of a query of one column.
func Column[T any](row Row) (v T, err error) {
	err = row.Scan(&v)
	return v, err
}
