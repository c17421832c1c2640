package webhooks_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func TestEndpointLife(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, webhooks.Addresses{})
		if a := b.mine.Do(t, "GET", b.collection(), ""); strings.TrimSpace(a.Body) != "[]" {
			t.Errorf("at first there is %v", a)
		}
		e := b.create(t, `{"url":"https://app.example.com/hook","events":["connection.revoked"]}`)
		at := b.collection() + "/" + e.ID
		var sealed []byte
		if err := d.QueryRowContext(t.Context(), `SELECT sealed FROM webhooks
			WHERE id = $1`, e.ID).Scan(&sealed); err != nil || strings.Contains(string(sealed), e.Secret[6:]) {
			t.Errorf("the secret is stored as %q (%v)", sealed, err)
		}
		for _, path := range []string{b.collection(), at} {
			if a := b.mine.Do(t, "GET", path, ""); strings.Contains(a.Body, "whsec_") ||
				!strings.Contains(a.Body, e.URL) {
				t.Errorf("GET %s: %v", path, a)
			}
		}
		if got := read[endpoint](t, b.mine.Do(t, "PATCH", at, `{"status":"disabled"}`)); got.Status != "disabled" ||
			got.URL != e.URL || got.Secret != "" {
			t.Errorf("disabled: %+v", got)
		}
		if a := b.mine.Do(t, "PATCH", at, `{"url":"https://new.example.com/","events":[]}`); !strings.Contains(a.Body,
			`"events":[],"status":"disabled"`) {
			t.Errorf("changed: %v", a)
		}
		rotated := read[endpoint](t, b.mine.Do(t, "POST", at+"/rotate-secret", ""))
		if rotated.Secret == e.Secret || !strings.HasPrefix(rotated.Secret, "whsec_") {
			t.Errorf("rotated to %q", rotated.Secret)
		}
		if a := b.mine.Do(t, "DELETE", at, ""); strings.TrimSpace(a.Body) != `{"ok":true}` {
			t.Errorf("deleted: %v", a)
		}
		want(t, b.mine.Do(t, "DELETE", at, ""), 404, "not_found")
	})
}

func TestEndpointLimit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, webhooks.Addresses{})
		for range webhooks.MaxPerApp {
			b.create(t, `{"url":"https://app.example.com/hook"}`)
		}
		want(t, b.mine.Do(t, "POST", b.collection(), `{"url":"https://app.example.com/hook"}`), 400, "invalid_request")
		page := b.mine.Do(t, "GET", b.collection()+"?limit=5", "")
		if n := len(read[[]endpoint](t, page)); n != 5 ||
			!strings.Contains(page.Header.Get("Link"), "starting_after=whk_") {
			t.Errorf("a page has %d, Link %q", n, page.Header.Get("Link"))
		}
	})
}

