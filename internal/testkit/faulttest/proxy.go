// Package faulttest breaks what a node depends on: its connections to PostgreSQL, and the disk of
// its SQLite file. dbtest.Cluster breaks a PostgreSQL itself.
package faulttest

import (
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Proxy forwards TCP connections to a PostgreSQL until it is to break them.
type Proxy struct {
	URL string // of the database, through the proxy

	network, address string // of the server
	listener         net.Listener
	before           []func() error
	delay            atomic.Int64 // of what is forwarded, in nanoseconds
	answers          atomic.Int64 // reads from the server

	mu    sync.Mutex
	links map[*link]bool
}

// A link is one connection through the proxy.
type link struct {
	client, server net.Conn
	hole           atomic.Bool // nothing is forwarded any more
}

// NewProxy starts a proxy for the database at a PostgreSQL URL. It ends with the test. Whatever a client sends is
// forwarded when each of before has returned; an error ends the connection.
func NewProxy(t testing.TB, database string, before ...func() error) *Proxy {
	t.Helper()
	config, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{links: map[*link]bool{}, before: before}
	p.network, p.address = pgconn.NetworkAddress(config.Host, config.Port)
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Del("host")            // the folder of a Unix socket
	query.Del("connect_timeout") // a database that hangs is what its limit is for
	u.Host, u.RawQuery = p.listener.Addr().String(), query.Encode()
	p.URL = u.String()
	var accepting sync.WaitGroup
	accepting.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listener.Close()
		accepting.Wait()
		p.Cut()
	})
	return p
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		go p.forward(client)
	}
}

// forward connects a client to the server.
func (p *Proxy) forward(client net.Conn) {
	server, err := net.Dial(p.network, p.address)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server}
	p.mu.Lock()
	p.links[l] = true
	p.mu.Unlock()
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(l, client, server) })
	pumps.Go(func() { p.pump(l, server, client) })
	pumps.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// holeLinger is how long the server does not notice that the client of a black-holed connection
// has gone: its transaction keeps its locks for that time.
const holeLinger = 5 * time.Second

// pump forwards one direction until it ends, and then closes both. In a black hole it goes on
// reading, so that the sender's data are acknowledged, and the other side hears of no end.
func (p *Proxy) pump(l *link, from, to net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && from == l.server {
			p.answers.Add(1)
		}
		if d := p.delay.Load(); d > 0 {
			time.Sleep(time.Duration(d))
		}
		if n > 0 && from == l.client {
			for _, f := range p.before {
				if failed := f(); failed != nil {
					n, err = 0, failed
				}
			}
		}
		if !l.hole.Load() {
			if _, writeErr := to.Write(buffer[:n]); writeErr != nil && err == nil {
				err = writeErr
			}
		}
		if err == nil {
			continue
		}
		switch {
		case !l.hole.Load():
			l.close()
		case from == l.client:
			time.AfterFunc(holeLinger, l.close)
		}
		return
	}
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// Answers returns how often the server has answered so far, about one for each statement: what a slow network
// multiplies, on a machine of any speed.
func (p *Proxy) Answers() int {
	return int(p.answers.Load())
}

// BlackHole lets all present connections stay open and carry nothing any more, and returns their
// number. New connections work.
func (p *Proxy) BlackHole() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for l := range p.links {
		if !l.hole.Swap(true) {
			n++
		}
	}
	return n
}

// Cut closes all present connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// SetDelay delays whatever is forwarded from now on, in each direction.
func (p *Proxy) SetDelay(d time.Duration) { p.delay.Store(int64(d)) }
