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

// An owner is an account as the library sees it. Its handle is the account's id,
// which tells nothing of the person.
type owner struct {
	accounts.Account
	keys []Passkey
}

func (o owner) WebAuthnID() []byte          { return []byte(o.ID) }
func (o owner) WebAuthnName() string        { return o.Email }
func (o owner) WebAuthnDisplayName() string { return o.Email }
func (o owner) WebAuthnCredentials() (list []webauthn.Credential) {
	for _, k := range o.keys {
		list = append(list, k.record)
	}
	return list
}

// Factors are what an account's second step may be, besides recovery codes.
type Factors struct {
	App      bool // an authenticator app
	Passkeys []Passkey
}

// Factors returns what an account has for a second step.
func (s *Store) Factors(ctx context.Context, accountID string) (f Factors, err error) {
	stored, err := getSeed(ctx, s.db, accountID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return f, fmt.Errorf("identity: seed: %w", err)
	}
	f.App = stored.active
	if f.Passkeys, err = passkeysOf(ctx, s.db, accountID); err != nil {
		return f, fmt.Errorf("identity: passkeys: %w", err)
	}
	return f, nil
}

// Logins returns how an account signs in at providers.
func (s *Store) Logins(ctx context.Context, accountID string) ([]Login, error) {
	list, err := loginsOf(ctx, s.db, accountID)
	if err != nil {
		return nil, fmt.Errorf("identity: logins: %w", err)
	}
	return list, nil
}

// arm turns the second step on when an account gets its first factor: it makes
// the recovery codes and ends all sessions. With a further one all stays.
func (s *Store) arm(ctx context.Context, tx *db.Tx, a accounts.Account, from accounts.Client) (codes []string, err error) {
	if a.TwoStep {
		return nil, nil
	}
	if codes, err = s.makeCodes(ctx, tx, a.ID); err != nil {
		return nil, err
	}
	if err := s.people.SetTwoStep(ctx, tx, a.ID, true); err != nil {
		return nil, err
	}
	return codes, s.people.RecordEvent(ctx, tx, a.ID, accounts.TwoStepEnabled, from)
}

// disarm turns the second step off when the factor that was just taken away was
// the last one. An operator keeps one: without, the operator's pages are closed.
func (s *Store) disarm(ctx context.Context, tx *db.Tx, accountID string, from accounts.Client) (off bool, err error) {
	left, err := countFactors(ctx, tx, accountID)
	if err != nil {
		return false, fmt.Errorf("identity: factors: %w", err)
	}
	if left > 0 {
		return false, nil
	}
	a, err := accounts.GetAccount(ctx, tx, accountID)
	if err != nil {
		return false, err
	}
	if a.Operator {
		return false, apierr.InvalidRequest.Errorf("Operators need a second step. Add another passkey or an authenticator app before you remove this one.")
	}
	if err := deleteCodes(ctx, tx, accountID); err != nil {
		return false, fmt.Errorf("identity: recovery codes: %w", err)
	}
	if err := s.people.SetTwoStep(ctx, tx, accountID, false); err != nil {
		return false, err
	}
	return true, s.people.RecordEvent(ctx, tx, accountID, accounts.TwoStepDisabled, from)
}

func errPasskey() *apierr.Error {
	return apierr.Unauthorized.Errorf("We couldn’t verify this passkey. Try again, or sign in another way.")
}

func errNoParty() error {
	return apierr.InvalidRequest.Errorf("Passkeys need a domain name, and this service runs at an IP address.")
}

// passkeyName checks what a person calls a key.
func passkeyName(name string) (string, error) {
	name = strings.TrimSpace(name)
	bad := func(c rune) bool { return !unicode.IsGraphic(c) }
	if n := utf8.RuneCountInString(name); n == 0 || n > maxPasskeyRunes || strings.ContainsFunc(name, bad) {
		return "", apierr.InvalidRequest.Errorf("name: must have 1 to %d visible characters", maxPasskeyRunes)
	}
	return name, nil
}

// BeginPasskey asks the browser holder for a new key of somebody who is signed in
// and knows the password.
func (s *Store) BeginPasskey(ctx context.Context, from accounts.Client, a accounts.Account, password, name, holder string) error {
	if s.party.webauthn == nil {
		return errNoParty()
	}
	name, err := passkeyName(name)
	if err != nil {
		return err
	}
	if err := s.people.Reauthenticate(ctx, from, a, password); err != nil {
		return err
	}
	o, err := s.owner(ctx, s.db, a)
	if err != nil {
		return err
	}
	if len(o.keys) >= maxPasskeys {
		return errManyPasskeys()
	}
	var known []protocol.CredentialDescriptor
	for _, k := range o.keys {
		known = append(known, k.record.Descriptor())
	}
	options, session, err := s.party.webauthn.BeginRegistration(o, webauthn.WithExclusions(known))
	if err != nil {
		return fmt.Errorf("identity: passkey: %w", err)
	}
	return s.ask(ctx, holder, challenge{kind: addKey, accountID: a.ID, epoch: a.Epoch, name: name}, options.Response, session)
}

