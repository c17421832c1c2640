package topups

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/stripeapi"
)

// Bounds of one top-up.
const (
	MinCents = 5_00
	MaxCents = 1000_00
)

// maxOpen bounds the checkouts of a user that are not paid: each is asked for at Stripe every hour.
const maxOpen = 10

// Waits and lifetimes.
const (
	reconcileAfter    = time.Hour       // poll Stripe if no event has arrived for this long
	claimTTL          = 5 * time.Minute // lease of a claimed checkout; failures are retried after it
	retryUnknownAfter = 24 * time.Hour  // until the next request for a session that Stripe does not know
	openingTime       = time.Minute     // in which Stripe opens a session, with all tries
	seenRetention     = 30 * 24 * time.Hour
)

// Store manages top-ups. It is safe for concurrent use by many nodes.
type Store struct {
	DB           *db.DB
	Ledger       *store.Writer
	Config       Config
	CardKey      []byte // by which the cards that paid are hashed (NewCardKey)
	DashboardURL string // Stripe redirects users back to it
	Mails        *mail.Store
	Metrics      *metrics.Metrics
	Log          *slog.Logger
	Now          func() time.Time

	Transfers TransferBook // nil = no developers are paid

	badSinceUS atomic.Int64 // since when all events here had wrong signatures; 0 = the last one was right
	reportedUS atomic.Int64 // when an alarm about a missing key was last raised

	account *stripeapi.Account
	client  *stripe.Client
	once    *stripe.Client // which repeats nothing by itself: the terms of what moves money are read before each try
}

// Configure checks the configuration and makes the Stripe client. It refuses a key without a webhook secret, because an
// empty secret would let anyone sign events (F-64).
func (s *Store) Configure() error {
	if err := s.Config.Validate(); err != nil {
		return err
	}
	if s.Config.Key != "" {
		s.client = stripeapi.NewClient(s.Config.Key, s.Config.BaseURL, s.Metrics, stripeapi.DefaultRetries)
		s.once = stripeapi.NewClient(s.Config.Key, s.Config.BaseURL, s.Metrics, 0)
		s.account = &stripeapi.Account{Client: s.client, DB: s.DB, Metrics: s.Metrics, Log: s.Log}
	}
	return nil
}

// Validate reports which settings are missing or wrong.
func (c Config) Validate() error {
	switch {
	case c.Key == "" && c.WebhookSecret == "":
		return nil
	case c.Key == "":
		return errors.New("stripe.key: required with stripe.webhook_secret")
	case c.WebhookSecret == "":
		return errors.New(
			"stripe.webhook_secret: required with stripe.key, the signing secret of the endpoint, whsec_…")
	case len(c.WebhookSecret) < 16 || !strings.HasPrefix(c.WebhookSecret, "whsec_"):
		return errors.New("stripe.webhook_secret: must be the signing secret of the endpoint: whsec_ and at least " +
			"10 characters")
	}
	return nil
}

// IsConfigured reports whether users can top up.
func (s *Store) IsConfigured() bool { return s.client != nil }

// requests carry out what changes something at Stripe.
func (s *Store) requests() *stripeapi.Requests {
	return &stripeapi.Requests{DB: s.DB, Metrics: s.Metrics, Log: s.Log, Now: s.Now}
}

// Stripe returns the client by which Stripe is asked; nil if it is not configured.
func (s *Store) Stripe() *stripe.Client { return s.once }

// Account returns our account at Stripe; nil if Stripe is not configured.
func (s *Store) Account() *stripeapi.Account { return s.account }

func (s *Store) receiptURL(topupID string) string { return s.DashboardURL + "/top-ups/" + topupID }