func TestEndpointRules(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite), webhooks.Addresses{Own: []string{"https://purser.example"}})
	for name, c := range map[string]struct{ body, says string }{
		"nothing":           {`{}`, "url: required"},
		"null":              {`{"url":null}`, "url: required"},
		"empty":             {`{"url":""}`, "url: required"},
		"no URL":            {`{"url":"app.example.com"}`, "absolute address"},
		"http":              {`{"url":"http://app.example.com/"}`, "https://"},
		"another scheme":    {`{"url":"ftp://app.example.com/"}`, "https://"},
		"password":          {`{"url":"https://a:b@app.example.com/"}`, "user or password"},
		"fragment":          {`{"url":"https://app.example.com/#a"}`, "fragment"},
		"backslash":         {`{"url":"https://app.example.com\\@10.0.0.1/"}`, "plain ASCII"},
		"space":             {`{"url":"https://app.example.com/a b"}`, "plain ASCII"},
		"port 0":            {`{"url":"https://app.example.com:0/"}`, "port"},
		"empty port":        {`{"url":"https://app.example.com:/"}`, "port"},
		"loopback":          {`{"url":"https://127.0.0.1/"}`, "public"},
		"localhost":         {`{"url":"https://localhost/"}`, "public"},
		"IPv6 loopback":     {`{"url":"https://[::1]/"}`, "public"},
		"mapped":            {`{"url":"https://[::ffff:10.0.0.1]/"}`, "public"},
		"cloud metadata":    {`{"url":"https://169.254.169.254/latest"}`, "public"},
		"wire server":       {`{"url":"https://168.63.129.16/"}`, "public"},
		"private":           {`{"url":"https://192.168.1.1/"}`, "public"},
		"ourselves":         {`{"url":"https://Purser.Example:443/v1"}`, "itself"},
		"ourselves, dotted": {`{"url":"https://purser.example./v1"}`, "itself"},
		"localhost, dotted": {`{"url":"https://LOCALHOST./"}`, "public"},
		"below localhost":   {`{"url":"https://a.localhost/"}`, "public"},
		"a short address":   {`{"url":"https://127.1/"}`, "in full"},
		"a number":          {`{"url":"https://2130706433/"}`, "in full"},
		"in hexadecimal":    {`{"url":"https://0x7f.0.0.0x1/"}`, "in full"},
		"in octal":          {`{"url":"https://0177.0.0.1/"}`, "in full"},
		"dotted loopback":   {`{"url":"https://127.0.0.1./"}`, "public"},
		"too long":          {`{"url":"https://app.example.com/` + strings.Repeat("a", 2000) + `"}`, "2000"},
		"unknown event": {`{"url":"https://app.example.com/","events":["connection.created","connection.lost"]}`,
			"events[1]"},
		"event twice": {`{"url":"https://app.example.com/","events":["connection.created","connection.created"]}`,
			"events[1]: comes twice"},
		"events null": {`{"url":"https://app.example.com/","events":null}`, "events"},
		"events text": {`{"url":"https://app.example.com/","events":"connection.created"}`,
			"events: must be an array"},
		"status":         {`{"url":"https://app.example.com/","status":"active"}`, "status"},
		"unknown member": {`{"url":"https://app.example.com/","secret":"whsec_mine"}`, "secret"},
		"url twice": {`{"url":"https://app.example.com/","url":"https://app.example.com/"}`,
			"must come once"},
		"an address with zone": {`{"url":"https://[fe80::1%25eth0]/"}`, "public"},
	} {
		a := b.mine.Do(t, "POST", b.collection(), c.body)
		want(t, a, 400, "invalid_request")
		if !strings.Contains(a.Message, c.says) {
			t.Errorf("%s: says %q, not %q", name, a.Message, c.says)
		}
	}
	b.create(t, `{"url":"HTTPS://app.example.com/"}`)
	e := b.create(t, `{"url":"https://app.example.com:8443/hook?a=b"}`)
	for body, says := range map[string]string{
		`{"status":"deleted"}`:        "status",
		`{"status":null}`:             "status",
		`{"url":null}`:                "url",
		`{"url":"https://10.0.0.1/"}`: "public",
		`{"events":["x"]}`:            "events[0]",
		`{"id":"x"}`:                  "id",
	} {
		a := b.mine.Do(t, "PATCH", b.collection()+"/"+e.ID, body)
		want(t, a, 400, "invalid_request")
		if !strings.Contains(a.Message, says) {
			t.Errorf("PATCH %s: says %q", body, a.Message)
		}
	}
}

