package identity

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/people/accounts"
)

const (
	maxPasskeys     = 20 // of an account
	maxPasskeyRunes = 40 // of a name
	passkeyPrefix   = "pky_"
)

// passkeyStore registers passkeys and signs in by them.
type passkeyStore struct{ *Store }

// A webauthnUser is an account as webauthn.User. Its handle is the account's id.
type webauthnUser struct {
	accounts.Account
	keys []Passkey
}

func (o webauthnUser) WebAuthnID() []byte          { return []byte(o.ID) }
func (o webauthnUser) WebAuthnName() string        { return o.Email }
func (o webauthnUser) WebAuthnDisplayName() string { return o.Email }
func (o webauthnUser) WebAuthnCredentials() (list []webauthn.Credential) {
	for _, k := range o.keys {
		list = append(list, k.record)
	}
	return list
}

func errPasskey() *apierr.Error {
	return apierr.Unauthorized.Errorf("We couldn’t verify this passkey. Try again, or sign in another way.")
}

func errPasskeysUnavailable() error {
	return apierr.InvalidRequest.Errorf(
		"Passkeys need a domain name, and this service runs at an IP address.")
}

// validatePasskeyName returns the trimmed name of a passkey; the error is 400 invalid_request.
func validatePasskeyName(name string) (string, error) {
	name = strings.TrimSpace(name)
	bad := func(c rune) bool { return !unicode.IsGraphic(c) }
	if n := utf8.RuneCountInString(name); n == 0 || n > maxPasskeyRunes || strings.ContainsFunc(name, bad) {
		return "", apierr.InvalidRequest.Errorf("name: must have 1 to %d visible characters", maxPasskeyRunes)
	}
	return name, nil
}

// beginRegistration creates the challenge for a new passkey in the browser with id holder, after
// re-authentication.
func (s passkeyStore) beginRegistration(ctx context.Context, from accounts.Client, a accounts.Account,
	password, name, holder string) error {
	if s.party.webauthn == nil {
		return errPasskeysUnavailable()
	}
	name, err := validatePasskeyName(name)
	if err != nil {
		return err
	}
	if err := s.accounts.Reauthenticate(ctx, from, a, password); err != nil {
		return err
	}
	o, err := s.loadUser(ctx, s.db, a)
	if err != nil {
		return err
	}
	if len(o.keys) >= maxPasskeys {
		return errTooManyPasskeys()
	}
	var known []protocol.CredentialDescriptor
	for _, k := range o.keys {
		known = append(known, k.record.Descriptor())
	}
	options, session, err := s.party.webauthn.BeginRegistration(o, webauthn.WithExclusions(known))
	if err != nil {
		return fmt.Errorf("identity: passkey: %w", err)
	}
	return s.saveChallenge(ctx, holder, challenge{
		kind:      registerChallenge,
		accountID: a.ID,
		epoch:     a.Epoch,
		name:      name,
	}, options.Response, session)
}

func errTooManyPasskeys() error {
	return apierr.InvalidRequest.Errorf("An account has at most %d passkeys. Remove one that you no longer use.",
		maxPasskeys)
}

func (s passkeyStore) loadUser(ctx context.Context, q db.Queryer, a accounts.Account) (webauthnUser, error) {
	keys, err := listPasskeys(ctx, q, a.ID)
	if err != nil {
		return webauthnUser{}, fmt.Errorf("identity: passkeys: %w", err)
	}
	return webauthnUser{a, keys}, nil
}

// saveChallenge stores a challenge until the browser responds.
func (s passkeyStore) saveChallenge(ctx context.Context, holder string, c challenge, options any,
	session *webauthn.SessionData) error {
	shown, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("identity: passkey: %w", err)
	}
	kept, err := json.Marshal(session)
	if err != nil {
		return fmt.Errorf("identity: passkey: %w", err)
	}
	c.options, c.session, c.expiresUS = string(shown), string(kept), s.now().Add(challengeTTL).UnixMicro()
	if err := upsertChallenge(ctx, s.db, holder, c); err != nil {
		return fmt.Errorf("identity: challenge: %w", err)
	}
	return nil
}

// getPendingChallenge returns the browser's last challenge if a may still answer it. a is empty
// when a passkey alone signs in.
func (s passkeyStore) getPendingChallenge(ctx context.Context, holder string, kind challengeKind,
	a accounts.Account) (challenge, error) {
	c, err := getChallenge(ctx, s.db, holder)
	return s.checkChallenge(c, err, kind, a)
}

