package server_test

import (
	"bufio"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// asked is a call on its way.
type asked struct {
	key, path, body string
	answer          chan answer
}

// beginCall makes a call, and reads its answer in the background.
func beginCall(t *testing.T, p *nodetest.Node, path, body string) *asked {
	c := &asked{servertest.UUID(), path, body, make(chan answer, 1)}
	go func() { c.answer <- c.repeat(t, p) }()
	return c
}

// repeat makes the call once more.
func (c *asked) repeat(t *testing.T, p *nodetest.Node) answer {
	return whole(t, p.Call("POST", c.path, c.body, "Idempotency-Key: "+c.key))
}

// What the mock takes a minute for.
const (
	slowStream = "!mock pace=100ms words=600 chunks=600"
	slowCall   = "!mock delay=60s words=5"
)

// TestStopOnTheDashboard stops running calls by the pages: one by its button, then all by Pause
// everything. With PostgreSQL the pages are on another node than the calls. Streams of a minute end
// with the error, an estimated charge and the same replay on both nodes; whole responses are 403
// and cost nothing; voice replies and later calls are refused.
func TestStopOnTheDashboard(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			target := apptest.URL(t, e)
			calls := apptest.Start(t, target).Node
			pages := calls
			if e == db.Postgres {
				pages = apptest.Start(t, target).Node
			}
			user := signIn(t, pages, calls.TestAccount.Email, calls.TestAccount.Password)
			user.Get("/dashboard").Want(t, 200, "Running now", "No calls in progress", `href="/dashboard/pause"`)
			stream := beginCall(t, calls, luna, prompt(slowStream, streamed))
			whole := beginCall(t, calls, luna, prompt(slowCall))
			calltest.AwaitHold(t, calls, whole.key, "open")
			calltest.AwaitWords(t, calls, stream.key)
			path := stopPath(t, calls, user, stream.key)
			user.Post(path, nil, "HX-Request", "true").Want(t, 200, "Running now").Lacks(t, path)
			r := <-stream.answer
			if r.status != 200 || !strings.Contains(r.body, `"code":"call_stopped"`) ||
				!strings.Contains(r.body, `"settlement":"estimated"`) ||
				!strings.HasSuffix(r.body, "data: [DONE]\n\n") {
				t.Errorf("the stopped stream: %+v", r)
			}
			for _, p := range []*nodetest.Node{calls, pages} {
				again := stream.repeat(t, p)
				if again.body != r.body || again.header.Get("Idempotent-Replayed") != "true" {
					t.Errorf("replayed %+v\nfirst %s", again, r.body)
				}
			}
			row := calltest.Spend(t, calls.DB, stream.key)
			if want, err := calltest.ReadBill([]byte(r.body)); err != nil || row != want || row.ChargeMC == 0 {
				t.Errorf("streamed %+v, %v; the row says %+v", want, err, row)
			}
			user.Post(path, nil).Leads(t, "/dashboard") // it has ended: nothing happens
			user.Post(stopPath(t, calls, user, whole.key), nil).Leads(t, "/dashboard")
			r = <-whole.answer
			if r.wantAnswer(t, 403, "call_stopped"); r.header.Get("X-Should-Retry") != "false" {
				t.Errorf("the stopped call: %+v", r)
			}
			stopAll(t, calls, pages)
			calls.Verify()
		})
	}
}

