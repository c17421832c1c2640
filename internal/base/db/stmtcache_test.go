package db

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

// TestReadsArePrepared shows that a frequent query is prepared and returns the same rows as before, that a rare or
// wrong one is not prepared, and that the number of prepared queries is bounded.
func TestReadsArePrepared(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d, err := Open(ctx, "sqlite:"+filepath.Join(t.TempDir(), "purser.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	const count = `SELECT COUNT(*), $1 FROM nodes`
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 3 * prepareAfter {
				var rows, echo int
				if err := d.QueryRowContext(ctx, count, i).Scan(&rows, &echo); err != nil || rows != 0 || echo != i {
					t.Errorf("%d %d %v", rows, echo, err)
				}
			}
		})
	}
	all.Wait()
	if d.stmts.lookup(ctx, count) == nil {
		t.Error("a frequent query was not prepared")
	}
	if _, err := d.ExecContext(ctx, `INSERT INTO nodes (id, started_us, lease_us) VALUES ('nod_1', 1, 1)`); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ExecContext(ctx, `ALTER TABLE nodes ADD COLUMN later BIGINT`); err != nil {
		t.Fatal(err)
	}
	var rows, echo int
	if err := d.QueryRowContext(ctx, count, 7).Scan(&rows, &echo); err != nil || rows != 1 || echo != 7 {
		t.Errorf("after a change of the schema: %d %d %v", rows, echo, err)
	}
	for range 2 * prepareAfter {
		if _, err := d.QueryContext(ctx, `SELECT nothing FROM nowhere`); err == nil {
			t.Fatal("a wrong query succeeded")
		}
	}
	if d.stmts.lookup(ctx, `SELECT nothing FROM nowhere`) != nil || d.stmts.lookup(ctx, `SELECT 1`) != nil {
		t.Error("a wrong query was prepared, or one that never ran")
	}
	for i := range maxCounted {
		for range prepareAfter + 1 {
			if i < maxPrepared+10 || i == maxCounted-1 {
				d.stmts.lookup(ctx, fmt.Sprintf(`SELECT %d`, i))
			}
		}
	}
	if d.stmts.prepared != maxPrepared {
		t.Errorf("%d queries are prepared", d.stmts.prepared)
	}
}
