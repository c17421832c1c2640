//go:build !linux

package db

import "syscall"

// limitUnacknowledged does nothing: the system's own limit counts.
func limitUnacknowledged(string, string, syscall.RawConn) error { return nil }
