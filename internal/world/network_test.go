package world

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// A Network connects what is in a box: who listens has the name of a host, and every port of it. It is in memory, or
// has a socket of the machine for each host. A process of the product reaches each host by a name of its own, such as
// stripe-1, and all of them are reached as purser, of which one answers, or all in turn.
type Network struct {
	hasSockets bool

	mu     sync.Mutex
	hosts  map[string]*listener
	dials  int
	open   map[*conn]bool                       // the ends of those who have dialed
	before map[int]func(to string) func() error // by the number of a process; see node.before
	down   map[int]bool                         // processes that have ended
	at     []int                                // the processes that answer, in turn
	leaves *leaving                             // nil = nobody does
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

// newNetwork returns a network of nobody.
func newNetwork(hasSockets bool) *Network {
	return &Network{hasSockets: hasSockets, hosts: map[string]*listener{}, open: map[*conn]bool{},
		before: map[int]func(string) func() error{}, down: map[int]bool{}}
}

// nobody is the process of a host that several have in common.
const nobody = 0

// add adds a process.
func (n *Network) add(process int, before func(to string) func() error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.before[process] = before
}

// lead lets processes answer, in turn.
func (n *Network) lead(processes ...int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at = processes
}

// cut ends all connections of a process, and lets it have no others.
func (n *Network) cut(process int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down[process] = true
	for c := range n.open {
		if c.process == process || c.process == nobody {
			_ = c.Conn.Close() // that of a pipe cannot fail, and that of a socket does not matter
			delete(n.open, c)
		}
	}
}

// Listen opens a host. An earlier listener of that name must be closed.
func (n *Network) Listen(host string) (net.Listener, error) {
	l := &listener{network: n, host: host, queue: make(chan net.Conn), closed: make(chan struct{})}
	if n.hasSockets {
		var err error
		if l.socket, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, process := n.find(host); strings.HasPrefix(host, purserHost) {
		l.before = n.before[process]("")
	}
	n.hosts[host] = l
	return l, nil
}

// find returns who listens as a host, and the process whose host it is.
func (n *Network) find(host string) (l *listener, process int) {
	label, rest, _ := strings.Cut(host, ".")
	name, number, isOwn := strings.Cut(label, "-")
	switch {
	case isOwn:
		process, _ = strconv.Atoi(number) // the box has made it
		if name != purserHost {
			host = name + "." + rest
		}
	case name == purserHost:
		process = n.at[n.dials%len(n.at)]
		host = fmt.Sprintf("%s-%d.%s", name, process, rest)
	}
	if n.isDown(process) {
		return nil, process
	}
	return n.hosts[host], process
}

// isDown reports whether a process has ended; that of a host in common has if all have.
func (n *Network) isDown(process int) bool {
	return n.down[process] || process == nobody && len(n.at) > 0 && n.down[n.at[0]]
}

// Dial opens a connection to a host, as (*net.Dialer).DialContext does.
func (n *Network) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	l, process := n.find(host)
	n.dials++
	from := &net.TCPAddr{IP: caller.IP, Port: 1024 + n.dials%60000}
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: %w", host, syscall.ECONNREFUSED)}
	if l == nil {
		return nil, refused
	}
	ours, err := l.connect(ctx, from)
	if errors.Is(err, net.ErrClosed) {
		return nil, refused
	} else if err != nil {
		return nil, err
	}
	return n.note(&conn{Conn: ours, local: from, remote: l.Addr(), network: n, process: process}, host)
}

// A listener is a host of a network.
type listener struct {
	network *Network
	host    string
	before  func() error // asked before it says something; nil = it is not asked
	socket  net.Listener // nil = it is in memory
	queue   chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

// connect opens a connection to the host, and returns the other end of it.
func (l *listener) connect(ctx context.Context, from net.Addr) (net.Conn, error) {
	if l.socket != nil {
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.socket.Addr().String())
	}
	ours, theirs := net.Pipe()
	select {
	case l.queue <- &conn{Conn: theirs, local: l.Addr(), remote: from}:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *listener) Accept() (net.Conn, error) {
	if l.socket != nil {
		c, err := l.socket.Accept()
		if err != nil {
			return nil, err
		}
		return &conn{Conn: c, local: l.Addr(), remote: caller, before: l.before}, nil
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() (err error) {
	l.once.Do(func() {
		close(l.closed)
		if l.socket != nil {
			err = l.socket.Close()
		}
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		if l.network.hosts[l.host] == l {
			delete(l.network.hosts, l.host)
		}
	})
	return err
}

// caller is the address of who dials.
var caller = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1024}

// Addr is an address of the documentation's range, which the product takes for one of the internet.
func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 80} }

// A conn is an end of a connection. That of who has dialed knows its network.
type conn struct {
	net.Conn
	local, remote net.Addr
	network       *Network
	process       int          // one end is its
	before        func() error // asked before this end says something; nil = it is not asked

	mu     sync.Mutex
	leaves *leaving // when it ends in the middle; nil = it does not
}

// note notes a connection that was opened to a host.
func (n *Network) note(c *conn, host string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isDown(c.process) {
		return nil, errors.Join(net.ErrClosed, c.Conn.Close())
	}
	n.open[c] = true
	if !strings.HasPrefix(host, purserHost) && c.process != nobody {
		c.before = n.before[c.process](toOutside)
	}
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
	if c.before != nil {
		if err := c.before(); err != nil {
			return 0, errors.Join(err, c.Close())
		}
	}
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
