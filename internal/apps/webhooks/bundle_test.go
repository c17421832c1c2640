package webhooks_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/apitest"
)

// A clock stands still until it is moved.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.at }

func (c *clock) move(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.at = c.at.Add(d) }

// bundle is a server with two apps, and a dispatcher that sends when a test calls it.
type bundle struct {
	db              *db.DB
	clock           *clock
	box             *seal.Box
	mine, other     apitest.Client
	mineID, otherID string
	conn            string // a connection of mine
	store           *webhooks.Store
	writer          *store.Writer
}

var loopback = webhooks.Addresses{
	Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	HTTP:  true,
	Own:   []string{"https://purser.example"},
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func newBundle(t *testing.T, d *db.DB, addresses webhooks.Addresses) *bundle {
	t.Helper()
	b := &bundle{db: d, clock: &clock{at: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}}
	var err error
	if b.box, err = seal.New(make([]byte, seal.KeySize)); err != nil {
		t.Fatal(err)
	}
	registry := apps.NewStore(d, b.clock.now, true)
	b.store = webhooks.NewStore(d, b.box, b.clock.now, addresses, web.Links{Dashboard: "https://dashboard.example"})
	b.writer = store.NewWriter(d, b.clock.now)
	rt := web.NewRouter(quiet, web.Links{})
	(&webhooks.Handler{Store: b.store, Apps: registry}).Mount(rt)
	server := httptest.NewServer(rt)
	t.Cleanup(server.Close)
	if _, err := d.ExecContext(t.Context(), `INSERT INTO accounts (id, email, password_hash, developer, created_us)
		VALUES ('wac_dev', 'developer@example.com', 'x', 1, 1)`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		client *apitest.Client
		id     *string
	}{{&b.mine, &b.mineID}, {&b.other, &b.otherID}} {
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			app, secret, err := registry.Create(ctx, tx, apps.New{OwnerID: "wac_dev", Name: "Reader"})
			*c.id, *c.client = app.ID, apitest.Client{Base: server.URL, User: app.ClientID, Secret: secret}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	b.do(t, rules.TopUp{AccountID: "wac_user", Sandbox: true, AmountMC: 1_000_000_000})
	return b
}

func (b *bundle) do(t *testing.T, c rules.Command) rules.Result {
	t.Helper()
	r, err := b.writer.Do(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// connect makes a connection of mine, which is one event.
func (b *bundle) connect(t *testing.T) string {
	t.Helper()
	b.conn = id.New(id.Connection, b.clock.now())
	b.do(t, rules.Connect{
		ConnectionID: b.conn,
		AppID:        b.mineID,
		AccountID:    "wac_user",
		Sandbox:      true,
		RequestedMC:  500_000_000,
	})
	return b.conn
}

// pause freezes and resumes the connection, which is two events.
func (b *bundle) pause(t *testing.T) {
	t.Helper()
	b.do(t, rules.Freeze{ConnectionID: b.conn, By: rules.FrozenByRisk})
	b.do(t, rules.Resume{ConnectionID: b.conn})
}

func (b *bundle) collection() string { return "/v1/apps/" + b.mineID + "/webhooks" }

type endpoint struct{ ID, URL, Secret, Status string }

func (b *bundle) create(t *testing.T, body string) endpoint {
	t.Helper()
	return read[endpoint](t, b.mine.Do(t, "POST", b.collection(), body))
}

type delivered struct {
	ID             string
	EventID        string  `json:"event_id"`
	EventType      string  `json:"event_type"`
	Status         string  `json:"status"`
	Attempts       int     `json:"attempts"`
	NextAttemptAt  *string `json:"next_attempt_at"`
	LastError      *string `json:"last_error"`
	ResponseStatus *int    `json:"response_status"`
	DeliveredAt    *string `json:"delivered_at"`
}

func (b *bundle) deliveries(t *testing.T, endpointID string) []delivered {
	t.Helper()
	return read[[]delivered](t, b.mine.Do(t, "GET", b.collection()+"/"+endpointID+"/deliveries", ""))
}

func read[T any](t *testing.T, a apitest.Answer) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.Body), &v); err != nil || a.Status != 200 {
		t.Fatalf("got %v (%v)", a, err)
	}
	return v
}

func want(t *testing.T, got apitest.Answer, status int, code string) {
	t.Helper()
	if got.Status != status || got.Code != code {
		t.Errorf("got %v; want %d %s", got, status, code)
	}
}

// call is one request that a receiver got.
type call struct {
	header http.Header
	body   []byte
}

// receiver is an app's server. It answers as the test sets and stores the requests.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	calls  []call
	answer func(n int, w http.ResponseWriter, r *http.Request)
}

func newReceiver(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // whoever sent it was killed
	}
	r.mu.Lock()
	r.calls = append(r.calls, call{req.Header, body})
	n := len(r.calls)
	r.mu.Unlock()
	if r.answer != nil {
		r.answer(n, w, req)
	}
}

func (r *receiver) got() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]call(nil), r.calls...)
}
