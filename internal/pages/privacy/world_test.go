package privacy_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/alexedwards/argon2id"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/members"
	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/pages/privacy"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/topups"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

const password = "correct horse battery"

func init() { accounts.HashLightly() }

// passwordHash is of password, by a weak setting: these tests are not about how
// long a sign-in takes.
var passwordHash = sync.OnceValues(func() (string, error) {
	return argon2id.CreateHash(password, &argon2id.Params{
		Memory:      8,
		Iterations:  1,
		Parallelism: 1,
		SaltLength:  16,
		KeyLength:   32,
	})
})

// A world is the pages, served, with people: a person with $5 who allocated $3 to a
// live app, its developer, who has a test account, and a stranger.
type world struct {
	*httptest.Server
	*apitest.Books
	t        *testing.T
	d        *db.DB
	url      string
	accounts *accounts.Store
	apps     *apps.Store
	keys     *providerkeys.Store
	webhooks *webhooks.Store
	payouts  *payouts.Store
	box      *seal.Box
	ids      map[string]string // of accounts, by the name in their address
	app      apps.App
	conn     rules.Connection
	changes  int
}

// each runs f in a world on each database.
func each(t *testing.T, f func(t *testing.T, w *world)) {
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			f(t, newWorld(t, dbtest.URL(t, e)))
		})
	}
}

func newWorld(t *testing.T, target string) *world {
	t.Helper()
	d, err := db.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	t.Cleanup(func() { _ = d.Close() })
	w := &world{Books: apitest.NewBooks(t, d), t: t, d: d, url: target, ids: map[string]string{}}
	if w.box, err = seal.New(make([]byte, seal.KeySize)); err != nil {
		t.Fatal(err)
	}
	w.accounts, w.apps = accounts.NewStore(d, w.Now), apps.NewStore(d, w.Now, true)
	w.keys = providerkeys.NewStore(d, w.box, w.Now, nil)
	w.webhooks = webhooks.NewStore(d, w.box, w.Now, webhooks.Addresses{}, web.Links{})
	w.people()
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.SetPageError(ui.RenderError)
	sessions := accounts.NewSessions(w.accounts, false)
	persons := identity.NewStore(d, w.accounts, &mail.Store{DB: d, Now: w.Now}, w.box, w.Now, "http://purser.example",
		&identity.PasskeyParty{})
	(&accounts.Handler{Store: w.accounts, Sessions: sessions}).Mount(rt)
	(&identity.Handler{Store: persons, Accounts: w.accounts, Sessions: sessions}).Mount(rt)
	w.apps.OnChange = func(string) { w.changes++ }
	w.payouts = &payouts.Store{
		DB:     d,
		Ledger: w.Ledger,
		Apps:   w.apps,
		Config: payouts.Config{Window: payouts.DefaultWindow, MinimumMC: payouts.DefaultMinimum},
		Now:    w.Now,
	}
	(&privacy.Handler{Store: &privacy.Store{
		DB:       d,
		Accounts: w.accounts,
		Sessions: sessions,
		Identity: persons,
		Apps:     w.apps,
		Sandbox:  sandbox.NewStore(d, w.accounts, w.Ledger, w.Now),
		Keys:     w.keys,
		Topups:   &topups.Store{DB: d, Ledger: w.Ledger, Now: w.Now},
		Webhooks: w.webhooks,
		Members:  members.NewStore(d, w.accounts, &mail.Store{DB: d, Now: w.Now}, w.Now, "https://example.com"),
		Payouts:  w.payouts,
		Ledger:   w.Ledger,
		Now:      w.Now,
	}}).Mount(rt)
	w.Server = httptest.NewServer(rt)
	t.Cleanup(w.Close)
	return w
}

// people fills the world.
func (w *world) people() {
	w.t.Helper()
	err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		for _, n := range []accounts.NewAccount{
			{Email: "person@example.com"},
			{Email: "developer@example.com", Developer: true},
			{Email: "stranger@example.com"},
			{Email: "tester@example.com", Sandbox: true},
		} {
			if n.Sandbox {
				n.OwnerID = w.ids["developer"]
			}
			a, err := w.accounts.Create(ctx, tx, n)
			if err != nil {
				return err
			}
			w.ids[strings.TrimSuffix(n.Email, "@example.com")] = a.ID
		}
		w.app, _, err = w.apps.Create(ctx, tx, apps.New{
			OwnerID:      w.ids["developer"],
			Name:         "Reader",
			RedirectURIs: []string{"https://app.example.com/cb"},
			Tier:         apps.LimitedLive,
			ProviderMode: apps.Live,
		})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	hash, err := passwordHash()
	if err != nil {
		w.t.Fatal(err)
	}
	w.exec(`UPDATE accounts SET password_hash = $1`, hash)
	w.Do(rules.TopUp{AccountID: w.ids["person"], AmountMC: 5 * money.Dollar})
	w.Do(rules.TopUp{AccountID: w.ids["tester"], Sandbox: true, AmountMC: 1000 * money.Dollar})
	w.conn = w.connect(w.ids["person"], 3*money.Dollar)
}

