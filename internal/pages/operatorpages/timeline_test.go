package operatorpages_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// The timeline of an account folds its calls by day, and has what else happened, in pages of whole days.
func TestTimeline(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("operator")
		e := w.Spend(w.conn, money.Dollar)
		w.Spend(w.conn, money.Dollar)
		connection := "/operator/connections/" + w.conn.ID
		b.Post("/operator/ledger/"+e.ID+"/reverse", act("reverse", "It was <empty>.")).Want(t, 303)
		b.Post(connection, act("freeze", "The user asked.")).Want(t, 303)
		b.Post(connection, act("resume", "The user is back.")).Want(t, 303)
		w.exec(`INSERT INTO daily_totals (day, connection_id, feature, model, app_id, account_id, calls, input_tokens,
			output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
			VALUES ($1, $2, '', 'm', $3, $4, 1234, 1, 1, 0, 0, 0, 700000000),
			('2020-01-02', $2, '', 'm', $3, $4, 77, 1, 1, 0, 0, 0, 300000000)`,
			w.Now().UTC().Format("2006-01-02"), w.conn.ID, w.app.ID, w.ids["person"])
		w.exec(`UPDATE accounts SET created_us = 1 WHERE id = $1`, w.ids["person"])
		path := "/operator/accounts/" + w.ids["person"]
		b.Get(path).Want(t, 200, `href="`+path+`/timeline"`)
		page := b.Get(path+"/timeline").Want(t, 200, "Timeline of person@example.com", "Calls: 1,236", "−$8.00",
			"Live &lt;b&gt;App&lt;/b&gt;", "Call refunded", "$1.00 returned: It was &lt;empty&gt;.", "Operator: freeze",
			"Operator: resume", "The user asked.", "operator@example.com", "Connection paused", "Connection resumed",
			"Top-up", "&#43;$20.00", "Connected", "&#43;$5.00", "Earlier")
		at := -1
		for _, text := range []string{"Calls: ", "Connection resumed", "Connection paused", "Call refunded", "Top-up"} {
			i := strings.Index(page.Body, text)
			if i <= at {
				t.Errorf("%s is at %d, not after %d", text, i, at)
			}
			at = i
		}
		b.Get(path+"/timeline?before=2020-01-10").Want(t, 200, "2 Jan 2020", "Calls: 77", "First page").Lacks(t,
			"Top-up")
		b.Get(path+"/timeline?before=2019-01-10").Want(t, 200, "Nothing happened from 11 Dec 2018 to 9 Jan 2019.")
		b.Get(path+"/timeline?before=x").Want(t, 400)
		b.Get("/operator/accounts/wac_x/timeline").Want(t, 404)
	})
}

// TestTimelineOfManyMoves checks that a page of more moves than it reads ends with a whole day, and that the pages have
// each move once.
func TestTimelineOfManyMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b, path := w.signedIn("operator"), "/operator/accounts/"+w.ids["person"]+"/timeline"
	for i := range 620 { // 310 on each of two days, besides those of today
		day := 10 + i%2
		w.exec(`INSERT INTO ledger (id, account_id, seq, type, status, amount_mc, available_delta_mc, reserved_delta_mc,
			allocation_delta_mc, consumed_delta_mc, created_us, hash)
			VALUES ($1, $2, $3, 'topup', 'settled', 1, 0, 0, 0, 0, $4, 'x')`,
			fmt.Sprintf("led_many%04d", i), w.ids["person"], 1000+i,
			time.Date(2020, 1, day, 12, 0, i, 0, time.UTC).UnixMicro())
	}
	w.exec(`UPDATE accounts SET created_us = 1 WHERE id = $1`, w.ids["person"])
	count := func(p apitest.Page) int { return strings.Count(p.Body, `href="/operator/ledger/led_many`) }
	newer := b.Get(path+"?before=2020-01-20").Want(t, 200, "11 Jan 2020", "before=2020-01-11").Lacks(t, "10 Jan 2020")
	older := b.Get(path+"?before=2020-01-11").Want(t, 200, "10 Jan 2020").Lacks(t, "11 Jan 2020")
	if count(newer) != 310 || count(older) != 310 {
		t.Errorf("%d and %d moves, should be 310 of each day", count(newer), count(older))
	}
}
