package identity

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
)

// A Store does what the pages ask for.
type Store struct {
	db        *db.DB
	people    *accounts.Store
	mails     *mail.Store
	box       *seal.Box
	now       func() time.Time
	dashboard string       // URL that links in mails begin with
	asked     *web.Limiter // mails that somebody asks for, by client
	written   *web.Limiter // mails that an address is sent, known or not
	codes     *web.Limiter // wrong codes, by account
	party     *Party       // who asks browsers for passkeys
	begun     *web.Limiter // sign-ins by passkey that somebody begins, by client
}

// NewStore returns a Store on d. Per minute one client asks for 10 mails at most
// and begins 30 sign-ins by passkey, per hour one address gets 5 mails, and an
// account has 5 tries of a code and one more every five minutes.
func NewStore(d *db.DB, people *accounts.Store, mails *mail.Store, box *seal.Box, now func() time.Time, dashboard string, party *Party) *Store {
	return &Store{
		db: d, people: people, mails: mails, box: box, now: now, dashboard: dashboard,
		asked:   web.NewLimiter(time.Minute/10, 10, now),
		written: web.NewLimiter(time.Hour/5, 5, now),
		codes:   web.NewLimiter(5*time.Minute, 5, now),
		party:   party,
		begun:   web.NewLimiter(2*time.Second, 30, now),
	}
}

// throttle counts a mail that a client asks for to an address, whether or not
// there will be one.
func (s *Store) throttle(from accounts.Client, email string) error {
	for _, l := range []struct {
		limiter *web.Limiter
		key     string
	}{{s.asked, from.Address}, {s.written, email}} {
		if wait, ok := l.limiter.Allow(id.Hash(l.key)); !ok {
			e := apierr.RateLimited.Errorf("Too many requests. Wait a while, then try again.")
			e.RetryAfter = wait
			return e
		}
	}
	return nil
}

// errLink answers a link that was used, is too old, or never was one.
func errLink() error {
	return apierr.NotFound.Errorf("This link was already used, has expired or is invalid. Request a new one.")
}

// SignUp sends a link that makes the account, or says that there is one. The
// answer is the same, in the same time.
func (s *Store) SignUp(ctx context.Context, from accounts.Client, email, password, next string) error {
	email, err := accounts.NormalizeEmail(email)
	if err != nil {
		return err
	}
	if err := s.throttle(from, email); err != nil {
		return err
	}
	hash, err := accounts.HashPassword(ctx, password)
	if err != nil {
		return err
	}
	l := link{kind: signUp, email: email, passwordHash: hash, next: next, expiresUS: s.now().Add(signUpLasts).UnixMicro()}
	if err := s.sendSignUp(ctx, l); err == nil {
		return nil
	}
	return s.sendSignUp(ctx, l) // somebody else may have signed up with the address at this moment: now it is there
}

func (s *Store) sendSignUp(ctx context.Context, l link) error {
	token := id.NewSecret()
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		a, err := accountByEmail(ctx, tx, l.email)
		if errors.Is(err, sql.ErrNoRows) {
			a, err = s.people.Create(ctx, tx, accounts.NewAccount{Email: l.email, Unconfirmed: true})
		}
		if err != nil {
			return fmt.Errorf("identity: sign up: %w", err)
		}
		l.accountID, l.epoch = a.ID, a.Epoch
		m := confirmEmail(s.dashboard + confirmPath + token)
		if !a.Unconfirmed {
			l.accountID, m = "", alreadyRegisteredEmail(s.dashboard)
		}
		if err := insertLink(ctx, tx, id.Hash(token), l); err != nil {
			return fmt.Errorf("identity: link: %w", err)
		}
		return s.send(ctx, tx, a.ID, l.email, m)
	})
}

// Confirm ends a sign-up: whoever has the link and knows the password that was
// chosen with it gets the account. The password keeps somebody who signed up with
// a stranger's address from an account that the stranger confirms.
func (s *Store) Confirm(ctx context.Context, from accounts.Client, token, password string) (a accounts.Account, next string, err error) {
	l, err := s.link(ctx, token, signUp)
	if err != nil {
		return a, "", err
	}
	if err := s.mayTry(l.accountID); err != nil {
		return a, "", err
	}
	ok, err := accounts.MatchPassword(ctx, password, l.passwordHash)
	if err != nil {
		return a, "", err
	}
	if !ok {
		s.codes.Allow(l.accountID)
		return a, "", apierr.Unauthorized.Errorf("Incorrect password. Enter the one you chose when you requested this email.")
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.use(ctx, tx, token, l); err != nil {
			return err
		}
		if err := s.people.ConfirmAddress(ctx, tx, l.accountID, l.passwordHash); err != nil {
			return err
		}
		if err := s.people.RecordEvent(ctx, tx, l.accountID, accounts.Confirmed, from); err != nil {
			return err
		}
		a, err = accounts.GetAccount(ctx, tx, l.accountID)
		return err
	})
	return a, l.next, err
}

