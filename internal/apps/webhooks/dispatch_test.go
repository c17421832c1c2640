package webhooks_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// node returns another node's share of the work.
func (b *bundle) node() *webhooks.Dispatcher {
	return webhooks.NewDispatcher(b.store, quiet, webhooks.Options{})
}

// work does everything that is due.
func (b *bundle) work(t *testing.T) {
	t.Helper()
	if err := b.node().Work(t.Context()); err != nil {
		t.Fatal(err)
	}
}

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

// verify is the check of docs/guide/webhooks.md.
func verify(secret string, header http.Header, body []byte) bool {
	t, v1, ok := strings.Cut(strings.TrimPrefix(header.Get("Svc-Signature"), "t="), ",v1=")
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t + "." + string(body)))
	return ok && hmac.Equal([]byte(v1), []byte(hex.EncodeToString(mac.Sum(nil))))
}

func TestDelivery(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		r, unwanted := newReceiver(t, nil), newReceiver(t, nil)
		e := b.create(t, `{"url":"`+r.URL+`/hook?a=b"}`)
		b.create(t, `{"url":"`+unwanted.URL+`","events":["connection.exhausted"]}`)
		conn := b.connect(t)
		b.do(t, rules.Freeze{ConnectionID: conn, By: rules.FrozenByRisk})
		b.work(t)
		b.work(t) // once is enough
		calls := r.got()
		if len(calls) != 2 || len(unwanted.got()) != 0 {
			t.Fatalf("%d calls, %d unwanted ones", len(calls), len(unwanted.got()))
		}
		for _, c := range calls {
			if !verify(e.Secret, c.header, c.body) || verify(e.Secret, c.header, append(c.body, ' ')) ||
				verify("whsec_other", c.header, c.body) {
				t.Errorf("the signature is wrong: %v", c.header)
			}
			sent, err := strconv.ParseInt(c.header.Get("Webhook-Timestamp"), 10, 64)
			// It is compared with a clock of others: a moved clock does not count.
			if age := time.Since(time.Unix(sent, 0)); err != nil || age < 0 || age > testkit.Patience {
				t.Errorf("the signature is %s old: %v", age, err)
			}
			if h := c.header; h.Get("Svc-Event-Id") == "" || h.Get("Webhook-Id") != h.Get("Svc-Event-Id") ||
				h.Get("Content-Type") != "application/json" ||
				!strings.HasPrefix(h.Get("Webhook-Signature"), "v1,") {
				t.Errorf("headers: %v", h)
			}
			var frozen = strings.Contains(string(c.body), `"type":"connection.frozen"`)
			if frozen != strings.Contains(string(c.body),
				`"review_url":"https://dashboard.example/connections/`+conn+`/review"`) {
				t.Errorf("review_url: %s", c.body)
			}
			for _, part := range []string{`"app_id":"` + b.mineID, `"connection_id":"` + conn, `"sandbox":true`,
				`"api_version":"0.1.0"`, `"data":{"connection":{"id":"` + conn,
				`"created_at":"2026-11-21T10:00:00.000Z"`} {
				if !strings.Contains(string(c.body), part) {
					t.Errorf("no %s in %s", part, c.body)
				}
			}
			if strings.Contains(string(c.body), "test") || strings.Contains(string(c.body), "balance") ||
				strings.Contains(string(c.body), "email") {
				t.Errorf("too much: %s", c.body)
			}
		}
		for _, v := range b.deliveries(t, e.ID) {
			if v.Status != "delivered" || v.Attempts != 1 || v.NextAttemptAt != nil || *v.ResponseStatus != 200 ||
				v.DeliveredAt == nil || v.LastError != nil {
				t.Errorf("%+v", v)
			}
		}
	})
}

