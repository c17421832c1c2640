package members

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
)

const (
	invitationPrefix = "inv_"
	invitationTTL    = 7 * 24 * time.Hour
	// invitationRetention is how long an expired invitation stays in the list of the app.
	invitationRetention = 30 * 24 * time.Hour
	// maxMembers is the most members and pending invitations of an app.
	maxMembers = 100
)

// A Store manages the members of apps.
type Store struct {
	db        *db.DB
	accounts  *accounts.Store
	mails     *mail.Store
	now       func() time.Time
	dashboard string       // URL that mailed links begin with
	sent      *web.Limiter // invitations, by inviter
	shares    *web.Limiter // invitations to an address, by inviter and by client network
	received  *web.Limiter // invitations, by address, whether or not it has an account
}

// NewStore returns a Store on d. An account may send 20 invitations an hour. An address receives 5 an hour of one
// account or of one client network, so that nobody uses up what others may send, and 30 in all.
func NewStore(d *db.DB, people *accounts.Store, mails *mail.Store, now func() time.Time, dashboard string) *Store {
	people.OnEnd(accounts.AppInvitation, deleteInvitationsOf)
	return &Store{
		db:        d,
		accounts:  people,
		mails:     mails,
		now:       now,
		dashboard: dashboard,
		sent:      web.NewLimiter(time.Hour/20, 20, now),
		shares:    web.NewLimiter(time.Hour/5, 5, now),
		received:  web.NewLimiter(time.Hour/30, 30, now),
	}
}

// A Member is an account with a role in an app.
type Member struct {
	AccountID string
	Email     string
	Role      apps.Role
	InvitedBy string // email; "" = the app's own account
	SinceUS   int64
}

// An Invitation waits for the person with an address to accept it.
type Invitation struct {
	ID        string
	AppID     string
	Email     string
	Role      apps.Role
	InviterID string
	Inviter   string // email
	CreatedUS int64
	ExpiresUS int64
}

// List returns the members of an app. The first is the app's own account.
func (s *Store) List(ctx context.Context, app apps.App) ([]Member, error) {
	owner, err := s.accounts.Get(ctx, app.OwnerID)
	if err != nil {
		return nil, fmt.Errorf("members: owner: %w", err)
	}
	list, err := listMembers(ctx, s.db, app.ID)
	if err != nil {
		return nil, fmt.Errorf("members: list: %w", err)
	}
	return slices.Insert(list, 0, Member{
		AccountID: owner.ID,
		Email:     owner.Email,
		Role:      apps.Owner,
		SinceUS:   app.CreatedUS,
	}), nil
}

// Get returns a member of an app other than its own account; the error wraps sql.ErrNoRows if there is none.
func (s *Store) Get(ctx context.Context, appID, accountID string) (Member, error) {
	m, err := getMember(ctx, s.db, appID, accountID)
	if err != nil {
		return Member{}, fmt.Errorf("members: get: %w", err)
	}
	return m, nil
}

// ListInvitations returns the invitations into an app, also those that have expired.
func (s *Store) ListInvitations(ctx context.Context, appID string) ([]Invitation, error) {
	list, err := listInvitations(ctx, s.db, appID)
	if err != nil {
		return nil, fmt.Errorf("members: invitations: %w", err)
	}
	return list, nil
}

// ListInvitationsOf returns the invitations to the address of an account and those that it has sent, for the export
// of its data.
func (s *Store) ListInvitationsOf(ctx context.Context, a accounts.Account) ([]Invitation, error) {
	list, err := listInvitationsOf(ctx, s.db, a.Email, a.ID)
	if err != nil {
		return nil, fmt.Errorf("members: invitations of account: %w", err)
	}
	return list, nil
}

// An Actor is the account that changes members, and the origin of its request.
type Actor struct {
	accounts.Account
	From accounts.Client
}

