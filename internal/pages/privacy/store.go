package privacy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/topups"
)

// A Store exports and closes accounts.
type Store struct {
	DB       *db.DB
	Accounts *accounts.Store
	Sessions *accounts.Sessions
	Identity *identity.Store
	Apps     *apps.Store
	Sandbox  *sandbox.Store
	Keys     *providerkeys.Store
	Topups   *topups.Store
	Webhooks *webhooks.Store
	Ledger   *store.Writer
	Now      func() time.Time
}

// errObstacles says that something must happen before the account can be closed.
var errObstacles = errors.New("privacy: the account cannot be closed yet")

const closedReason = "The developer closed their account."

// Close closes the account of somebody who is signed in, knows the password and
// has said that they mean it. Their connections are revoked, their apps switched
// off and test accounts deleted, and whatever says who they are is erased: all of
// it or nothing. The error wraps errObstacles when something must happen first.
func (s *Store) Close(ctx context.Context, a accounts.Account) error {
	if a.Sandbox {
		return apierr.InvalidRequest.Errorf("A test account is deleted by its developer, in the developer console.")
	}
	st, err := s.standing(ctx, s.DB, a)
	if err != nil {
		return err
	}
	if len(st.obstacles()) > 0 {
		return errObstacles
	}
	if err := s.Accounts.FlushEvents(ctx); err != nil { // none may follow
		return err
	}
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.settle(ctx, tx, a); err != nil {
			return err
		}
		if err := s.withdraw(ctx, tx, st.apps); err != nil {
			return err
		}
		if err := s.Keys.DeleteAccountKeys(ctx, tx, a.ID); err != nil {
			return err
		}
		if err := s.Topups.DeletePlan(ctx, tx, a.ID); err != nil {
			return err
		}
		if err := s.Identity.EraseAccount(ctx, tx, a); err != nil {
			return err
		}
		return s.Accounts.CloseAccount(ctx, tx, a.ID)
	})
	if err != nil {
		return fmt.Errorf("privacy: close: %w", err)
	}
	s.Apps.NotifyChange()
	return nil
}

// settle ends what the account and its test accounts allocated, under the account's
// lock, and looks once more at how it stands: a call may have begun meanwhile. What
// that holds is still reserved after the connection has ended.
func (s *Store) settle(ctx context.Context, tx *db.Tx, a accounts.Account) error {
	now, err := accounts.Lock(ctx, tx, a.ID)
	if err != nil {
		return err
	}
	if now.Deactivated || now.Epoch != a.Epoch || now.Email != a.Email {
		return apierr.InvalidRequest.Errorf("Your account changed in the meantime. Sign in and try again.")
	}
	list, err := liveConnections(ctx, tx, a.ID)
	if err != nil {
		return err
	}
	for _, connectionID := range list {
		if _, err := s.Ledger.DoTx(ctx, tx, rules.Revoke{ConnectionID: connectionID}); err != nil {
			return err
		}
	}
	st, err := s.standing(ctx, tx, a)
	if err != nil {
		return err
	}
	if len(st.obstacles()) > 0 || st.balance.ReservedMC != 0 {
		return errObstacles
	}
	for _, t := range st.testAccounts {
		if err := s.Sandbox.DeleteTx(ctx, tx, a.ID, t.ID); err != nil {
			return err
		}
	}
	return nil
}

// withdraw switches apps off in a way that only the operator could lift, and
// forgets their secrets and where they wanted their events: nothing that people did
// with them is told to somebody who has gone.
func (s *Store) withdraw(ctx context.Context, tx *db.Tx, list []apps.App) error {
	for _, app := range list {
		if _, _, err := s.Apps.Suspend(ctx, tx, app.ID, apps.ByOperator, closedReason); err != nil &&
			!errors.Is(err, apps.ErrUnchanged) {
			return err
		}
		if err := s.Apps.DeleteSecret(ctx, tx, app.ID); err != nil {
			return err
		}
		if err := s.Webhooks.DeleteAppEndpoints(ctx, tx, app.ID); err != nil {
			return err
		}
	}
	return nil
}

// page is what the account's owner reads before it is closed.
func (st standing) page(a accounts.Account) ui.CloseAccount {
	p := ui.CloseAccount{
		Shell:        a.Shell(ui.Settings),
		Obstacles:    st.obstacles(),
		Connections:  st.live,
		Apps:         len(st.apps),
		TestAccounts: len(st.testAccounts),
		Password:     a.HasPassword,
	}
	if rest := st.balance.AvailableMC + st.balance.ReservedMC; rest > 0 {
		p.Rest = rest.Display()
	}
	return p
}
