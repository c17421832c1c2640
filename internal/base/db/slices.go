package db

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	sliceRows     = 1000                   // that one transaction of DeleteSlices deletes
	maxSlicePause = 100 * time.Millisecond // between two of them
)

// DeleteSlices deletes the rows of a table that a condition finds, and returns their number. Each transaction deletes
// some, and calls get at least half of the time between them: one DELETE of a million rows would make all callers wait
// for seconds, or exceed the time limit of a statement each time. It returns without an error when ctx ends: the next
// purge goes on.
func (d *DB) DeleteSlices(ctx context.Context, table, condition string, args ...any) (deleted int64, err error) {
	limit := fmt.Sprintf(` LIMIT %d`, sliceRows)
	slice := `rowid IN (SELECT rowid FROM ` + table + ` WHERE ` + condition + limit + `)`
	if d.Engine == Postgres {
		slice = `ctid = ANY(ARRAY(SELECT ctid FROM ` + table + ` WHERE ` + condition + limit + `))`
		if i := slices.IndexFunc(yearTables, func(t yearTable) bool { return t.name == table }); i >= 0 {
			key := yearTables[i].key // a ctid is unique in one partition only
			slice = key + ` = ANY(ARRAY(SELECT ` + key + ` FROM ` + table + ` WHERE ` + condition + limit + `))`
		}
	}
	for {
		began := time.Now()
		r, err := d.ExecContext(ctx, `DELETE FROM `+table+` WHERE `+slice, args...)
		if err != nil {
			if ctx.Err() != nil {
				return deleted, nil
			}
			return deleted, err
		}
		n, err := r.RowsAffected()
		if deleted += n; err != nil || n < sliceRows {
			return deleted, err
		}
		select {
		case <-time.After(min(time.Since(began), maxSlicePause)):
		case <-ctx.Done():
			return deleted, nil
		}
	}
}