// change runs f in a transaction that has locked the app, for an actor who may manage its members. For an account that
// is no member, the error wraps sql.ErrNoRows.
func (s *Store) change(ctx context.Context, appID string, by Actor,
	f func(ctx context.Context, tx *db.Tx, app apps.App) error) error {
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		m, err := apps.LockMembership(ctx, tx, appID, by.ID)
		if err != nil {
			return err
		}
		if !apps.Allows(m.Role, apps.ManageMembers) {
			return errRoleChanged()
		}
		return f(ctx, tx, m.App)
	})
}

// errRoleChanged is the error for an account whose role has become too small while it filled in a form.
func errRoleChanged() error {
	return apierr.InvalidRequest.Errorf("Your role in this app has changed. Reload the page.")
}

// checkRole returns 400 invalid_request for a value that is no role.
func checkRole(r apps.Role) error {
	if !slices.Contains(apps.Roles, r) {
		return apierr.InvalidRequest.Errorf("role: must be owner, developer or viewer")
	}
	return nil
}

// Invite sends an invitation to an address. The answer is the same whether or not the address has an account. An
// earlier invitation to the address ends.
func (s *Store) Invite(ctx context.Context, appID string, by Actor, address string, role apps.Role) error {
	if err := checkRole(role); err != nil {
		return err
	}
	email, err := accounts.NormalizeNewEmail(address)
	if err != nil {
		return apierr.InvalidRequest.Errorf("email: must be an address such as name@example.com")
	}
	if err := s.throttle(by, email); err != nil {
		return err
	}
	token := id.NewSecret()
	return s.change(ctx, appID, by, func(ctx context.Context, tx *db.Tx, app apps.App) error {
		if err := s.checkInvitee(ctx, tx, app, email); err != nil {
			return err
		}
		now := s.now()
		i := Invitation{
			ID:        id.New(invitationPrefix, now),
			AppID:     app.ID,
			Email:     email,
			Role:      role,
			InviterID: by.ID,
			Inviter:   by.Email,
			CreatedUS: now.UnixMicro(),
			ExpiresUS: now.Add(invitationTTL).UnixMicro(),
		}
		if err := upsertInvitation(ctx, tx, i, id.Hash(token)); err != nil {
			return fmt.Errorf("members: invite: %w", err)
		}
		if err := requireActive(ctx, tx, by.ID); err != nil {
			return err
		}
		if err := s.accounts.RecordEvent(ctx, tx, by.ID, accounts.MemberInvited, by.From); err != nil {
			return err
		}
		to, err := s.ensureAccount(ctx, tx, email)
		if err != nil {
			return err
		}
		return s.sendMail(ctx, tx, to.ID, email, invitationEmail(app.Name, i, s.dashboard+InvitationPath+token))
	})
}

// requireActive returns an error for an inviter who was suspended or has closed the account since its session was
// loaded: what ends the invitations of an account has run. It is called after the insert, whose foreign key waits for
// a transaction that has locked the account, and lets later ones wait until they find the invitation.
func requireActive(ctx context.Context, tx *db.Tx, inviterID string) error {
	inviter, err := accounts.GetAccount(ctx, tx, inviterID)
	if err == nil && inviter.Deactivated {
		err = apierr.InvalidRequest.Errorf("Your account was suspended or closed. Reload the page.")
	}
	return err
}

// IsInvited reports whether an app's owner has invited an address, and the invitation is still open.
func (s *Store) IsInvited(ctx context.Context, q db.Queryer, address string) (bool, error) {
	email, err := accounts.NormalizeEmail(address)
	if err != nil {
		return false, nil
	}
	invited, err := hasInvitation(ctx, q, email, s.now().UnixMicro())
	if err != nil {
		return false, fmt.Errorf("members: invited: %w", err)
	}
	return invited, nil
}

