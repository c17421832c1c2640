package web

import (
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// maxHeaderBytes bounds the headers of a request. Our largest valid ones, with cookies, are below 8 KiB.
const maxHeaderBytes = 32 << 10

// NewServer returns a server for h with limits for each connection. Errors of net/http go to log.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h,
		// A connection that never finishes its headers is closed (slowloris).
		ReadHeaderTimeout: 10 * time.Second,
		// For headers and body together: the time for 20 MiB of images on a slow line. It does not limit the response.
		ReadTimeout: 2 * time.Minute,
		// No WriteTimeout: a streamed response has no fixed duration. LimitWrites sets a deadline for each write.
		WriteTimeout: 0,
		// Idle connections stay longer than the minute of common client pools, so that the client closes first and no
		// request meets a closing connection.
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: maxHeaderBytes,
		// "OPTIONS *" goes to the Router like everything else.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// writeTimeout is how long a client may take to accept one write, of up to a whole page, unless the handler has said so
// itself.
const writeTimeout = 2 * time.Minute

// LimitWrites returns a listener whose connections end when their client does not read: a response that waits for it
// holds memory, and often more. What net/http answers by itself becomes an envelope.
func LimitWrites(l net.Listener) net.Listener { return writeLimiter{l, writeTimeout} }

type writeLimiter struct {
	net.Listener
	timeout time.Duration
}

func (l writeLimiter) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &limitedConn{Conn: c, timeout: l.timeout}, nil
}

// A limitedConn sets a deadline for each write that has none that is still to come.
type limitedConn struct {
	net.Conn
	timeout time.Duration
	untilNS atomic.Int64 // the deadline that was set, in Unix nanoseconds
}

func (c *limitedConn) Write(b []byte) (int, error) {
	if answer := refusalOf(b, time.Now()); answer != nil {
		if _, err := c.Conn.Write(answer); err != nil {
			return 0, err
		}
		return len(b), nil
	}
	if now := time.Now(); c.untilNS.Load() < now.UnixNano() {
		if err := c.Conn.SetWriteDeadline(now.Add(c.timeout)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// CloseWrite ends what is sent, so that net/http lets a client read a refusal whose body it has not sent in full.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

func (c *limitedConn) SetWriteDeadline(t time.Time) error {
	c.untilNS.Store(unixNano(t))
	return c.Conn.SetWriteDeadline(t)
}

func (c *limitedConn) SetDeadline(t time.Time) error {
	c.untilNS.Store(unixNano(t))
	return c.Conn.SetDeadline(t)
}

// unixNano returns 0 for no deadline.
func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
