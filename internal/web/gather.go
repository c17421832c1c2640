package web

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// maxGathered bounds what a connection holds back, in bytes.
const maxGathered = 16 << 10

// Gathering returns l with connections on which Gather works.
func Gathering(l net.Listener) net.Listener { return gathering{l} }

type gathering struct{ net.Listener }

func (l gathering) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// Gather makes w hold back what is written until it is flushed, or the handler has
// returned: then it goes out together with the end of the body. It is for streams,
// whose end net/http writes by itself; without Gathering it does nothing.
//
// net/http writes to a connection in pieces of 4 KiB, and each write costs both sides
// more than all that is done with a chunk: a stream in four writes instead of two
// takes 3.5 % more of the machine (docs/performance.md).
func Gather(w http.ResponseWriter) {
	if rw, ok := w.(*response); ok && rw.conn != nil {
		rw.gathers = true
		rw.conn.gather(true)
	}
}

// A conn is a client's connection that can hold back what is written.
type conn struct {
	net.Conn

	mu      sync.Mutex // of what follows: net/http reads ahead while a handler writes
	gathers bool
	held    *[]byte // of buffers; nil = nothing
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, maxGathered); return &b }}

type connKey struct{}

// withConn is the ConnContext of our servers.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*conn); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// connOf returns nil for a connection that cannot gather.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// gather begins or ends holding back. What is held at the end goes out with the
// next write.
func (c *conn) gather(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gathers = on
}

func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.held == nil && (!c.gathers || len(p) > maxGathered):
		return c.Conn.Write(p)
	case c.held == nil:
		c.held = buffers.Get().(*[]byte)
	case len(*c.held)+len(p) > maxGathered:
		if err := c.send(); err != nil {
			return 0, err
		}
		return c.Conn.Write(p)
	}
	*c.held = append(*c.held, p...)
	if c.gathers {
		return len(p), nil
	}
	if err := c.send(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush sends what is held.
func (c *conn) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send()
}

// send is flush for who has the lock. What could not be sent is lost, as the
// connection is.
func (c *conn) send() error {
	if c.held == nil {
		return nil
	}
	_, err := c.Conn.Write(*c.held)
	*c.held = (*c.held)[:0]
	buffers.Put(c.held)
	c.held = nil
	return err
}

// Read sends first what is held, if no handler is at work: who waits for the next
// request has nothing to add.
func (c *conn) Read(p []byte) (int, error) {
	if err := c.settle(); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *conn) settle() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gathers {
		return nil
	}
	return c.send()
}

// Close sends what is held, unless a write is stuck, which it ends.
func (c *conn) Close() error {
	if c.mu.TryLock() {
		_ = c.send() // as net/http does with its own buffer: nobody is left to be told
		c.mu.Unlock()
	}
	return c.Conn.Close()
}

// CloseWrite lets a client read to the end of an answer after which the connection
// is closed; net/http asks for it.
func (c *conn) CloseWrite() error {
	if err := c.flush(); err != nil {
		return err
	}
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	return half.CloseWrite()
}
