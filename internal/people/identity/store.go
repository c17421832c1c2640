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
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
)

// A Store manages how accounts sign in. Its parts are passkeyStore, twoStepStore and loginStore.
type Store struct {
	db              *db.DB
	accounts        *accounts.Store
	mails           *mail.Store
	box             *seal.Box
	now             func() time.Time
	dashboard       string        // URL that mailed links begin with
	mailRequests    *web.Limiter  // requests for an email, by client network
	mailShares      *web.Limiter  // emails to an address, known or not, by purpose and client network
	mailsPerAddress *web.Limiter  // emails to an address, by purpose
	codeFailures    *web.Limiter  // wrong codes and passwords, by account and client network
	codesPerAccount *web.Limiter  // wrong codes, by account
	party           *PasskeyParty // WebAuthn relying party
	SignUps         SignUps       // who may create an account

	// Admits reports whether another than the operator has invited an address, such as an app's owner. nil = no one.
	Admits func(ctx context.Context, q db.Queryer, email string) (bool, error)

	passkeyStarts *web.Limiter // started sign-ins by passkey, by client network
}

// NewStore returns a Store on d. A client network may request 10 emails and begin 30 sign-ins by
// passkey per minute. For each purpose, an email address receives 5 emails per hour that one network
// requests, and 30 in all. An account has 5 attempts at a code from a network and one more every five
// minutes, and 20 from all and one more every quarter of an hour (decision 044).
func NewStore(d *db.DB, people *accounts.Store, mails *mail.Store, box *seal.Box, now func() time.Time,
	dashboard string, party *PasskeyParty) *Store {
	people.OnEnd(accounts.AddressLink, deleteAddressLinks)
	return &Store{
		db:              d,
		accounts:        people,
		mails:           mails,
		box:             box,
		now:             now,
		dashboard:       dashboard,
		mailRequests:    web.NewLimiter(time.Minute/10, 10, now),
		mailShares:      web.NewLimiter(time.Hour/5, 5, now),
		mailsPerAddress: web.NewLimiter(time.Hour/30, 30, now),
		codeFailures:    web.NewLimiter(5*time.Minute, 5, now),
		codesPerAccount: web.NewLimiter(15*time.Minute, 20, now),
		party:           party,
		passkeyStarts:   web.NewLimiter(2*time.Second, 30, now),
	}
}

// A mailPurpose is what an email is for that somebody asks for without proof.
type mailPurpose string

const (
	signUpMail  mailPurpose = "sign-up"
	resetMail   mailPurpose = "reset"
	addressMail mailPurpose = "address"
	warningMail mailPurpose = "warning"
)

// throttleMail counts a requested email, whether or not it will be sent, and returns 429
// rate_limited over a limit. Limits have shares by purpose and network, so that a stranger does not
// use up what the owner of the address needs; a network that its account signs in from always has one.
func (s *Store) throttleMail(ctx context.Context, from accounts.Client, purpose mailPurpose, email string) error {
	network := from.Network()
	for _, l := range []struct {
		limiter *web.Limiter
		key     string
	}{
		{s.mailRequests, network},
		{s.mailShares, fmt.Sprint(purpose, " ", network, " ", email)},
	} {
		if wait, ok := l.limiter.Allow(id.Hash(l.key)); !ok {
			return errTooManyMails(wait)
		}
	}
	wait, ok := s.mailsPerAddress.Allow(id.Hash(fmt.Sprint(purpose, " ", email)))
	if ok {
		return nil
	}
	accountID, err := accounts.IDByEmail(ctx, s.db, email)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("identity: limit: %w", err)
	}
	if known, err := s.accounts.KnowsNetwork(ctx, s.db, accountID, from); err != nil || known {
		return err
	}
	return errTooManyMails(wait)
}

func errTooManyMails(wait time.Duration) error {
	e := apierr.RateLimited.Errorf("Too many requests. Wait a while, then try again.")
	e.RetryAfter = wait
	return e
}

// errLink is the error of a link that is used, expired or unknown.
func errLink() error {
	return apierr.NotFound.Errorf("This link was already used, has expired or is invalid. Request a new one.")
}

