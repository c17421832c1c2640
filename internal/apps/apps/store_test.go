package apps_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)} }

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

func create(t *testing.T, d *db.DB, s *apps.Store, n apps.New) (apps.App, string) {
	t.Helper()
	if _, err := d.ExecContext(t.Context(), `INSERT INTO accounts (id, email, password_hash, developer, created_us)
		VALUES ('wac_dev', 'developer@example.com', 'x', 1, 1) ON CONFLICT (id) DO NOTHING`); err != nil {
		t.Fatal(err)
	}
	var app apps.App
	var secret string
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		n.OwnerID = "wac_dev"
		app, secret, err = s.Create(ctx, tx, n)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return app, secret
}

func TestAppsAreKept(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := apps.NewStore(d, newClock().now, false)
		tokens := int64(2048)
		app, secret := create(t, d, s, apps.New{
			Name:             "Reader",
			RedirectURIs:     []string{"https://app.example.com/cb"},
			AllowedModels:    []string{"gpt-5.6-terra"},
			DefaultMaxTokens: &tokens,
			DevMargin:        150_000,
		})
		if app.Tier != apps.Sandbox || app.ProviderMode != apps.Mock || app.Suspended || len(secret) < 43 {
			t.Errorf("a new app is %+v with a secret of %d characters", app, len(secret))
		}
		if err := s.SetRedirectURIs(t.Context(), app.ID, []string{"https://app.example.com/new"}); err != nil {
			t.Fatal(err)
		}
		app.RedirectURIs = []string{"https://app.example.com/new"}
		for name, find := range map[string]func() (apps.App, error){
			"by id":        func() (apps.App, error) { return s.Get(t.Context(), app.ID) },
			"by client id": func() (apps.App, error) { return s.GetByClientID(t.Context(), app.ClientID) },
		} {
			got, err := find()
			if diff := cmp.Diff(app, got); err != nil || diff != "" {
				t.Errorf("%s: %v %s", name, err, diff)
			}
		}
		var dump string
		if err := d.QueryRowContext(t.Context(), `SELECT secret_hash FROM apps
			WHERE id = $1`, app.ID).Scan(&dump); err != nil || strings.Contains(dump, secret) {
			t.Errorf("the secret is stored as %q (%v)", dump, err)
		}
		if _, err := s.Get(t.Context(), "app_none"); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("an app that does not exist: %v", err)
		}
		if err := s.SetRedirectURIs(t.Context(), "app_none", nil); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("redirect URIs of an app that does not exist: %v", err)
		}
		if err := s.SetRedirectURIs(t.Context(), app.ID, []string{"http://localhost/"}); !isRefused(err) {
			t.Errorf("loopback http outside of dev: %v", err)
		}
		if err := apps.NewStore(d, newClock().now, true).SetRedirectURIs(t.Context(), app.ID,
			[]string{"http://localhost/"}); err != nil {
			t.Errorf("loopback http in dev: %v", err)
		}
	})
}

func TestWrongAppsAreRefused(t *testing.T) {
	t.Parallel()
	s := apps.NewStore(nil, newClock().now, false)
	zero := int64(0)
	for _, n := range []apps.New{
		{Name: ""}, {Name: strings.Repeat("x", 81)}, {Name: "a\u202eb"}, {Name: "a", Tier: "gold"},
		{Name: "a", ProviderMode: "dry"}, {Name: "a", ClientType: "native"},
		{Name: "a", DefaultMaxTokens: &zero}, {Name: "a", DevMargin: -1}, {Name: "a", DevMargin: apps.MaxDevMargin + 1},
		{Name: "a", RedirectURIs: []string{"http://a.example/"}},
		{Name: "a", ClientType: apps.Public, RedirectURIs: []string{"http://localhost/"}},
	} {
		if _, _, err := s.Create(t.Context(), nil, n); !isRefused(err) {
			t.Errorf("%+v: %v", n, err)
		}
	}
}

func isRefused(err error) bool {
	e, ok := errors.AsType[*apierr.Error](err)
	return ok && e.Code == apierr.InvalidRequest
}

// serve answers GET /v1/account and POST /oauth/token with the errors of
// Authenticate, over real HTTP.
func serve(t *testing.T, s *apps.Store) string {
	t.Helper()
	rt := web.NewRouter(slog.New(slog.NewTextHandler(io.Discard, nil)), web.Links{})
	for pattern, authenticate := range map[string]func(context.Context, *http.Request) (apps.App, error){
		"GET /v1/account": s.Authenticate, "POST /oauth/token": s.AuthenticateToken,
	} {
		rt.Handle(pattern, func(w http.ResponseWriter, r *http.Request) error {
			app, err := authenticate(r.Context(), r)
			if err != nil {
				return err
			}
			return web.WriteJSON(w, http.StatusOK, app.ID)
		})
	}
	server := httptest.NewServer(rt)
	t.Cleanup(server.Close)
	return server.URL
}

