package web_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

func routes(s *site) {
	s.Handle("GET /v1/models", ok)
	s.Handle("GET /v1/things/{id}", ok)
	s.Handle("POST /v1/things", ok)
	s.Handle("GET /files/", ok)
	s.Handle("GET /.well-known/thing", ok)
}

func TestWhatNoRouteTakesIsAnEnvelopeAndNeverARedirect(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	routes(s)
	for _, c := range []struct {
		line   string // method and target
		status int
		code   string
		allow  string
	}{
		{"GET /", 404, "not_found", ""},
		{"GET /v1/nothing", 404, "not_found", ""},
		{"GET /v1/models/", 404, "not_found", ""},
		{"GET /files", 404, "not_found", ""},
		{"GET //v1/models", 404, "not_found", ""},
		{"GET /v1//models", 404, "not_found", ""},
		{"GET /v1/models//", 404, "not_found", ""},
		{"GET ///", 404, "not_found", ""},
		{"GET /./v1/models", 404, "not_found", ""},
		{"GET /v1/x/../models", 404, "not_found", ""},
		{"GET /v1/models/.", 404, "not_found", ""},
		{"GET /v1/models/..", 404, "not_found", ""},
		{"GET /v1/%2e/models", 404, "not_found", ""},
		{"GET /v1/x/%2E%2e/models", 404, "not_found", ""},
		{"GET /v1/things/%2e%2e", 404, "not_found", ""},
		{"GET /v1/things/a%2f..%2fb", 404, "not_found", ""},
		{"GET /v1/things/%00", 404, "not_found", ""},
		{"GET /v1/things/%ff", 404, "not_found", ""},
		{"GET /v1/things/a%0d%0ab", 404, "not_found", ""},
		{"GET /files/../../etc/passwd", 404, "not_found", ""},
		{"DELETE /v1/models", 405, "method_not_allowed", "GET, HEAD, OPTIONS"},
		{"get /v1/models", 405, "method_not_allowed", "GET, HEAD, OPTIONS"},
		{"TRACE /v1/models", 405, "method_not_allowed", "GET, HEAD, OPTIONS"},
		{"CONNECT /v1/models", 405, "method_not_allowed", "GET, HEAD, OPTIONS"},
		{"GET /v1/things", 405, "method_not_allowed", "POST, OPTIONS"},
		{"OPTIONS /v1/nothing", 404, "not_found", ""},
		{"OPTIONS *", 400, "invalid_request", ""},
		{"GET *", 400, "invalid_request", ""},
		{"CONNECT example.com:443", 400, "invalid_request", ""},
		{"GET http://example.com/v1/nothing", 404, "not_found", ""},
		{"GET http://example.com", 404, "not_found", ""},
		{"GET http://user@example.com/v1/models", 400, "invalid_request", ""},
		{"GET ftp://example.com/v1/models", 400, "invalid_request", ""},
		{"GET https:///v1/models", 400, "invalid_request", ""},
		{"GET mailto:developer@example.com", 400, "invalid_request", ""},
	} {
		t.Run(c.line, func(t *testing.T) {
			t.Parallel()
			resp := s.raw(t, c.line+" HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n")
			wantEnvelope(t, resp, c.status, c.code)
			if got := resp.Header.Get("Allow"); got != c.allow {
				t.Errorf("Allow = %q, want %q", got, c.allow)
			}
			if resp.Header.Get("Location") != "" {
				t.Error("redirected")
			}
		})
	}
}

func TestCleanPathsArrive(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	routes(s)
	for line, body := range map[string]string{
		"GET /v1/models HTTP/1.1":            `{"id":""}`,
		"GET /v1/models? HTTP/1.1":           `{"id":""}`,
		"GET /v1/models?a=//../ HTTP/1.1":    `{"id":""}`,
		"GET /v1/models HTTP/1.0":            `{"id":""}`,
		"HEAD /v1/models HTTP/1.1":           ``,
		"GET /v1/things/a%2Fb HTTP/1.1":      `{"id":"a/b"}`,
		"GET /v1/things/..a HTTP/1.1":        `{"id":"..a"}`,
		"GET /v1/things/.%61. HTTP/1.1":      `{"id":".a."}`,
		"GET /v1/things/caf%C3%A9 HTTP/1.1":  `{"id":"café"}`,
		"GET /files/a/b HTTP/1.1":            `{"id":""}`,
		"GET /files/ HTTP/1.1":               `{"id":""}`,
		"GET /.well-known/thing HTTP/1.1":    `{"id":""}`,
		"GET /v1/things/%252e%252e HTTP/1.1": `{"id":"%2e%2e"}`,
	} {
		resp := s.raw(t, line+"\r\nHost: anything.example:1\r\nConnection: close\r\n\r\n")
		got, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || strings.TrimSpace(string(got)) != body {
			t.Errorf("%s: %s %q %v, want 200 %q", line, resp.Status, got, err, body)
		}
	}
}

