package operatorpages_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
	"github.com/purserhq/purser/internal/pages/operatorpages"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// paths are all pages, with ids that exist.
func (w *world) paths(e rules.Entry) []string {
	return []string{
		"/operator", "/operator/verify", "/operator/reviews", "/operator/reviews/" + w.request.ID, "/operator/apps",
		"/operator/apps/" + w.app.ID,
		"/operator/accounts", "/operator/accounts/" + w.ids["person"], "/operator/connections/" + w.conn.ID,
		"/operator/ledger/" + e.ID, "/operator/ledger/" + e.ID + "/reverse",
		"/operator/risk", "/operator/providers", "/operator/log", "/operator/settings", "/operator/incidents",
		"/operator/prices",
		"/operator/prices/compare", "/operator/accounts/" + w.ids["person"] + "/timeline",
	}
}

// posts are everything that an operator can do.
func (w *world) posts(e rules.Entry) map[string][]url.Values {
	return map[string][]url.Values{
		"/operator/verify":                      {{}},
		"/operator/reviews/" + w.request.ID:     {act("approve", ""), act("refuse", "why")},
		"/operator/apps/" + w.app.ID:            {act("suspend", "why")},
		"/operator/connections/" + w.conn.ID:    {act("freeze", "why")},
		"/operator/ledger/" + e.ID + "/reverse": {act("reverse", "why")},
		"/operator/incidents":                   {incident("Slow answers")},
		"/operator/settings":                    {settingsForm("fee_rate", "0.04")},
	}
}

// settingsForm is the form of a change of the settings.
func settingsForm(pairs ...string) url.Values {
	form := act("change", "why")
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return form
}

// incident is the form of an incident.
func incident(title string) url.Values {
	return url.Values{
		"decision": {"post"},
		"title":    {title},
		"service":  {"openai"},
		"impact":   {"down"},
		"from":     {"2026-11-20 09:00"},
		"text":     {"We look into <it>."},
	}
}

// TestIncidents publishes, changes and resolves an incident, each in the audit log.
func TestIncidents(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("operator")
		for field, says := range map[string]string{
			"title":   "The title must have 1 to 100 characters.",
			"text":    "The text must have 1 to 2000 characters.",
			"from":    "The start must be a time",
			"impact":  "The impact must be",
			"service": "The part is not",
		} {
			form := incident("Slow answers")
			form.Set(field, strings.Repeat("x", 2001))
			b.Post("/operator/incidents", form).Want(t, 422, says, `href="#`+field+`"`)
		}
		b.Post("/operator/incidents", incident("Slow <i>answers</i>")).Want(t, 303)
		list := b.Get("/operator/incidents").Want(t, 200, "Slow &lt;i&gt;answers", "OpenAI", "Down")
		path := "/operator/incidents/" + between(list.Body, `href="/operator/incidents/`, `"`)
		b.Get(path).Want(t, 200, "We look into &lt;it&gt;.", "Resolve</button>")
		if s := w.admin.Status.Load(t.Context()); len(s.Incidents) != 1 || s.State != "degraded" {
			t.Errorf("%s %v", s.State, s.Incidents)
		}
		b.Post(path, incident("Answers")).Leads(t, path+"?done=incident")
		stale := incident("Answers")
		stale.Set("shown", b.Get(path).Shown(t,
			path+"\" novalidate>\n    <input type=\"hidden\" name=\"decision\" value=\"post"))
		b.Post(path, incident("Answers again")).Leads(t, path+"?done=incident")
		stale.Set("text", "It is mended.")
		b.Post(path, stale).Leads(t, path+"?done=incident")
		b.Get(path).Want(t, 200, "Answers again", "It is mended.")
		b.Post(path, incident("Answers")).Leads(t, path+"?done=incident")
		b.Post(path, act("resolve", "")).Leads(t, path+"?done=incident")
		b.Post(path, act("resolve", "")).Want(t, 422)
		b.Get(path+"?done=incident").Want(t, 200, "Resolved", "Published on the status page")
		if s := w.admin.Status.Load(t.Context()); s.State != "operational" || s.Incidents[0].Title != "Answers" {
			t.Errorf("%s %v", s.State, s.Incidents)
		}
		b.Get("/operator/log?action=incident").Want(t, 200, path, "operator@example.com")
		w.actors(map[string]int{w.ids["operator"]: 6})
		b.Get("/operator/incidents/inc_x").Want(t, 404)
	})
}

