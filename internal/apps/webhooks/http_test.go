package webhooks_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
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

// Reading on from any place misses nothing, and what is sent again comes again.
func TestEventsAreReadInOrder(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		at := "/v1/apps/" + b.mineID + "/events"
		type told struct{ ID, Type string }
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
		var all []told
		for next := at + "?after=0&limit=3"; ; {
			a := b.mine.Do(t, "GET", next, "")
			page := read[[]told](t, a)
			if len(page) > 3 {
				t.Errorf("%s: %d events", next, len(page)) // the link keeps the limit
			}
			if all = append(all, page...); len(page) == 0 {
				break
			}
			next = strings.TrimSuffix(strings.TrimPrefix(a.Header.Get("Link"), "<"), `>; rel="next"`)
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
		for _, q := range []string{"after=evt_none", "after=-1", "after=99999999999999999999", "limit=0", "limit=101",
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
		told := func() (ids []string) {
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
		first := told()
		b.pause(t)
		b.work(t)
		if all := told(); len(all) != 3 || len(first) != 1 {
			t.Errorf("within 90 days: %v, then %v", first, all)
		}
		b.clock.move(time.Millisecond)
		if rest := told(); len(rest) != 2 || slices.Contains(rest, first[0]) {
			t.Errorf("after 90 days: %v", rest)
		}
		want(t, b.mine.Do(t, "GET", at+first[0], ""), 400, "invalid_request")
		b.clock.move(7*24*time.Hour - time.Millisecond)
		if rest := told(); len(rest) != 2 {
			t.Errorf("after a week more: %v", rest)
		}
		b.store.Retention.Events = 7*24*time.Hour - 2*time.Millisecond // as the operator says
		if rest := told(); len(rest) != 0 {
			t.Errorf("after a shorter retention: %v", rest)
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
