package topups

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/stripeapi"
)

// refundPrefix is that of the ids of refunds.
const refundPrefix = "rfd_"

// refundRetry is how long a job waits before it asks Stripe again about a new refund, and longestRefundRetry about any.
const refundRetry, longestRefundRetry = 5 * time.Minute, 6 * time.Hour

// retryRefund returns how long a job waits before it asks Stripe again about an open refund of an age: an eighth of it.
// Banks take days, disputes months, and Stripe's events tell what changes meanwhile.
func retryRefund(age time.Duration) time.Duration {
	return max(refundRetry, min(age/8, longestRefundRetry))
}

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
	isUnwanted               int64  // 1 = refused by its terms here, and not by Stripe
	Token                    string // of the form; "" = not by a user
}

type refundState string

const (
	refundOpen    refundState = "open"
	refundDone    refundState = "done"
	refundRefused refundState = "refused" // by Stripe or its terms; done again if Stripe has made it nevertheless
)

// RefundRest refunds what a suspended account has available to the payments that brought it, newest first, in whole
// cents. Amounts leave the balance as Stripe confirms them. What no payment can take back stays: goodwill credits,
// fractions of a cent, and payments that are disputed. It may be repeated, also after an error: refunds that are open
// are finished first. A refund that Stripe refuses is 400 invalid_request, and Stripe being unreachable is 503
// unavailable.
func (s *Store) RefundRest(ctx context.Context, accountID string) (refundedMC money.MC, err error) {
	for {
		open, err := s.planRefunds(ctx, accountID)
		if err != nil || len(open) == 0 {
			return refundedMC, err
		}
		if !s.IsConfigured() {
			return refundedMC, apierr.InvalidRequest.Errorf("stripe.key: required to refund a payment")
		}
		for _, r := range open { // when these have ended, more may be left of their payments
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
	}
}

// CheckNoRefund returns 400 invalid_request while a refund that an operator asked for is open: its amount is still in
// the balance, where it must not be spent. The caller has locked the account.
func (s *Store) CheckNoRefund(ctx context.Context, tx *db.Tx, accountID string) error {
	open, err := listOpenRefunds(ctx, tx, accountID)
	if err != nil {
		return fmt.Errorf("topups: open refunds: %w", err)
	}
	for _, r := range open {
		if r.byUser == 0 {
			return apierr.InvalidRequest.Errorf("a refund of %s of top-up %s has begun and has not ended. Repeat this "+
				"when it has", formatDollars(r.Cents), r.PaymentID)
		}
	}
	return nil
}

// SumUnrefundable returns how much of what an account has available its user paid, and no payment takes back: what is
// left of disputed payments, and of those whose card has refused a refund. The user has spent goodwill first.
func (s *Store) SumUnrefundable(ctx context.Context, q db.Queryer, b rules.Balance) (sum money.MC, err error) {
	payments, err := store.PaymentsOfAccount(ctx, q, b.AccountID, maxPayments)
	if err != nil {
		return 0, fmt.Errorf("topups: unrefundable: %w", err)
	}
	refused, err := listRefusedPayments(ctx, q, b.AccountID)
	if err != nil {
		return 0, fmt.Errorf("topups: unrefundable: %w", err)
	}
	disputed, err := sumContested(ctx, q, b.AccountID)
	if err != nil {
		return 0, fmt.Errorf("topups: unrefundable: %w", err)
	}
	for _, p := range payments {
		if p.Status == rules.PaymentSettled && (disputed[p.ID] > 0 || slices.Contains(refused, p.ID)) {
			sum += p.AmountMC - p.ReversedMC
		}
	}
	return max(min(sum, b.AvailableMC), 0), nil
}

// SumDisputed returns what open disputes would take of an account's balance if they were lost.
func (s *Store) SumDisputed(ctx context.Context, q db.Queryer, accountID string) (sum money.MC, err error) {
	payments, err := store.PaymentsOfAccount(ctx, q, accountID, maxPayments)
	if err != nil {
		return 0, fmt.Errorf("topups: disputed: %w", err)
	}
	disputed, err := sumContested(ctx, q, accountID)
	if err != nil {
		return 0, fmt.Errorf("topups: disputed: %w", err)
	}
	for _, p := range payments {
		sum += takenIfLost(p, disputed[p.ID])
	}
	return sum, nil
}

// takenIfLost returns what a payment's open disputes would take of the balance if they were lost: contested is what is
// in disputes that are open or lost.
func takenIfLost(p *rules.Payment, contested money.MC) money.MC {
	return max(min(contested-p.ReversedFor("dispute_lost"), p.AmountMC-p.ReversedMC), 0)
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
		if open, err = listOpenRefunds(ctx, tx, accountID); err != nil {
			return err
		}
		list, err := s.chooseRefunds(ctx, tx, balance, open)
		if err != nil {
			return err
		}
		for _, r := range list {
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

// chooseRefunds returns the refunds, besides those that are open, by which a balance goes back to the payments that
// brought it, newest first. An open refund of an operator's may or may not have left the balance already; it is counted
// as if it had not. What open disputes would take if they were lost stays.
func (s *Store) chooseRefunds(ctx context.Context, q db.Queryer, balance rules.Balance, open []refund) (
	list []refund, err error) {
	payments, err := store.PaymentsOfAccount(ctx, q, balance.AccountID, maxPayments)
	if err != nil {
		return nil, err
	}
	refused, err := listRefusedPayments(ctx, q, balance.AccountID)
	if err != nil {
		return nil, err
	}
	disputed, err := sumContested(ctx, q, balance.AccountID)
	if err != nil {
		return nil, err
	}
	available := balance.AvailableMC
	for _, r := range open {
		if r.byUser == 0 {
			available -= money.MC(r.Cents) * money.Cent
		}
	}
	for _, p := range payments {
		available -= takenIfLost(p, disputed[p.ID])
	}
	for _, p := range payments {
		isOpen := slices.ContainsFunc(open, func(r refund) bool { return r.PaymentID == p.ID })
		if p.Status != rules.PaymentSettled || disputed[p.ID] > 0 || isOpen || slices.Contains(refused, p.ID) {
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
	return list, nil
}

// finishRefund asks Stripe for a refund, unless Stripe has it already, and records what Stripe says of it.
func (s *Store) finishRefund(ctx context.Context, r refund) error {
	c, err := getCheckout(ctx, s.DB, r.PaymentID)
	if err != nil {
		return fmt.Errorf("topups: refund %s: %w", r.ID, err)
	}
	p, err := store.GetPayment(ctx, s.DB, r.PaymentID)
	if err != nil {
		return fmt.Errorf("topups: refund %s: %w", r.ID, err)
	}
	answer, err := s.askForRefund(ctx, r, c, p.PaymentIntent)
	switch {
	case errors.Is(err, stripeapi.ErrClaimed):
		return retryLater("Stripe is asked for this refund at this moment; repeat the command").WithCause(err)
	case err != nil:
		return retryLater("Stripe cannot be reached; repeat the command").WithCause(err)
	case answer.Outcome == stripeapi.Refused, answer.Outcome == stripeapi.Unwanted:
		if r.byUser == 0 {
			return refusedRefund(r, answer.Outcome == stripeapi.Unwanted, answer.Text)
		}
		return nil
	case answer.Outcome == stripeapi.Ours, answer.Outcome == stripeapi.Unknown:
		return retryLater("Stripe cannot be reached; repeat the command").WithCause(errors.New(answer.Text))
	case answer.Outcome == stripeapi.Postponed:
		return retryLater("The books are being compared with Stripe. Repeat the command later.").
			WithCause(errMoneyWaits)
	case answer.Outcome != stripeapi.Done:
		return retryLater("Stripe has not carried out the refund yet; repeat the command later").
			WithCause(errors.New(answer.Text))
	}
	if _, err := s.reconcile(ctx, c, noChange); err != nil {
		return err
	}
	switch r, err = getRefund(ctx, s.DB, r.ID); {
	case err != nil:
		return fmt.Errorf("topups: refund %s: %w", r.ID, err)
	case r.State == refundOpen:
		return retryLater("Stripe has not carried out the refund yet; repeat the command later")
	case r.State == refundRefused && r.byUser == 0:
		return refusedRefund(r, r.isUnwanted == 1, r.Error)
	}
	return nil
}

// hasLostDispute asks Stripe about a payment, and reports whether a dispute of it is lost and none is open.
func (s *Store) hasLostDispute(ctx context.Context, c checkout) (bool, error) {
	if _, err := s.reconcile(ctx, c, noChange); err != nil {
		return false, err
	}
	open, err := store.ListOpenDisputes(ctx, s.DB, c.AccountID)
	if err != nil {
		return false, fmt.Errorf("topups: disputes of %s: %w", c.ID, err)
	}
	contested, err := sumContested(ctx, s.DB, c.AccountID) // open, or lost
	if err != nil {
		return false, fmt.Errorf("topups: disputes of %s: %w", c.ID, err)
	}
	isOpen := slices.ContainsFunc(open, func(d rules.OpenDispute) bool { return d.PaymentID == c.ID })
	return contested[c.ID] > 0 && !isOpen, nil
}

// askForRefund asks Stripe for a refund, unless Stripe has it already. Unwanted is one of which less is left of the
// payment at Stripe, because others have refunded it meanwhile or it was lost in a dispute; and one whose amount the
// balance does not have now, besides what open disputes of the account would take if they were lost.
func (s *Store) askForRefund(ctx context.Context, r refund, c checkout, intent string) (a stripeapi.Answer, err error) {
	left, isEnded, why := int64(0), false, ""
	a, err = s.requests().Do(ctx, stripeapi.Request{
		Kind: stripeapi.Refund,
		ID:   r.ID,
		Find: func(ctx context.Context) (bool, error) {
			known, err := s.listRefunds(ctx, intent)
			if err != nil {
				return false, err
			}
			left = leftOf(c, known)
			if slices.ContainsFunc(known, func(k *stripe.Refund) bool { return k.Metadata["refund_id"] == r.ID }) {
				return true, nil
			}
			return false, s.noteUnknownRefunds(ctx, c, known)
		},
		Check: func(ctx context.Context) (stripeapi.Outcome, error) {
			now, err := getRefund(ctx, s.DB, r.ID)
			if isEnded = now.State != refundOpen; err != nil || isEnded {
				return stripeapi.Unwanted, err
			}
			if why = "less than the refund is left of the payment"; r.Cents > left {
				return stripeapi.Unwanted, nil
			}
			why = "the balance has less than the refund now, besides what open disputes would take"
			if exceeds, err := s.exceedsBalance(ctx, r); err != nil || exceeds {
				return stripeapi.Unwanted, err
			}
			if waits, err := MoneyWaits(ctx, s.DB); err != nil || waits {
				return stripeapi.Postponed, err
			}
			return stripeapi.Wanted, nil
		},
		Create: func(ctx context.Context, key string) error { return s.createRefund(ctx, intent, r, key) },
		Judge: func(ctx context.Context, a stripeapi.Answer) (stripeapi.Answer, error) {
			return s.judgeRefund(ctx, c, a)
		},
		End: func(ctx context.Context, a stripeapi.Answer, forget stripeapi.Forget) error {
			if a.Outcome == stripeapi.Done || isEnded {
				return s.DB.InTx(ctx, forget)
			}
			if a.Outcome == stripeapi.Unwanted {
				r.isUnwanted = 1
			}
			c.refusal = &refusal{r, cmp.Or(a.Text, why), forget}
			_, err := s.reconcile(ctx, c, noChange)
			return err
		},
	})
	switch {
	case isEnded: // by another node
		a.Outcome = stripeapi.Done
	case a.Outcome == stripeapi.Unwanted:
		a.Text = why
	}
	return a, err
}

// exceedsBalance reports whether a balance does not bear a refund now. An operator's is still in the balance, of which
// something may have been taken since it was planned. A user's has left it, and stays only if a dispute needs it.
func (s *Store) exceedsBalance(ctx context.Context, r refund) (exceeds bool, err error) {
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		balance, err := store.LockBalance(ctx, tx, r.AccountID)
		if err != nil {
			return err
		}
		disputed, err := s.SumDisputed(ctx, tx, r.AccountID)
		if err != nil {
			return err
		}
		rest := balance.AvailableMC - disputed
		if r.byUser == 1 {
			exceeds = disputed > 0 && rest < 0
			return nil
		}
		others, err := s.sumUnbookedRefunds(ctx, tx, r)
		exceeds = rest < money.MC(r.Cents)*money.Cent+others
		return err
	})
	if err != nil {
		return false, fmt.Errorf("topups: refund %s: %w", r.ID, err)
	}
	return exceeds, nil
}

// sumUnbookedRefunds returns the amounts of the operator's other open refunds of an account that have not left its
// balance yet.
func (s *Store) sumUnbookedRefunds(ctx context.Context, tx *db.Tx, r refund) (sum money.MC, err error) {
	open, err := listOpenRefunds(ctx, tx, r.AccountID)
	if err != nil {
		return 0, err
	}
	for _, o := range open {
		if o.byUser == 1 || o.ID == r.ID {
			continue
		}
		p, err := store.GetPayment(ctx, tx, o.PaymentID)
		if err != nil {
			return 0, err
		}
		if p.ReversedFor("refunded") < money.MC(o.TotalCents)*money.Cent {
			sum += money.MC(o.Cents) * money.Cent
		}
	}
	return sum, nil
}

// judgeRefund asks Stripe about the payment of a refund that was not made. A dispute that is not decided delays it; one
// that is lost ends it, if none is left that could still be won. A payment is never gone.
func (s *Store) judgeRefund(ctx context.Context, c checkout, a stripeapi.Answer) (stripeapi.Answer, error) {
	switch a.Outcome {
	case stripeapi.Gone:
		a.Outcome = stripeapi.Ours
	case stripeapi.NotNow:
		lost, err := s.hasLostDispute(ctx, c)
		if err != nil {
			return a, err
		} else if lost {
			a.Outcome = stripeapi.Refused
		}
	}
	return a, nil
}

// leftOf returns how many cents of a payment its refunds at Stripe have left.
func leftOf(c checkout, known []*stripe.Refund) int64 {
	left := c.Cents
	for _, r := range known {
		if !hasFailed(r) {
			left -= r.Amount
		}
	}
	return left
}

// followRefunds brings the refunds of a payment that were asked for here to what Stripe says of them, and returns those
// of its user that Stripe has carried out or may still carry out. One that had ended as refused, and that Stripe has
// made nevertheless, is open again until Stripe says that it is done: its amount leaves the balance again, and its user
// is told.
func (s *Store) followRefunds(ctx context.Context, tx *db.Tx, paymentID string, told []*stripe.Refund) (
	returns []refund, err error) {
	list, err := refundsOfPayment(ctx, tx, paymentID)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		t := refundNamed(told, r.ID)
		if t != nil && r.isUnwanted == 1 { // what ends it from now on is Stripe's answer
			r.isUnwanted = 0
			if err := clearUnwanted(ctx, tx, r.ID); err != nil {
				return nil, err
			}
		}
		switch {
		case t == nil:
		case hasFailed(t):
			err = s.setRefund(ctx, tx, &r, refundRefused, "the refund is "+string(t.Status),
				notReturnedEmail(r.Cents, s.DashboardURL))
		case r.State == refundRefused:
			s.Log.Error("a refused refund was made by stripe", "refund_id", r.ID, "topup_id", r.PaymentID)
			s.Metrics.RaiseAlarm("refund_reopened", "stripe")
			state := refundOpen
			if t.Status == stripe.Succeeded {
				state = refundDone
			}
			err = s.setRefund(ctx, tx, &r, state, "", returnedAfterAllEmail(r.Cents, state, s.DashboardURL))
		case t.Status == stripe.Succeeded:
			err = s.setRefund(ctx, tx, &r, refundDone, "", returnedEmail(r.Cents, s.DashboardURL))
		}
		if err != nil {
			return nil, err
		}
		if r.byUser == 1 && r.State != refundRefused {
			returns = append(returns, r)
		}
	}
	return returns, nil
}

// refundNamed returns what Stripe has made for a refund of ours, or nil. Of several it is one that has not failed.
func refundNamed(told []*stripe.Refund, refundID string) (found *stripe.Refund) {
	for _, t := range told {
		if t.Metadata["refund_id"] == refundID && (found == nil || hasFailed(found)) {
			found = t
		}
	}
	return found
}

// reportOwnWaits raises an alarm for refunds that Stripe does not send because our own balance there is too small.
func (s *Store) reportOwnWaits(c checkout, told []*stripe.Refund) {
	for _, t := range told {
		if t.Status == stripe.Pending && t.PendingReason == stripe.InsufficientFunds {
			s.Log.Error("a refund waits for our balance at stripe", "topup_id", c.ID, "refund", t.ID)
			s.Metrics.RaiseAlarm("refund_waits", "stripe")
		}
	}
}

// hasFailed reports whether a refund came back, or never left.
func hasFailed(r *stripe.Refund) bool {
	return r.Status == stripe.Failed || r.Status == stripe.Canceled
}

// setRefund records the state of a refund, once, and mails its user. One that Stripe or a bank has refused raises an
// alarm.
func (s *Store) setRefund(ctx context.Context, tx *db.Tx, r *refund, state refundState, why string,
	mail ui.Email) error {
	changed, err := setRefundState(ctx, tx, r.ID, state, r.isUnwanted, why)
	if err != nil || !changed {
		return err
	}
	if err := s.requests().End(ctx, tx, stripeapi.Refund, r.ID); err != nil {
		return err
	}
	r.State, r.Error = state, why
	if state == refundRefused && r.isUnwanted == 0 {
		s.Log.Error("refund refused", "refund_id", r.ID, "topup_id", r.PaymentID, "error", why)
		s.Metrics.RaiseAlarm("refund_refused", "stripe")
	}
	if r.byUser == 0 {
		return nil
	}
	return s.sendMail(ctx, tx, r.AccountID, mail)
}

// A refusal is a refund that Stripe refuses to make, or that is no longer wanted, and why. It is recorded in the
// transaction that books what Stripe says of its payment now, so that what a user asked for comes back to the payment
// together with what else is gone of it.
type refusal struct {
	refund refund
	why    string
	forget stripeapi.Forget
}

// endRefused ends a refund that was refused, unless Stripe has made it meanwhile. nil = none was.
func (s *Store) endRefused(ctx context.Context, tx *db.Tx, refused *refusal, told []*stripe.Refund) error {
	if refused == nil {
		return nil
	}
	r := refused.refund
	if refundNamed(told, r.ID) != nil {
		return nil
	}
	if err := refused.forget(ctx, tx); err != nil {
		return err
	}
	return s.setRefund(ctx, tx, &r, refundRefused, refused.why, notRefundableEmail(r.Cents, s.DashboardURL))
}

func refusedRefund(r refund, isUnwanted bool, why string) *apierr.Error {
	if isUnwanted {
		return apierr.InvalidRequest.Errorf("top-up %s is not refunded: %s", r.PaymentID, why)
	}
	return apierr.InvalidRequest.Errorf("Stripe refuses to refund top-up %s: %s", r.PaymentID, why)
}

// listRefunds returns the refunds of a payment as Stripe has them. Idempotency keys expire, this does not.
func (s *Store) listRefunds(ctx context.Context, intent string) (list []*stripe.Refund, err error) {
	for r, err := range stripe.List[stripe.Refund](ctx, s.client, stripe.Params{"payment_intent": intent}) {
		if err != nil {
			return nil, fmt.Errorf("topups: refunds of %s: %w", intent, err)
		}
		list = append(list, r)
	}
	return list, nil
}

// createRefund asks Stripe for a refund.
func (s *Store) createRefund(ctx context.Context, intent string, r refund, key string) error {
	_, err := stripe.Create[stripe.Refund](ctx, s.once, stripe.Params{
		"payment_intent":      intent,
		"amount":              strconv.FormatInt(r.Cents, 10),
		"metadata[refund_id]": r.ID,
		"metadata[topup_id]":  r.PaymentID,
	}, key)
	return err
}

// finishDueRefund finishes a refund that was left open by a crash or while Stripe was unreachable. It is a part of
// RunDue.
func (s *Store) finishDueRefund(ctx context.Context) (bool, error) {
	now := s.Now()
	r, err := claimDueRefund(ctx, s.DB, now)
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
		if err := s.expireSession(ctx, c.SessionID); err != nil {
			return retryLater("We can’t reach Stripe right now. Please try again in a minute.").WithCause(err)
		}
		if _, err := s.reconcile(ctx, c, noChange); err != nil {
			return err
		}
	}
	return nil
}

// expireSession ends a session. One that has ended already is no error; the caller fetches its state.
func (s *Store) expireSession(ctx context.Context, sessionID string) error {
	_, err := stripe.Act[stripe.CheckoutSession](ctx, s.client, sessionID, "expire", nil)
	if err == nil {
		return nil
	}
	session, failed := stripe.Get[stripe.CheckoutSession](ctx, s.client, sessionID, nil)
	if failed == nil && session.Status != stripe.SessionOpen {
		return nil
	}
	return fmt.Errorf("topups: expire %s: %w", sessionID, err)
}

// retryLater returns a 503 that names a minute in the header Retry-After.
func retryLater(message string) *apierr.Error {
	e := apierr.Unavailable.Errorf("%s", message)
	e.RetryAfter = time.Minute
	return e
}
