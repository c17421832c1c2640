package topups

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// refundPrefix is that of the ids of refunds.
const refundPrefix = "rfd_"

// refundRetry is how long a job waits before it asks Stripe again about an open refund.
const refundRetry = 5 * time.Minute

// maxPayments bounds the payments of an account that a refund looks at, the newest.
const maxPayments = 10_000

// A refund is a part of a payment that goes back to its payer.
type refund struct {
	ID, PaymentID, AccountID string
	Cents, TotalCents        int64 // TotalCents: refunded of the payment once this is done
	State                    refundState
	Error                    string
	NextUS, CreatedUS        int64
	byUser                   int64  // 1 = its user asked for it: the amount has left the balance already
	Token                    string // of the form; "" = not by a user
}

type refundState string

const (
	refundOpen    refundState = "open"
	refundDone    refundState = "done"
	refundRefused refundState = "refused" // by Stripe, finally
)

// RefundRest refunds what a suspended account has available to the payments that brought it, newest first, in whole
// cents. Amounts leave the balance as Stripe confirms them. What no payment can take back stays: goodwill credits,
// fractions of a cent, and payments that are disputed. It may be repeated, also after an error: refunds that are open
// are finished first. A refund that Stripe refuses is 400 invalid_request, and Stripe being unreachable is 503
// unavailable.
func (s *Store) RefundRest(ctx context.Context, accountID string) (refundedMC money.MC, err error) {
	open, err := s.planRefunds(ctx, accountID)
	if err != nil {
		return 0, err
	}
	if len(open) > 0 && !s.IsConfigured() {
		return 0, apierr.InvalidRequest.Errorf("stripe.key: required to refund a payment")
	}
	for _, r := range open {
		if err := s.finishRefund(ctx, r); err != nil {
			return refundedMC, err
		}
		if r, err = getRefund(ctx, s.DB, r.ID); err != nil {
			return refundedMC, fmt.Errorf("topups: refund %s: %w", r.ID, err)
		}
		if r.State == refundDone { // and not given back
			refundedMC += money.MC(r.Cents) * money.Cent
		}
	}
	return refundedMC, nil
}

// SumUnrefundable returns how much of what an account has available its user paid, and no payment takes back: what is
// left of disputed payments, and of the credits by which refused refunds came back. The user has spent goodwill first.
func (s *Store) SumUnrefundable(ctx context.Context, q db.Queryer, b rules.Balance) (sum money.MC, err error) {
	payments, err := store.PaymentsOfAccount(ctx, q, b.AccountID, maxPayments)
	if err != nil {
		return 0, fmt.Errorf("topups: unrefundable: %w", err)
	}
	for _, p := range payments {
		if p.Status == rules.PaymentSettled && isDisputed(p) {
			sum += p.AmountMC - p.ReversedMC
		}
	}
	refused, err := listRefusedUserRefunds(ctx, q, b.AccountID)
	if err != nil {
		return 0, fmt.Errorf("topups: unrefundable: %w", err)
	}
	for _, refundID := range refused {
		credit, err := store.GetGoodwill(ctx, q, goodwillOfRefund(refundID))
		if err != nil {
			return 0, fmt.Errorf("topups: unrefundable: %w", err)
		}
		sum += credit.RestMC()
	}
	return max(min(sum, b.AvailableMC), 0), nil
}

func isDisputed(p *rules.Payment) bool {
	return slices.ContainsFunc(p.Records, func(r rules.PaymentRecord) bool { return r.Kind == "disputed" })
}

