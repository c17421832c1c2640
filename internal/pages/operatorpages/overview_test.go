package operatorpages_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/pages/operatorpages"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestQueue shows each decision that waits on the overview, with a link to it. A connection that its user paused is
// none.
func TestQueue(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("operator")
		link := func(path, text string) string { return `<a href="` + path + `">` + text + `</a>` }
		review := link("/operator/reviews/"+w.request.ID, "New &lt;i&gt;App&lt;/i&gt;")
		connection := link("/operator/connections/"+w.conn.ID, "Live &lt;b&gt;App&lt;/b&gt; · person@example.com")
		b.Get("/operator").Want(t, 200, "Books not verified yet", review, "Nodes: 0").Lacks(t, connection)
		w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByUser})
		b.Get("/operator").Want(t, 200).Lacks(t, connection)
		w.Do(rules.Resume{ConnectionID: w.conn.ID})
		w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByRisk})
		w.exec(`UPDATE apps SET suspension_by = $2, suspension_reason = 'why', suspended_us = 1 WHERE id = $1`,
			w.sandbox.ID,
			apps.ByRisk)
		w.exec(`INSERT INTO payment_records (payment_id, n, kind, account_id, amount_mc, reason, created_us)
			VALUES ('top_x', 3, 'disputed', $1, 1900000000, 'dp_1', $2)`, w.ids["person"], w.Now().UnixMicro())
		w.exec(`INSERT INTO disputes (id, payment_id, cents, contested, changed_us)
			VALUES ('dp_1', 'top_x', 700, 1, 1)`)
		w.exec(`INSERT INTO verifications (id, state, asked_by, asked_us, touched_us, finished_us, progress, checks,
			checked, findings, report)
				VALUES ('ver_1', 'findings', 'schedule', 1, 1, $1, '', 74, 9000, 3, 'Row <x> is wrong.')`,
			w.Now().UnixMicro())
		b.Get("/operator").Want(t, 200, "The books have findings", "3 findings in 74 checks of 9,000 rows", review,
			connection,
			"Paused by risk rules", link("/operator/apps/"+w.sandbox.ID, "New &lt;i&gt;App&lt;/i&gt;"), "by risk rules",
			link("/operator/accounts/"+w.ids["person"], "$7.00 of person@example.com"), "Audit findings")
		b.Get("/operator/verify").Want(t, 200, "Daily schedule", "<pre tabindex=\"0\">Row &lt;x&gt; is wrong.</pre>")
		w.exec(`UPDATE verifications SET state = 'clean', findings = 0`)
		b.Get("/operator").Want(t, 200, "Books verified 2", "74 checks of 9,000 rows").Lacks(t, "Audit findings")
		w.exec(`UPDATE verifications SET finished_us = 1`)
		b.Get("/operator").Want(t, 200, "more than two days ago")
	})
}

// TestMoneyThatWaits shows that money waits for a comparison with Stripe, why it does not go on, and what has waited
// for Stripe for more than an hour.
func TestMoneyThatWaits(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("operator")
		const waits, overdue = "Money waits for a comparison with Stripe", "payouts that wait for Stripe"
		b.Get("/operator").Want(t, 200).Lacks(t, waits, overdue)
		w.exec(`INSERT INTO settings (name, value) VALUES ('restored', '1')`)
		b.Get("/operator").Want(t, 200, waits, "went back in time", "It has not begun yet")
		w.exec(`INSERT INTO reconciliations (id, cause, open, waits, since_us, stage, after_id, compared, claimed_us,
			created_us) VALUES ('rcn_1', 'unknown', 1, 1, 1, 'refunds', '', 7, 0, 1)`)
		b.Get("/operator").Want(t, 200, waits, "Stripe had something of ours", "Comparing refunds: 7 compared")
		w.exec(`UPDATE reconciliations SET error = 'no <answer>'`)
		b.Get("/operator").Want(t, 200, "no &lt;answer&gt;", "Check stripe.key")
		for id, ago := range map[string]time.Duration{"po_old": 2 * time.Hour, "po_new": 30 * time.Minute} {
			w.exec(`INSERT INTO stripe_requests (kind, id, attempt, fence, claimed_us, outcome, text, waits_us)
				VALUES ('transfer', $1, 1, 1, 0, 'ours', 'Insufficient funds.', $2)`, id,
				w.Now().Add(-ago).UnixMicro())
		}
		b.Get("/operator").Want(t, 200, overdue, "transfer po_old", "Insufficient funds.").Lacks(t, "po_new")
		for id, ago := range map[string]time.Duration{"pm_old": 3 * time.Hour, "pm_new": 30 * time.Minute} {
			w.exec(`INSERT INTO card_removals (payment_method, next_us, failing_us) VALUES ($1, 0, $2)`, id,
				w.Now().Add(-ago).UnixMicro())
		}
		b.Get("/operator").Want(t, 200, "card pm_old", "it is not removed", "transfer po_old").Lacks(t, "pm_new")
	})
}

// TestOverviewSums holds that the parts of each row of the revenue are what was charged, and that
// the days of each chart are the period's sum, for amounts that no cent divides.
func TestOverviewSums(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	for i := range 20 {
		day := w.Now().AddDate(0, 0, -4*i).Format(time.DateOnly)
		w.exec(`INSERT INTO operator_days
			(app_id, day, calls, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
				VALUES ('app_x', $1, 3, 333333, 333334, 133337, 800004)`, day)
	}
	b := w.signedIn("operator")
	for days, calls := range map[string]int64{"7": 6, "30": 24, "90": 60} {
		page := b.Get("/operator?days="+days).Want(t, 200, days+" days").Body
		row := regexp.MustCompile(`(?s)>` + days + ` days</span></td>.*?</tr>`).FindString(page)
		cells := cents(t, row)
		n := calls / 3
		if want := money.MC(n * 800_004); len(cells) != 4 || cells[0] != cells[1]+cells[2]+cells[3] ||
			!strings.Contains(row, want.Display()) {
			t.Errorf("%s days: %v of %s: %s", days, cells, want.Display(), row)
		}
		if !strings.Contains(page, `id="volume-table"`) || !strings.Contains(page, "Developers’ margin") {
			t.Error("no chart of what was charged")
		}
	}
	b.Get("/operator?days=5").Want(t, 200, "30 days")
}

