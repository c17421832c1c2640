package topups

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/people/mail"
)

// What one top-up may be.
const (
	MinCents = 5_00
	MaxCents = 1000_00
)

// Waits and lifetimes.
const (
	reconcileAfter    = time.Hour       // poll Stripe if no webhook arrived for this long
	claimTTL          = 5 * time.Minute // lease of a claimed checkout; failures are retried after it
	retryUnknownAfter = 24 * time.Hour  // until Stripe is asked again for an unknown session
	seenRetention     = 30 * 24 * time.Hour
)

// Store manages top-ups. It is safe for concurrent use by many nodes.
type Store struct {
	DB           *db.DB
	Ledger       *store.Writer
	Config       Config
	DashboardURL string // where people come back to
	Mails        *mail.Store
	Metrics      *metrics.Metrics
	Log          *slog.Logger
	Now          func() time.Time

	client *stripe.Client
}

// Configure makes s usable. It refuses a key without a secret for its events: with an
// empty one anybody could sign (F-64).
func (s *Store) Configure() error {
	c := s.Config
	switch {
	case c.Key == "" && c.WebhookSecret == "":
		return nil
	case c.Key == "":
		return errors.New("stripe.key: required with stripe.webhook_secret")
	case len(c.WebhookSecret) < 16 || !strings.HasPrefix(c.WebhookSecret, "whsec_"):
		return errors.New(
			"stripe.webhook_secret: required with stripe.key, the signing secret of the endpoint, whsec_…")
	}
	s.client = newClient(c)
	return nil
}

// IsConfigured says whether people can top up.
func (s *Store) IsConfigured() bool { return s.client != nil }

func (s *Store) receiptURL(topupID string) string { return s.DashboardURL + "/top-ups/" + topupID }

// startCheckout opens a checkout, or finds the one that the same form opened: it is one
// attempt however often it is sent. The row is there before Stripe is asked, so that
// a crash in between leaves an attempt that can be repeated, and nothing else.
//
// customer is Stripe's, who keeps the card; "" = nobody does.
func (s *Store) startCheckout(ctx context.Context, accountID, customer, token string,
	cents int64) (c checkout, err error) {
	now := s.Now()
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		c, err = insertCheckout(ctx, tx, checkout{
			order:     order{id.New(id.Payment, now), accountID, cents},
			NextUS:    now.Add(reconcileAfter).UnixMicro(),
			CreatedUS: now.UnixMicro(),
			SaveCard:  customer != "",
			Customer:  customer,
		}, token+":"+strconv.FormatInt(cents, 10))
		return err
	})
	if err != nil {
		return c, fmt.Errorf("topups: checkout: %w", err)
	}
	if c.SessionID != "" {
		return c, nil
	}
	session, err := s.createSession(ctx, c)
	if err != nil {
		return c, fmt.Errorf("topups: open: %w", err)
	}
	c.SessionID, c.URL = session.ID, session.URL
	return c, s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return s.openPayment(ctx, tx, c) })
}

// openPayment writes the pending row of a checkout (decision 023), once.
func (s *Store) openPayment(ctx context.Context, tx *db.Tx, c checkout) error {
	var err error
	if c.automatic() {
		err = setIntent(ctx, tx, c.ID, c.IntentID)
	} else {
		err = setSession(ctx, tx, c.ID, c.SessionID, c.URL)
	}
	if err != nil {
		return err
	}
	_, err = s.Ledger.DoTx(ctx, tx, rules.OpenPayment{
		PaymentID: c.ID,
		AccountID: c.AccountID,
		AmountMC:  money.MC(c.Cents) * money.Cent,
	})
	return err
}

// refused is what Stripe says that is not what was opened. It moved nothing.
type refused struct{ text string }

func (r *refused) Error() string { return "topups: refused: " + r.text }

// refuseTopUp tells the operator of it.
func (s *Store) refuseTopUp(topupID, text string) error {
	s.Log.Error("what Stripe says is not what was opened: nothing was moved", "topup_id", topupID, "why", text)
	s.Metrics.RaiseAlarm("payment_refused", "stripe")
	return &refused{text}
}

