package upstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// serve answers over real HTTP, and counts the connections that it takes.
func serve(t *testing.T, secure bool, h http.HandlerFunc) (c *Transport, url string, opened *atomic.Int64) {
	t.Helper()
	opened = new(atomic.Int64)
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	c = NewTransport(s.URL)
	t.Cleanup(c.CloseIdleConnections)
	if secure {
		c.tls.RootCAs = x509.NewCertPool()
		c.tls.RootCAs.AddCert(s.Certificate())
	}
	return c, s.URL, opened
}

// play answers each connection by hand, with a script for each.
func play(t *testing.T, scripts ...func(*bufio.Reader, net.Conn)) (c *Transport, url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, script := range scripts {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			script(bufio.NewReader(conn), conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	url = "http://" + l.Addr().String()
	c = NewTransport(url)
	t.Cleanup(c.CloseIdleConnections)
	return c, url
}

// hear reads one request whole.
func hear(in *bufio.Reader) *http.Request {
	r, err := http.ReadRequest(in)
	if err != nil {
		return nil
	}
	b, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(b))
	return r
}

// kept returns the connections that nothing uses.
func kept(c *Transport) []*conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.idle)
}

func post(ctx context.Context, t *testing.T, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer sk-secret")
	return r
}

// ask sends a request and reads its answer whole.
func ask(t *testing.T, c *Transport, url, body string) (int, string, error) {
	t.Helper()
	answer, err := c.RoundTrip(post(t.Context(), t, url, body))
	if err != nil {
		return 0, "", err
	}
	b, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(b), errors.Join(err, answer.Body.Close())
}

func TestTransportKeepsItsConnection(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("secure=", secure), func(t *testing.T) {
			t.Parallel()
			c, url, opened := serve(t, secure, func(w http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				if err != nil || r.Header.Get("Authorization") != "Bearer sk-secret" ||
					r.ContentLength != int64(len(b)) {
					t.Errorf("came as %v %v %d", err, r.Header, r.ContentLength)
				}
				if strings.Contains(r.URL.Path, "stream") {
					for _, part := range []string{"one ", "two ", "three"} {
						_, _ = io.WriteString(w, part)
						_ = http.NewResponseController(w).Flush()
					}
					return
				}
				_, _ = fmt.Fprintf(w, "%s?%s %d", r.URL.EscapedPath(), r.URL.RawQuery, len(b))
			})
			for _, want := range []struct{ path, body, answer string }{
				{"/v1/a%2Fb?x=1&y=2", "hello", "/v1/a%2Fb?x=1&y=2 5"},
				{"/stream", "{}", "one two three"},
				{"/empty", "", "/empty? 0"},
				{"/large", strings.Repeat("x", 3<<20), fmt.Sprint("/large? ", 3<<20)},
				{"/again", "x", "/again? 1"},
			} {
				if status, got, err := ask(t, c, url+want.path, want.body); err != nil || status != 200 ||
					got != want.answer {
					t.Errorf("%s: %d %q %v, want %q", want.path, status, got, err, want.answer)
				}
			}
			// a large request may end a moment after its answer: then a new one is opened
			if n := opened.Load(); n > 2 {
				t.Errorf("%d connections for five calls in a row", n)
			}
		})
	}
}

// A connection that the server has closed, or on which it says what nobody asked
// for, is not used again: nothing is lost, and nothing is sent twice.
func TestTransportDropsADeadConnection(t *testing.T) {
	t.Parallel()
	for name, ending := range map[string]string{
		"closed":          "",
		"a word too many": "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			var heard atomic.Int64
			first := func(in *bufio.Reader, out net.Conn) {
				if hear(in) != nil {
					heard.Add(1)
				}
				_, _ = io.WriteString(out, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none"+ending)
				if ending != "" { // it came with the answer: seen when that ends
					close(ended)
					return
				}
				_ = out.Close()
				close(ended)
			}
			second := func(in *bufio.Reader, out net.Conn) {
				if hear(in) != nil {
					heard.Add(1)
				}
				_, _ = io.WriteString(out, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo")
			}
			c, url := play(t, first, second)
			for i, want := range []string{"one", "two"} {
				if i == 1 {
					<-ended
					for _, idle := range kept(c) { // until the end has crossed the loopback
						_, _ = idle.Read(make([]byte, 1))
					}
				}
				if _, got, err := ask(t, c, url, "x"); err != nil || got != want {
					t.Fatalf("call %d: %q %v", i, got, err)
				}
			}
			if heard.Load() != 2 {
				t.Errorf("%d requests were heard", heard.Load())
			}
		})
	}
}

