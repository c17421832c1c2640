package dashboard_test

import (
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// One connection is paused and resumed by a button of the list, of the overview or of its page, by its user and by no
// other. What others paused is resumed on its review page only.
func TestPauseOneConnection(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		path, b, stranger := "/connections/"+w.conn.ID, w.signedIn("person"), w.signedIn("stranger")
		for from, list := range map[string]string{"connections": "/connections", "overview": "/dashboard", "": path,
			"//evil.example.com": path} {
			form := url.Values{"from": {from}}
			b.Get(list).Want(t, 200, `action="`+path+`/freeze"`, ">Pause<").Lacks(t, path+`/resume"`)
			stranger.Post(path+"/resume", form).Want(t, 404)
			b.Post(path+"/freeze", form).Leads(t, list+"?done=freeze")
			if c := w.Is(w.conn); c.Status != rules.Frozen || c.FrozenBy != rules.FrozenByUser {
				t.Fatalf("%s: paused, and it is %s by %s", from, c.Status, c.FrozenBy)
			}
			b.Get(list).Want(t, 200, "You paused it.", `<time datetime="2026-11-21T10:00:0`,
				`action="`+path+`/resume"`).
				Lacks(t, `action="`+path+`/freeze"`)
			b.Get(list+"?done=freeze").Want(t, 200, "<strong>Paused.</strong>")
			stranger.Post(path+"/resume", form).Want(t, 404)
			b.Post(path+"/resume", form, "Sec-Fetch-Site", "cross-site").Want(t, 403)
			b.Get(path+"/resume").Want(t, 405)
			b.Post(path+"/resume", form).Leads(t, list+"?done=resume")
			if c := w.Is(w.conn); c.Status != rules.Active || c.FrozenBy != "" {
				t.Fatalf("%s: resumed, and it is %s by %s", from, c.Status, c.FrozenBy)
			}
			b.Get(list+"?done=resume").Want(t, 200, "<strong>Resumed.</strong>")
		}
		for _, by := range []rules.FreezeCause{rules.FrozenByRisk, rules.FrozenByPayment, rules.FrozenByOperator} {
			w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: by, Subject: rules.BelowZero})
			b.Get("/connections").Want(t, 200, `href="`+path+`/review">Review`).Lacks(t, path+`/resume"`)
			b.Post(path+"/resume", url.Values{"from": {"connections"}}).Leads(t, path+"/review")
			if c := w.Is(w.conn); c.Status != rules.Frozen || c.FrozenBy != by {
				t.Errorf("paused by %s, and it is %s by %s", by, c.Status, c.FrozenBy)
			}
			w.Do(rules.Resume{ConnectionID: w.conn.ID, By: rules.FrozenByOperator})
		}
		w.Do(rules.Revoke{ConnectionID: w.conn.ID})
		b.Post(path+"/resume", url.Values{}).Leads(t, path+"/review")
		b.Get("/connections").Want(t, 200, "Ended").Lacks(t, ">Pause<", ">Resume<")
	})
}

// A pause by the risk thresholds says what was spent in which time, and how many times the usual that is.
func TestPauseSaysTheFigure(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.Spend(w.conn, 430*money.Cent)
		w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByRisk})
		path, b := "/connections/"+w.conn.ID, w.signedIn("person")
		for _, page := range []string{path, path + "/review", path + "/increase", "/connections", "/dashboard"} {
			b.Get(page).Want(t, 200,
				"We paused it because it suddenly spent much faster than usual: $4.30 within 20 minutes, "+
					"21 times its usual.")
		}
	})
}

// The filter shows the connections of a status, and the tabs count them.
func TestConnectionFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b, card := w.signedIn("person"), `<h3><a href="/connections/`+w.conn.ID+`">`
	shown := func(want map[string]bool, counts ...string) {
		t.Helper()
		for query, is := range want {
			page := b.Get("/connections"+query).Want(t, 200, counts...)
			if strings.Contains(page.Body, card) != is {
				t.Errorf("%q: shown %t, want %t", query, !is, is)
			}
		}
	}
	shown(map[string]bool{"": true, "?show=active": true, "?show=paused": false, "?show=ended": false, "?show=x": true},
		"All (1)", "Active (1)", "Paused (0)", "Ended (0)")
	w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByUser})
	shown(map[string]bool{"": true, "?show=active": false, "?show=paused": true, "?show=ended": false},
		"All (1)", "Active (0)", "Paused (1)", "Ended (0)")
	w.Do(rules.Revoke{ConnectionID: w.conn.ID})
	shown(map[string]bool{"": true, "?show=active": false, "?show=paused": false, "?show=ended": true},
		"All (1)", "Active (0)", "Paused (0)", "Ended (1)")
}

var shownAmount = regexp.MustCompile(`<span class="num" title="[^"]*">([+−]?)\$([0-9,]+)\.([0-9]{2,4})</span>`)

// amountsIn returns the amounts of a page's part, in hundredths of a cent.
func amountsIn(t *testing.T, part string) (list []int64) {
	t.Helper()
	for _, m := range shownAmount.FindAllStringSubmatch(html.UnescapeString(part), -1) {
		var units int64
		for _, digit := range strings.ReplaceAll(m[2], ",", "") + (m[3] + "00")[:4] {
			units = units*10 + int64(digit-'0')
		}
		if m[1] == "−" {
			units = -units
		}
		list = append(list, units)
	}
	return list
}

