package db

import (
	"path/filepath"
	"time"
)

// The rest of the disk that is for what is money: rows of the ledger, and the room in which SQLite deletes.
const (
	reservedBytes = 1 << 30
	reservedShare = 10 // but at most a tenth of the disk
	// Less than SQLite's log may grow to reserves nothing: on so small a disk all is stored until it is full.
	minReserved = 32 << 20
)

// diskInterval is for how long the room on the disk is taken as known.
const diskInterval = time.Second

// IsDiskLow reports whether the disk of a SQLite file is so full that only what is money should be stored. What a
// PostgreSQL server has is not known here.
func (d *DB) IsDiskLow() bool {
	if d.Engine != SQLite || d.path == "" {
		return false
	}
	now := time.Now().UnixNano()
	if at := d.diskAt.Load(); now-at >= int64(diskInterval) && d.diskAt.CompareAndSwap(at, now) {
		free, total, err := DiskSpace(filepath.Dir(d.path))
		reserved := min(reservedBytes, total/reservedShare)
		d.diskLow.Store(err == nil && reserved >= minReserved && free < reserved)
	}
	return d.diskLow.Load()
}
