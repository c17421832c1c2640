//go:build unix

package db

import "os"

// openLog opens the log for fdatasync.
func openLog(path string) (*os.File, error) { return os.Open(path) }
