package identity

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/people/accounts"
)

// tripLasts is how long somebody may be away at the provider.
const tripLasts = 10 * time.Minute

// A trip leads to the provider and back. The state is for everybody to see, the
// browser's secret only for us and it; both together make what else must not be
// guessed, so none of it needs to be kept.
type trip struct{ state, browser string }

// nonce is what the ID token must repeat: it was made for this trip.
func (t trip) nonce() string { return id.Hash("nonce " + t.state + " " + t.browser) }

// verifier proves to the provider that who started comes back (RFC 7636).
func (t trip) verifier() string { return id.Hash("verifier " + t.state + " " + t.browser) }

// begin makes a trip of a browser: to sign in, or to link a login with a. Its
// password was just asked for.
func (s *Store) begin(ctx context.Context, browser string, a accounts.Account, next string) (trip, error) {
	t := trip{state: id.NewSecret(), browser: browser}
	err := insertAttempt(ctx, s.db, id.Hash(t.state), id.Hash(t.browser), attempt{accountID: a.ID, epoch: a.Epoch, next: next, expiresUS: s.now().Add(tripLasts).UnixMicro()})
	if err != nil {
		return trip{}, fmt.Errorf("identity: begin: %w", err)
	}
	return t, nil
}

var (
	// errTrip is an answer that this browser did not ask for, or not now.
	errTrip = errors.New("identity: this sign-in has ended, or began in another browser")
	// errUnverified is that a new account would have an address that may be somebody else's.
	errUnverified = errors.New("identity: the provider knows no verified address")
	// errTaken is that the address has an account, which nobody has linked.
	errTaken = errors.New("identity: the address has an account")
	// errElsewhere is that the login signs in to another account.
	errElsewhere = errors.New("identity: the login is linked with another account")
	// errAnother is that the account has another login of the same provider.
	errAnother = errors.New("identity: the account has another login")
	// errClosed is that the account may not be used.
	errClosed = errors.New("identity: the account may not be used")
)

// end is the end of a trip, which comes once.
func (s *Store) end(ctx context.Context, t trip) (attempt, error) {
	var a attempt
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		a, err = takeAttempt(ctx, tx, id.Hash(t.state), id.Hash(t.browser))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) || err == nil && s.now().UnixMicro() >= a.expiresUS {
		return attempt{}, errTrip
	} else if err != nil {
		return attempt{}, fmt.Errorf("identity: end: %w", err)
	}
	return a, nil
}

// enter returns the account that a login signs in to, and makes one for a login
// that is new. An address alone opens no account that exists: whoever runs the
// mailbox today need not be who opened the account, and who runs the provider need
// not be trusted with more than its own logins.
func (s *Store) enter(ctx context.Context, from accounts.Client, l login, name string) (a accounts.Account, err error) {
	for range 2 { // again if somebody else took the login or the address at this moment
		err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			a, err = s.accountFor(ctx, tx, from, l, name)
			return err
		})
		if !isTaken(err) {
			break
		}
	}
	if errors.Is(err, errTaken) {
		s.people.QueueEvent(a.ID, accounts.ProviderRefused, from)
	}
	return a, err
}

// isTaken reports whether a row was there already that we wanted to make; the
// account of our own login, perhaps.
func isTaken(err error) bool {
	e, ok := errors.AsType[*apierr.Error](err)
	return db.IsDuplicate(err) || errors.Is(err, errTaken) || ok && e.Code == apierr.InvalidRequest
}

func (s *Store) accountFor(ctx context.Context, tx *db.Tx, from accounts.Client, l login, name string) (accounts.Account, error) {
	accountID, err := accountOfLogin(ctx, tx, l.issuer, l.subject)
	if errors.Is(err, sql.ErrNoRows) {
		return s.newcomer(ctx, tx, from, l, name)
	} else if err != nil {
		return accounts.Account{}, fmt.Errorf("identity: login: %w", err)
	}
	a, err := accounts.Lock(ctx, tx, accountID)
	if err == nil {
		_, err = accountOfLogin(ctx, tx, l.issuer, l.subject) // not unlinked meanwhile
	}
	if err == nil && (a.Deactivated || a.Unconfirmed) {
		err = errClosed
	}
	return a, err
}

