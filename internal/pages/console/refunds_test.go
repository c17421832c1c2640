package console_test

import (
	"net/url"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestRefundByTheConsole refunds a call of a user with the developer's money: first refused, because there is none, and
// then once.
func TestRefundByTheConsole(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		w.exec(`UPDATE apps SET tier = 'limited-live' WHERE id = $1`, w.app.ID)
		e := w.spend(w.connect(w.person.ID, false), "chat", "chat", money.Dollar, money.Dollar/4)
		path := w.mine("/requests/" + id.ReplacePrefix(e.ID, id.Ledger, id.Request))
		b.Get(path).Want(t, 200, `href="`+path+`/refund">Refund this call</a>`)
		b.Get(path+"/refund").Want(t, 200, "The user gets $1.25 back, and you pay it", "Refund $1.25")
		b.Post(path+"/refund", url.Values{}).Want(t, 422, "$0.25 of margin left", "balance has $0.00", "Refund $1.25")
		b.Get(path).Want(t, 200, "Refund this call")
		w.do(rules.TopUp{AccountID: w.developer.ID, AmountMC: 5 * money.Dollar})
		b.Post(path+"/refund", url.Values{}).Leads(t, path)
		b.Get(path).Want(t, 200, "Refunded", "View refund").Lacks(t, "Refund this call")
		b.Get(path+"/refund").Leads(t, path)
		b.Post(path+"/refund", url.Values{}).Leads(t, path)
		if is, err := store.GetBalance(t.Context(), d, w.developer.ID); err != nil || is.AvailableMC != 4*money.Dollar {
			t.Errorf("the developer has %+v, %v", is, err)
		}
	})
}
