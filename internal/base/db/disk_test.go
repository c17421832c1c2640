package db_test

import (
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestDiskSpace: the disk of a SQLite file is looked at, and what a PostgreSQL server has is not known.
func TestDiskSpace(t *testing.T) {
	t.Parallel()
	free, total, err := db.DiskSpace(t.TempDir())
	if err != nil || total == 0 || free > total {
		t.Errorf("%d of %d bytes, %v", free, total, err)
	}
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		if d := dbtest.Open(t, e); d.IsDiskLow() {
			t.Errorf("%s: the disk of this test is low", e)
		}
	}
}
