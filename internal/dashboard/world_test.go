package dashboard_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"purser/internal/accounts"
	"purser/internal/apitest"
	"purser/internal/apps"
	"purser/internal/dashboard"
	"purser/internal/db"
	"purser/internal/id"
	"purser/internal/ledger"
	"purser/internal/money"
	"purser/internal/ui"
	"purser/internal/voice"
	"purser/internal/web"
)

// A world is the pages, served, with people: a person with $20 who lent $5 to a
// live app, a stranger, and a developer with a test account.
type world struct {
	*httptest.Server
	t      *testing.T
	d      *db.DB
	ledger *ledger.Writer
	now    func() time.Time
	app    apps.App
	conn   ledger.Connection
	test   ledger.Connection // of the test account, to the developer's sandbox app
}

func newWorld(t *testing.T, d *db.DB) *world {
	t.Helper()
	var mu sync.Mutex
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	w := &world{t: t, d: d, now: func() time.Time { // every look at the clock is a moment later
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
	people, clients := accounts.NewStore(d, w.now), apps.NewStore(d, w.now, true)
	w.people(people, clients)
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.SetPageError(ui.RenderError)
	sessions := accounts.NewSessions(people, false)
	(&accounts.Handler{Store: people, Sessions: sessions}).Mount(rt)
	(&dashboard.Handler{DB: d, Ledger: w.ledger, Apps: clients, Accounts: people, Sessions: sessions, Voice: &voice.Handler{DB: d, Now: d.Now}}).Mount(rt)
	w.Server = httptest.NewServer(rt)
	t.Cleanup(w.Close)
	return w
}

// people fills the world.
func (w *world) people(people *accounts.Store, clients *apps.Store) {
	w.t.Helper()
	var sandbox apps.App
	var person, tester accounts.Account
	err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		developer, err := people.Create(ctx, tx, accounts.New{Email: "developer@example.com", Developer: true})
		if err != nil {
			return err
		}
		if tester, err = people.Create(ctx, tx, accounts.New{Email: "tester@example.com", Sandbox: true, OwnerID: developer.ID}); err != nil {
			return err
		}
		if person, err = people.Create(ctx, tx, accounts.New{Email: "person@example.com"}); err != nil {
			return err
		}
		if _, err = people.Create(ctx, tx, accounts.New{Email: "stranger@example.com"}); err != nil {
			return err
		}
		if sandbox, _, err = clients.Create(ctx, tx, apps.New{OwnerID: developer.ID, Name: "Sandbox App", RedirectURIs: []string{"https://app.example.com/cb"}}); err != nil {
			return err
		}
		w.app, _, err = clients.Create(ctx, tx, apps.New{OwnerID: developer.ID, Name: "Live <b>App</b>", RedirectURIs: []string{"https://app.example.com/cb"}, Tier: apps.LimitedLive, ProviderMode: apps.Live})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.d.ExecContext(w.t.Context(), `UPDATE accounts SET password_hash = $1`, apitest.PasswordHash(w.t)); err != nil {
		w.t.Fatal(err)
	}
	w.do(ledger.TopUp{AccountID: person.ID, AmountMC: 20 * money.Dollar})
	w.do(ledger.TopUp{AccountID: tester.ID, Sandbox: true, AmountMC: 1000 * money.Dollar})
	w.conn = w.connect(w.app, person.ID)
	w.test = w.connect(sandbox, tester.ID)
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

// ask files a request on a connection and returns its page.
func (w *world) ask(c ledger.Connection, target money.MC, reason string) (path string) {
	w.t.Helper()
	requestID := id.New(id.AllocRequest, w.now())
	w.do(ledger.AskRaise{RequestID: requestID, ConnectionID: c.ID, AppID: c.AppID, TargetMC: target, Reason: reason, MaxMC: money.Max})
	return "/allocation-requests/" + requestID
}

// spend bills a call.
func (w *world) spend(c ledger.Connection, amount money.MC) ledger.Entry {
	w.t.Helper()
	call := w.hold(c, amount)
	return w.do(ledger.Settle{Call: call, Attempt: 1, Settlement: ledger.Settled, Usage: ledger.Usage{JSON: "{}"}, Charge: ledger.Amounts{ProviderCostMC: amount, UserChargeMC: amount}}).Entry
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
	err := w.d.QueryRowContext(w.t.Context(), `SELECT (SELECT COUNT(*) FROM events) || ' ' || (SELECT COUNT(*) FROM ledger) || ' ' || (SELECT SUM(allocation_mc + COALESCE(velocity_limit_mc, 0)) FROM connections) || ' ' ||
		(SELECT COUNT(*) FROM allocation_requests WHERE status = 'pending') || ' ' || (SELECT COUNT(*) FROM connections WHERE status = 'frozen')`).Scan(&sum)
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

func decision(what string) url.Values { return url.Values{"decision": {what}} }
