package privacy

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

// CheckShown returns 400 invalid_request if closing an account would return, withdraw or end what the operator's form
// has not shown. shown is the form's, as ListOpen returned it; nil = there was none.
func (s *Store) CheckShown(ctx context.Context, a accounts.Account, shown *string) error {
	st, err := s.loadStanding(ctx, s.DB, a)
	if err != nil {
		return err
	}
	return st.checkShown(shown)
}

func (st standing) checkShown(shown *string) error {
	if shown == nil {
		return nil
	}
	var changed []string
	for _, r := range st.findUnseen(*shown, row.operatorKey) {
		changed = append(changed, r.openItem().Text)
	}
	if len(changed) > 0 {
		return hasChanged(strings.Join(changed, "; "))
	}
	return nil
}

func hasChanged(text string) error {
	return apierr.InvalidRequest.Errorf("this has changed since you opened the page, so look at it again: %s", text)
}

// CloseForOperator closes a suspended account and erases its personal data, in the caller's transaction, which has
// locked the account. While something blocks it, it is 400 invalid_request, and so it is if the form has shown less
// than what closing does or than takenMC, which was returned and withdrawn. It returns what goes on after the closing.
func (s *Store) CloseForOperator(
	ctx context.Context, tx *db.Tx, a accounts.Account, shown *string, takenMC money.MC,
) (goesOn []string, err error) {
	st, err := s.closeTx(ctx, tx, a, true)
	if o, ok := errors.AsType[*obstacles](err); ok {
		return nil, apierr.InvalidRequest.Errorf("%s", o.rows[0].operator().Text)
	} else if err != nil {
		return nil, err
	}
	if err := st.checkShown(shown); err != nil {
		return nil, err
	}
	if shown != nil && takenMC-sumShown(*shown) >= money.Cent {
		return nil, hasChanged("a balance of " + takenMC.Display())
	}
	for _, r := range st.rows {
		if item := r.operator(); item.Fate == GoesOn {
			goesOn = append(goesOn, item.Text)
		}
	}
	return goesOn, nil
}

// ListOpen returns what an account owes and is owed, in words for an operator who is to close it, and what the form
// carries of it.
func (s *Store) ListOpen(ctx context.Context, a accounts.Account) (list []Item, shown string, err error) {
	st, err := s.loadStanding(ctx, s.DB, a)
	if err != nil {
		return nil, "", err
	}
	for _, r := range st.rows {
		list = append(list, r.openItem())
	}
	return list, st.seen(row.operatorKey), nil
}

// openItem is operator before refunds.
func (r row) openItem() Item {
	item := r.operator()
	if r.kind == balance { // its text is about what refunds have left
		item.Text = "a balance of " + r.amountMC.Display()
	}
	return item
}