// TestDayOfApps follows a bar of the chart to the apps whose calls it sums, the most expensive first.
func TestDayOfApps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	day := w.Now().AddDate(0, 0, -2).Format(time.DateOnly)
	for i := range 52 {
		w.exec(`INSERT INTO operator_days
			(app_id, day, calls, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
				VALUES ($1, $2, 3, 100000000, 0, $3, $3)`, fmt.Sprintf("app_%02d", i), day, i*1_000_000)
	}
	b := w.signedIn("operator")
	b.Get("/operator").Want(t, 200, `href="/operator?days=30&amp;day=`+day+`#day"`).Lacks(t, `id="day"`)
	page := b.Get("/operator?days=30&day="+day).Want(t, 200, "by app", "The 50 apps with the highest charges.").Body
	first, last := strings.Index(page, "app_51"), strings.Index(page, "app_02")
	if first < 0 || last < first || strings.Contains(page, "app_01") {
		t.Errorf("the apps are at %d and %d", first, last)
	}
	b.Get("/operator?day=2020-01-01").Want(t, 200, "No calls on this day.")
	b.Get("/operator?day=yesterday").Want(t, 200).Lacks(t, `id="day"`)
}

// cents returns the amounts that a row shows, in cents.
func cents(t *testing.T, row string) (list []int64) {
	t.Helper()
	for _, m := range regexp.MustCompile(`>\$([0-9]+)\.([0-9]{2})<`).FindAllStringSubmatch(row, -1) {
		mc, err := money.Parse(m[1] + "." + m[2])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, int64(mc/money.Cent))
	}
	return list
}

// TestFailedVerification: a daily verification that could not run is tried again after ten minutes, by one node. It has
// found nothing and verified nothing: what counts is the newest that has read the database.
func TestFailedVerification(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
		node := func() *operatorpages.Schedule {
			return &operatorpages.Schedule{DB: d, At: "03:00", Now: func() time.Time { return now }}
		}
		one, two := node(), node()
		requested := func(want int) {
			t.Helper()
			for _, s := range []*operatorpages.Schedule{one, two} {
				if err := s.Once(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			var n int
			err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM verifications`).Scan(&n)
			if err != nil || n != want {
				t.Errorf("%s: %d verifications, want %d, %v", now, n, want, err)
			}
		}
		end := func(state string, findings int) {
			t.Helper()
			if _, err := d.ExecContext(t.Context(), `UPDATE verifications SET state = $1, findings = $2,
				finished_us = $3 WHERE finished_us IS NULL`, state, findings, now.UnixMicro()); err != nil {
				t.Fatal(err)
			}
		}
		result := func(findings int64, at time.Time) {
			t.Helper()
			n, us, err := operatorpages.LastResult(t.Context(), d)
			if err != nil || n != findings || us != at.UnixMicro() {
				t.Errorf("the last result: %d findings at %s, %v", n, time.UnixMicro(us).UTC(), err)
			}
		}
		requested(1)
		end("findings", 2)
		found := now
		now = now.Add(24 * time.Hour)
		requested(2)
		end("failed", 0)
		result(2, found)
		now = now.Add(9 * time.Minute)
		requested(2)
		now = now.Add(4 * time.Hour) // long after the window in which the first one starts
		requested(3)
		end("failed", 0)
		now = now.Add(10 * time.Minute)
		requested(4)
		end("clean", 0)
		result(0, now)
		now = now.Add(time.Hour)
		requested(4)
		now = now.Add(18*time.Hour + 41*time.Minute)
		requested(5)
		now = now.Add(3 * time.Hour)
		end("failed", 0) // it was too large for its time
		now = now.Add(time.Hour)
		requested(5)
	})
}

// TestSchedule requests one verification a day, also with two nodes, and none when the time has long passed.
func TestSchedule(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		now := time.Date(2026, 11, 21, 2, 59, 0, 0, time.UTC)
		node := func(at string) *operatorpages.Schedule {
			return &operatorpages.Schedule{DB: d, At: at, Now: func() time.Time { return now }}
		}
		one, two, none := node("03:00"), node("03:00"), node("")
		count := func(want int) {
			t.Helper()
			for _, s := range []*operatorpages.Schedule{none, one, two, one} {
				if err := s.Once(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			var n int
			err := d.QueryRowContext(t.Context(),
				`SELECT COUNT(*) FROM verifications WHERE asked_by = 'schedule'`).Scan(&n)
			if err != nil || n != want {
				t.Errorf("%s: %d verifications, want %d, %v", now, n, want, err)
			}
			if _, err := d.ExecContext(t.Context(),
				`UPDATE verifications SET state = 'clean', finished_us = 1`); err != nil {
				t.Fatal(err)
			}
		}
		count(0)
		now = now.Add(time.Minute)
		count(1)
		now = now.Add(time.Hour)
		count(1)
		now = now.Add(26 * time.Hour) // 6:00: the node was down at 3:00
		count(1)
		now = now.Add(22 * time.Hour)
		count(2)
	})
}
