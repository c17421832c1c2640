package dashboard_test

import (
	"net/url"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestStaleLimits: a tab that was open while another one lowered the cap sets a daily limit, and nothing else; and the
// other way round.
func TestStaleLimits(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b, path := w.signedIn("person"), "/connections/"+w.conn.ID+"/increase"
		first := ""
		save := func(shown, spendCap, daily string) {
			t.Helper()
			b.Post(path, url.Values{"shown": {shown}, "spend_cap": {spendCap}, "daily_limit": {daily}}).Leads(t,
				path+"?saved=1")
		}
		want := func(capMC money.MC, daily money.MC) {
			t.Helper()
			c, err := store.GetConnection(t.Context(), d, w.conn.ID)
			if err != nil || c.AllocationMC != capMC || (daily == 0) != (c.VelocityLimitMC == nil) ||
				daily > 0 && *c.VelocityLimitMC != daily {
				t.Errorf("cap %d, daily limit %v", c.AllocationMC, c.VelocityLimitMC)
			}
		}
		first = b.Get(path).Shown(t, path)
		old := b.Get(path).Found(t, `id="spend_cap"[^>]* value="([^"]*)"`)
		save(b.Get(path).Shown(t, path), "2", "")
		want(2*money.Dollar, 0)
		save(first, old, "1")
		want(2*money.Dollar, money.Dollar)
		save(first, "3", "")
		want(3*money.Dollar, money.Dollar)
		save(b.Get(path).Shown(t, path), "3.00", "")
		want(3*money.Dollar, 0)
		// A preview and a refused form show what is in force now for what was not typed.
		query := url.Values{"shown": {first}, "spend_cap": {old}, "daily_limit": {"0.5"}}
		b.Get(path+"?"+query.Encode()).Want(t, 200, `value="3.00"`, `value="0.5"`, "Daily limit")
		query.Set("daily_limit", "x")
		b.Post(path, query).Want(t, 422, `value="3.00"`, `value="x"`)
	})
}
