package web

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestLimitWrites: a response that its client does not read ends, and one whose handler set a longer deadline goes on.
func TestLimitWrites(t *testing.T) {
	t.Parallel()
	for name, deadline := range map[string]time.Duration{"": 0, "a longer one of the handler": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			s := NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if deadline > 0 {
					_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(deadline))
				}
				_, err := w.Write(make([]byte, 64<<20)) // more than the sockets hold
				ended <- err
			}), slog.New(slog.DiscardHandler))
			go func() { _ = s.Serve(writeLimiter{l, 50 * time.Millisecond}) }()
			defer func() { _ = s.Close() }()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if deadline > 0 {
				time.Sleep(200 * time.Millisecond) // longer than the limit; then the client reads
				go func() { _, _ = io.Copy(io.Discard, c) }()
			}
			select {
			case err := <-ended:
				if (err == nil) != (deadline > 0) {
					t.Errorf("the write ended with %v", err)
				}
			case <-time.After(time.Minute):
				t.Error("the write waits for a client that does not read")
			}
		})
	}
}
