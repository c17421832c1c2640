package db

import "os"

// openLog opens the log for fdatasync: Windows flushes only a file that is open for writing.
func openLog(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR, 0) }
