package dashboard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestMonthInWords shows why the spend of a month differs, with links that lead to the calls; others see none of it.
func TestMonthInWords(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d) // 21 November 2026
		w.Spend(w.conn, 20*money.Cent)
		const heading = `<h2 id="month">This month</h2>`
		if page := w.signedIn("person").Get("/dashboard").Want(t, 200).Body; strings.Contains(page, heading) {
			t.Error("the first month is explained")
		}
		w.Pass(30 * 24 * time.Hour)
		for range 7 {
			w.Spend(w.conn, 20*money.Cent)
		}
		b := w.signedIn("person")
		page := b.Get("/dashboard").Want(t, 200, heading).Body
		for _, text := range []string{
			"You spent $1.40 in December so far, $1.20 more than in the same days of November.",
			"All of it is because Live &lt;b&gt;App&lt;/b&gt; made 7 calls instead of 1.",
			`href="/activity?month=2026-12"`,
			`href="/activity?app=` + w.app.ID + `&amp;from=2026-12-01"`,
		} {
			if !strings.Contains(page, text) {
				t.Errorf("the overview lacks %q", text)
			}
		}
		body := b.Get("/activity?app="+w.app.ID+"&from=2026-12-01").Want(t, 200).Body
		if !strings.Contains(body, "−$1.40") {
			t.Errorf("the link does not lead to the calls:\n%s", body)
		}
		if page := w.signedIn("stranger").Get("/dashboard").Want(t, 200).Body; strings.Contains(page, heading) {
			t.Error("a stranger has a summary")
		}
	})
}