// signUp sends a confirmation link, or an email saying that the account exists. The response is the
// same, in the same time.
func (s *Store) signUp(ctx context.Context, from accounts.Client, email, password, next string) error {
	email, err := accounts.NormalizeNewEmail(email)
	if err != nil {
		return err
	}
	if err := s.throttleMail(ctx, from, signUpMail, email); err != nil {
		return err
	}
	hash, err := accounts.HashPassword(ctx, from, password)
	if err != nil {
		return err
	}
	l := link{
		kind:         signUpLink,
		email:        email,
		passwordHash: hash,
		next:         next,
		expiresUS:    s.now().Add(signUpLinkTTL).UnixMicro(),
	}
	if err := s.sendSignUpMail(ctx, l); err == nil {
		return nil
	}
	return s.sendSignUpMail(ctx, l) // retry after a conflict with a concurrent sign-up: now the account exists
}

func (s *Store) sendSignUpMail(ctx context.Context, l link) error {
	token := id.NewSecret()
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		a, err := accounts.GetAccountByEmail(ctx, tx, l.email)
		if errors.Is(err, sql.ErrNoRows) {
			a, err = s.accounts.Create(ctx, tx, accounts.NewAccount{Email: l.email, Unconfirmed: true})
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
		return s.sendMail(ctx, tx, a.ID, l.email, m)
	})
}

// confirmSignUp ends a sign-up by the link and the password chosen with it. The password keeps an
// attacker who signed up with a stranger's email out of the account that the stranger confirms.
func (s *Store) confirmSignUp(ctx context.Context, from accounts.Client,
	token, password string) (a accounts.Account, next string, err error) {
	l, err := s.getValidLink(ctx, token, signUpLink)
	if err != nil {
		return a, "", err
	}
	tries := s.newCodeTries(from, l.accountID, l.epoch)
	check := func(ctx context.Context) error { return tries.check(ctx, s.db) }
	if err := check(ctx); err != nil { // before it waits
		return a, "", err
	}
	ok, err := accounts.MatchPassword(ctx, from, password, l.passwordHash, check, tries.fail)
	if err != nil {
		return a, "", err
	}
	if !ok {
		return a, "", apierr.Unauthorized.Errorf(
			"Incorrect password. Enter the one you chose when you requested this email.")
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.consumeLink(ctx, tx, token, l); err != nil {
			return err
		}
		if err := s.accounts.ConfirmAddress(ctx, tx, l.accountID, l.passwordHash); err != nil {
			return err
		}
		if err := s.accounts.RecordEvent(ctx, tx, l.accountID, accounts.Confirmed, from); err != nil {
			return err
		}
		a, err = accounts.GetAccount(ctx, tx, l.accountID)
		return err
	})
	return a, l.next, err
}

// requestReset sends a link to set a new password. For an unknown email it does the same work and sends
// nothing, so that its time does not tell who has an account.
func (s *Store) requestReset(ctx context.Context, from accounts.Client, email string) error {
	email, err := accounts.NormalizeEmail(email)
	if err != nil {
		return err
	}
	if err := s.throttleMail(ctx, from, resetMail, email); err != nil {
		return err
	}
	token := id.NewSecret()
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		a, err := accounts.GetAccountByEmail(ctx, tx, email)
		known := err == nil && !a.Unconfirmed && !a.Deactivated && !a.Sandbox
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("identity: forgot: %w", err)
		}
		l := link{kind: resetLink, email: email, expiresUS: s.now().Add(resetLinkTTL).UnixMicro()}
		if known {
			l.accountID, l.epoch = a.ID, a.Epoch
		}
		if err := insertLink(ctx, tx, id.Hash(token), l); err != nil {
			return err
		}
		m := resetPasswordEmail(s.dashboard + resetPath + token)
		if !known {
			return s.pretendMail(ctx, tx, l, m)
		}
		s.accounts.QueueEvent(a.ID, accounts.ResetRequested, from)
		return s.sendMail(ctx, tx, a.ID, email, m)
	})
}