// TestRetries measures when a dead endpoint is tried again: each time within ±5 %
// of the schedule after the failure before, and then never more.
func TestRetries(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		r := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
		e := b.create(t, `{"url":"`+r.URL+`"}`)
		b.connect(t)
		b.work(t)
		for n, wait := range []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour,
			6 * time.Hour, 15 * time.Hour} {
			v := b.deliveries(t, e.ID)[0]
			at, err := time.Parse(time.RFC3339, *v.NextAttemptAt)
			if off := at.Sub(b.clock.now()) - wait; err != nil || v.Status != "pending" || v.Attempts != n+1 ||
				*v.LastError != "answered 503" || *v.ResponseStatus != 503 || off.Abs() > wait/20 {
				t.Errorf("after %d attempts: %+v, %s off (%v)", n+1, v, off, err)
			}
			b.clock.move(at.Sub(b.clock.now()) - time.Millisecond)
			if b.work(t); len(r.got()) != n+1 {
				t.Errorf("the %dth retry came early", n+1)
			}
			b.clock.move(2 * time.Millisecond) // what is shown leaves out microseconds
			if b.work(t); len(r.got()) != n+2 {
				t.Errorf("the %dth retry did not come", n+1)
			}
		}
		b.clock.move(100 * time.Hour)
		b.work(t)
		if v := b.deliveries(t, e.ID)[0]; v.Status != "failed" || v.Attempts != 7 || v.NextAttemptAt != nil ||
			len(r.got()) != 7 {
			t.Errorf("at last %+v after %d calls", v, len(r.got()))
		}
		first := r.got()[0]
		for _, c := range r.got() {
			if string(c.body) != string(first.body) ||
				c.header.Get("Svc-Event-Id") != first.header.Get("Svc-Event-Id") ||
				!verify(e.Secret, c.header, c.body) {
				t.Errorf("a retry differs: %v %s", c.header, c.body)
			}
		}
		again := read[delivered](t,
			b.mine.Do(t, "POST", b.collection()+"/"+e.ID+"/deliveries/"+b.deliveries(t, e.ID)[0].ID+"/redeliver", ""))
		if again.Status != "pending" || again.Attempts != 0 {
			t.Errorf("sent again: %+v", again)
		}
		if b.work(t); len(r.got()) != 8 {
			t.Errorf("%d calls", len(r.got()))
		}
	})
}

// What an endpoint may answer, and what becomes of it (F-76, F-77, F-82).
func TestAnswers(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite), loopback)
	elsewhere := newReceiver(t, nil)
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		status string
		says   string
	}{
		"200": {func(w http.ResponseWriter) {}, "delivered", ""},
		"204": {func(w http.ResponseWriter) { w.WriteHeader(204) }, "delivered", ""},
		"299": {func(w http.ResponseWriter) { w.WriteHeader(299) }, "delivered", ""},
		"400": {func(w http.ResponseWriter) { w.WriteHeader(400) }, "pending", "answered 400"},
		"500": {func(w http.ResponseWriter) { w.WriteHeader(500) }, "pending", "answered 500"},
		"304": {func(w http.ResponseWriter) { w.WriteHeader(304) }, "pending", "answered 304"},
		"308": {func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(308)
		}, "pending", "redirects are not followed"},
		"302": {func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(302)
		}, "pending", "redirects are not followed"},
		"breaks off": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "pending", "the connection failed"},
		"2xx, breaks off": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "9")
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, "delivered", ""},
		"endless": {endless, "delivered", ""},
		"too long a header": {func(w http.ResponseWriter) {
			w.Header().Set("X", strings.Repeat("x", 100_000))
		}, "pending", "the connection failed"},
	} {
		r := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) { c.answer(w) })
		e := b.create(t, `{"url":"`+r.URL+`"}`)
		b.mine.Do(t, "POST", b.collection()+"/"+e.ID+"/test", `{"type":"connection.created"}`)
		b.work(t)
		v := b.deliveries(t, e.ID)[0]
		if v.Status != c.status || (v.LastError == nil) != (c.says == "") ||
			v.LastError != nil && !strings.Contains(*v.LastError, c.says) || len(r.got()) != 1 {
			t.Errorf("%s: %+v after %d calls", name, v, len(r.got()))
		}
	}
	if n := len(elsewhere.got()); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// endless writes until nobody reads.
func endless(w http.ResponseWriter) {
	for {
		if _, err := w.Write(make([]byte, 32<<10)); err != nil {
			return
		}
	}
}

