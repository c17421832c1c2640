package nodes

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// proxyURL is what clients ask a proxy of the tests for.
const proxyURL = "https://api.example.com"

// A proxy runs a file of deploy/ in front of two upstreams.
type proxy struct {
	t      *testing.T
	client *http.Client
}

// startNginx runs deploy/nginx.conf with the addresses and paths of the test. The networks that it calls inside are
// inside.
func startNginx(t *testing.T, inside string, upstreams ...string) *proxy {
	t.Helper()
	dir := proxyFolder(t)
	address := freeAddress(t)
	writeCertificate(t, dir)
	writeFile(t, dir, "purser.conf", replaceAll(t, "nginx.conf",
		"listen 80;", "listen "+freeAddress(t)+";",
		"listen 443 ", "listen "+address+" ",
		"/etc/ssl/purser/", dir+"/",
		"/var/log/nginx/", dir+"/",
		"10.0.0.11:8080", upstreams[0],
		"10.0.0.12:8080", upstreams[1],
		"allow 127.0.0.0/8;", "allow "+inside+";"))
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // its workers read the folder of the test
	}
	writeFile(t, dir, "nginx.conf", strings.ReplaceAll(user+`
		daemon off;
		pid DIR/pid;
		error_log stderr;
		events {}
		http {
			client_body_temp_path DIR/body;
			proxy_temp_path DIR/proxy;
			fastcgi_temp_path DIR/fastcgi;
			uwsgi_temp_path DIR/uwsgi;
			scgi_temp_path DIR/scgi;
			include DIR/purser.conf;
		}`, "DIR", dir))
	return startProxy(t, address, dir, "nginx", "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
}

// startCaddy runs deploy/Caddyfile as startNginx does, with certificates of its own.
func startCaddy(t *testing.T, inside string, upstreams ...string) *proxy {
	t.Helper()
	dir := proxyFolder(t)
	address := freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	global := "{\nadmin off\nlocal_certs\nskip_install_trust\nauto_https disable_redirects\ndefault_bind 127.0.0.1\n" +
		"https_port " + port + "\nstorage file_system " + dir + "\n}\n"
	writeFile(t, dir, "Caddyfile", global+replaceAll(t, "Caddyfile",
		"10.0.0.11:8080", upstreams[0],
		"10.0.0.12:8080", upstreams[1],
		"127.0.0.0/8", inside))
	return startProxy(t, address, dir, "caddy", "run", "--adapter", "caddyfile", "--config",
		filepath.Join(dir, "Caddyfile"))
}

func proxyFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "purser-proxy-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// replaceAll returns a file of deploy/ with pairs of texts replaced. Each must be there.
func replaceAll(t *testing.T, name string, pairs ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		if !bytes.Contains(text, []byte(pairs[i])) {
			t.Fatalf("%s has no %q", name, pairs[i])
		}
		text = bytes.ReplaceAll(text, []byte(pairs[i]), []byte(pairs[i+1]))
	}
	return string(text)
}

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeCertificate writes the certificate with which the servers of net/http/httptest serve TLS.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	pair := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	writeFile(t, dir, "fullchain.pem", encode("CERTIFICATE", pair.Certificate[0]))
	writeFile(t, dir, "key.pem", encode("PRIVATE KEY", key))
}

// freeAddress returns an address of this machine at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// untilClosed runs a command until standard input ends, which it does when the tests are gone.
const untilClosed = `exec 3<&0; "$@" </dev/null 3<&- & child=$!; read -r _ <&3; kill -TERM $child; wait $child`

func startProxy(t *testing.T, address, dir, name string, args ...string) *proxy {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if path = "/usr/sbin/" + name; !fileExists(path) {
			t.Fatalf("%s is not installed: run make setup: %v", name, err)
		}
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", untilClosed, "sh", path}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	running, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = running.Close()
		_ = cmd.Wait() // how the shell ended tells nothing
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, log.String())
		}
	})
	dialer := &net.Dialer{}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 64,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, // the proxy is what the test has started
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	p := &proxy{t: t, client: &http.Client{Transport: transport, Timeout: time.Minute}}
	testkit.Eventually(t, testkit.Patience, name+" answers", func() bool {
		resp, err := p.client.Get(proxyURL + "/healthz")
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode < 500
	})
	return p
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// do sends a request with headers, given as "Name: value", and returns the whole answer.
func (p *proxy) do(method, path string, body io.Reader, headers ...string) reply {
	p.t.Helper()
	req, err := http.NewRequest(method, proxyURL+path, body)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(text), err}
}