// startCheckout opens a checkout, or returns the one that the same form has opened, so that a form that is sent again
// starts no second payment. The row is committed before the request to Stripe, so that a crash
// leaves a checkout that can be repeated. Too many checkouts that are not paid are 429 rate_limited.
//
// customer is the Stripe customer that will keep the card; "" = the card is not saved.
func (s *Store) startCheckout(ctx context.Context, accountID, customer, token string,
	cents int64) (c checkout, err error) {
	now := s.Now()
	fresh := id.New(id.Payment, now)
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.refuseClosed(ctx, tx, accountID); err != nil { // one form after the other
			return err
		}
		c, err = insertCheckout(ctx, tx, checkout{
			order:     order{ID: fresh, AccountID: accountID, Cents: cents},
			NextUS:    now.Add(reconcileAfter).UnixMicro(),
			CreatedUS: now.UnixMicro(),
			SaveCard:  customer != "",
			Customer:  customer,
		}, token+":"+strconv.FormatInt(cents, 10))
		if err != nil || c.ID != fresh {
			return err
		}
		open, err := countUnpaid(ctx, tx, accountID, now.Add(-openingTime).UnixMicro())
		if err == nil && open > maxOpen {
			err = apierr.RateLimited.Errorf("You have %d top-ups that are not paid. Pay one of them, or try again "+
				"tomorrow, when they have expired.", maxOpen)
		}
		return err
	})
	if err != nil {
		return c, fmt.Errorf("topups: checkout: %w", err)
	}
	if c.SessionID != "" {
		return c, nil
	}
	session, err := s.makeSession(ctx, &c)
	if err != nil {
		return c, fmt.Errorf("topups: open: %w", err)
	}
	c.SessionID, c.URL = session.ID, session.URL
	return c, s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.refuseClosed(ctx, tx, c.AccountID); err != nil { // the page of the session is never shown
			return err
		}
		// The job may have given up meanwhile.
		if err := setNext(ctx, tx, c.ID, s.Now().Add(reconcileAfter).UnixMicro()); err != nil {
			return err
		}
		return s.openPayment(ctx, tx, c)
	})
}

// refuseClosed locks an account, and refuses one that was closed or suspended since its page was shown.
func (s *Store) refuseClosed(ctx context.Context, tx *db.Tx, accountID string) error {
	a, err := accounts.Lock(ctx, tx, accountID)
	if err == nil && a.Deactivated {
		err = apierr.InvalidRequest.Errorf("This account can’t be topped up.")
	}
	return err
}

// openPayment records the session or intent of a checkout and opens its payment in the ledger (decision 023). It may be
// repeated.
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

// refused is the error for data of Stripe that differs from the order. Nothing was changed.
type refused struct{ text string }

func (r *refused) Error() string { return "topups: refused: " + r.text }

// refuseTopUp logs the difference, raises an alarm and returns the error.
func (s *Store) refuseTopUp(topupID, text string) error {
	s.Log.Error("top-up refused", "topup_id", topupID, "difference", text)
	s.Metrics.RaiseAlarm("payment_refused", "stripe")
	return &refused{text}
}

// maxQuestions is how often a checkout is asked about while answers to other questions are applied.
const maxQuestions = 10

// reconcile fetches the state of a checkout from Stripe and applies the commands that follow, unless the answer to a
// later question was applied meanwhile. If that to an earlier one was, it asks again. It returns what it has booked.
// also runs in the transaction.
func (s *Store) reconcile(ctx context.Context, c checkout, also func(context.Context, *db.Tx) error) (is booking,
	err error) {
	for range maxQuestions {
		if is, err = s.reconcileOnce(ctx, c, also); !errors.Is(err, errOvertaken) {
			break
		}
	}
	return is, err
}

