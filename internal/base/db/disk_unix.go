//go:build unix

package db

import (
	"os"
	"path/filepath"
	"syscall"
)

// DiskSpace returns how many bytes can still be written to the disk of a folder, and how many it has.
func DiskSpace(folder string) (free, total uint64, err error) {
	var stat syscall.Statfs_t
	err = syscall.Statfs(folder, &stat)
	return uint64(stat.Bavail) * uint64(stat.Bsize), uint64(stat.Blocks) * uint64(stat.Bsize), err
}

// giveToOwner gives a file that root has made to the owner of its folder: a service that runs as that user could not
// open it otherwise.
func giveToOwner(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid == 0 {
		return nil
	}
	return os.Lchown(path, int(stat.Uid), int(stat.Gid))
}