// proxies are the files of deploy/ that run a proxy.
var proxies = map[string]func(t *testing.T, inside string, upstreams ...string) *proxy{
	"nginx": startNginx,
	"caddy": startCaddy,
}

// TestProxies runs the proxies of deploy/ in front of two nodes, and in front of servers that say what reached them.
func TestProxies(t *testing.T) {
	t.Parallel()
	for name, start := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("headers", func(t *testing.T) { t.Parallel(); testProxyHeaders(t, start) })
			t.Run("nodes", func(t *testing.T) { t.Parallel(); testProxyNodes(t, start) })
		})
	}
}

// testProxyHeaders looks at what a proxy passes on, and at what it answers itself.
func testProxyHeaders(t *testing.T, start func(*testing.T, string, ...string) *proxy) {
	var asked atomic.Int64
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n, err := io.Copy(io.Discard, r.Body); {
		case r.URL.Path == "/socket":
			ws, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			kind, data, err := ws.Read(r.Context())
			if err != nil || ws.Write(r.Context(), kind, data) != nil {
				t.Errorf("the socket broke: %v", err)
			}
			_ = ws.Close(websocket.StatusNormalClosure, "") // the client may have closed it
		case r.URL.Path == "/broken":
			asked.Add(1)
			panic(http.ErrAbortHandler) // the connection breaks after the request was read
		case err != nil:
			t.Error(err)
		default:
			fmt.Fprintf(w, "host %s, origin %s, %d bytes, for %s", r.Host, r.Header.Get("Origin"), n,
				r.Header.Get("X-Forwarded-For"))
		}
	}))
	t.Cleanup(echo.Close)
	address := echo.Listener.Addr().String()
	p := start(t, "127.0.0.0/8", address, address)

	r := p.do("POST", "/v1/x", bytes.NewReader(make([]byte, 1_200_000)), "Origin: https://my.example.com",
		"X-Forwarded-For: 203.0.113.9")
	if !regexp.MustCompile(`^host api\.example\.com, origin https://my\.example\.com, 1200000 bytes, ` +
		`for (203\.0\.113\.9, ?)?127\.0\.0\.1$`).MatchString(r.body) {
		t.Errorf("what reached the node: %+v", r)
	}
	r = p.do("POST", "/v1/x", bytes.NewReader(make([]byte, 32<<20)))
	if !strings.Contains(r.body, "33554432 bytes, ") {
		t.Errorf("the largest body: %+v", r)
	}
	if r := p.do("POST", "/v1/x", bytes.NewReader(make([]byte, 36<<20))); r.err == nil && r.status != 200 &&
		(r.status != 413 || r.errorCode() != "invalid_request") { // 200: the proxy leaves the limit to Purser
		t.Errorf("a body that is too large: %+v", r)
	}
	if r := p.do("GET", "/v1/operator/apps", nil); r.status != 200 {
		t.Errorf("the operator's API inside: %+v", r)
	}
	if r := p.do("POST", "/broken", nil); r.status != 503 || r.errorCode() != "unavailable" ||
		r.header.Get("Retry-After") == "" {
		t.Errorf("a node that broke: %+v", r)
	}
	if r := p.do("POST", "/broken", nil, "Accept: text/html,*/*;q=0.8"); r.status != 503 ||
		!strings.Contains(r.body, "<h1>Try again in a moment</h1>") || r.header.Get("Content-Type") != "text/html" {
		t.Errorf("a node that broke, to a browser: %+v", r)
	}
	if r := p.second().do("POST", "/v1/x", bytes.NewReader(make([]byte, 36<<20))); r.err == nil && r.status != 200 &&
		(r.status != 413 || r.errorCode() != "invalid_request") {
		t.Errorf("a body that is too large, by HTTP/2: %+v", r)
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("two POSTs that were sent were sent %d times", n)
	}

	ws, _, err := websocket.Dial(t.Context(), proxyURL+"/socket", &websocket.DialOptions{HTTPClient: p.untimed()})
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, data, err := ws.Read(t.Context()); err != nil || string(data) != "hello" {
		t.Errorf("the socket answered %q, %v", data, err)
	}
	_ = ws.CloseNow()

	outside := start(t, "192.0.2.0/24", address, address)
	for _, path := range []string{"/operator", "/operator/apps", "/v1/operator/apps", "/metrics"} {
		if r := outside.do("GET", path, nil); r.status != 404 || r.errorCode() != "not_found" {
			t.Errorf("%s from outside: %+v", path, r)
		}
	}
	if r := outside.do("GET", "/v1/operators", nil); r.status != 200 {
		t.Errorf("another path from outside: %+v", r)
	}
}