// reconcile asks Stripe how a checkout stands, and has the ledger follow. also runs in
// the transaction.
func (s *Store) reconcile(ctx context.Context, c checkout, also func(context.Context, *db.Tx) error) error {
	f, err := s.fetchFacts(ctx, c)
	if err != nil {
		return err
	}
	if wrong := f.findDifference(c, s.Config.isLive()); wrong != "" {
		return s.refuseTopUp(c.ID, wrong)
	}
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		plan, err := lockPlan(ctx, tx, c.AccountID) // before the balance, as begin does
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if err := s.openPayment(ctx, tx, c); err != nil {
			return err
		}
		p, fresh := rules.Payment{}, []rules.Command{}
		for _, command := range f.makeCommands(c.order, s.Now(), s.Config.Clearance) {
			r, err := s.Ledger.DoTx(ctx, tx, command)
			if err != nil {
				return err
			} else if r.Outcome == rules.Applied {
				fresh = append(fresh, command)
			}
			p = r.Payment
		}
		if err := setNext(ctx, tx, c.ID, nextReconcileUS(p, s.Now())); err != nil {
			return err
		}
		return errors.Join(s.applyFactsToPlan(ctx, tx, plan, c, f, fresh), also(ctx, tx))
	})
	if e, ok := errors.AsType[*apierr.Error](err); ok { // a rule of the money
		return s.refuseTopUp(c.ID, e.Message)
	}
	return err
}

// makeCommands are what follows from Stripe's answer. Each may be repeated, and finds
// what it has done; an answer that is older than one that was followed adds nothing.
func (f facts) makeCommands(o order, now time.Time, clearance time.Duration) (list []rules.Command) {
	list = append(list, rules.OpenPayment{
		PaymentID: o.ID,
		AccountID: o.AccountID,
		AmountMC:  money.MC(o.Cents) * money.Cent,
	})
	if why := f.failureReason(); why != "" {
		return append(list, rules.FailPayment{PaymentID: o.ID, Reason: why})
	} else if !f.isPaid() {
		return list
	}
	list = append(list, rules.MarkPaymentPaid{
		PaymentID:     o.ID,
		PaymentIntent: f.intent.ID,
		HoldUntilUS:   now.Add(clearance).UnixMicro(),
	})
	amount := money.MC(o.Cents) * money.Cent
	refunded := f.refundedMC()
	lost := min(f.lostMC(), amount-refunded)
	switch {
	case refunded+lost >= amount: // if it was not credited yet, it never will be
		list = append(list,
			rules.FailPayment{
				PaymentID: o.ID,
				Reason:    map[bool]string{true: "refunded", false: "dispute_lost"}[refunded >= lost],
			})
	case !f.isOpen():
		list = append(list, rules.SettlePayment{PaymentID: o.ID})
	}
	for _, d := range f.disputes {
		if isContested(d) {
			list = append(list, rules.DisputePayment{PaymentID: o.ID, DisputeID: d.ID})
		}
	}
	return append(list,
		rules.ReversePayment{PaymentID: o.ID, Reason: "refunded", TotalMC: refunded},
		rules.ReversePayment{PaymentID: o.ID, Reason: "dispute_lost", TotalMC: lost})
}

// nextReconcileUS is when to ask Stripe again; 0 = when an event says so.
func nextReconcileUS(p rules.Payment, now time.Time) int64 {
	switch {
	case p.Status != rules.PaymentPending:
		return 0
	case p.Paid() && p.HoldUntilUS > now.UnixMicro():
		return p.HoldUntilUS
	}
	return now.Add(reconcileAfter).UnixMicro()
}

// RunDue settles what has been cleared, asks for what nobody told us, and tops up
// balances that run low. Any node may do it: whatever it does is claimed first.
func (s *Store) RunDue(ctx context.Context) error {
	if !s.IsConfigured() {
		return nil
	}
	return errors.Join(s.reconcileDue(ctx), s.chargeLowBalances(ctx), s.detachRemovedCards(ctx))
}

func (s *Store) reconcileDue(ctx context.Context) error {
	for {
		now := s.Now()
		c, err := getNextDue(ctx, s.DB, now.UnixMicro())
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return fmt.Errorf("topups: due: %w", err)
		}
		mine, err := claimCheckout(ctx, s.DB, c.ID, c.NextUS, now.Add(claimTTL).UnixMicro())
		if err != nil {
			return fmt.Errorf("topups: claim: %w", err)
		} else if !mine {
			continue
		}
		if err := s.reconcileClaimed(ctx, c); err != nil {
			s.Log.Error("a top-up could not be settled, and is tried again", "topup_id", c.ID, "error", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (s *Store) reconcileClaimed(ctx context.Context, c checkout) (err error) {
	switch {
	case c.automatic():
		err = s.chargeAttempt(ctx, c)
	case c.SessionID == "": // Stripe's answer never came, so nobody was sent there
		return setNext(ctx, s.DB, c.ID, 0)
	default:
		err = s.reconcile(ctx, c, noChange)
	}
	if isUnknown(err) {
		return errors.Join(err, setNext(ctx, s.DB, c.ID, s.Now().Add(retryUnknownAfter).UnixMicro()))
	}
	return err
}

func noChange(context.Context, *db.Tx) error { return nil }

// Purge forgets events that Stripe no longer sends again.
func (s *Store) Purge(ctx context.Context) error {
	return deleteSeenBefore(ctx, s.DB, s.Now().Add(-seenRetention).UnixMicro())
}
