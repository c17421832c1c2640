package e2e

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

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

// TestWebhooksVerify lets the official library of Standard Webhooks, and our own
// documented check, verify a delivery of each event that the real binary sends.
func TestWebhooksVerify(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *servertest.Process) {
		type request struct {
			header http.Header
			body   []byte
		}
		arrived := make(chan request, len(webhooks.Types))
		mine := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			arrived <- request{r.Header, body}
		}))
		defer mine.Close()
		var endpoint struct{ Secret string }
		manage(t, p, "POST", "/v1/apps/"+p.App.ID+"/webhooks", `{"url":"`+mine.URL+`"}`, &endpoint)
		official, err := standardwebhooks.NewWebhook(endpoint.Secret)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range webhooks.Types {
			var event struct{ ID string }
			manage(t, p, "POST", "/v1/apps/"+p.App.ID+"/events", `{"type":"`+kind+`"}`, &event)
			r := <-arrived
			// the seeded connection's creation may come too
			for seeded := 0; r.header.Get("Svc-Event-Id") != event.ID && seeded < 1; seeded++ {
				r = <-arrived
			}
			if err := official.Verify(r.body, r.header); err != nil {
				t.Errorf("%s: the official library says %v", kind, err)
			}
			if !ours(endpoint.Secret, r.header, r.body, time.Now()) {
				t.Errorf("%s: our own check refuses %v", kind, r.header)
			}
			changed := append(slices.Clone(r.body), ' ')
			if official.Verify(changed, r.header) == nil || ours(endpoint.Secret, r.header, changed, time.Now()) ||
				ours(endpoint.Secret, r.header, r.body, time.Now().Add(time.Hour)) {
				t.Errorf("%s: what was changed, or is old, passes", kind)
			}
		}
	})
}

const senderDB, senderEvents, senderConn = "PURSER_TEST_SENDER_DB", "PURSER_TEST_SENDER_EVENTS", "PURSER_TEST_SENDER_CONN"

// fast is a clock that runs a hundred times as fast, so that a retry after a
// minute comes after 0.6 s.
func fast() time.Time {
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC) // the same in every process
	return start.Add(time.Since(start) % (2 * 365 * 24 * time.Hour) * 100)
}

