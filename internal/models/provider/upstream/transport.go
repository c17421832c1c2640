package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/purserhq/purser/internal/base/dial"
)

// Bounds of connections.
const (
	dialTimeout      = 10 * time.Second // for a connection, and again for TLS on it
	idleTimeout      = 90 * time.Second // an unused connection is kept so long
	maxIdle          = 4096             // connections that nothing uses
	maxInformational = 5                // answers 1xx before the real one
	maxSentFirst     = 64 << 10         // a larger request is sent while its answer is already waited for
)

// A Transport sends requests to one server over HTTP/1.1. Each call in flight has one connection, which is kept for the
// next call.
//
// It does the work of http.Transport in the goroutine of the call. http.Transport has two goroutines for each
// connection and passes every request and response between them, which took 37 of the 490 µs of processor time of a
// call (docs/internals/performance.md). Package net/http parses the responses.
//
// No request is sent twice: Transport finds a connection that the server has closed before it writes to it.
type Transport struct {
	address, scheme, host string
	urlErr                error
	dialer                net.Dialer
	tls                   *tls.Config // nil: none

	mu      sync.Mutex
	idle    []*conn // idle, oldest first
	pruning bool    // a timer will close those that are idle too long
}

// NewTransport returns a transport to the server of baseURL. Each call sets its own time-outs and credential, so that
// many accounts may share a transport.
func NewTransport(baseURL string) *Transport {
	u, err := url.Parse(baseURL)
	if err != nil {
		return &Transport{urlErr: err}
	}
	t := &Transport{
		scheme: u.Scheme,
		host:   u.Host,
		dialer: net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second},
	}
	port := u.Port()
	switch u.Scheme {
	case "https":
		t.tls = &tls.Config{ServerName: u.Hostname(), ClientSessionCache: tls.NewLRUClientSessionCache(64)}
		if port == "" {
			port = "443"
		}
	case "http":
		if port == "" {
			port = "80"
		}
	default:
		t.urlErr = fmt.Errorf("%q is neither http nor https", u.Scheme)
	}
	t.address = net.JoinHostPort(u.Hostname(), port)
	return t
}

// errOtherServer is the error for a request to another server.
var errOtherServer = errors.New("the request is for another server")

// An unsentError is why no connection could be made: the server has not got the request.
type unsentError struct{ error }

// Unwrap returns the cause.
func (e unsentError) Unwrap() error { return e.error }

// RoundTrip sends a request and returns the response as soon as its headers have arrived. The end of the request's
// context ends both. A body that is read to its end releases the connection for reuse; Close closes it before that.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close() // the body is in memory, so it can still be read while it is being sent
	}
	if t.urlErr != nil {
		return nil, t.urlErr
	}
	if r.URL.Host != t.host || r.URL.Scheme != t.scheme {
		return nil, errOtherServer
	}
	head, err := appendHead(nil, r)
	if err != nil {
		return nil, err
	}
	c, err := t.connect(r.Context())
	if err != nil {
		return nil, unsentError{err}
	}
	stop := context.AfterFunc(r.Context(), c.close)
	answer, err := c.exchange(r, head)
	if err != nil {
		stop()
		c.close()
		return nil, err
	}
	answer.Body = &body{
		t:         t,
		c:         c,
		from:      answer.Body,
		stop:      stop,
		mustClose: answer.Close || answer.StatusCode == http.StatusSwitchingProtocols,
	}
	return answer, nil
}

// appendHead writes the request line and the headers.
func appendHead(b []byte, r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 {
		return nil, errors.New("the length of the request is not known")
	}
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	b = append(b, r.Method...)
	b = append(append(b, ' '), r.URL.RequestURI()...)
	b = append(append(b, " HTTP/1.1\r\nHost: "...), host...)
	for name, values := range r.Header {
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n\x00") || strings.ContainsAny(name, "\r\n\x00: ") {
				return nil, fmt.Errorf("the header %q cannot be sent", name) // its value may be a secret
			}
			b = append(append(append(append(b, "\r\n"...), name...), ": "...), v...)
		}
	}
	if r.Body != nil {
		b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), r.ContentLength, 10)
	}
	return append(b, "\r\n\r\n"...), nil
}

// connect returns an idle connection that is still open, or a new one.
func (t *Transport) connect(ctx context.Context) (*conn, error) {
	for {
		t.mu.Lock()
		last := len(t.idle) - 1
		if last < 0 {
			t.mu.Unlock()
			return t.dial(ctx)
		}
		c := t.idle[last] // the most recently used one is most likely still open
		t.idle[last], t.idle = nil, t.idle[:last]
		t.mu.Unlock()
		if c.isIdle() {
			return c, nil
		}
		c.close()
	}
}

