package receipts

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/summary"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestSummary spends in two months with two apps of one user, and refunds: each token sees its own connection alone,
// and the causes are the difference.
func TestSummary(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := apitest.NewBooks(t, d) // 21 November 2026
		log := slog.New(slog.DiscardHandler)
		prices, err := catalog.Open("", log)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.ExecContext(t.Context(), `INSERT INTO accounts (id, email, password_hash, developer, created_us)
			VALUES ('wac_dev', 'developer@example.com', '', 1, 1)`); err != nil {
			t.Fatal(err)
		}
		b.Do(rules.TopUp{AccountID: "wac_user", AmountMC: 100 * money.Dollar})
		conns := map[string]rules.Connection{}
		for appID, name := range map[string]string{"app_1": `<b>"Night" Reader</b>`, "app_2": "Tutor"} {
			if _, err := d.ExecContext(t.Context(), `INSERT INTO apps (id, owner_id, name, client_id, secret_hash,
				redirect_uris, allowed_models, tier, provider_mode, test_allowlist, dev_margin_ppm, created_us)
				VALUES ($1, 'wac_dev', $2, $1, '', '[]', '[]', 'full-live', 'live', '[]', 0, 1)`,
				appID, name); err != nil {
				t.Fatal(err)
			}
			conns[appID] = b.Do(rules.Connect{
				ConnectionID: id.New(id.Connection, b.Now()),
				AppID:        appID,
				AccountID:    "wac_user",
				RequestedMC:  20 * money.Dollar,
			}).Connection
		}
		tokens := &oauth.Store{DB: d, Ledger: b.Ledger, Now: b.Now}
		clients := apps.NewStore(d, b.Now, true)
		rt := web.NewRouter(log, web.Links{})
		(&Handler{
			DB:      d,
			Apps:    clients,
			Callers: callers.NewResolver(d, tokens, clients, features.NewStore(d, b.Now, nil), b.Now),
			Catalog: prices,
		}).Mount(rt)
		server := httptest.NewServer(rt)
		t.Cleanup(server.Close)
		read := func(appID string) (got summaryResource) {
			t.Helper()
			c := apitest.Client{Base: server.URL}
			if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				given, err := tokens.IssueTokens(ctx, tx, conns[appID].ID, appID, "")
				c.Bearer = given.AccessToken
				return err
			}); err != nil {
				t.Fatal(err)
			}
			a := c.Do(t, "GET", "/v1/connection/summary", "")
			if err := json.Unmarshal([]byte(a.Body), &got); a.Status != 200 || err != nil {
				t.Fatal(a, err)
			}
			return got
		}
		if got := read("app_1"); got.Text != "" || got.ChargeMC != 0 || got.Month != "2026-11" || len(got.Causes) > 0 {
			t.Errorf("before a call: %+v", got)
		}
		var last rules.Entry
		spend := func(appID string, calls int) {
			for range calls {
				last = b.Spend(conns[appID], 50*money.Cent)
			}
		}
		spend("app_1", 2) // 21 November
		if got := read("app_1"); got.Text != "You spent $1.00 in November so far." {
			t.Errorf("in the first month: %s", got.Text)
		}
		b.Pass(7 * 24 * time.Hour)
		spend("app_1", 7) // 28 November is not compared
		b.Pass(23 * 24 * time.Hour)
		b.Do(rules.Reverse{EntryID: last.ID, AccountID: "wac_user", Reason: "provider_error"}) // 21 December
		spend("app_1", 6)
		spend("app_2", 6)
		b.Do(rules.Reverse{EntryID: last.ID, AccountID: "wac_user", Reason: "provider_error"}) // not of app_1
		got := read("app_1")
		want := summaryResource{
			Object:              "summary",
			ConnectionID:        conns["app_1"].ID,
			Month:               "2026-12",
			From:                "2026-12-01",
			To:                  "2026-12-21",
			BeforeFrom:          "2026-11-01",
			BeforeTo:            "2026-11-21",
			Calls:               6,
			CallsBefore:         2,
			ChargeMC:            250 * money.Cent,
			ChargeDisplay:       "$2.50",
			ChargeBeforeMC:      100 * money.Cent,
			ChargeBeforeDisplay: "$1.00",
			ChangeMC:            150 * money.Cent,
			ChangeDisplay:       "$1.50",
			Text: "You spent $2.50 in December so far, $1.50 more than in the same days of November. " +
				`$2.00 more is because <b>"Night" Reader</b> made 6 calls instead of 2. ` +
				`$0.50 less is because $0.50 was refunded for <b>"Night" Reader</b> instead of nothing.`,
		}
		six, two, half, none := int64(6), int64(2), 50*money.Cent, money.MC(0)
		label := "summaries"
		want.Causes = []cause{
			{
				Kind:          summary.Calls,
				AmountMC:      200 * money.Cent,
				AmountDisplay: "$2.00",
				Feature:       &label,
				Calls:         &six,
				CallsBefore:   &two,
			},
			{
				Kind:             summary.Refunds,
				AmountMC:         -50 * money.Cent,
				AmountDisplay:    "-$0.50",
				RefundedMC:       &half,
				RefundedBeforeMC: &none,
			},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("app_1:\n%s", diff)
		}
		if got := read("app_2"); got.Text != "You spent $2.50 in December so far." || got.Calls != 6 {
			t.Errorf("app_2: %+v", got)
		}
		if a := (apitest.Client{Base: server.URL, Bearer: "wrong"}).Do(t, "GET", "/v1/connection/summary",
			""); a.Status != 401 {
			t.Error(a)
		}
	})
}

// TestWeigh weighs tokens by the list's prices.
func TestWeigh(t *testing.T) {
	t.Parallel()
	prices, err := catalog.LoadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for _, m := range prices.Offered(at) {
		if w := weigh(prices, m.ID, at); w.Input <= 0 || w.Output < 0 || max(w.Input, w.Output) > 1e8 {
			t.Errorf("%s: %+v", m.ID, w)
		}
	}
	if w := weigh(prices, "gone", at); w != (summary.Weights{Input: 1, Output: 1}) {
		t.Errorf("a model that is gone: %+v", w)
	}
}