func (w *world) exec(text string, args ...any) {
	w.t.Helper()
	if _, err := w.d.ExecContext(w.t.Context(), text, args...); err != nil {
		w.t.Fatal(text, err)
	}
}

func (w *world) count(text string, args ...any) (n int) {
	w.t.Helper()
	if err := w.d.QueryRowContext(w.t.Context(), text, args...).Scan(&n); err != nil {
		w.t.Fatal(text, err)
	}
	return n
}

// newApp makes another app, of whoever this is.
func (w *world) newApp(owner string) (app apps.App) {
	w.t.Helper()
	err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		app, _, err = w.apps.Create(ctx, tx, apps.New{
			OwnerID:      w.ids[owner],
			Name:         "Another",
			RedirectURIs: []string{"https://another.example.com/cb"},
			Tier:         apps.Sandbox,
			ProviderMode: apps.Mock,
		})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return app
}

// hook registers an endpoint of an app, with an event that waits to be sent to it.
func (w *world) hook(appID string) webhooks.Endpoint {
	w.t.Helper()
	e, _, err := w.webhooks.Create(w.t.Context(), appID,
		webhooks.Change{URL: web.Field[string]{Set: true, Value: "https://hooks.example.com/purser"}})
	if err == nil {
		_, err = w.webhooks.SendTest(w.t.Context(), e, webhooks.Types[0])
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

func (w *world) connect(accountID string, amount money.MC) rules.Connection {
	w.t.Helper()
	return w.Do(rules.Connect{
		ConnectionID: id.New(id.Connection, w.Now()),
		AppID:        w.app.ID,
		AccountID:    accountID,
		RequestedMC:  amount,
	}).Connection
}

// bill ends a call without fee and margin.
func (w *world) bill(call rules.Call) {
	w.t.Helper()
	charge := rules.Amounts{ProviderCostMC: call.HoldMC, UserChargeMC: call.HoldMC}
	w.Do(rules.Settle{
		Call:       call,
		Attempt:    1,
		Settlement: rules.Settled,
		Usage:      rules.Usage{JSON: "{}"},
		Charge:     charge,
	})
}

// found are the findings of an audit: there are some, since these calls have no
// prices, but closing an account adds none.
func (w *world) found() (list string) {
	w.t.Helper()
	var out strings.Builder
	if _, err := audit.VerifyAndPrint(w.t.Context(), w.url, &out, w.Now()); err != nil {
		w.t.Error(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "      ") {
			list += line
		}
	}
	return list
}

// A browser keeps cookies and stops at redirects.
type browser struct {
	w *world
	c *http.Client
}

func (w *world) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return &browser{w, &http.Client{
		Jar: jar, Transport: apitest.Transport(w.t, nil),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// signedIn is a browser in which somebody signed in.
func (w *world) signedIn(name string) *browser {
	w.t.Helper()
	b := w.browser()
	b.post("/sign-in", url.Values{"email": {name + "@example.com"}, "password": {password}}).want(w.t,
		http.StatusSeeOther)
	return b
}

// An answer is a page, or where it leads.
type answer struct {
	status   int
	page, to string
	header   http.Header
}

func (b *browser) get(path string) answer {
	b.w.t.Helper()
	return b.do("GET", path, nil)
}

func (b *browser) post(path string, form url.Values, headers ...string) answer {
	b.w.t.Helper()
	return b.do("POST", path, form, headers...)
}

func (b *browser) do(method, path string, form url.Values, headers ...string) answer {
	b.w.t.Helper()
	req, err := http.NewRequestWithContext(b.w.t.Context(), method, b.w.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.w.t.Fatal(err)
	}
	if method == "POST" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := b.c.Do(req)
	if err != nil {
		b.w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	return answer{resp.StatusCode, string(body), resp.Header.Get("Location"), resp.Header}
}

// want checks the status, and that the page says all of these.
func (a answer) want(t *testing.T, status int, says ...string) answer {
	t.Helper()
	if a.status != status {
		t.Errorf("got %d to %q, want %d\n%s", a.status, a.to, status, a.page)
	}
	for _, s := range says {
		if !strings.Contains(a.page, s) {
			t.Errorf("the page lacks %q:\n%s", s, a.page)
		}
	}
	return a
}

// lacks checks that the page says none of these.
func (a answer) lacks(t *testing.T, says ...string) answer {
	t.Helper()
	for _, s := range says {
		if strings.Contains(a.page, s) {
			t.Errorf("the page says %q:\n%s", s, a.page)
		}
	}
	return a
}