// stopAll pauses everything while calls run.
func stopAll(t *testing.T, calls, pages *nodetest.Node) {
	t.Helper()
	user := signIn(t, pages, calls.TestAccount.Email, calls.TestAccount.Password)
	stream := beginCall(t, calls, luna, prompt(slowStream, streamed))
	waiting := beginCall(t, calls, luna, prompt(slowCall))
	calltest.AwaitHold(t, calls, waiting.key, "open")
	calltest.AwaitHold(t, calls, stream.key, "open")
	user.Get("/dashboard/pause").Want(t, 200, "Pause everything?", "2 running calls stop at once")
	user.Post("/dashboard/pause", nil).Leads(t, "/dashboard?done=pause")
	user.Get("/dashboard?done=pause").Want(t, 200, "Everything is paused", "Needs your attention", "Review").
		Lacks(t, `href="/dashboard/pause"`)
	if r := <-stream.answer; r.status != 200 && r.status != 403 ||
		!strings.Contains(r.body, `"code":"connection_frozen"`) {
		t.Errorf("the stream at the pause: %+v", r)
	}
	r := <-waiting.answer
	r.wantAnswer(t, 403, "connection_frozen")
	if !regexp.MustCompile(`"review_url":"[^"]+/review"`).MatchString(r.body) {
		t.Errorf("the call at the pause: %+v", r)
	}
	call := func() answer { t.Helper(); return whole(t, calls.Call("POST", luna, prompt("Hello"))) }
	call().wantAnswer(t, 403, "connection_frozen")
	user.Post("/connections/"+calls.Connection.ID+"/review", url.Values{"decision": {"resume"}}).Want(t, 303)
	// Within half a second of the pause, a node may read it after the resume, and stop one more call (decision 067).
	testkit.Eventually(t, testkit.Patience, "a call after the resume", func() bool {
		return call().status == 200
	})
}

// A stopShape is how the calls of a shape end when they are stopped. The patterns take the code.
type stopShape struct {
	name, path string
	ask        func(model, text string, more ...string) string
	delta      string // of a stream's text
	failed     string // pattern: the error of a stream
	final      string // pattern: the end of a stream, which has the charge
	refused    string // pattern: the error of a call that delivered nothing
}

var stopShapes = []stopShape{
	{
		name:    "responses",
		path:    responsesPath,
		ask:     responseBody,
		delta:   "event: response.output_text.delta\n",
		failed:  `\nevent: error\ndata: \{"type":"error","sequence_number":\d+,"code":"%s",.*"user_charge_mc":[1-9]`,
		final:   `\nevent: response\.failed\ndata: .*"status":"failed","error":\{"code".*"user_charge_mc":[1-9].*\n\n$`,
		refused: `^\{"error":\{"param":null,.*"code":"%s"`,
	},
	{
		name:    "messages",
		path:    messagesPath,
		ask:     message,
		delta:   "event: content_block_delta\n",
		failed:  `\nevent: error\ndata: \{"type":"error","error":\{"type":"permission_error",.*"code":"%s"`,
		final:   `\nevent: error\ndata: .*"svc_final":\{.*"user_charge_mc":[1-9].*\n\n$`,
		refused: `^\{"type":"error","error":\{"type":"permission_error",.*"code":"%s"`,
	},
}

// shapeCalls are a stream and a whole call of a shape, both on their way.
type shapeCalls struct {
	stopShape
	stream, whole *asked
}

// TestStopInOtherShapes stops calls in the shapes of Responses and Messages: one stream and one whole call of each by
// their buttons, then all by Pause everything. A stream ends in its shape's own error, with the charge of what came,
// and its replay has the same bytes. A call that delivered nothing gets its shape's error, and costs nothing.
func TestStopInOtherShapes(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		user := signIn(t, p, p.TestAccount.Email, p.TestAccount.Password)
		var stopped, paused []shapeCalls
		for _, shape := range stopShapes {
			c := beginShape(t, p, shape)
			user.Post(stopPath(t, p, user, c.stream.key), nil).Leads(t, "/dashboard")
			user.Post(stopPath(t, p, user, c.whole.key), nil).Leads(t, "/dashboard")
			stopped = append(stopped, c)
		}
		for i := range stopped {
			stopped[i].check(t, p, "call_stopped", func() {})
		}
		for _, shape := range stopShapes {
			paused = append(paused, beginShape(t, p, shape))
		}
		user.Post("/dashboard/pause", nil).Leads(t, "/dashboard?done=pause")
		for i := range paused {
			paused[i].check(t, p, "connection_frozen", func() { // a replay is refused while the connection is paused
				user.Post("/connections/"+p.Connection.ID+"/review", url.Values{"decision": {"resume"}}).Want(t, 303)
			})
		}
	})
}