// To strangers there is nothing here, a viewer changes nothing, and an operator
// needs the second step.
func TestWhoMaySeeAndDoWhat(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		e := w.Spend(w.conn, money.Dollar)
		before := w.everything()
		nobody, person, developer, viewer, operator := w.browser(), w.signedIn("person"), w.signedIn("developer"),
			w.signedIn("viewer"), w.signedIn("operator")
		for _, path := range w.paths(e) {
			nobody.Get(path).Leads(t, "/sign-in?next="+url.QueryEscape(path))
			for _, b := range []*apitest.Browser{person, developer} {
				b.Get(path).Want(t, 404).Lacks(t, "perator", w.app.ID)
			}
			viewer.Get(path).Want(t, 200, "You’re a viewer").Lacks(t, `method="post" action="/operator`, "<script>",
				"style=")
			operator.Get(path+"?decision=approve&reason=x").Want(t, 200).Lacks(t, "<script>", "style=", "<b>", "<i>",
				"You’re a viewer")
		}
		for path, forms := range w.posts(e) {
			for _, form := range forms {
				nobody.Post(path, form).Leads(t, "/sign-in?next="+url.QueryEscape(path))
				person.Post(path, form).Want(t, 404)
				developer.Post(path, form).Want(t, 404)
				viewer.Post(path, form).Want(t, 403, "but change nothing")
			}
		}
		w.admin.MFA = func(*http.Request) bool { return false }
		for _, path := range w.paths(e) {
			operator.Get(path).Want(t, 403, "Two-step verification required", `href="/settings/security"`).Lacks(t,
				w.app.ID, "person@")
			viewer.Get(path).Want(t, 403)
			person.Get(path).Want(t, 404) // it tells strangers nothing
		}
		for path, forms := range w.posts(e) {
			operator.Post(path, forms[0]).Want(t, 403)
		}
		if after := w.everything(); after != before {
			t.Errorf("%s has become %s", before, after)
		}
	})
}

// What does not exist is a 404 like any other.
func TestNothingThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b := w.signedIn("operator")
	for _, path := range []string{"reviews/glr_x", "apps/app_x", "accounts/wac_x", "connections/conn_x", "ledger/led_x",
		"ledger/led_x/reverse", "log/opl_x"} {
		b.Get("/operator/"+path).Want(t, 404)
		b.Post("/operator/"+path, act("approve", "x")) // of no use either
	}
	b.Get("/operator/accounts/"+w.ids["person"]+"?before=x").Want(t, 400)
}

