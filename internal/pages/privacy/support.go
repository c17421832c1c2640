package privacy

import (
	"context"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/accounts"
)

// PrepareClosing ends what may still spend or bring money, before the operator refunds and closes a suspended account:
// it revokes the connections, ends their running calls, turns off automatic top-up, and ends checkouts that were not
// paid. It may be repeated.
func (s *Store) PrepareClosing(ctx context.Context, accountID string) error {
	if err := s.Topups.ExpireUnpaid(ctx, accountID); err != nil {
		return err
	}
	err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		a, err := accounts.Lock(ctx, tx, accountID)
		if err != nil {
			return err
		}
		if a.SuspendedUS == 0 {
			return apierr.InvalidRequest.Errorf("the account is not suspended")
		}
		if err := s.Topups.DeletePlan(ctx, tx, accountID); err != nil {
			return err
		}
		return s.revokeConnections(ctx, tx, accountID, true)
	})
	if err != nil {
		return fmt.Errorf("privacy: prepare closing: %w", err)
	}
	return nil
}

// CheckRefundable returns 400 invalid_request while something blocks the closing of a suspended account that refunds do
// not change, such as a call that runs or a payment that is pending.
func (s *Store) CheckRefundable(ctx context.Context, a accounts.Account) error {
	st, err := s.loadStanding(ctx, s.DB, a)
	if err != nil {
		return err
	}
	st.endCheckouts() // PrepareClosing has ended those that can be ended
	for _, r := range st.rows {
		if item := r.operator(); item.Fate == Blocks {
			return apierr.InvalidRequest.Errorf("%s", item.Text)
		}
	}
	return nil
}

// CloseForOperator closes a suspended account and erases its personal data, in the caller's transaction, which has
// locked the account. While something blocks it, it is 400 invalid_request. It returns what goes on after the closing.
func (s *Store) CloseForOperator(ctx context.Context, tx *db.Tx, a accounts.Account) (goesOn []string, err error) {
	st, err := s.closeTx(ctx, tx, a, true)
	if o, ok := errors.AsType[*obstacles](err); ok {
		return nil, apierr.InvalidRequest.Errorf("%s", o.rows[0].operator().Text)
	} else if err != nil {
		return nil, err
	}
	for _, r := range st.rows {
		if item := r.operator(); item.Fate == GoesOn {
			goesOn = append(goesOn, item.Text)
		}
	}
	return goesOn, nil
}

// ListOpen returns what an account owes and is owed, in words for an operator who is to close it.
func (s *Store) ListOpen(ctx context.Context, a accounts.Account) (list []Item, err error) {
	st, err := s.loadStanding(ctx, s.DB, a)
	if err != nil {
		return nil, err
	}
	for _, r := range st.rows {
		item := r.operator()
		if r.kind == balance { // its text is about what refunds have left
			item.Text = "a balance of " + r.amountMC.Display()
		}
		list = append(list, item)
	}
	return list, nil
}