// F-80: what happens to an endpoint while deliveries wait for it.
func TestChangesWhileDeliveriesWait(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		r := newReceiver(t, nil)
		e, gone := b.create(t, `{"url":"`+r.URL+`"}`), b.create(t, `{"url":"`+r.URL+`/gone"}`)
		at := b.collection() + "/" + e.ID
		b.mine.Do(t, "PATCH", at, `{"status":"disabled"}`)
		b.mine.Do(t, "PATCH", b.collection()+"/"+gone.ID, `{"status":"disabled"}`)
		b.connect(t)
		if b.work(t); len(r.got()) != 0 || len(b.deliveries(t, gone.ID)) != 1 {
			t.Errorf("disabled: %d calls", len(r.got()))
		}
		b.mine.Do(t, "DELETE", b.collection()+"/"+gone.ID, "")
		rotated := read[endpoint](t, b.mine.Do(t, "POST", at+"/rotate-secret", ""))
		b.clock.move(48 * time.Hour)
		b.mine.Do(t, "PATCH", at, `{"status":"active"}`)
		b.work(t)
		calls := r.got()
		if len(calls) != 1 || !verify(rotated.Secret, calls[0].header, calls[0].body) ||
			verify(e.Secret, calls[0].header, calls[0].body) {
			t.Errorf("%d calls", len(calls))
		}
	})
}

// Two nodes share the queue: while one's attempt runs, the other leaves it alone,
// until the lease is over; and what comes late changes nothing.
func TestLeases(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		arrived, answer := make(chan bool), make(chan int)
		r := newReceiver(t, func(n int, w http.ResponseWriter, _ *http.Request) {
			if n == 1 {
				arrived <- true
				w.WriteHeader(<-answer)
			}
		})
		e := b.create(t, `{"url":"`+r.URL+`"}`)
		b.connect(t)
		slow := make(chan error)
		go func() { slow <- b.node().Work(t.Context()) }()
		<-arrived
		if b.work(t); len(r.got()) != 1 {
			t.Errorf("two nodes made %d attempts", len(r.got()))
		}
		b.clock.move(31 * time.Second)
		b.work(t)
		if v := b.deliveries(t, e.ID)[0]; len(r.got()) != 2 || v.Status != "delivered" {
			t.Errorf("after the lease: %d calls, %+v", len(r.got()), v)
		}
		answer <- 500
		if err := <-slow; err != nil {
			t.Error(err)
		}
		if v := b.deliveries(t, e.ID)[0]; v.Status != "delivered" || v.Attempts != 1 || v.LastError != nil {
			t.Errorf("who came late wrote %+v", v)
		}
	})
}

// A node that stops while a receiver is slow has made no attempt: the delivery is due at once, with all its attempts.
func TestStopIsNoAttempt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		arrived, release := make(chan bool), make(chan bool)
		r := newReceiver(t, func(n int, _ http.ResponseWriter, _ *http.Request) {
			if n == 1 {
				arrived <- true
				<-release
			}
		})
		e := b.create(t, `{"url":"`+r.URL+`"}`)
		b.connect(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- b.node().Work(ctx) }()
		<-arrived
		stop()
		<-ended // with the error of a node that stops, or without
		close(release)
		if v := b.deliveries(t, e.ID)[0]; v.Status != "pending" || v.Attempts != 0 || v.LastError != nil {
			t.Errorf("after the stop: %+v", v)
		}
		b.work(t)
		if v := b.deliveries(t, e.ID)[0]; v.Status != "delivered" || v.Attempts != 1 {
			t.Errorf("by another node: %+v", v)
		}
	})
}

// A dead endpoint with a long queue keeps nobody waiting: the others are told
// everything while it has not answered once (F-76).
func TestADeadEndpointDelaysNobody(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		release := make(chan bool)
		dead := newReceiver(t, func(int, http.ResponseWriter, *http.Request) { <-release })
		t.Cleanup(func() { close(release) })
		const events = 99
		all := make(chan bool)
		alive := newReceiver(t, func(n int, _ http.ResponseWriter, _ *http.Request) {
			if n == events {
				close(all)
			}
		})
		b.create(t, `{"url":"`+dead.URL+`"}`)
		b.create(t, `{"url":"`+alive.URL+`"}`)
		b.connect(t)
		for range (events - 1) / 2 {
			b.pause(t)
		}
		stopped := run(t, b.node())
		<-all
		if n := len(dead.got()); n > 16 {
			t.Errorf("%d attempts run for the dead one", n)
		}
		stopped()
	})
}

