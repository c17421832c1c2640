package privacy

import (
	"context"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
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

// CheckRefundable returns 400 invalid_request while the balance of a suspended account may still change by itself: a
// call runs, or a payment is pending.
func (s *Store) CheckRefundable(ctx context.Context, a accounts.Account) error {
	st, err := s.loadStanding(ctx, s.DB, a)
	if err != nil {
		return err
	}
	switch {
	case st.held:
		return apierr.InvalidRequest.Errorf("a call still ends, or its charge is pending; repeat in a few minutes")
	case st.paying:
		return apierr.InvalidRequest.Errorf("a top-up is being cleared or was just paid; repeat when it has settled")
	case st.users > 0:
		return apierr.InvalidRequest.Errorf("users are connected to live apps of this account, over %d connection%s; "+
			"revoke them first", st.users, plural(st.users))
	}
	return nil
}

// CloseForOperator closes a suspended account and erases its personal data, in the caller's transaction, which has
// locked the account. While an obstacle remains it is 400 invalid_request.
func (s *Store) CloseForOperator(ctx context.Context, tx *db.Tx, a accounts.Account) error {
	err := s.closeTx(ctx, tx, a, true)
	if !errors.Is(err, errObstacles) {
		return err
	}
	st, err := s.loadStanding(ctx, tx, a)
	if err != nil {
		return err
	}
	if sum := st.balance.AvailableMC + st.balance.ReservedMC; sum >= money.Cent {
		return apierr.InvalidRequest.Errorf("%s cannot be refunded to a payment; the account stays suspended",
			sum.Display())
	} else if st.balance.AvailableMC < 0 {
		return apierr.InvalidRequest.Errorf("the balance is %s below zero; the account stays suspended",
			(-st.balance.AvailableMC).Display())
	}
	return apierr.InvalidRequest.Errorf("something changed meanwhile; repeat the command")
}