// Every action asks for what it needs, does one thing, and stands in the log with
// who did it, why, and what was before and after.
func TestActions(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		e := w.Spend(w.conn, money.Dollar)
		b := w.signedIn("operator")
		review, app, conn, row := "/operator/reviews/"+w.request.ID, "/operator/apps/"+w.app.ID,
			"/operator/connections/"+w.conn.ID, "/operator/ledger/"+e.ID
		b.Get(review).Want(t, 200, "New &lt;i&gt;App&lt;/i&gt;", "sandbox to limited-live", "Met", "feature",
			`value="approve"`, `value="refuse"`, "developer@example.com")
		for path, decision := range map[string]string{
			review:           "refuse",
			app:              "suspend",
			conn:             "freeze",
			row + "/reverse": "reverse",
		} {
			b.Post(path, act(decision, "  ")).Want(t, 422, `role="alert"`, `aria-invalid="true"`)
			b.Post(path, act(decision, strings.Repeat("x", 501))).Want(t, 422, "1 to 500", strings.Repeat("x", 501))
			b.Post(path, act("other", "x")).Want(t, 422)
		}
		b.Get("/operator/log").Want(t, 200, "No results")
		if w.changes.Load() != 0 {
			t.Errorf("told of %d changes", w.changes.Load())
		}
		b.Post(review, act("approve", "")).Leads(t, review+"?done=approve")
		b.Get(review+"?done=approve").Want(t, 200, "Approved", "Done.").Lacks(t, `value="approve"`)
		b.Post(review, act("approve", "")).Want(t, 422, "This request was approved already")
		b.Get("/operator/reviews").Want(t, 200, "No pending requests")
		b.Get("/operator/reviews?state=decided").Want(t, 200, "New &lt;i&gt;App&lt;/i&gt;", "Approved", w.request.ID,
			"State: <strong>Decided</strong>")
		b.Post(app, act("suspend", "Its <secret> has leaked.")).Leads(t, app+"?done=suspend")
		b.Get(app).Want(t, 200, "Suspended by operator", "Its &lt;secret&gt; has leaked.", `value="lift"`)
		b.Get("/operator/apps?state=suspended").Want(t, 200, w.app.ID).Lacks(t, w.sandbox.ID)
		b.Post(app, act("suspend", "again")).Want(t, 422, "suspended already")
		earlier := act("lift", "It has a new one.")
		earlier.Set("suspended_us", b.Get(app).Found(t, `name="suspended_us" value="([0-9]+)"`))
		b.Post(app, earlier).Leads(t, app+"?done=lift")
		b.Post(app, act("suspend", "Another reason.")).Leads(t, app+"?done=suspend")
		b.Post(app, earlier).Want(t, 422, "suspended again since the page was shown")
		b.Post(app, act("lift", "It has a new one.")).Leads(t, app+"?done=lift")
		b.Post(conn, act("freeze", "The user asked.")).Leads(t, conn+"?done=freeze")
		if c := w.Is(w.conn); c.Status != rules.Frozen {
			t.Errorf("the connection is %s", c.Status)
		}
		b.Get("/operator/risk").Want(t, 200, "Connection paused", w.conn.ID, "Suspended by risk now")
		for query, found := range map[string]bool{
			"?type=connection.frozen": true, "?type=app.spend_limit_reached": false, "?of=" + w.app.ID: true,
			"?of=+" + w.conn.ID: true, "?of=app_x": false, "?of=" + w.app.ID + "&type=connection.risk_warning": false,
		} {
			page := b.Get("/operator/risk"+query).Want(t, 200).Lacks(t, "Suspended by risk now")
			if strings.Contains(page.Body, "/operator/connections/"+w.conn.ID) != found {
				t.Errorf("%s: the event is there: %v", query, !found)
			}
		}
		stale := act("resume", "She is back.")
		stale.Set("causes", b.Get(conn).Found(t, `name="causes" value="([^"]*)"`))
		b.Post(conn, act("freeze", "again")).Leads(t, conn+"?done=freeze") // the page did not show this
		b.Post(conn, stale).Leads(t, conn+"?done=resume")
		if c := w.Is(w.conn); c.Status != rules.Frozen || c.FrozenReason != "again" {
			t.Errorf("after a resume on a page that did not show the second pause: %+v", c)
		}
		b.Post(conn, act("resume", "She is back.")).Leads(t, conn+"?done=resume")
		b.Get(row).Want(t, 200, row+"/reverse", "$1.00")
		b.Get(row+"/reverse").Want(t, 200, "Refund this charge?", "where the app may spend it again", "can’t be undone",
			"Refund $1.00")
		to := b.Post(row+"/reverse", act("reverse", "The apitest.Page was empty.")).To
		b.Get(to).Want(t, 200, "Done.", "Call, reversed", "The apitest.Page was empty.", e.ID)
		b.Get(row).Want(t, 200, "Refunded").Lacks(t, row+"/reverse")
		b.Post(row+"/reverse", act("reverse", "again")).Want(t, 422)
		if c := w.Is(w.conn); c.ConsumedMC != 0 || c.AllocationMC != 5*money.Dollar {
			t.Errorf("after the refund: %+v", c)
		}
		log := b.Get("/operator/log").Want(t, 200, "operator@example.com", "Its &lt;secret&gt; has leaked.",
			"It has a new one.", "The user asked.", "She is back.", "The apitest.Page was empty.")
		if n := strings.Count(log.Body, `href="/operator/log/opl_`); n != 10 || w.changes.Load() != 10 {
			t.Errorf("%d entries, told of %d changes", n, w.changes.Load())
		}
		w.actors(map[string]int{w.ids["operator"]: 10})
	})
}

