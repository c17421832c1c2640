package world

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"syscall"
)

// A Network connects what is in a box, in memory: who listens has the name of a host, and every port of it.
type Network struct {
	mu     sync.Mutex
	hosts  map[string]*listener
	dials  int
	open   map[*conn]bool // the ends of those who have dialed
	isDown bool
	leaves *leaving // nil = nobody does
}

// A leaving is a connection that ends in the middle, because who has opened it is gone.
type leaving struct {
	host  string
	after int // connections to the host before it
	bytes int // that pass in both directions
	isHit bool
}

// leave lets one of the next connections to a host end in the middle, and returns the one before it; nil = none.
func (n *Network) leave(l *leaving) (was *leaving) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was, n.leaves = n.leaves, l
	return was
}

// cut ends all connections, and lets nobody connect until heal.
func (n *Network) cut() {
	n.mu.Lock()
	open := n.open
	n.open, n.isDown = nil, true
	n.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close() // that of a pipe cannot fail
	}
}

func (n *Network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isDown = false
}

// Listen opens a host. An earlier listener of that name must be closed.
func (n *Network) Listen(host string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{network: n, host: host, queue: make(chan net.Conn), closed: make(chan struct{})}
	if n.hosts == nil {
		n.hosts = map[string]*listener{}
	}
	n.hosts[host] = l
	return l
}

// Dial opens a connection to a host, as (*net.Dialer).DialContext does.
func (n *Network) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	l := n.hosts[host]
	if n.isDown {
		l = nil
	}
	n.dials++
	from := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1024 + n.dials%60000}
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: %w", host, syscall.ECONNREFUSED)}
	if l == nil {
		return nil, refused
	}
	ours, theirs := net.Pipe()
	select {
	case l.queue <- &conn{Conn: theirs, local: l.Addr(), remote: from}:
		return n.add(&conn{Conn: ours, local: from, remote: l.Addr(), network: n}, host)
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A listener is a host of a network.
type listener struct {
	network *Network
	host    string
	queue   chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		err = nil
		close(l.closed)
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		if l.network.hosts[l.host] == l {
			delete(l.network.hosts, l.host)
		}
	})
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Addr is an address of the documentation's range, which the product takes for one of the internet.
func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 80} }

// A conn is an end of a pipe. That of who has dialed knows its network.
type conn struct {
	net.Conn
	local, remote net.Addr
	network       *Network

	mu     sync.Mutex
	leaves *leaving // when it ends in the middle; nil = it does not
}

// add notes a connection that was opened.
func (n *Network) add(c *conn, host string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isDown {
		return nil, errors.Join(net.ErrClosed, c.Conn.Close())
	}
	if n.open == nil {
		n.open = map[*conn]bool{}
	}
	n.open[c] = true
	if l := n.leaves; l != nil && l.host == host {
		if l.after--; l.after == -1 {
			c.leaves = l
		}
	}
	return c, nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), c.room())])
	c.pass(n)
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p[:min(len(p), c.room())])
	c.pass(n)
	if err == nil && n < len(p) {
		err = net.ErrClosed
	}
	return n, err
}

// room is how many bytes may pass now.
func (c *conn) room() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaves == nil {
		return math.MaxInt
	}
	return c.leaves.bytes
}

// pass counts bytes that have passed. Who leaves closes the connection then.
func (c *conn) pass(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaves == nil {
		return
	}
	if c.leaves.bytes = max(0, c.leaves.bytes-n); c.leaves.bytes == 0 {
		c.leaves.isHit = true
		_ = c.Close() // that of a pipe cannot fail
	}
}

func (c *conn) Close() error {
	if n := c.network; n != nil {
		n.mu.Lock()
		delete(n.open, c)
		n.mu.Unlock()
	}
	return c.Conn.Close()
}
