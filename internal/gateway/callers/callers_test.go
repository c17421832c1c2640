package callers

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// bundle is a database with an app and its ledger.
type bundle struct {
	t        *testing.T
	db       *db.DB
	ledger   *store.Writer
	tokens   *oauth.Store
	apps     *apps.Store
	features *features.Store
	appID    string

	mu  sync.Mutex
	now time.Time
}

func newBundle(t *testing.T, d *db.DB) *bundle {
	t.Helper()
	b := &bundle{t: t, db: d, now: time.Now()}
	b.ledger = apitest.StartLedger(t, d, b.clock)
	b.tokens = &oauth.Store{DB: d, Ledger: b.ledger, Now: b.clock}
	b.apps, b.features = apps.NewStore(d, b.clock, true), features.NewStore(d, b.clock, nil)
	b.appID = id.New(id.App, b.now)
	for _, text := range []string{
		`INSERT INTO accounts (id, email, password_hash, developer, created_us)
			VALUES ('wac_dev', 'developer@example.com', '', 1, 1)`,
		`INSERT INTO apps (id, owner_id, name, client_id, secret_hash, redirect_uris, allowed_models, tier,
			provider_mode,
			test_allowlist, dev_margin_ppm, created_us)
			VALUES ('` + b.appID +
			`', 'wac_dev', 'App', 'cid_1', '', '[]', '[]', 'full-live', 'live', '[]', 100000, 1)`,
	} {
		if _, err := d.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *bundle) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bundle) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func (b *bundle) do(c rules.Command) {
	b.t.Helper()
	if _, err := b.ledger.Do(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) inTx(f func(context.Context, *db.Tx) error) {
	b.t.Helper()
	if err := b.db.InTx(b.t.Context(), f); err != nil {
		b.t.Fatal(err)
	}
}

// connect makes a connection of a new account, and returns its id and a request with
// an access token for it.
func (b *bundle) connect() (connectionID string, r *http.Request) {
	b.t.Helper()
	c := rules.Connect{
		ConnectionID: id.New(id.Connection, b.now),
		AppID:        b.appID,
		AccountID:    id.New(id.Account, b.now),
		RequestedMC:  money.Dollar,
	}
	b.do(rules.TopUp{AccountID: c.AccountID, AmountMC: 100 * money.Dollar})
	b.do(c)
	r = httptest.NewRequest(http.MethodPost, "/", nil)
	b.inTx(func(ctx context.Context, tx *db.Tx) error {
		given, err := b.tokens.IssueTokens(ctx, tx, c.ConnectionID, b.appID, "")
		r.Header.Set("Authorization", "Bearer "+given.AccessToken)
		return err
	})
	return c.ConnectionID, r
}

// A change of an app is seen by all its users two seconds later, whenever each of them
// called; an app whose suspension is lifted works immediately.
func TestCallersShareTheirApp(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		resolver := NewResolver(d, b.tokens, b.apps, b.features, b.clock)
		user := func() func() *Caller {
			connectionID, r := b.connect()
			return func() *Caller {
				t.Helper()
				c, err := resolver.Resolve(r)
				if err != nil || c.ConnectionID != connectionID {
					t.Fatalf("resolved to %+v, %v", c, err)
				}
				return c
			}
		}
		first, second := user(), user()
		first()
		name := web.Field[string]{Set: true, Value: "Digest"}
		digest := features.Change{
			Slug:        web.Field[string]{Set: true, Value: "digest"},
			DisplayName: name,
			Description: name,
		}
		if _, err := b.features.Create(t.Context(), b.appID, digest); err != nil {
			t.Fatal(err)
		}
		second() // uses the app that the first one has loaded, but for no longer than that
		b.pass(cacheTTL)
		for n, resolve := range []func() *Caller{first, second} {
			if c := resolve(); len(c.Features) != 1 || c.AccountID == "" || c.App.ID != b.appID {
				t.Errorf("caller %d is %+v", n, c)
			}
		}
		b.inTx(func(ctx context.Context, tx *db.Tx) error {
			_, _, err := b.apps.Suspend(ctx, tx, b.appID, "operator", "because")
			return err
		})
		b.pass(cacheTTL)
		for n, resolve := range []func() *Caller{first, second} {
			if resolve().CheckAllowed() == nil {
				t.Errorf("caller %d may call through a suspended app", n)
			}
		}
		b.inTx(func(ctx context.Context, tx *db.Tx) error {
			_, _, err := b.apps.Lift(ctx, tx, b.appID)
			return err
		})
		for n, resolve := range []func() *Caller{first, second} {
			if err := resolve().CheckAllowed(); err != nil {
				t.Errorf("caller %d: %v", n, err)
			}
		}
	})
}

