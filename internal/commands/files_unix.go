//go:build unix

package commands

import (
	"errors"
	"os"
	"syscall"
)

// syncFolder makes changes of a folder survive a power failure.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// isPrivate reports whether the user who runs this process owns a file and alone can read it.
func isPrivate(_ string, info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid() && info.Mode().Perm()&0o077 == 0
}

// isWritable reports whether this process may make files in a folder.
func isWritable(folder string) bool {
	const writable, executable = 0x2, 0x1
	return syscall.Access(folder, writable|executable) == nil
}

// maxOpenFiles returns how many files this process may have open. Go has raised the limit as far as the system allows.
func maxOpenFiles() (n uint64, known bool) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return limit.Cur, err == nil
}

// otherUsersMay reports whether users other than the owner have one of the rights of a mask such as 022.
func otherUsersMay(info os.FileInfo, mask os.FileMode) bool { return info.Mode().Perm()&mask != 0 }
