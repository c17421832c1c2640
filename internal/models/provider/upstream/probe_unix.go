//go:build unix

package upstream

import (
	"errors"
	"syscall"
)

// probe reads without waiting. An open idle connection has nothing to read.
func (c *conn) probe(fd uintptr) bool {
	var b [1]byte
	_, err := syscall.Read(int(fd), b[:])
	c.alive = errors.Is(err, syscall.EAGAIN)
	return true
}
