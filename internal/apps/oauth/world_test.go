package oauth

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
)

const (
	issuer = "https://auth.example.com"
)

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// A world is everything that the authorization surface needs, served: a developer
// with a test account and a sandbox app, a person with $20, and a live app.
type world struct {
	*httptest.Server
	t      *testing.T
	d      *db.DB
	clock  *clock
	store  *Store
	people *accounts.Store
	tester accounts.Account
	// sandbox, live and public are the developer's apps. public is live too, and a public client.
	sandbox, live, public client
}

type client struct {
	apps.App
	secret string // "" = it is a public client, which sends its client_id alone
}

func newWorld(t *testing.T, d *db.DB) *world {
	t.Helper()
	c := &clock{at: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	w := &world{t: t, d: d, clock: c, people: accounts.NewStore(d, c.now)}
	w.store = &Store{DB: d, Ledger: store.NewWriter(d, c.now), Now: c.now}
	clients := apps.NewStore(d, c.now, true)
	book, err := catalog.Open("", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	labels := features.NewStore(d, c.now, func(string) bool { return true })
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		developer, err := w.people.Create(ctx, tx, accounts.NewAccount{Email: "developer@example.com", Developer: true})
		if err != nil {
			return err
		}
		if w.tester, err = w.people.Create(ctx, tx, accounts.NewAccount{
			Email:   "tester@example.com",
			Sandbox: true,
			OwnerID: developer.ID,
		}); err != nil {
			return err
		}
		person, err := w.people.Create(ctx, tx, accounts.NewAccount{Email: "person@example.com"})
		if err != nil {
			return err
		}
		for _, topUp := range []rules.TopUp{
			{AccountID: w.tester.ID, Sandbox: true, AmountMC: 1000 * money.Dollar},
			{AccountID: person.ID, AmountMC: 20 * money.Dollar},
		} {
			if _, err := w.store.Ledger.DoTx(ctx, tx, topUp); err != nil {
				return err
			}
		}
		w.sandbox.App, w.sandbox.secret, err = clients.Create(ctx, tx, apps.New{
			OwnerID:      developer.ID,
			Name:         "Sandbox App",
			RedirectURIs: []string{callback, "http://127.0.0.1:9/cb"},
		})
		if err != nil {
			return err
		}
		w.live.App, w.live.secret, err = clients.Create(ctx, tx, apps.New{
			OwnerID:      developer.ID,
			Name:         `Live <b>App</b>`,
			RedirectURIs: []string{callback},
			Tier:         apps.LimitedLive,
			ProviderMode: apps.Live,
			DevMargin:    150_000,
		})
		if err != nil {
			return err
		}
		w.public.App, _, err = clients.Create(ctx, tx, apps.New{
			OwnerID:      developer.ID,
			Name:         "Terminal",
			ClientType:   apps.Public,
			RedirectURIs: []string{callback, "http://127.0.0.1/cb", "http://[::1]:1/cb"},
			Tier:         apps.LimitedLive,
			ProviderMode: apps.Live,
		})
		return err
	})
	w.exec(`UPDATE accounts SET password_hash = $1`, apitest.PasswordHash(w.t))
	for slug, name := range map[string]string{"chat": "Chat window", "summaries": "Summaries"} {
		set := func(v string) web.Field[string] { return web.Field[string]{Set: true, Value: v} }
		if _, err := labels.Create(t.Context(), w.live.ID, features.Change{
			Slug:        set(slug),
			DisplayName: set(name),
			Description: set("For testing."),
		}); err != nil {
			t.Fatal(err)
		}
	}
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{Dashboard: "https://dashboard.example.com"})
	rt.SetPageError(ui.RenderError)
	sessions := accounts.NewSessions(w.people, false)
	(&accounts.Handler{Store: w.people, Sessions: sessions}).Mount(rt)
	(&Handler{
		Store:        w.store,
		Accounts:     w.people,
		Sandbox:      sandbox.NewStore(d, w.people, w.store.Ledger, c.now),
		Sessions:     sessions,
		Apps:         clients,
		Features:     labels,
		Catalog:      book,
		FeeRate:      func() money.PPM { return 50_000 },
		AuthURL:      issuer,
		BaseURL:      "https://api.example.com",
		DashboardURL: "https://dashboard.example.com",
	}).Mount(rt)
	w.Server = httptest.NewServer(rt)
	t.Cleanup(w.Close)
	return w
}

