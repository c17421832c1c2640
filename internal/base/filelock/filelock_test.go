package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestLocksExclude locks a file that is open twice: the second opening gets the lock after the first released it.
func TestLocksExclude(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.lock")
	var files [2]*os.File
	for i := range files {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	expectLock := func(f *os.File, want bool) {
		t.Helper()
		if got, err := TryLock(f); got != want || err != nil {
			t.Fatalf("TryLock: %t, %v, and not %t", got, err, want)
		}
	}
	expectLock(files[0], true)
	expectLock(files[1], false)
	if err := Unlock(files[0]); err != nil {
		t.Fatal(err)
	}
	expectLock(files[1], true)
	expectLock(files[0], false)
	if err := files[1].Close(); err != nil { // also unlocks
		t.Fatal(err)
	}
	expectLock(files[0], true)
	if err := Unlock(files[1]); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Unlock of a closed file: %v", err)
	}
}
