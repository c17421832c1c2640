package dashboard_test

import (
	"encoding/csv"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func TestOverview(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.signedIn("stranger").Get("/dashboard").Want(t, 200, "Get started in three steps", `href="/top-up"`).Lacks(t,
			"<svg class=\"chart\"", "Needs your attention")
		w.Spend(w.conn, money.Dollar)
		w.Spend(w.conn, 25*money.Cent)
		b := w.signedIn("person")
		b.Get("/dashboard").Want(t, 200, `<a href="/dashboard" aria-current="page">`, "$15.00", "$3.75", "$1.25",
			"Live &lt;b&gt;App&lt;/b&gt;", "summaries", "gpt-5.6-terra",
			`<svg class="chart"`, `<title id="by-day-title">`, "21 Nov: $1.25", "−$0.25",
			"100000000 micro-cents", `href="/activity?from=2026-11-21&amp;to=2026-11-21"`,
			`href="/activity?app=`+w.conn.AppID+`&amp;from=`, `&amp;model=gpt-5.6-terra">gpt-5.6-terra</a>`,
		).Lacks(t, "Needs your attention", w.test.ID, "Get started in three steps")
		b.Get("/activity?from=2026-11-21&to=2026-11-21").Want(t, 200, "gpt-5.6-terra")
		b.Get("/connections/"+w.conn.ID).Want(t, 200,
			`href="/activity?connection=`+w.conn.ID+`&amp;from=2026-11-21&amp;to=2026-11-21"`)
		request := w.ask(w.conn, 12*money.Dollar, "")
		b.Get("/dashboard").Want(t, 200, "Needs your attention", "Requested a spend cap of $12.00",
			`href="`+request+`"`)
		w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByRisk})
		b.Get("/dashboard").Want(t, 200, "Paused", `href="/connections/`+w.conn.ID+`/review"`)
		w.Do(rules.Revoke{ConnectionID: w.conn.ID})
		b.Get("/dashboard").Want(t, 200, "No apps connected").Lacks(t, "Needs your attention")
	})
}

var receiptLinks = regexp.MustCompile(`href="(/activity/led_[0-9a-z]{26})"`)

// Filters find what they say and no more, pages go on without gap or repeat, and
// the export has the same rows.
func TestActivity(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		var spent []rules.Entry
		for range 60 {
			spent = append(spent, w.Spend(w.conn, money.Cent))
		}
		w.Do(rules.Reverse{EntryID: spent[7].ID, AccountID: spent[7].AccountID, Reason: "provider_error"})
		b := w.signedIn("person")
		rows := func(path string) []string {
			t.Helper()
			var ids []string
			for path != "" {
				page := b.Get(path).Want(t, 200).Body
				for _, m := range receiptLinks.FindAllStringSubmatch(page, -1) {
					ids = append(ids, m[1])
				}
				next := regexp.MustCompile(`href="([^"]+)">Older</a>`).FindStringSubmatch(page)
				if path = ""; next != nil {
					path = strings.ReplaceAll(next[1], "&amp;", "&")
				}
			}
			seen := map[string]bool{}
			for _, s := range ids {
				if seen[s] {
					t.Errorf("%s twice", s)
				}
				seen[s] = true
			}
			return ids
		}
		for query, want := range map[string]int{
			"":                                63,
			"?type=spend":                     60,
			"?type=refund":                    1,
			"?type=topup":                     1,
			"?type=connect":                   1,
			"?type=nothing":                   0,
			"?model=gpt-5.6-terra&type=spend": 60,
			"?model=other":                    0,
			"?app=" + w.app.ID:                62,
			"?app=other":                      0,
			"?connection=" + w.conn.ID:        62,
			"?connection=" + w.test.ID:        0,
			"?from=2026-11-21":                63,
			"?from=2026-11-22":                0,
			"?to=2026-11-20":                  0,
			"?to=2026-11-21":                  63,
			"?from=2026-11-21&to=2026-11-21&type=topup": 1,
			"?before=3": 2,
		} {
			got := rows("/activity" + query)
			if len(got) != want {
				t.Errorf("%q: %d rows, want %d", query, len(got), want)
			}
			a := b.Get("/activity.csv"+query).Want(t, 200)
			records, err := csv.NewReader(strings.NewReader(a.Body)).ReadAll()
			if err != nil || len(records) != want+1 ||
				!strings.Contains(a.Header.Get("Content-Disposition"), "attachment") {
				t.Errorf("%q: exported %d rows and the heads, want %d: %v %v", query, len(records)-1, want, err,
					a.Header)
			}
			for i := range got {
				if i+1 < len(records) && "/activity/"+records[i+1][0] != got[i] {
					t.Errorf("%q: row %d is %s in the export, %s in the list", query, i, records[i+1][0], got[i])
				}
			}
		}
		b.Get("/activity?from=today").Want(t, 422, `role="alert"`, "Enter a date such as", `value="today"`)
		b.Get("/activity.csv?from=today").Want(t, 400)
		b.Get("/activity?before=-1").Want(t, 400)
		b.Get("/activity?model=%3Cscript%3E").Want(t, 200, "No results", "&lt;script&gt;").Lacks(t, "<script>")
		w.signedIn("stranger").Get("/activity").Want(t, 200, "No activity yet").Lacks(t, "led_")
	})
}