// planRefunds returns the open refunds of an account, after adding those that its balance still allows. It locks the
// account and then the balance. The account must be suspended: otherwise the money could be spent while Stripe is
// asked.
func (s *Store) planRefunds(ctx context.Context, accountID string) (open []refund, err error) {
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		a, err := accounts.Lock(ctx, tx, accountID)
		if err != nil {
			return err
		}
		if a.SuspendedUS == 0 {
			return apierr.InvalidRequest.Errorf("only a suspended account is refunded")
		}
		balance, err := store.LockBalance(ctx, tx, accountID)
		if err != nil {
			return err
		}
		payments, err := store.PaymentsOfAccount(ctx, tx, accountID, maxPayments)
		if err != nil {
			return err
		}
		if open, err = listOpenRefunds(ctx, tx, accountID); err != nil {
			return err
		}
		for _, r := range chooseRefunds(balance.AvailableMC, payments, open) {
			now := s.Now()
			r.ID, r.State, r.CreatedUS = id.New(refundPrefix, now), refundOpen, now.UnixMicro()
			r.NextUS = now.Add(refundRetry).UnixMicro()
			if err := insertRefund(ctx, tx, r); err != nil {
				return err
			}
			open = append(open, r)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("topups: plan refunds: %w", err)
	}
	return open, nil
}

// chooseRefunds returns the refunds, besides those that are open, by which an available balance goes back to the
// payments, newest first. An open refund of an operator's may or may not have left the balance already; it is counted
// as if it had not.
func chooseRefunds(available money.MC, payments []*rules.Payment, open []refund) (list []refund) {
	for _, r := range open {
		if r.byUser == 0 {
			available -= money.MC(r.Cents) * money.Cent
		}
	}
	for _, p := range payments {
		isOpen := slices.ContainsFunc(open, func(r refund) bool { return r.PaymentID == p.ID })
		if p.Status != rules.PaymentSettled || isDisputed(p) || isOpen {
			continue
		}
		cents := int64(min(available, p.AmountMC-p.ReversedMC) / money.Cent)
		if cents <= 0 {
			continue
		}
		list = append(list, refund{
			PaymentID:  p.ID,
			AccountID:  p.AccountID,
			Cents:      cents,
			TotalCents: int64(p.ReversedFor("refunded")/money.Cent) + cents,
		})
		available -= money.MC(cents) * money.Cent
	}
	return list
}

// finishRefund asks Stripe for a refund, unless Stripe has it already, and takes its amount from the balance.
func (s *Store) finishRefund(ctx context.Context, r refund) error {
	c, err := getCheckout(ctx, s.DB, r.PaymentID)
	if err != nil {
		return fmt.Errorf("topups: refund %s: %w", r.ID, err)
	}
	p, err := store.GetPayment(ctx, s.DB, r.PaymentID)
	if err != nil {
		return fmt.Errorf("topups: refund %s: %w", r.ID, err)
	}
	asked, err := s.findRefund(ctx, p.PaymentIntent, r.ID)
	if err == nil && asked == nil {
		asked, err = s.createRefund(ctx, p.PaymentIntent, r)
	}
	if e, ok := errors.AsType[*Refusal](err); ok {
		if r.byUser == 1 {
			return s.giveRefundBack(ctx, r, e.Text)
		}
		return s.recordRefusal(ctx, r, e.Text)
	} else if err != nil {
		s.Log.Error("refund not finished", "refund_id", r.ID, "topup_id", r.PaymentID, "error", err)
		s.Metrics.RaiseAlarm("refund_waits", "stripe")
		return retryLater("Stripe cannot be reached; repeat the command").WithCause(err)
	}
	if r.byUser == 1 {
		return s.followUserRefund(ctx, r, asked)
	}
	if asked.Status == stripe.RefundStatusFailed || asked.Status == stripe.RefundStatusCanceled {
		return s.recordRefusal(ctx, r, "the refund is "+string(asked.Status))
	}
	if err := s.reconcile(ctx, c, noChange); err != nil {
		return err
	}
	if p, err = store.GetPayment(ctx, s.DB, r.PaymentID); err != nil {
		return fmt.Errorf("topups: refund %s: %w", r.ID, err)
	}
	if p.ReversedFor("refunded") < money.MC(r.TotalCents)*money.Cent {
		return retryLater("Stripe has not carried out the refund yet; repeat the command later")
	}
	_, err = setRefundState(ctx, s.DB, r.ID, refundDone, "")
	return err
}

