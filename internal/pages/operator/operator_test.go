package operator_test

import (
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/members"
	"github.com/purserhq/purser/internal/apps/notices"
	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/pages/privacy"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/topups"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func init() { accounts.HashLightly() }

const token = "0123456789abcdefghijklmnopqrstuvwxyz"

// bundle is an operator's API with one app to work on.
type bundle struct {
	d        *db.DB
	ids      accounts.SafetyIdentifiers
	people   *accounts.Store
	identity *identity.Store
	mails    *mail.Store
	topups   *topups.Store
	payouts  *payouts.Store
	stripe   *stripe.Server
	api      apitest.Client
	app      apps.App
	client   apitest.Client // of the app itself
	changes  atomic.Int64
	nowUS    atomic.Int64
}

func newBundle(t *testing.T, d *db.DB, token string) *bundle {
	t.Helper()
	b := &bundle{d: d}
	b.nowUS.Store(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC).UnixMicro())
	now := func() time.Time { return time.UnixMicro(b.nowUS.Load()) }
	registry := apps.NewStore(d, now, false)
	registry.OnChange = func(string) { b.changes.Add(1) }
	money := store.NewWriter(d, now)
	ids, err := accounts.NewSafetyIdentifiers(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	b.ids = ids
	rt := web.NewRouter(slog.New(slog.NewTextHandler(io.Discard, nil)), web.Links{})
	rt.SetPageError(ui.RenderError)
	server := httptest.NewServer(rt)
	t.Cleanup(server.Close)
	people := accounts.NewStore(d, now)
	b.people = people
	box, err := seal.New(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	b.mails = &mail.Store{DB: d, Now: now, Box: box}
	party, err := identity.NewPasskeyParty(server.URL, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	b.identity = identity.NewStore(d, people, b.mails, box, now, server.URL, party)
	sessions := accounts.NewSessions(people, false)
	(&accounts.Handler{Store: people, Sessions: sessions, Passkeys: party.PageData()}).Mount(rt)
	(&identity.Handler{Store: b.identity, Accounts: people, Sessions: sessions}).Mount(rt)
	b.stripe = stripe.New(stripe.Options{Key: "sk_test_key", WebhookSecret: "whsec_0123456789abcdef"})
	payments := httptest.NewServer(b.stripe)
	t.Cleanup(payments.Close)
	b.topups = &topups.Store{
		DB:           d,
		Ledger:       money,
		Config:       topups.Config{Key: "sk_test_key", WebhookSecret: "whsec_0123456789abcdef", BaseURL: payments.URL},
		DashboardURL: server.URL,
		Mails:        b.mails,
		Log:          slog.New(slog.DiscardHandler),
		Now:          now,
	}
	if err := b.topups.Configure(); err != nil {
		t.Fatal(err)
	}
	b.payouts = &payouts.Store{
		DB:      d,
		Ledger:  money,
		Apps:    registry,
		Stripe:  b.topups.Stripe(),
		Account: b.topups.Account(),
		Config:  payouts.Config{Every: 7 * 24 * time.Hour, Window: 48 * time.Hour, MinimumMC: 100_000_000},
		Mails:   b.mails,
		Log:     slog.New(slog.DiscardHandler),
		Now:     now,
	}
	(&topups.Handler{Store: b.topups, Accounts: people, Sessions: sessions}).Mount(rt)
	settings, err := policies.Open(t.Context(), d, policy.Default, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	closing := &privacy.Store{
		DB:       d,
		Accounts: people,
		Sessions: sessions,
		Identity: b.identity,
		Apps:     registry,
		Sandbox:  sandbox.NewStore(d, people, money, now),
		Keys:     providerkeys.NewStore(d, box, now, nil),
		Topups:   b.topups,
		Webhooks: webhooks.NewStore(d, box, now, webhooks.Addresses{}, web.Links{}),
		Members:  members.NewStore(d, people, b.mails, now, server.URL),
		Payouts:  b.payouts,
		Ledger:   money,
		Now:      now,
	}
	(&privacy.Handler{Store: closing}).Mount(rt)
	(&operator.Handler{Tokens: strings.Fields(token), Service: &operator.Service{
		Policies:    settings,
		DB:          d,
		Accounts:    people,
		Identity:    b.identity,
		Identifiers: ids,
		Apps:        registry,
		GoLive:      &golive.Store{DB: d, Apps: registry, Ledger: money, Now: now},
		Notices:     &notices.Store{DB: d, Apps: registry, Mails: b.mails, Ledger: money},
		Ledger:      money,
		Topups:      b.topups,
		Privacy:     closing,
		Mails:       b.mails,
		Now:         now,
	}}).Mount(rt)
	b.exec(t, `INSERT INTO accounts (id, email, password_hash, developer, created_us) VALUES ('wac_dev', 'developer@example.com', 'x', 1, 1)`)
	err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		app, secret, err := registry.Create(ctx, tx, apps.New{
			OwnerID: "wac_dev",
			Name:    "Reader",
			Tier:    apps.LimitedLive,
		})
		b.app, b.client = app, apitest.Client{Base: server.URL, User: app.ClientID, Secret: secret}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b.api = apitest.Client{Base: server.URL, Bearer: token}
	return b
}

func (b *bundle) exec(t *testing.T, text string) {
	t.Helper()
	if _, err := b.d.ExecContext(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, what string, got apitest.Answer, status int, says string) {
	t.Helper()
	if got.Status != status || !strings.Contains(got.Body, says) {
		t.Errorf("%s: %v; want %d that says %q", what, got, status, says)
	}
}

// Without a token there is no such API: its addresses are like any that do not exist.
func TestNoTokenNoAPI(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite), "")
	b.api.Bearer = ""
	for _, path := range []string{"/v1/operator/go-live", "/v1/operator/log", "/v1/operator/apps/" + b.app.ID} {
		want(t, path, b.api.Do(t, "GET", path, ""), 404, "not_found")
	}
}

// The log has the name of the token that acted, or the address of a token without one.
func TestNamesOfTokens(t *testing.T) {
	t.Parallel()
	other := strings.Repeat("z", 40)
	b := newBundle(t, dbtest.Open(t, db.SQLite), token+" alice:"+other)
	path := "/v1/operator/apps/" + b.app.ID
	b.api.Bearer = other
	want(t, "named", b.api.Do(t, "POST", path+"/suspend", `{"reason":"x"}`), 200, "")
	want(t, "its log", b.api.Do(t, "GET", "/v1/operator/log?actor=alice", ""), 200, `"action":"suspend"`)
	b.api.Bearer = token
	want(t, "unnamed", b.api.Do(t, "POST", path+"/lift", ""), 200, "")
	want(t, "its log", b.api.Do(t, "GET", "/v1/operator/log?actor=127.0.0.1", ""), 200, `"action":"lift"`)
	b.api.Bearer = "alice:" + other
	want(t, "a token with its name", b.api.Do(t, "GET", "/v1/operator/log", ""), 401, "operator's token")
}

// The token is asked for before anything else is said, and guessing is slow.
func TestTokenIsAskedFor(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite), token)
	wrong := apitest.Client{Base: b.api.Base, Bearer: token[:35] + "x"}
	want(t, "none", apitest.Client{Base: b.api.Base}.Do(t, "POST", "/v1/operator/apps/app_x/suspend", "{"), 401,
		"operator's token")
	want(t, "an app's credentials", b.client.Do(t, "GET", "/v1/operator/log", ""), 401, "operator's token")
	for range 8 {
		want(t, "wrong", wrong.Do(t, "GET", "/v1/operator/apps/"+b.app.ID, ""), 401, "operator's token")
	}
	limited := wrong.Do(t, "GET", "/v1/operator/log", "")
	want(t, "the eleventh", limited, 429, "rate_limited")
	want(t, "the right one meanwhile", b.api.Do(t, "GET", "/v1/operator/log", ""), 200, "[]")
	if limited.Header.Get("Retry-After") != "6" {
		t.Errorf("Retry-After %q", limited.Header.Get("Retry-After"))
	}
	b.nowUS.Add(6_000_000)
	want(t, "after the wait", b.api.Do(t, "GET", "/v1/operator/log", ""), 200, "[]")
}

// An action and its entry are one: what was refused left nothing, what was done
// stands there for good, with before and after.
func TestActionsAreLogged(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, token)
		path := "/v1/operator/apps/" + b.app.ID
		for _, c := range []struct{ path, body, says string }{
			{path + "/suspend", `{}`, "reason: required"},
			{path + "/suspend", `{"reason":null}`, "reason: required"},
			{path + "/suspend", `{"reason":"  "}`, "1 to 500"},
			{path + "/suspend", `{"reason":"` + strings.Repeat("x", 501) + `"}`, "1 to 500"},
			{path + "/suspend", `{"reason":"x","by":"risk"}`, "by: is not a member"},
			{path + "/lift", ``, "has not suspended"},
		} {
			want(t, c.path, b.api.Do(t, "POST", c.path, c.body), 400, c.says)
		}
		for _, missing := range []string{"apps/app_x/suspend", "ledger/led_x/reverse", "connections/conn_x/freeze",
			"connections/conn_x/resume", "go-live/glr_x/approve", "go-live/glr_x/refuse"} {
			body := ""
			if strings.HasSuffix(missing, "suspend") || strings.HasSuffix(missing, "reverse") ||
				strings.HasSuffix(missing, "freeze") || strings.HasSuffix(missing, "refuse") {
				body = `{"reason":"x"}`
			}
			want(t, missing, b.api.Do(t, "POST", "/v1/operator/"+missing, body), 404, "no such")
		}
		want(t, "nothing was done", b.api.Do(t, "GET", "/v1/operator/log", ""), 200, "[]")
		if b.changes.Load() != 0 {
			t.Errorf("told of %d changes", b.changes.Load())
		}
		want(t, "suspend", b.api.Do(t, "POST", path+"/suspend", `{"reason":" Its secret has leaked. "}`), 200,
			`"reason":"Its secret has leaked."`)
		b.nowUS.Add(1_000_000)
		want(t, "lift", b.api.Do(t, "POST", path+"/lift", ""), 200, `"suspended":false`)
		log := b.api.Do(t, "GET", "/v1/operator/log", "")
		want(t, "log", log, 200, `"action":"suspend","subject":"`+b.app.ID+`","reason":"Its secret has leaked."`)
		want(t, "newest first", b.api.Do(t, "GET", "/v1/operator/log?limit=1", ""), 200, `"action":"lift"`)
		if strings.Contains(log.Body, "secret_hash") || strings.Count(log.Body, `"suspended":false`) != 2 ||
			strings.Count(log.Body, `"suspended":true`) != 2 {
			t.Errorf("before and after: %s", log.Body)
		}
		for _, text := range []string{`UPDATE operator_log SET action = 'x'`, `DELETE FROM operator_log`} {
			if _, err := d.ExecContext(t.Context(), text); err == nil || !strings.Contains(err.Error(), "append-only") {
				t.Errorf("%s: %v", text, err)
			}
		}
		// When the log cannot be written, nothing is done.
		b.exec(t, `ALTER TABLE operator_log RENAME TO elsewhere`)
		if got := b.api.Do(t, "POST", path+"/suspend", `{"reason":"x"}`); got.Status != 500 {
			t.Errorf("without a log: %v", got)
		}
		want(t, "still on", b.api.Do(t, "GET", path, ""), 200, `"suspended":false`)
	})
}