// newcomer makes an account of a verified address. One that somebody signed up
// for and never confirmed is theirs now: the password that was chosen for it, by
// whomever, and the links that were sent count no more.
func (s *Store) newcomer(ctx context.Context, tx *db.Tx, from accounts.Client, l login, name string) (a accounts.Account, err error) {
	if !l.verified || l.email == "" {
		return a, errUnverified
	}
	a, err = accountByEmail(ctx, tx, l.email)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		a, err = s.people.Create(ctx, tx, accounts.NewAccount{Email: l.email})
	case err != nil:
		err = fmt.Errorf("identity: newcomer: %w", err)
	case !a.Unconfirmed:
		err = errTaken
	default:
		err = s.takeOver(ctx, tx, &a)
	}
	if err != nil {
		return a, err
	}
	if err := insertLogin(ctx, tx, l, a.ID, s.now().UnixMicro()); err != nil {
		return a, fmt.Errorf("identity: newcomer: %w", err)
	}
	for _, kind := range []accounts.EventKind{accounts.Confirmed, accounts.ProviderLinked} {
		if err := s.people.RecordEvent(ctx, tx, a.ID, kind, from); err != nil {
			return a, err
		}
	}
	return a, s.send(ctx, tx, a.ID, a.Email, welcomeEmail(name, s.dashboard))
}

// takeOver confirms an account without a password, unless it is confirmed meanwhile.
func (s *Store) takeOver(ctx context.Context, tx *db.Tx, a *accounts.Account) error {
	now, err := accounts.Lock(ctx, tx, a.ID)
	if err == nil && !now.Unconfirmed {
		err = errTaken
	}
	if err == nil {
		err = s.people.ConfirmAddress(ctx, tx, a.ID, "")
	}
	if err == nil {
		*a, err = accounts.GetAccount(ctx, tx, a.ID)
	}
	return err
}

// linkLogin lets a login sign in to an account, whose owner is signed in and gave the
// password when the trip began.
func (s *Store) linkLogin(ctx context.Context, from accounts.Client, a accounts.Account, l login, name string) error {
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.unchanged(ctx, tx, a); err != nil {
			return err
		}
		other, err := accountOfLogin(ctx, tx, l.issuer, l.subject)
		if err == nil && other == a.ID {
			return nil
		} else if err == nil {
			return errElsewhere
		} else if !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("identity: link: %w", err)
		}
		if _, err := loginOf(ctx, tx, a.ID, l.issuer); err == nil {
			return errAnother
		} else if !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("identity: link: %w", err)
		}
		if err := insertLogin(ctx, tx, l, a.ID, s.now().UnixMicro()); err != nil {
			return fmt.Errorf("identity: link: %w", err)
		}
		if err := s.people.RecordEvent(ctx, tx, a.ID, accounts.ProviderLinked, from); err != nil {
			return err
		}
		return s.send(ctx, tx, a.ID, a.Email, loginLinkedEmail(name, s.dashboard))
	})
	if db.IsDuplicate(err) { // linked with another account at this moment
		return errElsewhere
	}
	return err
}

// unlink ends that a login signs in to an account, for whoever knows the password,
// which stays as the way in: without one nothing is unlinked. All sessions end, as
// some may have begun by the login; the caller starts another one of the account
// returned.
func (s *Store) unlink(ctx context.Context, from accounts.Client, a accounts.Account, issuer, name, password string) (accounts.Account, error) {
	if err := s.people.CheckPassword(ctx, from, a, password); err != nil {
		return a, err
	}
	changed := a
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.unchanged(ctx, tx, a); err != nil {
			return err
		}
		if n, err := deleteLogin(ctx, tx, a.ID, issuer); err != nil || n == 0 {
			return err
		}
		if err := s.people.EndSessions(ctx, tx, a.ID); err != nil {
			return err
		}
		if err := s.people.RecordEvent(ctx, tx, a.ID, accounts.ProviderUnlinked, from); err != nil {
			return err
		}
		if err := s.send(ctx, tx, a.ID, a.Email, loginUnlinkedEmail(name, s.dashboard)); err != nil {
			return err
		}
		var err error
		changed, err = accounts.GetAccount(ctx, tx, a.ID)
		return err
	})
	return changed, err
}

// loginOf returns the login of an account at the provider, if there is one.
func (s *Store) loginOf(ctx context.Context, accountID, issuer string) (l linked, ok bool, err error) {
	l, err = loginOf(ctx, s.db, accountID, issuer)
	if errors.Is(err, sql.ErrNoRows) {
		return l, false, nil
	} else if err != nil {
		return l, false, fmt.Errorf("identity: login: %w", err)
	}
	return l, true, nil
}