type reply struct {
	status     int
	code, body string
	header     http.Header
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, r.code) }

// ask sends credentials; errors are held to the contract.
func ask(t *testing.T, method, url, clientID, secret string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if clientID != "" {
		req.SetBasicAuth(clientID, secret)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		apitest.Check(t, req, resp, body)
	}
	var e struct{ Error struct{ Code string } }
	_ = json.Unmarshal(body, &e) // a success is a bare string
	return reply{resp.StatusCode, e.Error.Code, string(body), resp.Header}
}

func TestAuthenticateTellsNothing(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := apps.NewStore(d, newClock().now, false)
		app, secret := create(t, d, s, apps.New{Name: "Reader"})
		other, otherSecret := create(t, d, s, apps.New{Name: "Writer"})
		url := serve(t, s) + "/v1/account"
		if got := ask(t, "GET", url, app.ClientID, secret); got.status != 200 || !strings.Contains(got.body, app.ID) {
			t.Errorf("right credentials: %v %s", got, got.body)
		}
		want := ask(t, "GET", url, "", "")
		if want.status != 401 || want.code != "unauthorized" ||
			!strings.HasPrefix(want.header.Get("WWW-Authenticate"), "Basic ") {
			t.Errorf("no credentials: %v %v", want, want.header)
		}
		for name, c := range map[string][2]string{
			"wrong secret":              {app.ClientID, "wrong"},
			"unknown id":                {"cid_unknown", secret},
			"the secret of another app": {app.ClientID, otherSecret},
			"the app's id":              {app.ID, secret},
			"no secret":                 {other.ClientID, ""},
			"another case":              {strings.ToUpper(app.ClientID), secret},
		} {
			got := ask(t, "GET", url, c[0], c[1])
			if got.status != 401 || got.body != want.body ||
				got.header.Get("WWW-Authenticate") != want.header.Get("WWW-Authenticate") {
				t.Errorf("%s: %v %s; want the answer to no credentials", name, got, got.body)
			}
		}
	})
}

// F1: clients may form-encode their credentials, as RFC 6749 §2.3.1 asks them to, at every endpoint with Basic. For the
// limit of failures, all spellings of a client id are one.
func TestFormEncodedCredentials(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	s := apps.NewStore(d, newClock().now, false)
	app, secret := create(t, d, s, apps.New{Name: "Reader"})
	url := serve(t, s)
	encode := strings.NewReplacer("_", "%5F", "-", "%2D").Replace
	for _, at := range []struct{ method, path string }{{"GET", "/v1/account"}, {"POST", "/oauth/token"}} {
		for _, c := range [][2]string{
			{app.ClientID, secret}, {encode(app.ClientID), encode(secret)}, {app.ClientID, encode(secret)},
			{encode(app.ClientID), secret}, {strings.ToLower(encode(app.ClientID)), secret},
		} {
			if got := ask(t, at.method, url+at.path, c[0], c[1]); got.status != 200 {
				t.Errorf("%s as %s: %v", at.path, c[0], got)
			}
		}
	}
	spellings := []string{app.ClientID, encode(app.ClientID), "%63" + app.ClientID[1:]}
	for i := range 10 {
		if got := ask(t, "GET", url+"/v1/account", spellings[i%3], "wrong%2D"); got.status != 401 {
			t.Errorf("failure %d: %v", i+1, got)
		}
	}
	for _, id := range spellings {
		if got := ask(t, "GET", url+"/v1/account", id, secret); got.status != 429 {
			t.Errorf("%s after ten failures: %v", id, got)
		}
	}
}

