package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
// exceed the time limit of a statement each time. The condition ends with the order of an index: without it PostgreSQL
// may read the table from its beginning each time, with all that was deleted before. Rows with many others that go with
// them take longer, so the number of rows follows the time. If the time of ctx is over before, the error is
// ErrUnfinished: the next purge goes on.
func (d *DB) DeleteSlices(ctx context.Context, table, condition string, args ...any) (deleted int64, err error) {
	rows := int64(maxSliceRows)
	for {
		var n int64
		asked := rows
		err := d.InTurn(ctx, func() error {
			began := time.Now()
			r, err := d.ExecContext(ctx, d.deleteSome(table, condition, asked), args...)
			if err != nil {
				return err
			}
			switch took := time.Since(began); {
			case took > longSlice:
				rows = max(rows/2, minSliceRows)
			case took < longSlice/2:
				rows = min(rows*2, maxSliceRows)
			}
			n, err = r.RowsAffected()
			return err
		})
		deleted += n
		switch {
		case err != nil && ctx.Err() != nil, err == nil && n == asked && ctx.Err() != nil:
			return deleted, fmt.Errorf("%w: %d rows of %s were deleted", ErrUnfinished, deleted, table)
		case err != nil, n < asked:
			return deleted, err
		}
	}
}

// deleteSome returns a statement that deletes so many rows of a table that a condition finds.
func (d *DB) deleteSome(table, condition string, rows int64) string {
	some := fmt.Sprintf(`%s WHERE %s LIMIT %d`, table, condition, rows)
	slice := `rowid IN (SELECT rowid FROM ` + some + `)`
	if d.Engine == Postgres {
		slice = `ctid = ANY(ARRAY(SELECT ctid FROM ` + some + `))`
		if i := slices.IndexFunc(yearTables, func(t yearTable) bool { return t.name == table }); i >= 0 {
			key := yearTables[i].key // a ctid is unique in one partition only
			slice = key + ` = ANY(ARRAY(SELECT ` + key + ` FROM ` + some + `))`
		}
	}
	return `DELETE FROM ` + table + ` WHERE ` + slice
}
