package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of the work of jobs that many rows make long: it is cut into slices, each of them a transaction.
const (
	maxSliceRows = 200                   // that one transaction of DeleteSlices deletes
	minSliceRows = 25                    // and when they take long
	longSlice    = 50 * time.Millisecond // a longer one is halved, and one that takes half of it is doubled
	maxRest      = 2 * time.Second       // after a slice
	restFactor   = 3                     // a rest is so many times as long as the slice before it
)

// ErrUnfinished says that the time of a purge was over before all of its rows were deleted. The next one goes on.
var ErrUnfinished = errors.New("not all is done in time")

// InTurn runs a slice of a job's work, a transaction, while no other one runs, and rests. Jobs that have much to do so
// load a node no more together than one of them. The rest is a multiple of the time that the slice took, its wait for
// the database included: the more calls have to do there, the longer they are left alone.
func (d *DB) InTurn(ctx context.Context, slice func() error) error {
	d.turnOnce.Do(func() { d.turn = make(chan struct{}, 1) })
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-d.turn }()
	began := time.Now()
	if err := slice(); err != nil {
		return err
	}
	select {
	case <-time.After(min(restFactor*time.Since(began), maxRest)):
		return nil
	case <-ctx.Done():
		return nil // the slice is done
	}
}

// DeleteSlices deletes the rows of a table that a condition finds, and returns their number. Each transaction deletes
// some, in turn with those of other jobs: one DELETE of a million rows would make all callers wait for seconds, or
// exceed the time limit of a statement each time. They are deleted in the order of columns that an index has, and each
// slice goes on where the one before has ended: PostgreSQL would read what was deleted before each time, from its
// beginning, for as long as a backup's snapshot keeps it. Rows with many others that go with them take longer, so the
// number of rows follows the time. If the time of ctx is over before, the error is ErrUnfinished: the next purge goes
// on.
func (d *DB) DeleteSlices(ctx context.Context, table, condition, order string, args ...any) (deleted int64,
	err error) {
	rows := int64(maxSliceRows)
	var last sliceKey
	for {
		var keys []sliceKey
		asked := rows
		err := d.InTurn(ctx, func() error {
			began := time.Now()
			err := d.InTx(ctx, func(ctx context.Context, tx *Tx) (err error) {
				query, args := d.deleteSome(table, condition, order, asked, last, args)
				keys, err = QueryAll(ctx, tx, scanSliceKey(order), query, args...)
				return err
			})
			switch took := time.Since(began); {
			case err != nil:
				keys = nil
			case took > longSlice:
				rows = max(rows/2, minSliceRows)
			case took < longSlice/2:
				rows = min(rows*2, maxSliceRows)
			}
			return err
		})
		n := int64(len(keys))
		deleted += n
		switch {
		case err != nil && ctx.Err() != nil, err == nil && n == asked && ctx.Err() != nil:
			return deleted, fmt.Errorf("%w: %d rows of %s were deleted", ErrUnfinished, deleted, table)
		case err != nil, n < asked:
			return deleted, err
		}
		last = slices.MaxFunc(keys, sliceKey.compare)
	}
}

// A sliceKey has the values by which the rows of a purge are in order: texts and integers.
type sliceKey []any

func scanSliceKey(order string) func(Row) (sliceKey, error) {
	return func(row Row) (sliceKey, error) {
		key := make(sliceKey, strings.Count(order, ",")+1)
		into := make([]any, len(key))
		for i := range key {
			into[i] = &key[i]
		}
		return key, row.Scan(into...)
	}
}

func (k sliceKey) compare(other sliceKey) int {
	return slices.CompareFunc(k, other, func(a, b any) int {
		if n, ok := a.(int64); ok {
			m, _ := b.(int64)
			return cmp.Compare(n, m)
		}
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
}

// deleteSome returns a statement that deletes so many rows of a table that a condition finds, from a key on, and that
// returns their keys.
func (d *DB) deleteSome(table, condition, order string, rows int64, from sliceKey, args []any) (string, []any) {
	if from != nil {
		marks := make([]string, len(from))
		for i := range from {
			marks[i] = fmt.Sprintf("$%d", len(args)+i+1)
		}
		condition = fmt.Sprintf(`(%s) >= (%s) AND %s`, order, strings.Join(marks, ", "), condition)
		args = append(slices.Clone(args), from...)
	}
	some := fmt.Sprintf(`%s WHERE %s ORDER BY %s LIMIT %d`, table, condition, order, rows)
	slice := `rowid IN (SELECT rowid FROM ` + some + `)`
	if d.Engine == Postgres {
		slice = `ctid = ANY(ARRAY(SELECT ctid FROM ` + some + `))`
		if i := slices.IndexFunc(yearTables, func(t yearTable) bool { return t.name == table }); i >= 0 {
			key := yearTables[i].key // a ctid is unique in one partition only
			slice = key + ` = ANY(ARRAY(SELECT ` + key + ` FROM ` + some + `))`
		}
	}
	return `DELETE FROM ` + table + ` WHERE ` + slice + ` RETURNING ` + order, args
}
