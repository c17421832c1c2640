package identity

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/people/accounts"
)

// SuspendAccount keeps the owner of an account from signing in, ends all sessions and notifies the owner, in the
// caller's transaction, which has locked the account. Apps hold an amount for work of their own.
func (s *Store) SuspendAccount(ctx context.Context, tx *db.Tx, a accounts.Account, reason string, work money.MC) error {
	if err := s.accounts.Suspend(ctx, tx, a.ID, reason); err != nil {
		return err
	}
	return s.sendMail(ctx, tx, a.ID, a.Email, accountSuspendedEmail(reason, work))
}

// ReinstateAccount ends the suspension of an account and notifies its owner, in the caller's transaction, which has
// locked the account.
func (s *Store) ReinstateAccount(ctx context.Context, tx *db.Tx, a accounts.Account) error {
	if err := s.accounts.Reinstate(ctx, tx, a.ID); err != nil {
		return err
	}
	return s.sendMail(ctx, tx, a.ID, a.Email, accountReinstatedEmail(s.dashboard))
}

// SignOutAccount ends all sessions of an account and invalidates all mailed links, in the caller's transaction.
func (s *Store) SignOutAccount(ctx context.Context, tx *db.Tx, accountID string) error {
	if err := s.accounts.EndWith(ctx, tx, accountID, accounts.SignOutEverywhere); err != nil {
		return err
	}
	return s.accounts.RecordEvent(ctx, tx, accountID, accounts.SignedOut, accounts.Client{})
}