// throttle counts an invitation and returns 429 rate_limited over the limits.
func (s *Store) throttle(by Actor, email string) error {
	for _, l := range []struct {
		limiter *web.Limiter
		key     string
	}{
		{s.sent, by.ID},
		{s.shares, id.Hash(by.ID + " " + email)},
		{s.shares, id.Hash(by.From.Network() + " " + email)},
		{s.received, id.Hash(email)},
	} {
		if wait, ok := l.limiter.Allow(l.key); !ok {
			e := apierr.RateLimited.Errorf("Too many invitations. Wait a while, then try again.")
			e.RetryAfter = wait
			return e
		}
	}
	return nil
}

// checkInvitee returns 400 invalid_request for an address of a member, which the inviter can read in the list, and for
// an app that is full.
func (s *Store) checkInvitee(ctx context.Context, tx *db.Tx, app apps.App, email string) error {
	list, err := listMembers(ctx, tx, app.ID)
	if err != nil {
		return fmt.Errorf("members: invite: %w", err)
	}
	owner, err := accounts.GetAccount(ctx, tx, app.OwnerID)
	if err != nil {
		return err
	}
	if owner.Email == email || slices.ContainsFunc(list, func(m Member) bool { return m.Email == email }) {
		return apierr.InvalidRequest.Errorf("email: this address belongs to a member of the app")
	}
	n, err := countMembers(ctx, tx, app.ID)
	if err != nil {
		return fmt.Errorf("members: invite: %w", err)
	}
	if n >= maxMembers {
		return apierr.InvalidRequest.Errorf("an app has at most %d members and invitations", maxMembers)
	}
	return nil
}

// ensureAccount returns the account of an address. For an unknown address it creates one that is not confirmed, as a
// sign-up does: the mail outbox needs it.
func (s *Store) ensureAccount(ctx context.Context, tx *db.Tx, email string) (accounts.Account, error) {
	a, err := accounts.GetAccountByEmail(ctx, tx, email)
	if errors.Is(err, sql.ErrNoRows) {
		return s.accounts.Create(ctx, tx, accounts.NewAccount{Email: email, Unconfirmed: true})
	}
	return a, err
}

// RevokeInvitation ends an invitation; the error wraps sql.ErrNoRows if there is none.
func (s *Store) RevokeInvitation(ctx context.Context, appID string, by Actor, invitationID string) error {
	return s.change(ctx, appID, by, func(ctx context.Context, tx *db.Tx, app apps.App) error {
		if _, err := deleteInvitation(ctx, tx, app.ID, invitationID); err != nil {
			return fmt.Errorf("members: revoke: %w", err)
		}
		return s.accounts.RecordEvent(ctx, tx, by.ID, accounts.InvitationRevoked, by.From)
	})
}

// GetInvitation returns the invitation of a token, for the page that asks to accept it. The error is 404 not_found.
func (s *Store) GetInvitation(ctx context.Context, token string) (Invitation, error) {
	i, err := getInvitation(ctx, s.db, id.Hash(token), s.now().UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return Invitation{}, errInvitation()
	} else if err != nil {
		return Invitation{}, fmt.Errorf("members: invitation: %w", err)
	}
	return i, nil
}

// errInvitation is the error of a link that was used, revoked or replaced, has expired, or never was.
func errInvitation() error {
	return apierr.NotFound.Errorf("This invitation was already used, has expired or was revoked. Ask for a new one.")
}

// Accept makes an account a member by the token of an invitation to its address. It enables developer tools, because
// the app's pages are in the console. Only one of several callers succeeds; the others get 404 not_found.
func (s *Store) Accept(ctx context.Context, token string, by Actor) (i Invitation, err error) {
	if i, err = s.GetInvitation(ctx, token); err != nil {
		return i, err
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		app, err := apps.LockApp(ctx, tx, i.AppID)
		if err != nil {
			return err
		}
		a, err := accounts.GetAccount(ctx, tx, by.ID)
		if err != nil {
			return err
		}
		// The role of a replaced invitation may be another one, so it is read under the lock.
		now := s.now().UnixMicro()
		if i, err = getInvitation(ctx, tx, id.Hash(token), now); errors.Is(err, sql.ErrNoRows) {
			return errInvitation()
		} else if err != nil {
			return fmt.Errorf("members: accept: %w", err)
		}
		if a.Sandbox || a.Deactivated || a.Email != i.Email {
			return apierr.InvalidRequest.Errorf("This invitation is for another address.")
		}
		if used, err := useInvitation(ctx, tx, id.Hash(token), now); err != nil {
			return fmt.Errorf("members: accept: %w", err)
		} else if !used {
			return errInvitation()
		}
		if app.OwnerID == a.ID { // changed its address to the invited one
			return nil
		}
		return s.add(ctx, tx, app, a, i, by.From)
	})
	return i, err
}

