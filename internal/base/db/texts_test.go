package db

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

// A text that comes often is prepared, and says the same as before; one that comes
// seldom, or that cannot be prepared, is not; and there is an end to them.
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
			for i := range 3 * often {
				var rows, echo int
				if err := d.QueryRowContext(ctx, count, i).Scan(&rows, &echo); err != nil || rows != 0 || echo != i {
					t.Errorf("%d %d %v", rows, echo, err)
				}
			}
		})
	}
	all.Wait()
	if d.texts.find(ctx, count) == nil {
		t.Error("a text that came often was not prepared")
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
	for range 2 * often {
		if _, err := d.QueryContext(ctx, `SELECT nothing FROM nowhere`); err == nil {
			t.Fatal("a wrong text was answered")
		}
	}
	if d.texts.find(ctx, `SELECT nothing FROM nowhere`) != nil || d.texts.find(ctx, `SELECT 1`) != nil {
		t.Error("a text was prepared that is wrong, or that never came")
	}
	for i := range maxTexts {
		for range often + 1 {
			if i < maxPrepared+10 || i == maxTexts-1 {
				d.texts.find(ctx, fmt.Sprintf(`SELECT %d`, i))
			}
		}
	}
	if d.texts.kept != maxPrepared {
		t.Errorf("%d are prepared", d.texts.kept)
	}
}
