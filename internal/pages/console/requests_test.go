package console_test

import (
	"encoding/csv"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

var (
	rowID     = regexp.MustCompile(`<tr id="row-(req_[0-9a-z]+)"`)
	olderLink = regexp.MustCompile(`href="([^"]+)">Older<`)
)

// listed returns the ids of a list, of all its pages.
func listed(t *testing.T, b *apitest.Browser, path string) (ids []string) {
	t.Helper()
	for range 20 {
		body := b.Get(path).Want(t, 200).Body
		for _, m := range rowID.FindAllStringSubmatch(body, -1) {
			ids = append(ids, m[1])
		}
		older := olderLink.FindStringSubmatch(body)
		if older == nil {
			return ids
		}
		path = strings.ReplaceAll(older[1], "&amp;", "&")
	}
	t.Fatal("the list has no end")
	return nil
}

// refuse stores a refused call of a connection.
func (w *world) refuse(c rules.Connection, status int, code, feature, model string) string {
	w.t.Helper()
	requestID := id.New(id.Request, w.d.Now())
	w.do(rules.RecordRefusal{Refusal: rules.Refusal{
		RequestID:    requestID,
		ConnectionID: c.ID,
		AppID:        c.AppID,
		Status:       status,
		Code:         code,
		Message:      "No.",
		Details:      `{}`,
		Feature:      feature,
		Model:        model,
		DurationMS:   7,
	}})
	return requestID
}

// TestRequestLogFilters chooses rows by each filter, on all pages, and downloads the same rows.
func TestRequestLogFilters(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		one := w.connect(w.tester.ID, true)
		requestOf := func(e rules.Entry) string { return id.ReplacePrefix(e.ID, id.Ledger, id.Request) }
		dear := requestOf(w.spend(one, "chat", "chat", money.Dollar, money.Dollar/4))
		back := w.spend(one, "", "", money.Cent, 0)
		refund := requestOf(w.do(rules.Reverse{
			EntryID:   back.ID,
			AccountID: back.AccountID,
			Reason:    "provider_error",
		}).Entry)
		refused := w.refuse(one, 402, "allocation_exhausted", "chat", "gpt-6-luna")
		failed := w.refuse(one, 502, "provider_error", "=cmd|' /C calc'!A0", "gpt-5.6-terra")
		cheap := []string{}
		for range 30 { // more than a page of 25
			cheap = append(cheap, requestOf(w.spend(one, "other", "other", money.Cent/10, 0)))
		}
		all := slices.Concat(cheap, []string{dear, requestOf(back), refund, refused, failed})
		today := d.Now().UTC().Format("2006-01-02")
		for _, tt := range []struct {
			query string
			want  []string
		}{
			{"", all},
			{"status=settled", slices.Concat(cheap, []string{dear, requestOf(back)})},
			{"status=estimated", nil},
			{"status=refund", []string{refund}},
			{"status=refused", []string{refused}},
			{"status=failed", []string{failed}},
			{"model=gpt-6-luna", []string{refused}},
			{"model=gpt-5.6-terra&status=failed", []string{failed}},
			{"feature=chat", []string{dear, refused}},
			{"feature=other", cheap},
			{"connection=" + one.ID, all},
			{"find=" + one.ID, all},
			{"connection=conn_none", nil},
			{"charge=0.01", []string{dear, requestOf(back), refund}},
			{"charge=1.25", []string{dear}},
			{"charge=1.26", nil},
			{"range=1h", all},
			{"from=" + today, all},
			{"to=2020-01-01", nil},
			{"from=2020-01-01&to=2020-01-02", nil},
		} {
			q, err := url.ParseQuery(tt.query)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(tt.want)
			slices.Reverse(tt.want)
			for _, size := range []string{"25", "100"} {
				q.Set("limit", size)
				if got := listed(t, b, w.mine("/requests?"+q.Encode())); !slices.Equal(got, tt.want) {
					t.Errorf("%s in pages of %s: %d rows %v, want %d %v", tt.query, size, len(got), got, len(tt.want),
						tt.want)
				}
			}
			body := b.Get(w.mine("/requests.csv?"+tt.query)).Want(t, 200).Body
			records, err := csv.NewReader(strings.NewReader(body)).ReadAll()
			if err != nil || len(records) == 0 {
				t.Fatalf("%s: the download: %v\n%s", tt.query, err, body)
			}
			var ids []string
			for _, r := range records[1:] {
				ids = append(ids, r[0])
			}
			if !slices.Equal(ids, tt.want) {
				t.Errorf("%s: the download has %v, want %v", tt.query, ids, tt.want)
			}
			if strings.Contains(body, ",=cmd") {
				t.Errorf("%s: a formula in\n%s", tt.query, body)
			}
			if tt.query == "" {
				w.checkSums(records)
			}
		}
		for query, problem := range map[string]string{
			"charge=much":      "Enter an amount",
			"from=yesterday":   "Enter times such as",
			"status=whatever":  "Choose one of these",
			"range=forever":    "Choose one of these",
			"find=<script>x":   "Enter the id of a request",
			"limit=7&charge=x": "Enter an amount",
		} {
			b.Get(w.mine("/requests?"+query)).Want(t, 422, problem).Lacks(t, "<script>x")
			b.Get(w.mine("/requests.csv?"+query)).Want(t, 400)
		}
	})
}