// pretendMail does what sendMail does, for an address without an account: it renders the email, and runs as many
// statements that write as much. The row is a link that opens nothing, and expires as the other does.
func (s *Store) pretendMail(ctx context.Context, tx *db.Tx, l link, e ui.Email) error {
	e.Why = ui.AboutAccount
	text, html, err := e.Render(s.mails.Site)
	if err != nil {
		return err
	}
	if _, err := accounts.GetAccount(ctx, tx, ""); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	l.next = text + html
	return insertLink(ctx, tx, id.Hash(id.NewSecret()), l)
}

// resetPassword sets a new password by a link and ends all sessions. It starts no session: the
// second step still applies.
func (s *Store) resetPassword(ctx context.Context, from accounts.Client, token, password string) error {
	l, err := s.getValidLink(ctx, token, resetLink)
	if err != nil {
		return err
	}
	hash, err := accounts.HashPassword(ctx, from, password)
	if err != nil {
		return err
	}
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.consumeLink(ctx, tx, token, l); err != nil {
			return err
		}
		return s.setPassword(ctx, tx, l.accountID, hash, from)
	})
}

// changePassword sets a new password after checking the current one. All sessions end; the caller
// starts another for the returned account.
func (s *Store) changePassword(ctx context.Context, from accounts.Client, a accounts.Account,
	present, password string) (accounts.Account, error) {
	if err := s.accounts.CheckPassword(ctx, from, a, present); err != nil {
		return a, err
	}
	hash, err := accounts.HashPassword(ctx, from, password)
	if err != nil {
		return a, err
	}
	changed := a
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.lockUnchanged(ctx, tx, a); err != nil {
			return err
		}
		if err := s.setPassword(ctx, tx, a.ID, hash, from); err != nil {
			return err
		}
		changed, err = accounts.GetAccount(ctx, tx, a.ID)
		return err
	})
	return changed, err
}

// lockUnchanged locks the account and returns 401 unauthorized if its credentials have changed
// since a was read.
func (s *Store) lockUnchanged(ctx context.Context, tx *db.Tx, a accounts.Account) error {
	now, err := accounts.Lock(ctx, tx, a.ID)
	if err == nil && now.Epoch != a.Epoch {
		return apierr.Unauthorized.Errorf(
			"Your password or two-step verification was changed in another session. Sign in again.")
	}
	return err
}

// setPassword sets a password and notifies the account at its present address.
func (s *Store) setPassword(ctx context.Context, tx *db.Tx, accountID, hash string, from accounts.Client) error {
	if err := s.accounts.SetPassword(ctx, tx, accountID, hash); err != nil {
		return err
	}
	if err := s.accounts.RecordEvent(ctx, tx, accountID, accounts.PasswordChanged, from); err != nil {
		return err
	}
	a, err := accounts.GetAccount(ctx, tx, accountID)
	if err != nil {
		return err
	}
	return s.sendMail(ctx, tx, accountID, a.Email, passwordChangedEmail(s.dashboard))
}

// requestEmailChange sends a link to the new email, or, if it belongs to an account, an email
// saying so. The links of earlier requests end. The account must re-authenticate.
func (s *Store) requestEmailChange(ctx context.Context, from accounts.Client, a accounts.Account,
	email, password string) error {
	email, err := accounts.NormalizeNewEmail(email)
	if err != nil {
		return err
	}
	if err := s.accounts.Reauthenticate(ctx, from, a, password); err != nil {
		return err
	}
	if err := s.throttleMail(ctx, from, addressMail, email); err != nil {
		return err
	}
	token := id.NewSecret()
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.lockUnchanged(ctx, tx, a); err != nil {
			return err
		}
		l := link{
			kind:      newEmailLink,
			accountID: a.ID,
			email:     email,
			epoch:     a.Epoch,
			expiresUS: s.now().Add(resetLinkTTL).UnixMicro(),
		}
		if err := s.accounts.EndWith(ctx, tx, a.ID, accounts.AddressRequest); err != nil {
			return err
		}
		m := confirmNewAddressEmail(s.dashboard + emailPath + token)
		if _, err := accounts.GetAccountByEmail(ctx, tx, email); err == nil {
			l.accountID, m = "", alreadyRegisteredEmail(s.dashboard)
		} else if !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("identity: new email: %w", err)
		}
		if err := insertLink(ctx, tx, id.Hash(token), l); err != nil {
			return fmt.Errorf("identity: link: %w", err)
		}
		if err := s.accounts.RecordEvent(ctx, tx, a.ID, accounts.EmailChangeRequested, from); err != nil {
			return err
		}
		return s.sendMail(ctx, tx, a.ID, email, m)
	})
}

