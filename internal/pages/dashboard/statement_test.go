package dashboard_test

import (
	"encoding/csv"
	"strconv"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestMonthAsFile downloads a month as CSV and PDF: its lines add up to the balance to the micro-cent, and hostile and
// foreign names break neither.
func TestMonthAsFile(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		if _, err := d.ExecContext(t.Context(), `UPDATE apps SET name = $1`, "=HYPERLINK(1) 日本 Zoë"); err != nil {
			t.Fatal(err)
		}
		for _, mc := range []money.MC{33_412_345, 1, 12_345_678} {
			w.Spend(w.conn, mc)
		}
		refunded := w.Spend(w.conn, 777)
		w.Do(rules.Reverse{EntryID: refunded.ID, AccountID: w.conn.AccountID, Reason: "failed"})
		w.Do(rules.GiveGoodwill{
			GoodwillID: id.New(id.Goodwill, w.Now()),
			AccountID:  w.conn.AccountID,
			AmountMC:   5,
			Reason:     "Sorry.",
		})
		balance, err := store.GetBalance(t.Context(), d, w.conn.AccountID)
		if err != nil {
			t.Fatal(err)
		}
		b := w.signedIn("person")
		b.Get("/activity?month=2026-11").Want(t, 200, `href="/statements/2026-11.pdf"`,
			`href="/statements/2026-11.csv"`, `href="/statements/2026-11-focus.csv"`)
		file := b.Get("/statements/2026-11.csv").Want(t, 200).Body
		records, err := csv.NewReader(strings.NewReader(file)).ReadAll()
		if err != nil || len(records) < 6 {
			t.Fatalf("%v: %s", err, file)
		}
		var sum int64
		for _, r := range records[1 : len(records)-1] {
			mc, err := strconv.ParseInt(r[6], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += mc
			if strings.HasPrefix(r[3], "=") {
				t.Errorf("a formula: %q", r)
			}
		}
		if last := records[len(records)-1]; last[6] != strconv.FormatInt(sum, 10) ||
			sum != int64(balance.AvailableMC+balance.ReservedMC) ||
			!strings.Contains(file, "Calls: =HYPERLINK(1) 日本 Zoë") {
			t.Errorf("the lines make %d: %s", sum, file)
		}
		pdf := b.Get("/statements/2026-11.pdf").Want(t, 200)
		if again := b.Get("/statements/2026-11.pdf"); !strings.HasPrefix(pdf.Body, "%PDF-") ||
			pdf.Header.Get("Content-Type") != "application/pdf" || len(again.Body) != len(pdf.Body) {
			t.Errorf("%.100q, %v", pdf.Body, pdf.Header)
		}
		file = b.Get("/statements/2026-11-focus.csv").Want(t, 200).Body
		focus, err := csv.NewReader(strings.NewReader(file)).ReadAll()
		if err != nil || len(focus) != 6 {
			t.Fatalf("%v: %v", err, focus)
		}
		var billed money.MC
		for _, r := range focus[1:] {
			mc, err := strconv.ParseInt(strings.Replace(r[0], ".", "", 1), 10, 64)
			if billed += money.MC(mc); err != nil || r[3] != "USD" || strings.HasPrefix(r[21], "=") {
				t.Errorf("%v: %q", err, r)
			}
		}
		if billed != 33_412_345+1+12_345_678 {
			t.Errorf("FOCUS bills %d: %q", billed, focus)
		}
		b.Get("/statements/2026-10.csv").Want(t, 200, "Balance after,,0,0,0.00000000")
		for _, path := range []string{"2027-01.pdf", "2026-11", "2026-11.txt", "2026-13.csv", "nothing.csv",
			"2026-11-focus.pdf"} {
			b.Get("/statements/"+path).Want(t, 404)
		}
		// Nobody else has a part in it.
		w.signedIn("stranger").Get("/statements/2026-11.csv").Want(t, 200).Lacks(t, "Calls")
	})
}
