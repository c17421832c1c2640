package notices_test

import (
	"context"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestReportSuspension tells the developer of a suspended app by an email and an event, which both say why. If the
// suspension is rolled back, neither remains.
func TestReportSuspension(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d, "Notes", "")
		w.Ledger = apitest.StartLedger(t, d, w.Mails.Now)
		const reason = "users were charged $300.00 within an hour"
		suspend := func(end error) error {
			return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				_, after, err := w.Apps.Suspend(ctx, tx, w.app.ID, apps.ByRisk, reason)
				if err != nil {
					return err
				}
				if err := w.ReportSuspension(ctx, tx, after); err != nil {
					return err
				}
				return end
			})
		}
		if err := suspend(context.Canceled); err == nil || len(w.all()) != 0 {
			t.Errorf("%v, %d mails", err, len(w.all()))
		}
		if err := suspend(nil); err != nil {
			t.Fatal(err)
		}
		list := w.all()
		if len(list) != 1 || list[0].To != w.developer.Email || list[0].Subject != "Notes is suspended" ||
			!strings.Contains(list[0].Text, "Users were charged $300.00 within an hour.") ||
			!strings.Contains(list[0].Text, "/developer/apps/"+w.app.ID) {
			t.Errorf("mails: %+v", list)
		}
		var n int
		var data string
		if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*), MAX(data) FROM events WHERE type = 'app.suspended'
			AND app_id = $1 AND connection_id IS NULL AND seq = 0`, w.app.ID).Scan(&n, &data); err != nil || n != 1 {
			t.Fatalf("%d events, %v", n, err)
		}
		want := `{"app":{"id":"` + w.app.ID + `","reason":"` + reason + `",` +
			`"suspended_at":"2026-11-21T10:00:00.000Z","suspended_by":"risk"}}`
		if data != want {
			t.Errorf("the event has %s", data)
		}
	})
}
