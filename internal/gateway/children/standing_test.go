package children_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestWhatTokensStandOn ends what an access token, a child of it, a child of that and an amount held for the app's own
// work stand on, in each way. Each then says the error of a new charge, "" for none. What is held already may be
// captured until the job of holds ends it after ten minutes, whatever else ends, as users are told, and can be read.
func TestWhatTokensStandOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end                        func(*world)
		token, child, below, again string // again: of the same family, refreshed or another one of the app
	}{
		"nothing ends": {end: func(*world) {}},
		"the user revokes": {
			end:   func(w *world) { w.Do(rules.Revoke{ConnectionID: w.conn.ID}) },
			token: "connection_revoked", child: "connection_revoked", below: "connection_revoked",
			again: "connection_revoked",
		},
		"the user pauses": {
			end:   func(w *world) { w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByUser}) },
			token: "connection_frozen", child: "connection_frozen", below: "connection_frozen",
			again: "connection_frozen",
		},
		"it spends too fast": {
			end:   func(w *world) { w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByRisk}) },
			token: "connection_frozen", child: "connection_frozen", below: "connection_frozen",
			again: "connection_frozen",
		},
		"the operator suspends the account": {
			end: func(w *world) {
				w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByOperator, Subject: rules.Suspension})
			},
			token: "connection_frozen", child: "connection_frozen", below: "connection_frozen",
			again: "connection_frozen",
		},
		"a payment is disputed": {
			end: func(w *world) {
				w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByPayment, Subject: "du_1"})
			},
			token: "connection_frozen", child: "connection_frozen", below: "connection_frozen",
			again: "connection_frozen",
		},
		"the app is suspended": {
			end: func(w *world) {
				if _, err := w.DB.ExecContext(w.Context(), `UPDATE apps SET suspended = 1`); err != nil {
					w.Fatal(err)
				}
			},
			token: "app_suspended", child: "app_suspended", below: "app_suspended", again: "app_suspended",
		},
		"the app revokes the family": {
			end: func(w *world) {
				if err := w.tokens.RevokeToken(w.Context(), w.app.ID, w.refresh); err != nil {
					w.Fatal(err)
				}
			},
			token: "unauthorized", child: "unauthorized", below: "connection_revoked",
		},
		"the child ends": {
			end: func(w *world) {
				if _, a := w.do(w.token, "POST", "/v1/connection/children/"+w.child+"/end", ""); a.Status != 200 {
					w.Fatalf("end: %d %s", a.Status, a.Body)
				}
			},
			child: "connection_revoked", below: "connection_revoked",
		},
		"an hour goes by": { // the access token and both children have ended by their time
			end:   func(w *world) { w.Pass(time.Hour + time.Second) },
			token: "unauthorized", child: "connection_revoked", below: "connection_revoked", again: "unauthorized",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, dbtest.Open(t, db.SQLite))
			first, again := w.issue(), w.issue()
			w.token, w.refresh = first.AccessToken, first.RefreshToken
			child := w.make(w.token, 5*money.Dollar, "")
			w.child = child.ID
			below := w.make(child.Token, 2*money.Dollar, "")
			holders := map[string]string{"token": w.token, "child": child.Token, "below": below.Token}
			held := map[string]string{}
			for who, token := range holders {
				hold, a := w.do(token, "POST", "/v1/holds", `{"amount_mc":1000,"description":"A search"}`,
					"Idempotency-Key", id.NewUUID())
				if a.Status != 200 {
					t.Fatalf("%s: %d %s", who, a.Status, a.Body)
				}
				held[who] = hold.ID
			}
			c.end(w)
			w.Pass(3 * time.Second) // callers are cached for two
			holders["again"] = again.AccessToken
			for who, want := range map[string]string{
				"token": c.token, "child": c.child, "below": c.below, "again": c.again,
			} {
				status, _, body := w.spend(holders[who], 1000)
				var answer struct{ Error struct{ Code string } }
				if body != "" {
					if err := json.Unmarshal([]byte(body), &answer); err != nil {
						t.Fatal(err)
					}
				}
				if got := answer.Error.Code; got != want || (status == 200) != (want == "") {
					t.Errorf("a charge by %s: %d %q, want %q", who, status, got, want)
				}
			}
			for who, holdID := range held {
				if a := w.byApp("POST", "/v1/holds/"+holdID+"/capture", ""); a.Status != 200 {
					t.Errorf("what %s held is captured: %d %s", who, a.Status, a.Body)
				}
				if a := w.byApp("GET", fmt.Sprint("/v1/holds/", holdID), ""); a.Status != 200 {
					t.Errorf("what %s held is read: %d %s", who, a.Status, a.Body)
				}
			}
		})
	}
}