// TestAccountOfSafetyIdentifier finds the account that a provider names, with its connections.
func TestAccountOfSafetyIdentifier(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, token)
		money := store.NewWriter(d, func() time.Time { return time.UnixMicro(b.nowUS.Load()) })
		path := "/v1/operator/safety-identifiers/"
		known := path + b.ids.Identify("wac_dev")
		want(t, "no connection", b.api.Do(t, "GET", known, ""), 200, `"connections":[]`)
		for _, c := range []rules.Command{
			rules.TopUp{AccountID: "wac_dev", AmountMC: 1_000_000_000},
			rules.Connect{
				ConnectionID: "conn_1",
				AppID:        b.app.ID,
				AccountID:    "wac_dev",
				RequestedMC:  500_000_000,
			},
		} {
			if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				_, err := money.DoTx(ctx, tx, c)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		want(t, "one connection", b.api.Do(t, "GET", known, ""), 200, `{"account_id":"wac_dev",`+
			`"email":"developer@example.com","sandbox":false,"connections":[{"id":"conn_1","app_id":"`+b.app.ID+
			`","status":"active"}]}`)
		for _, unknown := range []string{b.ids.Identify("wac_other"), "wac_dev", strings.Repeat("Z", 64)} {
			want(t, unknown, b.api.Do(t, "GET", path+unknown, ""), 404, "no such account")
		}
		want(t, "without a token", apitest.Client{Base: b.api.Base}.Do(t, "GET", known, ""), 401, "operator's token")
	})
}

