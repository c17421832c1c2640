package golive_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// bundle is a server with a sandbox app that is ready to go live, and another one.
type bundle struct {
	d           *db.DB
	apps        *apps.Store
	accounts    *accounts.Store
	store       *golive.Store
	app, other  apps.App
	mine, their apitest.Client
	developer   accounts.Account
}

func newBundle(t *testing.T, d *db.DB) *bundle {
	t.Helper()
	b := &bundle{d: d, apps: apps.NewStore(d, d.Now, false), accounts: accounts.NewStore(d, d.Now)}
	b.store = &golive.Store{DB: d, Apps: b.apps, Ledger: store.NewWriter(d, d.Now), Now: d.Now}
	b.apps.OnReviewed = b.store.Follow
	rt := web.NewRouter(slog.New(slog.NewTextHandler(io.Discard, nil)), web.Links{})
	(&golive.Handler{Store: b.store, Apps: b.apps}).Mount(rt)
	server := httptest.NewServer(rt)
	t.Cleanup(server.Close)
	b.tx(t, func(ctx context.Context, tx *db.Tx) (err error) {
		b.developer, err = b.accounts.Create(ctx, tx,
			accounts.NewAccount{Email: "developer@example.com", Developer: true})
		return err
	})
	b.app, b.mine = b.newApp(t, server.URL)
	b.other, b.their = b.newApp(t, server.URL)
	return b
}

func (b *bundle) newApp(t *testing.T, base string) (app apps.App, client apitest.Client) {
	t.Helper()
	b.tx(t, func(ctx context.Context, tx *db.Tx) error {
		var secret string
		var err error
		app, secret, err = b.apps.Create(ctx, tx, apps.New{
			OwnerID:       b.developer.ID,
			Name:          "Reader",
			RedirectURIs:  []string{"https://app.example.com/cb"},
			AllowedModels: []string{"gpt-6-luna"},
		})
		client = apitest.Client{Base: base, User: app.ClientID, Secret: secret}
		return err
	})
	if _, err := b.d.ExecContext(t.Context(), `INSERT INTO features (app_id, slug, display_name, description,
			created_us) VALUES ($1, 'chat', 'Chat', 'Answers.', 1)`, app.ID); err != nil {
		t.Fatal(err)
	}
	return app, client
}

func (b *bundle) tx(t *testing.T, f func(ctx context.Context, tx *db.Tx) error) {
	t.Helper()
	if err := b.d.InTx(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) number(t *testing.T, text string, args ...any) (n int) {
	t.Helper()
	if err := b.d.QueryRowContext(t.Context(), text, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// tester adds a test account with fake money.
func (b *bundle) tester(t *testing.T, n int) (a accounts.Account) {
	t.Helper()
	b.tx(t, func(ctx context.Context, tx *db.Tx) (err error) {
		a, err = b.accounts.Create(ctx, tx, accounts.NewAccount{
			Email:   fmt.Sprintf("tester%d@example.com", n),
			Sandbox: true,
			OwnerID: b.developer.ID,
		})
		if err != nil {
			return err
		}
		_, err = b.store.Ledger.DoTx(ctx, tx, rules.TopUp{AccountID: a.ID, Sandbox: true, AmountMC: 100 * money.Dollar})
		return err
	})
	return a
}

func (b *bundle) connect(t *testing.T, app apps.App, a accounts.Account) {
	t.Helper()
	b.tx(t, func(ctx context.Context, tx *db.Tx) error {
		_, err := b.store.Ledger.DoTx(ctx, tx, rules.Connect{
			ConnectionID: id.New(id.Connection, b.d.Now()),
			AppID:        app.ID,
			AccountID:    a.ID,
			RequestedMC:  5 * money.Dollar,
			Sandbox:      true,
		})
		return err
	})
}

func (b *bundle) approve(ctx context.Context, requestID string) error {
	return b.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, _, _, err := b.store.Approve(ctx, tx, requestID)
		return err
	})
}

func want(t *testing.T, got apitest.Answer, status int, says string) {
	t.Helper()
	if got.Status != status || !strings.Contains(got.Body, says) {
		t.Errorf("got %v; want %d that says %q", got, status, says)
	}
}

// race runs f 64 times at once and returns how often it succeeded; a failure must
// be a 400.
func race(t *testing.T, f func(i int) error) int {
	t.Helper()
	var done atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range 64 {
		wg.Go(func() {
			<-start
			err := f(i)
			if e, ok := errors.AsType[*apierr.Error](err); err == nil {
				done.Add(1)
			} else if !ok || e.Code != apierr.InvalidRequest {
				t.Errorf("caller %d: %v", i, err)
			}
		})
	}
	close(start)
	wg.Wait()
	return int(done.Load())
}

func TestOneRequestIsPendingHoweverManyAsk(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		if n := race(t, func(int) error {
			_, err := b.store.CreateRequest(t.Context(), b.app.ID)
			return err
		}); n != 1 {
			t.Errorf("%d of 64 requests were filed", n)
		}
		if n := b.number(t, `SELECT COUNT(*) FROM golive_requests`); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// Reviewers who decide at once: one decision counts, and the tier follows it.
func TestOneDecisionCounts(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		r, err := b.store.CreateRequest(t.Context(), b.app.ID)
		if err != nil {
			t.Fatal(err)
		}
		n := race(t, func(i int) error {
			if i%2 == 0 {
				return b.approve(t.Context(), r.ID)
			}
			return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				_, err := b.store.Reject(ctx, tx, r.ID, "no")
				return err
			})
		})
		app, err := b.apps.Get(t.Context(), b.app.ID)
		if err != nil || n != 1 {
			t.Fatalf("%d decisions counted, %v", n, err)
		}
		approved := b.number(t, `SELECT COUNT(*) FROM golive_requests WHERE status = 'approved'`) == 1
		if live := app.Tier == apps.LimitedLive && app.ProviderMode == apps.Live; live != approved {
			t.Errorf("approved %t, but the app is %s, %s", approved, app.Tier, app.ProviderMode)
		}
	})
}