// second returns the proxy with a client that speaks HTTP/2.
func (p *proxy) second() *proxy {
	transport := p.client.Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2 = true
	p.t.Cleanup(transport.CloseIdleConnections)
	return &proxy{t: p.t, client: &http.Client{Transport: transport, Timeout: time.Minute}}
}

// untimed returns the proxy's client without a time limit, which a WebSocket must not have.
func (p *proxy) untimed() *http.Client { return &http.Client{Transport: p.client.Transport} }

// testProxyNodes makes calls on two nodes by a proxy, of which one is killed on the way.
func testProxyNodes(t *testing.T, start func(*testing.T, string, ...string) *proxy) {
	a, b := startPair(t)
	p := start(t, "127.0.0.0/8", hostOf(a), hostOf(b))
	books := newBooks(t, isUnavailable)
	books.http = p.client
	through := *a.Node
	through.BaseURL = proxyURL
	node := &servertest.Process{Node: &through}

	stream := books.addCall(true, "!mock pace=300ms words=20 chunks=10")
	req, err := request(t.Context(), &through, stream)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 20)); err != nil {
		t.Fatal(err)
	}
	if dbtest.Number(t, a.DB, openHolds) != 1 {
		t.Error("the first bytes of a stream came when it had ended")
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}

	ws, dialed, err := websocket.Dial(t.Context(), proxyURL+"/v1/realtime/sessions/rts_none/control",
		&websocket.DialOptions{
			HTTPClient: p.untimed(),
			HTTPHeader: http.Header{"Authorization": {"Bearer " + a.Connection.AccessToken}},
		})
	if err != nil {
		t.Fatalf("control channel: %v, %+v", err, dialed)
	}
	if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != 4004 {
		t.Errorf("the control channel of no session: %v", err)
	}

	for range 10 {
		c := books.addCall(false, "!mock words=5")
		if !books.sendCall(t.Context(), node, c) || c.state() != "answered" {
			t.Errorf("call %s was not answered", c.key)
		}
	}
	b.Kill()
	for range 20 {
		c := books.addCall(false, "!mock words=5")
		// The first may take a connection to the dead node that the proxy has kept. The second waits as the answer's
		// Retry-After says: there may be several of them.
		if books.sendCall(t.Context(), node, c); c.state() != "answered" {
			<-time.After(2 * time.Second)
			books.sendCall(t.Context(), node, c)
		}
		if c.state() != "answered" {
			t.Errorf("call %s was not answered after one node was killed", c.key)
		}
	}
	a.Verify()
}

// hostOf returns the address of a node.
func hostOf(p *servertest.Process) string { return strings.TrimPrefix(p.BaseURL, "http://") }

// TestRollingUpgrade restarts two nodes behind nginx, one after the other, under the load of clients that repeat a call
// once with its key: no call fails.
func TestRollingUpgrade(t *testing.T) {
	testkit.Long(t, "restarts two nodes three times under load; TestProxies proves the proxy, TestDrain the drain")
	url := servertest.URL(t, db.Postgres)
	addresses := []string{freeAddress(t), freeAddress(t)}
	start := func(i int) *servertest.Process {
		return servertest.Start(t, url, "--lease=2s", "--drain=2s", "--listen="+addresses[i])
	}
	nodes := []*servertest.Process{start(0), start(1)}
	p := startNginx(t, "127.0.0.0/8", addresses...)
	books := newBooks(t, isUnavailable)
	books.http = p.client
	through := *nodes[0].Node
	through.BaseURL = proxyURL
	proxied := servertest.Process{Node: &through}

	var calls, repeated, failed atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	for range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				c := books.fresh()
				calls.Add(1)
				if books.sendCall(ctx, &proxied, c); c.state() == "answered" {
					continue
				}
				repeated.Add(1)
				pause(t.Context(), 2*time.Second) // Retry-After
				if books.sendCall(ctx, &proxied, c); c.state() != "answered" {
					failed.Add(1)
				}
			}
		}()
	}
	pause(ctx, 2*time.Second)
	for range 3 {
		for i := range nodes {
			if code := nodes[i].Stop(); code != 0 {
				t.Errorf("a node ended with %d", code)
			}
			nodes[i] = start(i) // it is ready now: the next one may be stopped
		}
	}
	stop()
	for range 8 {
		<-done
	}
	t.Logf("6 restarts: %d calls, %d repeated once, %d failed", calls.Load(), repeated.Load(), failed.Load())
	if failed.Load() > 0 || calls.Load() < 100 {
		t.Errorf("%d of %d calls failed", failed.Load(), calls.Load())
	}
	books.http = http.DefaultClient
	books.settleAll(nodes[0], url) // at the node itself
}