func errManyPasskeys() error {
	return apierr.InvalidRequest.Errorf("An account has at most %d passkeys. Remove one that you no longer use.", maxPasskeys)
}

func (s *Store) owner(ctx context.Context, q db.Queryer, a accounts.Account) (owner, error) {
	keys, err := passkeysOf(ctx, q, a.ID)
	if err != nil {
		return owner{}, fmt.Errorf("identity: passkeys: %w", err)
	}
	return owner{a, keys}, nil
}

// ask keeps what a browser was asked until it answers.
func (s *Store) ask(ctx context.Context, holder string, c challenge, options any, session *webauthn.SessionData) error {
	shown, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("identity: passkey: %w", err)
	}
	kept, err := json.Marshal(session)
	if err != nil {
		return fmt.Errorf("identity: passkey: %w", err)
	}
	c.options, c.session, c.expiresUS = string(shown), string(kept), s.now().Add(challengeLasts).UnixMicro()
	if err := setChallenge(ctx, s.db, holder, c); err != nil {
		return fmt.Errorf("identity: challenge: %w", err)
	}
	return nil
}

// open returns what the browser holder was asked last, if it still may answer
// for a, who is nobody ("") when a passkey alone is to sign in.
func (s *Store) open(ctx context.Context, holder string, kind ask, a accounts.Account) (challenge, error) {
	c, err := getChallenge(ctx, s.db, holder)
	return s.mayAnswer(c, err, kind, a)
}

// take is open that nobody else is told after.
func (s *Store) take(ctx context.Context, holder string, kind ask, a accounts.Account) (c challenge, session webauthn.SessionData, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		c, err = takeChallenge(ctx, tx, holder)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	if err == nil && c.kind == "" {
		err = sql.ErrNoRows
	}
	if c, err = s.mayAnswer(c, err, kind, a); err != nil {
		return c, session, err
	}
	if err := json.Unmarshal([]byte(c.session), &session); err != nil {
		return c, session, fmt.Errorf("identity: challenge: %w", err)
	}
	return c, session, nil
}

func (s *Store) mayAnswer(c challenge, err error, kind ask, a accounts.Account) (challenge, error) {
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return c, fmt.Errorf("identity: challenge: %w", err)
	}
	if err != nil || c.kind != kind || c.accountID != a.ID || c.epoch != a.Epoch || s.now().UnixMicro() >= c.expiresUS {
		return c, apierr.Unauthorized.Errorf("This request expired or was already used. Start over.")
	}
	return c, nil
}

