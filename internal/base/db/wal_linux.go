package db

import (
	"os"
	"syscall"
)

// flush makes what is written to f durable, but not when it was written: that
// would cost a second write.
func flush(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