// actors compares who stands in the log.
func (w *world) actors(want map[string]int) {
	w.t.Helper()
	for actor, n := range want {
		var got int
		if err := w.d.QueryRowContext(w.t.Context(), `SELECT COUNT(*) FROM operator_log WHERE actor = $1`,
			actor).Scan(&got); err != nil || got != n {
			w.t.Errorf("%s: %d entries, want %d (%v)", actor, got, n, err)
		}
	}
}

func TestLogIsSearched(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("operator")
		for range 51 {
			b.Post("/operator/apps/"+w.app.ID, act("suspend", "off"))
			b.Post("/operator/apps/"+w.app.ID, act("lift", "on"))
		}
		b.Post("/operator/connections/"+w.conn.ID, act("freeze", "pause"))
		entries := func(path string) (int, apitest.Page) {
			a := b.Get(path).Want(t, 200)
			return strings.Count(a.Body, `href="/operator/log/opl_`), a
		}
		for path, want := range map[string]int{
			"":                      50,
			"?action=freeze":        1,
			"?action=lift":          50,
			"?subject=" + w.conn.ID: 1,
			"?actor=operator@example.com&action=freeze": 1,
			"?actor=" + w.ids["operator"]:               50,
			"?actor=viewer@example.com":                 0,
			"?actor=a@b.example":                        0,
		} {
			if n, _ := entries("/operator/log" + path); n != want {
				t.Errorf("%s: %d entries, want %d", path, n, want)
			}
		}
		seen := 0
		for path := "/operator/log"; path != ""; {
			n, a := entries(path)
			seen += n
			path = between(a.Body, `<a class="button small" href="`, `">Older</a>`)
		}
		if seen != 103 {
			t.Errorf("%d entries on all pages", seen)
		}
		_, a := entries("/operator/log?action=freeze")
		b.Get("/operator/log/"+between(a.Body, `href="/operator/log/`, `"`)).Want(t, 200, "pause",
			"<code>status</code>", "active", "frozen").Lacks(t, "<code>allocation_mc</code>")
	})
}

// between is the text before end that follows the last begin before it; "" = there is none.
func between(page, begin, end string) string {
	i := strings.Index(page, begin)
	for i >= 0 {
		rest := page[i+len(begin):]
		if text, _, ok := strings.Cut(rest, end); ok && !strings.ContainsAny(text, "<>") {
			return strings.ReplaceAll(text, "&amp;", "&")
		}
		next := strings.Index(rest, begin)
		if next < 0 {
			break
		}
		i += len(begin) + next
	}
	return ""
}

func TestSupportFindsAccounts(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("viewer")
		var e rules.Entry
		for range 55 {
			e = w.Spend(w.conn, money.Cent)
		}
		w.exec(`INSERT INTO mails (id, account_id, recipient, subject, text, html, unsubscribe, created_us, next_us) VALUES ('mail_1', $1, 'p', 'Half is used', 'secret link', '', '', 1, 1)`, w.ids["person"])
		for _, q := range []string{"Person@example.com", w.ids["person"], w.conn.ID, e.ID, e.RequestID()} {
			a := b.Get("/operator/accounts?q="+url.QueryEscape(q)).Want(t, 200, "/operator/accounts/"+w.ids["person"])
			a.Lacks(t, "/operator/accounts/"+w.ids["developer"])
		}
		for _, q := range []string{"nobody@example.com", "x@", "wac_x", "conn_x", "led_x", "%"} {
			b.Get("/operator/accounts?q="+url.QueryEscape(q)).Want(t, 200, "No results")
		}
		b.Get("/operator/accounts").Want(t, 200, w.ids["person"], w.ids["viewer"])
		path := "/operator/accounts/" + w.ids["person"]
		a := b.Get(path).Want(t, 200, "person@example.com", "$15.00", "Live &lt;b&gt;App&lt;/b&gt;", "Half is used",
			e.ID, "/operator/connections/"+w.conn.ID).Lacks(t, "secret link")
		rows := func(a apitest.Page) int { return strings.Count(a.Body, `href="/operator/ledger/`) }
		second := b.Get(between(a.Body, `<a href="`, `">Next page`))
		if rows(a) != 50 || rows(second) != 7 { // 55 calls, a top-up, a connection
			t.Errorf("%d and %d rows", rows(a), rows(second))
		}
		for _, q := range []string{"live <B>", w.app.ID, w.app.ClientID} {
			b.Get("/operator/apps?q="+url.QueryEscape(q)).Want(t, 200, w.app.ID).Lacks(t, w.sandbox.ID)
		}
		b.Get("/operator/apps?q=%25").Want(t, 200, "No results")
	})
}