// checkSums compares the amounts of a download with those of the ledger.
func (w *world) checkSums(records [][]string) {
	w.t.Helper()
	sums := map[string]int64{}
	for _, r := range records[1:] {
		for i, name := range records[0] {
			if strings.HasSuffix(name, "_mc") {
				n, err := strconv.ParseInt(r[i], 10, 64)
				if err != nil {
					w.t.Fatal(err)
				}
				sums[name] += n
			}
		}
	}
	for name, sum := range sums {
		var want int64
		if err := w.d.QueryRowContext(w.t.Context(), fmt.Sprintf(`SELECT CAST(SUM(CASE WHEN status = 'reversed'
			THEN -%[1]s ELSE %[1]s END) AS BIGINT) FROM ledger WHERE app_id = $1 AND type = 'spend'`, name),
			w.app.ID).Scan(&want); err != nil || sum != want {
			w.t.Errorf("%s: the download sums to %d, the ledger to %d, %v", name, sum, want, err)
		}
	}
	if sums["provider_cost_mc"]+sums["svc_fee_mc"]+sums["dev_margin_mc"] != sums["user_charge_mc"] {
		w.t.Errorf("the parts do not sum to the charge: %v", sums)
	}
}

// TestRequestParts shows rows and a receipt as parts, finds calls by their ids, and shows no call of another app.
func TestRequestParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b, other := w.signedIn("developer"), w.signedIn("other")
	c := w.connect(w.tester.ID, true)
	entry := w.spend(c, "chat", "chat", money.Dollar, money.Dollar/4)
	call := id.ReplacePrefix(entry.ID, id.Ledger, id.Request)
	refused := w.refuse(c, 402, "allocation_exhausted", "chat", "gpt-6-luna")
	b.Get(w.mine("/requests?live=1")).Want(t, 200, "Pause live tail", `hx-trigger="every 2s"`, "1,200 / 34", "7 ms",
		`title="$1.25">$1.2500<`, "allocation_exhausted", `hx-target="#drawer"`)
	b.Get(w.mine("/requests?live=1&part=rows")).Want(t, 200, `<tbody id="list-rows"`, call).Lacks(t, "<html", "<h1")
	b.Get(w.mine("/requests?live=1&before="+call)).Want(t, 200).Lacks(t, "every 2s", "Live tail")
	b.Get(w.mine("/requests/"+call+"?part=drawer")).Want(t, 200, "Timeline", "Held", "Settled", "$1.25 charged").
		Lacks(t, "<html", "<h1", w.tester.ID)
	b.Get(w.mine("/requests/"+refused+"?part=drawer")).Want(t, 200, "402 allocation_exhausted", "&#43;7 ms")
	for _, find := range []string{call, entry.ID, " " + call + " "} {
		if at := b.Get(w.mine("/requests?find="+url.QueryEscape(find))).Want(t, 303).
			Header.Get("Location"); at != w.mine("/requests/"+call) {
			t.Errorf("%q leads to %s", find, at)
		}
	}
	foreign := "/developer/apps/" + w.foreign.ID
	for _, path := range []string{"/requests/" + call, "/requests/" + call + "?part=drawer", "/requests/" + refused} {
		other.Get(foreign+path).Want(t, 404)
		other.Get(w.mine(path)).Want(t, 404)
	}
	other.Get(w.mine("/requests.csv")).Want(t, 404)
	other.Get(foreign+"/requests?connection="+c.ID).Want(t, 200, "No calls match").Lacks(t, call)
	other.Get(foreign+"/requests.csv").Want(t, 200).Lacks(t, call)
}

// The timeline of a call ends with the webhooks that its settlement caused, and with nothing of other calls.
func TestWebhooksInTimeline(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		c := w.connect(w.tester.ID, true)
		requestOf := func(e rules.Entry) string { return id.ReplacePrefix(e.ID, id.Ledger, id.Request) }
		cheap := requestOf(w.spend(c, "", "", money.Dollar, 0))
		last := requestOf(w.spend(c, "", "", 19*money.Dollar, 0))
		other := requestOf(w.spend(w.connect(w.person.ID, false), "", "", 20*money.Dollar, 0))
		drawer := func(call string) apitest.Page {
			t.Helper()
			return b.Get(w.mine("/requests/"+call+"?part=drawer")).Want(t, 200, "Settled")
		}
		drawer(cheap).Lacks(t, "Webhook", "connection.")
		drawer(last).Want(t, 200, "Event without a delivery", "connection.exhausted").Lacks(t, "Webhook")
		hook := b.Post(w.mine("/webhooks"), url.Values{"url": {"https://hooks.example.com/"}}).Found(t,
			`webhooks/(whk_[0-9a-z]+)"`)
		w.exec(`INSERT INTO deliveries (id, webhook_id, event_id, event_type, status, next_us, due_us, created_us)
			SELECT 'whd_one', $1, id, type, 'pending', 1, 1, 1 FROM events
			WHERE type = 'connection.exhausted' AND connection_id = $2`, hook, c.ID)
		page := drawer(last).Want(t, 200, `href="`+w.mine("/webhooks/"+hook+"/deliveries/whd_one")+`">Webhook pending<`)
		if strings.Index(page.Body, "Settled") > strings.Index(page.Body, "Webhook pending") {
			t.Error("the webhook stands before the settlement that caused it")
		}
		w.exec(`UPDATE deliveries SET attempts = 2`)
		drawer(last).Want(t, 200, "Webhook retry", "connection.exhausted, 2 attempts")
		w.exec(`UPDATE deliveries SET attempts = 7, status = 'failed', next_us = NULL`)
		drawer(last).Want(t, 200, "Webhook failed", "connection.exhausted, 7 attempts")
		w.exec(`UPDATE deliveries SET attempts = 1, status = 'delivered', delivered_us = $1`,
			time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC).UnixMicro())
		drawer(last).Want(t, 200, "Webhook delivered", `datetime="2026-11-21T10:00:00`).Lacks(t, "attempts")
		drawer(cheap).Lacks(t, "Webhook", "connection.")
		drawer(other).Want(t, 200, "Event without a delivery").Lacks(t, "Webhook delivered")
	})
}
