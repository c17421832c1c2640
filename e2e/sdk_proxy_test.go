package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A fault is what an sdkProxy does to requests of a path instead of forwarding them whole.
type fault struct {
	Path     string            `json:"path"`  // prefix
	Times    int               `json:"times"` // 0 = always
	Status   int               `json:"status"`
	Headers  map[string]string `json:"headers"`
	Body     json.RawMessage   `json:"body"`
	Text     string            `json:"text"`      // a body that is not JSON
	Cut      bool              `json:"cut"`       // close the connection without an answer
	CutAfter int64             `json:"cut_after"` // forward, and break the answer off after so many bytes
	Swallow  bool              `json:"swallow"`   // forward, and send nothing until the client leaves
}

// An sdkProxy stands between an SDK and its node. It counts requests and makes faults.
type sdkProxy struct {
	*httptest.Server
	mu      sync.Mutex
	faults  []*fault
	log     []proxied
	forward *httputil.ReverseProxy
	// refreshes and replays count the answers of the token endpoint with status 200.
	refreshes, replays int
}

// A proxied is one request that came.
type proxied struct{ method, path, key string }

func newSDKProxy(t *testing.T, target string) *sdkProxy {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &sdkProxy{forward: httputil.NewSingleHostReverseProxy(to)}
	p.forward.FlushInterval = -1 // streams
	p.forward.ModifyResponse = p.countTokens
	p.forward.ErrorLog = nil
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *sdkProxy) countTokens(r *http.Response) error {
	if r.Request.URL.Path != "/oauth/token" || r.StatusCode != http.StatusOK {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Header.Get("Idempotent-Replayed") == "true" {
		p.replays++
	} else {
		p.refreshes++
	}
	return nil
}

// ServeHTTP forwards a request, or makes the first fault of its path. It reads the whole body first: a Go server closes
// the body when the answer begins, and if the transport has not yet seen its end, that breaks the answer off.
func (p *sdkProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.mu.Lock()
	p.log = append(p.log, proxied{r.Method, r.URL.Path, r.Header.Get("Idempotency-Key")})
	f := p.nextFault(r.URL.Path)
	p.mu.Unlock()
	switch {
	case f == nil:
		p.forward.ServeHTTP(w, r)
	case f.Cut:
		panic(http.ErrAbortHandler)
	case f.Swallow:
		p.forward.ServeHTTP(httptest.NewRecorder(), r)
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case f.CutAfter > 0:
		p.forward.ServeHTTP(&cutWriter{ResponseWriter: w, left: f.CutAfter}, r)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", "req_of_a_fault")
		for name, value := range f.Headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(f.Status)
		_, _ = w.Write(append(f.Body, f.Text...)) // the client may be gone
	}
}

// nextFault returns the fault of the next request of a path, nil if there is none.
func (p *sdkProxy) nextFault(path string) *fault {
	i := slices.IndexFunc(p.faults, func(f *fault) bool { return strings.HasPrefix(path, f.Path) })
	if i < 0 {
		return nil
	}
	f := p.faults[i]
	if f.Times--; f.Times == 0 {
		p.faults = slices.Delete(p.faults, i, i+1)
	}
	return f
}

// addFault makes later requests fail, and heal lets them through again.
func (p *sdkProxy) addFault(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, &f)
}

func (p *sdkProxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
}

// takeRequests returns the requests of a path, and forgets all requests.
func (p *sdkProxy) takeRequests(prefix string) map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys, methods := []any{}, []any{}
	for _, r := range p.log {
		if !strings.HasPrefix(r.path, prefix) {
			continue
		}
		methods = append(methods, r.method)
		if r.key != "" && !slices.Contains(keys, any(r.key)) {
			keys = append(keys, r.key)
		}
	}
	p.log = nil
	return map[string]any{"count": float64(len(methods)), "keys": keys, "methods": methods}
}

// A cutWriter breaks the connection after some bytes of the body.
type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *cutWriter) Write(b []byte) (int, error) {
	n, err := io.Copy(w.ResponseWriter, io.LimitReader(bytes.NewReader(b), w.left))
	if w.left -= n; w.left == 0 {
		_ = http.NewResponseController(w.ResponseWriter).Flush() // the bytes before the cut arrive
		panic(http.ErrAbortHandler)
	}
	return int(n), err
}
