package accounts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
)

// ConfirmAddress marks the email of an account as confirmed and sets its password, in the caller's
// transaction. All sessions end.
func (s *Store) ConfirmAddress(ctx context.Context, tx *db.Tx, accountID, passwordHash string) error {
	return s.update(ctx, tx, accountID, Confirmation, `unconfirmed = 0, password_hash = $2`, passwordHash)
}

// SetPassword sets a password hash of HashPassword and ends all sessions of the account, in the
// caller's transaction.
func (s *Store) SetPassword(ctx context.Context, tx *db.Tx, accountID, passwordHash string) error {
	return s.update(ctx, tx, accountID, PasswordChange, `password_hash = $2`, passwordHash)
}

// SetEmail sets a confirmed email, in the caller's transaction. Mailed links and pending steps end;
// sessions continue. An email of another account is 400 invalid_request.
func (s *Store) SetEmail(ctx context.Context, tx *db.Tx, accountID, email string) error {
	err := s.update(ctx, tx, accountID, AddressChange, `email = $2`, email)
	if db.IsDuplicate(err) {
		return apierr.InvalidRequest.Errorf("email: another account has this address")
	}
	return err
}

// SetTwoStep turns two-step verification on or off and ends all sessions of the account, in the
// caller's transaction: no session continues that passed only one step. A role on the operator's
// pages ends, too: it was given to whoever had the second step of that time, or before there was one.
func (s *Store) SetTwoStep(ctx context.Context, tx *db.Tx, accountID string, on bool) error {
	set := `two_step = $2, operator = 0`
	if s.RolesWithoutSecondStep {
		set = `two_step = $2`
	}
	return s.update(ctx, tx, accountID, SecondStepChange, set, db.BoolInt(on))
}

// DeleteUnconfirmed deletes an account that no one has confirmed, with its security events, in the caller's
// transaction. The caller has deleted what else refers to it. If there are many events it deletes some of them and is
// not done: the caller repeats it in another transaction. The error wraps sql.ErrNoRows for an account that was
// confirmed, suspended or deleted.
func (s *Store) DeleteUnconfirmed(ctx context.Context, tx *db.Tx, accountID string) (done bool, err error) {
	if done, err = deleteSomeEvents(ctx, tx, accountID); err == nil && done {
		err = deleteUnconfirmed(ctx, tx, accountID)
	}
	if err != nil {
		return false, fmt.Errorf("accounts: delete: %w", err)
	}
	return done, nil
}

// CloseAccount turns an account into a tombstone, in the caller's transaction. It removes the
// email, the password, the rights, the sessions and the security events, of which the purge deletes
// the rest if there are many; the id stays, because the ledger refers to it. The email can be used
// for another account. The error wraps sql.ErrNoRows for a test account and for a closed account.
func (s *Store) CloseAccount(ctx context.Context, tx *db.Tx, accountID string) error {
	err := updateClosed(ctx, tx, accountID, s.now().UnixMicro())
	if err == nil {
		err = errors.Join(s.EndWith(ctx, tx, accountID, Closing), eraseEvents(ctx, tx, accountID))
	}
	if err != nil {
		return fmt.Errorf("accounts: close: %w", err)
	}
	return s.RecordEvent(ctx, tx, accountID, AccountClosed, Client{})
}

// Suspend keeps the owner of an account from signing in until Reinstate, and ends all sessions, in the caller's
// transaction. It relies on the caller to have locked the account and to pause its connections. The error wraps
// sql.ErrNoRows for a test account and for a closed account.
func (s *Store) Suspend(ctx context.Context, tx *db.Tx, accountID, reason string) error {
	err := updateSuspended(ctx, tx, accountID, reason, s.now().UnixMicro())
	if err == nil {
		err = s.EndWith(ctx, tx, accountID, Suspension)
	}
	if err != nil {
		return fmt.Errorf("accounts: suspend: %w", err)
	}
	return s.RecordEvent(ctx, tx, accountID, Suspended, Client{})
}

// Reinstate ends a suspension, in the caller's transaction.
func (s *Store) Reinstate(ctx context.Context, tx *db.Tx, accountID string) error {
	err := updateSuspended(ctx, tx, accountID, "", 0)
	if err == nil {
		err = s.EndWith(ctx, tx, accountID, Reinstatement)
	}
	if err != nil {
		return fmt.Errorf("accounts: reinstate: %w", err)
	}
	return s.RecordEvent(ctx, tx, accountID, Reinstated, Client{})
}

// update updates an account and ends what ends with the change.
func (s *Store) update(ctx context.Context, tx *db.Tx, accountID string, c Change, set string, value any) error {
	err := updateAccount(ctx, tx, accountID, set, value)
	if err == nil {
		err = s.EndWith(ctx, tx, accountID, c)
	}
	if err != nil {
		return fmt.Errorf("accounts: change: %w", err)
	}
	return nil
}

// CheckPassword verifies the password of a signed-in account. It counts failures as SignIn does. A
// wrong password is 401 unauthorized.
func (s *Store) CheckPassword(ctx context.Context, from Client, a Account, password string) error {
	_, err := s.signIn(ctx, from, a.Email, password, true)
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code == apierr.Unauthorized {
		return apierr.Unauthorized.Errorf("Incorrect password.")
	}
	return err
}

// reauthWindow is the age up to which a sign-in replaces the password in Reauthenticate.
const reauthWindow = 10 * time.Minute

// Reauthenticate proves the identity of a signed-in account once more, before a change to how the
// account signs in. An account with a password must give it; an account without one, which signs in
// at an identity provider, must have given its credentials there within reauthWindow, for this
// session. It needs the context of With. A failure is 401 unauthorized.
func (s *Store) Reauthenticate(ctx context.Context, from Client, a Account, password string) error {
	if a.HasPassword {
		return s.CheckPassword(ctx, from, a, password)
	}
	if s.MustSignInAgain(ctx, a) {
		return apierr.Unauthorized.Errorf("For your security, please sign in again.")
	}
	return nil
}

// MustSignInAgain reports whether Reauthenticate fails for a until a signs in again. Only the proof
// of the sign-in counts, not later use of the session, and not a click at a provider that still knew
// the browser.
func (s *Store) MustSignInAgain(ctx context.Context, a Account) bool {
	if a.HasPassword {
		return false
	}
	c, ok := ctx.Value(currentSessionKey{}).(currentSession)
	return !ok || c.ID != a.ID || c.proof == ProofPending || !s.IsRecentProof(c.provenUS)
}

// IsRecentProof reports whether a proof of identity at provenUS still counts as one of now.
func (s *Store) IsRecentProof(provenUS int64) bool {
	return s.now().Sub(time.UnixMicro(provenUS)) < reauthWindow
}

// MatchPassword compares a password with a hash of HashPassword, in the client's share of the queue of hashes. An empty
// hash never matches and takes the same time. check is called while it holds its slot, and fail before another attempt
// gets the slot, so that concurrent attempts cannot pass a limit before their failures are counted.
func MatchPassword(ctx context.Context, from Client, password, hash string, check func(context.Context) error,
	fail func()) (bool, error) {
	release, err := hashes.acquire(ctx, from.Network())
	if err != nil {
		return false, err
	}
	defer release()
	if err := check(ctx); err != nil {
		return false, err
	}
	ok, err := comparePassword(password, hash)
	if err == nil && !ok {
		fail()
	}
	return ok, err
}