// confirmEmailChange sets the email that a link proves and notifies the new and the old address.
func (s *Store) confirmEmailChange(ctx context.Context, from accounts.Client, token string) error {
	l, err := s.getValidLink(ctx, token, newEmailLink)
	if err != nil {
		return err
	}
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.consumeLink(ctx, tx, token, l); err != nil {
			return err
		}
		a, err := accounts.GetAccount(ctx, tx, l.accountID)
		if err != nil {
			return err
		}
		if err := s.accounts.SetEmail(ctx, tx, a.ID, l.email); err != nil {
			return err
		}
		if err := s.accounts.RecordEvent(ctx, tx, a.ID, accounts.EmailChanged, from); err != nil {
			return err
		}
		if err := s.sendMail(ctx, tx, a.ID, l.email, newAddressEmail(s.dashboard)); err != nil {
			return err
		}
		return s.sendMail(ctx, tx, a.ID, a.Email, addressChangedEmail())
	})
}

// enableDeveloper lets an account own apps.
func (s *Store) enableDeveloper(ctx context.Context, from accounts.Client, accountID string) error {
	if err := s.accounts.SetDeveloper(ctx, accountID, true); err != nil {
		return err
	}
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return s.accounts.RecordEvent(ctx, tx, accountID, accounts.DeveloperEnabled, from)
	})
}

// EraseAccount deletes the credentials and the mail of an account and queues a last email, in the
// transaction that closes the account, at the request of its owner or by an operator. goesOn are paragraphs of that
// email about money that is paid after the closing.
func (s *Store) EraseAccount(ctx context.Context, tx *db.Tx, a accounts.Account, byOperator bool,
	goesOn []string) error {
	if err := deleteIdentity(ctx, tx, a.ID); err != nil {
		return fmt.Errorf("identity: erase: %w", err)
	}
	if err := s.mails.DeleteAccountMail(ctx, tx, a.ID); err != nil {
		return err
	}
	return s.sendMail(ctx, tx, a.ID, a.Email, accountClosedEmail(byOperator, goesOn))
}

// Purge deletes expired links, invitations, set-ups, challenges and authorization requests, and accounts that can no
// longer be confirmed.
func (s *Store) Purge(ctx context.Context) error {
	nowUS := s.now().UnixMicro()
	if err := errors.Join(deleteExpiredLinks(ctx, s.db, nowUS), deleteExpiredInvitations(ctx, s.db, nowUS),
		deleteExpiredAuthRequests(ctx, s.db, nowUS), deleteExpiredSetups(ctx, s.db, nowUS)); err != nil {
		return fmt.Errorf("identity: purge: %w", err)
	}
	if err := errors.Join(deleteExpiredChallenges(ctx, s.db, nowUS), s.purgeUnconfirmed(ctx)); err != nil {
		return fmt.Errorf("identity: purge: %w", err)
	}
	return nil
}

// purgeSlice is how many accounts are read at a time.
const purgeSlice = 100

// purgeUnconfirmed deletes the accounts that no link and no invitation can confirm any more, so that their addresses
// are free again.
func (s *Store) purgeUnconfirmed(ctx context.Context) (failed error) {
	before := s.now().Add(-signUpLinkTTL).UnixMicro()
	for after := ""; ; {
		list, err := accounts.ListUnconfirmed(ctx, s.db, before, after, purgeSlice)
		if err != nil {
			return errors.Join(failed, err)
		}
		for _, accountID := range list {
			after = accountID
			for done := false; !done; {
				err := s.db.InTurn(ctx, func() error {
					return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
						done, err = s.deleteAbandoned(ctx, tx, accountID)
						return err
					})
				})
				failed, done = errors.Join(failed, err), done || err != nil
			}
		}
		if len(list) < purgeSlice || ctx.Err() != nil {
			return failed
		}
	}
}

