package web_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logLines collects what a Router logs, one JSON object a line.
type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// records returns the lines whose msg is the one given.
func (l *logLines) records(t *testing.T, msg string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.Lines(l.text()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if m["msg"] == msg {
			out = append(out, m)
		}
	}
	return out
}

// site is a Router behind a real server.
type site struct {
	*web.Router
	log *logLines
	srv *httptest.Server
}

func newSite(t *testing.T) *site {
	t.Helper()
	lines := &logLines{}
	log := slog.New(slog.NewJSONHandler(lines, nil))
	rt := web.NewRouter(log, web.Links{Dashboard: "https://dash.example", Docs: "https://api.example/docs"})
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = web.NewServer(rt, log)
	srv.Listener = web.LimitWrites(srv.Listener)
	srv.Start()
	t.Cleanup(srv.Close)
	return &site{Router: rt, log: lines, srv: srv}
}

// stop waits until every handler has ended, so that the log is whole.
func (s *site) stop() { s.srv.Close() }

func (s *site) do(t *testing.T, method, path string, edit func(*http.Request)) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, s.srv.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(req)
	}
	client := *s.srv.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// raw sends bytes over a socket of its own and reads one answer.
func (s *site) raw(t *testing.T, request string) *http.Response {
	t.Helper()
	c, err := net.Dial("tcp", s.srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp
}

// wantEnvelope checks an answer against contract §7: exactly these members.
func wantEnvelope(t *testing.T, resp *http.Response, status int, code string) map[string]any {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != status || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("got %s %s %q, want %d application/json", resp.Status, resp.Header.Get("Content-Type"), body, status)
	}
	var out struct {
		Error map[string]any `json:"error"`
	}
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	for _, name := range []string{"code", "message", "type", "connection_id", "increase_url", "review_url"} {
		if _, ok := out.Error[name]; !ok {
			t.Errorf("%s: error.%s is missing", body, name)
		}
	}
	if out.Error["code"] != code {
		t.Errorf("error.code = %v, want %s", out.Error["code"], code)
	}
	if !strings.HasPrefix(resp.Header.Get("X-Request-Id"), "req_") || resp.Header.Get("Svc-Version") != "0.1.0" {
		t.Errorf("headers lack X-Request-Id or Svc-Version: %v", resp.Header)
	}
	return out.Error
}

func ok(w http.ResponseWriter, r *http.Request) error {
	return web.WriteJSON(w, http.StatusOK, map[string]string{"id": r.PathValue("id")})
}

func fail(err error) web.Handler {
	return func(http.ResponseWriter, *http.Request) error { return err }
}

// wantRefusal checks that err is a 400 invalid_request with this message.
func wantRefusal(t *testing.T, err error, message string) {
	t.Helper()
	e, is := err.(*apierr.Error)
	if !is || e.Code != apierr.InvalidRequest || e.Message != message {
		t.Errorf("got %v, want invalid_request: %s", err, message)
	}
}