// Chips say which filters are set and keep each other's values, an id leads to its receipt, and a row to its drawer.
func TestActivityTools(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		call := w.Hold(w.conn, 50*money.Cent)
		call.Terms = `{"rates":{"book":"2026-11-20.1","mc_per_million":[[0,250000000,25000000,250000000,1500000000]]}}`
		row := w.Do(rules.Settle{
			Call:       call,
			Attempt:    1,
			Settlement: rules.Estimated,
			Usage:      rules.Usage{JSON: `{"input":1000,"output":200}`},
			Charge:     rules.Amounts{ProviderCostMC: 550_000, SvcFeeMC: 50_000, UserChargeMC: 600_000},
		}).Entry
		b := w.signedIn("person")
		b.Get("/activity?type=spend&from=2026-11-21&to=2026-11-21").Want(t, 200, "Type: <strong>Call</strong>",
			"Date: <strong>2026-11-21</strong>", `href="/activity?type=spend"`,
			`<input type="hidden" name="type" value="spend">`,
			`href="/activity.csv?from=2026-11-21&amp;to=2026-11-21&amp;type=spend"`,
			`hx-get="/activity/`+row.ID+`?part=drawer"`)
		b.Get("/activity?from=2026-11-21T10:00&to=2026-11-21T11:00").Want(t, 200, "2026-11-21T10:00 – 2026-11-21T11:00")
		b.Get("/activity?find="+row.ID).Leads(t, "/activity/"+row.ID)
		b.Get("/activity?find=+"+row.RequestID()).Leads(t, "/requests/"+row.RequestID())
		b.Get("/activity?find="+w.conn.ID).Want(t, 200, "Connection: <strong>", "1 call").Lacks(t, "Top-up</span>")
		for _, find := range []string{"led_none", "req_00000000000000000000000000", "<b>"} {
			b.Get("/activity?find="+url.QueryEscape(find)).Want(t, 422, "no entry with this id").Lacks(t, "<b>")
		}
		w.signedIn("stranger").Get("/activity?find="+row.ID).Want(t, 422, "no entry with this id")
		drawer := b.Get("/activity/"+row.ID+"?part=drawer").Want(t, 200, "data-close", "How it adds up", "Open receipt")
		drawer.Lacks(t, "<html")
		w.signedIn("stranger").Get("/activity/"+row.ID+"?part=drawer").Want(t, 404)
	})
}