func (w *world) tx(f func(context.Context, *db.Tx) error) {
	w.t.Helper()
	if err := w.d.InTx(w.t.Context(), f); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.d.ExecContext(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) count(sql string, args ...any) (n int) {
	w.t.Helper()
	if err := w.d.QueryRowContext(w.t.Context(), sql, args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) browser() *apitest.Browser { return apitest.NewBrowser(w.t, w.URL) }

// signedIn is a browser in which somebody signed in.
func (w *world) signedIn(email string) *apitest.Browser {
	w.t.Helper()
	return w.browser().SignIn(email)
}

// authorizePath is where app sends a browser, with changes as request has them.
func authorizePath(app client, changes ...string) string {
	return "/oauth/authorize?" + request(append([]string{"client_id=" + app.ClientID}, changes...)...).Encode()
}

func approval(amount string, more ...string) url.Values {
	v := url.Values{"decision": {"approve"}, "spend_cap": {amount}, "daily_limit": {""}}
	for i := 0; i+1 < len(more); i += 2 {
		v.Set(more[i], more[i+1])
	}
	return v
}

// approve consents in the browser and returns the code.
func (w *world) approve(b *apitest.Browser, app client, amount string, more ...string) string {
	w.t.Helper()
	p := b.Post(authorizePath(app), approval(amount, more...))
	to, err := url.Parse(p.To)
	if err != nil || p.Status != http.StatusFound || to.Query().Get("code") == "" {
		w.t.Fatalf("approve: %d to %v\n%s", p.Status, to, p.Body)
	}
	return to.Query().Get("code")
}

// An outcome is what the token endpoint answered.
type outcome struct {
	TokenResponse
	Error struct {
		Code    string         `json:"code"`
		Message string         `json:"message"`
		Details map[string]any `json:"details"`
	} `json:"error"`
	Status   int
	Body     string
	Replayed bool
}

// token posts to the token endpoint as app. A header of the name Authorization
// replaces the app's own.
func (w *world) token(app client, form url.Values, headers ...string) (o outcome) {
	w.t.Helper()
	return w.post("/oauth/token", app, form, headers...)
}

// post posts to an endpoint of OAuth as app.
func (w *world) post(path string, app client, form url.Values, headers ...string) (o outcome) {
	w.t.Helper()
	if app.secret == "" {
		form = maps.Clone(form)
		form.Set("client_id", app.ClientID)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), "POST", w.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if app.secret != "" {
		req.SetBasicAuth(app.ClientID, app.secret)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := apitest.Transport(w.t, nil).RoundTrip(req)
	if err != nil {
		w.t.Error(err)
		return o
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && !strings.HasPrefix(string(body), `{"error":"`) { // of a device, as refused reads it
		err = json.Unmarshal(body, &o)
	}
	if err != nil {
		w.t.Errorf("token: %v", err)
	}
	o.Body = string(body)
	if resp.Header.Get("Cache-Control") != "no-store" {
		w.t.Errorf("token: Cache-Control %q", resp.Header.Get("Cache-Control"))
	}
	o.Status, o.Replayed = resp.StatusCode, resp.Header.Get("Idempotent-Replayed") == "true"
	return o
}

func codeForm(code string) url.Values {
	return url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {code},
		"redirect_uri":  {callback},
		"code_verifier": {verifier},
	}
}

func refreshForm(token string) url.Values {
	return url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}}
}

// want checks status and code of an outcome and says what it was.
func (o outcome) want(t *testing.T, what string, status int, code string) outcome {
	t.Helper()
	if o.Status != status || o.Error.Code != code {
		t.Errorf("%s: %d %q, want %d %q", what, o.Status, o.Error.Code, status, code)
	}
	return o
}

// because checks the reason of an invalid_grant.
func (o outcome) because(t *testing.T, what string, reason verdict.Reason) outcome {
	t.Helper()
	if o.Status != 400 || o.Error.Code != "invalid_grant" || o.Error.Details["reason"] != string(reason) ||
		len(o.Error.Details) != 1 || o.Error.Message == "" {
		t.Errorf("%s: %d %s, want 400 invalid_grant because %s", what, o.Status, o.Body, reason)
	}
	return o
}

// alive reports whether an access token works.
func (w *world) alive(token string) bool {
	w.t.Helper()
	_, err := w.store.LookupAccessToken(w.t.Context(), token)
	if code := codeOf(err); err != nil && code != "unauthorized" {
		w.t.Fatal(err)
	}
	return err == nil
}
