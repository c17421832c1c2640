package privacy

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/members"
	"github.com/purserhq/purser/internal/apps/payouts"
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
	Payouts  *payouts.Store
	Ledger   *store.Writer
	Now      func() time.Time

	// What the operator keeps, and for how long, as the pages say it; 0 = the default.
	KeptResponses, KeptEvents time.Duration
}

// describeKept says how long responses to calls, and security events, are kept.
func (s *Store) describeKept() (responses, events string) {
	return ui.Span(cmp.Or(s.KeptResponses, store.DefaultRetention.Responses)),
		ui.Span(cmp.Or(s.KeptEvents, accounts.DefaultRetention))
}

// Close closes an account whose user has confirmed it with the password. In one transaction it revokes the connections,
// suspends the apps, deletes the test accounts and erases the personal data. The error is *obstacles while something
// keeps it open, and *unseen if closing takes what is not among seen, which the page has shown.
func (s *Store) Close(ctx context.Context, a accounts.Account, seen string) error {
	if a.Sandbox {
		return apierr.InvalidRequest.Errorf("A test account is deleted by its developer, in the developer console.")
	}
	// Stripe may have stopped paying the developer since it was asked, and afterwards nobody could sign in to mend it.
	if _, err := s.Payouts.GetPayee(ctx, a.ID); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("privacy: payee: %w", err)
	}
	st, err := s.loadStanding(ctx, s.DB, a)
	if err != nil {
		return err
	}
	if list := st.ownObstacles(); len(list) > 0 {
		return &obstacles{list}
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
		st, err := s.closeTx(ctx, tx, now, false)
		if list := st.findUnseen(seen, row.key); err == nil && len(list) > 0 {
			err = &unseen{list}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("privacy: close: %w", err)
	}
	s.Apps.NotifyChange("")
	return nil
}

// closeTx closes an account that the transaction has locked. It returns the account's standing at that moment.
func (s *Store) closeTx(ctx context.Context, tx *db.Tx, a accounts.Account, byOperator bool) (st standing, err error) {
	// A code of one of the apps that is exchanged now has made its connection, which the standing counts, or finds the
	// app suspended.
	if err := apps.LockOwned(ctx, tx, a.ID); err != nil {
		return st, err
	}
	// The plan and the balance are locked first, in the order in which payments are booked: no charge begins, and
	// nothing is booked, between the reads of the standing.
	if err := s.Topups.DeletePlan(ctx, tx, a.ID); err != nil {
		return st, err
	}
	if _, err := store.LockBalance(ctx, tx, a.ID); err != nil {
		return st, fmt.Errorf("privacy: balance: %w", err)
	}
	if st, err = s.endConnections(ctx, tx, a); err != nil {
		return st, err
	}
	list := st.ownObstacles()
	if byOperator {
		list = st.operatorObstacles()
	}
	if len(list) > 0 {
		return st, &obstacles{list}
	}
	for _, t := range st.testAccounts {
		if err := s.Sandbox.DeleteTx(ctx, tx, a.ID, t.ID); err != nil {
			return st, err
		}
	}
	if err := s.suspendApps(ctx, tx, st.apps); err != nil {
		return st, err
	}
	if err := s.Apps.EraseAccount(ctx, tx, a); err != nil {
		return st, err
	}
	if err := s.Keys.DeleteAccountKeys(ctx, tx, a.ID); err != nil {
		return st, err
	}
	if err := s.Members.EraseAccount(ctx, tx, a); err != nil {
		return st, err
	}
	if err := s.Identity.EraseAccount(ctx, tx, a, byOperator, st.farewell()); err != nil {
		return st, err
	}
	return st, s.Accounts.CloseAccount(ctx, tx, a.ID)
}

// endConnections revokes the connections of the account, under the account's lock, and loads the standing then: a call
// that started meanwhile leaves money reserved after its connection is revoked.
func (s *Store) endConnections(ctx context.Context, tx *db.Tx, a accounts.Account) (st standing, err error) {
	if err := s.revokeConnections(ctx, tx, a.ID, false); err != nil {
		return st, err
	}
	if st, err = s.loadStanding(ctx, tx, a); err != nil {
		return st, err
	}
	st.endCheckouts()
	if st.balance.ReservedMC != 0 && !slices.ContainsFunc(st.rows, func(r row) bool { return r.kind == runningCalls }) {
		st.rows = slices.Insert(st.rows, 0, row{kind: runningCalls, count: 1})
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
		if _, _, err := s.Apps.Suspend(ctx, tx, app.ID, apps.ByOperator, apps.ClosedReason); err != nil &&
			!errors.Is(err, apps.ErrUnchanged) {
			return err
		}
		if err := s.Apps.DeleteSecret(ctx, tx, app.ID); err != nil {
			return err
		}
		if err := s.Webhooks.DeleteAppEndpoints(ctx, tx, app.ID); err != nil {
			return err
		}
		if err := golive.EraseReviewed(ctx, tx, app.ID, s.Now().UnixMicro()); err != nil {
			return err
		}
	}
	return nil
}

// closePage returns the page that asks for confirmation, or says what blocks it.
func (s *Store) closePage(st standing, a accounts.Account, blocking []row) ui.CloseAccount {
	p := ui.CloseAccount{
		Shell:        a.Shell(ui.Settings),
		Connections:  st.live,
		Apps:         len(st.apps),
		TestAccounts: len(st.testAccounts),
		Password:     a.HasPassword,
		Seen:         st.seen(row.key),
		MayReturn:    s.Identity.SignUps == "" || s.Identity.SignUps == identity.OpenSignUps,
	}
	p.Kept, _ = s.describeKept()
	for _, r := range blocking {
		item := r.own()
		p.Obstacles = append(p.Obstacles, ui.Obstacle{Text: item.Text, Link: item.Link})
	}
	for _, r := range st.rows {
		if item := r.own(); item.Fate != Blocks && item.Text != "" {
			p.Notes = append(p.Notes, ui.Obstacle{Text: item.Text, Link: item.Link})
		}
	}
	if rest := st.balance.AvailableMC + st.balance.ReservedMC; rest > 0 {
		p.Rest = rest.Display()
	}
	return p
}