// The overview says what is counted: real money, with what was refunded taken back.
func TestFigures(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		counter := &operatorpages.Summary{DB: d, Now: w.Now}
		b := w.signedIn("operator")
		b.Get("/operator").Want(t, 200, "computed for the first time", "Go-live requests",
			"/operator/reviews/"+w.request.ID)
		w.Spend(w.conn, 2*money.Dollar)
		e := w.Spend(w.conn, money.Dollar)
		b.Post("/operator/ledger/"+e.ID+"/reverse", act("reverse", "empty")).Want(t, 303)
		w.exec(`INSERT INTO daily_totals (day, connection_id, feature, model, app_id, account_id, calls,
			input_tokens, output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
			VALUES ('2026-11-01', $1, '', 'm', $2, $3, 7, 1, 1, 300000000, 200000000, 100000000, 600000000)`, w.conn.ID,
			w.app.ID, w.ids["person"])
		if err := counter.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.Get("/operator").Want(t, 200, "$18.00", "$15.00 available, $3.00 reserved", "accounts: 1", "$0.50 today",
			"$2.50", "$4.00", "$1.00 today", "$8.00").Lacks(t, "first time")
		b.Get("/operator/apps/"+w.app.ID).Want(t, 200, "$8.00", "$4.00", "at most")
		w.Spend(w.conn, money.Dollar)
		if err := counter.Once(t.Context()); err != nil { // not due
			t.Fatal(err)
		}
		b.Get("/operator").Want(t, 200, "$18.00")
		w.exec(`UPDATE operator_totals SET next_us = 0`)
		if err := counter.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.Get("/operator").Want(t, 200, "$17.00", "$9.00")
	})
}

// TestLongCounts: a count that takes longer than each run of the job ends at some time, with the right sums.
func TestLongCounts(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
			INSERT INTO balances (account_id, sandbox, available_mc, reserved_mc, seq, head)
			SELECT 'wac_' || i, 0, 1, 0, 0, '' FROM n`)
		w.exec(`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 6999)
			INSERT INTO daily_totals (day, connection_id, feature, model, app_id, account_id, calls, input_tokens,
				output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
			SELECT '2026-11-1' || (i / 1000), 'conn_' || i, '', 'm', 'app_x', 'wac_1', 1, 1, 1, 1, 1, 1, 3 FROM n`)
		const statements = 5 // a run has time for
		counter, runs := &operatorpages.Summary{DB: d, Now: w.Now}, 0
		for done := false; !done; runs++ {
			if runs > 50 {
				t.Fatal("the count has no end")
			}
			w.exec(`UPDATE operator_totals SET next_us = 0`)
			run, cancel := context.WithCancel(t.Context())
			n := 0
			d.Trace(func(query string, _ []any) {
				if strings.Contains(query, "FROM daily_totals WHERE day") || strings.Contains(query, "FROM balances WHERE") {
					n++
				}
				if n > statements {
					cancel()
				}
			})
			done = counter.Once(run) == nil
			cancel()
			d.Trace(nil)
		}
		var days, calls, accounts int64
		if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*), SUM(calls), (SELECT accounts FROM operator_totals)
			FROM operator_days WHERE app_id = 'app_x'`).Scan(&days, &calls, &accounts); err != nil {
			t.Fatal(err)
		}
		if days != 7 || calls != 7000 || accounts < 5001 || accounts > 5010 || runs < 5 {
			t.Errorf("%d calls on %d days, %d accounts, after %d runs", calls, days, accounts, runs)
		}
	})
}