func (s *Store) reconcileOnce(ctx context.Context, c checkout, also func(context.Context, *db.Tx) error) (is booking,
	err error) {
	q, err := takeNumber(ctx, s.DB, c.ID)
	if err != nil {
		return is, fmt.Errorf("topups: number of %s: %w", c.ID, err)
	}
	f, err := s.fetchFacts(ctx, c)
	if err != nil {
		return is, err
	}
	if wrong := f.findDifference(c, s.Config.isLive()); wrong != "" {
		return is, s.refuseTopUp(c.ID, wrong)
	}
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		is = booking{}
		plan, err := lockPlan(ctx, tx, c.AccountID) // before the balance, in the order of beginAttempt
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if newest, err := markApplied(ctx, tx, c.ID, q); err != nil || !newest {
			return errors.Join(err, also(ctx, tx))
		}
		if err := s.openPayment(ctx, tx, c); err != nil {
			return err
		}
		if c.automatic() { // Stripe has it: nobody waits for the answer any more
			if err := s.requests().End(ctx, tx, stripeapi.Charge, c.ID); err != nil {
				return err
			}
		}
		if err := s.endRefused(ctx, tx, c.refusal, f.refunds); err != nil {
			return err
		}
		returns, err := s.followRefunds(ctx, tx, c.ID, f.refunds)
		if err != nil {
			return err
		}
		if is, err = s.book(ctx, tx, c, f, f.level(returns)); err != nil {
			return err
		}
		if err := setNext(ctx, tx, c.ID, s.nextReconcileUS(is.payment)); err != nil {
			return err
		}
		if charge := f.latestCharge(); charge != nil {
			is.paidUS = charge.Created * 1e6
		}
		s.reportOwnWaits(c, f.refunds)
		nowUS := s.Now().UnixMicro()
		if err := errors.Join(saveRefunds(ctx, tx, c.ID, f.refunds, nowUS),
			saveDisputes(ctx, tx, c.ID, f.disputes, nowUS), s.applyFactsToPlan(ctx, tx, plan, c, f, is.fresh),
			also(ctx, tx)); err != nil {
			return err
		}
		return s.rememberCard(ctx, tx, c.AccountID, f) // last: it locks a counter, which comes after connections
	})
	if e, ok := errors.AsType[*apierr.Error](err); ok { // a rule of the money
		return is, s.refuseTopUp(c.ID, e.Message)
	}
	return is, err
}

// A booking is what was booked of a payment.
type booking struct {
	payment rules.Payment
	paidUS  int64           // Stripe's time of the charge
	changed bool            // the payment was otherwise before
	fresh   []rules.Command // that changed something, but not those by which money came back to the balance
}

// book brings a payment to what Stripe says of it.
func (s *Store) book(ctx context.Context, tx *db.Tx, c checkout, f facts, l level) (is booking, err error) {
	do := func(command rules.Command) error {
		r, err := s.Ledger.DoTx(ctx, tx, command)
		if err != nil {
			return err
		}
		is.payment, is.changed = r.Payment, is.changed || r.Outcome == rules.Applied
		_, reverses := command.(rules.ReversePayment)
		cameBack := reverses && r.Entry.AvailableDeltaMC >= 0
		if r.Outcome == rules.Applied && !cameBack {
			is.fresh = append(is.fresh, command)
		}
		if _, ok := command.(rules.ReopenPayment); ok && r.Outcome == rules.Applied {
			s.Log.Error("an ended top-up has money at stripe", "topup_id", c.ID)
			s.Metrics.RaiseAlarm("payment_reopened", "stripe")
		}
		return nil
	}
	for _, command := range f.makeCommands(c.order, l, s.Now(), s.Config.Clearance) {
		switch command.(type) {
		case rules.SettlePayment:
			if s.clearanceIsUnsure() {
				continue // its clearance may not be over
			}
		case rules.ReopenPayment:
			if l.isAllGone(c.order) && is.payment.Paid() {
				continue // it is known that it was paid, and all of it is gone
			}
		}
		if err := do(command); err != nil {
			return is, err
		}
	}
	if !f.isPaid() {
		return is, nil
	}
	gone := l.commands(c.ID)
	slices.SortStableFunc(gone, func(a, b rules.ReversePayment) int { // what comes back first
		x, _ := is.payment.Difference(a)
		y, _ := is.payment.Difference(b)
		return cmp.Compare(x, y)
	})
	for _, command := range gone {
		if err := do(command); err != nil {
			return is, err
		}
		if _, rest := is.payment.Difference(command); rest > 0 {
			s.Log.Error("more is gone than was paid", "topup_id", c.ID, "reason", command.Reason, "rest_mc", rest)
			s.Metrics.RaiseAlarm("payment_rest", "stripe")
		}
	}
	for _, d := range f.disputes { // after what was lost is taken: the balance may be below zero
		if isContested(d) && d.Status != stripe.DisputeLost {
			continue
		}
		if err := do(rules.EndDispute{PaymentID: c.ID, DisputeID: d.ID}); err != nil {
			return is, err
		}
	}
	return is, nil
}