// Of operators who pause a connection at once, one does it, and the log has what
// was before just once.
func TestOneOfManyPauses(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, token)
		money := store.NewWriter(d, func() time.Time { return time.UnixMicro(b.nowUS.Load()) })
		for _, c := range []rules.Command{
			rules.TopUp{AccountID: "wac_person", AmountMC: 1_000_000_000}, rules.Connect{
				ConnectionID: "conn_1",
				AppID:        b.app.ID,
				AccountID:    "wac_person",
				RequestedMC:  500_000_000,
			},
		} {
			if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				_, err := money.DoTx(ctx, tx, c)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		for _, verb := range []string{"freeze", "resume", "freeze", "resume"} {
			var done atomic.Int64
			var all sync.WaitGroup
			for range 6 {
				all.Go(func() {
					body := ""
					if verb == "freeze" {
						body = `{"reason":"x"}`
					}
					if a := b.api.Do(t, "POST", "/v1/operator/connections/conn_1/"+verb, body); a.Status == 200 {
						done.Add(1)
					} else if a.Status != 400 || !strings.Contains(a.Message, "already") {
						t.Errorf("%s: %v", verb, a)
					}
				})
			}
			want := map[string]int64{"freeze": 6, "resume": 1}[verb] // each pause is a cause, and a resume ends all
			if all.Wait(); done.Load() != want {
				t.Errorf("%s was done %d times", verb, done.Load())
			}
		}
		if log := b.api.Do(t, "GET", "/v1/operator/log", ""); strings.Count(log.Body, `"id":"opl_`) != 14 {
			t.Errorf("the log: %v", log)
		}
	})
}
