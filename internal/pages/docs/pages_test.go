package docs_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/pages/docs"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A world is the pages, served, with a developer who has two apps and a test account, one who has none, and a user.
type world struct {
	*httptest.Server
	d      *db.DB
	tokens *oauth.Store
	apps   [2]apps.App
	log    *bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	d := dbtest.Open(t, db.SQLite)
	ledger := apitest.StartLedger(t, d, d.Now)
	people, appStore := accounts.NewStore(d, d.Now), apps.NewStore(d, d.Now, true)
	w := &world{d: d, tokens: &oauth.Store{DB: d, Ledger: ledger, Now: d.Now}, log: &bytes.Buffer{}}
	rt := web.NewRouter(slog.New(slog.NewTextHandler(w.log, nil)), web.Links{})
	rt.SetPageError(ui.RenderError)
	sessions := accounts.NewSessions(people, false)
	(&accounts.Handler{Store: people, Sessions: sessions}).Mount(rt)
	(&docs.Handler{
		DB:       d,
		Sessions: sessions,
		Sandbox:  sandbox.NewStore(d, people, ledger, d.Now),
		Tokens:   w.tokens,
		BaseURL:  "https://api.example.com",
	}).Mount(rt)
	w.fill(t, people, appStore, ledger)
	w.Server = httptest.NewServer(rt)
	t.Cleanup(w.Close)
	return w
}