// Forgot sends a link that sets a new password, if the address has an account.
// For one that has none it writes as much, and sends nothing.
func (s *Store) Forgot(ctx context.Context, from accounts.Client, email string) error {
	email, err := accounts.NormalizeEmail(email)
	if err != nil {
		return err
	}
	if err := s.throttle(from, email); err != nil {
		return err
	}
	token := id.NewSecret()
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		a, err := accountByEmail(ctx, tx, email)
		known := err == nil && !a.Unconfirmed && !a.Deactivated && !a.Sandbox
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("identity: forgot: %w", err)
		}
		l := link{kind: reset, email: email, expiresUS: s.now().Add(resetLasts).UnixMicro()}
		if known {
			l.accountID, l.epoch = a.ID, a.Epoch
		}
		if err := insertLink(ctx, tx, id.Hash(token), l); err != nil || !known {
			return err
		}
		s.people.QueueEvent(a.ID, accounts.ResetRequested, from)
		return s.send(ctx, tx, a.ID, email, resetPasswordEmail(s.dashboard+resetPath+token))
	})
}

// Reset sets a new password by a link, and ends all sessions. It signs nobody in:
// a second step, if there is one, is asked for as ever.
func (s *Store) Reset(ctx context.Context, from accounts.Client, token, password string) error {
	l, err := s.link(ctx, token, reset)
	if err != nil {
		return err
	}
	hash, err := accounts.HashPassword(ctx, password)
	if err != nil {
		return err
	}
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.use(ctx, tx, token, l); err != nil {
			return err
		}
		return s.setPassword(ctx, tx, l.accountID, l.email, hash, from)
	})
}

// ChangePassword sets a new password for somebody who is signed in and knows the
// present one. All sessions end; the caller starts another one of the account
// that is returned.
func (s *Store) ChangePassword(ctx context.Context, from accounts.Client, a accounts.Account, present, password string) (accounts.Account, error) {
	if err := s.people.CheckPassword(ctx, from, a, present); err != nil {
		return a, err
	}
	hash, err := accounts.HashPassword(ctx, password)
	if err != nil {
		return a, err
	}
	changed := a
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.unchanged(ctx, tx, a); err != nil {
			return err
		}
		if err := s.setPassword(ctx, tx, a.ID, a.Email, hash, from); err != nil {
			return err
		}
		changed, err = accounts.GetAccount(ctx, tx, a.ID)
		return err
	})
	return changed, err
}

// unchanged refuses what was allowed by credentials that somebody else has changed
// meanwhile, and keeps them from changing until the transaction ends.
func (s *Store) unchanged(ctx context.Context, tx *db.Tx, a accounts.Account) error {
	now, err := accounts.Lock(ctx, tx, a.ID)
	if err == nil && now.Epoch != a.Epoch {
		return apierr.Unauthorized.Errorf("Your password or two-step verification was changed in another session. Sign in again.")
	}
	return err
}

func (s *Store) setPassword(ctx context.Context, tx *db.Tx, accountID, email, hash string, from accounts.Client) error {
	if err := s.people.SetPassword(ctx, tx, accountID, hash); err != nil {
		return err
	}
	if err := s.people.RecordEvent(ctx, tx, accountID, accounts.PasswordChanged, from); err != nil {
		return err
	}
	return s.send(ctx, tx, accountID, email, passwordChangedEmail(s.dashboard))
}

// AskEmail sends a link to a new address, if it is free, and writes as much if it
// is not. The password was checked before.
func (s *Store) AskEmail(ctx context.Context, from accounts.Client, a accounts.Account, email, password string) error {
	email, err := accounts.NormalizeEmail(email)
	if err != nil {
		return err
	}
	if err := s.people.Reauthenticate(ctx, from, a, password); err != nil {
		return err
	}
	if err := s.throttle(from, email); err != nil {
		return err
	}
	token := id.NewSecret()
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.unchanged(ctx, tx, a); err != nil {
			return err
		}
		l := link{kind: newEmail, accountID: a.ID, email: email, epoch: a.Epoch, expiresUS: s.now().Add(resetLasts).UnixMicro()}
		m := confirmNewAddressEmail(s.dashboard + emailPath + token)
		if _, err := accountByEmail(ctx, tx, email); err == nil {
			l.accountID, m = "", alreadyRegisteredEmail(s.dashboard)
		} else if !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("identity: new e-mail: %w", err)
		}
		if err := insertLink(ctx, tx, id.Hash(token), l); err != nil {
			return fmt.Errorf("identity: link: %w", err)
		}
		if err := s.people.RecordEvent(ctx, tx, a.ID, accounts.EmailChangeRequested, from); err != nil {
			return err
		}
		return s.send(ctx, tx, a.ID, email, m)
	})
}