// A level is what is gone of a payment now, by who sent it away.
type level struct {
	refunded money.MC // by others, such as support in Stripe's dashboard, or when an account was closed
	returned money.MC // by its user; it left the balance before Stripe was asked (decision 108)
	lost     money.MC // in disputes
}

// isAllGone reports whether nothing is left of an order, but for what its user has returned.
func (l level) isAllGone(o order) bool { return l.refunded+l.lost >= money.MC(o.Cents)*money.Cent }

// level folds what Stripe says of a payment, and what its user has asked for, into what is gone of it. A refund that
// Stripe could not carry out is not gone; one that is pending is. Of a return that Stripe has made twice, the second is
// gone besides.
func (f facts) level(returns []refund) (l level) {
	asked := map[string]int64{} // cents that left the balance before Stripe was asked
	for _, r := range returns {
		asked[r.ID] = r.Cents
		l.returned += money.MC(r.Cents) * money.Cent
	}
	for _, r := range f.refunds {
		if hasFailed(r) {
			continue
		}
		mine := min(asked[r.Metadata["refund_id"]], r.Amount)
		asked[r.Metadata["refund_id"]] -= mine
		l.refunded += money.MC(r.Amount-mine) * money.Cent
	}
	for _, d := range f.disputes {
		if d.Status == stripe.DisputeLost {
			l.lost += money.MC(d.Amount) * money.Cent
		}
	}
	return l
}

// commands return the ledger commands that bring a payment to the level.
func (l level) commands(paymentID string) []rules.ReversePayment {
	return []rules.ReversePayment{
		{PaymentID: paymentID, Reason: returnedToCard, TotalMC: l.returned},
		{PaymentID: paymentID, Reason: "refunded", TotalMC: l.refunded},
		{PaymentID: paymentID, Reason: "dispute_lost", TotalMC: l.lost},
	}
}

// makeCommands returns the ledger commands, before those of its level, that follow from the facts. Each command is
// idempotent.
func (f facts) makeCommands(o order, l level, now time.Time, clearance time.Duration) (list []rules.Command) {
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
	// It may have failed: by our own decision, or since what was refunded at once came back.
	list = append(list, rules.ReopenPayment{PaymentID: o.ID}, rules.MarkPaymentPaid{
		PaymentID:     o.ID,
		PaymentIntent: f.intent.ID,
		HoldUntilUS:   now.Add(clearance).UnixMicro(),
	})
	switch {
	case l.isAllGone(o): // a payment that is not credited yet fails
		why := map[bool]string{true: "refunded", false: "dispute_lost"}[l.refunded >= l.lost]
		list = append(list, rules.FailPayment{PaymentID: o.ID, Reason: why})
	case !f.isOpen():
		list = append(list, rules.SettlePayment{PaymentID: o.ID})
	}
	for _, d := range f.disputes {
		if isContested(d) {
			list = append(list, rules.DisputePayment{
				PaymentID: o.ID,
				DisputeID: d.ID,
				Lost:      d.Status == stripe.DisputeLost,
			})
		}
	}
	return list
}

// clearanceIsUnsure reports whether the clock may be wrong by as much as a payment's clearance.
func (s *Store) clearanceIsUnsure() bool { return s.Config.Clearance > 0 && !s.DB.IsClockSteady() }