// The wall between fake and real money (I-29): whatever test accounts do while the
// app goes live, none of them is connected to it afterwards. Other apps keep theirs.
func TestNoTestAccountIsLeftOnALiveApp(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		tokens := &oauth.Store{DB: d, Ledger: b.store.Ledger, Now: d.Now}
		rt := web.NewRouter(slog.New(slog.NewTextHandler(io.Discard, nil)), web.Links{})
		(&oauth.Handler{
			Store:    tokens,
			Accounts: b.accounts,
			Apps:     b.apps,
			Sessions: accounts.NewSessions(b.accounts, false),
		}).Mount(rt)
		server := httptest.NewServer(rt)
		defer server.Close()
		codes := make([]string, 24)
		for i := range codes {
			a := b.tester(t, i)
			if b.connect(t, b.other, a); i%2 == 0 {
				b.connect(t, b.app, a)
			}
			b.tx(t, func(ctx context.Context, tx *db.Tx) (err error) {
				codes[i], err = tokens.CreateCode(ctx, tx, oauth.Consent{
					AppID:       b.app.ID,
					AccountID:   a.ID,
					RedirectURI: "https://app.example.com/cb",
					Challenge:   challenge,
					CapMC:       money.Dollar,
				})
				return err
			})
		}
		r, err := b.store.CreateRequest(t.Context(), b.app.ID)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		answered := make(chan int, len(codes))
		for _, code := range codes {
			wg.Go(func() {
				form := "grant_type=authorization_code&redirect_uri=https%3A%2F%2Fapp.example.com%2Fcb&code_verifier=" +
					verifier + "&code=" + code
				answered <- post(t, server.URL+"/oauth/token", form, b.mine)
			})
		}
		wg.Go(func() {
			first := <-answered // the others are on their way
			answered <- first
			if err := b.approve(t.Context(), r.ID); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		for range codes {
			if status := <-answered; status != 200 && status != 400 {
				t.Errorf("an exchange answered %d", status)
			}
		}
		if n := b.number(t, `SELECT COUNT(*) FROM connections
			WHERE app_id = $1 AND status <> 'revoked'`, b.app.ID); n != 0 {
			t.Errorf("%d test accounts are connected to a live app", n)
		}
		if n := b.number(t, `SELECT COUNT(*) FROM connections
			WHERE app_id = $1 AND status = 'active'`, b.other.ID); n != len(codes) {
			t.Errorf("%d of %d connections of another app are left", n, len(codes))
		}
		if n := b.number(t,
			`SELECT CAST(SUM(reserved_mc) AS BIGINT) FROM balances`); n != len(codes)*5*int(money.Dollar) {
			t.Errorf("%d is reserved", n)
		}
	})
}

