package dashboard_test

import (
	"net/url"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestOwnWorkIsShown shows what an app charged for work of its own among the calls, by what it did, on its receipt, and
// while it is held.
func TestOwnWorkIsShown(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		hold := func() rules.Call {
			call := rules.Call{
				ConnectionID: w.conn.ID,
				AccountID:    w.conn.AccountID,
				AppID:        w.conn.AppID,
				Key:          id.NewSecret(),
				RequestID:    id.New(id.Request, w.Now()),
				Fingerprint:  "f",
				Model:        policy.OwnWork,
				Terms: policy.WorkTerms{
					AmountMC:    20 * money.Cent,
					Description: "Search of <12> archives",
					Fee:         money.One / 20,
				}.JSON(),
				HoldMC: 20 * money.Cent,
			}
			w.Do(rules.Hold{Call: call, NodeID: "node_1", Claim: call.RequestID, Pending: policy.OwnWork})
			return call
		}
		e := w.Do(rules.Settle{
			Call:       hold(),
			Attempt:    1,
			Settlement: rules.Settled,
			Usage:      rules.Usage{JSON: policy.WorkUsage(10 * money.Cent)},
			Charge: rules.Amounts{
				SvcFeeMC:     money.Cent / 2,
				DevMarginMC:  10*money.Cent - money.Cent/2,
				UserChargeMC: 10 * money.Cent,
			},
			Receipt: receipts.JSON,
			Held:    true,
		}).Entry
		b := w.signedIn("person")
		b.Get("/activity").Want(t, 200, "Search of &lt;12&gt; archives", "−$0.10")
		b.Get("/activity/"+e.ID).Want(t, 200, "Work for", "No provider was paid", "Service fee",
			"charged $0.10 for its own work: “Search of &lt;12&gt; archives”").Lacks(t, "reported by the provider")
		held := hold()
		path, until := "/connections/"+w.conn.ID, "own work, until"
		b.Get(path).Want(t, 200, "Held for its own work", "Search of &lt;12&gt; archives", "$0.20")
		b.Get(path+"/revoke").Want(t, 200, `up to <strong class="num">$0.20</strong> of that for its own work, until`)
		b.Get("/dashboard/pause").Want(t, 200, "What apps hold for their own work, they can still charge: up to $0.20")
		b.Post(path+"/freeze", url.Values{}).Leads(t, path+"?done=freeze")
		b.Get(path+"?done=freeze").Want(t, 200, "the app can still charge up to $0.20 that it holds for its own work")
		b.Get(path+"/review").Want(t, 200, "It can still charge up to $0.20 that it holds for its "+until)
		w.Do(rules.Revoke{ConnectionID: w.conn.ID})
		b.Get(path).Want(t, 200, "Held for its own work", "What is neither spent nor held is back")
		for _, page := range []string{path + "/review", path + "/increase"} {
			b.Get(page).Want(t, 200, "The app can still charge up to $0.20 for its "+until)
		}
		b.Get("/requests/"+held.RequestID).Want(t, 200, "Up to $0.20 is held", "“Search of &lt;12&gt; archives”")
	})
}