// U7: the groups of each day of the activity add up to its sum, the lines of a statement and of each breakdown to their
// total, and the cards of connections to what is set aside, whatever fractions of a cent the calls cost.
func TestPartsAddUp(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		for _, mc := range []money.MC{33_412_345, 1_500_000, 2_500_000, 499_999, 1, 12_345_678} {
			w.Spend(w.conn, mc)
		}
		b := w.signedIn("person")
		for _, path := range []string{"/activity", "/activity?month=2026-11", "/dashboard"} {
			page := b.Get(path).Want(t, 200).Body
			days := strings.Split(page, `<section class="act-day">`)[1:]
			if len(days) != 1 {
				t.Fatalf("%s: %d days", path, len(days))
			}
			head, groups, _ := strings.Cut(days[0], "</div>")
			groups = regexp.MustCompile(`(?s)<ul class="act-rows">.*?</ul>`).ReplaceAllString(groups, "")
			var sum int64
			for _, units := range amountsIn(t, groups) {
				sum += units
			}
			var total int64
			for _, units := range amountsIn(t, head) {
				total += units
			}
			if sum != total || sum == 0 {
				t.Errorf("%s: the groups make %d, the day's sums are %d", path, sum, total)
			}
		}
		statement := b.Get("/activity?month=2026-11").Want(t, 200, "<h1>Statement for November 2026</h1>",
			"2026-10", `href="/activity.csv?month=2026-11"`).Body
		body, foot, _ := strings.Cut(statement, "<tfoot>")
		foot, _, _ = strings.Cut(foot, "</tfoot>")
		var sum int64
		for _, units := range amountsIn(t, body) {
			sum += units
		}
		if total := amountsIn(t, foot); len(total) != 1 || total[0] != sum {
			t.Errorf("the statement's lines make %d, its total is %v", sum, total)
		}
		b.Get("/activity?month=2026-10").Want(t, 200, "No calls in this month.", "2026-11")
		b.Get("/activity?month=november").Want(t, 400)
		overview := b.Get("/dashboard").Body
		spent := regexp.MustCompile(`Spent, last 30 days</dt><dd>(.*?)<p`).FindStringSubmatch(overview)
		tables := regexp.MustCompile(`(?s)<h2>By (?:app|feature|model)</h2>(.*?)</table>`).FindAllStringSubmatch(
			overview, -1)
		if spent == nil || len(tables) != 3 {
			t.Fatalf("the overview has no sum, or %d breakdowns", len(tables))
		}
		for _, table := range tables {
			sum = 0
			for _, units := range amountsIn(t, table[1]) {
				sum += units
			}
			if total := amountsIn(t, spent[1]); total[0] != sum {
				t.Errorf("a breakdown makes %d of %d", sum, total[0])
			}
		}
		setAside := regexp.MustCompile(`Set aside</dt><dd>(.*?)<p`).FindStringSubmatch(overview)
		if got := amountsIn(t, setAside[1]); got[0] != 4_4900 {
			t.Errorf("set aside: %d", got[0])
		}
		for _, path := range []string{"/dashboard", "/connections"} {
			b.Get(path).Want(t, 200, `<span class="num">$0.51</span> of <span class="num">$5.00</span> used`,
				`<span class="num">$4.49</span> left`, "$4.49</span>")
		}
	})
}

// A new user sees three steps, each ticked as soon as it has happened; with the first call they are gone.
func TestFirstSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	steps := func(who string) (done, open int) {
		page := w.signedIn(who).Get("/dashboard").Want(t, 200).Body
		return strings.Count(page, `<li class="done">`), strings.Count(page, `<li><span class="task-sign"`)
	}
	if done, open := steps("stranger"); done != 0 || open != 3 {
		t.Errorf("new: %d done, %d open", done, open)
	}
	if done, open := steps("person"); done != 2 || open != 1 {
		t.Errorf("connected: %d done, %d open", done, open)
	}
	w.Spend(w.conn, money.Cent)
	if done, open := steps("person"); done+open != 0 {
		t.Errorf("after the first call: %d done, %d open", done, open)
	}
}

// The overview says how long the balance lasts if there is a basis for it.
func TestPaceOnThePage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b := w.signedIn("person")
	b.Get("/dashboard").Lacks(t, "Lasts")
	for back := 1; back <= 8; back++ { // daily totals of the last days, as the ledger keeps them
		if _, err := w.d.ExecContext(t.Context(), `INSERT INTO daily_totals (day, connection_id, feature, model, app_id,
				account_id, calls, input_tokens, output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc,
				user_charge_mc)
			SELECT $1, id, '', 'm', app_id, account_id, 1, 1, 1, 50000000, 0, 0, 50000000
			FROM connections WHERE id = $2`,
			w.d.Now().UTC().AddDate(0, 0, -back).Format(time.DateOnly), w.conn.ID); err != nil {
			t.Fatal(err)
		}
	}
	b.Get("/dashboard").Want(t, 200, "Lasts about 40 days", "$0.50 a day over the last 8 days")
}
