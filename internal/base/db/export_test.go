package db

import (
	"io/fs"
	"testing"
	"testing/fstest"
	"time"
)

// AwaitIdleCheck returns when nobody looks whether the idle connections are dead.
func (d *DB) AwaitIdleCheck() {
	for d.discarding.Load() {
		time.Sleep(time.Millisecond)
	}
}

// AddMigration gives the binary a migration after all others, until the test ends. The test is not parallel.
func AddMigration(t *testing.T, text string) {
	t.Helper()
	all := fstest.MapFS{"migrations/9000_later.sql": {Data: []byte(text)}}
	names, err := fs.Glob(embedded, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		old, err := fs.ReadFile(embedded, name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = &fstest.MapFile{Data: old}
	}
	migrations = all
	t.Cleanup(func() { migrations = embedded })
}