// add makes an account a member and tells the owners.
func (s *Store) add(ctx context.Context, tx *db.Tx, app apps.App, a accounts.Account, i Invitation,
	from accounts.Client) error {
	added, err := insertMember(ctx, tx, app.ID, a.ID, i.Role, i.InviterID, s.now().UnixMicro())
	if err != nil {
		return fmt.Errorf("members: accept: %w", err)
	} else if !added {
		return nil
	}
	if !a.Developer {
		if err := s.accounts.EnableDeveloper(ctx, tx, a.ID); err != nil {
			return err
		}
		if err := s.accounts.RecordEvent(ctx, tx, a.ID, accounts.DeveloperEnabled, from); err != nil {
			return err
		}
	}
	if err := s.accounts.RecordEvent(ctx, tx, a.ID, accounts.AppJoined, from); err != nil {
		return err
	}
	return s.notifyOwners(ctx, tx, app, addedEmail(app, a.Email, i, s.dashboard))
}

// SetRole changes the role of a member. An account that stops being an owner takes back the invitations that it has
// sent. The error wraps sql.ErrNoRows for an account that is no member, and for the app's own account.
func (s *Store) SetRole(ctx context.Context, appID string, by Actor, accountID string, role apps.Role) error {
	if err := checkRole(role); err != nil {
		return err
	}
	return s.change(ctx, appID, by, func(ctx context.Context, tx *db.Tx, app apps.App) error {
		m, err := getMember(ctx, tx, app.ID, accountID)
		if err != nil {
			return fmt.Errorf("members: role: %w", err)
		}
		if done, err := updateRole(ctx, tx, app.ID, accountID, role); err != nil || !done {
			return err
		}
		if !apps.Allows(role, apps.ManageMembers) {
			if err := deleteInvitationsBy(ctx, tx, app.ID, accountID); err != nil {
				return fmt.Errorf("members: role: %w", err)
			}
		}
		if err := s.record(ctx, tx, by, accountID, accounts.MemberChanged); err != nil {
			return err
		}
		if err := s.notifyOwners(ctx, tx, app, roleEmail(app, m, role, by.Email, s.dashboard)); err != nil {
			return err
		}
		return s.sendMail(ctx, tx, m.AccountID, m.Email, yourRoleEmail(app, role, by.Email, s.dashboard))
	})
}

// Remove ends the membership of another account. The error wraps sql.ErrNoRows for an account that is no member, and
// for the app's own account.
func (s *Store) Remove(ctx context.Context, appID string, by Actor, accountID string) error {
	return s.change(ctx, appID, by, func(ctx context.Context, tx *db.Tx, app apps.App) error {
		m, err := s.end(ctx, tx, app, accountID)
		if err != nil {
			return err
		}
		if err := s.record(ctx, tx, by, accountID, accounts.MemberRemoved); err != nil {
			return err
		}
		if err := s.notifyOwners(ctx, tx, app, removedEmail(app, m, by.Email, s.dashboard)); err != nil {
			return err
		}
		return s.sendMail(ctx, tx, m.AccountID, m.Email, yourRemovalEmail(app, by.Email))
	})
}

