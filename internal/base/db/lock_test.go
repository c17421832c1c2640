package db

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// F-104: a first start that is killed before its database is there leaves nothing that a later start would miss, nor
// does one whose file is still empty. Afterwards the lock alone is refused.
func TestKilledFirstStart(t *testing.T) {
	t.Parallel()
	const variable = "PURSER_TEST_FIRST_START"
	if path := os.Getenv(variable); path != "" {
		_, unused, err := takeLock(path)
		self, failed := os.FindProcess(os.Getpid())
		if !unused || errors.Join(err, failed) != nil {
			t.Fatal(unused, err, failed)
		}
		t.Fatal(self.Kill(), <-make(chan struct{}))
	}
	path := filepath.Join(t.TempDir(), "purser.db")
	first := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledFirstStart$")
	first.Env = append(os.Environ(), variable+"="+path)
	if text, err := first.CombinedOutput(); err == nil || first.ProcessState.Exited() {
		t.Fatalf("the first start was not killed: %v\n%s", err, text)
	}
	if !isThere(path+".lock") || isThere(path) {
		t.Fatal("the first start was not killed between lock and file")
	}
	for range 2 { // the second start finds an empty file
		lock, err := lockFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := unlockFile(lock); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := lockFile(path); err == nil {
		t.Error("a file that is gone was replaced by a new one")
	}
}
