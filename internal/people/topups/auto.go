package topups

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/stripeapi"
)

// Bounds of a plan. A top-up adds at least the threshold, so that the balance is above it after one top-up.
const (
	MinBelowCents = 1_00
	MaxBelowCents = 500_00
	MaxAutoCents  = 500_00
	MaxMonthCents = 5000_00
)

const (
	maxFailures  = 3                // consecutive failures that turn automatic top-up off
	recheckDelay = 10 * time.Minute // while there is an obstacle
)

// failurePauses are the pauses after the first and the second failure.
var failurePauses = [maxFailures]time.Duration{1: time.Hour, 2: 24 * time.Hour}

// Reasons for turning automatic top-up off, in addition to the reasons of a failed attempt.
const (
	offReversed = "went_back" // a payment of the account was disputed or reversed
	offClosed   = "closed"
	stopped     = "stopped"   // an attempt was not charged, because its terms had changed
	cardGone    = "card_gone" // Stripe no longer has the card, or the customer; an attempt fails with it, too
	offRestored = "restored"  // the user may have turned it off since the time to which the database went back
)

// monthBounds returns the start and the end of the calendar month of a time (UTC).
func monthBounds(t time.Time) (from, to time.Time) {
	t = t.UTC()
	from = time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	return from, from.AddDate(0, 1, 0)
}

// chargeLowBalances returns a part of RunDue that starts an attempt for an account below its threshold. A periodic
// query finds them, so that calls need not check.
func (s *Store) chargeLowBalances() part {
	var list []string
	listed := false
	return func(ctx context.Context) (bool, error) {
		if !listed {
			waits, err := MoneyWaits(ctx, s.DB)
			if err != nil || waits {
				return false, err
			}
			if list, err = listLowAccounts(ctx, s.DB, s.Now().UnixMicro()); err != nil {
				return false, fmt.Errorf("topups: low balances: %w", err)
			}
			listed = true
		}
		if len(list) == 0 {
			return false, nil
		}
		accountID := list[0]
		list = list[1:]
		c, err := s.beginAttempt(ctx, accountID)
		if err == nil && c.ID != "" {
			err = s.chargeAttempt(ctx, c, true)
		}
		if err != nil {
			s.Log.Error("automatic top-up not completed", "account_id", accountID, "topup_id", c.ID, "error", err)
		}
		return true, nil
	}
}

// beginAttempt records an attempt with its use of the month, and opens its payment, if the plan needs one now. It locks
// the plan, so that of concurrent calls only one finds a low balance and no open attempt. The
// attempt is claimed for the caller.
func (s *Store) beginAttempt(ctx context.Context, accountID string) (c checkout, err error) {
	now := s.Now()
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		c = checkout{}
		p, err := lockPlan(ctx, tx, accountID)
		if err != nil || !p.On || p.NextUS > now.UnixMicro() {
			return err
		}
		b, err := store.GetBalance(ctx, tx, accountID)
		if err != nil || b.AvailableMC >= money.MC(p.Below)*money.Cent {
			return err
		}
		from, _ := monthBounds(now)
		n, used, underWay, err := getMonthUse(ctx, tx, accountID, from.UnixMicro())
		if err != nil || underWay {
			return err
		}
		o, err := s.findObstacle(ctx, tx, p, b.AvailableMC, used, now)
		switch {
		case err != nil:
			return err
		case o.why == offClosed:
			return turnOff(ctx, tx, accountID, offClosed)
		case o.why == "month":
			err = s.reportMonthFull(ctx, tx, p, used, now)
			return errors.Join(err, setFailures(ctx, tx, accountID, p.Failures, o.until.UnixMicro()))
		case o.why != "":
			return setFailures(ctx, tx, accountID, p.Failures, o.until.UnixMicro())
		}
		c = checkout{
			order:     order{ID: id.New(id.Payment, now), AccountID: accountID, Cents: p.Add},
			NextUS:    now.Add(claimTTL).UnixMicro(),
			CreatedUS: now.UnixMicro(),
			Customer:  p.Customer,
			attempt: attempt{
				N:             n + 1,
				MonthUS:       from.UnixMicro(),
				MostCents:     p.Most,
				PaymentMethod: p.PaymentMethod,
			},
		}
		if err := insertAttempt(ctx, tx, c, "auto:"+strconv.FormatInt(c.N, 10)); err != nil {
			return err
		}
		return s.openPayment(ctx, tx, c)
	})
	if err != nil {
		return checkout{}, fmt.Errorf("topups: attempt: %w", err)
	}
	return c, nil
}

