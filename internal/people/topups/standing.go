package topups

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// RefundPage is the page by which users take unspent money back.
const RefundPage = refundPath

// A Standing is an account's money that is on its way, and what of its balance can go back to its cards.
type Standing struct {
	UnpaidMC     money.MC // of checkouts that nobody has paid yet: ExpireUnpaid ends those that Stripe lets it end
	UnderWayMC   money.MC // of payments that are not credited yet, and of charges of a card that have begun
	ReturningMC  money.MC // of refunds that Stripe has not carried out yet
	ReturnableMC money.MC // of the available balance
}

// LoadStanding loads the standing of the account of a balance; q may be a transaction.
func (s *Store) LoadStanding(ctx context.Context, q db.Queryer, balance rules.Balance) (st Standing, err error) {
	payments, err := store.PaymentsOfAccount(ctx, q, balance.AccountID, maxPayments)
	if err != nil {
		return st, fmt.Errorf("topups: standing: %w", err)
	}
	for _, p := range payments {
		if p.Status != rules.PaymentPending {
			continue
		}
		c, err := getCheckout(ctx, q, p.ID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return st, fmt.Errorf("topups: standing: %w", err)
		}
		if p.Paid() || c.automatic() {
			st.UnderWayMC += p.AmountMC
		} else {
			st.UnpaidMC += p.AmountMC
		}
	}
	open, err := listOpenRefunds(ctx, q, balance.AccountID)
	if err != nil {
		return st, fmt.Errorf("topups: standing: %w", err)
	}
	for _, r := range open {
		st.ReturningMC += money.MC(r.Cents) * money.Cent
	}
	if !s.IsConfigured() {
		return st, nil
	}
	cents, _, err := s.refundable(ctx, q, balance)
	if err != nil {
		return st, fmt.Errorf("topups: standing: %w", err)
	}
	st.ReturnableMC = money.MC(cents) * money.Cent
	return st, nil
}

// LoadStandingOf is LoadStanding of an account, with the balance as it is now.
func (s *Store) LoadStandingOf(ctx context.Context, accountID string) (Standing, error) {
	balance, err := store.GetBalance(ctx, s.DB, accountID)
	if err != nil {
		return Standing{}, fmt.Errorf("topups: standing: %w", err)
	}
	balance.AccountID = accountID // of one that has no balance yet
	return s.LoadStanding(ctx, s.DB, balance)
}

// maxCredits bounds the goodwill credits of an account that SettleElsewhere looks at.
const maxCredits = 10_000

// paidElsewhere is the reason of reversals by which an operator records that a user was paid otherwise.
const paidElsewhere = "paid_elsewhere"

// Rest is what became of the money that came back to a closed account.
type Rest struct {
	ReturnedMC money.MC // to cards
	PendingMC  money.MC // on its way to cards; a job finishes it
}

// ReturnRest returns what a closed account has available to the cards that brought it, newest first, as its user did
// before (decision 108), and asks Stripe again about refunds that are pending. What no card takes stays.
func (s *Store) ReturnRest(ctx context.Context, accountID string) (rest Rest, err error) {
	if !s.IsConfigured() {
		return rest, apierr.InvalidRequest.Errorf("stripe.key: required to refund a payment")
	}
	st, err := s.LoadStandingOf(ctx, accountID)
	if err != nil {
		return rest, err
	}
	if cents := int64(st.ReturnableMC / money.Cent); cents > 0 {
		if _, err := s.startUserRefund(ctx, accountID, id.NewSecret(), cents); err != nil {
			return rest, err
		}
	}
	open, err := listOpenRefunds(ctx, s.DB, accountID)
	if err != nil {
		return rest, fmt.Errorf("topups: rest: %w", err)
	}
	for _, r := range open {
		if err := s.finishRefund(ctx, r); err != nil { // it stays pending, and the job repeats it
			s.Log.Error("refund not finished", "refund_id", r.ID, "error", err)
		}
		if r, err = getRefund(ctx, s.DB, r.ID); err != nil {
			return rest, fmt.Errorf("topups: refund %s: %w", r.ID, err)
		}
		switch r.State {
		case refundDone:
			rest.ReturnedMC += money.MC(r.Cents) * money.Cent
		case refundOpen:
			rest.PendingMC += money.MC(r.Cents) * money.Cent
		}
	}
	return rest, nil
}