// nextReconcileUS returns the time of the next reconciliation in microseconds; 0 = only after an event.
func (s *Store) nextReconcileUS(p rules.Payment) int64 {
	now := s.Now()
	switch {
	case p.Status != rules.PaymentPending:
		return 0
	case p.Paid() && p.HoldUntilUS > now.UnixMicro():
		return p.HoldUntilUS
	case p.Paid() && s.clearanceIsUnsure():
		return now.Add(db.ClockWait).UnixMicro()
	}
	return now.Add(reconcileAfter).UnixMicro()
}

// A part of RunDue does one thing that is due, and reports whether more may be due.
type part func(context.Context) (more bool, err error)

// RunDue settles cleared payments, reconciles checkouts without events, finishes refunds, tops up low balances,
// detaches removed cards and deletes customers of closed accounts, one of each in turn, so that many of one kind leave
// time for the others. Every node may run it: it claims each item first.
func (s *Store) RunDue(ctx context.Context) (failed error) {
	if !s.IsConfigured() {
		return nil
	}
	failed = s.reportAges(ctx)
	parts := []part{s.reconcileDue, s.finishDueRefund, s.chargeLowBalances(), s.detachRemovedCard,
		s.deleteRemovedCustomer}
	for len(parts) > 0 {
		var unfinished []part
		for _, do := range parts {
			more, err := do(ctx)
			if failed = errors.Join(failed, err); ctx.Err() != nil {
				return errors.Join(failed, ctx.Err())
			}
			if more && err == nil {
				unfinished = append(unfinished, do)
			}
		}
		parts = unfinished
	}
	return failed
}

// reconcileDue reconciles the checkout that is due for the longest time, unless another node does.
func (s *Store) reconcileDue(ctx context.Context) (bool, error) {
	now := s.Now()
	c, err := getNextDue(ctx, s.DB, now.UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("topups: due: %w", err)
	}
	mine, err := claimCheckout(ctx, s.DB, c.ID, c.NextUS, now.Add(claimTTL).UnixMicro())
	if err != nil {
		return false, fmt.Errorf("topups: claim: %w", err)
	} else if !mine {
		return true, nil
	}
	if err := s.reconcileClaimed(ctx, c); err != nil {
		s.Log.Error("top-up not reconciled", "topup_id", c.ID, "error", err)
		return true, markFailing(ctx, s.DB, c.ID, s.Now().UnixMicro())
	}
	return true, nil
}

func (s *Store) reconcileClaimed(ctx context.Context, c checkout) (err error) {
	switch {
	case c.automatic():
		err = s.chargeAttempt(ctx, c, false)
	case c.SessionID == "": // Stripe did not answer, so the user was never redirected
		return endUnopened(ctx, s.DB, c.ID)
	default:
		err = s.reconcilePolled(ctx, c)
	}
	if stripeapi.Sort(err).Outcome == stripeapi.Gone && !errors.Is(s.account.Check(ctx), stripeapi.ErrOtherAccount) {
		return errors.Join(err, setNext(ctx, s.DB, c.ID, s.Now().Add(retryUnknownAfter).UnixMicro()))
	}
	return err
}

// reconcilePolled reconciles a checkout of which no event has arrived. A payment that only this has found is an alarm:
// if it is old, its event must have failed to come.
func (s *Store) reconcilePolled(ctx context.Context, c checkout) error {
	is, err := s.reconcile(ctx, c, noChange)
	isPaid := slices.ContainsFunc(is.fresh, func(c rules.Command) bool {
		_, ok := c.(rules.MarkPaymentPaid)
		return ok
	})
	if err == nil && isPaid && is.paidUS < s.Now().Add(-eventsHurry).UnixMicro() {
		s.Log.Error("a payment was found without its event", "topup_id", c.ID)
		s.Metrics.RaiseAlarm("payment_polled", "stripe")
	}
	return err
}

func noChange(context.Context, *db.Tx) error { return nil }

// Purge deletes the ids of events that Stripe no longer repeats.
func (s *Store) Purge(ctx context.Context) error {
	return deleteSeenBefore(ctx, s.DB, s.Now().Add(-seenRetention).UnixMicro())
}
