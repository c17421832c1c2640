//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package purser

import (
	"errors"
	"os"
	"time"
)

// abandonedAfter is when a lock is taken for the remains of a process that has crashed. It is longer than a refresh
// takes with all its retries; if two processes refresh nevertheless, they send the same key and get the same tokens.
const abandonedAfter = 2 * time.Minute

// tryLockFile creates a file that must not exist. unlock is nil if another process has the lock.
func tryLockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		return func() { _ = os.Remove(path) }, f.Close()
	}
	if !errors.Is(err, os.ErrExist) && !errors.Is(err, os.ErrPermission) { // Windows denies what is being removed
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > abandonedAfter {
		_ = os.Remove(path)
	}
	return nil, nil
}

// syncFolder does nothing: these systems have no way to sync a folder.
func syncFolder(string) error { return nil }
