package operatorpages_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// Whoever has the operator's token lets a person in, who then needs their second
// step; what they may do changes with the next request of a session that runs, and
// the last operator's role is taken like any other.
func TestRoleIsGivenAndTaken(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.admin.MFA = accounts.HasMFA
		api := apitest.Client{Base: w.URL, Bearer: token}
		grant := func(email, role string) apitest.Answer {
			return api.Do(t, "POST", "/v1/operator/roles", `{"email":"`+email+`","role":"`+role+`"}`)
		}
		b := w.signedIn("person")
		suspend := func() apitest.Page { return b.Post("/operator/apps/"+w.app.ID, act("suspend", "why")) }
		b.Get("/operator").Want(t, 404)
		if a := grant("Person@Example.com", "operator"); a.Body != `{"account_id":"`+w.ids["person"]+
			`","email":"person@example.com","role":"operator"}`+"\n" {
			t.Errorf("granted: %v", a)
		}
		b.Get("/operator").Want(t, 403, "Two-step verification required")
		suspend().Want(t, 403)
		b.Post("/second-step", url.Values{}).Want(t, 200)
		b.Get("/operator").Want(t, 200).Lacks(t, "You’re a viewer")
		if a := grant("person@example.com", "viewer"); a.Status != 200 {
			t.Errorf("less: %v", a)
		}
		b.Get("/operator").Want(t, 200, "You’re a viewer")
		suspend().Want(t, 403, "but change nothing")
		for _, email := range []string{"person@example.com", "viewer@example.com", "operator@example.com"} {
			if a := grant(email, "none"); a.Status != 200 {
				t.Errorf("taken from %s: %v", email, a)
			}
		}
		b.Get("/operator").Want(t, 404)
		suspend().Want(t, 404)
		b.Get("/").Lacks(t, `href="/operator"`)
		if a := grant("operator@example.com", "operator"); a.Status != 200 {
			t.Errorf("given back: %v", a)
		}

		w.exec(`UPDATE accounts SET unconfirmed = 1 WHERE id = $1`, w.ids["developer"])
		w.exec(`INSERT INTO accounts (id, email, password_hash, sandbox, owner_id, created_us) VALUES ('wac_test', 'tester@example.com', '', 1, $1, 1)`, w.ids["developer"])
		for email, says := range map[string]string{
			"nobody@example.com":    "no such account",
			"tester@example.com":    "no such account",
			"person":                "no such account",
			"developer@example.com": "email: this address is not confirmed yet",
			"person@example.com":    "role: is none already",
		} {
			role := "none"
			if says != "role: is none already" {
				role = "operator"
			}
			if a := grant(email, role); a.Message != says {
				t.Errorf("%s: %v", email, a)
			}
		}
		w.signedIn("viewer").Get("/operator").Want(t, 404)
		operator := w.signedIn("operator")
		operator.Post("/second-step", url.Values{}).Want(t, 200)
		log := operator.Get("/operator/log?action=grant").Want(t, 200, `href="/operator/accounts/`+w.ids["person"]+`"`,
			`title="`+w.ids["person"]+`">person@example.com</span></a>`)
		if n := strings.Count(log.Body, "with the operator’s token"); n != 6 { // never by a person
			t.Errorf("%d of 6 entries name the token as their actor", n)
		}
		w.actors(map[string]int{"127.0.0.1": 6, w.ids["person"]: 0})
	})
}
