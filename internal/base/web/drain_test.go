package web

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/apierr"
)

// newRefuser returns a router whose routes refuse before they read a body.
func newRefuser() *Router {
	rt := NewRouter(slog.New(slog.DiscardHandler), Links{})
	rt.Handle("POST /call", func(http.ResponseWriter, *http.Request) error {
		return apierr.Unauthorized.Errorf("The access token has expired.")
	})
	rt.Handle("POST /small", func(_ http.ResponseWriter, r *http.Request) error {
		return ReadJSON(r, &struct{}{})
	})
	rt.Handle("POST /large", func(_ http.ResponseWriter, r *http.Request) error {
		_, err := ReadBody(r, "application/json", 32<<20)
		return err
	})
	rt.Handle("POST /own", func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusTeapot)
		return nil
	})
	rt.Handle("POST /panic", func(http.ResponseWriter, *http.Request) error { panic("x") })
	rt.HandlePage("POST /page", func(http.ResponseWriter, *http.Request) error {
		return apierr.ModelNotAllowed.Errorf("no")
	})
	return rt
}

// TestRefusalIsHeard sends a body to the end before it reads, as many clients do, to routes that refuse without reading
// it. The refusal arrives, and the connection serves the next request.
func TestRefusalIsHeard(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(newRefuser())
	server.Config = NewServer(newRefuser(), slog.New(slog.DiscardHandler))
	server.Start()
	t.Cleanup(server.Close)
	for _, tt := range []struct {
		method, path string
		chunked      bool
		want         int
	}{
		{"POST", "/large", false, 400},
		{"POST", "/call", false, 401},
		{"POST", "/call", true, 401},
		{"POST", "/small", false, 400},
		{"POST", "/small", true, 400},
		{"POST", "/own", false, 418},
		{"POST", "/panic", false, 500},
		{"POST", "/page", false, 403},
		{"PUT", "/call", false, 405},
		{"POST", "/nowhere", false, 404},
		{"POST", "//call", false, 404},
	} {
		t.Run(fmt.Sprintf("%s %s, chunked %t", tt.method, tt.path, tt.chunked), func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n", tt.method, tt.path)
			size := 6_000_000
			if tt.path == "/large" { // above what any route takes
				size = 70_000_000
			}
			body := strings.Repeat("a", size)
			if tt.chunked {
				head += "Transfer-Encoding: chunked\r\n\r\n"
				body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, body)
			} else {
				head += fmt.Sprintf("Content-Length: %d\r\n\r\n", size)
			}
			in := bufio.NewReader(c)
			for n := range 2 {
				if n == 1 && tt.chunked {
					break // the connection ends after a chunked body
				}
				if _, err := io.WriteString(c, head+body); err != nil {
					t.Fatalf("request %d: %v", n, err)
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatalf("request %d: %v", n, err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				if resp.StatusCode != tt.want {
					t.Errorf("request %d: %d, want %d", n, resp.StatusCode, tt.want)
				}
			}
		})
	}
}

// An endlessBody counts what is read of it.
type endlessBody struct{ n int }

func (b *endlessBody) Read(p []byte) (int, error) {
	b.n += len(p)
	return len(p), nil
}

func (b *endlessBody) Close() error { return nil }

// TestDrainIsBounded reads no more than the largest body, and nothing of a client that waits for 100 Continue.
func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	for _, expect := range []string{"", "100-continue"} {
		body := &endlessBody{}
		r := httptest.NewRequest("POST", "/call", body)
		if expect != "" {
			r.Header.Set("Expect", expect)
		}
		w := httptest.NewRecorder()
		newRefuser().ServeHTTP(w, r)
		if w.Code != 401 || expect == "" && body.n < maxDrainBytes || body.n > maxDrainBytes+1<<20 ||
			expect != "" && body.n != 0 {
			t.Errorf("Expect %q: %d, %d bytes were read", expect, w.Code, body.n)
		}
	}
}
