package webhooks_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/notices"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// After a day on which an active endpoint only failed, each owner of its app gets one email, from one of several nodes:
// not viewers, not who has turned notices off, not for an endpoint that is disabled or that also succeeded.
func TestReports(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		for _, name := range []string{"owner", "viewer", "silent"} {
			notices, role := 1, "owner"
			if name == "silent" {
				notices = 0
			} else if name == "viewer" {
				role = "viewer"
			}
			b.exec(t, `INSERT INTO accounts (id, email, password_hash, developer, created_us, notices)
				VALUES ($1, $2, 'x', 1, 1, $3)`, "wac_"+name, name+"@example.com", notices)
			b.exec(t, `INSERT INTO app_members (app_id, account_id, role, invited_by, created_us)
				VALUES ($1, $2, $3, 'wac_dev', 1)`, b.mineID, "wac_"+name, role)
		}
		stops, err := notices.NewSigner(make([]byte, 32))
		if err != nil {
			t.Fatal(err)
		}
		mails, registry := &mail.Store{DB: d, Now: b.clock.now}, apps.NewStore(d, b.clock.now, true)
		report := func() (to []string, texts string) {
			t.Helper()
			b.exec(t, `DELETE FROM mails`)
			var nodes sync.WaitGroup
			for range 3 {
				nodes.Go(func() {
					r := &webhooks.Reporter{Store: b.store, Apps: registry, Notices: &notices.Store{
						DB:    d,
						Apps:  registry,
						Mails: mails,
						Links: web.Links{Dashboard: "https://dashboard.example"},
						Stops: stops,
						Log:   quiet,
					}, Log: quiet}
					if err := r.QueueReports(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			nodes.Wait()
			list, err := mails.ListNewest(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list {
				to = append(to, m.To)
				texts += m.Subject + "\n" + m.Text
				if !strings.HasPrefix(m.Unsubscribe, "https://dashboard.example/") {
					t.Errorf("unsubscribe at %q", m.Unsubscribe)
				}
			}
			slices.Sort(to)
			return to, texts
		}
		fail := func(list ...endpoint) {
			t.Helper()
			for _, e := range list {
				b.exec(t, `INSERT INTO webhook_days (webhook_id, day, succeeded, failed) VALUES ($1, $2, 0, 1234)`,
					e.ID,
					b.clock.now().UTC().Format(time.DateOnly))
			}
		}
		bad := b.create(t, `{"url":"https://hooks.example.com/bad?token=hidden"}`)
		mixed := b.create(t, `{"url":"https://hooks.example.com/mixed?token=hidden"}`)
		off := b.create(t, `{"url":"https://hooks.example.com/off"}`)
		fail(bad, mixed, off)
		b.exec(t, `UPDATE webhook_days SET succeeded = 1 WHERE webhook_id = $1`, mixed.ID)
		b.exec(t, `UPDATE webhooks SET status = 'disabled' WHERE id = $1`, off.ID)
		if to, _ := report(); len(to) != 0 {
			t.Errorf("the day is not over: %v", to)
		}
		b.clock.move(24 * time.Hour)
		to, texts := report()
		if want := []string{"developer@example.com", "owner@example.com"}; !slices.Equal(to, want) {
			t.Errorf("emails to %v, want %v", to, want)
		}
		for _, want := range []string{
			"Webhooks of “Reader” failed for a day", "On 21 November 2026 (UTC), all 1,234 attempts",
			"https://hooks.example.com/bad failed",
			"/developer/apps/" + b.mineID + "/webhooks/" + bad.ID + "?status=failed",
		} {
			if strings.Count(texts, want) != 2 {
				t.Errorf("%q stands %d times in:\n%s", want, strings.Count(texts, want), texts)
			}
		}
		if strings.Contains(texts, "hidden") {
			t.Error("the query of the URL is in an email")
		}
		if to, _ := report(); len(to) != 0 {
			t.Errorf("the day was reported: %v", to)
		}
		// A delivery that has failed for good is reported on the same day, although others succeed, and so once a day.
		lose := func(e endpoint, n int) {
			t.Helper()
			b.exec(t, `INSERT INTO webhook_days (webhook_id, day, succeeded, failed, lost) VALUES ($1, $2, 7, 7, $3)
				ON CONFLICT (webhook_id, day) DO UPDATE SET lost = webhook_days.lost + $3`, e.ID,
				b.clock.now().UTC().Format(time.DateOnly), n)
			b.exec(t, `INSERT INTO deliveries (id, webhook_id, event_id, event_type, status, due_us, created_us)
				VALUES ($1, $2, $1, 'connection.frozen', 'failed', 1, 1)`, id.New(id.Delivery, b.clock.now()), e.ID)
		}
		lose(mixed, 1)
		lose(off, 1)
		to, texts = report()
		if want := []string{"developer@example.com", "owner@example.com"}; !slices.Equal(to, want) ||
			!strings.Contains(texts, "stopped trying to deliver an event (connection.frozen) of “Reader” to "+
				"https://hooks.example.com/mixed") || strings.Contains(texts, "hidden") {
			t.Errorf("emails to %v, want %v, without the query:\n%s", to, want, texts)
		}
		lose(mixed, 1)
		if to, _ := report(); len(to) != 0 {
			t.Errorf("emails about the same day: %v", to)
		}
		fail(bad)
		b.exec(t, `UPDATE webhook_days SET lost = 3 WHERE webhook_id = $1 AND reported = 0`, bad.ID)
		lose(bad, 0)
		if to, texts := report(); len(to) != 2 ||
			!strings.Contains(texts, "3 events, the last of them connection.frozen,") {
			t.Errorf("emails to %v:\n%s", to, texts)
		}
		b.clock.move(24 * time.Hour)
		if to, _ := report(); len(to) != 0 {
			t.Errorf("two emails about one day: %v", to)
		}
		fail(bad)
		b.clock.move(24 * time.Hour)
		if to, _ := report(); len(to) != 2 {
			t.Errorf("emails about the next day: %v", to)
		}
		fail(bad)
		b.clock.move(48 * time.Hour)
		if to, _ := report(); len(to) != 0 {
			t.Errorf("emails about a day before yesterday: %v", to)
		}
	})
}