func TestOptionsNamesTheMethods(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	routes(s)
	resp := s.do(t, "OPTIONS", "/v1/models", nil)
	if resp.StatusCode != 204 || resp.Header.Get("Allow") != "GET, HEAD, OPTIONS" {
		t.Errorf("got %s Allow %q", resp.Status, resp.Header.Get("Allow"))
	}
	if resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("another site's pages may read us")
	}
}

func TestHeadAnswersLikeGetWithoutABody(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Handle("GET /refused", fail(apierr.ConnectionRevoked.Errorf("revoked")))
	resp := s.do(t, "HEAD", "/refused", nil)
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 403 || len(body) != 0 || resp.ContentLength == 0 {
		t.Errorf("got %s, %d bytes, Content-Length %d, %v", resp.Status, len(body), resp.ContentLength, err)
	}
}

// TestAbsoluteTargets serves the address that a target in absolute form names, as RFC 9112 §3.2.2 demands.
func TestAbsoluteTargets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Handle("GET /v1/models", func(w http.ResponseWriter, r *http.Request) error {
		return web.WriteJSON(w, 200, r.Host+r.URL.RequestURI())
	})
	for _, target := range []string{"http://api.example/v1/models?a=b", "HTTPS://api.example/v1/models?a=b"} {
		resp := s.raw(t, "GET "+target+" HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n")
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || string(body) != "\"api.example/v1/models?a=b\"\n" {
			t.Errorf("%s: %s %s %v", target, resp.Status, body, err)
		}
	}
}

// TestReadOnly refuses what may change something, but for signing in and out.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.SetReadOnly("This is a drill.")
	for _, pattern := range []string{"GET /v1/things", "POST /v1/things", "DELETE /v1/things"} {
		s.Handle(pattern, ok)
	}
	for _, pattern := range []string{"POST /sign-in", "POST /sign-in/code", "POST /sign-out", "POST /settings"} {
		s.HandlePage(pattern, ok)
	}
	for line, status := range map[string]int{"GET /v1/things": 200, "POST /v1/things": 503, "DELETE /v1/things": 503,
		"POST /sign-in": 200, "POST /sign-in/code": 200, "POST /sign-out": 200, "POST /settings": 503} {
		method, path, _ := strings.Cut(line, " ")
		resp := s.do(t, method, path, nil)
		body, err := io.ReadAll(resp.Body)
		says := strings.Contains(string(body), "This is a drill.")
		if err != nil || resp.StatusCode != status || says != (status == 503) {
			t.Errorf("%s: %s %s %v", line, resp.Status, body, err)
		}
	}
}

// TestSlashesAreNamed: a path that leads somewhere but for a slash is told so.
func TestSlashesAreNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	routes(s)
	for path, says := range map[string]bool{"/v1/models/": true, "/v1//models": true, "//v1/models": true,
		"/v1/nothing/": false, "/v1/nothing": false, "/": false} {
		resp := s.raw(t, "GET "+path+" HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n")
		e := wantEnvelope(t, resp, 404, "not_found")
		if message, _ := e["message"].(string); strings.Contains(message, "slash") != says {
			t.Errorf("%s: %s", path, message)
		}
	}
}

