package dashboard_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/pages/dashboard"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/topups"
	"github.com/purserhq/purser/internal/testkit/apitest"
)

// A world is the pages, served, with people: a person with $20 who lent $5 to a
// live app, a stranger, and a developer with a test account.
type world struct {
	*httptest.Server
	*apitest.Books
	t    *testing.T
	d    *db.DB
	app  apps.App
	conn rules.Connection
	test rules.Connection // of the test account, to the developer's sandbox app
}

func newWorld(t *testing.T, d *db.DB) *world {
	t.Helper()
	w := &world{Books: apitest.NewBooks(t, d), t: t, d: d}
	people, clients := accounts.NewStore(d, w.Now), apps.NewStore(d, w.Now, true)
	w.people(people, clients)
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.SetPageError(ui.RenderError)
	prices, err := catalog.Open("", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	sessions := accounts.NewSessions(people, false)
	(&accounts.Handler{Store: people, Sessions: sessions}).Mount(rt)
	(&dashboard.Handler{
		DB:       d,
		Ledger:   w.Ledger,
		Apps:     clients,
		Accounts: people,
		Sessions: sessions,
		Voice:    voice.NewSupervisor(voice.Options{DB: d, Now: d.Now}),
		Calls: inference.New(inference.Config{
			DB:   d,
			Apps: clients,
			Now:  d.Now,
			Log:  slog.New(slog.DiscardHandler),
		}),
		TopUps:   &topups.Store{DB: d},
		Policies: policies.Fixed(policy.Default),
		Catalog:  prices,
	}).Mount(rt)
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
		developer, err := people.Create(ctx, tx, accounts.NewAccount{Email: "developer@example.com", Developer: true})
		if err != nil {
			return err
		}
		if tester, err = people.Create(ctx, tx, accounts.NewAccount{
			Email:   "tester@example.com",
			Sandbox: true,
			OwnerID: developer.ID,
		}); err != nil {
			return err
		}
		if person, err = people.Create(ctx, tx, accounts.NewAccount{Email: "person@example.com"}); err != nil {
			return err
		}
		if _, err = people.Create(ctx, tx, accounts.NewAccount{Email: "stranger@example.com"}); err != nil {
			return err
		}
		if sandbox, _, err = clients.Create(ctx, tx, apps.New{
			OwnerID:      developer.ID,
			Name:         "Sandbox App",
			RedirectURIs: []string{"https://app.example.com/cb"},
		}); err != nil {
			return err
		}
		w.app, _, err = clients.Create(ctx, tx, apps.New{
			OwnerID:      developer.ID,
			Name:         "Live <b>App</b>",
			RedirectURIs: []string{"https://app.example.com/cb"},
			Tier:         apps.LimitedLive,
			ProviderMode: apps.Live,
		})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.d.ExecContext(w.t.Context(), `UPDATE accounts SET password_hash = $1`,
		apitest.PasswordHash(w.t)); err != nil {
		w.t.Fatal(err)
	}
	w.Do(rules.TopUp{AccountID: person.ID, AmountMC: 20 * money.Dollar})
	w.Do(rules.TopUp{AccountID: tester.ID, Sandbox: true, AmountMC: 1000 * money.Dollar})
	w.conn = w.connect(w.app, person.ID)
	w.test = w.connect(sandbox, tester.ID)
}

func (w *world) connect(app apps.App, accountID string) rules.Connection {
	w.t.Helper()
	return w.Do(rules.Connect{
		ConnectionID: id.New(id.Connection, w.Now()),
		AppID:        app.ID,
		AccountID:    accountID,
		Sandbox:      app.Tier == apps.Sandbox,
		RequestedMC:  5 * money.Dollar,
	}).Connection
}

// ask files a request on a connection and returns its page.
func (w *world) ask(c rules.Connection, target money.MC, reason string) (path string) {
	w.t.Helper()
	requestID := id.New(id.AllocationRequest, w.Now())
	w.Do(rules.RequestAllocation{
		RequestID:    requestID,
		ConnectionID: c.ID,
		AppID:        c.AppID,
		TargetMC:     target,
		Reason:       reason,
		MaxMC:        money.Max,
	})
	return "/allocation-requests/" + requestID
}

// everything is what a page view must leave as it was.
func (w *world) everything() (sum string) {
	w.t.Helper()
	err := w.d.QueryRowContext(w.t.Context(),
		`SELECT (SELECT COUNT(*) FROM events) || ' ' || (SELECT COUNT(*) FROM ledger) || ' ' || (SELECT SUM(allocation_mc + COALESCE(velocity_limit_mc, 0)) FROM connections) || ' ' ||
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
