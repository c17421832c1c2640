package purser_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// isForeignFolder reports whether a folder holds no files of this repository: it is git's,
// fetched, built, or another worktree within this one.
func isForeignFolder(name string, d fs.DirEntry) bool {
	if !d.IsDir() || name == "." {
		return false
	}
	if slices.Contains([]string{".git", "node_modules", "purser-data", "dist"}, d.Name()) {
		return true
	}
	_, err := os.Lstat(filepath.Join(name, ".git"))
	return err == nil
}
