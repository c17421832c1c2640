package admin_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"purser/internal/accounts"
	"purser/internal/admin"
	"purser/internal/apitest"
	"purser/internal/apps"
	"purser/internal/catalog"
	"purser/internal/db"
	"purser/internal/estimates"
	"purser/internal/golive"
	"purser/internal/id"
	"purser/internal/ledger"
	"purser/internal/metrics"
	"purser/internal/money"
	"purser/internal/operator"
	"purser/internal/tiers"
	"purser/internal/ui"
	"purser/internal/web"
)

const token = "0123456789abcdefghijklmnopqrstuvwxyz" // of the operator's API

// A world is the pages, served, with people: a person with $20 who lent $5 to a
// live app, its developer, who asks to go live with another, an operator and a viewer.
type world struct {
	*httptest.Server
	t        *testing.T
	d        *db.DB
	ledger   *ledger.Writer
	now      func() time.Time
	admin    *admin.Handler
	accounts *accounts.Store
	changes  atomic.Int64
	ids      map[string]string // of accounts, by the name in their address
	app      apps.App
	sandbox  apps.App
	request  golive.Request
	conn     ledger.Connection
	routes   []string // of the pages
}

func newWorld(t *testing.T, d *db.DB) *world {
	t.Helper()
	var mu sync.Mutex
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	w := &world{t: t, d: d, ids: map[string]string{}, now: func() time.Time { // every look at the clock is a moment later
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(time.Millisecond)
		return at
	}}
	w.ledger = ledger.New(d, w.now)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.ledger.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	w.accounts = accounts.NewStore(d, w.now)
	clients := apps.NewStore(d, w.now, true)
	reviews := &golive.Store{DB: d, Apps: clients, Ledger: w.ledger, Now: w.now}
	w.people(clients, reviews)
	w.serve(clients, reviews)
	return w
}