// recordRefusal ends a refund that Stripe refuses, and raises an alarm.
func (s *Store) recordRefusal(ctx context.Context, r refund, why string) error {
	s.Log.Error("refund refused", "refund_id", r.ID, "topup_id", r.PaymentID, "error", why)
	s.Metrics.RaiseAlarm("refund_refused", "stripe")
	if _, err := setRefundState(ctx, s.DB, r.ID, refundRefused, why); err != nil {
		return err
	}
	return apierr.InvalidRequest.Errorf("Stripe refuses to refund top-up %s: %s", r.PaymentID, why)
}

// findRefund returns the refund that Stripe has made for ours, or nil. Idempotency keys expire, this does not.
func (s *Store) findRefund(ctx context.Context, intent, refundID string) (*stripe.Refund, error) {
	for r, err := range s.client.V1Refunds.List(ctx, &stripe.RefundListParams{PaymentIntent: &intent}).All(ctx) {
		if err != nil {
			return nil, err
		}
		if r.Metadata["refund_id"] == refundID {
			return r, nil
		}
	}
	return nil, nil
}

// createRefund asks Stripe for a refund. The error is a *Refusal if Stripe will never make it.
func (s *Store) createRefund(ctx context.Context, intent string, r refund) (*stripe.Refund, error) {
	p := &stripe.RefundCreateParams{
		PaymentIntent: &intent,
		Amount:        &r.Cents,
		Metadata:      map[string]string{"refund_id": r.ID, "topup_id": r.PaymentID},
	}
	p.SetIdempotencyKey(r.ID)
	made, err := s.client.V1Refunds.Create(ctx, p)
	return made, AsRefusal(err)
}

// finishDueRefund finishes a refund that was left open by a crash or while Stripe was unreachable. It is a part of
// RunDue.
func (s *Store) finishDueRefund(ctx context.Context) (bool, error) {
	now := s.Now()
	r, err := claimDueRefund(ctx, s.DB, now.UnixMicro(), now.Add(refundRetry).UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("topups: due refund: %w", err)
	}
	if err := s.finishRefund(ctx, r); err != nil {
		s.Log.Error("refund not finished", "refund_id", r.ID, "error", err)
	}
	return true, nil
}

// ExpireUnpaid ends the checkouts of an account that were never paid, so that none can be paid from
// now on. One that was paid at this moment stays.
func (s *Store) ExpireUnpaid(ctx context.Context, accountID string) error {
	if !s.IsConfigured() {
		return nil
	}
	payments, err := store.PaymentsOfAccount(ctx, s.DB, accountID, maxPayments)
	if err != nil {
		return fmt.Errorf("topups: unpaid: %w", err)
	}
	for _, p := range payments {
		if p.Status != rules.PaymentPending || p.Paid() {
			continue
		}
		c, err := getCheckout(ctx, s.DB, p.ID)
		if errors.Is(err, sql.ErrNoRows) || err == nil && (c.automatic() || c.SessionID == "") {
			continue
		} else if err != nil {
			return fmt.Errorf("topups: unpaid: %w", err)
		}
		_, err = s.client.V1CheckoutSessions.Expire(ctx, c.SessionID, &stripe.CheckoutSessionExpireParams{})
		if _, ok := errors.AsType[*Refusal](AsRefusal(err)); err != nil && !ok {
			return retryLater("We can’t reach Stripe right now. Please try again in a minute.").WithCause(err)
		} // a refusal: the session has ended; its state is asked for now
		if err := s.reconcile(ctx, c, noChange); err != nil {
			return err
		}
	}
	return nil
}

// retryLater returns a 503 that names a minute in the header Retry-After.
func retryLater(message string) *apierr.Error {
	e := apierr.Unavailable.Errorf("%s", message)
	e.RetryAfter = time.Minute
	return e
}