// TestMalformedHTTPNeverReachesAHandler sends what net/http answers by itself: it becomes an envelope that says what is
// wrong.
func TestMalformedHTTPNeverReachesAHandler(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Handle("/{any...}", func(http.ResponseWriter, *http.Request) error {
		t.Error("a handler ran")
		return nil
	})
	for _, c := range []struct {
		name, request string
		status        int
		says          string
	}{
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400, "Host"},
		{"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "not well-formed"},
		{"bad host", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "Host"},
		{"bad header name", "GET / HTTP/1.1\r\nHost: a\r\nbad header: x\r\n\r\n", 400, "not well-formed"},
		{"NUL in a header", "GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n", 400, "not well-formed"},
		{"bad escape", "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400, "not well-formed"},
		{"bad length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400, "not well-formed"},
		{"two lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400,
			"not well-formed"},
		{"no HTTP", "hello\r\n\r\n", 400, "not well-formed"},
		{"expectation", "GET / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n", 417, "Expect:"},
		{"large headers", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", 431, "32 KiB"},
		{"foreign coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "Transfer-Encoding:"},
		{"version 3", "GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505, "version"},
	} {
		resp := s.raw(t, c.request)
		e := wantEnvelope(t, resp, c.status, "invalid_request")
		if message, _ := e["message"].(string); !strings.Contains(message, c.says) {
			t.Errorf("%s: says %s", c.name, message)
		}
	}
}

func TestErrorsBecomeEnvelopes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	exhausted := apierr.AllocationExhausted.On("conn_1", "The cap is spent.")
	exhausted.Details = map[string]any{"required_mc": 5}
	throttled := apierr.RiskThrottled.Errorf("slow down")
	throttled.RetryAfter = 1200 * time.Millisecond
	s.Handle("GET /exhausted", fail(fmt.Errorf("wrapped: %w", exhausted)))
	s.Handle("GET /frozen", fail(apierr.ConnectionFrozen.On("conn/2", "frozen")))
	s.Handle("GET /throttled", fail(throttled))
	s.Handle("GET /unknown", fail(errors.New("secret detail")))
	s.Handle("GET /late", fail(fmt.Errorf("query: %w", context.DeadlineExceeded)))
	s.Handle("GET /outage", fail(fmt.Errorf("query: %w", driver.ErrBadConn)))
	s.Handle("GET /panic", func(http.ResponseWriter, *http.Request) error { panic("secret panic") })
	s.Handle("GET /badjson", func(w http.ResponseWriter, _ *http.Request) error {
		return web.WriteJSON(w, 200, make(chan int))
	})
	s.Handle("GET /headers", func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Length", "7")
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Cache-Control", "public, max-age=60")
		return apierr.NotFound.Errorf("gone")
	})

	e := wantEnvelope(t, s.do(t, "GET", "/exhausted", nil), 402, "allocation_exhausted")
	if e["connection_id"] != "conn_1" || e["increase_url"] != "https://dash.example/connections/conn_1/increase" ||
		e["review_url"] != nil ||
		e["type"] != "insufficient_funds" || e["message"] != "The cap is spent." ||
		e["details"].(map[string]any)["required_mc"] != 5.0 {
		t.Errorf("exhausted: %v", e)
	}
	resp := s.do(t, "GET", "/frozen", nil)
	e = wantEnvelope(t, resp, 403, "connection_frozen")
	if e["review_url"] != "https://dash.example/connections/conn%2F2/review" || e["increase_url"] != nil ||
		e["doc_url"] != "https://api.example/docs/errors#connection_frozen" {
		t.Errorf("frozen: %v", e)
	}
	if resp.Header.Get("x-should-retry") != "false" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("frozen: %v", resp.Header)
	}
	resp = s.do(t, "GET", "/throttled", nil)
	wantEnvelope(t, resp, 429, "risk_throttled")
	if resp.Header.Get("Retry-After") != "2" || resp.Header.Get("x-should-retry") != "" {
		t.Errorf("throttled: %v", resp.Header)
	}
	for _, path := range []string{"/late", "/outage"} {
		resp = s.do(t, "GET", path, nil)
		wantEnvelope(t, resp, 503, "unavailable")
		if resp.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: %v", path, resp.Header)
		}
	}
	for _, path := range []string{"/unknown", "/panic", "/badjson"} {
		e := wantEnvelope(t, s.do(t, "GET", path, nil), 500, "internal_error")
		if text := fmt.Sprint(e); strings.Contains(text, "secret") || strings.Contains(text, "chan") {
			t.Errorf("%s shows its cause: %s", path, text)
		}
	}
	resp = s.do(t, "GET", "/headers", nil)
	wantEnvelope(t, resp, 404, "not_found")
	if resp.Header.Get("ETag") != "" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers: %v", resp.Header)
	}

	s.stop()
	log := s.log.text()
	for _, want := range []string{`"cause":"secret detail"`, `"panic":"secret panic"`, `router_test.go`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s", want)
		}
	}
}