// An obstacle delays an attempt until a time.
type obstacle struct {
	why   string // closed, suspended, below-zero, frozen, disputed, clearing, month or ""
	until time.Time
}

// findObstacle returns the obstacle of an attempt. A frozen connection, an open dispute and a negative balance are
// obstacles, because the user must review them before the card is charged.
func (s *Store) findObstacle(ctx context.Context, q db.Queryer, p plan, available money.MC, usedCents int64,
	now time.Time) (obstacle, error) {
	a, err := accounts.GetAccount(ctx, q, p.AccountID)
	if err != nil {
		return obstacle{}, err
	}
	paused, err := hasFrozenConnection(ctx, q, p.AccountID)
	if err != nil {
		return obstacle{}, err
	}
	disputes, err := store.ListOpenDisputes(ctx, q, p.AccountID)
	if err != nil {
		return obstacle{}, err
	}
	coming, err := sumClearing(ctx, q, p.AccountID)
	if err != nil {
		return obstacle{}, err
	}
	_, end := monthBounds(now)
	switch soon := now.Add(recheckDelay); {
	case a.SuspendedUS > 0 && !a.Closed:
		return obstacle{"suspended", soon}, nil
	case a.Sandbox || a.Deactivated || a.Unconfirmed:
		return obstacle{offClosed, soon}, nil
	case available < 0: // a payment was reversed after it was spent
		return obstacle{"below-zero", soon}, nil
	case paused:
		return obstacle{"frozen", soon}, nil
	case len(disputes) > 0:
		return obstacle{"disputed", soon}, nil
	case coming > 0 && available+coming >= money.MC(p.Below)*money.Cent:
		return obstacle{"clearing", soon}, nil
	case usedCents+p.Add > p.Most:
		return obstacle{"month", end}, nil
	}
	return obstacle{}, nil
}

// reportMonthFull emails the user that the monthly maximum is used up, one time per month, even if
// the user raises it and uses it up again.
func (s *Store) reportMonthFull(ctx context.Context, tx *db.Tx, p plan, usedCents int64, now time.Time) error {
	month, next := monthBounds(now)
	first, err := markFull(ctx, tx, p.AccountID, month.UnixMicro())
	if err != nil || !first {
		return err
	}
	return s.sendMail(ctx, tx, p.AccountID, s.monthlyMaximumEmail(p, usedCents, next))
}

// chargeAttempt charges the card of an attempt, or finds the charge, and reconciles it. The holder of the claim may
// repeat it. isFirst says that the attempt was recorded just now.
func (s *Store) chargeAttempt(ctx context.Context, c checkout, isFirst bool) error {
	if c.IntentID == "" {
		intent, err := s.createOrFindIntent(ctx, c, isFirst)
		if err != nil || intent == nil { // nil: it has ended
			return err
		}
		if c, err = getCheckout(ctx, s.DB, c.ID); err != nil {
			return fmt.Errorf("topups: attempt: %w", err)
		}
		if c.IntentID != intent.ID { // another node has made another one
			if hasMoney(intent) {
				_, err = s.bookIntent(ctx, intent)
			}
			return err
		}
	}
	f, err := s.fetchFacts(ctx, c)
	if err != nil {
		return err
	}
	if f.isStuck() { // the user is not present, and the payment must not succeed later
		if err := s.cancelIntent(ctx, f.intent); err != nil {
			return err
		}
	}
	_, err = s.reconcile(ctx, c, noChange)
	return err
}

