package webhooks_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"purser/internal/db"
	"purser/internal/db/dbtest"
	"purser/internal/ledger"
	"purser/internal/seal"
	"purser/internal/web"
	"purser/internal/webhooks"
)

func freeze(conn string) ledger.Command { return ledger.Freeze{ConnectionID: conn} }

// run runs a node; the returned function stops it and waits.
func run(t *testing.T, d *webhooks.Dispatcher) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// crashEvents is how many events TestKilledSenders makes on each engine;
// PURSER_TEST_EVENTS says otherwise for long runs.
func crashEvents(t *testing.T) int {
	text := os.Getenv("PURSER_TEST_EVENTS")
	if text == "" {
		return 400
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("PURSER_TEST_EVENTS: %q is no number of events", text)
	}
	return n
}

const senderDB, senderEvents, senderConn = "PURSER_TEST_SENDER_DB", "PURSER_TEST_SENDER_EVENTS", "PURSER_TEST_SENDER_CONN"

// fast is a clock that runs a hundred times as fast, so that a retry after a
// minute comes after 0.6 s.
func fast() time.Time {
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC) // the same in every process
	return start.Add(time.Since(start) % (2 * 365 * 24 * time.Hour) * 100)
}

// TestSender is no test: it is the process that TestKilledSenders kills. It makes
// events until there are enough, and delivers them.
func TestSender(t *testing.T) {
	target := os.Getenv(senderDB)
	if target == "" {
		t.Skip("for TestKilledSenders")
	}
	want, err := strconv.Atoi(os.Getenv(senderEvents))
	if err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	box, err := seal.New(make([]byte, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	now := fast
	writer := ledger.New(d, now)
	go func() {
		if err := webhooks.NewDispatcher(webhooks.NewStore(d, box, now, loopback, web.Links{}), quiet, webhooks.Options{}).Run(t.Context()); err != nil {
			fmt.Println("failed", err)
		}
	}()
	fmt.Println("ready")
	conn := os.Getenv(senderConn)
	for {
		var n, open int
		if err := d.QueryRowContext(t.Context(), `SELECT (SELECT COUNT(*) FROM events), (SELECT COUNT(*) FROM events WHERE passed = 0) + (SELECT COUNT(*) FROM deliveries WHERE status = 'pending')`).Scan(&n, &open); err != nil {
			t.Fatal(err)
		}
		if n >= want && open == 0 {
			fmt.Println("done")
			<-t.Context().Done() // until it is killed
		}
		if n >= want {
			time.Sleep(20 * time.Millisecond) // another process's clock: there is nothing to wait for
			continue
		}
		for _, c := range []ledger.Command{ledger.Freeze{ConnectionID: conn}, ledger.Resume{ConnectionID: conn}} {
			if _, err := writer.Do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// sender starts a process that makes and delivers events, and returns how to kill it.
func sender(t *testing.T, target, conn string, events int, done func()) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSender$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), senderDB+"="+target, senderConn+"="+conn, senderEvents+"="+strconv.Itoa(events))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan bool)
	over := make(chan bool)
	go func() {
		defer close(over)
		opened := sync.OnceFunc(func() { close(ready) })
		defer opened()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			switch text := lines.Text(); text {
			case "ready":
				opened()
			case "done":
				done()
			default:
				t.Log(text)
			}
		}
	}()
	<-ready
	return func() {
		_ = cmd.Process.Kill() // kill -9
		<-over
		_ = cmd.Wait() // says that it was killed
	}
}

// TestKilledSenders delivers to a receiver that fails 30 % of the time (twice for
// an event at most, so that the test ends) by processes that are killed again and
// again: on SQLite one after the other, on PostgreSQL two that share the queue.
// Nothing is lost, and every request is signed (F-81).
func TestKilledSenders(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			killSenders(t, e)
		})
	}
}

func killSenders(t *testing.T, engine db.Engine) {
	target, events := dbtest.URL(t, engine), crashEvents(t)
	var mu sync.Mutex
	failures, accepted := map[string]int{}, map[string]int{}
	var failed, forged atomic.Int64
	var secret string
	r := newReceiver(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		event := r.Header.Get("Svc-Event-Id")
		if failures[event] < 2 && rand.IntN(10) < 3 {
			failures[event]++
			failed.Add(1)
			w.WriteHeader(500)
			return
		}
		accepted[event]++
	})
	conn := prepare(t, target, r.URL, &secret)

	senders := 1
	if engine == db.Postgres {
		senders = 2
	}
	finished := make(chan bool)
	done := sync.OnceFunc(func() { close(finished) })
	kills := 0
	running := make([]func(), senders)
	for i := range running {
		running[i] = sender(t, target, conn, events, done)
	}
	for over := false; !over; {
		select {
		case <-finished:
			over = true
		case <-time.After(time.Duration(300+rand.IntN(900)) * time.Millisecond):
			i := kills % senders
			running[i]()
			running[i] = sender(t, target, conn, events, done)
			kills++
		case <-t.Context().Done():
			over = true
		}
	}
	for _, kill := range running {
		kill()
	}

	for _, c := range r.got() {
		if !verify(secret, c.header, c.body) {
			forged.Add(1)
		}
	}
	d := openAgain(t, target)
	rows, err := d.QueryContext(t.Context(), `SELECT e.id, COALESCE(d.status, 'none') FROM events e LEFT JOIN deliveries d ON d.event_id = e.id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	total, lost, twice := 0, 0, 0
	for rows.Next() {
		var event, status string
		if err := rows.Scan(&event, &status); err != nil {
			t.Fatal(err)
		}
		total++
		if accepted[event] == 0 || status != "delivered" {
			lost++
			t.Errorf("event %s: accepted %d times, its delivery is %s", event, accepted[event], status)
		} else if accepted[event] > 1 {
			twice++
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if total < events || lost > 0 || forged.Load() > 0 || kills < 3 || failed.Load() == 0 {
		t.Errorf("of %d events %d were lost; %d requests forged; %d kills, %d failures", total, lost, forged.Load(), kills, failed.Load())
	}
	t.Logf("%d events, %d lost, %d accepted more than once; %d requests, all signed, %d of them failed; %d kills", total, lost, twice, len(r.got()), failed.Load(), kills)
}

// prepare makes an app with an endpoint and a connection, and leaves the database.
func prepare(t *testing.T, target, url string, secret *string) (conn string) {
	d := openAgain(t, target)
	b := newBundle(t, d, loopback)
	b.clock.at = fast()
	*secret = b.create(t, `{"url":"`+url+`","events":["connection.frozen","connection.resumed","connection.created"]}`).Secret
	conn = b.connect(t)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return conn
}

func openAgain(t *testing.T, target string) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // twice does nothing
	return d
}
