package server_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// crowd is what 32 clients of one developer send, of whom none reads a byte. Unread answers fill their sockets, and
// unfinished bodies wait.
type crowd struct {
	name, method, path string
	body               string // as it is sent
	announced          int    // the length of the body, if it is longer than what is sent
	basic              bool   // by the app's credentials, and else by the access token
	headers            []string
}

func crowds(s *stranger, sessionID string) []crowd {
	app := "/v1/apps/" + s.params["apps"]
	var inputs strings.Builder
	for i := range 400 {
		fmt.Fprintf(&inputs, `,"%d"`, i)
	}
	half := strings.Repeat("x", 512<<10)
	return []crowd{
		{name: "streams", method: "POST", path: "/v1/chat/completions",
			body: `{"model":"gpt-6-luna","stream":true,"messages":[{"role":"user","content":"!mock words=20000"}]}`},
		{name: "whole answers", method: "POST", path: "/v1/chat/completions",
			body: `{"model":"gpt-6-luna","messages":[{"role":"user","content":"!mock words=20000"}]}`},
		{name: "embeddings", method: "POST", path: "/openai/v1/embeddings",
			body: `{"model":"text-embedding-3-large","input":[` + inputs.String()[1:] + `]}`},
		{name: "bodies of calls", method: "POST", path: "/v1/chat/completions", body: `{"x":"` + half,
			announced: 8 << 20},
		{name: "bodies of resources", method: "POST", path: app + "/webhooks", body: `{"x":"` + half,
			announced: 1 << 20, basic: true},
		{name: "forms", method: "POST", path: "/oauth/token", body: "code=" + half[:60<<10], announced: 64 << 10,
			headers: []string{"Content-Type: application/x-www-form-urlencoded"}},
		{name: "offers", method: "POST", path: "/v1/realtime/sessions/" + s.params["sessions"] + "/offer",
			body: "v=0" + half[:200<<10], announced: 256 << 10, headers: []string{"Content-Type: application/sdp"}},
		{name: "events of Stripe", method: "POST", path: "/stripe/events", body: `{"x":"` + half,
			announced: 1 << 20},
		{name: "event streams", method: "GET", path: "/v1/connection/events"},
		{name: "control channels", method: "GET",
			path: "/v1/realtime/sessions/" + sessionID + "/control", headers: []string{"Connection: Upgrade",
				"Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="}},
		{name: "lists", method: "GET", path: app + "/requests?limit=100", basic: true},
		{name: "the description", method: "GET", path: "/openapi.yaml"},
		{name: "pages", method: "GET", path: "/reference"},
	}
}

// TestACrowdThatDoesNotRead: while 32 clients of one developer send requests of any kind of route and read no answer,
// none of the calls of an ordinary client of another developer is refused.
func TestACrowdThatDoesNotRead(t *testing.T) {
	t.Parallel()
	target := servertest.URL(t, db.Postgres)
	p := servertest.Start(t, target, "PURSER_CALL_MEMORY=256MB")
	s := makeStranger(t, p.Node, target)
	pending := whole(t, p.Call("POST", "/v1/realtime/sessions", `{"model":"gpt-realtime-2.1-mini"}`,
		"Authorization: Bearer "+s.token))
	for _, c := range crowds(s, memberOf(t, apitest.Answer{Body: pending.body}, "id")) {
		var open []net.Conn
		for range 32 {
			open = append(open, c.begin(t, p, s))
		}
		for range 3 {
			ordinary(t, p, c.name)
		}
		if c.announced == 0 {
			c.checkTaken(t, open)
		}
		for _, conn := range open {
			_ = conn.Close()
		}
	}
	ordinary(t, p, "nothing")
	p.Verify()
}

// begin sends one request on a connection that nothing is read from.
func (c *crowd) begin(t *testing.T, p *servertest.Process, s *stranger) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.BaseURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	r, err := http.NewRequest(c.method, p.BaseURL+c.path, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	if c.basic {
		r.SetBasicAuth(s.User, s.Secret)
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nIdempotency-Key: %s\r\n"+
		"Content-Length: %d\r\n",
		c.method, c.path, r.Header.Get("Authorization"), servertest.UUID(), max(c.announced, len(c.body)))
	headers := c.headers
	if len(headers) == 0 {
		headers = []string{"Content-Type: application/json"}
	}
	_ = conn.SetWriteDeadline(time.Now().Add(time.Minute))
	_, err = conn.Write([]byte(head + strings.Join(headers, "\r\n") + "\r\n\r\n" + c.body))
	if err != nil && !gone(err) { // a refused body may be cut
		t.Errorf("%s: %v", c.name, err)
	}
	return conn
}

// checkTaken checks that the requests of a crowd were no mistake of the test: one of them was taken, or there was no
// room for any.
func (c *crowd) checkTaken(t *testing.T, open []net.Conn) {
	t.Helper()
	var last string
	for _, conn := range open {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil && (resp.StatusCode == 200 || resp.StatusCode == 101 || resp.StatusCode == 503) {
			return
		}
		last = fmt.Sprint(resp, err)
	}
	t.Errorf("%s: %s", c.name, last)
}

// ordinary makes what an ordinary client does, and reports what was refused beside a crowd.
func ordinary(t *testing.T, p *servertest.Process, beside string) {
	t.Helper()
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/v1/ai/gpt-6-luna", prompt("hello")},
		{"POST", "/openai/v1/embeddings", `{"model":"text-embedding-3-small","input":"hello"}`},
		{"GET", "/v1/connection", ""},
	} {
		if a := callOnceItAnswers(t, p, r.method, r.path, r.body); a.status != 200 {
			t.Errorf("beside %s: %s %s is %+v", beside, r.method, r.path, a)
		}
	}
	feed := callOnceItAnswers(t, p, "GET", "/v1/connection/events", "")
	a := callOnceItAnswers(t, p, "POST", "/v1/realtime/sessions", `{"model":"gpt-realtime-2.1-mini"}`)
	if feed.status != 200 || a.status != 201 {
		t.Errorf("beside %s: event stream %+v, voice session %+v", beside, feed, a)
		return
	}
	sessionID := memberOf(t, apitest.Answer{Status: a.status, Body: a.body}, "id")
	if a := callOnceItAnswers(t, p, "POST", "/v1/realtime/sessions/"+sessionID+"/end", `{}`); a.status != 202 {
		t.Errorf("beside %s: the end of a voice session is %+v", beside, a)
	}
}

// callOnceItAnswers makes a call, again while the database is too slow for it: that says how busy the machine is, and
// nothing about the crowd. It does not read an event stream.
func callOnceItAnswers(t *testing.T, p *servertest.Process, method, path, body string) answer {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Second) {
		resp := p.Call(method, path, body)
		if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
			_ = resp.Body.Close()
			return answer{status: resp.StatusCode}
		}
		a := whole(t, resp)
		slow := strings.Contains(a.body, "briefly unavailable") ||
			strings.Contains(a.body, "could not be recorded yet")
		if !slow || time.Since(began) > 2*time.Minute {
			return a
		}
	}
}