// A revoked connection says that it is revoked, and not by whom: the user, the app or the
// app's promotion may have done it.
func TestRevokedByWhomIsNotClaimed(t *testing.T) {
	t.Parallel()
	err := (&Caller{ConnectionID: "conn_1", Status: rules.Revoked}).CheckAllowed()
	if err == nil || !strings.Contains(err.Error(), "this connection was revoked") ||
		strings.Contains(err.Error(), "the user revoked") {
		t.Errorf("%v", err)
	}
}

// TestForgetOneApp: a change of an app is seen by its callers at once, and the callers of others stay cached, however
// often it changes. So does the end of a child for the callers of other tokens.
func TestForgetOneApp(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite))
	resolver := NewResolver(b.db, b.tokens, b.apps, b.features, b.clock)
	resolve := func(r *http.Request) *Caller {
		t.Helper()
		c, err := resolver.Resolve(r)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	_, mine := b.connect()
	if _, err := b.db.ExecContext(t.Context(), `INSERT INTO apps (id, owner_id, name, client_id, secret_hash,
			redirect_uris, allowed_models, tier, provider_mode, test_allowlist, dev_margin_ppm, created_us)
		VALUES ('app_other', 'wac_dev', 'Other', 'cid_2', '', '[]', '[]', 'full-live', 'live', '[]', 1, 1)`,
	); err != nil {
		t.Fatal(err)
	}
	changing := b.appID
	b.appID = "app_other"
	_, others := b.connect()
	kept := resolve(others)
	before := resolve(mine)
	if _, err := b.db.ExecContext(t.Context(), `UPDATE apps SET name = 'New' WHERE id = $1`, changing); err != nil {
		t.Fatal(err)
	}
	resolver.Forget(changing)
	if c := resolve(mine); c == before || c.App.Name != "New" {
		t.Errorf("the app that has changed: %+v", c)
	}
	if resolve(others) != kept {
		t.Error("a caller of another app is read again")
	}
	again := resolve(mine)
	resolver.ForgetTokens([]string{id.Hash(strings.TrimPrefix(mine.Header.Get("Authorization"), "Bearer "))})
	if resolve(mine) == again {
		t.Error("a token that was to be forgotten is cached")
	}
	if resolve(others) != kept {
		t.Error("a caller with another token is read again")
	}
	resolver.Forget("")
	if resolve(others) == kept {
		t.Error("a caller is cached after all were to be forgotten")
	}
}

// TestLoadsDoNotOutliveAChangeHere: an app changes, or a token is forgotten, while a caller is loaded. What was read
// before the change is not cached after it.
func TestLoadsDoNotOutliveAChangeHere(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"FROM apps", "FROM features", "FROM connections"} {
		for _, what := range []string{"the app", "all", "the token"} {
			b := newBundle(t, dbtest.Open(t, db.SQLite))
			resolver := NewResolver(b.db, b.tokens, b.apps, b.features, b.clock)
			_, r := b.connect()
			hash := id.Hash(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
			changed := false
			b.db.Trace(func(query string, _ []any) {
				if changed || !strings.Contains(query, table) {
					return
				}
				changed = true
				switch what {
				case "the app":
					resolver.Forget(b.appID)
				case "all":
					resolver.Forget("")
				case "the token":
					resolver.ForgetTokens([]string{hash})
				}
			})
			first, err := resolver.Resolve(r)
			if err != nil || !changed {
				t.Fatalf("%s, %s: changed %t, %v", table, what, changed, err)
			}
			second, err := resolver.Resolve(r)
			if err != nil || second == first {
				t.Errorf("%s, %s: what was read before is cached, %v", table, what, err)
			}
			if third, err := resolver.Resolve(r); err != nil || third != second {
				t.Errorf("%s, %s: nothing is cached any more, %v", table, what, err)
			}
		}
	}
}

// TestFreeRate: what the sandbox apps of a developer leave for nothing has one rate; beyond it they are 429 with
// Retry-After.
func TestFreeRate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f := NewFreeRate(10, 3, func() time.Time { return now })
	for i := range 4 {
		err := f.Check("wac_1")
		if (err != nil) != (i == 3) {
			t.Errorf("%d: %v", i, err)
		}
		e, ok := errors.AsType[*apierr.Error](err)
		if ok && (e.Code != apierr.RateLimited || e.RetryAfter < time.Second) {
			t.Errorf("%+v", e)
		}
	}
	if err := f.Check("wac_2"); err != nil {
		t.Errorf("another developer: %v", err)
	}
	now = now.Add(time.Second / 10)
	if err := f.Check("wac_1"); err != nil {
		t.Errorf("later: %v", err)
	}
	if err := (*FreeRate)(nil).Check("wac_1"); err != nil {
		t.Errorf("without a rate: %v", err)
	}
}