// Other apps get 404 for existing and unknown endpoints.
func TestForeignEndpointsDoNotExist(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, webhooks.Addresses{})
		e := b.create(t, `{"url":"https://app.example.com/"}`)
		sent := read[delivered](t,
			b.mine.Do(t, "POST", b.collection()+"/"+e.ID+"/test", `{"type":"connection.created"}`))
		for _, c := range []struct{ method, path, body string }{
			{"GET", "", ""}, {"PATCH", "", `{"status":"disabled"}`}, {"PATCH", "", `{`}, {"DELETE", "", ""},
			{"POST", "/rotate-secret", ""},
			{"POST", "/test", `{"type":"connection.created"}`}, {"GET", "/deliveries", ""},
			{"POST", "/deliveries/" + sent.ID + "/redeliver", ""},
		} {
			for _, app := range []string{b.mineID, b.otherID} { // somebody's app, or one's own with somebody's endpoint
				at := "/v1/apps/" + app + "/webhooks/"
				foreign := b.other.Do(t, c.method, at+e.ID+c.path, c.body)
				absent := b.other.Do(t, c.method, at+"whk_none"+c.path, c.body)
				want(t, foreign, 404, "not_found")
				if foreign.Body != absent.Body {
					t.Errorf("%s %s: %s, and of none %s", c.method, c.path, foreign.Body, absent.Body)
				}
			}
		}
		other := read[endpoint](t,
			b.other.Do(t, "POST", "/v1/apps/"+b.otherID+"/webhooks", `{"url":"https://other.example.com/"}`))
		for _, deliveryID := range []string{sent.ID, "whd_none"} { // a foreign delivery at one's own endpoint
			want(t, b.other.Do(t, "POST",
				"/v1/apps/"+b.otherID+"/webhooks/"+other.ID+"/deliveries/"+deliveryID+"/redeliver", ""), 404,
				"not_found")
		}
		for _, c := range [][2]string{{"GET", ""}, {"POST", `{"type":"connection.created"}`}} {
			foreign, absent := b.other.Do(t, c[0], "/v1/apps/"+b.mineID+"/events", c[1]),
				b.other.Do(t, c[0], "/v1/apps/app_none/events", c[1])
			if want(t, foreign, 404, "not_found"); foreign.Body != absent.Body {
				t.Errorf("events: %s, and of none %s", foreign.Body, absent.Body)
			}
		}
		if got := read[endpoint](t, b.mine.Do(t, "GET", b.collection()+"/"+e.ID, "")); got.Status != "active" {
			t.Errorf("somebody else changed it: %+v", got)
		}
	})
}

// Every type of event has a sample, which openapi.yaml describes: the client of
// this test checks the answers by it.
func TestSamplesOfAllEvents(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite), loopback)
	r := newReceiver(t, nil)
	b.create(t, `{"url":"`+r.URL+`"}`)
	for _, kind := range webhooks.Types {
		if a := b.mine.Do(t, "POST", "/v1/apps/"+b.mineID+"/events", `{"type":"`+kind+`"}`); a.Status != 200 ||
			!strings.Contains(a.Body, `"test":true`) {
			t.Errorf("%s: %v", kind, a)
		}
	}
	b.work(t)
	var told []string
	for _, c := range r.got() {
		var m struct{ Type string }
		if err := json.Unmarshal(c.body, &m); err != nil {
			t.Error(err)
		}
		told = append(told, m.Type)
	}
	slices.Sort(told)
	if all := slices.Sorted(slices.Values(webhooks.Types)); !slices.Equal(told, all) {
		t.Errorf("told %v", told)
	}
	want(t, b.mine.Do(t, "POST", "/v1/apps/"+b.mineID+"/events", `{"type":"connection.lost"}`), 400, "invalid_request")
	want(t, b.mine.Do(t, "POST", "/v1/apps/"+b.mineID+"/events", `{}`), 400, "invalid_request")
}

type told struct{ ID, Type string }

