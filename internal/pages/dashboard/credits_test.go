package dashboard_test

import (
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestGoodwillIsNamed checks that a goodwill credit and its withdrawal have names of their own wherever a user reads
// ledger rows, and that a reversed payment is not taken for one.
func TestGoodwillIsNamed(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		given := w.Do(rules.GiveGoodwill{
			GoodwillID: "gwc_1",
			AccountID:  w.conn.AccountID,
			AmountMC:   3 * money.Dollar,
			Reason:     "Sorry for the outage.",
		}).Entry
		back := w.Do(rules.WithdrawGoodwill{GoodwillID: "gwc_1", Reason: "Given twice."}).Entry
		w.Do(rules.OpenPayment{PaymentID: "pay_1", AccountID: w.conn.AccountID, AmountMC: 7 * money.Dollar})
		failed := w.Do(rules.FailPayment{PaymentID: "pay_1", Reason: "expired"}).Entry

		b := w.signedIn("person")
		b.Get("/activity").Want(t, 200, "Goodwill credit withdrawn", "Top-up failed", "−$3.00")
		b.Get("/activity.csv").Want(t, 200, back.ID, ",Goodwill credit withdrawn,topup,reversed,"+given.ID,
			",Goodwill credit,topup,settled,", ",Top-up failed,topup,reversed,")
		b.Get("/activity/"+back.ID).Want(t, 200, "<h1>Goodwill credit withdrawn", "We took back $3.00", "Given twice.",
			`href="/activity/`+given.ID+`"`)
		b.Get("/activity/"+given.ID).Want(t, 200, "We credited $3.00", "Sorry for the outage.")
		b.Get("/activity/"+failed.ID).Want(t, 200, "<h1>Top-up failed").Lacks(t, "oodwill")
	})
}

// TestCapSaysWhatItPaysFor checks that the pages on which a user changes a spend cap say, for the cap now and for the
// other one, for how many answers what is left of it pays.
func TestCapSaysWhatItPaysFor(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		request, increase := w.ask(w.conn, 12*money.Dollar, ""), "/connections/"+w.conn.ID+"/increase"
		b := w.signedIn("person")
		for _, page := range []string{request, increase} {
			b.Get(page).Want(t, 200, "left").Lacks(t, "usual size") // no calls yet
		}
		if _, err := d.ExecContext(t.Context(), `INSERT INTO daily_totals (day, connection_id, feature, model, app_id,
			account_id, calls, input_tokens, output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
			VALUES ($1, 'conn_x', '', 'm', $2, 'wac_x', 20, 0, 0, 0, 0, 0, $3)`,
			d.Now().UTC().Format("2006-01-02"), w.app.ID, 20*money.Cent); err != nil {
			t.Fatal(err)
		}
		now := `$5.00</strong> left, for about <strong class="num">500</strong> answers of this app’s usual size`
		b.Get(request).Want(t, 200, now, `$12.00</strong> left, for about <strong class="num">1,200</strong> answers`)
		b.Get(increase).Want(t, 200, now)
		b.Get(increase+"?spend_cap=0.01").Want(t, 200, now,
			`$0.01</strong> left, for about <strong class="num">1</strong> answer of`)
	})
}
