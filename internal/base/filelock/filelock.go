// Package filelock locks files between processes. The system releases the locks of a process that dies.
package filelock

import "os"

// TryLock locks an open file and returns at once. It is false when another process, or another opening of the file,
// has the lock.
func TryLock(f *os.File) (bool, error) { return tryLock(f) }

// Unlock releases the lock of a file. A closed file has none: the error is os.ErrClosed.
func Unlock(f *os.File) error { return unlock(f) }