// Reading on from any place misses nothing, and what is sent again comes again.
func TestEventsAreReadInOrder(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		at := "/v1/apps/" + b.mineID + "/events"
		if a := b.mine.Do(t, "GET", at, ""); strings.TrimSpace(a.Body) != "[]" || a.Header.Get("Link") != "" {
			t.Errorf("at first there is %v", a)
		}
		e := b.create(t, `{"url":"`+newReceiver(t, nil).URL+`","events":["connection.created"]}`)
		b.connect(t)
		for range 3 {
			b.pause(t)
		}
		b.work(t)
		newest := read[[]told](t, b.mine.Do(t, "GET", at+"?limit=2", ""))
		if len(newest) != 2 || newest[0].Type != "connection.resumed" || newest[1].Type != "connection.frozen" {
			t.Errorf("the newest are %v", newest)
		}
		follow := func(next string) (all []told, places []string) {
			for pages := 0; next != ""; pages++ {
				a := b.mine.Do(t, "GET", next, "")
				page := read[[]told](t, a)
				if len(page) == 0 || len(page) > 3 || pages > 3 {
					t.Fatalf("%s: %d events on page %d", next, len(page), pages) // the link keeps the limit, and ends
				}
				all, places = append(all, page...), append(places, a.Header.Get("Svc-After"))
				next = strings.TrimSuffix(strings.TrimPrefix(a.Header.Get("Link"), "<"), `>; rel="next"`)
			}
			return all, places
		}
		all, places := follow(at + "?after=0&limit=3")
		back, newer := follow(at + "?limit=3")
		if slices.Reverse(back); !slices.Equal(back, all) || newer[0] != places[2] || newer[1] != "" {
			t.Errorf("from the newest back: %v with the places %q; all: %v, %q", back, newer, all, places)
		}
		if end := b.mine.Do(t, "GET", at+"?after="+places[2], ""); end.Header.Get("Svc-After") != places[2] ||
			end.Header.Get("Link") != "" || strings.TrimSpace(end.Body) != "[]" {
			t.Errorf("behind the newest: %v", end)
		}
		if len(all) != 7 || all[0].Type != "connection.created" || all[6] != newest[0] {
			t.Errorf("all are %v", all)
		}
		if rest := read[[]told](t, b.mine.Do(t, "GET", at+"?after="+all[4].ID, "")); !slices.Equal(rest, all[5:]) {
			t.Errorf("after the fifth there are %v", rest)
		}
		b.mine.Do(t, "POST", b.collection()+"/"+e.ID+"/deliveries/"+b.deliveries(t, e.ID)[0].ID+"/redeliver", "")
		if rest := read[[]told](t, b.mine.Do(t, "GET", at+"?after="+all[6].ID, "")); !slices.Equal(rest, all[:1]) {
			t.Errorf("sent again: %v", rest)
		}
		for _, q := range []string{"starting_after=evt_none", "after=0&starting_after=" + all[4].ID, "befor=x",
			"after=evt_none", "after=-1", "after=99999999999999999999", "limit=0", "limit=101",
			"limit=%2B5", "after=x&after=y"} {
			want(t, b.mine.Do(t, "GET", at+"?"+q, ""), 400, "invalid_request")
		}
		if a := b.other.Do(t, "GET", "/v1/apps/"+b.otherID+"/events?after=0", ""); strings.TrimSpace(a.Body) != "[]" {
			t.Errorf("another app reads %v", a)
		}
		want(t, b.other.Do(t, "GET", "/v1/apps/"+b.otherID+"/events?after="+all[0].ID, ""), 400, "invalid_request")
	})
}

// Events can be read for 90 days.
func TestOldEventsAreForgotten(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		at := "/v1/apps/" + b.mineID + "/events?after="
		list := func() (ids []string) {
			if err := b.store.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, e := range read[[]struct{ ID string }](t, b.mine.Do(t, "GET", at+"0", "")) {
				ids = append(ids, e.ID)
			}
			return ids
		}
		b.connect(t)
		b.work(t)
		b.clock.move(webhooks.DefaultRetention.Events)
		first := list()
		b.pause(t)
		b.work(t)
		if all := list(); len(all) != 3 || len(first) != 1 {
			t.Errorf("within 90 days: %v, then %v", first, all)
		}
		b.clock.move(time.Millisecond)
		if rest := list(); len(rest) != 2 || slices.Contains(rest, first[0]) {
			t.Errorf("after 90 days: %v", rest)
		}
		// Who has read it has missed nothing as long as the next one is kept, also if nothing happens for months.
		if next := read[[]told](t, b.mine.Do(t, "GET", at+first[0], "")); len(next) != 2 {
			t.Errorf("after the event that is no longer listed: %v", next)
		}
		b.clock.move(7*24*time.Hour - time.Millisecond)
		if rest := list(); len(rest) != 2 {
			t.Errorf("after a week more: %v", rest)
		}
		b.store.Retention.Events = 7*24*time.Hour - 2*time.Millisecond // as the operator says
		if rest := list(); len(rest) != 0 {
			t.Errorf("after a shorter retention: %v", rest)
		}
		want(t, b.mine.Do(t, "GET", at+first[0], ""), 400, "invalid_request")
	})
}

