package accounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
)

// Confirm says that an account's address is proved, and sets its password, in the
// caller's transaction.
func (s *Store) Confirm(ctx context.Context, tx *db.Tx, accountID, passwordHash string) error {
	return s.change(ctx, tx, accountID, `unconfirmed = 0, password_hash = $2, epoch = epoch + 1`, passwordHash)
}

// SetPassword sets what HashPassword made of a password, and ends all sessions of
// the account, in the caller's transaction.
func (s *Store) SetPassword(ctx context.Context, tx *db.Tx, accountID, passwordHash string) error {
	return s.change(ctx, tx, accountID, `password_hash = $2, epoch = epoch + 1`, passwordHash)
}

// SetEmail sets an address that was proved, in the caller's transaction. Sessions
// go on. A taken address is 400 invalid_request.
func (s *Store) SetEmail(ctx context.Context, tx *db.Tx, accountID, email string) error {
	_, err := tx.ExecContext(ctx, `UPDATE accounts SET email = $2 WHERE id = $1`, accountID, email)
	if db.IsDuplicate(err) {
		return apierr.InvalidRequest.Errorf("email: another account has this address")
	} else if err != nil {
		return fmt.Errorf("accounts: e-mail: %w", err)
	}
	return nil
}

// SetTwoStep says whether a password alone signs in, and ends all sessions of the
// account, in the caller's transaction: none goes on that passed one step only.
func (s *Store) SetTwoStep(ctx context.Context, tx *db.Tx, accountID string, on bool) error {
	return s.change(ctx, tx, accountID, `two_step = $2, epoch = epoch + 1`, flag(on))
}

// Close makes a tombstone of a person's account, in the caller's transaction: the
// address, the password, what it was allowed, its sessions and what is known of
// them go, and its id stays, because the ledger names it. The address can be used
// anew. The error wraps sql.ErrNoRows for a test account, and one that is closed.
func (s *Store) Close(ctx context.Context, tx *db.Tx, accountID string) error {
	res, err := tx.ExecContext(ctx, `UPDATE accounts SET email = $2, password_hash = '', developer = 0, operator = 0, notices = 0, two_step = 0, unconfirmed = 0,
		epoch = epoch + 1, closed_us = $3 WHERE id = $1 AND sandbox = 0 AND closed_us IS NULL`, accountID, strings.ToLower(accountID)+"@closed.invalid", s.now().UnixMicro())
	if err == nil {
		var n int64
		if n, err = res.RowsAffected(); n == 0 {
			err = errors.Join(err, sql.ErrNoRows)
		}
	}
	if err == nil {
		err = errors.Join(deleteSessionsOf(ctx, tx, accountID), deleteEventsOf(ctx, tx, accountID))
	}
	if err != nil {
		return fmt.Errorf("accounts: close: %w", err)
	}
	return s.Record(ctx, tx, accountID, AccountClosed, Client{})
}

// EndSessions ends all sessions of the account, and all links that were mailed, in
// the caller's transaction.
func (s *Store) EndSessions(ctx context.Context, tx *db.Tx, accountID string) error {
	return s.change(ctx, tx, accountID, `epoch = epoch + $2`, 1)
}

// change updates an account and deletes its sessions. That the epoch rises ends
// those, too, that begin beside this transaction.
func (s *Store) change(ctx context.Context, tx *db.Tx, accountID, set string, value any) error {
	res, err := tx.ExecContext(ctx, `UPDATE accounts SET `+set+` WHERE id = $1`, accountID, value)
	if err == nil {
		var n int64
		if n, err = res.RowsAffected(); n == 0 {
			err = errors.Join(err, sql.ErrNoRows)
		}
	}
	if err == nil {
		err = deleteSessionsOf(ctx, tx, accountID)
	}
	if err != nil {
		return fmt.Errorf("accounts: change: %w", err)
	}
	return nil
}

// CheckPassword asks whoever is signed in for their password again. It counts
// failures as SignIn does. A wrong one is 401 unauthorized.
func (s *Store) CheckPassword(ctx context.Context, from Client, a Account, password string) error {
	_, err := s.SignIn(ctx, from, a.Email, password)
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code == apierr.Unauthorized {
		return apierr.Unauthorized.Errorf("That is not your password.")
	}
	return err
}

// freshFor is how long ago a sign-in may be that stands in for a password.
const freshFor = 10 * time.Minute

// Reauthenticate asks whoever is signed in to show once more who they are, before
// what decides who may sign in from then on: by their password, or, if they have
// none because they sign in at a provider, by having signed in just now in this
// browser. It is asked inside of With. A failure is 401 unauthorized.
func (s *Store) Reauthenticate(ctx context.Context, from Client, a Account, password string) error {
	if a.HasPassword {
		return s.CheckPassword(ctx, from, a, password)
	}
	if s.MustSignInAgain(ctx, a) {
		return apierr.Unauthorized.Errorf("You signed in too long ago for this. Sign in again.")
	}
	return nil
}

// MustSignInAgain reports whether Reauthenticate has nothing to ask a for but to
// sign in again. That the browser was used since then counts for nothing.
func (s *Store) MustSignInAgain(ctx context.Context, a Account) bool {
	if a.HasPassword {
		return false
	}
	c, ok := ctx.Value(currentKey{}).(current)
	return !ok || c.ID != a.ID || c.proof == OneOfTwo || s.now().Sub(time.UnixMicro(c.startedUS)) >= freshFor
}

// MatchPassword compares a password with what HashPassword made, in the same time
// when it made nothing.
func MatchPassword(ctx context.Context, password, hash string) (bool, error) {
	if err := takeSlot(ctx); err != nil {
		return false, err
	}
	defer func() { <-slots }()
	return matches(password, hash)
}
