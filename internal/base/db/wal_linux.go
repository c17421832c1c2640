package db

import (
	"os"
	"syscall"
)

// fdatasync makes the content of f durable, but not its modification time, which would cost a second write.
func fdatasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