// TestCountsThatWereLeft: a count that was cut off a quarter of an hour ago begins again, as other nodes have counted
// since.
func TestCountsThatWereLeft(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.exec(`INSERT INTO balances (account_id, sandbox, available_mc, reserved_mc, seq, head)
			VALUES ('wac_1', 0, 1, 0, 0, '')`)
		w.exec(`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 2999)
			INSERT INTO daily_totals (day, connection_id, feature, model, app_id, account_id, calls, input_tokens,
				output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
			SELECT '2026-11-11', 'conn_' || i, '', 'm', 'app_x', 'wac_1', 1, 1, 1, 1, 1, 1, 3 FROM n`)
		later := time.Duration(0)
		left := &operatorpages.Summary{DB: d, Now: func() time.Time { return w.Now().Add(later) }}
		run, cancel := context.WithCancel(t.Context())
		steps := 0
		d.Trace(func(query string, _ []any) {
			if strings.Contains(query, "FROM daily_totals WHERE day") {
				if steps++; steps == 3 { // the day has begun, and not ended
					cancel()
				}
			}
		})
		if err := left.Once(run); err == nil {
			t.Fatal("the count was not cut off")
		}
		d.Trace(nil)
		w.exec(`UPDATE daily_totals SET calls = 2`)
		w.exec(`UPDATE operator_totals SET next_us = 0`)
		later = time.Hour
		if err := left.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		var calls int64
		if err := d.QueryRowContext(t.Context(), `SELECT SUM(calls) FROM operator_days WHERE app_id = 'app_x'`).
			Scan(&calls); err != nil || calls != 6000 {
			t.Errorf("%d calls are counted, %v", calls, err)
		}
	})
}

// An audit is asked for once, carried out by a job, and its result stays.
func TestVerify(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			address := dbtest.URL(t, e)
			d, err := db.Open(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			d.RelaxLimits(12)
			t.Cleanup(func() { _ = d.Close() })
			w := newWorld(t, d)
			v := &operatorpages.Verifier{DB: d, URL: address, Now: w.Now}
			if err := v.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			b := w.signedIn("operator")
			b.Get("/operator/verify").Want(t, 200, "No verifications yet", "Verify now</button>")
			for range 2 { // the second is the first
				b.Post("/operator/verify", url.Values{}).Leads(t, "/operator/verify")
			}
			b.Get("/operator/verify").Want(t, 200, "Waiting", "Refresh").Lacks(t, "Verify now</button>")
			if err := v.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			a := b.Get("/operator/verify").Want(t, 200, "checks, no findings", "operator@example.com",
				"Verify now</button>").Lacks(t, "Waiting")
			if strings.Count(a.Body, ">Clean<") != 2 { // the newest, and its line
				t.Errorf("the page: %s", a.Body)
			}
			w.exec(`UPDATE balances SET available_mc = available_mc + 1 WHERE account_id = $1`, w.ids["person"])
			b.Post("/operator/verify", url.Values{})
			// a node took it, and died
			w.exec(`UPDATE verifications SET state = 'running', touched_us = 1 WHERE state = 'waiting'`)
			if err := v.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.Get("/operator/verify").Want(t, 200, ">Findings<", "not clean", w.ids["person"])
			b.Get("/operator").Want(t, 200, "The books have findings")
		})
	}
}

// TestVerifyOutlivesItsNode: a node stops while it verifies the ledger. That is no result: after a minute another node
// verifies it.
func TestVerifyOutlivesItsNode(t *testing.T) {
	t.Parallel()
	address := dbtest.URL(t, db.SQLite)
	d := dbtest.OpenURL(t, address)
	w := newWorld(t, d)
	b := w.signedIn("operator")
	b.Post("/operator/verify", url.Values{}).Leads(t, "/operator/verify")
	run, stop := context.WithCancel(t.Context())
	var passed time.Duration
	asked := 0
	v := &operatorpages.Verifier{DB: d, URL: address, Now: func() time.Time {
		if asked++; asked == 2 { // it is claimed, and begins
			stop()
		}
		return w.Now().Add(passed)
	}}
	if err := v.Once(run); err == nil {
		t.Error("the verification has ended though its node stops")
	}
	b.Get("/operator/verify").Want(t, 200, ">Running<").Lacks(t, ">Failed<")
	for _, step := range []struct {
		passed time.Duration
		want   string
	}{{59 * time.Second, ">Running<"}, {61 * time.Second, ">Clean<"}} {
		passed = step.passed
		if err := v.Once(t.Context()); err != nil {
			t.Error(err)
		}
		b.Get("/operator/verify").Want(t, 200, step.want).Lacks(t, ">Failed<")
	}
}

