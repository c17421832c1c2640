package connections_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func asking(target money.MC, reason string) string {
	return fmt.Sprintf(`{"target_allocation_mc":%d,"reason":%q}`, target, reason)
}

// The whole way of contract §4.5 and §3: asked, superseded, decided, listed.
func TestAskForMore(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		c := b.connect("a", 5*money.Dollar)
		path := "/v1/connections/" + c.ID + "/allocation-requests"
		if got := b.mine.Do(t, "GET", path, ""); got.Status != 200 || got.Body != "[]\n" {
			t.Errorf("before: %v", got)
		}

		first := read[object](t, b.mine.Do(t, "POST", path, asking(8*money.Dollar, `40 more <b>pages</b>`)))
		requestID := first["id"].(string)
		expected := object{
			"id":                         requestID,
			"connection_id":              c.ID,
			"status":                     "pending",
			"reason":                     `40 more <b>pages</b>`,
			"current_allocation_mc":      5e8,
			"current_allocation_display": "$5.00",
			"target_allocation_mc":       8e8,
			"target_allocation_display":  "$8.00",
			"superseded_by":              nil,
			"decided_at":                 nil,
			"created_at":                 first["created_at"],
			"approval_url":               "https://purser.example.com/allocation-requests/" + requestID,
		}
		if diff := cmp.Diff(expected, first); diff != "" || !strings.HasPrefix(requestID, id.AllocationRequest) {
			t.Errorf("%s %s", requestID, diff)
		}
		if diff := cmp.Diff(first, read[object](t, b.mine.Do(t, "GET", path+"/"+requestID, ""))); diff != "" {
			t.Errorf("GET differs from the POST's answer: %s", diff)
		}

		second := read[object](t, b.mine.Do(t, "POST", path, `{"target_allocation_mc":900000000,"reason":""}`))
		first["status"], first["superseded_by"] = "superseded", second["id"]
		if second["reason"] != nil {
			t.Errorf("no reason is shown as %v", second["reason"])
		}
		if diff := cmp.Diff([]object{second, first}, read[[]object](t, b.mine.Do(t, "GET", path, ""))); diff != "" {
			t.Errorf("the list: %s", diff)
		}
		page := b.mine.Do(t, "GET", path+"?limit=1", "")
		next, _, _ := strings.Cut(strings.TrimPrefix(page.Header.Get("Link"), "<"), ">")
		if diff := cmp.Diff([]object{first}, read[[]object](t, b.mine.Do(t, "GET", next, ""))); diff != "" {
			t.Errorf("the second page: %s", diff)
		}

		b.do(rules.DecideAllocationRequest{
			RequestID: second["id"].(string),
			AccountID: "wac_a",
			Approve:   true,
			MaxMC:     money.Max,
		})
		decided := read[object](t, b.mine.Do(t, "GET", path+"/"+second["id"].(string), ""))
		if decided["status"] != "approved" || decided["decided_at"] == nil || decided["current_allocation_mc"] != 5e8 {
			t.Errorf("approved: %v", decided)
		}
		if got := read[object](t, b.mine.Do(t, "GET", "/v1/connections/"+c.ID, "")); got["allocation_mc"] != 9e8 {
			t.Errorf("the cap after approval: %v", got["allocation_mc"])
		}
	})
}

// What the app is told is the request as its GET shows it, less the page's
// address, which whoever delivers the event adds; nothing of the user's balance.
func TestRaiseEvents(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		c := b.connect("a", 5*money.Dollar)
		path := "/v1/connections/" + c.ID + "/allocation-requests"
		asked := read[object](t, b.mine.Do(t, "POST", path, asking(8*money.Dollar, "more")))
		b.do(rules.DecideAllocationRequest{RequestID: asked["id"].(string), AccountID: "wac_a", MaxMC: money.Max})
		denied := read[object](t, b.mine.Do(t, "GET", path+"/"+asked["id"].(string), ""))
		rows, err := d.QueryContext(t.Context(), `SELECT type, seq, data FROM events
			WHERE connection_id = $1 AND type LIKE 'allocation_change.%' ORDER BY seq`, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		type event struct {
			kind string
			seq  int
			data string
		}
		var got []event
		for rows.Next() {
			var e event
			if err := rows.Scan(&e.kind, &e.seq, &e.data); err != nil {
				t.Fatal(err)
			}
			got = append(got, e)
		}
		if len(got) != 2 || got[0].kind != "allocation_change.requested" || got[0].seq != 2 ||
			got[1].kind != "allocation_change.denied" || got[1].seq != 3 {
			t.Fatalf("%+v", got)
		}
		for i, want := range []object{asked, denied} {
			data := read[map[string]object](t, apitest.Answer{Status: 200, Body: got[i].data})
			delete(want, "approval_url")
			if diff := cmp.Diff(map[string]object{"allocation_request": want}, data); diff != "" {
				t.Errorf("%s: %s", got[i].kind, diff)
			}
		}
	})
}