// Leave ends the membership of the acting account. The app's own account cannot leave: 400 invalid_request.
func (s *Store) Leave(ctx context.Context, appID string, by Actor) error {
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		app, err := apps.LockApp(ctx, tx, appID)
		if err != nil {
			return err
		}
		if app.OwnerID == by.ID {
			return errOwnAccount()
		}
		m, err := s.end(ctx, tx, app, by.ID)
		if err != nil {
			return err
		}
		if err := s.accounts.RecordEvent(ctx, tx, by.ID, accounts.AppLeft, by.From); err != nil {
			return err
		}
		return s.notifyOwners(ctx, tx, app, leftEmail(app, m, s.dashboard))
	})
}

// errOwnAccount is the error for the app's own account, which stays an owner.
func errOwnAccount() error {
	return apierr.InvalidRequest.Errorf("The account that created the app can’t leave it: the app’s margin, test " +
		"accounts and provider keys belong to it.")
}

// end deletes a membership and the invitations that the account has sent.
func (s *Store) end(ctx context.Context, tx *db.Tx, app apps.App, accountID string) (Member, error) {
	m, err := getMember(ctx, tx, app.ID, accountID)
	if err != nil {
		return m, fmt.Errorf("members: end: %w", err)
	}
	if _, err := deleteMember(ctx, tx, app.ID, accountID); err != nil {
		return m, fmt.Errorf("members: end: %w", err)
	}
	if err := deleteInvitationsBy(ctx, tx, app.ID, accountID); err != nil {
		return m, fmt.Errorf("members: end: %w", err)
	}
	return m, nil
}

// record writes a security event for the actor and for the member whom the actor changed.
func (s *Store) record(ctx context.Context, tx *db.Tx, by Actor, accountID string, kind accounts.EventKind) error {
	if err := s.accounts.RecordEvent(ctx, tx, by.ID, kind, by.From); err != nil || accountID == by.ID {
		return err
	}
	// The client is the owner's, which is no business of the member's.
	return s.accounts.RecordEvent(ctx, tx, accountID, kind, accounts.Client{})
}

// EraseAccount ends the memberships of an account that is closed and the invitations to and by it, in the caller's
// transaction. All other members of its own apps end too: those apps are over. The members, and the owners of the apps
// in which the account had a role, learn of it by email.
func (s *Store) EraseAccount(ctx context.Context, tx *db.Tx, a accounts.Account) error {
	if err := s.reportClosing(ctx, tx, a); err != nil {
		return err
	}
	if err := deleteOfAccount(ctx, tx, a.ID, a.Email); err != nil {
		return fmt.Errorf("members: erase: %w", err)
	}
	return nil
}

// reportClosing sends the emails of EraseAccount.
func (s *Store) reportClosing(ctx context.Context, tx *db.Tx, a accounts.Account) error {
	owned, err := apps.ListOwned(ctx, tx, a.ID)
	if err != nil {
		return err
	}
	for _, app := range owned {
		list, err := listMembers(ctx, tx, app.ID)
		if err != nil {
			return fmt.Errorf("members: erase: %w", err)
		}
		for _, m := range list {
			if err := s.sendMail(ctx, tx, m.AccountID, m.Email, endedEmail(app, s.dashboard)); err != nil {
				return err
			}
		}
	}
	roles, err := apps.ListMemberships(ctx, tx, a.ID)
	if err != nil {
		return err
	}
	for _, m := range roles {
		if m.OwnerID == a.ID {
			continue
		}
		if _, err := deleteMember(ctx, tx, m.ID, a.ID); err != nil { // it gets no email about itself
			return fmt.Errorf("members: erase: %w", err)
		}
		if err := s.notifyOwners(ctx, tx, m.App, closedEmail(m.App, m.Role, s.dashboard)); err != nil {
			return err
		}
	}
	return nil
}

// Purge deletes invitations that expired long ago.
func (s *Store) Purge(ctx context.Context) error {
	if err := deleteExpiredInvitations(ctx, s.db, s.now().Add(-invitationRetention).UnixMicro()); err != nil {
		return fmt.Errorf("members: purge: %w", err)
	}
	return nil
}
