package testkit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// TakeTurn waits for one of as many turns as the machine has processors, and returns what gives it back. All test
// processes of the machine share the turns of a kind of work that needs a processor and has time limits: more of it at
// once would only miss them. A turn is the lock of a file, so that it ends with its process.
func TakeTurn(kind string) (release func(), err error) {
	folder := filepath.Join(os.TempDir(), fmt.Sprintf("purser-turns-%d", os.Getuid()))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	n := runtime.NumCPU()
	for try := range n {
		f, err := lockFile(folder, kind, try, syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return f, err
		}
	}
	return lockFile(folder, kind, rand.IntN(n), 0)
}

// lockFile locks the file of a turn, and returns what unlocks it.
func lockFile(folder, kind string, turn, how int) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(folder, fmt.Sprintf("%s-%d", kind, turn)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // closing it unlocks it
}