// cursorOf returns the cursor that an answer leads to.
func cursorOf(t *testing.T, a apitest.Answer) string {
	t.Helper()
	if a.Status != 200 {
		t.Fatalf("got %v", a)
	}
	return a.Header.Get("Svc-After")
}

// A cursor that has events behind it that are deleted is refused, also before the purge, and one that has none is not.
func TestCursorsEndWithTheirEvents(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		at := "/v1/apps/" + b.mineID + "/events?limit=1&after="
		b.connect(t)
		b.pause(t)
		b.work(t)
		one := cursorOf(t, b.mine.Do(t, "GET", at+"0", ""))
		two := cursorOf(t, b.mine.Do(t, "GET", at+one, ""))
		three := cursorOf(t, b.mine.Do(t, "GET", at+two, ""))
		b.clock.move(webhooks.DefaultRetention.Events + time.Hour)
		for _, purged := range []bool{false, true} {
			if purged {
				if err := b.store.Purge(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for _, old := range []string{one, two} {
				want(t, b.mine.Do(t, "GET", at+old, ""), 400, "invalid_request")
			}
			newest := b.mine.Do(t, "GET", strings.TrimSuffix(at, "&after="), "")
			if list := read[[]told](t, newest); len(list) != 0 || cursorOf(t, newest) != three {
				t.Errorf("purged %v: the newest are %v", purged, list)
			}
			a := b.mine.Do(t, "GET", at+three, "")
			if rest := read[[]told](t, a); len(rest) != 0 || cursorOf(t, a) != three {
				t.Errorf("purged %v: after the last event: %v, next %q", purged, rest, cursorOf(t, a))
			}
		}
		b.pause(t)
		b.work(t)
		if rest := read[[]told](t, b.mine.Do(t, "GET", at+three, "")); len(rest) != 1 {
			t.Errorf("after the last event there is %v", rest)
		}
	})
}

// A database that was restored to an earlier moment has other events at the same places, and may log the same events in
// another order. No cursor of its future is taken for one of its own.
func TestCursorsOfALostFuture(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		at := "/v1/apps/" + b.mineID + "/events?after="
		b.connect(t)
		b.work(t)
		kept := cursorOf(t, b.mine.Do(t, "GET", at+"0", ""))
		b.pause(t) // in the outbox when the backup is made
		b.work(t)
		lost := cursorOf(t, b.mine.Do(t, "GET", at+kept, ""))
		b.mine.Do(t, "POST", "/v1/apps/"+b.mineID+"/events", `{"type":"connection.updated"}`)
		b.work(t)
		future := cursorOf(t, b.mine.Do(t, "GET", at+lost, ""))
		for _, statement := range []string{
			`DELETE FROM event_log WHERE place > 1`, `UPDATE event_log_head SET place = 1`,
			`DELETE FROM events WHERE test = 1`, `UPDATE events SET passed = 0 WHERE seq > 1`,
		} {
			if _, err := d.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // before and after the places are taken again
			for _, cursor := range []string{lost, future, "2", "3", "4"} {
				want(t, b.mine.Do(t, "GET", at+cursor, ""), 400, "invalid_request")
			}
			b.pause(t)
			b.work(t)
		}
		if rest := read[[]told](t, b.mine.Do(t, "GET", at+kept, "")); len(rest) != 6 {
			t.Errorf("after the cursor that is in the backup: %v", rest)
		}
	})
}

// Numbers that an earlier version gave out lead on, while their entries are kept.
func TestCursorsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		at := "/v1/apps/" + b.mineID + "/events?after="
		b.connect(t)
		b.work(t)
		if _, err := d.ExecContext(t.Context(), `UPDATE event_log SET entry_id = NULL`); err != nil {
			t.Fatal(err)
		}
		b.pause(t)
		b.work(t)
		if rest := read[[]told](t, b.mine.Do(t, "GET", at+"1", "")); len(rest) != 2 {
			t.Errorf("after the entry of an earlier version: %v", rest)
		}
		want(t, b.mine.Do(t, "GET", at+"2", ""), 400, "invalid_request")
		want(t, b.other.Do(t, "GET", "/v1/apps/"+b.otherID+"/events?after=1", ""), 400, "invalid_request")
	})
}

