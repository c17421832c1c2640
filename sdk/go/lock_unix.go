//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package purser

import (
	"errors"
	"os"
	"syscall"
)

// tryLockFile locks a file. unlock is nil if another process has the lock.
func tryLockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return func() { _ = f.Close() }, nil // closing unlocks
	}
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return nil, f.Close()
	}
	return nil, errors.Join(err, f.Close())
}

// syncFolder makes changes of a folder survive a power failure.
func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