func (t *Transport) dial(ctx context.Context) (*conn, error) {
	plain, err := dial.By(&t.dialer)(ctx, "tcp", t.address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: plain}
	if s, ok := plain.(syscall.Conn); ok { // a diverted one may be none, and serves one call
		if c.raw, err = s.SyscallConn(); err != nil {
			return nil, errors.Join(err, plain.Close())
		}
	}
	c.probeFunc = c.probe
	c.in = bufio.NewReaderSize((*limited)(c), 4<<10)
	if t.tls == nil {
		return c, nil
	}
	secure := tls.Client(plain, t.tls)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	c.Conn = secure
	return c, nil
}

// storeIdle keeps a connection for the next call.
func (t *Transport) storeIdle(c *conn) {
	c.since = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.idle) >= maxIdle {
		c.close()
		return
	}
	t.idle = append(t.idle, c)
	t.prune()
}

// prune starts a timer that closes connections after idleTimeout. t.mu is held.
func (t *Transport) prune() {
	if t.pruning || len(t.idle) == 0 {
		return
	}
	t.pruning = true
	time.AfterFunc(time.Until(t.idle[0].since.Add(idleTimeout)), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		old := 0
		for old < len(t.idle) && time.Since(t.idle[old].since) >= idleTimeout {
			t.idle[old].close()
			old++
		}
		t.idle = append(t.idle[:0:0], t.idle[old:]...)
		t.pruning = false
		t.prune()
	})
}

// CloseIdleConnections closes the idle connections.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.idle {
		c.close()
	}
	t.idle = nil
}

// A conn is one connection. It belongs to one call at a time.
type conn struct {
	net.Conn
	in        *bufio.Reader
	readLimit int64      // so many bytes may still come
	sent      chan error // how the sending ended that is not waited for; nil: all was sent
	since     time.Time  // kept since

	raw       syscall.RawConn
	probeFunc func(uintptr) bool // look, made once
	alive     bool               // what look has seen
}

// limited reads from a connection until conn.readLimit, which bounds the headers of a response.
type limited conn

var errLongHead = fmt.Errorf("the answer's headers have more than %d bytes", maxHeader)

func (c *limited) Read(p []byte) (int, error) {
	if c.readLimit <= 0 {
		return 0, errLongHead
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.readLimit)])
	c.readLimit -= int64(n)
	return n, err
}

func (c *conn) close() { _ = c.Close() } // unsent data is no longer needed

// isIdle reports whether an idle connection is still open and the server has sent nothing on it.
func (c *conn) isIdle() bool {
	c.alive = false
	return c.raw != nil && c.raw.Read(c.probeFunc) == nil && c.alive
}

var errNoFinalResponse = errors.New("the answer does not come, only notes about it")

// exchange sends a request and reads the headers of the response. It sends a large request while it waits for them,
// because a server may refuse it before it has read all of it.
func (c *conn) exchange(r *http.Request, head []byte) (*http.Response, error) {
	c.readLimit, c.sent = maxHeader, nil
	if r.ContentLength <= maxSentFirst {
		if err := c.send(head, r); err != nil {
			return nil, err
		}
	} else {
		c.sent = make(chan error, 1)
		go func(sent chan<- error) {
			_, err := c.Write(head)
			if err == nil {
				_, err = io.Copy(c.Conn, r.Body)
			}
			sent <- err
		}(c.sent)
	}
	for range maxInformational {
		answer, err := http.ReadResponse(c.in, r)
		if err != nil {
			return nil, explainExchange(err)
		}
		if answer.StatusCode >= 200 || answer.StatusCode == http.StatusSwitchingProtocols {
			c.readLimit = math.MaxInt64
			return answer, nil
		}
	}
	return nil, errNoFinalResponse
}

// send writes a request in one write.
func (c *conn) send(head []byte, r *http.Request) error {
	if n := int(r.ContentLength); n > 0 {
		at := len(head)
		head = append(head, make([]byte, n)...)
		if _, err := io.ReadFull(r.Body, head[at:]); err != nil {
			return err
		}
	}
	_, err := c.Write(head)
	return err
}

// reusable reports whether the next request may use the connection after the end of a response was read: the request
// was sent completely, and no data follows the response.
func (c *conn) reusable() bool {
	if c.sent != nil {
		select {
		case err := <-c.sent:
			return err == nil && c.in.Buffered() == 0
		default:
			return false
		}
	}
	return c.in.Buffered() == 0
}

// A body is the body of a response. Close may be called while Read waits.
type body struct {
	t         *Transport
	c         *conn
	from      io.Reader
	stop      func() bool // until it is called, the end of the context closes the connection
	mustClose bool        // no other request may follow
	err       error       // how reading ended
	released  atomic.Bool // the connection is kept or closed
}

func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.released.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.from.Read(p)
	if b.err = err; err != nil {
		b.release(errors.Is(err, io.EOF))
	}
	return n, err
}

// Close closes the connection, unless the end was read.
func (b *body) Close() error {
	b.release(false)
	return nil
}

// release keeps the connection for reuse if the body was read to its end, and closes it otherwise.
func (b *body) release(whole bool) {
	if b.released.Swap(true) {
		return
	}
	if b.stop() && whole && !b.mustClose && b.c.reusable() {
		b.t.storeIdle(b.c)
		return
	}
	b.c.close()
}