// beginShape begins the calls of a shape, and waits until the text of the stream is saved.
func beginShape(t *testing.T, p *nodetest.Node, shape stopShape) shapeCalls {
	t.Helper()
	c := shapeCalls{
		stopShape: shape,
		stream:    beginCall(t, p, shape.path, shape.ask("gpt-6-luna", slowStream, streamed)),
		whole:     beginCall(t, p, shape.path, shape.ask("gpt-6-luna", slowCall)),
	}
	calltest.AwaitHold(t, p, c.whole.key, "open")
	calltest.AwaitWords(t, p, c.stream.key)
	return c
}

// check awaits the answers of stopped calls, then calls ended, and compares the replay and the ledger.
func (c *shapeCalls) check(t *testing.T, p *nodetest.Node, code string, ended func()) {
	t.Helper()
	r := <-c.stream.answer
	if r.status != 200 || !strings.Contains(r.body, c.delta) || !strings.Contains(r.body, `"settlement":"estimated"`) ||
		!regexp.MustCompile(fmt.Sprintf(c.failed, code)).MatchString(r.body) ||
		!regexp.MustCompile(c.final).MatchString(r.body) {
		t.Errorf("%s, %s: the stream: %+v", c.name, code, r)
	}
	if r := <-c.whole.answer; r.status != 403 || r.header.Get("X-Should-Retry") != "false" ||
		!regexp.MustCompile(fmt.Sprintf(c.refused, code)).MatchString(r.body) {
		t.Errorf("%s, %s: the call: %+v", c.name, code, r)
	}
	ended()
	if again := c.stream.repeat(t, p); again.body != r.body || again.status != 200 ||
		again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s, %s: replayed %+v\nfirst %s", c.name, code, again, r.body)
	}
	row := calltest.Spend(t, p.DB, c.stream.key)
	if want, err := calltest.ReadBill([]byte(r.body)); err != nil || row != want || row.ChargeMC == 0 {
		t.Errorf("%s, %s: streamed %+v, %v; the row says %+v", c.name, code, want, err, row)
	}
	if rows := calltest.Spends(t, p.DB)[c.whole.key]; len(rows) != 0 {
		t.Errorf("%s, %s: the call cost %+v", c.name, code, rows)
	}
}

// stopPath returns where the dashboard stops the call of a key.
func stopPath(t *testing.T, p *nodetest.Node, user *apitest.Browser, key string) string {
	t.Helper()
	requestID := textOf(t, p.DB, `SELECT request_id FROM holds WHERE key = '`+key+`'`)
	return user.Get("/dashboard/running").Want(t, 200, "gpt-6-luna").
		Found(t, `hx-post="(/connections/[^"]*`+requestID+`/stop)"`)
}

// TestEventStreamOfANode follows a call on the event stream of its connection, and stops the node: the
// stream says so, and the node does not wait for it.
func TestEventStreamOfANode(t *testing.T) {
	t.Parallel()
	p := apptest.Start(t, apptest.URL(t, db.SQLite))
	resp := p.Call("GET", "/v1/connection/events", "")
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	await := func(text string) {
		t.Helper()
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("before %s: %q, %v", text, line, err)
			}
			if strings.Contains(line, text) {
				return
			}
		}
	}
	await("event: balance")
	whole(t, p.Call("POST", luna, prompt("Hello"))).billing(t)
	await("event: hold")
	await("event: charge")
	await("event: balance")
	stopped := make(chan error, 1)
	go func() { stopped <- p.Stop() }()
	await(`"reason":"server_shutdown"`)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