// createOrFindIntent returns the payment intent of an attempt. If there will be none, it fails the attempt and returns
// nil.
func (s *Store) createOrFindIntent(ctx context.Context, c checkout, isFirst bool) (intent *stripe.PaymentIntent,
	err error) {
	waits := false
	answer, err := s.requests().Do(ctx, stripeapi.Request{
		Kind: stripeapi.Charge,
		ID:   c.ID,
		Find: func(ctx context.Context) (_ bool, err error) {
			if !isFirst {
				if intent, err = s.getIntent(ctx, c); err != nil || intent != nil {
					return intent != nil, err
				}
			}
			err = s.checkBeforeCharge(ctx, c)
			if waits = errors.Is(err, errMoneyWaits); waits {
				return false, nil
			}
			return false, err
		},
		Check: func(ctx context.Context) (stripeapi.Outcome, error) {
			terms, err := s.checkTerms(ctx, c)
			if waits && err == nil && terms == stripeapi.Wanted {
				terms = stripeapi.Postponed
			}
			return terms, err
		},
		Create: func(ctx context.Context, key string) (err error) {
			intent, err = s.createIntent(ctx, c, key)
			return err
		},
		Judge: func(ctx context.Context, a stripeapi.Answer) (stripeapi.Answer, error) {
			return s.judgeCharge(ctx, c, a)
		},
		End: func(ctx context.Context, a stripeapi.Answer, forget stripeapi.Forget) error {
			return s.endCharge(ctx, c, intent, a, forget)
		},
	})
	if err != nil {
		return nil, err
	}
	switch answer.Outcome {
	case stripeapi.Done:
		return intent, nil
	case stripeapi.Unwanted, stripeapi.Gone, stripeapi.Refused:
		return nil, nil
	case stripeapi.Postponed:
		return nil, errMoneyWaits
	}
	return nil, fmt.Errorf("topups: charge of %s: %s: %s", c.ID, answer.Outcome, answer.Text)
}

// judgeCharge asks Stripe about the card of a charge that was not made: Stripe has no code for a card that it no longer
// keeps. What another account of ours at Stripe does not have is not gone.
func (s *Store) judgeCharge(ctx context.Context, c checkout, a stripeapi.Answer) (stripeapi.Answer, error) {
	switch a.Outcome {
	case stripeapi.Gone:
		return a, s.account.Check(ctx)
	case stripeapi.Ours:
		if kept, err := s.isCardKept(ctx, c.PaymentMethod); err != nil || kept {
			return a, err
		}
		a.Outcome, a.Missing = stripeapi.Gone, stripeapi.MissingCard
	}
	return a, nil
}

// endCharge records how the request for a charge has ended. The payment that Stripe has is known from now on.
func (s *Store) endCharge(ctx context.Context, c checkout, intent *stripe.PaymentIntent, a stripeapi.Answer,
	forget stripeapi.Forget) error {
	switch a.Outcome {
	case stripeapi.Done:
		return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			return errors.Join(setIntent(ctx, tx, c.ID, intent.ID), forget(ctx, tx))
		})
	case stripeapi.Gone:
		return s.forgetGone(ctx, c, a.Missing, forget)
	case stripeapi.Refused:
		s.Log.Error("automatic top-up refused by stripe", "topup_id", c.ID, "answer", a.Text)
		s.Metrics.RaiseAlarm("charge_refused", "stripe")
		return s.failAttempt(ctx, c, "payment_failed", noChange, forget)
	}
	return s.failAttempt(ctx, c, stopped, noChange, forget)
}

// checkTerms says whether an attempt is still to be charged.
func (s *Store) checkTerms(ctx context.Context, c checkout) (stripeapi.Outcome, error) {
	wanted, err := s.isStillWanted(ctx, c)
	if err != nil || !wanted {
		return stripeapi.Unwanted, err
	}
	return stripeapi.Wanted, nil
}

// isStillWanted reports whether an attempt that may be uncharged is still to be charged. Hours may have passed while
// Stripe could not be reached, so it reads all terms again: the plan with its card and amount, the balance, the month
// that the attempt counts for, and the obstacles.
func (s *Store) isStillWanted(ctx context.Context, c checkout) (bool, error) {
	payment, err := store.GetPayment(ctx, s.DB, c.ID)
	if err != nil || payment.Status != rules.PaymentPending { // another node has ended it
		return false, err
	}
	p, err := getPlan(ctx, s.DB, c.AccountID)
	if errors.Is(err, sql.ErrNoRows) { // the account was closed
		return false, nil
	} else if err != nil || !p.On || p.PaymentMethod != c.PaymentMethod || p.Add != c.Cents {
		return false, err
	}
	now := s.Now()
	month, _ := monthBounds(now)
	b, err := store.GetBalance(ctx, s.DB, c.AccountID)
	if err != nil || b.AvailableMC >= money.MC(p.Below)*money.Cent || month.UnixMicro() != c.MonthUS {
		return false, err
	}
	_, used, _, err := getMonthUse(ctx, s.DB, c.AccountID, c.MonthUS)
	if err != nil {
		return false, err
	}
	o, err := s.findObstacle(ctx, s.DB, p, b.AvailableMC, used-c.Cents, now) // used includes the attempt
	return o.why == "", err
}

