package operator_test

import (
	"regexp"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestReconcile begins a comparison with Stripe by the API, adds to it, and shows its end. A move to another account at
// Stripe forgets the former one.
func TestReconcile(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, token)
		const path = "/v1/operator/reconciliations"
		want(t, "a time", b.api.Do(t, "POST", path, `{"since":"yesterday"}`), 400, "since: must be a time")
		want(t, "of the past", b.api.Do(t, "POST", path, `{"since":"2026-11-22T00:00:00Z"}`), 400, "since: must be")
		begun := b.api.Do(t, "POST", path, `{"since":"2026-11-01T00:00:00Z"}`)
		want(t, "asked", begun, 200, `"cause":"asked","status":"open","money_waits":false`)
		id := regexp.MustCompile(`rcn_\w+`).FindString(begun.Body)
		restored := b.api.Do(t, "POST", path, `{"after_restore":true}`)
		want(t, "after a restore", restored, 200, `"id":"`+id+`","object":"reconciliation","cause":"restored"`)
		want(t, "after a restore", restored, 200, `"money_waits":true`)
		if err := b.topups.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "the end", b.api.Do(t, "GET", path+"/"+id, ""), 200, `"status":"ended","money_waits":false`)
		if _, err := d.ExecContext(t.Context(), `UPDATE settings SET value = 'acct_former' WHERE name = $1`,
			settings.StripeAccount); err != nil {
			t.Fatal(err)
		}
		want(t, "a move", b.api.Do(t, "POST", path, `{"new_account":true}`), 200, `"status":"open"`)
		if kept, err := settings.Get(t.Context(), d, settings.StripeAccount); err != nil || kept != "" {
			t.Errorf("after a move the books are of %q, %v", kept, err)
		}
		want(t, "unknown", b.api.Do(t, "GET", path+"/rcn_0", ""), 404, "no such reconciliation")
		want(t, "log", b.api.Do(t, "GET", "/v1/operator/log?subject=stripe", ""), 200, `"action":"reconcile"`)
	})
}
