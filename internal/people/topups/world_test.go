package topups_test

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/topups"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

const (
	secret = "whsec_0123456789abcdef"
)

// A world is a server with the pages and the event endpoint, and an emulated Stripe.
type world struct {
	*httptest.Server
	t      *testing.T
	d      *db.DB
	at     string // the database's address
	ledger *store.Writer
	people *accounts.Store
	store  *topups.Store
	stripe *stripe.Server

	mu    sync.Mutex
	ahead time.Duration
	told  int   // events that were delivered
	held  *held // the next request or answer that waits

	verified bool // the audit runs when the test ends
}

// A held request of ours to Stripe waits before Stripe gets it, or its answer before we do.
type held struct {
	method, path string
	isAnswer     bool
	here, goOn   chan struct{}
}

// hold makes the next such request wait, or its answer. It waits from when here is closed until goOn is.
func (w *world) hold(method, path string, isAnswer bool) *held {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = &held{method, path, isAnswer, make(chan struct{}), make(chan struct{})}
	return w.held
}

// takeHeld returns what is held if the request is it.
func (w *world) takeHeld(r *http.Request, isAnswer bool) *held {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.held
	if h == nil || h.method != r.Method || h.path != r.URL.Path || h.isAnswer != isAnswer {
		return nil
	}
	w.held = nil
	return h
}

// serveStripe is Stripe behind a network that holds what it is told to hold.
func (w *world) serveStripe(rw http.ResponseWriter, r *http.Request) {
	wait := func(isAnswer bool) {
		if h := w.takeHeld(r, isAnswer); h != nil {
			close(h.here)
			<-h.goOn
		}
	}
	wait(false)
	answer := httptest.NewRecorder()
	w.stripe.ServeHTTP(answer, r)
	wait(true)
	maps.Copy(rw.Header(), answer.Header())
	rw.WriteHeader(answer.Code)
	_, _ = rw.Write(answer.Body.Bytes())
}

// each runs f on both databases.
func each(t *testing.T, f func(w *world)) {
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			f(newWorld(t, e))
		})
	}
}

func newWorld(t *testing.T, e db.Engine) *world {
	t.Helper()
	w := &world{t: t, at: dbtest.URL(t, e)}
	now := time.Now().UTC() // what a month allows must not begin anew in the hours of a test
	w.later(time.Date(now.Year(), now.Month()+1, 10, 12, 0, 0, 0, time.UTC).Sub(now))
	d, err := db.Open(t.Context(), w.at)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	t.Cleanup(func() { _ = d.Close() })
	w.d, w.ledger = d, store.NewWriter(d, w.now)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.ledger.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	w.stripe = stripe.New(stripe.Options{Key: "sk_test_key", WebhookSecret: secret, Now: w.now})
	api := httptest.NewServer(http.HandlerFunc(w.serveStripe))
	t.Cleanup(api.Close)
	w.people = accounts.NewStore(d, w.now)
	w.store = &topups.Store{
		DB:           d,
		Ledger:       w.ledger,
		Now:          w.now,
		Log:          slog.New(slog.DiscardHandler),
		DashboardURL: "https://purser.example.com",
		Mails:        &mail.Store{DB: d, Now: w.now},
		Config:       topups.Config{Key: "sk_test_key", WebhookSecret: secret, BaseURL: api.URL},
	}
	if err := w.store.Configure(); err != nil {
		t.Fatal(err)
	}
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.SetPageError(ui.RenderError)
	sessions := accounts.NewSessions(w.people, false)
	(&accounts.Handler{Store: w.people, Sessions: sessions}).Mount(rt)
	(&topups.Handler{Store: w.store, Accounts: w.people, Sessions: sessions}).Mount(rt)
	w.Server = httptest.NewServer(rt)
	t.Cleanup(w.Close)
	return w
}

// another is a second node on the same PostgreSQL.
func (w *world) another() *topups.Store {
	w.t.Helper()
	d, err := db.Open(w.t.Context(), w.at)
	if err != nil {
		w.t.Fatal(err)
	}
	d.RelaxLimits(12)
	w.t.Cleanup(func() { _ = d.Close() })
	s := &topups.Store{
		DB:           d,
		Ledger:       store.NewWriter(d, w.now),
		Now:          w.now,
		Log:          slog.New(slog.DiscardHandler),
		DashboardURL: w.store.DashboardURL,
		Config:       w.store.Config,
		Mails:        &mail.Store{DB: d, Now: w.now},
	}
	if err := s.Configure(); err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.ahead)
}