// TestFiguresAfterAClockThatWasAhead: a clock was ahead for one run of the jobs, which have counted a call of then, and
// have begun a verification. Once it is right, today's calls are counted, and the verification is taken over.
func TestFiguresAfterAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{time.Hour, 365 * 24 * time.Hour} {
		address := dbtest.URL(t, db.SQLite)
		d := dbtest.OpenURL(t, address)
		w := newWorld(t, d)
		later := ahead
		now := func() time.Time { return w.Now().Add(later) }
		call := func(n int) {
			w.exec(`INSERT INTO daily_totals (day, connection_id, feature, model, app_id, account_id, calls,
				input_tokens, output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
				VALUES ($1, $2, '', 'm', 'app_x', 'wac_1', 1, 1, 1, 1, 1, 1, 3)`, now().UTC().Format(time.DateOnly),
				fmt.Sprint("conn_", n))
		}
		summary := &operatorpages.Summary{DB: d, Now: now}
		w.exec(`INSERT INTO balances (account_id, sandbox, available_mc, reserved_mc, seq, head)
			VALUES ('wac_1', 0, 1, 0, 0, '')`)
		call(1)
		if err := summary.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.exec(`INSERT INTO verifications (id, state, asked_by, asked_us, touched_us, progress, checks, checked,
			findings, report) VALUES ('ver_1', 'running', 'schedule', $1, $1, '', 0, 0, 0, '')`, now().UnixMicro())
		later = 0
		call(2)
		for range 3 {
			if err := summary.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			later += 61 * time.Second
		}
		later = 0
		today := now().UTC().Format(time.DateOnly)
		if n := dbtest.Number(t, address, `SELECT COALESCE(SUM(calls), 0) FROM operator_days WHERE day = $1`,
			today); n == 0 {
			t.Errorf("%s ahead: %d calls of today are counted", ahead, n)
		}
		v := &operatorpages.Verifier{DB: d, URL: address, Now: now}
		if err := v.Once(t.Context()); err != nil {
			t.Error(err)
		}
		if n := dbtest.Number(t, address, `SELECT COUNT(*) FROM verifications WHERE state = 'running'`); n != 0 {
			t.Errorf("%s ahead: the verification still counts as running", ahead)
		}
	}
}

// A refuser is a provider that calls each request invalid.
type refuser struct{ provider.Provider }

func (refuser) Name() string { return "anthropic" }

func (refuser) Complete(context.Context, *provider.Request) (*provider.Response, error) {
	return nil, &provider.Error{Kind: provider.Rejected, Status: 400, Refusal: "Your plan 7 has ended."}
}

// What monitoring counts, the price book, the pools and the texts of refusals stand on their page.
func TestProviders(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.admin.Metrics.CountCall("openai", "gpt-6-luna", "settled", 1)
		w.admin.Metrics.CountCall("openai", "gpt-6-luna", "failed", 1)
		w.admin.Metrics.CountProviderError("openai", 529)
		w.admin.Metrics.RaiseAlarm("free_pool_low", "app_1")
		w.admin.Estimates.Record("gpt-6-luna", 1000, 1000, 1250)
		w.exec(`INSERT INTO counters (subject, buckets, held, limit_reported) VALUES ($1, '0:300000000', 100000000, 0)`,
			"free/"+w.app.ID+"/2026-11")
		w.exec(`INSERT INTO counters (subject, buckets, held, limit_reported) VALUES ($1, '0:999999999', 0, 0)`,
			"free/"+w.app.ID+"/2026-10")
		pool := upstream.NewPool([]upstream.Key{{ID: "…1234", Provider: refuser{}}}, time.Now,
			slog.New(slog.DiscardHandler), nil)
		if _, err := pool.Complete(t.Context(), &provider.Request{}); err == nil {
			t.Error("not refused")
		}
		w.admin.Pools = map[string]*upstream.Pool{"anthropic": pool}
		b := w.signedIn("viewer")
		b.Get("/operator/providers").Want(t, 200, "gpt-6-luna", ">settled<", ">failed<", "529",
			"Your plan # has ended.", w.admin.Catalog.Current().Version(), "1.250", "$3.00", "$1.00", "$46.00",
			"November 2026").Lacks(t, "$9.99")
		b.Get("/operator").Want(t, 200, "free_pool_low", "input_estimated_too_low")
	})
}