// TestWebhookSender is no test: it is the process that TestKilledSenders kills. It makes
// events until there are enough, and delivers them.
func TestWebhookSender(t *testing.T) {
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
	looked := make(chan struct{}, 1) // the dispatcher looks at the clock in each of its rounds
	now := func() time.Time {
		select {
		case looked <- struct{}{}:
		default:
		}
		return fast()
	}
	writer, log := store.NewWriter(d, now), slog.New(slog.NewTextHandler(os.Stdout, nil)) // standard output is shown
	go func() {
		if err := webhooks.NewDispatcher(webhooks.NewStore(d, box, now, openLoopback, web.Links{}), log,
			webhooks.Options{}).Run(t.Context()); err != nil {
			fmt.Println("failed", err)
		}
	}()
	fmt.Println("ready")
	conn := os.Getenv(senderConn)
	for {
		var n, open int
		if err := d.QueryRowContext(t.Context(),
			`SELECT (SELECT COUNT(*) FROM events), (SELECT COUNT(*) FROM events WHERE passed = 0) + (SELECT COUNT(*) FROM deliveries WHERE status = 'pending')`).Scan(&n, &open); err != nil {
			t.Fatal(err)
		}
		if n >= want && open == 0 {
			fmt.Println("done")
			<-t.Context().Done() // until it is killed
		}
		if n >= want {
			<-looked
			continue
		}
		for _, c := range []rules.Command{
			rules.Freeze{ConnectionID: conn, By: rules.FrozenByRisk},
			rules.Resume{ConnectionID: conn},
		} {
			if _, err := writer.Do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// sender starts a process that makes and delivers events, and returns how to kill it.
func sender(t *testing.T, target, conn string, events int, done func()) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestWebhookSender$", "-test.timeout=10m")
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
	testkit.Long(t, "package webhooks proves deliveries after a crash")
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
	r := &faulty{failures: map[string]int{}, accepted: map[string]int{}}
	server := httptest.NewServer(r)
	defer server.Close()
	conn, secret := subscribed(t, target, server.URL)
	official, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	r.check = func(h http.Header, body []byte) bool { // the senders' clock is not ours
		return official.VerifyIgnoringTimestamp(body, h) == nil && ours(secret, h, body, time.Time{})
	}

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

	d := openAgain(t, target)
	rows, err := d.QueryContext(t.Context(),
		`SELECT e.id, COALESCE(d.status, 'none') FROM events e LEFT JOIN deliveries d ON d.event_id = e.id`)
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
		if r.accepted[event] == 0 || status != "delivered" {
			lost++
			t.Errorf("event %s: accepted %d times, its delivery is %s", event, r.accepted[event], status)
		} else if r.accepted[event] > 1 {
			twice++
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if total < events || lost > 0 || r.forged > 0 || kills < 3 || r.failed == 0 {
		t.Errorf("of %d events %d were lost; %d requests forged; %d kills, %d failures", total, lost, r.forged, kills,
			r.failed)
	}
	t.Logf("%d events, %d lost, %d accepted more than once; %d requests, %d of them answered with 500; %d not signed; %d kills", total, lost, twice, r.requests, r.failed, r.forged, kills)
}

// faulty is a receiver that fails 30 % of the time, twice for an event at most.
type faulty struct {
	check func(http.Header, []byte) bool

	mu                       sync.Mutex
	failures, accepted       map[string]int // by event
	requests, failed, forged int
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // whoever sent it was killed
	}
	signed := f.check(r.Header, body)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	event := r.Header.Get("Svc-Event-Id")
	switch {
	case !signed:
		f.forged++
		w.WriteHeader(http.StatusUnauthorized)
	case f.failures[event] < 2 && rand.IntN(10) < 3:
		f.failures[event]++
		f.failed++
		w.WriteHeader(http.StatusInternalServerError)
	default:
		f.accepted[event]++
	}
}

// ours is the check of docs/guide/webhooks.md; without now, of any time.
func ours(secret string, header http.Header, body []byte, now time.Time) bool {
	at, v1, ok := strings.Cut(strings.TrimPrefix(header.Get("Svc-Signature"), "t="), ",v1=")
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(at + "." + string(body)))
	unix, err := strconv.ParseInt(at, 10, 64)
	fresh := now.IsZero() || now.Sub(time.Unix(unix, 0)).Abs() <= 5*time.Minute
	return ok && err == nil && fresh && hmac.Equal([]byte(v1), []byte(hex.EncodeToString(mac.Sum(nil))))
}

// openLoopback lets webhooks go to this machine, as purser dev does.
var openLoopback = webhooks.Addresses{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, HTTP: true}

// subscribed makes an app with an endpoint and a connection in a fresh database,
// and leaves it.
func subscribed(t *testing.T, target, url string) (conn, secret string) {
	t.Helper()
	d := openAgain(t, target)
	box, err := seal.New(make([]byte, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.ExecContext(t.Context(),
		`INSERT INTO accounts (id, email, password_hash, developer, created_us) VALUES ('wac_dev', 'developer@example.com', 'x', 1, 1)`); err != nil {
		t.Fatal(err)
	}
	var app apps.App
	err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		app, _, err = apps.NewStore(d, fast, true).Create(ctx, tx, apps.New{OwnerID: "wac_dev", Name: "Reader"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	change := webhooks.Change{URL: web.Field[string]{Set: true, Value: url}}
	if _, secret, err = webhooks.NewStore(d, box, fast, openLoopback, web.Links{}).Create(t.Context(), app.ID,
		change); err != nil {
		t.Fatal(err)
	}
	conn = id.New(id.Connection, fast())
	writer := store.NewWriter(d, fast)
	for _, c := range []rules.Command{
		rules.TopUp{AccountID: "wac_user", Sandbox: true, AmountMC: 1_000_000_000},
		rules.Connect{
			ConnectionID: conn,
			AppID:        app.ID,
			AccountID:    "wac_user",
			Sandbox:      true,
			RequestedMC:  500_000_000,
		},
	} {
		if _, err := writer.Do(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return conn, secret
}

func openAgain(t *testing.T, target string) *db.DB {
	t.Helper()
	return dbtest.OpenURL(t, target)
}