// What an app's developer wrote is no formula in a spreadsheet.
func TestExportIsHarmless(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	for _, name := range []string{"=1+1", "@SUM(A1)", "+1", "-1", "\t=1", " =1"} {
		if _, err := w.d.ExecContext(t.Context(), `UPDATE apps SET name = $1 WHERE id = $2`, name,
			w.app.ID); err != nil {
			t.Fatal(err)
		}
		records, err := csv.NewReader(
			strings.NewReader(w.signedIn("person").Get("/activity.csv?type=connect").Body)).ReadAll()
		if err != nil || len(records) != 2 || records[1][7] != "'"+name {
			t.Errorf("%q: %q, %v", name, records, err)
		}
	}
}

func TestReceipts(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		call := w.Hold(w.conn, 50*money.Cent)
		call.Terms = `{"rates":{"book":"2026-11-20.1","mc_per_million":[[0,250000000,25000000,250000000,1500000000]]}}`
		row := w.Do(rules.Settle{
			Call:       call,
			Attempt:    1,
			Settlement: rules.Estimated,
			Usage:      rules.Usage{JSON: `{"input":1000,"output":200}`},
			Charge: rules.Amounts{
				ProviderCostMC: 550_000,
				SvcFeeMC:       30_000,
				DevMarginMC:    20_000,
				UserChargeMC:   600_000,
			},
		}).Entry
		b := w.signedIn("person")
		for _, path := range []string{"/activity/" + row.ID, "/requests/" + row.RequestID()} {
			b.Get(path).Want(t, 200, "Call for $0.006", "$0.006", "Estimated", "1,000", "$2.50", "250000 µ¢", "$15.00",
				"300000 µ¢", "550000 micro-cents", "30000 micro-cents", "20000 micro-cents", "$0.50, the most",
				"2026-11-20.1")
		}
		back := w.Do(rules.Reverse{EntryID: row.ID, AccountID: row.AccountID, Reason: "provider_error"}).Entry
		b.Get("/activity/"+back.ID).Want(t, 200, "<h1>Refund</h1>", "provider_error", "/activity/"+row.ID,
			"reserved for the app again")
		for _, path := range []string{"/activity/" + row.ID, "/requests/" + row.RequestID()} {
			b.Get(path).Want(t, 200, `badge good">Refunded<`, "$0.006 of it was refunded later.",
				`href="/activity/`+back.ID+`"`, "Call for $0.006")
		}
		b.Get("/activity").Want(t, 200, "refunded")
		refused := rules.Refusal{
			RequestID:    "req_00000000000000000000000001",
			ConnectionID: w.conn.ID,
			AppID:        w.app.ID,
			Status:       402,
			Code:         "allocation_exhausted",
			Message:      "the cap is <used> up",
			Details:      "{}",
		}
		w.Do(rules.RecordRefusal{Refusal: refused})
		b.Get("/requests/"+refused.RequestID).Want(t, 200, "Refused, nothing charged",
			"The app received: “the cap is &lt;used&gt; up.”", "402 allocation_exhausted")
		running := w.Hold(w.conn, 10*money.Cent)
		if d.Engine == db.Postgres { // on SQLite a hold of this moment is not in the file
			b.Get("/requests/"+running.RequestID).Want(t, 200, "In progress", "$0.10")
		}
		for _, m := range receiptLinks.FindAllStringSubmatch(b.Get("/activity").Body, -1) {
			b.Get(m[1]).Want(t, 200, "<h2>Details</h2>")
		}
		stranger := w.signedIn("stranger")
		none := stranger.Get("/requests/req_00000000000000000000000000").Want(t, 404)
		for _, path := range []string{"/activity/" + row.ID, "/activity/" + back.ID, "/activity/led_none",
			"/requests/" + row.RequestID(), "/requests/" + refused.RequestID, "/requests/led_x"} {
			if a := stranger.Get(path).Want(t, 404); requestIDs.ReplaceAllString(a.Body,
				"") != requestIDs.ReplaceAllString(none.Body, "") {
				t.Errorf("%s tells more than nothing:\n%s", path, a.Body)
			}
		}
	})
}