// EndPasskey adds the key that the browser holder made. With the first second
// factor of an account all sessions end, and the recovery codes are returned; the
// caller starts another session of the account returned.
func (s *Store) EndPasskey(ctx context.Context, from accounts.Client, a accounts.Account, holder, answer string) (changed accounts.Account, codes []string, err error) {
	c, session, err := s.take(ctx, holder, addKey, a)
	if err != nil {
		return a, nil, err
	}
	made, err := s.credential(a, session, answer)
	if err != nil {
		return a, nil, errPasskey().WithCause(err)
	}
	now := s.now()
	k := Passkey{ID: id.New(passkeyPrefix, now), Name: c.name, CreatedUS: now.UnixMicro(), record: *made}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.unchanged(ctx, tx, a); err != nil {
			return err
		}
		if o, err := s.owner(ctx, tx, a); err != nil {
			return err
		} else if len(o.keys) >= maxPasskeys {
			return errManyPasskeys()
		}
		if err := insertPasskey(ctx, tx, a.ID, k); err != nil {
			return err
		}
		if err := s.people.RecordEvent(ctx, tx, a.ID, accounts.PasskeyAdded, from); err != nil {
			return err
		}
		if codes, err = s.arm(ctx, tx, a, from); err != nil {
			return err
		}
		if err := s.send(ctx, tx, a.ID, a.Email, factorChangedEmail("A passkey", true, !a.TwoStep, s.dashboard)); err != nil {
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

// credential checks what a browser made.
func (s *Store) credential(a accounts.Account, session webauthn.SessionData, answer string) (*webauthn.Credential, error) {
	parsed, err := protocol.ParseCredentialCreationResponseBytes([]byte(answer))
	if err != nil {
		return nil, err
	}
	return s.party.webauthn.CreateCredential(owner{Account: a}, session, parsed)
}

// RemovePasskey deletes a key, for whoever knows the password. With the last
// second factor of an account two-step sign-in ends, and all sessions; the caller
// starts another one of the account returned.
func (s *Store) RemovePasskey(ctx context.Context, from accounts.Client, a accounts.Account, password, passkeyID string) (changed accounts.Account, err error) {
	if err := s.people.Reauthenticate(ctx, from, a, password); err != nil {
		return a, err
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.unchanged(ctx, tx, a); err != nil {
			return err
		}
		if n, err := deletePasskey(ctx, tx, a.ID, passkeyID); err != nil {
			return fmt.Errorf("identity: remove passkey: %w", err)
		} else if n == 0 {
			return errNoPasskey()
		}
		if err := s.people.RecordEvent(ctx, tx, a.ID, accounts.PasskeyRemoved, from); err != nil {
			return err
		}
		off, err := s.disarm(ctx, tx, a.ID, from)
		if err != nil {
			return err
		}
		if err := s.send(ctx, tx, a.ID, a.Email, factorChangedEmail("A passkey", false, off, s.dashboard)); err != nil {
			return err
		}
		changed, err = accounts.GetAccount(ctx, tx, a.ID)
		return err
	})
	return changed, err
}

func errNoPasskey() error { return apierr.NotFound.Errorf("This passkey does not exist.") }

// AskPasskey asks the browser holder to sign in by a passkey: as the second step
// of half, whose password was right, or alone when that is nobody.
func (s *Store) AskPasskey(ctx context.Context, from accounts.Client, half accounts.Account, holder string) error {
	if s.party.webauthn == nil {
		return errNoParty()
	}
	if wait, ok := s.begun.Allow(id.Hash(from.Address)); !ok {
		e := apierr.RateLimited.Errorf("Too many requests. Wait a moment, then try again.")
		e.RetryAfter = wait
		return e
	}
	c := challenge{kind: signInKey}
	options, session, err := s.party.webauthn.BeginDiscoverableLogin()
	if half.ID != "" {
		o, lost := s.owner(ctx, s.db, half)
		if lost != nil {
			return lost
		}
		if len(o.keys) == 0 {
			return apierr.InvalidRequest.Errorf("Your account has no passkey.")
		}
		c = challenge{kind: secondStep, accountID: half.ID, epoch: half.Epoch}
		options, session, err = s.party.webauthn.BeginLogin(o)
	}
	if err != nil {
		return fmt.Errorf("identity: passkey: %w", err)
	}
	return s.ask(ctx, holder, c, options.Response, session)
}

// SignInByPasskey checks what the browser holder signed, and returns whose key it
// was. Whoever it is has shown two factors: that they have the key, and that they
// may use it (WebAuthn's user verification). A key whose counter went backwards
// may have been copied: it is refused, and its owner told.
func (s *Store) SignInByPasskey(ctx context.Context, from accounts.Client, half accounts.Account, holder, answer string) (a accounts.Account, err error) {
	kind := signInKey
	if half.ID != "" {
		kind = secondStep
	}
	_, session, err := s.take(ctx, holder, kind, half)
	if err != nil {
		return a, err
	}
	a, err = s.verify(ctx, from, half, session, answer)
	if _, ours := errors.AsType[*apierr.Error](err); ours && half.ID != "" {
		s.people.QueueEvent(half.ID, accounts.PasskeyFailed, from)
	}
	return a, err
}

func (s *Store) verify(ctx context.Context, from accounts.Client, half accounts.Account, session webauthn.SessionData, answer string) (a accounts.Account, err error) {
	parsed, err := protocol.ParseCredentialRequestResponseBytes([]byte(answer))
	if err != nil {
		return a, errPasskey().WithCause(err)
	}
	accountID := half.ID
	if accountID == "" {
		accountID = string(parsed.Response.UserHandle)
	}
	if strings.ContainsRune(accountID, 0) || !utf8.ValidString(accountID) { // PostgreSQL refuses to be asked for it
		return a, errPasskey()
	}
	copied := false
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		copied = false
		a, err = accounts.Lock(ctx, tx, accountID)
		if errors.Is(err, sql.ErrNoRows) || err == nil && (a.Unconfirmed || a.Deactivated || half.ID != "" && a.Epoch != half.Epoch) {
			return errPasskey()
		} else if err != nil {
			return err
		}
		o, err := s.owner(ctx, tx, a)
		if err != nil {
			return err
		}
		used, err := s.validate(o, half.ID != "", session, parsed)
		if err != nil {
			return errPasskey().WithCause(err)
		}
		if used.Authenticator.CloneWarning {
			copied = true
			return s.warn(ctx, tx, a, from)
		}
		for _, k := range o.keys {
			if string(k.record.ID) == string(used.ID) {
				return usePasskey(ctx, tx, k.ID, used.Authenticator.SignCount, s.now().UnixMicro())
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

// warn tells the owner of a key that it may have been copied: by an event each
// time, by mail as often as an address is written to at all.
func (s *Store) warn(ctx context.Context, tx *db.Tx, a accounts.Account, from accounts.Client) error {
	if err := s.people.RecordEvent(ctx, tx, a.ID, accounts.PasskeyCopied, from); err != nil {
		return err
	}
	if _, ok := s.written.Allow(id.Hash(a.Email)); !ok {
		return nil
	}
	return s.send(ctx, tx, a.ID, a.Email, passkeyCopiedEmail(s.dashboard))
}

func (s *Store) validate(o owner, second bool, session webauthn.SessionData, parsed *protocol.ParsedCredentialAssertionData) (*webauthn.Credential, error) {
	if second {
		return s.party.webauthn.ValidateLogin(o, session, parsed)
	}
	return s.party.webauthn.ValidateDiscoverableLogin(func(_, _ []byte) (webauthn.User, error) { return o, nil }, session, parsed)
}
