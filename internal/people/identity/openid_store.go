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

// authRequestTTL is the lifetime of an authorization request.
const authRequestTTL = 10 * time.Minute

// loginStore signs in by logins at the provider, and links and unlinks them.
type loginStore struct{ *Store }

// An authRequest is one OpenID Connect authorization request. The state is public, the browser's
// secret is in its cookie only; nonce and PKCE verifier are derived from both and need not be
// stored.
type authRequest struct{ state, browser string }

// nonce returns the nonce that the ID token must repeat.
func (t authRequest) nonce() string { return id.Hash("nonce " + t.state + " " + t.browser) }

// verifier returns the PKCE code verifier (RFC 7636).
func (t authRequest) verifier() string { return id.Hash("verifier " + t.state + " " + t.browser) }

// beginAuthRequest stores an authorization request of a browser: to link a login to a, or to sign
// in if a is empty.
func (s loginStore) beginAuthRequest(ctx context.Context, browser string, a accounts.Account,
	next string) (authRequest, error) {
	t := authRequest{state: id.NewSecret(), browser: browser}
	err := insertAuthRequest(ctx, s.db, id.Hash(t.state), id.Hash(t.browser), storedAuthRequest{
		accountID: a.ID,
		epoch:     a.Epoch,
		next:      next,
		expiresUS: s.now().Add(authRequestTTL).UnixMicro(),
	})
	if err != nil {
		return authRequest{}, fmt.Errorf("identity: begin: %w", err)
	}
	return t, nil
}

var (
	// errRequestExpired means that this browser has no such open authorization request.
	errRequestExpired = errors.New("identity: this sign-in has ended, or began in another browser")
	// errEmailUnverified means that the provider has no verified email for a new account.
	errEmailUnverified = errors.New("identity: the provider knows no verified address")
	// errEmailTaken means that the email has an account that the login is not linked to.
	errEmailTaken = errors.New("identity: the address has an account")
	// errLoginLinkedElsewhere means that the login is linked to another account.
	errLoginLinkedElsewhere = errors.New("identity: the login is linked with another account")
	// errOtherLoginLinked means that the account has another login at the same provider.
	errOtherLoginLinked = errors.New("identity: the account has another login")
	// errNotProven means that the provider did not ask for the user's credentials, or does not say so.
	errNotProven = errors.New("identity: the provider did not ask again")
	// errAccountUnusable means that the account is closed, deleted or unconfirmed.
	errAccountUnusable = errors.New("identity: the account may not be used")
	// errAccountSuspended means that an operator has suspended the account.
	errAccountSuspended = errors.New("identity: the account is suspended")
)

// endAuthRequest returns an open authorization request, once.
func (s loginStore) endAuthRequest(ctx context.Context, t authRequest) (storedAuthRequest, error) {
	var a storedAuthRequest
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		a, err = consumeAuthRequest(ctx, tx, id.Hash(t.state), id.Hash(t.browser))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) || err == nil && s.now().UnixMicro() >= a.expiresUS {
		return storedAuthRequest{}, errRequestExpired
	} else if err != nil {
		return storedAuthRequest{}, fmt.Errorf("identity: end: %w", err)
	}
	return a, nil
}

// signIn returns the account of a login and creates one for a new login. An email alone opens no
// existing account: the owner of the mailbox may have changed, and the provider is trusted for its
// own logins only.
func (s loginStore) signIn(ctx context.Context, from accounts.Client, l login,
	name string) (a accounts.Account, err error) {
	for range 2 { // retry after a conflict with a concurrent sign-in
		err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			a, err = s.getOrCreateAccount(ctx, tx, from, l, name)
			return err
		})
		if !isConflict(err) {
			break
		}
	}
	if errors.Is(err, errEmailTaken) {
		s.accounts.QueueEvent(a.ID, accounts.ProviderRefused, from)
	}
	return a, err
}

// isConflict reports whether a concurrent transaction may have created the same login or account.
func isConflict(err error) bool {
	e, ok := errors.AsType[*apierr.Error](err)
	return db.IsDuplicate(err) || errors.Is(err, errEmailTaken) || ok && e.Code == apierr.InvalidRequest
}

func (s loginStore) getOrCreateAccount(ctx context.Context, tx *db.Tx, from accounts.Client, l login,
	name string) (accounts.Account, error) {
	accountID, err := getLoginAccount(ctx, tx, l.issuer, l.subject)
	if errors.Is(err, sql.ErrNoRows) {
		return s.createFromLogin(ctx, tx, from, l, name)
	} else if err != nil {
		return accounts.Account{}, fmt.Errorf("identity: login: %w", err)
	}
	a, err := accounts.Lock(ctx, tx, accountID)
	if err == nil {
		_, err = getLoginAccount(ctx, tx, l.issuer, l.subject) // check again under the lock
	}
	if err == nil && a.SuspendedUS > 0 && !a.Closed {
		err = errAccountSuspended
	} else if err == nil && (a.Deactivated || a.Unconfirmed) {
		err = errAccountUnusable
	}
	return a, err
}