func TestOneLogLineARequest(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var id string
	var after context.Context
	s.Handle("GET /v1/things/{id}", func(w http.ResponseWriter, r *http.Request) error {
		after = context.WithoutCancel(r.Context())
		id = web.RequestID(after)
		web.Log(r.Context(), slog.String("connection_id", "conn_1"))
		return web.WriteJSON(w, 201, "hello")
	})
	resp := s.do(t, "GET", "/v1/things/canary-path?token=canary-query", func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer canary-token")
	})
	s.do(t, "GET", "/nothing-canary", nil)
	s.stop()

	if id == "" || resp.Header.Get("X-Request-Id") != id || web.RequestID(after) != id {
		t.Errorf("request id: %q, header %q, after the end %q", id, resp.Header.Get("X-Request-Id"),
			web.RequestID(after))
	}
	web.Log(after, slog.String("late", "x")) // no line to add to, no harm
	lines := s.log.records(t, "request")
	if len(lines) != 2 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	for name, want := range map[string]any{"method": "GET", "route": "GET /v1/things/{id}", "status": 201.0,
		"client": "127.0.0.1",
		"bytes":  8.0, "request_id": id, "connection_id": "conn_1", "level": "INFO"} {
		if lines[0][name] != want {
			t.Errorf("%s = %v, want %v", name, lines[0][name], want)
		}
	}
	if _, ok := lines[0]["duration_us"].(float64); !ok {
		t.Errorf("no duration: %v", lines[0])
	}
	if lines[1]["status"] != 404.0 || lines[1]["route"] != "" || lines[1]["error"] != "not_found" {
		t.Errorf("second line: %v", lines[1])
	}
	if strings.Contains(s.log.text(), "canary") {
		t.Errorf("the log holds what a client sent: %s", s.log.text())
	}
}

// TestPageHome sends visitors of pages to another host, and nobody who calls the API. A form is refused.
func TestPageHome(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.SetPageHome(func(r *http.Request) string {
		if r.URL.Path == "/here" {
			return ""
		}
		return "https://my.example.com" + r.URL.RequestURI()
	})
	answer := func(w http.ResponseWriter, _ *http.Request) error { return web.WriteJSON(w, 200, "hello") }
	for _, pattern := range []string{"GET /page", "POST /page", "GET /here"} {
		s.HandlePage(pattern, answer)
	}
	s.Handle("GET /v1/models", answer)
	for _, c := range []struct {
		method, path, to string
		status           int
	}{
		{"GET", "/page?a=b", "https://my.example.com/page?a=b", 307},
		{"POST", "/page", "", 404},
		{"GET", "/here", "", 200},
		{"GET", "/v1/models", "", 200},
	} {
		resp := s.do(t, c.method, c.path, nil)
		if resp.StatusCode != c.status || resp.Header.Get("Location") != c.to {
			t.Errorf("%s %s: %d to %q", c.method, c.path, resp.StatusCode, resp.Header.Get("Location"))
		}
	}
}

// TestLogSample logs about a tenth of what succeeds, and all that fails.
func TestLogSample(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.SetLogSample(100_000)
	s.Handle("GET /v1/things/{id}", func(w http.ResponseWriter, _ *http.Request) error {
		return web.WriteJSON(w, 200, "hello")
	})
	for range 500 {
		s.do(t, "GET", "/v1/things/a", nil)
		s.do(t, "GET", "/nothing", nil)
	}
	s.stop()
	count := map[any]int{}
	for _, line := range s.log.records(t, "request") {
		count[line["status"]]++
	}
	if count[404.0] != 500 || count[200.0] < 15 || count[200.0] > 120 {
		t.Errorf("lines by status: %v", count)
	}
}

// TestBrowsersAreKeptToHTTPS: only a service with https URLs says so.
func TestBrowsersAreKeptToHTTPS(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		s := newSite(t)
		if secure {
			s.SetSecure()
		}
		got := s.do(t, "GET", "/nothing", nil).Header.Get("Strict-Transport-Security")
		if (got == "max-age=31536000") != secure || (got == "") == secure {
			t.Errorf("secure %t: %q", secure, got)
		}
	}
}