// failAttempt fails an attempt for which Stripe has no payment, unless it has ended, or an event has brought the
// payment in the meantime. also runs in the transaction that fails it, and forget in any case.
func (s *Store) failAttempt(ctx context.Context, c checkout, why string,
	also func(context.Context, *db.Tx) error, forget stripeapi.Forget) error {
	return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		p, err := lockPlan(ctx, tx, c.AccountID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) { // closing the account deleted it
			return err
		}
		now, err := getCheckout(ctx, tx, c.ID)
		if err != nil {
			return err
		} else if now.IntentID != "" {
			return forget(ctx, tx)
		}
		command := rules.FailPayment{PaymentID: c.ID, Reason: why}
		r, err := s.Ledger.DoTx(ctx, tx, command)
		if err != nil {
			return err
		} else if r.Outcome == rules.Applied {
			err = errors.Join(setNext(ctx, tx, c.ID, 0),
				s.applyFactsToPlan(ctx, tx, p, c, facts{}, []rules.Command{command}), also(ctx, tx))
		}
		return errors.Join(err, forget(ctx, tx))
	})
}

// forgetGone fails an attempt whose card Stripe no longer has, forgets the card, and with it a customer that Stripe no
// longer has, and tells the user. A card that the user has saved meanwhile stays.
func (s *Store) forgetGone(ctx context.Context, c checkout, missing string, forget stripeapi.Forget) error {
	s.Log.Error("saved card is gone at stripe", "account_id", c.AccountID, "topup_id", c.ID, "missing", missing)
	s.Metrics.RaiseAlarm("card_gone", "stripe")
	return s.failAttempt(ctx, c, cardGone, func(ctx context.Context, tx *db.Tx) error {
		p, err := lockPlan(ctx, tx, c.AccountID)
		if errors.Is(err, sql.ErrNoRows) || err == nil && p.PaymentMethod != c.PaymentMethod {
			return nil
		} else if err != nil {
			return err
		}
		return s.forgetCard(ctx, tx, p, c.Customer, missing)
	}, forget)
}

// forgetCard forgets the card of a plan, and the customer if that is missing, and tells a user whose automatic top-up
// was on. The plan is locked.
func (s *Store) forgetCard(ctx context.Context, tx *db.Tx, p plan, customer, missing string) error {
	if missing == stripeapi.MissingCustomer && p.Customer == customer {
		err := errors.Join(clearCustomer(ctx, tx, p.AccountID, customer),
			s.requests().Renew(ctx, tx, stripeapi.Customer, p.AccountID))
		if err != nil {
			return err
		}
	}
	if p.PaymentMethod == "" {
		return nil
	}
	err := setCard(ctx, tx, p, "", "", "", "")
	if err != nil || !p.On {
		return err
	}
	return errors.Join(turnOff(ctx, tx, p.AccountID, cardGone), s.sendMail(ctx, tx, p.AccountID, s.cardGoneEmail(p)))
}