// What a server may say so that its connection cannot be used again, or at all.
func TestTransportReadsAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says   string
		status int
		want   string
		fails  error
		keeps  bool
	}{
		"plain":               {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", nil, true},
		"nothing":             {"HTTP/1.1 204 No Content\r\n\r\n", 204, "", nil, true},
		"chunks and trailers": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n", 200, "ok", nil, true},
		"notes before it":     {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", nil, true},
		"closing": {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 200, "ok", nil,
			false},
		"until the end":    {"HTTP/1.1 200 OK\r\n\r\nok", 200, "ok", nil, false},
		"old":              {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", nil, false},
		"another protocol": {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", 101, "", nil, false},
		"more than said": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n", 200, "ok", nil,
			false},
		"cut": {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", 200, "ok", io.ErrUnexpectedEOF, false},
		"cut in a chunk": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok", 200, "ok",
			io.ErrUnexpectedEOF, false},
		"cut in the headers": {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n", 0, "", io.ErrUnexpectedEOF, false},
		"silence":            {"", 0, "", io.ErrUnexpectedEOF, false},
		"endless headers": {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHeader) + "\r\n\r\n", 0, "",
			errLongHead, false},
		"only notes": {strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", maxInformational), 0, "", errNoFinalResponse,
			false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := make(chan struct{})
			client, url := play(t, func(in *bufio.Reader, out net.Conn) {
				hear(in)
				_, _ = io.WriteString(out, c.says)
				if c.keeps || name == "endless headers" { // closing now could cut what was not read yet
					<-read
				}
			})
			status, got, err := ask(t, client, url, "x")
			if close(read); status != c.status || got != c.want || !errors.Is(err, c.fails) {
				t.Errorf("%d %q %v, want %d %q %v", status, got, err, c.status, c.want, c.fails)
			}
			if kept := len(kept(client)) == 1; kept != c.keeps {
				t.Errorf("kept: %t", kept)
			}
		})
	}
}

// A server that refuses a large request before it has read it is heard.
func TestTransportHearsAnEarlyRefusal(t *testing.T) {
	t.Parallel()
	heard := make(chan struct{})
	c, url := play(t, func(in *bufio.Reader, out net.Conn) {
		_, _ = http.ReadRequest(in)
		_, _ = io.WriteString(out, "HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\n\r\ntoo large")
		<-heard // without reading more
	})
	status, got, err := ask(t, c, url, strings.Repeat("x", 64<<20))
	if close(heard); status != 413 || got != "too large" || err != nil {
		t.Errorf("%d %q %v", status, got, err)
	}
	if len(kept(c)) != 0 {
		t.Error("a connection was kept on which a request is still being sent")
	}
}

// The end of the context ends a call wherever it is.
func TestTransportObeysItsContext(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"before the headers": "",
		"within the answer":  "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			c, url := play(t, func(in *bufio.Reader, out net.Conn) {
				hear(in)
				_, _ = io.WriteString(out, says)
				if says == "" {
					cancel()
				}
				_, _ = in.ReadByte() // until the client hangs up
				close(gone)
			})
			answer, err := c.RoundTrip(post(ctx, t, url, "x"))
			if says != "" {
				if err != nil {
					t.Fatal(err)
				}
				cancel()
				_, err = io.ReadAll(answer.Body)
				_ = answer.Body.Close()
			}
			if err == nil || len(kept(c)) != 0 {
				t.Errorf("%v, %d kept", err, len(kept(c)))
			}
			<-gone
		})
	}
}

// An answer that is not read to its end ends with its connection.
func TestTransportClosesWhatIsLeft(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	c, url := play(t, func(in *bufio.Reader, out net.Conn) {
		hear(in)
		_, _ = io.WriteString(out, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
		_, _ = in.ReadByte()
		close(gone)
	})
	answer, err := c.RoundTrip(post(t.Context(), t, url, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
	<-gone
	if n, err := answer.Body.Read(make([]byte, 9)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("read %d after the end: %v", n, err)
	}
}

func TestTransportRefuses(t *testing.T) {
	t.Parallel()
	c := NewTransport("http://provider.test")
	for name, spoil := range map[string]func(*http.Request){
		"another server":    func(r *http.Request) { r.URL.Host = "elsewhere.test" },
		"another scheme":    func(r *http.Request) { r.URL.Scheme = "https" },
		"a split value":     func(r *http.Request) { r.Header.Set("X", "sk-secret\r\nHost: y") },
		"a split name":      func(r *http.Request) { r.Header["X: y\r\nZ"] = []string{"z"} },
		"an unknown length": func(r *http.Request) { r.ContentLength = -1 },
	} {
		r := post(t.Context(), t, "http://provider.test/v1", "x")
		spoil(r)
		if _, err := c.RoundTrip(r); err == nil || strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"ftp://provider.test", "http://[", ""} {
		if _, err := NewTransport(bad).RoundTrip(post(t.Context(), t, "http://provider.test/v1", "x")); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// Connections that nothing uses are closed in the end, the oldest first.
func TestTransportPrunes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewTransport("http://provider.test")
		open := map[net.Conn]net.Conn{}
		add := func() net.Conn {
			here, there := net.Pipe()
			open[here] = there
			c.storeIdle(&conn{Conn: here})
			return here
		}
		closed := func(n net.Conn) bool {
			_ = open[n].SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := open[n].Read(make([]byte, 1))
			return errors.Is(err, io.EOF)
		}
		first := add()
		time.Sleep(idleTimeout / 2)
		second := add()
		time.Sleep(idleTimeout/2 + time.Second)
		if !closed(first) || closed(second) {
			t.Error("not the old one alone was closed")
		}
		time.Sleep(idleTimeout)
		if !closed(second) || len(kept(c)) != 0 {
			t.Error("the younger one was never closed")
		}
		third := add()
		if c.CloseIdleConnections(); !closed(third) {
			t.Error("CloseIdleConnections left one open")
		}
		time.Sleep(2 * idleTimeout) // the last timer finds nothing
	})
}

// TestArrivingAnswersAreCounted: what has come of a whole answer, or of an event, is reported before it is complete.
func TestArrivingAnswersAreCounted(t *testing.T) {
	t.Parallel()
	half, all := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte(" "), 1<<20))
		_ = http.NewResponseController(w).Flush()
		<-all
	}))
	defer server.Close()
	var once sync.Once
	ctx := WithArrived(t.Context(), func(n int) {
		if n >= 1<<20 {
			once.Do(func() { close(half) })
		}
	})
	x, err := New(Config{BaseURL: server.URL}).Post(ctx, "/x", []byte("{}"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer x.End(false)
	go func() {
		<-half // else the answer never ends
		close(all)
	}()
	if body, err := x.ReadAll(); err != nil || len(body) != 1<<20 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}
