package operatorpages_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// Every route that is mounted, with ids of things that are there, is closed to
// everybody but who may use it; whatever it answers cannot be framed or kept.
func TestEveryRouteIsGuarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	entry, ids := w.Spend(w.conn, money.Dollar), map[string]string{}
	w.admin.MFA = accounts.HasMFA
	operator := w.twoSteps("operator")
	operator.Post("/operator/apps/"+w.sandbox.ID, act("suspend", "So that there is an entry.")).Want(t, 303)
	newIncident := url.Values{
		"decision": {"post"},
		"title":    {"Slow answers"},
		"text":     {"Calls to one provider take longer."},
		"impact":   {"degraded"},
		"from":     {"2026-11-21 09:00"},
	}
	operator.Post("/operator/incidents", newIncident).Want(t, 303)
	newSettings := settingsForm("sandbox_day", "7", "from", "2027-01-01 00:00")
	operator.Post("/operator/settings", settingsForm("fee_rate", "0.04", "from", "2027-02-01 00:00")).Want(t, 303)
	var upcoming string
	if err := w.d.QueryRowContext(t.Context(),
		`SELECT id FROM policies WHERE from_us > 0`).Scan(&upcoming); err != nil {
		t.Fatal(err)
	}
	var logged, incident string
	if err := w.d.QueryRowContext(t.Context(), `SELECT id FROM incidents`).Scan(&incident); err != nil {
		t.Fatal(err)
	}
	if err := w.d.QueryRowContext(t.Context(), `SELECT MIN(id) FROM operator_log`).Scan(&logged); err != nil {
		t.Fatal(err)
	}
	for section, id := range map[string]string{
		"reviews":     w.request.ID,
		"apps":        w.app.ID,
		"accounts":    w.ids["person"],
		"connections": w.conn.ID,
		"ledger":      entry.ID,
		"log":         logged,
		"incidents":   incident,
		"settings":    upcoming,
	} {
		ids[section] = id
	}
	address := func(pattern string) string { // /operator/apps/{id} of an app that is there
		if parts := strings.Split(pattern, "/"); len(parts) > 3 {
			return strings.Replace(pattern, "{id}", ids[parts[2]], 1)
		}
		return pattern
	}
	formOf := func(pattern string) url.Values {
		if pattern == "/operator/incidents" {
			return newIncident
		}
		if pattern == "/operator/settings" {
			return newSettings
		}
		if pattern == "/operator/invitations" {
			return url.Values{"email": {"invited@example.com"}}
		}
		if action, ok := strings.CutPrefix(pattern, "/operator/accounts/{id}/"); ok {
			return act(action, "why")
		}
		return act(decisions[pattern], "why")
	}
	oneStep := w.signedIn("operator")
	half := w.half("other")
	viewer, person, developer := w.twoSteps("viewer"), w.twoSteps("person"), w.twoSteps("developer")
	before := w.everything()
	for _, route := range w.routes {
		method, pattern, _ := strings.Cut(route, " ")
		path, form := address(pattern), formOf(pattern)
		ask := func(b *apitest.Browser, headers ...string) apitest.Page {
			if method == "POST" {
				return b.Post(path, form, headers...)
			}
			return b.Get(path + "?" + form.Encode())
		}
		signIn := "/sign-in?next=" + url.QueryEscape(path)
		ask(w.browser()).Leads(t, signIn)
		ask(half).Leads(t, signIn)
		ask(oneStep).Want(t, http.StatusForbidden, "Two-step verification required").WantSecurityHeaders(t)
		ask(person).Want(t, http.StatusNotFound).WantSecurityHeaders(t)
		ask(developer).Want(t, http.StatusNotFound).WantSecurityHeaders(t)
		if method == "GET" {
			says := "You’re a viewer"
			if strings.HasSuffix(pattern, ".csv") { // a file has no words around its rows
				says = map[string]string{
					"/operator/prices.csv": "model,provider",
					"/operator/log.csv":    "id,created_at,actor",
				}[path]
			}
			ask(viewer).Want(t, http.StatusOK, says).WantSecurityHeaders(t)
			ask(operator).Want(t, http.StatusOK).WantSecurityHeaders(t)
			continue
		}
		if path != "/operator/verify" && decisions[pattern] == "" &&
			pattern != "/operator/invitations" && !strings.HasPrefix(pattern, "/operator/accounts/{id}/") {
			t.Errorf("%s: which form would be taken?", route)
		}
		ask(viewer).Want(t, http.StatusForbidden, "but change nothing").WantSecurityHeaders(t)
		for _, forged := range [][]string{
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example.com"},
			{"Origin", "null"},
			{"Origin", strings.Replace(w.URL, "127.0.0.1", "localhost", 1)}, {"Origin", w.URL + "0"},
			{"Sec-Fetch-Site", "cross-site", "Origin", w.URL},
		} {
			ask(operator, forged...).Want(t, http.StatusForbidden, "another site").WantSecurityHeaders(t)
		}
	}
	if after := w.everything(); after != before || len(w.routes) < 20 {
		t.Errorf("%s has become %s by %d routes", before, after, len(w.routes))
	}
	const revoke = "/operator/connections/{id}/revoke" // last, because a revoked connection is not paused
	for pattern := range decisions {                   // and by their own forms they do it
		if pattern == revoke {
			continue
		}
		operator.Post(address(pattern), formOf(pattern), "Sec-Fetch-Site", "same-origin", "Origin", w.URL).Want(t,
			http.StatusSeeOther)
	}
	for _, pattern := range []string{
		"/operator/accounts/{id}/sign-out", "/operator/accounts/{id}/suspend", "/operator/accounts/{id}/lift", revoke,
	} {
		operator.Post(address(pattern), formOf(pattern), "Sec-Fetch-Site", "same-origin", "Origin", w.URL).Want(t,
			http.StatusSeeOther)
	}
}

// decisions are what the forms of the routes do.
var decisions = map[string]string{
	"/operator/reviews/{id}":        "refuse",
	"/operator/apps/{id}":           "suspend",
	"/operator/connections/{id}":    "freeze",
	"/operator/ledger/{id}/reverse": "reverse",
	"/operator/incidents":           "post",
	"/operator/settings":            "change",
	"/operator/settings/{id}":       "withdraw",
	"/operator/incidents/{id}":      "resolve",

	"/operator/connections/{id}/revoke": "revoke",
}

// twoSteps is a browser in which somebody signed in by both steps.
func (w *world) twoSteps(name string) *apitest.Browser {
	w.t.Helper()
	b := w.signedIn(name)
	b.Post("/second-step", url.Values{}).Want(w.t, http.StatusOK)
	return b
}

// half is a browser of another operator, whose password was right and who owes the
// second step.
func (w *world) half(name string) *apitest.Browser {
	w.t.Helper()
	w.exec(`INSERT INTO accounts (id, email, password_hash, operator, two_step, created_us) VALUES ('wac_half', $1, $2, 1, 1, 1)`, name+"@example.com", apitest.PasswordHash(w.t))
	return w.signedIn(name)
}
