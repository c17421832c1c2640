package notices_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestRaisedMargin: users of a live app read both figures of a rate that has risen, once a day at most; those who
// connected later have agreed to it, and of a rate that is lower or back where it was nobody hears (decision 125).
func TestRaisedMargin(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d, "Notes", "")
		all := func(string) bool { return true }
		slugs := features.NewStore(d, func() time.Time { return w.clock }, all)
		exec := func(query string, args ...any) {
			t.Helper()
			if _, err := d.ExecContext(t.Context(), query, args...); err != nil {
				t.Fatal(err)
			}
		}
		connect := func(id, accountID string) {
			t.Helper()
			exec(`INSERT INTO connections (id, app_id, account_id, allocation_mc, consumed_mc, held_mc, status, spent,
				event_seq, created_us) VALUES ($1, $2, $3, 0, 0, 0, 'active', '', 0, $4)`,
				id, w.app.ID, accountID, w.clock.UnixMicro())
		}
		rate := func(text string) web.Field[jsontext.Value] {
			return web.Field[jsontext.Value]{Set: true, Null: text == "", Value: jsontext.Value(text)}
		}
		set := func(text string) {
			t.Helper()
			w.clock = w.clock.Add(time.Minute)
			if _, err := w.Apps.Patch(t.Context(), w.app.ID, apps.Change{DevMarginRate: rate(text)}, all); err != nil {
				t.Fatal(err)
			}
		}
		run := func(mails int) (newest mail.Mail) {
			t.Helper()
			w.clock = w.clock.Add(time.Minute)
			for range 2 {
				if err := w.QueueMargins(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			list := w.all()
			if len(list) != mails {
				t.Fatalf("%d mails, want %d", len(list), mails)
			}
			if mails > 0 {
				newest = list[0]
			}
			return newest
		}
		says := func(m mail.Mail, parts ...string) {
			t.Helper()
			for _, part := range append(parts, "/connections/conn_1") {
				if !strings.Contains(m.Text, part) {
					t.Errorf("the mail lacks %q:\n%s", part, m.Text)
				}
			}
		}
		waiting := func() (n int) {
			t.Helper()
			err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM margin_changes WHERE done = 0`).Scan(&n)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}

		connect("conn_1", w.ada.ID)
		set("0.5") // in the sandbox nobody pays
		run(0)
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, _, err := w.Apps.Promote(ctx, tx, w.app.ID, "limited-live")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		set("0.1")
		run(0)
		set("1")
		says(run(1), "Margin: 100% instead of 10%.")
		connect("conn_2", w.developer.ID) // agrees to 100 %
		set("2")
		if m := run(2); !strings.Contains(m.Text, "/connections/conn_2") ||
			!strings.Contains(m.Text, "200% instead of 100%") {
			t.Errorf("the second user reads %s", m.Text)
		}
		slug := features.Change{DevMarginRate: rate("10")}
		slug.Slug.Set, slug.Slug.Value = true, "chat"
		slug.DisplayName.Set, slug.DisplayName.Value = true, "Chat"
		slug.Description.Set, slug.Description.Value = true, "Answers."
		if _, err := slugs.Create(t.Context(), w.app.ID, slug); err != nil {
			t.Fatal(err)
		}
		set("3")
		run(2)
		if waiting() == 0 {
			t.Error("the changes of the day are done")
		}
		w.clock = w.clock.Add(25 * time.Hour)
		run(4)
		for _, m := range w.all()[:2] {
			if strings.Contains(m.Text, "conn_1") {
				says(m, "Margin: 300% instead of 100%.", "Margin on “Chat”: 1000% instead of 200%.")
			}
		}
		w.clock = w.clock.Add(15 * time.Minute) // no approval that was given before can be exchanged any more
		run(4)
		if waiting() != 0 {
			t.Error("all are told, and the changes wait")
		}
		w.clock = w.clock.Add(25 * time.Hour)
		set("9")
		set("3")
		if _, err := slugs.Patch(t.Context(), w.app.ID, "chat", features.Change{DevMarginRate: rate("")}); err != nil {
			t.Fatal(err)
		}
		run(4)
		w.clock = w.clock.Add(15 * time.Minute)
		run(4)
		if waiting() != 0 {
			t.Error("nobody is to be told, and the changes wait")
		}

		// A user who approved before a rise, and connected after the others were told, reads it, too.
		exec(`UPDATE connections SET status = 'revoked', revoked_us = 1`)
		exec(`DELETE FROM margin_notices`)
		approvedUS := w.clock.UnixMicro()
		set("4")
		run(4)
		connect("conn_3", w.ada.ID)
		exec(`UPDATE connections SET approved_us = $1 WHERE id = 'conn_3'`, approvedUS)
		if m := run(5); !strings.Contains(m.Text, "Margin: 400% instead of 300%.") {
			t.Errorf("the user who approved before reads %s", m.Text)
		}
	})
}
