package console_test

import (
	"encoding/csv"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestRevenueStatement downloads a month of a developer's apps as CSV and PDF: its lines add up to the margin that is
// left, and nobody else has a part in it. A name that a spreadsheet would compute stays a text.
func TestRevenueStatement(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		now := d.Now().UTC()
		month := func(n int) string {
			return time.Date(now.Year(), now.Month()+time.Month(n), 1, 0, 0, 0, 0, time.UTC).Format("2006-01")
		}
		address := "/developer/statements/" + month(0)
		b.Get("/developer/payouts").Want(t, 200).Lacks(t, "Revenue statements")
		b.Get(address+".csv").Want(t, 200, "Margin left,,0,0,0,0,0,0.00000000")
		w.exec(`UPDATE apps SET name = '=App(1) 日本' WHERE id = $1`, w.app.ID)
		c := w.connect(w.person.ID, false)
		w.spend(c, "", "", 1_000_000, 2_345_678)
		refunded := w.spend(c, "", "", 5, 777)
		w.do(rules.Reverse{EntryID: refunded.ID, AccountID: w.person.ID, Reason: "failed"})

		b.Get("/developer/payouts").Want(t, 200, "Revenue statements", `href="`+address+`.pdf"`,
			`href="`+address+`.csv"`)
		file := b.Get(address+".csv").Want(t, 200,
			"Margin of calls: =App(1) 日本,"+w.app.ID+",2,3346460,1000005,0,2346455,0.02346455",
			"Margin of refunded calls: =App(1) 日本,"+w.app.ID+",1,-782,-5,0,-777,-0.00000777").Body
		records, err := csv.NewReader(strings.NewReader(file)).ReadAll()
		if err != nil || len(records) != 5 {
			t.Fatalf("%v: %s", err, file)
		}
		var sum int64
		for _, r := range records[1 : len(records)-1] {
			mc, err := strconv.ParseInt(r[9], 10, 64)
			if sum += mc; err != nil || strings.HasPrefix(r[3], "=") {
				t.Errorf("%q: %v", r, err)
			}
		}
		if last := records[len(records)-1]; sum != 2_345_678 || last[9] != strconv.FormatInt(sum, 10) {
			t.Errorf("the lines make %s, which is not %q", money.MC(sum).Display(), last)
		}
		pdf := b.Get(address+".pdf").Want(t, 200)
		if again := b.Get(address + ".pdf"); !strings.HasPrefix(pdf.Body, "%PDF-") ||
			pdf.Header.Get("Content-Type") != "application/pdf" || len(again.Body) != len(pdf.Body) {
			t.Errorf("%.100q, %v", pdf.Body, pdf.Header)
		}
		b.Get("/developer/statements/"+month(-1)+".csv").Want(t, 200, "Margin left,,0,0,0,0,0,0.00000000")
		for _, path := range []string{month(1) + ".pdf", month(0), month(0) + ".txt", "2026-13.csv", "nothing.csv"} {
			b.Get("/developer/statements/"+path).Want(t, 404)
		}
		w.signedIn("other").Get(address+".csv").Want(t, 200).Lacks(t, "App(1)")
		if p := w.signedIn("person").Get(address + ".csv"); strings.Contains(p.Body, "App(1)") {
			t.Errorf("who is no developer: %s", p.Body)
		}
	})
}
