package operatorpages_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/members"
	"github.com/purserhq/purser/internal/apps/notices"
	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/pages/operatorpages"
	"github.com/purserhq/purser/internal/pages/privacy"
	"github.com/purserhq/purser/internal/pages/status"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/topups"
	"github.com/purserhq/purser/internal/testkit/apitest"
)

const token = "0123456789abcdefghijklmnopqrstuvwxyz" // of the operator's API

// A world is the pages, served, with people: a person with $20 who allocated $5 to a
// live app, its developer, who asks to go live with another, an operator and a viewer.
type world struct {
	*httptest.Server
	*apitest.Books
	t        *testing.T
	d        *db.DB
	admin    *operatorpages.Handler
	accounts *accounts.Store
	changes  atomic.Int64
	ids      map[string]string // of accounts, by the name in their address
	app      apps.App
	sandbox  apps.App
	request  golive.Request
	conn     rules.Connection
	routes   []string // of the pages
}

func newWorld(t *testing.T, d *db.DB) *world {
	t.Helper()
	w := &world{Books: apitest.NewBooks(t, d), t: t, d: d, ids: map[string]string{}}
	// The event of a refund has a receipt, which names the rates.
	w.Terms = `{"rates":{"book":"2026-11-01","mc_per_million":[[0,100000,10000,100000,200000]]},` +
		`"margin_ppm":0,"fee_ppm":0,"input_tokens":1,"max_tokens":1}`
	w.accounts = accounts.NewStore(d, w.Now)
	w.accounts.RolesWithoutSecondStep = true // package operator tests the rule
	clients := apps.NewStore(d, w.Now, true)
	reviews := &golive.Store{DB: d, Apps: clients, Ledger: w.Ledger, Now: w.Now}
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
	drift, err := estimates.Load(w.t.Context(), w.d, w.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	settings, err := policies.Open(w.t.Context(), w.d, policy.Default, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.SetPageError(ui.RenderError)
	sessions := accounts.NewSessions(w.accounts, false)
	(&accounts.Handler{Store: w.accounts, Sessions: sessions}).Mount(rt)
	clients.OnChange = func(string) { w.changes.Add(1) }
	mails := &mail.Store{DB: w.d, Now: w.Now}
	persons := w.identity(mails)
	payments := &topups.Store{DB: w.d, Ledger: w.Ledger, Mails: mails, Now: w.Now}
	w.admin = &operatorpages.Handler{
		DB:        w.d,
		Accounts:  w.accounts,
		Sessions:  sessions,
		Catalog:   prices,
		Estimates: drift,
		Metrics:   metrics.New(prices, drift),
		Status: &status.Handler{
			DB:        w.d,
			Recorder:  &status.Recorder{},
			Providers: []string{"openai"},
			Now:       w.Now,
			Log:       slog.New(slog.DiscardHandler),
		},
		Service: &operator.Service{
			DB:       w.d,
			Accounts: w.accounts,
			Identity: persons,
			Apps:     clients,
			GoLive:   reviews,
			Ledger:   w.Ledger,
			Topups:   payments,
			Privacy: &privacy.Store{
				DB:       w.d,
				Accounts: w.accounts,
				Identity: persons,
				Apps:     clients,
				Keys:     providerkeys.NewStore(w.d, nil, w.Now, nil),
				Members:  members.NewStore(w.d, w.accounts, mails, w.Now, "http://purser.example"),
				Topups:   payments,
				Payouts:  &payouts.Store{DB: w.d, Now: w.Now},
				Ledger:   w.Ledger,
				Now:      w.Now,
			},
			Mails:    mails,
			Notices:  &notices.Store{DB: w.d, Apps: clients, Mails: mails, Ledger: w.Ledger},
			Policies: settings,
			Now:      w.Now,
		},
	}
	before := len(rt.Routes())
	w.admin.Mount(rt)
	w.routes = rt.Routes()[before:]
	(&operator.Handler{Service: w.admin.Service, Tokens: []string{token}}).Mount(rt)
	// What the pages of two-step sign-in do in the end.
	rt.HandlePage("POST /second-step", sessions.With(func(rw http.ResponseWriter, r *http.Request) error {
		a, _ := accounts.CurrentAccount(r.Context())
		return sessions.Start(rw, r, a, accounts.ProofMFA)
	}))
	w.Server = httptest.NewServer(rt)
	w.t.Cleanup(w.Close)
}

// identity returns the store of how the people sign in.
func (w *world) identity(mails *mail.Store) *identity.Store {
	w.t.Helper()
	box, err := seal.New(make([]byte, 32))
	if err != nil {
		w.t.Fatal(err)
	}
	party, err := identity.NewPasskeyParty("http://purser.example", "http://purser.example")
	if err != nil {
		w.t.Fatal(err)
	}
	return identity.NewStore(w.d, w.accounts, mails, box, w.Now, "http://purser.example", party)
}

// people fills the world.
func (w *world) people(clients *apps.Store, reviews *golive.Store) {
	w.t.Helper()
	err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		for _, n := range []accounts.NewAccount{
			{Email: "person@example.com"},
			{Email: "developer@example.com", Developer: true},
			{Email: "operator@example.com", Operator: true},
			{Email: "viewer@example.com"},
		} {
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
		if w.sandbox, _, err = clients.Create(ctx, tx, apps.New{
			OwnerID:       w.ids["developer"],
			Name:          "New <i>App</i>",
			RedirectURIs:  uris,
			AllowedModels: []string{"gpt-6-luna"},
		}); err != nil {
			return err
		}
		w.app, _, err = clients.Create(ctx, tx, apps.New{
			OwnerID:      w.ids["developer"],
			Name:         "Live <b>App</b>",
			RedirectURIs: uris,
			Tier:         apps.LimitedLive,
			ProviderMode: apps.Live,
		})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.exec(`UPDATE accounts SET password_hash = $1`, apitest.PasswordHash(w.t))
	w.exec(`INSERT INTO features (app_id, slug, display_name, description, created_us) VALUES ($1, 'chat', 'Chat', 'Talks.', 1)`, w.sandbox.ID)
	if w.request, err = reviews.CreateRequest(w.t.Context(), w.sandbox.ID); err != nil {
		w.t.Fatal(err)
	}
	w.Do(rules.TopUp{AccountID: w.ids["person"], AmountMC: 20 * money.Dollar})
	w.conn = w.connect(w.app, w.ids["person"])
}

func (w *world) exec(text string, args ...any) {
	w.t.Helper()
	if _, err := w.d.ExecContext(w.t.Context(), text, args...); err != nil {
		w.t.Fatal(err)
	}
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

// everything is what a page view must leave as it was.
func (w *world) everything() (sum string) {
	w.t.Helper()
	err := w.d.QueryRowContext(w.t.Context(),
		`SELECT (SELECT COUNT(*) FROM events) || ' ' || (SELECT COUNT(*) FROM ledger) || ' ' || (SELECT COUNT(*) FROM operator_log) || ' ' || (SELECT COUNT(*) FROM verifications) || ' ' ||
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
