package server_test

import (
	"bufio"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
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
			target := dbtest.URL(t, e)
			calls := servertest.Start(t, target)
			pages := calls
			if e == db.Postgres {
				pages = servertest.Start(t, target)
			}
			user := signIn(t, pages, calls.TestAccount.Email, calls.TestAccount.Password)
			books := newBooks(t, nil)
			const long = "!mock pace=100ms words=600 chunks=600" // a minute
			stream, whole := books.addCall(true, long), books.addCall(false, "!mock delay=60s words=5")
			user.Get("/dashboard").Want(t, 200, "Running now", "No calls in progress", `href="/dashboard/pause"`)
			streamed, waited := beginCall(calls, stream), beginCall(calls, whole)
			<-streamed.begun
			holdState(t, calls, whole.key, "open")
			eventually(t, 20*time.Second, "a checkpoint", func() bool {
				return number(t, calls.DB, `SELECT COUNT(*) FROM chunks`) > 0
			})
			stopOf := func(key string) string {
				t.Helper()
				d := openDatabase(t, calls.DB)
				defer d.Close()
				var requestID string
				if err := d.QueryRowContext(t.Context(), `SELECT request_id FROM holds WHERE key = $1`,
					key).Scan(&requestID); err != nil {
					t.Fatal(err)
				}
				return user.Get("/dashboard/running").Want(t, 200, "gpt-6-luna").
					Found(t, `hx-post="(/connections/[^"]*`+requestID+`/stop)"`)
			}
			path := stopOf(stream.key)
			user.Post(path, nil, "HX-Request", "true").Want(t, 200, "Running now").Lacks(t, path)
			r := <-streamed.answer
			stream.answer = []byte(r.body)
			if r.status != 200 || !strings.Contains(r.body, `"code":"call_stopped"`) ||
				!strings.Contains(r.body, `"settlement":"estimated"`) ||
				!strings.HasSuffix(r.body, "data: [DONE]\n\n") {
				t.Errorf("the stopped stream: %+v", r)
			}
			for _, p := range []*servertest.Process{calls, pages} {
				if again := ask(p, stream); again.body != r.body || again.header.Get("Idempotent-Replayed") != "true" {
					t.Errorf("replayed %+v\nfirst %s", again, r.body)
				}
			}
			if want, err := billOf(stream); err != nil || queryOne(t, calls, stream.key) != want || want.ChargeMC == 0 {
				t.Errorf("streamed %+v, %v; the row says %+v", want, err, queryOne(t, calls, stream.key))
			}
			user.Post(path, nil).Leads(t, "/dashboard") // it has ended: nothing happens
			user.Post(stopOf(whole.key), nil).Leads(t, "/dashboard")
			if r := <-waited.answer; r.status != 403 || r.errorCode() != "call_stopped" ||
				r.header.Get("X-Should-Retry") != "false" {
				t.Errorf("the stopped call: %+v", r)
			}
			stopAll(t, calls, pages)
			calls.Verify()
		})
	}
}

// stopAll pauses everything while calls run.
func stopAll(t *testing.T, calls, pages *servertest.Process) {
	t.Helper()
	user := signIn(t, pages, calls.TestAccount.Email, calls.TestAccount.Password)
	books := newBooks(t, nil)
	stream, whole := books.addCall(true, "!mock pace=100ms words=600 chunks=600"),
		books.addCall(false, "!mock delay=60s words=5")
	streamed, waited := beginCall(calls, stream), beginCall(calls, whole)
	<-streamed.begun
	holdState(t, calls, whole.key, "open")
	holdState(t, calls, stream.key, "open")
	user.Get("/dashboard/pause").Want(t, 200, "Pause everything?", "2 running calls stop at once")
	user.Post("/dashboard/pause", nil).Leads(t, "/dashboard?done=pause")
	user.Get("/dashboard?done=pause").Want(t, 200, "Everything is paused", "Needs your attention", "Review").
		Lacks(t, `href="/dashboard/pause"`)
	if r := <-streamed.answer; r.status != 200 && r.status != 403 ||
		!strings.Contains(r.body, `"code":"connection_frozen"`) {
		t.Errorf("the stream at the pause: %+v", r)
	}
	if r := <-waited.answer; r.status != 403 || r.errorCode() != "connection_frozen" ||
		!regexp.MustCompile(`"review_url":"[^"]+/review"`).MatchString(r.body) {
		t.Errorf("the call at the pause: %+v", r)
	}
	if r := ask(calls, books.addCall(false, "")); r.status != 403 || r.errorCode() != "connection_frozen" {
		t.Errorf("a call after the pause: %+v", r)
	}
	user.Post("/connections/"+calls.Connection.ID+"/review", url.Values{"decision": {"resume"}}).Want(t, 303)
	if r := ask(calls, books.addCall(false, "")); r.status != 200 {
		t.Errorf("a call after the resume: %+v", r)
	}
}

// TestEventStreamOfANode follows a call on the event stream of its connection, and stops the node: the
// stream says so, and the node does not wait for it.
func TestEventStreamOfANode(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, "")
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
	stopped := make(chan int, 1)
	go func() { stopped <- p.Stop() }()
	await(`"reason":"server_shutdown"`)
	if code := <-stopped; code != 0 {
		t.Errorf("the node stopped with %d", code)
	}
}
