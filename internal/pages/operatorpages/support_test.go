package operatorpages_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestSupportForms sends the form of each page that acts on an account, as the page has it, with what is true before
// and after.
func TestSupportForms(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
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
		w.exec(`INSERT INTO accounts (id, email, password_hash, sandbox, owner_id, created_us)
			VALUES ('wac_test', 'tester@example.com', '', 1, $1, 1)`, w.ids["developer"])
		b.Get("/operator/accounts/wac_test/credit").Want(t, 200, "This can’t be done").Lacks(t, `name="amount"`)
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
		b.Get(account+"/close").Want(t, 200, "can’t be undone", "Close account", "A balance of $21.00",
			"Goes to the card first")

		b.Post("/operator/invitations", url.Values{"email": {"no address"}}).Want(t, 422, "no address")
		page := b.Post("/operator/invitations", url.Values{"email": {"new@example.com"}}).Want(t, 200,
			"Invitation for new@example.com", "http://purser.example/")
		if strings.Contains(b.Get("/operator/log").Want(t, 200, "invite", "goodwill", "sign_out", "reset_two_step",
			"suspend", "lift").Body, page.Found(t, `(http://purser\.example/[^<"\s]+)`)) {
			t.Error("the audit log has the link of an invitation")
		}
	})
}

// TestRevokeAndSettle sends the forms by which an operator ends a connection, and settles what came back to an account
// after it was closed. The overview lists such an account, and only as long as it is owed something.
func TestRevokeAndSettle(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("operator")
		at := "/operator/connections/" + w.conn.ID
		b.Get(at).Want(t, 200, at+`/revoke"`)
		b.Get(at+"/revoke").Want(t, 200, "$5.00 returns to the user’s balance", "can’t be undone")
		b.Post(at+"/revoke", act("revoke", "")).Want(t, 422, "reason")
		b.Post(at+"/revoke", act("revoke", "The developer has <left>.")).Leads(t, at+"?done=revoke")
		if c := w.Is(w.conn); c.Status != rules.Revoked {
			t.Errorf("the connection is %s", c.Status)
		}
		b.Get(at+"?done=revoke").Want(t, 200, "Connection revoked").Lacks(t, at+`/revoke"`)
		b.Get(at+"/revoke").Want(t, 200, "This can’t be done")
		b.Post(at+"/revoke", act("revoke", "Again.")).Want(t, 422, "revoked already")

		account := "/operator/accounts/" + w.ids["person"]
		b.Get("/operator").Want(t, 200).Lacks(t, "Closed accounts that are owed money")
		b.Get(account).Want(t, 200).Lacks(t, account+`/settle"`)
		w.exec(`UPDATE accounts SET closed_us = 1 WHERE id = $1`, w.ids["person"])
		b.Get("/operator").Want(t, 200, "Closed accounts that are owed money", "$20.00", account)
		b.Get(account).Want(t, 200, account+`/settle"`, account+`/return"`).Lacks(t, account+`/close"`)
		form := act("settle", "Paid by bank transfer.")
		form.Set("amount", "21")
		b.Post(account+"/settle", form).Want(t, 422, "open it again")
		to := b.Get(account+"/settle").Found(t, `action="(/operator/accounts/[^"]+)"`)
		b.Post(to, form).Want(t, 422, "at most $20.00")
		for _, credit := range []string{"gwc_1", "gwc_2"} {
			w.Do(rules.GiveGoodwill{
				GoodwillID: credit, AccountID: w.ids["person"], AmountMC: 12 * money.Dollar, Reason: "Sorry.",
			})
		}
		form.Set("amount", "12")
		for range 2 { // sent again, it is one settlement
			b.Post(to, form).Leads(t, account+"?done=account-settle")
		}
		b.Get("/operator").Want(t, 200, "Closed accounts that are owed money", "$32.00")
	})
}

// TestClosingFormIsStale closes no account whose balance is another one than the page has shown, and says what has
// changed: neither if it changed before the form was sent, when nothing is done, nor while the account is closed.
func TestClosingFormIsStale(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b, accountID := w.signedIn("operator"), ""
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			a, err := w.accounts.Create(ctx, tx, accounts.NewAccount{Email: "stranger@example.com"})
			accountID = a.ID
			return err
		}); err != nil {
			t.Fatal(err)
		}
		path := "/operator/accounts/" + accountID + "/close"
		give := func(goodwillID string) rules.GiveGoodwill {
			return rules.GiveGoodwill{
				GoodwillID: goodwillID,
				AccountID:  accountID,
				AmountMC:   money.Dollar,
				Reason:     "Sorry.",
			}
		}
		closes := func(page apitest.Page) apitest.Page {
			t.Helper()
			form := act("close", "Asked for by its user.")
			form.Set("open", page.Found(t, `name="open" value="([^"]*)"`))
			return b.Post(path, form)
		}
		status := func() (s string) {
			t.Helper()
			a, err := w.accounts.Get(t.Context(), accountID)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case a.Closed:
				return "closed"
			case a.SuspendedUS > 0:
				return "suspended"
			}
			return "active"
		}
		w.Do(give("gwc_1"))
		page := b.Get(path).Want(t, 200, "A balance of $1.00")
		b.Post(path, act("close", "Without what was shown.")).Want(t, 422, "has changed", "a balance of $1.00")
		w.Do(give("gwc_2"))
		page = closes(page).Want(t, 422, "has changed", "a balance of $2.00")
		if s := status(); s != "active" {
			t.Fatalf("after a stale form: %s", s)
		}

		answer := make(chan apitest.Page, 1)
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if _, err := accounts.Lock(ctx, tx, accountID); err != nil {
				return err
			}
			go func() { answer <- closes(page) }()
			dbtest.AwaitLock(t, d)
			_, err := w.Ledger.DoTx(ctx, tx, give("gwc_3"))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		page = (<-answer).Want(t, 422, "has changed", "a balance of $3.00")
		if s := status(); s == "closed" || d.Engine == db.Postgres && s != "suspended" {
			t.Fatalf("after a credit beside the closing: %s", s)
		}
		closes(page).Leads(t, "/operator/accounts/"+accountID+"?done=account-close")
		if s := status(); s != "closed" {
			t.Errorf("the form of the last page: %s", s)
		}
	})
}