// Failed deliveries are listed by pages, however many came later, and sent again.
func TestFailedDeliveriesAreFound(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		r := newReceiver(t, func(_ int, w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/refused" {
				w.WriteHeader(500)
			}
		})
		e := b.create(t, `{"url":"`+r.URL+`/refused","events":["connection.created","connection.frozen"]}`)
		at := b.collection() + "/" + e.ID
		b.connect(t)
		b.pause(t)
		for range 7 {
			b.work(t)
			b.clock.move(16 * time.Hour)
		}
		var lost int
		err := d.QueryRowContext(t.Context(), `SELECT SUM(lost) FROM webhook_days`).Scan(&lost)
		if err != nil || lost != 2 {
			t.Errorf("%d lost deliveries are counted (%v), want 2", lost, err)
		}
		b.mine.Do(t, "PATCH", at, `{"url":"`+r.URL+`/taken"}`)
		for range 60 {
			b.mine.Do(t, "POST", at+"/test", `{"type":"connection.updated"}`)
		}
		b.work(t)
		if latest := b.deliveries(t, e.ID); len(latest) != 50 || latest[49].Status != "delivered" {
			t.Errorf("%d latest deliveries", len(latest))
		}
		failed := at + "/deliveries?status=failed"
		first := b.mine.Do(t, "GET", failed+"&limit=1", "")
		page := read[[]delivered](t, first)
		next := strings.TrimSuffix(strings.TrimPrefix(first.Header.Get("Link"), "<"), `>; rel="next"`)
		page = append(page, read[[]delivered](t, b.mine.Do(t, "GET", next, ""))...)
		if len(page) != 2 || page[0].EventType == page[1].EventType || page[0].Status != "failed" {
			t.Errorf("failed are %+v", page)
		}
		if list := read[[]delivered](t, b.mine.Do(t, "GET", failed+"&type=connection.created", "")); len(list) != 1 {
			t.Errorf("of one type are %+v", list)
		}
		since := b.clock.now().Add(time.Hour).UTC().Format(time.RFC3339)
		if list := read[[]delivered](t, b.mine.Do(t, "GET", failed+"&since="+since, "")); len(list) != 0 {
			t.Errorf("since now are %+v", list)
		}
		for _, q := range []string{"status=lost", "type=x", "since=yesterday", "limit=0", "limit=101"} {
			want(t, b.mine.Do(t, "GET", at+"/deliveries?"+q, ""), 400, "invalid_request")
		}
		for body, status := range map[string]int{`{}`: 400, `{"since":"x"}`: 400, `{"since":"` + since + `"}`: 400} {
			want(t, b.mine.Do(t, "POST", at+"/recover", body), status, "invalid_request")
		}
		want(t, b.other.Do(t, "POST", at+"/recover", `{"since":"2026-11-21T00:00:00Z"}`), 404, "not_found")
		a := b.mine.Do(t, "POST", at+"/recover", `{"since":"2026-11-21T00:00:00Z"}`)
		if strings.TrimSpace(a.Body) != `{"queued":2,"has_more":false}` {
			t.Errorf("recover: %v", a)
		}
		b.work(t)
		if list := read[[]delivered](t, b.mine.Do(t, "GET", failed, "")); len(list) != 0 {
			t.Errorf("failed after the recovery: %+v", list)
		}
	})
}

func TestDeliveriesListed(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite), webhooks.Addresses{})
	e := b.create(t, `{"url":"https://app.example.com/"}`)
	var last string
	for i := range 60 {
		b.clock.move(1e9)
		last = read[delivered](t,
			b.mine.Do(t, "POST", fmt.Sprintf("%s/%s/test", b.collection(), e.ID),
				`{"type":"`+webhooks.Types[i%len(webhooks.Types)]+`"}`)).ID
	}
	if list := b.deliveries(t, e.ID); len(list) != 50 || list[0].ID != last || list[0].Status != "pending" ||
		list[0].NextAttemptAt == nil {
		t.Errorf("%d deliveries, the first %+v", len(list), list[0])
	}
}