// later moves the clock.
func (w *world) later(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead += d
}

// A person has a browser, and money to come.
type person struct {
	*world
	accounts.Account
	*apitest.Browser
}

func (w *world) person(n accounts.NewAccount) *person {
	w.t.Helper()
	p := &person{world: w}
	if n.Email == "" {
		n.Email = strings.ToLower(strings.TrimLeft(id.NewSecret()[:12], "-_")) + "@example.com"
	}
	err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		if p.Account, err = w.people.Create(ctx, tx, n); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE accounts SET password_hash = $1
			WHERE id = $2`, apitest.PasswordHash(w.t), p.ID)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	p.Browser = apitest.NewBrowser(w.t, w.URL).SignIn(p.Email)
	return p
}

const tokenField = `name="token" value="([^"]+)"`

// begin sends the form and returns Stripe's session.
func (p *person) begin(amount string) (session string) {
	p.t.Helper()
	a := p.Post("/top-up", url.Values{"token": {p.Get("/top-up").Found(p.t, tokenField)}, "amount": {amount}})
	if a.Status != http.StatusSeeOther || !strings.Contains(a.To, "/pay/cs_test_") {
		p.t.Fatalf("%d to %q\n%s", a.Status, a.To, a.Body)
	}
	return a.To[strings.LastIndexByte(a.To, '/')+1:]
}

// payment is the newest of the person.
func (p *person) payment() *rules.Payment {
	p.t.Helper()
	list, err := store.PaymentsOfAccount(p.t.Context(), p.d, p.ID, 1)
	if err != nil || len(list) != 1 {
		p.t.Fatal(len(list), err)
	}
	return list[0]
}

// wants checks the balance and the newest payment, and then the books.
func (p *person) wants(available money.MC, status rules.PaymentStatus) {
	p.t.Helper()
	b, err := store.GetBalance(p.t.Context(), p.d, p.ID)
	if err != nil {
		p.t.Fatal(err)
	}
	if got := p.payment().Status; b.AvailableMC != available || got != status {
		p.t.Errorf("available %s, %s; want %s, %s", b.AvailableMC.Display(), got, available.Display(), status)
	}
	p.verify()
}

// verify runs the audit: in the long run immediately, and in the usual one once, when the test ends.
func (w *world) verify() {
	w.t.Helper()
	audited := func() {
		w.t.Helper()
		var out bytes.Buffer
		n, err := audit.VerifyAndPrint(context.WithoutCancel(w.t.Context()), w.at, &out, w.now())
		if n != 0 || err != nil {
			w.t.Errorf("%d findings, %v:\n%s", n, err, out.String())
		}
	}
	if testkit.IsLong() {
		audited()
	} else if !w.verified {
		w.verified = true
		w.t.Cleanup(audited)
	}
}

// do makes something happen at Stripe.
func (w *world) do(session, what string, pairs ...string) {
	w.t.Helper()
	with := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		with.Set(pairs[i], pairs[i+1])
	}
	if err := w.stripe.Steer(session, what, with); err != nil {
		w.t.Fatal(err)
	}
}

// fresh are the events that were not taken yet.
func (w *world) fresh() [][]byte {
	list := w.stripe.Events()
	list, w.told = list[w.told:], len(list)
	return list
}

// deliver sends events, and wants each to be answered so.
func (w *world) deliver(events [][]byte, status int) {
	w.t.Helper()
	for _, e := range events {
		if got := w.tell(e, w.stripe.Sign(e)); got != status {
			w.t.Errorf("%.300s: %d, want %d", e, got, status)
		}
	}
}

func (w *world) tell(event []byte, signature string) int {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), "POST", w.URL+"/stripe/events", bytes.NewReader(event))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("Stripe-Signature", signature)
	a, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = a.Body.Close()
	return a.StatusCode
}

// allocate connects an app with an allocation and returns the connection.
func (p *person) allocate(amount money.MC) string {
	p.t.Helper()
	r, err := p.ledger.Do(p.t.Context(), rules.Connect{
		ConnectionID: id.New(id.Connection, p.now()),
		AppID:        id.New(id.App, p.now()),
		AccountID:    p.ID,
		RequestedMC:  amount,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return r.Connection.ID
}

func (w *world) status(connectionID string) rules.ConnectionStatus {
	w.t.Helper()
	c, err := store.GetConnection(w.t.Context(), w.d, connectionID)
	if err != nil {
		w.t.Fatal(err)
	}
	return c.Status
}
