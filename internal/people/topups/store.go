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

// How long things wait.
const (
	askAfter = time.Hour       // nobody told us of an open session for that long: ask
	retry    = 5 * time.Minute // a claimed checkout is its claimer's; what failed is tried again
	giveUp   = 24 * time.Hour  // before Stripe is asked again for what it does not know
	keepSeen = 30 * 24 * time.Hour
)

// Store takes money in. Its methods may be called by many nodes at once.
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

// Open makes s usable. It refuses a key without a secret for its events: with an
// empty one anybody could sign (reliability F-64).
func (s *Store) Open() error {
	c := s.Config
	switch {
	case c.Key == "" && c.WebhookSecret == "":
		return nil
	case c.Key == "":
		return errors.New("stripe.key: required with stripe.webhook_secret")
	case len(c.WebhookSecret) < 16 || !strings.HasPrefix(c.WebhookSecret, "whsec_"):
		return errors.New("stripe.webhook_secret: required with stripe.key, the signing secret of the endpoint, whsec_…")
	}
	s.client = newClient(c)
	return nil
}

// Usable says whether people can top up.
func (s *Store) Usable() bool { return s.client != nil }

func (s *Store) receiptURL(topupID string) string { return s.DashboardURL + "/top-ups/" + topupID }

// start opens a checkout, or finds the one that the same form opened: it is one
// attempt however often it is sent. The row is there before Stripe is asked, so that
// a crash in between leaves an attempt that can be repeated, and nothing else.
//
// customer is Stripe's, who keeps the card; "" = nobody does.
func (s *Store) start(ctx context.Context, accountID, customer, token string, cents int64) (c checkout, err error) {
	now := s.Now()
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		c, err = insert(ctx, tx, checkout{
			order: order{id.New(id.Payment, now), accountID, cents}, NextUS: now.Add(askAfter).UnixMicro(), CreatedUS: now.UnixMicro(), SaveCard: customer != "", Customer: customer,
		}, token+":"+strconv.FormatInt(cents, 10))
		return err
	})
	if err != nil {
		return c, fmt.Errorf("topups: checkout: %w", err)
	}
	if c.SessionID != "" {
		return c, nil
	}
	session, err := s.session(ctx, c)
	if err != nil {
		return c, fmt.Errorf("topups: open: %w", err)
	}
	c.SessionID, c.URL = session.ID, session.URL
	return c, s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return s.open(ctx, tx, c) })
}

// open writes the pending row of a checkout (decisions, Money), once.
func (s *Store) open(ctx context.Context, tx *db.Tx, c checkout) error {
	var err error
	if c.automatic() {
		err = setIntent(ctx, tx, c.ID, c.IntentID)
	} else {
		err = setSession(ctx, tx, c.ID, c.SessionID, c.URL)
	}
	if err != nil {
		return err
	}
	_, err = s.Ledger.DoTx(ctx, tx, rules.OpenPayment{PaymentID: c.ID, AccountID: c.AccountID, AmountMC: money.MC(c.Cents) * money.Cent})
	return err
}

// refused is what Stripe says that is not what was opened. It moved nothing.
type refused struct{ text string }

func (r *refused) Error() string { return "topups: refused: " + r.text }

// refuse tells the operator of it.
func (s *Store) refuse(topupID, text string) error {
	s.Log.Error("what Stripe says is not what was opened: nothing was moved", "topup_id", topupID, "why", text)
	s.Metrics.Alarm("payment_refused", "stripe")
	return &refused{text}
}

// follow asks Stripe how a checkout stands, and has the ledger follow. also runs in
// the transaction.
func (s *Store) follow(ctx context.Context, c checkout, also func(context.Context, *db.Tx) error) error {
	f, err := s.ask(ctx, c)
	if err != nil {
		return err
	}
	if wrong := f.differs(c, s.Config.live()); wrong != "" {
		return s.refuse(c.ID, wrong)
	}
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		plan, err := lockPlan(ctx, tx, c.AccountID) // before the balance, as begin does
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if err := s.open(ctx, tx, c); err != nil {
			return err
		}
		p, fresh := rules.Payment{}, []rules.Command{}
		for _, command := range f.commands(c.order, s.Now(), s.Config.Clearance) {
			r, err := s.Ledger.DoTx(ctx, tx, command)
			if err != nil {
				return err
			} else if r.Outcome == rules.Applied {
				fresh = append(fresh, command)
			}
			p = r.Payment
		}
		if err := setNext(ctx, tx, c.ID, next(p, s.Now())); err != nil {
			return err
		}
		return errors.Join(s.learn(ctx, tx, plan, c, f, fresh), also(ctx, tx))
	})
	if e, ok := errors.AsType[*apierr.Error](err); ok { // a rule of the money
		return s.refuse(c.ID, e.Message)
	}
	return err
}

