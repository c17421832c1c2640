package privacy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/members"
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
	Members  *members.Store
	Ledger   *store.Writer
	Now      func() time.Time
}

// errObstacles is returned while obstacles keep the account from being closed.
var errObstacles = errors.New("privacy: the account cannot be closed yet")

const closedReason = "The developer closed their account."

// Close closes an account whose user has confirmed it with the password. In one transaction it revokes the connections,
// suspends the apps, deletes the test accounts and erases the personal data. The error wraps errObstacles while
// obstacles remain.
func (s *Store) Close(ctx context.Context, a accounts.Account) error {
	if a.Sandbox {
		return apierr.InvalidRequest.Errorf("A test account is deleted by its developer, in the developer console.")
	}
	st, err := s.loadStanding(ctx, s.DB, a)
	if err != nil {
		return err
	}
	if len(st.expectedObstacles()) > 0 {
		return errObstacles
	}
	if err := s.Topups.ExpireUnpaid(ctx, a.ID); err != nil {
		return err
	}
	if err := s.Accounts.FlushEvents(ctx); err != nil { // none may be written later
		return err
	}
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		now, err := accounts.Lock(ctx, tx, a.ID)
		if err != nil {
			return err
		}
		if now.Deactivated || now.Epoch != a.Epoch || now.Email != a.Email {
			return apierr.InvalidRequest.Errorf("Your account changed in the meantime. Sign in and try again.")
		}
		return s.closeTx(ctx, tx, now, false)
	})
	if err != nil {
		return fmt.Errorf("privacy: close: %w", err)
	}
	s.Apps.NotifyChange()
	return nil
}

// closeTx closes an account that the transaction has locked.
func (s *Store) closeTx(ctx context.Context, tx *db.Tx, a accounts.Account, byOperator bool) error {
	st, err := s.endConnections(ctx, tx, a)
	if err != nil {
		return err
	}
	if err := s.suspendApps(ctx, tx, st.apps); err != nil {
		return err
	}
	if err := s.Apps.EraseAccount(ctx, tx, a); err != nil {
		return err
	}
	if err := s.Keys.DeleteAccountKeys(ctx, tx, a.ID); err != nil {
		return err
	}
	if err := s.Topups.DeletePlan(ctx, tx, a.ID); err != nil {
		return err
	}
	if err := s.Members.EraseAccount(ctx, tx, a); err != nil {
		return err
	}
	if err := s.Identity.EraseAccount(ctx, tx, a, byOperator); err != nil {
		return err
	}
	return s.Accounts.CloseAccount(ctx, tx, a.ID)
}

// endConnections revokes the connections of the account and deletes its test accounts, under the account's lock. It
// then checks the standing again: a call that started meanwhile leaves money reserved after its connection is revoked.
func (s *Store) endConnections(ctx context.Context, tx *db.Tx, a accounts.Account) (st standing, err error) {
	if err := s.revokeConnections(ctx, tx, a.ID, false); err != nil {
		return st, err
	}
	if st, err = s.loadStanding(ctx, tx, a); err != nil {
		return st, err
	}
	if len(st.obstacles()) > 0 || st.balance.ReservedMC != 0 {
		return st, errObstacles
	}
	for _, t := range st.testAccounts {
		if err := s.Sandbox.DeleteTx(ctx, tx, a.ID, t.ID); err != nil {
			return st, err
		}
	}
	return st, nil
}

// revokeConnections revokes the live connections of an account that the transaction has locked. With stopCalls, running
// calls end.
func (s *Store) revokeConnections(ctx context.Context, tx *db.Tx, accountID string, stopCalls bool) error {
	list, err := liveConnections(ctx, tx, accountID)
	if err != nil {
		return err
	}
	for _, connectionID := range list {
		if _, err := s.Ledger.DoTx(ctx, tx, rules.Revoke{
			ConnectionID: connectionID,
			StopCalls:    stopCalls,
		}); err != nil {
			return err
		}
	}
	return nil
}

// suspendApps suspends apps so that only the operator could lift it, and deletes their secrets and webhook endpoints:
// no event of a user reaches a developer whose account is closed.
func (s *Store) suspendApps(ctx context.Context, tx *db.Tx, list []apps.App) error {
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
		if err := golive.EraseReviewed(ctx, tx, app.ID); err != nil {
			return err
		}
	}
	return nil
}

// closePage returns the page that asks for confirmation.
func (st standing) closePage(a accounts.Account) ui.CloseAccount {
	p := ui.CloseAccount{
		Shell:        a.Shell(ui.Settings),
		Obstacles:    st.expectedObstacles(),
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
