package server_test

import (
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestRefundInTheSandbox refunds calls of a sandbox app by its API: the test account gets its charge back, and nobody
// pays for it.
func TestRefundInTheSandbox(t *testing.T) {
	t.Parallel()
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		p := apptest.Start(t, apptest.URL(t, e))
		app := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
		call := whole(t, p.Call("POST", luna, prompt("hello")))
		charge := int64(call.billing(t)["user_charge_mc"].(float64))
		path := "/v1/requests/" + call.header.Get("X-Request-Id")
		consumed := dbtest.Number(t, p.DB, `SELECT SUM(consumed_mc) FROM connections`)
		whole(t, p.Call("POST", path+"/refund", "")).wantAnswer(t, 401, "unauthorized") // with the access token
		wants(t, "unknown member", app.Do(t, "POST", path+"/refund", `{"amount_mc":1}`), 400, "invalid_request", "")
		first := app.Do(t, "POST", path+"/refund", `{"reason":"The answer was cut off."}`)
		wants(t, "refund", first, 200, "", `"reason":"The answer was cut off."`)
		wants(t, "refund", first, 200, "", `"paid_from_balance_mc":0,"sandbox":true`)
		again := app.Do(t, "POST", path+"/refund", "")
		if again.Body != first.Body {
			t.Errorf("again: %v, first %v", again, first)
		}
		if now := dbtest.Number(t, p.DB, `SELECT SUM(consumed_mc) FROM connections`); consumed-now != charge {
			t.Errorf("%v consumed after a refund of %v, %v before", now, charge, consumed)
		}
		wants(t, "receipt", app.Do(t, "GET", path, ""), 200, "", `"reversed_by":"led_`)
		refused := whole(t, p.Call("POST", "/v1/ai/no-such-model", prompt("hello"))).header.Get("X-Request-Id")
		wants(t, "refused call", app.Do(t, "POST", "/v1/requests/"+refused+"/refund", ""), 400, "invalid_request",
			"not billed: it is refused")
		event := textOf(t, p.DB, `SELECT data FROM events WHERE type = 'request.refunded'`)
		if !strings.Contains(event, call.header.Get("X-Request-Id")) {
			t.Errorf("event request.refunded: %s", event)
		}
	})
}