// What a healthy endpoint gets in each round is counted alone, and beside one that
// never answers and one that fails at once: not one attempt comes later (F-76).
func TestDeadEndpointsTakeNoTurns(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const events = 401
		turns := func(others bool) (alive []int, hung, failed int) {
			b := newBundle(t, dbtest.Open(t, d.Engine), loopback)
			e := b.create(t, `{"url":"`+newReceiver(t, nil).URL+`"}`)
			var silent, broken endpoint
			if others {
				silent = b.create(t, `{"url":"http://127.0.0.1:1/"}`)
				broken = b.create(t,
					`{"url":"`+newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
						w.WriteHeader(500)
					}).URL+`"}`)
			}
			b.connect(t)
			for range events / 2 {
				b.pause(t)
			}
			node := b.node()
			for delivered := 0; delivered < events; {
				claims, err := node.Step(t.Context(), silent.ID)
				if err != nil {
					t.Fatal(err)
				}
				if claims[e.ID] == 0 { // it has had what a second allows
					b.clock.move(time.Second)
				}
				delivered += claims[e.ID]
				alive = append(alive, claims[e.ID])
				hung, failed = hung+claims[silent.ID], failed+claims[broken.ID]
			}
			return alive, hung, failed
		}
		alone, _, _ := turns(false)
		beside, hung, failed := turns(true)
		if !slices.Equal(alone, beside) {
			t.Errorf("alone it gets %v, beside dead ones %v", alone, beside)
		}
		if hung > 16 || failed > 16+len(beside) {
			t.Errorf("dead ones got %d and %d attempts in %d rounds", hung, failed, len(beside))
		}
	})
}

// An endpoint gets at most 100 attempts a second from a node, so that a handler
// that makes an event of each one cannot turn faster (F-78).
func TestRatePerEndpoint(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite), loopback)
	r := newReceiver(t, nil)
	b.create(t, `{"url":"`+r.URL+`"}`)
	b.connect(t)
	for range 75 {
		b.pause(t)
	}
	node := b.node()
	for _, want := range []int{100, 151} {
		if err := node.Work(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(r.got()); n != want {
			t.Errorf("%d attempts, not %d", n, want)
		}
		b.clock.move(time.Second)
	}
}

// approval_url leads to the dashboard's page of the request, in every event about one.
func TestApprovalURL(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite), loopback)
	for _, kind := range []string{"requested", "approved", "denied"} {
		var m struct {
			ConnectionID string `json:"connection_id"`
			Data         struct {
				Request struct {
					ID, Status   string
					ConnectionID string `json:"connection_id"`
					ApprovalURL  string `json:"approval_url"`
				} `json:"allocation_request"`
			}
		}
		a := b.mine.Do(t, "POST", "/v1/apps/"+b.mineID+"/events", `{"type":"allocation_change.`+kind+`"}`)
		if err := json.Unmarshal([]byte(a.Body), &m); err != nil {
			t.Fatal(err)
		}
		r := m.Data.Request
		if r.ApprovalURL != "https://dashboard.example/allocation-requests/"+r.ID || !strings.HasPrefix(r.ID, "acr_") ||
			r.ConnectionID != m.ConnectionID || (kind == "requested") != (r.Status == "pending") {
			t.Errorf("%s: %s", kind, a.Body)
		}
	}
}

// Events about an app have no connection, and no place in the order of one's events.
func TestAppEvents(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite), loopback)
	for _, kind := range []string{"app.spend_limit_reached", "app.suspended"} {
		a := b.mine.Do(t, "POST", "/v1/apps/"+b.mineID+"/events", `{"type":"`+kind+`"}`)
		if !strings.Contains(a.Body, `"connection_id":null`) || !strings.Contains(a.Body, `"seq":0`) ||
			!strings.Contains(a.Body, `"data":{"app":{"id":"`+b.mineID) {
			t.Errorf("%s: got %v", kind, a)
		}
	}
}