// consumeChallenge returns and deletes the challenge; only one of several callers gets it.
func (s passkeyStore) consumeChallenge(ctx context.Context, holder string, kind challengeKind,
	a accounts.Account) (c challenge, session webauthn.SessionData, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		c, err = consumeChallenge(ctx, tx, holder)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	if err == nil && c.kind == "" {
		err = sql.ErrNoRows
	}
	if c, err = s.checkChallenge(c, err, kind, a); err != nil {
		return c, session, err
	}
	if err := json.Unmarshal([]byte(c.session), &session); err != nil {
		return c, session, fmt.Errorf("identity: challenge: %w", err)
	}
	return c, session, nil
}

func (s passkeyStore) checkChallenge(c challenge, err error, kind challengeKind,
	a accounts.Account) (challenge, error) {
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return c, fmt.Errorf("identity: challenge: %w", err)
	}
	if err != nil || c.kind != kind || c.accountID != a.ID || c.epoch != a.Epoch || s.now().UnixMicro() >= c.expiresUS {
		return c, apierr.Unauthorized.Errorf("This request expired or was already used. Start over.")
	}
	return c, nil
}

// finishRegistration adds the passkey that the browser created. With the first second factor of an
// account all sessions end and recovery codes are returned; the caller starts another session for
// the returned account.
func (s passkeyStore) finishRegistration(ctx context.Context, from accounts.Client, a accounts.Account,
	holder, answer string) (changed accounts.Account, codes []string, err error) {
	c, session, err := s.consumeChallenge(ctx, holder, registerChallenge, a)
	if err != nil {
		return a, nil, err
	}
	made, err := s.verifyRegistration(a, session, answer)
	if err != nil {
		return a, nil, errPasskey().WithCause(err)
	}
	now := s.now()
	k := Passkey{
		ID:        id.New(passkeyPrefix, now),
		Name:      c.name,
		CreatedUS: now.UnixMicro(),
		record:    *made,
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.lockUnchanged(ctx, tx, a); err != nil {
			return err
		}
		if o, err := s.loadUser(ctx, tx, a); err != nil {
			return err
		} else if len(o.keys) >= maxPasskeys {
			return errTooManyPasskeys()
		}
		if err := insertPasskey(ctx, tx, a.ID, k); err != nil {
			return err
		}
		if err := s.accounts.RecordEvent(ctx, tx, a.ID, accounts.PasskeyAdded, from); err != nil {
			return err
		}
		if codes, err = s.enableTwoStep(ctx, tx, a, from); err != nil {
			return err
		}
		if err := s.sendMail(ctx, tx, a.ID, a.Email,
			factorChangedEmail("A passkey", true, !a.TwoStep, s.dashboard)); err != nil {
			return err
		}
		changed, err = accounts.GetAccount(ctx, tx, a.ID)
		return err
	})
	if db.IsDuplicate(err) {
		err = apierr.InvalidRequest.Errorf("This passkey is already in use.")
	}
	return changed, codes, err
}

// verifyRegistration verifies a browser's attestation response.
func (s passkeyStore) verifyRegistration(a accounts.Account, session webauthn.SessionData,
	answer string) (*webauthn.Credential, error) {
	parsed, err := protocol.ParseCredentialCreationResponseBytes([]byte(answer))
	if err != nil {
		return nil, err
	}
	return s.party.webauthn.CreateCredential(webauthnUser{Account: a}, session, parsed)
}

// remove deletes a passkey, after re-authentication. With the last second factor two-step
// verification and all sessions end; the caller starts another session for the returned account.
func (s passkeyStore) remove(ctx context.Context, from accounts.Client, a accounts.Account,
	password, passkeyID string) (changed accounts.Account, err error) {
	if err := s.accounts.Reauthenticate(ctx, from, a, password); err != nil {
		return a, err
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.lockUnchanged(ctx, tx, a); err != nil {
			return err
		}
		if n, err := deletePasskey(ctx, tx, a.ID, passkeyID); err != nil {
			return fmt.Errorf("identity: remove passkey: %w", err)
		} else if n == 0 {
			return errNoPasskey()
		}
		if err := s.accounts.RecordEvent(ctx, tx, a.ID, accounts.PasskeyRemoved, from); err != nil {
			return err
		}
		off, err := s.disableTwoStepAfterLast(ctx, tx, a.ID, from)
		if err != nil {
			return err
		}
		if err := s.sendMail(ctx, tx, a.ID, a.Email,
			factorChangedEmail("A passkey", false, off, s.dashboard)); err != nil {
			return err
		}
		changed, err = accounts.GetAccount(ctx, tx, a.ID)
		return err
	})
	return changed, err
}

func errNoPasskey() error { return apierr.NotFound.Errorf("This passkey does not exist.") }