// applyFactsToPlan updates the plan of an account after changes of a payment. It runs in the transaction that records
// them, so that each takes effect one time. p is locked; it is empty if the account has no plan, or none any more.
func (s *Store) applyFactsToPlan(ctx context.Context, tx *db.Tx, p plan, c checkout, f facts,
	applied []rules.Command) error {
	if p.AccountID == "" {
		return nil
	}
	for _, n := range applied {
		var err error
		switch n := n.(type) {
		case rules.MarkPaymentPaid:
			if c.SaveCard {
				err = s.saveCard(ctx, tx, p, f)
			}
			if c.automatic() {
				err = errors.Join(err, setFailures(ctx, tx, p.AccountID, 0, 0))
			}
			if c.automatic() && c.NamedID == "" {
				err = errors.Join(err, s.sendMail(ctx, tx, p.AccountID, s.chargedEmail(p, c)))
			}
		case rules.FailPayment:
			if n.Reason == "refunded" || n.Reason == "dispute_lost" {
				err = s.turnOffAfterReversal(ctx, tx, &p)
			} else if c.automatic() {
				err = s.countFailure(ctx, tx, p, n.Reason, f)
			}
		case rules.DisputePayment, rules.ReversePayment:
			err = s.turnOffAfterReversal(ctx, tx, &p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// turnOffAfterReversal turns automatic top-up off after a refund or dispute of the user.
func (s *Store) turnOffAfterReversal(ctx context.Context, tx *db.Tx, p *plan) error {
	if !p.On {
		return nil
	}
	p.On = false
	return errors.Join(turnOff(ctx, tx, p.AccountID, offReversed),
		s.sendMail(ctx, tx, p.AccountID, s.turnedOffEmail(*p, offReversed)))
}

// countFailure sets a longer pause after each failure, and turns automatic top-up off after the third. What failed
// before the bank was asked does not count.
func (s *Store) countFailure(ctx context.Context, tx *db.Tx, p plan, why string, f facts) error {
	switch {
	case why == stopped && f.intent != nil: // Stripe began the payment: it may stop as early again
		return setFailures(ctx, tx, p.AccountID, p.Failures, s.Now().Add(recheckDelay).UnixMicro())
	case why == stopped, why == cardGone:
		return nil
	}
	p.Failures++
	if p.Failures < maxFailures {
		return setFailures(ctx, tx, p.AccountID, p.Failures, s.Now().Add(failurePauses[p.Failures]).UnixMicro())
	}
	err := setFailures(ctx, tx, p.AccountID, p.Failures, 0)
	if !p.On {
		return err
	}
	return errors.Join(err, turnOff(ctx, tx, p.AccountID, why),
		s.sendMail(ctx, tx, p.AccountID, s.turnedOffEmail(p, why)))
}

// saveCard saves the card of a payment, as the user agreed. If the user has removed the card since, or has paid by
// another one that is saved, that holds: then the older card is removed at Stripe. Stripe's times are in seconds.
func (s *Store) saveCard(ctx context.Context, tx *db.Tx, p plan, f facts) error {
	intent := f.intent
	m := intent.PaymentMethod
	if m == nil || m.Card == nil || intent.Customer == nil || intent.Customer.ID != p.Customer {
		s.Log.Error("saved card missing", "account_id", p.AccountID, "payment_intent", intent.ID)
		return nil // the payment must still be recorded
	}
	if charge := f.latestCharge(); charge != nil {
		if charge.Created < p.CardUS/1e6 && m.ID != p.PaymentMethod {
			return queueCardRemoval(ctx, tx, m.ID)
		}
		p.CardUS = charge.Created * 1e6
	}
	return setCard(ctx, tx, p, m.ID, brandName(m.Card.Brand), m.Card.Last4,
		fmt.Sprintf("%02d/%d", m.Card.ExpMonth, m.Card.ExpYear))
}

// ensureCustomer returns the Stripe customer of an account and creates it the first time.
func (s *Store) ensureCustomer(ctx context.Context, accountID string) (string, error) {
	if err := insertPlan(ctx, s.DB, accountID); err != nil {
		return "", fmt.Errorf("topups: plan: %w", err)
	}
	p, err := getPlan(ctx, s.DB, accountID)
	if err != nil {
		return "", fmt.Errorf("topups: plan: %w", err)
	}
	if p.Customer == "" {
		made := ""
		err := s.requests().Make(ctx, stripeapi.Customer, accountID, "customer:", func(key string) (err error) {
			made, err = s.createCustomer(ctx, accountID, key)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("topups: customer: %w", err)
		}
		if err := setCustomer(ctx, s.DB, accountID, made); err != nil {
			return "", fmt.Errorf("topups: customer: %w", err)
		}
		if p, err = getPlan(ctx, s.DB, accountID); err != nil {
			return "", fmt.Errorf("topups: plan: %w", err)
		}
	}
	return p.Customer, nil
}

// replaceCustomer forgets the customer of a checkout, which Stripe no longer has, and makes another one. Stripe has
// opened no session of the checkout.
func (s *Store) replaceCustomer(ctx context.Context, c *checkout) error {
	if err := s.account.Check(ctx); err != nil {
		return err
	}
	err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		p, err := lockPlan(ctx, tx, c.AccountID)
		if errors.Is(err, sql.ErrNoRows) || err == nil && p.Customer != c.Customer {
			return nil
		} else if err != nil {
			return err
		}
		return s.forgetCard(ctx, tx, p, c.Customer, stripeapi.MissingCustomer)
	})
	if err != nil {
		return fmt.Errorf("topups: customer: %w", err)
	}
	s.Log.Error("customer is gone at stripe", "account_id", c.AccountID, "customer", c.Customer)
	s.Metrics.RaiseAlarm("card_gone", "stripe")
	if c.Customer, err = s.ensureCustomer(ctx, c.AccountID); err != nil {
		return err
	}
	if err := setCheckoutCustomer(ctx, s.DB, c.ID, c.Customer); err != nil {
		return fmt.Errorf("topups: customer: %w", err)
	}
	return nil
}

// removeCard removes the card of an account, which also turns automatic top-up off.
func (s *Store) removeCard(ctx context.Context, accountID string) error {
	return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		p, err := lockPlan(ctx, tx, accountID)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		p.CardUS = s.Now().UnixMicro()
		return setCard(ctx, tx, p, "", "", "", "")
	})
}

// Auto is an account's plan for automatic top-up in the user's data export.
type Auto struct {
	On        bool     `json:"on"`
	AgreedAt  string   `json:"agreed_at,omitempty"`
	OffReason string   `json:"switched_off_because,omitempty"`
	BelowMC   money.MC `json:"below_mc"`
	AddMC     money.MC `json:"add_mc"`
	MostMC    money.MC `json:"most_in_a_month_mc"`
	Card      string   `json:"card,omitempty"`
	Expires   string   `json:"card_expires,omitempty"`
	Customer  string   `json:"stripe_customer,omitempty"`
}

// GetAuto returns the plan of an account, and false if it has none.
func (s *Store) GetAuto(ctx context.Context, accountID string) (Auto, bool, error) {
	p, err := getPlan(ctx, s.DB, accountID)
	if errors.Is(err, sql.ErrNoRows) {
		return Auto{}, false, nil
	} else if err != nil {
		return Auto{}, false, fmt.Errorf("topups: plan: %w", err)
	}
	a := Auto{
		On:        p.On,
		OffReason: p.OffReason,
		BelowMC:   money.MC(p.Below) * money.Cent,
		AddMC:     money.MC(p.Add) * money.Cent,
		MostMC:    money.MC(p.Most) * money.Cent,
		Expires:   p.Expires,
		Customer:  p.Customer,
	}
	if p.Since > 0 {
		a.AgreedAt = timestamp.Format(p.Since)
	}
	if p.PaymentMethod != "" {
		a.Card = p.card()
	}
	return a, true, nil
}

// DeletePlan deletes the plan of an account in the transaction that closes the account. A job then detaches the card at
// Stripe, and deletes the customer.
func (s *Store) DeletePlan(ctx context.Context, tx *db.Tx, accountID string) error {
	p, err := lockPlan(ctx, tx, accountID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	} else if err == nil {
		err = errors.Join(setCard(ctx, tx, p, "", "", "", ""), deletePlan(ctx, tx, accountID))
	}
	if err == nil && p.Customer != "" {
		err = queueCustomerRemoval(ctx, tx, p.Customer)
	}
	if err != nil {
		return fmt.Errorf("topups: erase: %w", err)
	}
	return nil
}

// detachRemovedCard deletes a removed card at Stripe. It is a part of RunDue.
func (s *Store) detachRemovedCard(ctx context.Context) (bool, error) {
	paymentMethod, err := claimDueRemoval(ctx, s.DB, s.Now())
	if err != nil || paymentMethod == "" {
		return false, err
	}
	if err := s.detachCard(ctx, paymentMethod); err != nil {
		s.Log.Error("removed card not detached", "error", err)
		return true, markRemovalFailing(ctx, s.DB, paymentMethod, s.Now().UnixMicro())
	}
	return true, deleteRemoval(ctx, s.DB, paymentMethod)
}

// deleteRemovedCustomer deletes a customer of a closed account at Stripe. It is a part of RunDue.
func (s *Store) deleteRemovedCustomer(ctx context.Context) (bool, error) {
	customer, err := claimDueCustomer(ctx, s.DB, s.Now())
	if err != nil || customer == "" {
		return false, err
	}
	if err := s.deleteCustomer(ctx, customer); err != nil {
		s.Log.Error("customer not deleted", "error", err)
		return true, markCustomerFailing(ctx, s.DB, customer, s.Now().UnixMicro())
	}
	return true, deleteCustomerRemoval(ctx, s.DB, customer)
}