func TestConnectionPage(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.Spend(w.conn, money.Dollar)
		w.Hold(w.conn, 2*money.Dollar)
		path := "/connections/" + w.conn.ID
		b := w.signedIn("person")
		b.Get("/connections").Want(t, 200, `href="`+path+`"`)
		b.Get(path).Want(t, 200, "Live &lt;b&gt;App&lt;/b&gt;", "$5.00", "$1.00", "$2.00", "No daily limit", ">Pause<",
			`value="20"`, "calls in progress", path+"/increase", path+"/revoke")
		// Nothing happens by opening an address, to a stranger, or by another site's form.
		stranger, before := w.signedIn("stranger"), w.everything()
		for _, action := range []string{"/freeze", "/revoke"} {
			stranger.Post(path+action, url.Values{}).Want(t, 404)
			b.Post(path+action, url.Values{}, "Sec-Fetch-Site", "cross-site").Want(t, 403)
			w.browser().Post(path+action, url.Values{}).Want(t, 303)
		}
		stranger.Get(path).Want(t, 404)
		stranger.Get(path+"/revoke").Want(t, 404)
		b.Get(path+"/freeze").Want(t, 405)
		b.Get(path+"/revoke").Want(t, 200, "Revoke the connection", "$2.00", "Keep it", "becomes", "nothing")
		if after := w.everything(); after != before {
			t.Errorf("%s has become %s", before, after)
		}
		b.Post(path+"/freeze", url.Values{}).Leads(t, path+"?done=freeze")
		b.Get(path+"?done=freeze").Want(t, 200, "New calls are refused", ">Resume<").Lacks(t, ">Pause<")
		var mails int
		if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM notices WHERE kind = $1`,
			string(rules.NoticeFrozen)).Scan(&mails); err != nil || mails != 0 {
			t.Errorf("%d mails about what the person did: %v", mails, err)
		}
		b.Post(path+"/revoke", url.Values{}).Leads(t, path)
		b.Get(path).Want(t, 200, "Ended").Lacks(t, "Revoke…", "Change spend cap", ">Pause<")
		b.Get(path+"/revoke").Leads(t, path)
		b.Post(path+"/freeze", url.Values{}).Want(t, 303)
		if c := w.Is(w.conn); c.Status != rules.Revoked || c.AllocationMC != 3*money.Dollar {
			t.Errorf("revoked, and it is %s with %s", c.Status, c.AllocationMC.Display())
		}
		w.signedIn("developer").Get("/connections/"+w.test.ID).Want(t, 200, "for your test account", "sandbox")
	})
}

// While a call runs, its hold is seen by the part of the page that fetches itself
// anew; that part ends with the connection, and leads whoever is signed out away.
func TestLiveSpend(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person")
		path := "/connections/" + w.conn.ID
		b.Get(path).Want(t, 200, `hx-get="`+path+`/live" hx-trigger="every 2s"`, `<script src="/assets/htmx.`,
			"No calls in progress")
		w.Do(rules.Defer{Call: w.Hold(w.conn, 3*money.Dollar), Attempt: 1, Provider: "openai"}) // a hold that lasts
		part := b.Get(path+"/live").Want(t, 200, "$3.00", "For calls in progress", `<dl class="tiles" id="live"`)
		part.Lacks(t, "<html", "<script", "<h1")
		if got := b.Do(withHeader(t, w.URL+path+"/live")); got.Status != 200 || got.Body != part.Body {
			t.Errorf("asked by a script: %d %s", got.Status, got.Body)
		}
		if gone := w.browser().Do(withHeader(t, w.URL+path+"/live")); gone.Status != 200 || gone.Body != "" {
			t.Errorf("signed out: %d %q, want a reload and nothing else", gone.Status, gone.Body)
		}
		w.Do(rules.Revoke{ConnectionID: w.conn.ID})
		b.Get(path).Want(t, 200, "Ended").Lacks(t, "hx-get", "/assets/htmx.")
	})
}

func withHeader(t *testing.T, address string) (*http.Request, error) {
	t.Helper()
	req, err := http.NewRequest("GET", address, nil)
	if err == nil {
		req.Header.Set("HX-Request", "true")
	}
	return req, err
}