// An answer that has begun and fails is cut: the client must not take it for whole.
func TestABegunAnswerIsCut(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func() error{
		"error": func() error { return apierr.ProviderError.Errorf("too late") },
		"panic": func() error { panic("too late") },
		"abort": func() error { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.Handle("GET /stream", func(w http.ResponseWriter, _ *http.Request) error {
				if _, err := io.WriteString(w, "data: 1\n\n"); err != nil {
					return err
				}
				w.(http.Flusher).Flush()
				return end()
			})
			resp := s.do(t, "GET", "/stream", nil)
			body, err := io.ReadAll(resp.Body)
			if err == nil || string(body) != "data: 1\n\n" {
				t.Errorf("got %q, %v; want a cut stream", body, err)
			}
			s.stop()
			lines := s.log.records(t, "request")
			if len(lines) != 1 || lines[0]["cut"] != true || lines[0]["status"] != 200.0 {
				t.Errorf("log: %v", lines)
			}
			if got := len(s.log.records(t, "panic")); (name == "panic") != (got == 1) {
				t.Errorf("%d stacks logged", got)
			}
		})
	}
}

// An error that a stream has reported to its client is logged, and the stream is not cut.
func TestAnErrorThatWasToldIsOnlyLogged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Handle("GET /told", func(w http.ResponseWriter, _ *http.Request) error {
		if _, err := io.WriteString(w, "data: {error}\n\n"); err != nil {
			return err
		}
		return web.AlreadyReported(errors.New("the ledger is closed"))
	})
	s.Handle("GET /early", fail(web.AlreadyReported(apierr.RateLimited.Errorf("not begun"))))
	resp := s.do(t, "GET", "/told", nil)
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "data: {error}\n\n" {
		t.Errorf("%q %v", body, err)
	}
	wantEnvelope(t, s.do(t, "GET", "/early", nil), 429, "rate_limited")
	s.stop()
	line := s.log.records(t, "request")[0]
	if line["status"] != 200.0 || line["cause"] != "the ledger is closed" || line["level"] != "ERROR" {
		t.Errorf("log: %v", line)
	}
	if web.AlreadyReported(nil) != nil {
		t.Error("AlreadyReported(nil) is an error")
	}
}

func TestAClientThatLeftGetsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	entered := make(chan struct{})
	s.Handle("GET /slow", func(_ http.ResponseWriter, r *http.Request) error {
		close(entered)
		<-r.Context().Done()
		return fmt.Errorf("query: %w", r.Context().Err())
	})
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", s.srv.URL+"/slow", nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { <-entered; leave() }()
	if resp, err := s.srv.Client().Do(req); err == nil {
		resp.Body.Close()
		t.Error("answered")
	}
	s.stop()
	lines := s.log.records(t, "request")
	if len(lines) != 1 || lines[0]["status"] != 499.0 || lines[0]["client_gone"] != true ||
		lines[0]["level"] != "INFO" {
		t.Errorf("log: %v", lines)
	}
}

// TestAClientThatDoesNotTakeItsAnswerIsNoError: a client leaves, or stops reading, while its answer is written. What
// the write fails with is no database that is away, and no error of ours (F-33).
func TestAClientThatDoesNotTakeItsAnswerIsNoError(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"leaves", "stops reading"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.Handle("GET /long", func(w http.ResponseWriter, _ *http.Request) error {
				if way == "stops reading" {
					_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
				}
				for {
					if _, err := w.Write(make([]byte, 1<<20)); err != nil {
						return fmt.Errorf("write the rows: %w", err)
					}
				}
			})
			c, err := net.Dial("tcp", s.srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, "GET /long HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			if way == "leaves" {
				c.Close()
			}
			s.stop()
			lines := s.log.records(t, "request")
			if len(lines) != 1 || lines[0]["client_gone"] != true || lines[0]["level"] != "INFO" {
				t.Errorf("log: %v", lines)
			}
		})
	}
}