// commands are what follows from Stripe's answer. Each may be repeated, and finds
// what it has done; an answer that is older than one that was followed adds nothing.
func (f facts) commands(o order, now time.Time, clearance time.Duration) (list []rules.Command) {
	list = append(list, rules.OpenPayment{PaymentID: o.ID, AccountID: o.AccountID, AmountMC: money.MC(o.Cents) * money.Cent})
	if why := f.failed(); why != "" {
		return append(list, rules.FailPayment{PaymentID: o.ID, Reason: why})
	} else if !f.paid() {
		return list
	}
	list = append(list, rules.MarkPaymentPaid{PaymentID: o.ID, PaymentIntent: f.intent.ID, HoldUntilUS: now.Add(clearance).UnixMicro()})
	amount := money.MC(o.Cents) * money.Cent
	refunded := f.refundedMC()
	lost := min(f.lostMC(), amount-refunded)
	switch {
	case refunded+lost >= amount: // if it was not credited yet, it never will be
		list = append(list, rules.FailPayment{PaymentID: o.ID, Reason: map[bool]string{true: "refunded", false: "dispute_lost"}[refunded >= lost]})
	case !f.open():
		list = append(list, rules.SettlePayment{PaymentID: o.ID})
	}
	for _, d := range f.disputes {
		if contested(d) {
			list = append(list, rules.DisputePayment{PaymentID: o.ID, DisputeID: d.ID})
		}
	}
	return append(list,
		rules.ReversePayment{PaymentID: o.ID, Reason: "refunded", TotalMC: refunded},
		rules.ReversePayment{PaymentID: o.ID, Reason: "dispute_lost", TotalMC: lost})
}

// next is when to ask Stripe again; 0 = when an event says so.
func next(p rules.Payment, now time.Time) int64 {
	switch {
	case p.Status != rules.PaymentPending:
		return 0
	case p.Paid() && p.HoldUntilUS > now.UnixMicro():
		return p.HoldUntilUS
	}
	return now.Add(askAfter).UnixMicro()
}

// Once settles what has been cleared, asks for what nobody told us, and tops up
// balances that run low. Any node may do it: whatever it does is claimed first.
func (s *Store) Once(ctx context.Context) error {
	if !s.Usable() {
		return nil
	}
	return errors.Join(s.settleDue(ctx), s.topUpLow(ctx), s.forgetCards(ctx))
}

func (s *Store) settleDue(ctx context.Context) error {
	for {
		now := s.Now()
		c, err := due(ctx, s.DB, now.UnixMicro())
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return fmt.Errorf("topups: due: %w", err)
		}
		mine, err := take(ctx, s.DB, c.ID, c.NextUS, now.Add(retry).UnixMicro())
		if err != nil {
			return fmt.Errorf("topups: claim: %w", err)
		} else if !mine {
			continue
		}
		if err := s.settle(ctx, c); err != nil {
			s.Log.Error("a top-up could not be settled, and is tried again", "topup_id", c.ID, "error", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (s *Store) settle(ctx context.Context, c checkout) (err error) {
	switch {
	case c.automatic():
		err = s.charge(ctx, c)
	case c.SessionID == "": // Stripe's answer never came, so nobody was sent there
		return setNext(ctx, s.DB, c.ID, 0)
	default:
		err = s.follow(ctx, c, nothing)
	}
	if unknown(err) {
		return errors.Join(err, setNext(ctx, s.DB, c.ID, s.Now().Add(giveUp).UnixMicro()))
	}
	return err
}

func nothing(context.Context, *db.Tx) error { return nil }

// Purge forgets events that Stripe no longer sends again.
func (s *Store) Purge(ctx context.Context) error {
	return purge(ctx, s.DB, s.Now().Add(-keepSeen).UnixMicro())
}