// serve mounts the pages.
func (w *world) serve(clients *apps.Store, reviews *golive.Store) {
	w.t.Helper()
	prices, err := catalog.Open("", slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	drift, err := estimates.Open(w.t.Context(), w.d, w.now, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.SetPageError(ui.RenderError)
	sessions := accounts.NewSessions(w.accounts, false)
	(&accounts.Handler{Store: w.accounts, Sessions: sessions}).Mount(rt)
	w.admin = &admin.Handler{
		DB: w.d, Accounts: w.accounts, Sessions: sessions, Catalog: prices, Estimates: drift, Metrics: metrics.New(prices, drift), Free: tiers.DefaultFreeCredit,
		Desk: &operator.Desk{DB: w.d, Accounts: w.accounts, Apps: clients, GoLive: reviews, Ledger: w.ledger, Now: w.now, Changed: func() { w.changes.Add(1) }},
	}
	before := len(rt.Routes())
	w.admin.Mount(rt)
	w.routes = rt.Routes()[before:]
	(&operator.Handler{Desk: w.admin.Desk, Token: token}).Mount(rt)
	// What the pages of two-step sign-in do in the end.
	rt.HandlePage("POST /second-step", sessions.With(func(rw http.ResponseWriter, r *http.Request) error {
		a, _ := accounts.Current(r.Context())
		return sessions.Start(rw, r, a, accounts.Two)
	}))
	w.Server = httptest.NewServer(rt)
	w.t.Cleanup(w.Close)
}

// people fills the world.
func (w *world) people(clients *apps.Store, reviews *golive.Store) {
	w.t.Helper()
	err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		for _, n := range []accounts.New{{Email: "person@example.com"}, {Email: "developer@example.com", Developer: true}, {Email: "operator@example.com", Operator: true}, {Email: "viewer@example.com"}} {
			a, err := w.accounts.Create(ctx, tx, n)
			if err != nil {
				return err
			}
			w.ids[strings.TrimSuffix(n.Email, "@example.com")] = a.ID
		}
		if _, err := w.accounts.SetRole(ctx, tx, w.ids["viewer"], accounts.Viewer); err != nil {
			return err
		}
		uris := []string{"https://app.example.com/cb"}
		if w.sandbox, _, err = clients.Create(ctx, tx, apps.New{OwnerID: w.ids["developer"], Name: "New <i>App</i>", RedirectURIs: uris, AllowedModels: []string{"gpt-6-luna"}}); err != nil {
			return err
		}
		w.app, _, err = clients.Create(ctx, tx, apps.New{OwnerID: w.ids["developer"], Name: "Live <b>App</b>", RedirectURIs: uris, Tier: apps.LimitedLive, ProviderMode: apps.Live})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.exec(`UPDATE accounts SET password_hash = $1`, apitest.PasswordHash(w.t))
	w.exec(`INSERT INTO features (app_id, slug, display_name, description, created_us) VALUES ($1, 'chat', 'Chat', 'Talks.', 1)`, w.sandbox.ID)
	if w.request, err = reviews.Ask(w.t.Context(), w.sandbox.ID); err != nil {
		w.t.Fatal(err)
	}
	w.do(ledger.TopUp{AccountID: w.ids["person"], AmountMC: 20 * money.Dollar})
	w.conn = w.connect(w.app, w.ids["person"])
}

func (w *world) exec(text string, args ...any) {
	w.t.Helper()
	if _, err := w.d.ExecContext(w.t.Context(), text, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) connect(app apps.App, accountID string) ledger.Connection {
	w.t.Helper()
	return w.do(ledger.Connect{ConnectionID: id.New(id.Connection, w.now()), AppID: app.ID, AccountID: accountID, Sandbox: app.Tier == apps.Sandbox, RequestedMC: 5 * money.Dollar}).Connection
}

func (w *world) do(c ledger.Command) ledger.Result {
	w.t.Helper()
	r, err := w.ledger.Do(w.t.Context(), c)
	if err != nil {
		w.t.Fatalf("%T: %v", c, err)
	}
	return r
}

// spend bills a call.
func (w *world) spend(c ledger.Connection, amount money.MC) ledger.Entry {
	w.t.Helper()
	call := w.hold(c, amount)
	charge := ledger.Amounts{ProviderCostMC: amount / 2, SvcFeeMC: amount / 4, DevMarginMC: amount - amount/2 - amount/4, UserChargeMC: amount}
	return w.do(ledger.Settle{Call: call, Attempt: 1, Settlement: ledger.Settled, Usage: ledger.Usage{JSON: "{}"}, Charge: charge}).Entry
}

func (w *world) hold(c ledger.Connection, amount money.MC) ledger.Call {
	w.t.Helper()
	call := ledger.Call{
		ConnectionID: c.ID, AccountID: c.AccountID, AppID: c.AppID, Key: id.Secret(), RequestID: id.New(id.Request, w.now()),
		Fingerprint: "f", Feature: "summaries", Bucket: "summaries", Model: "gpt-5.6-terra", Terms: "{}", HoldMC: amount,
	}
	w.do(ledger.Hold{Call: call, NodeID: "node_1", Claim: call.RequestID})
	return call
}

// is returns a connection as it is now.
func (w *world) is(c ledger.Connection) ledger.Connection {
	w.t.Helper()
	c, err := ledger.GetConnection(w.t.Context(), w.d, c.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// everything is what a page view must leave as it was.
func (w *world) everything() (sum string) {
	w.t.Helper()
	err := w.d.QueryRowContext(w.t.Context(), `SELECT (SELECT COUNT(*) FROM events) || ' ' || (SELECT COUNT(*) FROM ledger) || ' ' || (SELECT COUNT(*) FROM operator_log) || ' ' || (SELECT COUNT(*) FROM verifications) || ' ' ||
		(SELECT COUNT(*) FROM golive_requests WHERE status = 'pending') || ' ' || (SELECT COUNT(*) FROM apps WHERE suspension_by IS NOT NULL) || ' ' || (SELECT COUNT(*) FROM connections WHERE status = 'frozen')`).Scan(&sum)
	if err != nil {
		w.t.Fatal(err)
	}
	return sum
}

func (w *world) browser() *apitest.Browser { return apitest.NewBrowser(w.t, w.URL) }

// signedIn is a browser in which somebody signed in.
func (w *world) signedIn(name string) *apitest.Browser {
	w.t.Helper()
	return w.browser().SignIn(name + "@example.com")
}

// act is a form with a decision and a reason.
func act(decision, reason string) url.Values {
	return url.Values{"decision": {decision}, "reason": {reason}}
}
