package palette_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/pages/palette"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestSearch: everyone finds their own pages, apps, connections and calls by name or id. Of a foreign id they learn as
// much as of one that does not exist.
func TestSearch(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		books := apitest.NewBooks(t, d)
		people, clients := accounts.NewStore(d, books.Now), apps.NewStore(d, books.Now, true)
		var app apps.App
		var user accounts.Account
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			developer, err := people.Create(ctx, tx,
				accounts.NewAccount{Email: "developer@example.com", Developer: true})
			if err != nil {
				return err
			}
			for _, name := range []string{"user", "stranger", "operator"} {
				a, err := people.Create(ctx, tx, accounts.NewAccount{
					Email:    name + "@example.com",
					Operator: name == "operator",
				})
				if err != nil {
					return err
				}
				if name == "user" {
					user = a
				}
			}
			app, _, err = clients.Create(ctx, tx, apps.New{
				OwnerID:      developer.ID,
				Name:         "Night <b>Reader</b>",
				RedirectURIs: []string{"https://app.example.com/cb"},
				Tier:         apps.LimitedLive,
				ProviderMode: apps.Live,
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.ExecContext(t.Context(), `UPDATE accounts SET password_hash = $1`,
			apitest.PasswordHash(t)); err != nil {
			t.Fatal(err)
		}
		books.Do(rules.TopUp{AccountID: user.ID, AmountMC: 20 * money.Dollar})
		c := books.Do(rules.Connect{
			ConnectionID: id.New(id.Connection, books.Now()),
			AppID:        app.ID,
			AccountID:    user.ID,
			RequestedMC:  5 * money.Dollar,
		}).Connection
		entry := books.Spend(c, money.Cent)
		call := id.ReplacePrefix(entry.ID, id.Ledger, id.Request)

		exec := func(text string, args ...any) {
			t.Helper()
			if _, err := d.ExecContext(t.Context(), text, args...); err != nil {
				t.Fatal(err)
			}
		}
		event, quiet := id.New(id.Event, books.Now()), id.New(id.Event, books.Now())
		delivery := id.New(id.Delivery, books.Now())
		for _, e := range []string{event, quiet} {
			exec(`INSERT INTO events (id, type, app_id, seq, data, created_us, passed)
				VALUES ($1, 'app.spend_limit_reached', $2, 0, '{}', 1, 1)`, e, app.ID)
		}
		exec(`INSERT INTO webhooks (id, app_id, url, events, status, sealed, created_us)
			VALUES ('whk_one', $1, 'https://hooks.example.com', '[]', 'active', $2, 1)`, app.ID, []byte{1})
		exec(`INSERT INTO deliveries (id, webhook_id, event_id, event_type, status, due_us, created_us)
			VALUES ($1, 'whk_one', $2, 'app.spend_limit_reached', 'failed', 1, 1)`, delivery, event)
		deliveryPath := "/developer/apps/" + app.ID + "/webhooks/whk_one/deliveries/" + delivery

		rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
		rt.SetPageError(ui.RenderError)
		sessions := accounts.NewSessions(people, false)
		(&accounts.Handler{Store: people, Sessions: sessions}).Mount(rt)
		hooks := webhooks.NewStore(d, nil, books.Now, webhooks.Addresses{}, web.Links{})
		(&palette.Handler{DB: d, Apps: clients, Accounts: people, Webhooks: hooks, Sessions: sessions}).Mount(rt)
		server := httptest.NewServer(rt)
		t.Cleanup(server.Close)

		for _, test := range []struct{ who, query, want string }{
			{"user", "overv", "/dashboard"},
			{"user", "night", "/connections/" + c.ID},
			{"user", c.ID, "/connections/" + c.ID},
			{"user", call, "/requests/" + call},
			{"user", entry.ID, "/requests/" + call},
			{"user", app.ID, ""},
			{"developer", "READER", "/developer/apps/" + app.ID},
			{"developer", app.ID, "/developer/apps/" + app.ID},
			{"developer", call, "/developer/apps/" + app.ID + "/requests/" + call},
			{"developer", c.ID, "/developer/apps/" + app.ID + "/requests?connection=" + c.ID},
			{"developer", event, deliveryPath},
			{"developer", delivery, deliveryPath},
			{"developer", quiet, "/developer/apps/" + app.ID + "/webhooks"},
			{"developer", id.New(id.Delivery, books.Now()), ""},
			{"developer", user.ID, ""},
			{"operator", user.ID, "/operator/accounts/" + user.ID},
			{"operator", entry.ID, "/operator/ledger/" + entry.ID},
			{"operator", c.ID, "/operator/connections/" + c.ID},
			{"operator", app.ID, "/operator/apps/" + app.ID},
			{"stranger", "night", ""},
			{"stranger", c.ID, ""},
			{"stranger", call, ""},
			{"stranger", entry.ID, ""},
			{"stranger", app.ID, ""},
			{"stranger", event, ""},
			{"stranger", quiet, ""},
			{"stranger", delivery, ""},
			{"user", delivery, ""},
			{"stranger", id.New(id.Connection, books.Now()), ""},
			{"stranger", strings.Repeat("x", 300), "/dashboard"},
		} {
			page := apitest.NewBrowser(t,
				server.URL).SignIn(test.who+"@example.com").Get("/search?part=1&q="+test.query).
				Want(t, 200)
			if test.want == "" {
				page.Want(t, 200, "Nothing found").Lacks(t, "href=")
			} else {
				page.Want(t, 200, `href="`+test.want+`"`).Lacks(t, "<b>")
			}
		}
	})
}
