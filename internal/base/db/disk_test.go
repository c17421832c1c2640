package db_test

import (
	"path/filepath"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/faulttest"
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

// TestStopOnFullDisk stops a node whose disk has no room for the mark of an orderly end: the next start takes the file
// for whole, as it is.
func TestStopOnFullDisk(t *testing.T) {
	t.Parallel()
	disk := faulttest.NewDisk(t, 48)
	if disk == nil {
		return // it has run as another process
	}
	at := "sqlite:" + filepath.Join(disk.Dir, "purser.db")
	d, err := db.Open(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	disk.Fill(t)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	disk.Free(t)
	if d, err = db.Open(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