// ChangeEmail sets the address that a link proves, and tells the old one.
func (s *Store) ChangeEmail(ctx context.Context, from accounts.Client, token string) error {
	l, err := s.link(ctx, token, newEmail)
	if err != nil {
		return err
	}
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.use(ctx, tx, token, l); err != nil {
			return err
		}
		a, err := accounts.GetAccount(ctx, tx, l.accountID)
		if err != nil {
			return err
		}
		if err := s.people.SetEmail(ctx, tx, a.ID, l.email); err != nil {
			return err
		}
		if err := s.people.RecordEvent(ctx, tx, a.ID, accounts.EmailChanged, from); err != nil {
			return err
		}
		return s.send(ctx, tx, a.ID, a.Email, addressChangedEmail())
	})
}

// BecomeDeveloper turns on that an account may own apps.
func (s *Store) BecomeDeveloper(ctx context.Context, from accounts.Client, accountID string) error {
	if err := s.people.SetDeveloper(ctx, accountID, true); err != nil {
		return err
	}
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return s.people.RecordEvent(ctx, tx, accountID, accounts.DeveloperEnabled, from)
	})
}

// Erase forgets how somebody proved who they are, and the mail that they were
// sent, and writes them a last one, in the transaction that closes the account.
func (s *Store) Erase(ctx context.Context, tx *db.Tx, a accounts.Account) error {
	if err := erase(ctx, tx, a.ID); err != nil {
		return fmt.Errorf("identity: erase: %w", err)
	}
	if err := s.mails.Erase(ctx, tx, a.ID); err != nil {
		return err
	}
	return s.send(ctx, tx, a.ID, a.Email, accountClosedEmail())
}

// Purge deletes links, challenges, and ways to the provider, that are too old to work.
func (s *Store) Purge(ctx context.Context) error {
	nowUS := s.now().UnixMicro()
	if err := errors.Join(deleteLinks(ctx, s.db, nowUS), deleteAttempts(ctx, s.db, nowUS)); err != nil {
		return fmt.Errorf("identity: purge: %w", err)
	}
	if err := deleteChallenges(ctx, s.db, s.now().UnixMicro()); err != nil {
		return fmt.Errorf("identity: purge: %w", err)
	}
	return nil
}

// link returns what a token stands for, if it may still be used.
func (s *Store) link(ctx context.Context, token string, k kind) (link, error) {
	l, err := getLink(ctx, s.db, id.Hash(token))
	if errors.Is(err, sql.ErrNoRows) {
		return link{}, errLink()
	} else if err != nil {
		return link{}, fmt.Errorf("identity: link: %w", err)
	}
	if l.kind != k || l.accountID == "" || s.now().UnixMicro() >= l.expiresUS {
		return link{}, errLink()
	}
	a, err := s.people.Get(ctx, l.accountID)
	if err != nil {
		return link{}, fmt.Errorf("identity: link: %w", err)
	}
	if a.Epoch != l.epoch || a.Unconfirmed != (k == signUp) {
		return link{}, errLink()
	}
	return l, nil
}

// use takes a link out of the world; of two who come with it one is the first.
func (s *Store) use(ctx context.Context, tx *db.Tx, token string, l link) error {
	a, err := accounts.Lock(ctx, tx, l.accountID)
	if err != nil {
		return err
	}
	n, err := deleteLink(ctx, tx, id.Hash(token))
	if err != nil {
		return fmt.Errorf("identity: use link: %w", err)
	}
	if n != 1 || a.Epoch != l.epoch {
		return errLink()
	}
	return nil
}

// mayTry refuses more tries at something short enough to be guessed when too many
// have failed; whoever fails takes one from codes.
func (s *Store) mayTry(accountID string) error {
	if wait, ok := s.codes.Peek(accountID); !ok {
		e := apierr.RateLimited.Errorf("Too many failed attempts. Wait a few minutes, then try again.")
		e.RetryAfter = wait
		return e
	}
	return nil
}

// same compares two secrets in a time that tells nothing.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