// beginSignIn creates the challenge for signing in by a passkey in the browser with id holder: as
// the second step of half, or alone if half is empty.
func (s passkeyStore) beginSignIn(ctx context.Context, from accounts.Client, half accounts.Account,
	holder string) error {
	if s.party.webauthn == nil {
		return errPasskeysUnavailable()
	}
	if wait, ok := s.passkeyStarts.Allow(id.Hash(from.Network())); !ok {
		e := apierr.RateLimited.Errorf("Too many requests. Wait a moment, then try again.")
		e.RetryAfter = wait
		return e
	}
	c := challenge{kind: signInChallenge}
	options, session, err := s.party.webauthn.BeginDiscoverableLogin()
	if half.ID != "" {
		o, lost := s.loadUser(ctx, s.db, half)
		if lost != nil {
			return lost
		}
		if len(o.keys) == 0 {
			return apierr.InvalidRequest.Errorf("Your account has no passkey.")
		}
		c = challenge{kind: secondStepChallenge, accountID: half.ID, epoch: half.Epoch}
		options, session, err = s.party.webauthn.BeginLogin(o)
	}
	if err != nil {
		return fmt.Errorf("identity: passkey: %w", err)
	}
	return s.saveChallenge(ctx, holder, c, options.Response, session)
}

// finishSignIn verifies a browser's assertion and returns the owner of the passkey, who has proved
// two factors: possession, and user verification. A passkey whose signature counter went backwards
// may be a copy: it is rejected, and its owner is notified.
func (s passkeyStore) finishSignIn(ctx context.Context, from accounts.Client, half accounts.Account,
	holder, answer string) (a accounts.Account, err error) {
	kind := signInChallenge
	if half.ID != "" {
		kind = secondStepChallenge
	}
	_, session, err := s.consumeChallenge(ctx, holder, kind, half)
	if err != nil {
		return a, err
	}
	a, err = s.verifySignIn(ctx, from, half, session, answer)
	if _, ours := errors.AsType[*apierr.Error](err); ours && half.ID != "" {
		s.accounts.QueueEvent(half.ID, accounts.PasskeyFailed, from)
	}
	return a, err
}

func (s passkeyStore) verifySignIn(ctx context.Context, from accounts.Client, half accounts.Account,
	session webauthn.SessionData, answer string) (a accounts.Account, err error) {
	parsed, err := protocol.ParseCredentialRequestResponseBytes([]byte(answer))
	if err != nil {
		return a, errPasskey().WithCause(err)
	}
	accountID := half.ID
	if accountID == "" {
		accountID = string(parsed.Response.UserHandle)
	}
	if strings.ContainsRune(accountID, 0) || !utf8.ValidString(accountID) { // PostgreSQL rejects such a parameter
		return a, errPasskey()
	}
	copied := false
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		copied = false
		a, err = accounts.Lock(ctx, tx, accountID)
		if errors.Is(err, sql.ErrNoRows) ||
			err == nil && (a.Unconfirmed || a.Deactivated || half.ID != "" && a.Epoch != half.Epoch) {
			return errPasskey()
		} else if err != nil {
			return err
		}
		o, err := s.loadUser(ctx, tx, a)
		if err != nil {
			return err
		}
		used, err := s.validateAssertion(o, half.ID != "", session, parsed)
		if err != nil {
			return errPasskey().WithCause(err)
		}
		if used.Authenticator.CloneWarning {
			copied = true
			return s.reportCopiedPasskey(ctx, tx, a, from)
		}
		for _, k := range o.keys {
			if string(k.record.ID) == string(used.ID) {
				return updatePasskeyUse(ctx, tx, k.ID, used.Authenticator.SignCount, s.now().UnixMicro())
			}
		}
		return errPasskey()
	})
	if err == nil && copied {
		err = errPasskey()
	}
	if err != nil {
		return accounts.Account{}, err
	}
	return a, nil
}

// reportCopiedPasskey records that a passkey may have been copied and sends an email, within the
// limit for the address.
func (s passkeyStore) reportCopiedPasskey(ctx context.Context, tx *db.Tx, a accounts.Account,
	from accounts.Client) error {
	if err := s.accounts.RecordEvent(ctx, tx, a.ID, accounts.PasskeyCopied, from); err != nil {
		return err
	}
	if _, ok := s.mailShares.Allow(id.Hash(fmt.Sprint(warningMail, " ", a.ID))); !ok {
		return nil
	}
	return s.sendMail(ctx, tx, a.ID, a.Email, passkeyCopiedEmail(s.dashboard))
}

func (s passkeyStore) validateAssertion(o webauthnUser, second bool, session webauthn.SessionData,
	parsed *protocol.ParsedCredentialAssertionData) (*webauthn.Credential, error) {
	if second {
		return s.party.webauthn.ValidateLogin(o, session, parsed)
	}
	return s.party.webauthn.ValidateDiscoverableLogin(func(_, _ []byte) (webauthn.User, error) {
		return o, nil
	}, session, parsed)
}