// A cancelled context of our own, while the client waits, is our error.
func TestACancellationOfOursIsAnError(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Handle("GET /ours", fail(context.Canceled))
	wantEnvelope(t, s.do(t, "GET", "/ours", nil), 500, "internal_error")
}

func TestResponseControllerReachesTheConnection(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Handle("GET /rc", func(w http.ResponseWriter, _ *http.Request) error {
		rc := http.NewResponseController(w)
		if err := rc.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			return err
		}
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusAccepted)
		return rc.Flush()
	})
	s.Handle("GET /hijack", func(w http.ResponseWriter, _ *http.Request) error {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := rw.WriteString("HTTP/1.1 299 Mine\r\nContent-Length: 0\r\n\r\n"); err != nil {
			return err
		}
		return rw.Flush()
	})
	if resp := s.do(t, "GET", "/rc", nil); resp.StatusCode != 202 {
		t.Errorf("flush: %s", resp.Status)
	}
	if resp := s.do(t, "GET", "/hijack", nil); resp.StatusCode != 299 {
		t.Errorf("hijack: %s", resp.Status)
	}
	s.stop()
	lines := s.log.records(t, "request") // in any order: an answer is flushed before its line is written
	accepted := func(line map[string]any) bool { return line["route"] == "GET /rc" && line["status"] == 202.0 }
	if !slices.ContainsFunc(lines, accepted) {
		t.Errorf("log: %v", lines)
	}
}

func TestANilListIsEmptyNotNull(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	if err := web.WriteJSON(w, 200, []string(nil)); err != nil || w.Body.String() != "[]\n" {
		t.Errorf("%q %v", w.Body, err)
	}
}

// FuzzRouterTarget: whatever the request line, the answer is a 200 of a route,
// the 204 of OPTIONS or an envelope; never a redirect, never plain text.
func FuzzRouterTarget(f *testing.F) {
	for _, seed := range []string{"/", "//", "/v1/models", "/v1/../v1/models", "/v1/things/%2e%2e", "/files", "*",
		"http://h/v1/models", "/v1/things/%00", "/v1/things/a%2Fb", "/a?b=//", "/files/%5c..%5c"} {
		f.Add("GET", seed)
	}
	f.Add("CONNECT", "h:443")
	f.Add("OPTIONS", "/v1/models")
	log := slog.New(slog.DiscardHandler)
	rt := web.NewRouter(log, web.Links{})
	routes(&site{Router: rt})
	rt.HandlePage("GET /page/", ok)
	f.Fuzz(func(t *testing.T, method, target string) {
		text := method + " " + target + " HTTP/1.1\r\nHost: a\r\n\r\n"
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader([]byte(text))))
		if err != nil {
			return // net/http refuses it before us
		}
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, r)
		switch {
		case w.Code == 200, w.Code == 204 && r.Method == "OPTIONS":
		case w.Code == 400, w.Code == 404, w.Code == 405:
			wantEnvelope(t, w.Result(), w.Code, map[int]string{
				400: "invalid_request",
				404: "not_found",
				405: "method_not_allowed",
			}[w.Code])
		default:
			t.Errorf("%q: %d %v", text, w.Code, w.Header())
		}
	})
}

func BenchmarkRouter(b *testing.B) {
	for name, log := range map[string]*slog.Logger{
		"silent": slog.New(slog.DiscardHandler),
		"json":   slog.New(slog.NewJSONHandler(io.Discard, nil)),
	} {
		rt := web.NewRouter(log, web.Links{})
		rt.Handle("POST /v1/ai/{model}", func(w http.ResponseWriter, r *http.Request) error {
			web.Log(r.Context(), slog.String("connection_id", "conn_1"), slog.String("model", "m"))
			w.WriteHeader(200)
			return nil
		})
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("POST", "/v1/ai/gpt-4o-mini", nil)
			w := nothing{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				rt.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkServeMux is the same route without Purser's router, to compare.
func BenchmarkServeMux(b *testing.B) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/ai/{model}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })
	r := httptest.NewRequest("POST", "/v1/ai/gpt-4o-mini", nil)
	w := nothing{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		mux.ServeHTTP(w, r)
	}
}

type nothing struct{ h http.Header }

func (n nothing) Header() http.Header         { return n.h }
func (n nothing) WriteHeader(int)             {}
func (n nothing) Write(p []byte) (int, error) { return len(p), nil }
