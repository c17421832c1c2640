package db

import (
	"os"
	"strings"
	"syscall"
)

const (
	tcpUserTimeout     = 18   // TCP_USER_TIMEOUT of <netinet/tcp.h>
	unacknowledgedTime = 5000 // milliseconds
)

// limitUnacknowledged lets the kernel end a TCP connection whose peer has not acknowledged what was sent.
func limitUnacknowledged(network, _ string, c syscall.RawConn) (err error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	if controlErr := c.Control(func(fd uintptr) {
		err = os.NewSyscallError("setsockopt",
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, unacknowledgedTime))
	}); controlErr != nil {
		return controlErr
	}
	return err
}
