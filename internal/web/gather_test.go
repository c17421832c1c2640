package web

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// counted tells how a server wrote to its clients.
type counted struct {
	net.Listener
	mu     sync.Mutex
	writes [][]byte
}

type countedConn struct {
	net.Conn
	l *counted
}

func (l *counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l}, err
}

func (c countedConn) Write(p []byte) (int, error) {
	c.l.mu.Lock()
	c.l.writes = append(c.l.writes, bytes.Clone(p))
	c.l.mu.Unlock()
	return c.Conn.Write(p)
}

func (c countedConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// seen returns the lengths of what was written since the last time.
func (l *counted) seen() (sizes []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.writes {
		sizes = append(sizes, len(p))
	}
	l.writes = nil
	return sizes
}

// gatherServer serves h at / as Purser does.
func gatherServer(t *testing.T, h Handler) (*counted, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rt := NewRouter(slog.New(slog.DiscardHandler), Links{})
	rt.Handle("GET /", h)
	seen := &counted{Listener: l}
	server, served := NewServer(rt, slog.New(slog.DiscardHandler)), make(chan error, 1)
	go func() { served <- server.Serve(Gathering(seen)) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	return seen, l.Addr().String()
}

// part is what a stream flushes at once: more than net/http's buffer, less than ours.
var part = strings.Repeat("0123456789abcde\n", 500)

func streamParts(w http.ResponseWriter, n int) {
	Gather(w)
	for range n {
		_, _ = io.WriteString(w, part)
		_, _ = io.WriteString(w, "and\n")
		_ = http.NewResponseController(w).Flush()
	}
	_, _ = io.WriteString(w, "the end\n")
}

// A stream takes one write for each flush, and one for its last words and the end
// of the body.
func TestGatherWritesOnceForEachFlush(t *testing.T) {
	t.Parallel()
	l, addr := gatherServer(t, func(w http.ResponseWriter, _ *http.Request) error {
		streamParts(w, 2)
		return nil
	})
	for range 2 { // the second time on the same connection
		resp, err := http.Get("http://" + addr)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := strings.Repeat(part+"and\n", 2) + "the end\n"; err != nil || string(got) != want {
			t.Fatalf("%d bytes, %v; want %d", len(got), err, len(want))
		}
		if sizes := l.seen(); len(sizes) != 3 || sizes[0] < len(part) || sizes[1] < len(part) || sizes[2] > 100 {
			t.Errorf("writes of %d bytes, want two of a flush each and one of the end", sizes)
		}
	}
}

// What is gathered arrives whole and in order also where nothing follows that would
// take it along, and where there is more than is held.
func TestGatherLosesNothing(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", maxGathered+1)
	answers := map[string]Handler{
		"/stream": func(w http.ResponseWriter, _ *http.Request) error { streamParts(w, 3); return nil },
		"/unflushed": func(w http.ResponseWriter, _ *http.Request) error {
			Gather(w)
			_, err := io.WriteString(w, part)
			return err
		},
		"/length": func(w http.ResponseWriter, _ *http.Request) error {
			Gather(w)
			w.Header().Set("Content-Length", fmt.Sprint(len(part)))
			_, err := io.WriteString(w, part)
			return err
		},
		"/big": func(w http.ResponseWriter, _ *http.Request) error {
			Gather(w)
			for _, s := range []string{"a", big, "b", part, part, part, "c"} {
				_, _ = io.WriteString(w, s)
			}
			return http.NewResponseController(w).Flush()
		},
		"/empty": func(w http.ResponseWriter, _ *http.Request) error {
			Gather(w)
			w.WriteHeader(http.StatusNoContent)
			return nil
		},
		"/plain": func(w http.ResponseWriter, _ *http.Request) error { _, err := io.WriteString(w, part); return err },
	}
	want := map[string]string{
		"/stream": strings.Repeat(part+"and\n", 3) + "the end\n", "/unflushed": part, "/length": part, "/big": "a" + big + "b" + part + part + part + "c", "/empty": "", "/plain": part,
	}
	_, addr := gatherServer(t, func(w http.ResponseWriter, r *http.Request) error { return answers[r.URL.Path](w, r) })
	for _, head := range []string{"GET %s HTTP/1.1\r\nHost: x\r\n\r\n", "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "GET %s HTTP/1.0\r\n\r\n"} {
		for path, text := range want {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(c, head, path); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(c)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			got, err := io.ReadAll(resp.Body)
			if err != nil || string(got) != text {
				t.Errorf("%s after %q: %d bytes, %v; want %d", path, head, len(got), err, len(text))
			}
			c.Close()
		}
	}
}

// Requests that are sent before their answers are read get them in order.
func TestGatherAnswersAPipeline(t *testing.T) {
	t.Parallel()
	_, addr := gatherServer(t, func(w http.ResponseWriter, _ *http.Request) error {
		streamParts(w, 1)
		return nil
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 3)); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for range 3 {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); err != nil || string(got) != part+"and\nthe end\n" {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
}

// A handler learns by a flush that its client has gone.
func TestGatherTellsThatTheClientHasGone(t *testing.T) {
	t.Parallel()
	told := make(chan struct{})
	_, addr := gatherServer(t, func(w http.ResponseWriter, _ *http.Request) error {
		Gather(w)
		for {
			_, _ = io.WriteString(w, part)
			if http.NewResponseController(w).Flush() != nil {
				close(told)
				return nil
			}
		}
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	<-told
}

// Whoever closes a connection sends what is held, but does not wait for a client
// that reads nothing.
func TestGatherIsClosed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*conn) error{"close": (*conn).Close, "close write": (*conn).CloseWrite} {
		near, far := net.Pipe()
		c := &conn{Conn: near, gathers: true}
		if _, err := io.WriteString(c, "held"); err != nil {
			t.Fatal(err)
		}
		got, ended := make([]byte, 4), make(chan error, 1)
		go func() { ended <- end(c) }()
		if _, err := io.ReadFull(far, got); err != nil || string(got) != "held" {
			t.Errorf("%s sent %q, %v", name, got, err)
		}
		if err := <-ended; err != nil {
			t.Error(name, err)
		}
		near.Close()
		far.Close()
	}

	near, far := net.Pipe()
	defer far.Close()
	c := &conn{Conn: near}
	wrote := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, "12")
		wrote <- err
	}()
	if _, err := io.ReadFull(far, make([]byte, 1)); err != nil { // so the write waits for its second byte
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-wrote; err == nil {
		t.Error("the write that was stuck did not fail")
	}
}