// deleteAbandoned deletes an account, unless it was confirmed meanwhile, a link or invitation can still confirm it,
// mail to it waits, or it is in the ledger: the operator may have given it goodwill. It is not done if one transaction
// was not enough.
func (s *Store) deleteAbandoned(ctx context.Context, tx *db.Tx, accountID string) (done bool, err error) {
	a, err := accounts.Lock(ctx, tx, accountID) // a sign-up waits, and makes a new account
	if errors.Is(err, sql.ErrNoRows) || err == nil && (!a.Unconfirmed || a.Deactivated) {
		return true, nil
	} else if err != nil {
		return true, err
	}
	confirmable, err := canBeConfirmed(ctx, tx, accountID, s.now().UnixMicro())
	if err != nil || confirmable {
		return true, err
	}
	pending, err := s.mails.HasPending(ctx, tx, accountID)
	if err != nil || pending {
		return true, err
	}
	if b, err := store.LockBalance(ctx, tx, accountID); err != nil || b.Seq > 0 {
		return true, err
	}
	if err := errors.Join(deleteIdentity(ctx, tx, accountID),
		s.mails.DeleteAccountMail(ctx, tx, accountID)); err != nil {
		return true, err
	}
	return s.accounts.DeleteUnconfirmed(ctx, tx, accountID)
}

// getValidLink returns the link of a token, if it may still be used; the error is 404 not_found.
func (s *Store) getValidLink(ctx context.Context, token string, k linkKind) (link, error) {
	l, err := getLink(ctx, s.db, id.Hash(token))
	if errors.Is(err, sql.ErrNoRows) {
		return link{}, errLink()
	} else if err != nil {
		return link{}, fmt.Errorf("identity: link: %w", err)
	}
	if l.kind != k || l.accountID == "" || s.now().UnixMicro() >= l.expiresUS {
		return link{}, errLink()
	}
	a, err := s.accounts.Get(ctx, l.accountID)
	if err != nil {
		return link{}, fmt.Errorf("identity: link: %w", err)
	}
	if a.Epoch != l.epoch || a.Unconfirmed != (k == signUpLink) {
		return link{}, errLink()
	}
	return l, nil
}

// consumeLink deletes a link; only one of several callers succeeds.
func (s *Store) consumeLink(ctx context.Context, tx *db.Tx, token string, l link) error {
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

// codeTries are the attempts of a client at the codes of an account.
type codeTries struct {
	*Store
	from           accounts.Client
	accountID      string
	share, account string // keys of the limits
}

// newCodeTries returns the attempts at the codes of an account with an epoch. A higher epoch makes
// the password worthless that an attacker knows, and the limit of the account starts anew.
func (s *Store) newCodeTries(from accounts.Client, accountID string, epoch int64) codeTries {
	return codeTries{
		Store:     s,
		from:      from,
		accountID: accountID,
		share:     id.Hash(accountID + " " + from.Network()),
		account:   fmt.Sprint(accountID, " ", epoch),
	}
}

// check returns 429 rate_limited after too many wrong codes, of this network or of all.
func (t codeTries) check(ctx context.Context, q db.Queryer) error {
	wait, ok := t.codeFailures.Peek(t.share)
	if ok {
		if wait, ok = t.codesPerAccount.Peek(t.account); ok {
			return nil
		}
		if known, err := t.accounts.KnowsNetwork(ctx, q, t.accountID, t.from); err != nil || known {
			return err
		}
	}
	e := apierr.RateLimited.Errorf("Too many failed attempts. Wait a few minutes, then try again.")
	e.RetryAfter = wait
	return e
}

// fail counts a wrong code.
func (t codeTries) fail() {
	t.codeFailures.Allow(t.share)
	t.codesPerAccount.Allow(t.account)
}

// equalSecrets compares two secrets in constant time.
func equalSecrets(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// SealedColumn is the column of authenticator apps' seeds, for a change of the envelope key.
func (s *Store) SealedColumn() seal.Column {
	return seal.TableColumn(s.db, "totp_seeds.sealed", listSealed, replaceSealed, seedPlace)
}