// fill makes the people and their apps.
func (w *world) fill(t *testing.T, people *accounts.Store, appStore *apps.Store, ledger *store.Writer) {
	t.Helper()
	var tester accounts.Account
	err := w.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		developer, err := people.Create(ctx, tx, accounts.NewAccount{Email: "developer@example.com", Developer: true})
		if err != nil {
			return err
		}
		tester, err = people.Create(ctx, tx,
			accounts.NewAccount{Email: "tester@example.com", Sandbox: true, OwnerID: developer.ID})
		if err != nil {
			return err
		}
		for i, name := range []string{"First <app>", "Second"} {
			app := apps.New{OwnerID: developer.ID, Name: name, RedirectURIs: []string{"https://app.example.com/cb"}}
			if w.apps[i], _, err = appStore.Create(ctx, tx, app); err != nil {
				return err
			}
		}
		if _, err = people.Create(ctx, tx, accounts.NewAccount{Email: "new@example.com", Developer: true}); err != nil {
			return err
		}
		_, err = people.Create(ctx, tx, accounts.NewAccount{Email: "user@example.com"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.d.ExecContext(t.Context(), `UPDATE accounts SET password_hash = $1`,
		apitest.PasswordHash(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Do(t.Context(),
		rules.TopUp{AccountID: tester.ID, Sandbox: true, AmountMC: 100 * money.Dollar}); err != nil {
		t.Fatal(err)
	}
}

// count returns how many rows a table has.
func (w *world) count(t *testing.T, table string) (n int) {
	t.Helper()
	if err := w.d.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

var shownToken = regexp.MustCompile(`<code id="access-token">([^<]+)</code>`)

// A developer sees the values of the chosen app, and a token only after asking for one with a POST.
func TestYourValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const page = "/docs/quickstart"
	apitest.NewBrowser(t, w.URL).Get(page).Want(t, 200, "Your values", "/sign-in?next=%2Fdocs%2Fquickstart",
		"$BASE_URL").Lacks(t, "cid_")
	apitest.NewBrowser(t, w.URL).Post(page, url.Values{}).Leads(t, "/sign-in?next=%2Fdocs%2Fquickstart")
	apitest.NewBrowser(t, w.URL).SignIn("user@example.com").Get(page).Want(t, 200, "Enable developer tools")
	apitest.NewBrowser(t, w.URL).SignIn("new@example.com").Get(page).Want(t, 200, "/developer/apps/new")
	b := apitest.NewBrowser(t, w.URL).SignIn("developer@example.com")
	b.Get(page).Want(t, 200, "First &lt;app&gt;", w.apps[0].ClientID, "https://api.example.com</var>",
		"$ACCESS_TOKEN").Lacks(t, w.apps[1].ClientID)
	b.Get(page+"?app="+w.apps[1].ID).Want(t, 200, w.apps[1].ClientID).Lacks(t, w.apps[0].ClientID)
	b.Get(page+"?app=app_another&account=acc_another").Want(t, 200, w.apps[0].ClientID)
	if n := w.count(t, "connections"); n != 0 {
		t.Fatalf("reading has made %d connections", n)
	}
	got := b.Post(page, url.Values{"app": {w.apps[1].ID}, "account": {"acc_of_another"}}).Want(t, 200, "token created",
		"spends test money only")
	token := shownToken.FindStringSubmatch(got.Body)
	if token == nil || strings.Count(got.Body, token[1]) < 2 {
		t.Fatalf("the token is not in the examples: %v", token)
	}
	grant, err := w.tokens.LookupAccessToken(t.Context(), token[1])
	if err != nil || grant.AppID != w.apps[1].ID {
		t.Errorf("the token is of %+v: %v", grant, err)
	}
	if got.Header.Get("Cache-Control") != "no-store" || strings.Contains(w.log.String(), token[1]) {
		t.Error("the token is cached or logged")
	}
	b.Get(page).Want(t, 200).Lacks(t, token[1])
	b.Post("/reference", url.Values{}).Want(t, 200, "token created", `data-token="`)
	b.Post("/docs/none", url.Values{}).Want(t, 404)
	if n := w.count(t, "connections"); n != 2 {
		t.Errorf("%d connections, want one for each app", n)
	}
}

// get reads a path with a header, which may be empty.
func (w *world) get(t *testing.T, path, header, value string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", w.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != "" {
		r.Header.Set(header, value)
	}
	resp, err := (&http.Transport{DisableCompression: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// What does not change is answered with 304 to a client that has it.
func TestTexts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, want := range map[string]struct{ kind, says string }{
		"/docs/quickstart":    {"text/html; charset=utf-8", "<h1>"},
		"/docs/quickstart.md": {"text/markdown; charset=utf-8", "# "},
		"/docs/search?q=hold": {"text/html; charset=utf-8", "<mark>hold</mark>"},
		"/reference":          {"text/html; charset=utf-8", "/v1/ai/{model}"},
		"/openapi.yaml":       {"application/yaml", "openapi: 3.1.0"},
		"/openapi.json":       {"application/json", `"https://api.example.com"`},
		"/llms.txt":           {"text/plain; charset=utf-8", "https://api.example.com/docs/quickstart.md"},
		"/llms-full.txt":      {"text/plain; charset=utf-8", "- `POST /v1/ai/{model}`: "},
	} {
		resp, body := w.get(t, path, "", "")
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != want.kind ||
			!strings.Contains(body, want.says) ||
			strings.Contains(body, "{base_url}") && strings.HasPrefix(path, "/docs") {
			t.Errorf("%s: %d %q", path, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
		tag := resp.Header.Get("Etag")
		if again, rest := w.get(t, path, "If-None-Match", tag); tag == "" || again.StatusCode != 304 || rest != "" {
			t.Errorf("%s with the tag %s: %d", path, tag, again.StatusCode)
		}
	}
	if resp, _ := w.get(t, "/docs", "", ""); resp.StatusCode != 303 ||
		resp.Header.Get("Location") != "/docs/quickstart" {
		t.Errorf("/docs: %d to %s", resp.StatusCode, resp.Header.Get("Location"))
	}
	if _, part := w.get(t, "/docs/search?q=hold", "HX-Request", "true"); strings.Contains(part, "<html") ||
		!strings.Contains(part, "<mark>") {
		t.Errorf("the part of a search: %s", part)
	}
	for _, path := range []string{"/docs/none", "/docs/none.md"} {
		if resp, _ := w.get(t, path, "", ""); resp.StatusCode != 404 {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

// Scripts stay strict on the reference; only its styles may stand in the page.
func TestPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	guide, _ := w.get(t, "/docs/quickstart", "", "")
	reference, page := w.get(t, "/reference", "", "")
	strict := guide.Header.Get("Content-Security-Policy")
	if strings.Contains(strict, "unsafe") || !strings.HasPrefix(strict, "script-src 'self'; connect-src 'self'; ") {
		t.Errorf("guides: %s", strict)
	}
	want := strings.Replace(strict, "style-src 'self'", "style-src 'self' 'unsafe-inline'", 1)
	if got := reference.Header.Get("Content-Security-Policy"); got != want {
		t.Errorf("reference: %s, want %s", got, want)
	}
	path := regexp.MustCompile(`data-script="(/assets/scalar\.[0-9a-f]{12}\.js)"`).FindStringSubmatch(page)
	if path == nil {
		t.Fatal("the reference names no script")
	}
	plain, script := w.get(t, path[1], "", "")
	packed, data := w.get(t, path[1], "Accept-Encoding", "gzip")
	unpack, err := gzip.NewReader(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(unpack)
	if err != nil {
		t.Fatal(err)
	}
	if packed.Header.Get("Content-Encoding") != "gzip" || plain.Header.Get("Content-Encoding") != "" ||
		string(unpacked) != script || !strings.Contains(script, "createApiReference") {
		t.Errorf("the script: %d and %d bytes, %v", len(data), len(script), packed.Header)
	}
}
