//go:build unix

package db_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
)

// TestRootGivesFilesToTheirOwner: what root puts into the folder of a service's user is that user's.
func TestRootGivesFilesToTheirOwner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const user, group = 1234, 2345
	folder := t.TempDir()
	if err := os.Chown(folder, user, group); err != nil {
		t.Fatal(err)
	}
	file, draft := filepath.Join(folder, "purser.db"), filepath.Join(folder, "purser.db.draft")
	place, err := db.TakePlace(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(draft, []byte("rows"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := place.Fill(draft); err != nil {
		t.Fatal(err)
	}
	if err := place.Leave(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, file + ".lock"} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Uid != user || stat.Gid != group {
			t.Errorf("%s is not the user's: %+v", path, info.Sys())
		}
	}
}
