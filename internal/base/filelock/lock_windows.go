package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// wholeFile locks a file's first byte, which stands for the whole.
const wholeFile = 1

func tryLock(f *os.File) (bool, error) {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, wholeFile, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

func unlock(f *os.File) error {
	err := windows.UnlockFileEx(windows.Handle(f.Fd()), 0, wholeFile, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_INVALID_HANDLE) {
		return os.ErrClosed
	}
	return err
}
