package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// A Network connects what is in a box, in memory: who listens has the name of a host, and every port of it.
type Network struct {
	mu    sync.Mutex
	hosts map[string]*listener
	dials int
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
	n.dials++
	from := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1024 + n.dials%60000}
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: %w", host, syscall.ECONNREFUSED)}
	if l == nil {
		return nil, refused
	}
	ours, theirs := net.Pipe()
	select {
	case l.queue <- conn{theirs, l.Addr(), from}:
		return conn{ours, from, l.Addr()}, nil
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

// A conn is a pipe whose ends have addresses.
type conn struct {
	net.Conn
	local, remote net.Addr
}

func (c conn) LocalAddr() net.Addr  { return c.local }
func (c conn) RemoteAddr() net.Addr { return c.remote }