// The edges of what may be asked for: more than the cap there is, at most the
// tier's.
func TestHowMuchMayBeAsked(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		c := b.connect("a", 5*money.Dollar)
		path := "/v1/connections/" + c.ID + "/allocation-requests"
		tier := func(name string) {
			t.Helper()
			if _, err := d.ExecContext(t.Context(), `UPDATE apps SET tier = $1`, name); err != nil {
				t.Fatal(err)
			}
		}
		tier("limited-live")
		for _, ask := range []struct {
			target money.MC
			status int
		}{
			{5*money.Dollar - 1, 400}, {5 * money.Dollar, 400}, {5*money.Dollar + 1, 200},
			{25*money.Dollar - 1, 200}, {25 * money.Dollar, 200}, {25*money.Dollar + 1, 400},
		} {
			if got := b.mine.Do(t, "POST", path, asking(ask.target, "more")); got.Status != ask.status {
				t.Errorf("%d: %v, want %d", ask.target, got, ask.status)
			}
		}
		tier("full-live") // promoted: at once
		want(t, b.mine.Do(t, "POST", path, asking(25*money.Dollar+1, "more")), 200, "")
		want(t, b.mine.Do(t, "POST", path, asking(money.Max, "more")), 200, "")
		want(t, b.mine.Do(t, "POST", path, asking(money.Max+1, "more")), 400, "invalid_request")
	})
}

// Whom and what one may not ask; each refusal leaves no request.
func TestWhoMayAsk(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		c := b.connect("a", 5*money.Dollar)
		path := "/v1/connections/" + c.ID + "/allocation-requests"
		asked := read[object](t, b.mine.Do(t, "POST", path, asking(8*money.Dollar, "more")))["id"].(string)
		other := b.connect("b", 5*money.Dollar)
		for _, r := range []struct{ method, suffix, body string }{
			{"GET", "", ""},
			{"POST", "", asking(9*money.Dollar, "more")},
			{"POST", "", "{"},
			{"GET", "/" + asked, ""},
		} {
			foreign := b.other.Do(t, r.method, path+r.suffix, r.body)
			absent := b.other.Do(t, r.method, "/v1/connections/conn_none/allocation-requests"+r.suffix, r.body)
			want(t, foreign, 404, "not_found")
			if foreign.Body != absent.Body {
				t.Errorf("%s %s: a foreign connection is told from none: %s and %s", r.method, r.suffix, foreign.Body,
					absent.Body)
			}
		}
		// A request of another connection is not there, either.
		elsewhere := b.mine.Do(t, "GET", "/v1/connections/"+other.ID+"/allocation-requests/"+asked, "")
		want(t, elsewhere, 404, "not_found")
		if absent := b.mine.Do(t, "GET", "/v1/connections/"+other.ID+"/allocation-requests/acr_none",
			""); absent.Body != elsewhere.Body {
			t.Errorf("%s and %s", elsewhere.Body, absent.Body)
		}
		if _, err := d.ExecContext(t.Context(), `UPDATE apps SET suspended = 1`); err != nil {
			t.Fatal(err)
		}
		want(t, b.mine.Do(t, "POST", path, asking(9*money.Dollar, "more")), 403, "app_suspended")
		if _, err := d.ExecContext(t.Context(), `UPDATE apps SET suspended = 0`); err != nil {
			t.Fatal(err)
		}
		b.do(rules.Revoke{ConnectionID: c.ID})
		want(t, b.mine.Do(t, "POST", path, asking(9*money.Dollar, "more")), 403, "connection_revoked")
		if list := read[[]object](t, b.mine.Do(t, "GET", path, "")); len(list) != 1 || list[0]["id"] != asked {
			t.Errorf("requests: %v", list)
		}
	})
}
