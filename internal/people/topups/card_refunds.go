package topups

import (
	"context"
	"fmt"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// returnedToCard is the reason of reversals by which users take unspent money back.
const returnedToCard = "returned_to_card"

// Reasons of 400 invalid_request that the page shows.
const (
	autoIsOn       = "Turn off automatic top-up first. Otherwise your card would be charged again."
	tooMuchToCard  = "You can return up to %s now."
	nothingForCard = "There is nothing to return."
)

// startUserRefund takes an amount from the available balance of an account, and asks for its refund to the payments
// that brought it, newest first (decision 108). A form that is sent again asks for no second one. An amount that no
// payments can take back is 400 invalid_request.
func (s *Store) startUserRefund(ctx context.Context, accountID, token string, cents int64) (list []refund, err error) {
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := accounts.Lock(ctx, tx, accountID); err != nil {
			return err
		}
		if list, err = refundsOfForm(ctx, tx, accountID, token); err != nil || len(list) > 0 {
			return err
		}
		balance, err := store.LockBalance(ctx, tx, accountID)
		if err != nil {
			return err
		}
		if list, err = s.planUserRefunds(ctx, tx, balance, cents); err != nil {
			return err
		}
		for i := range list {
			list[i].Token = token
			if err := s.openUserRefund(ctx, tx, &list[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("topups: refund to card: %w", err)
	}
	return list, nil
}

// planUserRefunds returns the refunds by which an amount goes back to payments. The balance is locked.
func (s *Store) planUserRefunds(ctx context.Context, tx *db.Tx, balance rules.Balance, cents int64) ([]refund, error) {
	_, list, err := s.refundable(ctx, tx, balance)
	if err != nil {
		return nil, err
	}
	sum := int64(0)
	for i := range list {
		if rest := cents - sum; list[i].Cents > rest {
			list[i].Cents = rest
			list = list[:i+1]
		}
		if sum += list[i].Cents; sum == cents {
			list = list[:i+1]
			break
		}
	}
	switch {
	case sum == 0:
		return nil, apierr.InvalidRequest.Errorf(nothingForCard)
	case sum < cents:
		return nil, apierr.InvalidRequest.Errorf(tooMuchToCard, formatDollars(sum))
	}
	return list, nil
}

// refundable returns how many cents of a balance can go back, and to which payments, newest first: settled ones without
// a dispute and without a refund that is still open or was refused, each up to what is left of it.
func (s *Store) refundable(ctx context.Context, q db.Queryer, balance rules.Balance) (int64, []refund, error) {
	open, err := listOpenRefunds(ctx, q, balance.AccountID)
	if err != nil {
		return 0, nil, err
	}
	list, err := s.chooseRefunds(ctx, q, balance, open)
	if err != nil {
		return 0, nil, err
	}
	sum := int64(0)
	for _, r := range list {
		sum += r.Cents
	}
	return sum, list, nil
}

// openUserRefund writes a refund and takes its amount from the balance, in one transaction, before Stripe is asked.
// Stripe is asked by finishRefund, now or after a crash.
func (s *Store) openUserRefund(ctx context.Context, tx *db.Tx, r *refund) error {
	p, err := store.GetPayment(ctx, tx, r.PaymentID)
	if err != nil {
		return err
	}
	now := s.Now()
	r.ID, r.State, r.CreatedUS, r.byUser = id.New(refundPrefix, now), refundOpen, now.UnixMicro(), 1
	r.NextUS, r.TotalCents = now.Add(refundRetry).UnixMicro(), r.Cents
	if err := insertRefund(ctx, tx, *r); err != nil {
		return err
	}
	_, err = s.Ledger.DoTx(ctx, tx, rules.ReversePayment{
		PaymentID: r.PaymentID,
		Reason:    returnedToCard,
		TotalMC:   p.ReversedFor(returnedToCard) + money.MC(r.Cents)*money.Cent,
	})
	return err
}

func returnedEmail(cents int64, dashboard string) ui.Email {
	return ui.Email{
		Subject: "We returned " + formatDollars(cents) + " to your card",
		Paragraphs: []string{
			"You asked for " + formatDollars(cents) + " of your balance back. Your bank usually shows it within 5 " +
				"to 10 business days.",
			"If this wasn’t you, change your password now.",
		},
		Action: &ui.Link{Href: dashboard + refundPath, Text: "View refunds"},
		Why:    ui.AboutBalance,
	}
}

// returnedAfterAllEmail reports a refund that Stripe has made, or is making, although its user was told that it could
// not be.
func returnedAfterAllEmail(cents int64, state refundState, dashboard string) ui.Email {
	if state == refundOpen {
		return ui.Email{
			Subject: formatDollars(cents) + " is on its way to your card after all",
			Paragraphs: []string{
				"We wrote that we couldn’t return " + formatDollars(cents) + " of your balance to your card. It is " +
					"on its way after all, so we took it from your balance again. If your bank doesn’t accept it, " +
					"it comes back to your balance.",
			},
			Action: &ui.Link{Href: dashboard + refundPath, Text: "View refunds"},
			Why:    ui.AboutBalance,
		}
	}
	return ui.Email{
		Subject: "We did return " + formatDollars(cents) + " to your card",
		Paragraphs: []string{
			"We wrote that we couldn’t return " + formatDollars(cents) + " of your balance to your card. It has been " +
				"returned after all, so we took it from your balance again. Your bank usually shows it within " +
				"5 to 10 business days.",
		},
		Action: &ui.Link{Href: dashboard + refundPath, Text: "View refunds"},
		Why:    ui.AboutBalance,
	}
}

// notRefundableEmail reports a refund that Stripe has not made, so that no bank was asked.
func notRefundableEmail(cents int64, dashboard string) ui.Email {
	return ui.Email{
		Subject: "We couldn’t return " + formatDollars(cents) + " to your card",
		Paragraphs: []string{
			"You asked for " + formatDollars(cents) + " of a top-up back. We couldn’t refund it, because a top-up of " +
				"yours was refunded or disputed in the meantime. Your balance shows what you have now.",
		},
		Action: &ui.Link{Href: dashboard + refundPath, Text: "View refunds"},
		Why:    ui.AboutBalance,
	}
}

// notReturnedEmail reports a refund that a bank did not accept.
func notReturnedEmail(cents int64, dashboard string) ui.Email {
	return ui.Email{
		Subject: "We couldn’t return " + formatDollars(cents) + " to your card",
		Paragraphs: []string{
			"The refund of " + formatDollars(cents) + " could not be made. The money is back in your balance.",
		},
		Action: &ui.Link{Href: dashboard + refundPath, Text: "View refunds"},
		Why:    ui.AboutBalance,
	}
}
