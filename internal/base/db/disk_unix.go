//go:build unix

package db

import "syscall"

// DiskSpace returns how many bytes can still be written to the disk of a folder, and how many it has.
func DiskSpace(folder string) (free, total uint64, err error) {
	var stat syscall.Statfs_t
	err = syscall.Statfs(folder, &stat)
	return uint64(stat.Bavail) * uint64(stat.Bsize), uint64(stat.Blocks) * uint64(stat.Bsize), err
}
