package operatorpages_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestSupportForms sends the form of each page that acts on an account, as the page has it, with what is true before
// and after.
func TestSupportForms(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b, person := w.signedIn("operator"), w.signedIn("person")
		account := "/operator/accounts/" + w.ids["person"]
		// send opens the page of an action and sends its form with a reason.
		send := func(action, reason string, more ...string) apitest.Page {
			t.Helper()
			to := b.Get(account+"/"+action).Want(t, 200).Found(t, `action="(/operator/accounts/[^"]+)"`)
			form := act(action, reason)
			for i := 0; i < len(more); i += 2 {
				form.Set(more[i], more[i+1])
			}
			return b.Post(to, form)
		}
		done := func(action string) string { return account + "?done=account-" + action }
		has := func(what string, want money.MC) {
			t.Helper()
			balance, err := store.GetBalance(t.Context(), d, w.ids["person"])
			if err != nil || balance.AvailableMC != want {
				t.Errorf("%s: %s available, should be %s; %v", what, balance.AvailableMC.Display(), want.Display(), err)
			}
		}

		send("credit", "Sorry.", "amount", "a dollar").Want(t, 422, "such as 5 or 0.50", "a dollar")
		send("credit", "Sorry.", "amount", "1000.01").Want(t, 422)
		send("credit", "", "amount", "1").Want(t, 422, "reason")
		has("refused", 15*money.Dollar)
		to := b.Get(account+"/credit").Found(t, `action="(/operator/accounts/[^"]+)"`)
		form := act("credit", "Sorry for the outage.")
		form.Set("amount", "1")
		for range 2 { // a form that is sent twice is one credit
			b.Post(to, form).Leads(t, done("credit"))
		}
		has("credited once", 16*money.Dollar)
		b.Get(done("credit")).Want(t, 200, "Goodwill credit given.")
		b.Post(account+"/credit", form).Want(t, 422, "open it again")

		person.Get("/operator").Want(t, 404)
		send("sign-out", "Lost a laptop.").Leads(t, done("sign-out"))
		person.Get("/operator").Leads(t, "/sign-in?next=%2Foperator")
		b.Get(account+"/reset-two-step").Want(t, 200, "This can’t be done").Lacks(t, `name="reason"`)
		w.exec(`UPDATE accounts SET two_step = 1 WHERE id = $1`, w.ids["person"])
		send("reset-two-step", "Verified by a call.").Leads(t, done("reset-two-step"))
		b.Get(account+"/reset-two-step").Want(t, 200, "This can’t be done")

		b.Get(account+"/lift").Want(t, 200, "This can’t be done")
		send("suspend", "Its owner <asked>.").Leads(t, done("suspend"))
		if c := w.Is(w.conn); c.Status != rules.Frozen {
			t.Errorf("the connection of a suspended account is %s", c.Status)
		}
		in := url.Values{"email": {"person@example.com"}, "password": {apitest.Password}}
		w.browser().Post("/sign-in", in).Want(t, 401)
		b.Get(account).Want(t, 200, "Its owner &lt;asked&gt;.").Lacks(t, account+`/suspend"`)
		send("lift", "It was a mistake.").Leads(t, done("lift"))
		if c := w.Is(w.conn); c.Status != rules.Active {
			t.Errorf("the connection of a reinstated account is %s", c.Status)
		}
		w.browser().Post("/sign-in", in).Want(t, 303)
		b.Get(account+"/close").Want(t, 200, "can’t be undone", "Close account")

		b.Post("/operator/invitations", url.Values{"email": {"no address"}}).Want(t, 422, "no address")
		page := b.Post("/operator/invitations", url.Values{"email": {"new@example.com"}}).Want(t, 200,
			"Invitation for new@example.com", "http://purser.example/")
		if strings.Contains(b.Get("/operator/log").Want(t, 200, "invite", "goodwill", "sign_out", "reset_two_step",
			"suspend", "lift").Body, page.Found(t, `(http://purser\.example/[^<"\s]+)`)) {
			t.Error("the audit log has the link of an invitation")
		}
	})
}