// createFromLogin creates an account for a login with a verified email. It claims an account that
// was signed up for but never confirmed; the password and the links of that sign-up become invalid.
func (s loginStore) createFromLogin(ctx context.Context, tx *db.Tx, from accounts.Client, l login,
	name string) (a accounts.Account, err error) {
	if !l.verified || l.email == "" {
		return a, errEmailUnverified
	}
	a, err = accounts.GetAccountByEmail(ctx, tx, l.email)
	if err == nil && a.Unconfirmed || errors.Is(err, sql.ErrNoRows) {
		if may, err := s.mayCreate(ctx, tx, l.email); err != nil {
			return a, err
		} else if !may {
			return a, errSignUpRefused
		}
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		a, err = s.accounts.Create(ctx, tx, accounts.NewAccount{Email: l.email})
	case err != nil:
		err = fmt.Errorf("identity: newcomer: %w", err)
	case !a.Unconfirmed:
		err = errEmailTaken
	default:
		err = s.claimUnconfirmed(ctx, tx, &a)
	}
	if err != nil {
		return a, err
	}
	if err := insertLogin(ctx, tx, l, a.ID, s.now().UnixMicro()); err != nil {
		return a, fmt.Errorf("identity: newcomer: %w", err)
	}
	for _, kind := range []accounts.EventKind{accounts.Confirmed, accounts.ProviderLinked} {
		if err := s.accounts.RecordEvent(ctx, tx, a.ID, kind, from); err != nil {
			return a, err
		}
	}
	return a, s.sendMail(ctx, tx, a.ID, a.Email, welcomeEmail(name, s.dashboard))
}

// claimUnconfirmed confirms an account without a password. It returns errEmailTaken if the account
// was confirmed concurrently.
func (s loginStore) claimUnconfirmed(ctx context.Context, tx *db.Tx, a *accounts.Account) error {
	now, err := accounts.Lock(ctx, tx, a.ID)
	if err == nil && !now.Unconfirmed {
		err = errEmailTaken
	}
	if err == nil {
		err = s.accounts.ConfirmAddress(ctx, tx, a.ID, "")
	}
	if err == nil {
		*a, err = accounts.GetAccount(ctx, tx, a.ID)
	}
	return err
}

// link links a login to an account whose owner re-authenticated when the request began.
func (s loginStore) link(ctx context.Context, from accounts.Client, a accounts.Account, l login, name string) error {
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.lockUnchanged(ctx, tx, a); err != nil {
			return err
		}
		other, err := getLoginAccount(ctx, tx, l.issuer, l.subject)
		if err == nil && other == a.ID {
			return nil
		} else if err == nil {
			return errLoginLinkedElsewhere
		} else if !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("identity: link: %w", err)
		}
		if _, err := getLogin(ctx, tx, a.ID, l.issuer); err == nil {
			return errOtherLoginLinked
		} else if !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("identity: link: %w", err)
		}
		if err := insertLogin(ctx, tx, l, a.ID, s.now().UnixMicro()); err != nil {
			return fmt.Errorf("identity: link: %w", err)
		}
		if err := s.accounts.RecordEvent(ctx, tx, a.ID, accounts.ProviderLinked, from); err != nil {
			return err
		}
		return s.sendMail(ctx, tx, a.ID, a.Email, loginLinkedEmail(name, s.dashboard))
	})
	if db.IsDuplicate(err) { // a concurrent link
		return errLoginLinkedElsewhere
	}
	return err
}

// unlink removes a login from an account after checking the password, which remains as the sign-in
// method. All sessions end; the caller starts another for the returned account.
func (s loginStore) unlink(ctx context.Context, from accounts.Client, a accounts.Account,
	issuer, name, password string) (accounts.Account, error) {
	if err := s.accounts.CheckPassword(ctx, from, a, password); err != nil {
		return a, err
	}
	changed := a
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.lockUnchanged(ctx, tx, a); err != nil {
			return err
		}
		if n, err := deleteLogin(ctx, tx, a.ID, issuer); err != nil || n == 0 {
			return err
		}
		if err := s.accounts.EndWith(ctx, tx, a.ID, accounts.LoginUnlink); err != nil {
			return err
		}
		if err := s.accounts.RecordEvent(ctx, tx, a.ID, accounts.ProviderUnlinked, from); err != nil {
			return err
		}
		if err := s.sendMail(ctx, tx, a.ID, a.Email, loginUnlinkedEmail(name, s.dashboard)); err != nil {
			return err
		}
		var err error
		changed, err = accounts.GetAccount(ctx, tx, a.ID)
		return err
	})
	return changed, err
}

// getLogin returns the account's login at the provider, if any.
func (s loginStore) getLogin(ctx context.Context, accountID, issuer string) (l linkedLogin, ok bool, err error) {
	l, err = getLogin(ctx, s.db, accountID, issuer)
	if errors.Is(err, sql.ErrNoRows) {
		return l, false, nil
	} else if err != nil {
		return l, false, fmt.Errorf("identity: login: %w", err)
	}
	return l, true, nil
}