// Decision 038: a replaced client secret still works for 24 hours, or ends immediately on request.
func TestReplacedSecretsOverlap(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		c := newClock()
		s := apps.NewStore(d, c.now, false)
		app, first := create(t, d, s, apps.New{Name: "Reader"})
		url := serve(t, s) + "/v1/account"
		replace := func(overlap bool) string {
			t.Helper()
			secret, err := s.ReplaceSecret(t.Context(), app.ID, overlap)
			if err != nil {
				t.Fatal(err)
			}
			return secret
		}
		works := func(what string, want bool, secrets ...string) {
			t.Helper()
			for i, secret := range secrets {
				if got := ask(t, "GET", url, app.ClientID, secret); (got.status == 200) != want {
					t.Errorf("%s, secret %d: %v, want success %t", what, i, got, want)
				}
			}
		}
		second := replace(true)
		works("at once", true, first, second)
		if got, err := s.Get(t.Context(), app.ID); err != nil ||
			got.OldSecretUntilUS != c.now().Add(24*time.Hour).UnixMicro() {
			t.Errorf("the old secret works until %d (%v)", got.OldSecretUntilUS, err)
		}
		c.pass(24*time.Hour - time.Microsecond)
		works("for almost 24 hours", true, first, second)
		c.pass(time.Microsecond)
		works("after 24 hours", false, first)
		works("after 24 hours", true, second)
		third := replace(true)
		fourth := replace(true)
		works("only the last one overlaps", false, first, second)
		works("the last two", true, third, fourth)
		fifth := replace(false)
		works("ended immediately", false, first, second, third, fourth)
		works("the newest", true, fifth)
		if _, err := s.ReplaceSecret(t.Context(), "app_none", true); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("an app that does not exist: %v", err)
		}
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return s.DeleteSecret(ctx, tx, app.ID)
		})
		if err != nil {
			t.Fatal(err)
		}
		works("deleted", false, fifth)
	})
}

func TestFailuresAreThrottled(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		c := newClock()
		s := apps.NewStore(d, c.now, false)
		app, secret := create(t, d, s, apps.New{Name: "Reader"})
		url := serve(t, s) + "/v1/account"
		for _, clientID := range []string{app.ClientID, "cid_unknown"} {
			for i := range 10 {
				if got := ask(t, "GET", url, clientID, "wrong"); got.status != 401 {
					t.Errorf("%s, failure %d: %v", clientID, i+1, got)
				}
			}
			if got := ask(t, "GET", url, clientID, "wrong"); got.status != 429 || got.code != "rate_limited" ||
				got.header.Get("Retry-After") != "6" {
				t.Errorf("%s, failure 11: %v, Retry-After %q", clientID, got, got.header.Get("Retry-After"))
			}
		}
		if got := ask(t, "GET", url, app.ClientID, secret); got.status != 429 {
			t.Errorf("the right secret while throttled: %v", got)
		}
		c.pass(6 * time.Second)
		if got := ask(t, "GET", url, app.ClientID, secret); got.status != 200 {
			t.Errorf("the right secret after Retry-After: %v", got)
		}
	})
}

func TestRequestsAreRateLimited(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		c := newClock()
		s := apps.NewStore(d, c.now, false)
		app, secret := create(t, d, s, apps.New{Name: "Reader"})
		other, otherSecret := create(t, d, s, apps.New{Name: "Writer"})
		url := serve(t, s)
		burst := func(method, path string) (n int) {
			t.Helper()
			for ask(t, method, url+path, app.ClientID, secret).status == 200 {
				n++
			}
			return n
		}
		if n := burst("POST", "/oauth/token"); n != 100 {
			t.Errorf("the token endpoint took %d at once", n)
		}
		if n := burst("GET", "/v1/account"); n != 500 {
			t.Errorf("management took %d at once", n)
		}
		if got := ask(t, "GET", url+"/v1/account", other.ClientID, otherSecret); got.status != 200 {
			t.Errorf("another app meanwhile: %v", got)
		}
		c.pass(time.Second)
		if n := burst("POST", "/oauth/token"); n != 20 {
			t.Errorf("the token endpoint took %d a second later", n)
		}
		if n := burst("GET", "/v1/account"); n != 100 {
			t.Errorf("management took %d a second later", n)
		}
	})
}

// Who has waited for the lock of an app sees it as the transaction before left it, its logo too.
func TestLockedAppIsOfNow(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := apps.NewStore(d, newClock().now, false)
		for logo, lock := range map[string]func(context.Context, *db.Tx, string) (apps.App, error){
			"logo_1": apps.LockApp,
			"logo_2": apps.LockShared,
		} {
			app, _ := create(t, d, s, apps.New{Name: "Reader", RedirectURIs: []string{"https://reader.example/cb"}})
			ctx, read := t.Context(), make(chan error, 1)
			var seen apps.App
			if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				if _, err := apps.LockApp(ctx, tx, app.ID); err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, `INSERT INTO app_logos (app_id, hash, png, created_us)
					VALUES ($1, $2, $3, 1)`, app.ID, logo, []byte{1}); err != nil {
					return err
				}
				go func() {
					read <- d.InTx(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) (err error) {
						seen, err = lock(ctx, tx, app.ID)
						return err
					})
				}()
				dbtest.AwaitLock(t, d)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := <-read; err != nil || seen.LogoHash != logo {
				t.Errorf("logo %q, want %q, %v", seen.LogoHash, logo, err)
			}
		}
	})
}