// A Settlement is what the user of an account was paid otherwise than by its cards, such as by a bank transfer.
type Settlement struct {
	ID        string // chosen by who records it, so that it is recorded once
	AccountID string
	AmountMC  money.MC
	Reason    string
}

// SettleElsewhere takes what a user was paid otherwise from the available balance, in the caller's transaction, which
// has locked the account. A settlement that is recorded changes nothing, and it returns false; another one with the
// same id is 400 invalid_request. It takes what is left of payments, newest first, and then whole goodwill credits.
// What open disputes would take if they were lost stays: the bank would take it a second time. An amount that is not
// there in these parts is 400 invalid_request.
func (s *Store) SettleElsewhere(ctx context.Context, tx *db.Tx, t Settlement) (isNew bool, err error) {
	was, err := getSettlement(ctx, tx, t.ID)
	switch {
	case err == nil && was == t:
		return false, nil
	case err == nil:
		return false, apierr.InvalidRequest.Errorf("id: another settlement has it")
	case !errors.Is(err, sql.ErrNoRows):
		return false, fmt.Errorf("topups: settle: %w", err)
	}
	if err := s.settleElsewhere(ctx, tx, t.AccountID, t.AmountMC, t.Reason); err != nil {
		return false, err
	}
	if err := insertSettlement(ctx, tx, t, s.Now().UnixMicro()); err != nil {
		return false, fmt.Errorf("topups: settle: %w", err)
	}
	return true, nil
}

func (s *Store) settleElsewhere(ctx context.Context, tx *db.Tx, accountID string, amount money.MC,
	reason string) error {
	balance, err := store.LockBalance(ctx, tx, accountID)
	if err != nil {
		return fmt.Errorf("topups: settle: %w", err)
	}
	open, err := listOpenRefunds(ctx, tx, accountID)
	if err != nil {
		return fmt.Errorf("topups: settle: %w", err)
	}
	disputed, err := s.SumDisputed(ctx, tx, accountID)
	if err != nil {
		return err
	}
	switch most := max(balance.AvailableMC-disputed, 0); {
	case len(open) > 0:
		return apierr.InvalidRequest.Errorf("a refund is pending at Stripe; repeat when it has ended")
	case amount <= 0 || amount > most && disputed > 0:
		return apierr.InvalidRequest.Errorf("amount: must be at most %s, which the account has available besides %s "+
			"that is disputed", most.Display(), disputed.Display())
	case amount > most:
		return apierr.InvalidRequest.Errorf("amount: must be at most %s, which the account has available",
			most.Display())
	}
	left, err := s.settlePayments(ctx, tx, accountID, amount)
	if err != nil {
		return err
	}
	credits, err := store.GoodwillOfAccount(ctx, tx, accountID, maxCredits)
	if err != nil {
		return fmt.Errorf("topups: settle: %w", err)
	}
	for _, g := range credits {
		if g.RestMC() == 0 || g.RestMC() > left {
			continue
		}
		r, err := s.Ledger.DoTx(ctx, tx, rules.WithdrawGoodwill{GoodwillID: g.ID, Reason: reason})
		if err != nil {
			return err
		}
		left -= r.Entry.AmountMC
	}
	if left > 0 {
		return apierr.InvalidRequest.Errorf("amount: %s of it is no payment of the user's", left.Display())
	}
	return nil
}

// settlePayments takes an amount from what is left of an account's payments, newest first, but for what is disputed. It
// returns what is left of the amount.
func (s *Store) settlePayments(ctx context.Context, tx *db.Tx, accountID string, left money.MC) (money.MC, error) {
	payments, err := store.PaymentsOfAccount(ctx, tx, accountID, maxPayments)
	if err != nil {
		return left, fmt.Errorf("topups: settle: %w", err)
	}
	disputed, err := sumContested(ctx, tx, accountID)
	if err != nil {
		return left, fmt.Errorf("topups: settle: %w", err)
	}
	for _, p := range payments {
		part := min(left, p.AmountMC-p.ReversedMC-takenIfLost(p, disputed[p.ID]))
		if p.Status != rules.PaymentSettled || part <= 0 {
			continue
		}
		_, err := s.Ledger.DoTx(ctx, tx, rules.ReversePayment{
			PaymentID: p.ID,
			Reason:    paidElsewhere,
			TotalMC:   p.ReversedFor(paidElsewhere) + part,
		})
		if err != nil {
			return left, err
		}
		left -= part
	}
	return left, nil
}
