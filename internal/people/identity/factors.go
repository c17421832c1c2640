package identity

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Factors are the second factors of an account, apart from recovery codes.
type Factors struct {
	App      bool // an authenticator app
	Passkeys []Passkey
}

// GetFactors returns the second factors of an account.
func (s *Store) GetFactors(ctx context.Context, accountID string) (Factors, error) {
	return getFactors(ctx, s.db, accountID)
}

func getFactors(ctx context.Context, q db.Queryer, accountID string) (f Factors, err error) {
	stored, err := getTOTPSeed(ctx, q, accountID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return f, fmt.Errorf("identity: seed: %w", err)
	}
	f.App = stored.active
	if f.Passkeys, err = listPasskeys(ctx, q, accountID); err != nil {
		return f, fmt.Errorf("identity: passkeys: %w", err)
	}
	return f, nil
}

// ListLogins returns the provider logins that are linked to an account.
func (s *Store) ListLogins(ctx context.Context, accountID string) ([]Login, error) {
	list, err := listLogins(ctx, s.db, accountID)
	if err != nil {
		return nil, fmt.Errorf("identity: logins: %w", err)
	}
	return list, nil
}

// enableTwoStep turns two-step verification on with the first factor of an account: it creates the
// recovery codes and ends all sessions. With a further factor it does nothing.
func (s *Store) enableTwoStep(ctx context.Context, tx *db.Tx, a accounts.Account,
	from accounts.Client) (codes []string, err error) {
	if a.TwoStep {
		return nil, nil
	}
	if codes, err = s.createRecoveryCodes(ctx, tx, a.ID); err != nil {
		return nil, err
	}
	if err := s.accounts.SetTwoStep(ctx, tx, a.ID, true); err != nil {
		return nil, err
	}
	return codes, s.accounts.RecordEvent(ctx, tx, a.ID, accounts.TwoStepEnabled, from)
}

// disableTwoStepAfterLast turns two-step verification off if the factor just removed was the last.
// It returns 400 invalid_request for an operator, whose pages require a second step.
func (s *Store) disableTwoStepAfterLast(ctx context.Context, tx *db.Tx, accountID string,
	from accounts.Client) (off bool, err error) {
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
		return false, apierr.InvalidRequest.Errorf(
			"Operators need a second step. Add another passkey or an authenticator app before you remove this one.")
	}
	if err := deleteRecoveryCodes(ctx, tx, accountID); err != nil {
		return false, fmt.Errorf("identity: recovery codes: %w", err)
	}
	if err := s.accounts.SetTwoStep(ctx, tx, accountID, false); err != nil {
		return false, err
	}
	return true, s.accounts.RecordEvent(ctx, tx, accountID, accounts.TwoStepDisabled, from)
}

// ResetTwoStep removes all second factors of an account whose owner has lost them, and ends all sessions, in the
// caller's transaction. It relies on the caller to have verified the owner in another way. It returns what was removed;
// an account without two-step verification is 400 invalid_request.
func (s *Store) ResetTwoStep(ctx context.Context, tx *db.Tx, accountID string) (removed Factors, err error) {
	a, err := accounts.Lock(ctx, tx, accountID)
	if err != nil {
		return removed, err
	}
	if !a.TwoStep {
		return removed, apierr.InvalidRequest.Errorf("this account has no two-step verification")
	}
	if removed, err = getFactors(ctx, tx, accountID); err != nil {
		return removed, err
	}
	if err := errors.Join(deleteTOTPSeed(ctx, tx, accountID), deleteRecoveryCodes(ctx, tx, accountID),
		deletePasskeys(ctx, tx, accountID)); err != nil {
		return removed, fmt.Errorf("identity: reset factors: %w", err)
	}
	if err := s.accounts.SetTwoStep(ctx, tx, accountID, false); err != nil {
		return removed, err
	}
	if err := s.accounts.RecordEvent(ctx, tx, accountID, accounts.TwoStepReset, accounts.Client{}); err != nil {
		return removed, err
	}
	return removed, s.sendMail(ctx, tx, accountID, a.Email, twoStepResetEmail(s.dashboard))
}

func (s *Store) createRecoveryCodes(ctx context.Context, tx *db.Tx, accountID string) (codes []string, err error) {
	if err := deleteRecoveryCodes(ctx, tx, accountID); err != nil {
		return nil, fmt.Errorf("identity: recovery codes: %w", err)
	}
	for range recoveryCodeCount {
		var b [10]byte // 80 random bits: an unsalted hash is safe
		rand.Read(b[:])
		code := strings.ToLower(base32Encoding.EncodeToString(b[:]))
		if err := insertRecoveryCode(ctx, tx, accountID, id.Hash(accountID+" "+code)); err != nil {
			return nil, fmt.Errorf("identity: recovery codes: %w", err)
		}
		codes = append(codes, groupCode(code))
	}
	return codes, nil
}
