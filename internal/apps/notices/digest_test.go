package notices_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/notices"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// spend writes a daily total of an account, as the ledger keeps it.
func (w *world) spend(accountID, appID, day string, calls int64, mc money.MC) {
	w.t.Helper()
	connectionID := "conn_" + accountID + appID
	for _, query := range []string{
		`INSERT INTO connections (id, app_id, account_id, allocation_mc, consumed_mc, held_mc, status, spent, event_seq,
			created_us) VALUES ($1, $2, $3, 0, 0, 0, 'active', '', 0, 1) ON CONFLICT DO NOTHING`,
	} {
		if _, err := w.DB.ExecContext(w.t.Context(), query, connectionID, appID, accountID); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := w.DB.ExecContext(w.t.Context(), `INSERT INTO rollups (day, connection_id, feature, model, app_id,
			account_id, calls, input_tokens, output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
		VALUES ($1, $2, '', 'm', $3, $4, $5, 0, 0, $6, 0, 0, $6)`,
		day, connectionID, appID, accountID, calls, int64(mc)); err != nil {
		w.t.Fatal(err)
	}
}

// at sets the clock.
func (w *world) at(text string) {
	w.t.Helper()
	now, err := time.Parse(time.RFC3339, text)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Mails.Now = func() time.Time { return now }
}

// A summary comes on Monday to an account whose apps made calls in the week, and says what each
// spent, the total, and the comparison with the week before.
func TestDigest(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d, "Story <b>teller", "")
		w.spend(w.ada.ID, w.app.ID, "2026-11-15", 9, 130*money.Cent) // the week before
		w.spend(w.ada.ID, w.app.ID, "2026-11-16", 30, 90*money.Cent)
		w.spend(w.ada.ID, w.app.ID, "2026-11-22", 8, 16_400_000)
		w.spend(w.ada.ID, "app_gone", "2026-11-20", 1, 5_500_000)
		w.spend(w.ada.ID, w.app.ID, "2026-11-23", 8, 7*money.Dollar) // this week
		w.spend(w.test.ID, w.app.ID, "2026-11-20", 8, money.Dollar)
		for _, early := range []string{"2026-11-21T10:00:00Z", "2026-11-22T23:59:59Z", "2026-11-23T05:59:59Z",
			"2026-11-25T06:00:00Z", "2026-11-29T12:00:00Z"} {
			w.at(early)
			if err := w.QueueDigests(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(w.all()); n != 0 {
			t.Fatalf("%d mails before it is time", n)
		}
		w.at("2026-11-23T06:00:00Z")
		for range 3 {
			if err := w.QueueDigests(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.at("2026-11-25T05:59:59Z")
		if err := w.QueueDigests(t.Context()); err != nil {
			t.Fatal(err)
		}
		list := w.all()
		if len(list) != 1 {
			t.Fatalf("%d mails, want one", len(list))
		}
		m := list[0]
		if m.To != "ada@example.com" || m.Subject != "Your week: 2 apps, $1.12, 13% less" ||
			m.Unsubscribe != dashboard+"/unsubscribe/"+w.Stops.SignDigest(w.ada.ID) {
			t.Errorf("to %s: %q, unsubscribe %s", m.To, m.Subject, m.Unsubscribe)
		}
		for _, want := range []string{
			"From 16 November to 22 November, 2 apps made 39 calls for $1.12. That is 13% less than the week before.",
			"Story <b>teller (38 calls): $1.06\n", "app_gone (1 call): $0.06\n", "Total: $1.12\n",
			"View activity: " + dashboard + "/activity?from=2026-11-16&to=2026-11-22\n",
			"Unsubscribe: " + m.Unsubscribe,
		} {
			if !strings.Contains(m.Text, want) {
				t.Errorf("the text lacks %q:\n%s", want, m.Text)
			}
		}
		for _, want := range []string{"Story &lt;b&gt;teller", "$1.06", "$0.06", "$1.12",
			"/activity?app=" + w.app.ID + "&amp;from=2026-11-16"} {
			if !strings.Contains(m.HTML, want) {
				t.Errorf("the HTML lacks %q:\n%s", want, m.HTML)
			}
		}
		w.at("2026-11-30T07:00:00Z")
		if err := w.QueueDigests(t.Context()); err != nil {
			t.Fatal(err)
		}
		if list = w.all(); len(list) != 2 ||
			!strings.Contains(list[0].Subject+list[1].Subject, "1 app, $7.00, 525% more") {
			t.Errorf("the next week: %+v", list)
		}
	})
}

// An account that turned the summary off, by its page or by the one click of a mail program, gets
// none. Its notices stay as they are, and turning them off leaves the summary.
func TestDigestOff(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d, "Notes", password)
		digest := func() bool {
			t.Helper()
			a, err := w.accounts.Get(t.Context(), w.ada.ID)
			if err != nil {
				t.Fatal(err)
			}
			return a.Digest
		}
		path := "/unsubscribe/" + w.Stops.SignDigest(w.ada.ID)
		if resp, page := w.do("GET", path, "", "", ""); resp.StatusCode != 200 || !digest() ||
			!strings.Contains(page, "weekly summary") {
			t.Fatalf("GET: %d, on is %v\n%s", resp.StatusCode, digest(), page)
		}
		forged := strings.Replace(w.Stops.Sign(w.ada.ID), ".", "~digest.", 1)
		if resp, _ := w.do("POST", "/unsubscribe/"+forged, "", form, ""); resp.StatusCode != 404 || !digest() {
			t.Errorf("a link of the notices turns off the summary: %d", resp.StatusCode)
		}
		if resp, _ := w.do("POST", path, "", form, "List-Unsubscribe=One-Click"); resp.StatusCode != 200 || digest() ||
			!w.on(w.ada.ID) {
			t.Errorf("POST: %d, on is %v, notices %v", resp.StatusCode, digest(), w.on(w.ada.ID))
		}
		w.spend(w.ada.ID, w.app.ID, "2026-11-16", 30, money.Dollar)
		w.at("2026-11-23T06:00:00Z")
		if err := w.QueueDigests(t.Context()); err != nil || len(w.all()) != 0 {
			t.Errorf("%d mails to an account that turned them off: %v", len(w.all()), err)
		}
		ada := w.signIn("ada@example.com")
		for body, want := range map[string]struct {
			status int
			on     bool
		}{
			"notices=off&digest=on": {200, true}, "notices=on&digest=off": {200, false},
			"notices=on": {200, false}, "notices=on&digest=x": {400, false},
		} {
			if err := w.accounts.SetDigest(t.Context(), w.ada.ID, want.on); err != nil {
				t.Fatal(err)
			}
			if resp, _ := w.do("POST", "/settings/notices", ada, form, body); resp.StatusCode != want.status ||
				digest() != want.on {
				t.Errorf("%s: %d, on is %v", body, resp.StatusCode, digest())
			}
		}
	})
}

// Nodes that queue at the same time, in more than one batch, send each account one summary; a node
// that stops leaves the rest to the next run.
func TestDigestsOfManyNodes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d, "Notes", "")
		const people = 120
		for i := range people {
			accountID := fmt.Sprintf("wac_%03d", i)
			if _, err := d.ExecContext(t.Context(), `INSERT INTO accounts (id, email, password_hash, created_us)
				VALUES ($1, $2, '', 1)`, accountID, accountID+"@example.com"); err != nil {
				t.Fatal(err)
			}
			w.spend(accountID, w.app.ID, "2026-11-18", 1, money.Cent)
		}
		w.at("2026-11-23T08:00:00Z")
		other := *w.Store
		other.Mails = &mail.Store{DB: d, Now: w.Mails.Now}
		var wg sync.WaitGroup
		for _, node := range []*notices.Store{w.Store, &other, w.Store} {
			wg.Go(func() {
				if err := node.QueueDigests(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		var mails, accounts int
		if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*), COUNT(DISTINCT account_id) FROM mails`).
			Scan(&mails, &accounts); err != nil || mails != people || accounts != people {
			t.Errorf("%d mails to %d accounts, want %d: %v", mails, accounts, people, err)
		}
	})
}