// What the app was judged by must still be there when it is approved.
func TestApprovalJudgesAgain(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		r, err := b.store.CreateRequest(t.Context(), b.app.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.apps.SetRedirectURIs(t.Context(), b.app.ID, nil); err != nil {
			t.Fatal(err)
		}
		if e, _ := errors.AsType[*apierr.Error](b.approve(t.Context(), r.ID)); e == nil ||
			!strings.Contains(e.Message, "redirect_uri") {
			t.Errorf("approved without a redirect URI: %v", e)
		}
		if e, _ := errors.AsType[*apierr.Error](b.approve(t.Context(), "glr_absent")); e == nil ||
			e.Code != apierr.NotFound {
			t.Errorf("approved what does not exist: %v", e)
		}
		if app, err := b.apps.Get(t.Context(), b.app.ID); err != nil || app.Tier != apps.Sandbox ||
			app.ProviderMode != apps.Mock {
			t.Errorf("%+v, %v", app, err)
		}
	})
}

func TestRequestLife(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		path := "/v1/apps/" + b.app.ID + "/go-live"
		want(t, b.mine.Do(t, "GET", path, ""), 200, `"tier":"sandbox","next_tier":"limited-live","ready":true`)
		want(t, b.their.Do(t, "GET", path, ""), 404, "no such app")
		want(t, b.their.Do(t, "POST", path, ""), 404, "no such app")
		for _, c := range []struct{ update, lacks string }{
			{`UPDATE apps SET redirect_uris = '[]' WHERE id = $1`, "redirect_uri"},
			{`UPDATE apps
				SET redirect_uris = '["https://localhost/cb","https://127.0.0.1/cb","http://app.example.com/cb"]'
				WHERE id = $1`, "redirect_uri"},
			{`UPDATE apps SET allowed_models = '[]' WHERE id = $1`, "allowed_models"},
			{`UPDATE features SET app_id = '` + b.other.ID + `', slug = 'moved' WHERE app_id = $1`, "feature"},
		} {
			before, err := b.apps.Get(t.Context(), b.app.ID)
			if err != nil {
				t.Fatal(err)
			}
			exec(t, d, c.update, b.app.ID)
			want(t, b.mine.Do(t, "POST", path, ""), 400, `"missing":["`+c.lacks+`"]`)
			want(t, b.mine.Do(t, "GET", path, ""), 200, `"ready":false`)
			exec(t, d, `UPDATE features SET app_id = $1, slug = 'chat' WHERE slug = 'moved'`, b.app.ID)
			exec(t, d, `UPDATE apps
				SET allowed_models = '["gpt-6-luna"]', redirect_uris = '["`+before.RedirectURIs[0]+`"]'
				WHERE id = $1`, b.app.ID)
		}
		want(t, b.mine.Do(t, "POST", path, ""), 200, `"status":"pending"`)
		list, err := b.store.ListPending(t.Context(), "", 10)
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		b.tx(t, func(ctx context.Context, tx *db.Tx) error {
			_, err := b.store.Reject(ctx, tx, list[0].ID, "Say more.")
			return err
		})
		want(t, b.mine.Do(t, "GET", path, ""), 200, `"status":"refused","reason":"Say more."`)
		again := b.mine.Do(t, "POST", path, "")
		want(t, again, 200, `"status":"pending"`)
		if list, err = b.store.ListPending(t.Context(), "", 10); err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		if err := b.approve(t.Context(), list[0].ID); err != nil {
			t.Fatal(err)
		}
		want(t, b.mine.Do(t, "GET", path, ""), 200, `"tier":"limited-live","next_tier":null`)
		want(t, b.mine.Do(t, "POST", path, ""), 400, "not open yet")
		exec(t, d, `UPDATE apps SET tier = 'full-live' WHERE id = $1`, b.app.ID)
		want(t, b.mine.Do(t, "POST", path, ""), 400, "highest tier")
	})
}

func exec(t *testing.T, d *db.DB, text string, args ...any) {
	t.Helper()
	if _, err := d.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatal(err)
	}
}
