package dashboard_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// every is every page of a person, once with a call, a connection and a request.
func (w *world) every() []string {
	w.t.Helper()
	call := w.Hold(w.conn, money.Dollar)
	call.Terms = `{"rates":{"book":"2026-11-20.1","mc_per_million":[[0,250000000,25000000,250000000,1500000000]]}}`
	row := w.Do(rules.Settle{
		Call:       call,
		Attempt:    1,
		Settlement: rules.Settled,
		Usage:      rules.Usage{JSON: `{"input":1000,"output":200}`},
		Charge:     rules.Amounts{ProviderCostMC: 550_000, UserChargeMC: 550_000},
	}).Entry
	return append(w.paths(w.conn), "/dashboard", "/activity", "/activity/"+row.ID, "/requests/"+row.RequestID(),
		"/connections", "/connections/"+w.conn.ID, "/connections/"+w.conn.ID+"/revoke")
}

// No page may be framed, kept or scripted, and none leads anybody elsewhere.
func TestPagesAreGuarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b, stranger, nobody := w.signedIn("person"), w.signedIn("stranger"), w.browser()
	for _, path := range w.every() {
		b.Get(path).Want(t, 200).WantSecurityHeaders(t)
		stranger.Get(path).WantSecurityHeaders(t)
		nobody.Get(path).Want(t, 303).WantLocalRedirect(t)
		for _, elsewhere := range []string{"//evil.example.com" + path, path + "//evil.example.com",
			path + "?next=https://evil.example.com/", "/%2F%2Fevil.example.com" + path} {
			for _, who := range []*apitest.Browser{b, nobody} {
				who.Get(elsewhere).WantLocalRedirect(t).Lacks(t, `href="//evil`, `href="https://evil`)
			}
		}
		for _, forged := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "null"}} {
			if a := b.Post(path, url.Values{"decision": {"approve"}}, forged...); a.Status != 403 && a.Status != 405 {
				t.Errorf("a forged form at %s: %d", path, a.Status)
			}
		}
	}
	b.Get("/activity.csv").Want(t, 200)
}

// Whatever a developer called an app, its features and a request for more: on the
// pages of people it is text, even if it got into the database by another way.
func TestNamesAreText(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b := w.signedIn("person")
	paths := w.every()
	for _, text := range []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`,
		`' autofocus onfocus='alert(1)`, `</title><h1>x`, `{{.Shell}}`, `javascript:alert(1)`} {
		for _, change := range []string{`UPDATE apps SET name = $1`, `UPDATE allocation_requests SET reason = $1`} {
			if _, err := w.d.ExecContext(t.Context(), change, text); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range paths {
			p := b.Get(path).Want(t, 200).Lacks(t, "<script>", "<img", "<h1>x", "' autofocus onfocus='",
				`href="javascript:`)
			if plain := strings.NewReplacer("&lt;", "<", "&gt;", ">", "&#34;", `"`, "&#39;",
				"'").Replace(p.Body); !strings.Contains(plain, text) {
				t.Errorf("%s does not show %s", path, text)
			}
		}
	}
}
