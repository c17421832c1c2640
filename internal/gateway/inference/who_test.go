package inference

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger"
)

// What changes of an app is true for all its users two seconds later, whenever each
// of them called; an app that is switched on again works at once.
func TestCallersShareTheirApp(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e db.Engine) {
		s := newDesk(t, e, &fake{})
		other := ledger.Connect{ConnectionID: id.New(id.Connection, s.now), AppID: s.who.App.ID, AccountID: id.New(id.Account, s.now), RequestedMC: money.Dollar}
		s.do(ledger.TopUp{AccountID: other.AccountID, AmountMC: 100 * money.Dollar})
		s.do(other)
		tokens, described := &oauth.Store{DB: s.DB, Ledger: s.Ledger, Now: s.Now}, features.NewStore(s.DB, s.Now, nil)
		callers := NewCallers(s.DB, tokens, s.Apps, described, s.Now)
		inTx := func(f func(context.Context, *db.Tx) error) {
			t.Helper()
			if err := s.DB.InTx(t.Context(), f); err != nil {
				t.Fatal(err)
			}
		}
		find := func(connectionID string) func() *caller {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			inTx(func(ctx context.Context, tx *db.Tx) error {
				given, err := tokens.Issue(ctx, tx, connectionID, s.who.App.ID, "")
				r.Header.Set("Authorization", "Bearer "+given.AccessToken)
				return err
			})
			return func() *caller {
				t.Helper()
				c, err := callers.find(r)
				if err != nil || c.ConnectionID != connectionID {
					t.Fatalf("found %+v, %v", c, err)
				}
				return c
			}
		}
		first, second := find(s.who.ConnectionID), find(other.ConnectionID)
		first()
		name := web.Field[string]{Set: true, Value: "Digest"}
		if _, err := described.Create(t.Context(), s.who.App.ID, features.Change{Slug: web.Field[string]{Set: true, Value: "digest"}, DisplayName: name, Description: name}); err != nil {
			t.Fatal(err)
		}
		second() // who comes between shares what the first one found, but not for longer
		s.pass(known)
		for n, who := range []func() *caller{first, second} {
			if c := who(); len(c.Features) != 1 || c.AccountID == "" || c.App.ID != s.who.App.ID {
				t.Errorf("caller %d is %+v", n, c)
			}
		}
		inTx(func(ctx context.Context, tx *db.Tx) error {
			_, _, err := s.Apps.Suspend(ctx, tx, s.who.App.ID, "operator", "because")
			return err
		})
		s.pass(known)
		for n, who := range []func() *caller{first, second} {
			if who().allowed() == nil {
				t.Errorf("caller %d may call through an app that is switched off", n)
			}
		}
		inTx(func(ctx context.Context, tx *db.Tx) error {
			_, _, err := s.Apps.Lift(ctx, tx, s.who.App.ID)
			return err
		})
		for n, who := range []func() *caller{first, second} {
			if err := who().allowed(); err != nil {
				t.Errorf("caller %d: %v", n, err)
			}
		}
	})
}
