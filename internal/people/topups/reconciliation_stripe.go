package topups

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/stripeapi"
)

// listedPayments is the member of listed objects that is asked for in full: it has our ids.
const listedPayments = "data.payment_intent"

// listParams are the parameters of a list where a reconciliation goes on. Stripe lists the newest first.
func listParams(r *Reconciliation) stripe.Params {
	p := stripe.Params{
		"limit":        strconv.Itoa(comparedTogether),
		"created[gte]": strconv.FormatInt(r.SinceUS/1e6, 10),
	}
	if r.after != "" {
		p["starting_after"] = r.after
	}
	return p
}

// listWithPayments lists objects with their payments in full.
func listWithPayments[T stripe.Object](ctx context.Context, s *Store, r *Reconciliation) iter.Seq2[*T, error] {
	p := listParams(r)
	p.Expand(listedPayments)
	return stripe.List[T](ctx, s.client, p)
}

// readList reads a list of Stripe's. read returns false for what is of no interest.
func readList[T any](objects iter.Seq2[T, error], read func(T) (listedObject, bool)) iter.Seq2[listedObject, error] {
	return func(yield func(listedObject, error) bool) {
		for o, err := range objects {
			if err != nil {
				yield(listedObject{}, fmt.Errorf("topups: list: %w", err))
				return
			}
			is, ours := read(o)
			if is.intent == nil || is.intent.Metadata["topup_id"] == "" || !ours { // another payment of this account
				is.intent = nil
			}
			if !yield(is, nil) {
				return
			}
		}
	}
}

func (s *Store) listCharges(ctx context.Context, r *Reconciliation) iter.Seq2[listedObject, error] {
	return readList(listWithPayments[stripe.Charge](ctx, s, r), func(c *stripe.Charge) (listedObject, bool) {
		o := listedObject{id: c.ID, createdUS: c.Created * 1e6, intent: c.PaymentIntent}
		if c.PaymentIntent != nil {
			o.key = c.PaymentIntent.ID
		}
		return o, c.Status == stripe.Succeeded
	})
}

func (s *Store) listAllRefunds(ctx context.Context, r *Reconciliation) iter.Seq2[listedObject, error] {
	return readList(listWithPayments[stripe.Refund](ctx, s, r), func(r *stripe.Refund) (listedObject, bool) {
		return listedObject{r.ID, r.ID + " " + r.Status, r.Created * 1e6, r.PaymentIntent}, true
	})
}

func (s *Store) listAllDisputes(ctx context.Context, r *Reconciliation) iter.Seq2[listedObject, error] {
	return readList(listWithPayments[stripe.Dispute](ctx, s, r), func(d *stripe.Dispute) (listedObject, bool) {
		key := fmt.Sprintf("%s %d %d %d", d.ID, d.Amount, db.BoolInt(isContested(d)), db.BoolInt(isUndecided(d)))
		return listedObject{d.ID, key, d.Created * 1e6, d.PaymentIntent}, true
	})
}

// compareList compares a list of Stripe's with the books, page by page. known returns those of the keys that are as the
// books have them.
func (s *Store) compareList(ctx context.Context, r *Reconciliation, list iter.Seq2[listedObject, error],
	known func(ctx context.Context, q db.Queryer, ids []string) ([]string, error)) error {
	page := make([]listedObject, 0, comparedTogether)
	for o, err := range list {
		if err != nil {
			return err
		}
		if page = append(page, o); len(page) < comparedTogether {
			continue
		}
		if err := s.comparePage(ctx, r, page, known); err != nil {
			return err
		}
		page = page[:0]
	}
	return s.comparePage(ctx, r, page, known)
}

// comparePage compares some objects with the books, and books those that the books have not, or have otherwise. It
// stores after each how far it is, so that a list is never compared from its begin again.
func (s *Store) comparePage(ctx context.Context, r *Reconciliation, page []listedObject,
	known func(ctx context.Context, q db.Queryer, ids []string) ([]string, error)) error {
	var keys []string
	for _, o := range page {
		if o.intent != nil {
			keys = append(keys, strings.SplitN(o.key, " ", 2)[0])
		}
	}
	var booked []string
	if len(keys) > 0 {
		var err error
		if booked, err = known(ctx, s.DB, keys); err != nil {
			return err
		}
	}
	asked := map[string]bool{} // payments; an answer has all of a payment
	for _, o := range page {
		switch {
		case o.intent == nil:
			r.after = o.id
			continue
		case slices.Contains(booked, o.key), asked[o.intent.ID]:
			r.after = o.id
			r.Compared++
			continue
		}
		asked[o.intent.ID] = true
		changed, err := s.bookIntent(ctx, o.intent)
		if err := s.count(r, o.id, changed, o.createdUS, err); err != nil {
			return err
		}
		r.after = o.id // not before it is booked: who goes on asks about it again
		if err := s.saveProgress(ctx, r); err != nil {
			return err
		}
	}
	if len(page) == 0 {
		return nil
	}
	return s.saveProgress(ctx, r)
}

// A TransferBook books transfers to developers.
type TransferBook interface {
	// MayHaveTransfers reports whether developers are, or were, paid. Otherwise there are no transfers, and the key may
	// not be allowed to list them.
	MayHaveTransfers(ctx context.Context) (bool, error)

	// BookTransfer books a transfer that Stripe has, and reports whether the books did not have it. What the books
	// cannot take is an error of NewRefused.
	BookTransfer(ctx context.Context, t *stripe.Transfer) (changed bool, err error)
}

// compareTransfers compares the transfers to developers.
func (s *Store) compareTransfers(ctx context.Context, r *Reconciliation) error {
	if s.Transfers == nil {
		return nil
	}
	if some, err := s.Transfers.MayHaveTransfers(ctx); err != nil || !some {
		return err
	}
	n := 0
	for t, err := range stripe.List[stripe.Transfer](ctx, s.client, listParams(r)) {
		if err != nil {
			return fmt.Errorf("topups: list: %w", err)
		}
		if t.Metadata["payout_id"] != "" {
			changed, err := s.Transfers.BookTransfer(ctx, t)
			if err := s.count(r, t.ID, changed, t.Created*1e6, err); err != nil {
				return err
			}
		}
		r.after = t.ID
		if n++; n%comparedTogether == 0 {
			if err := s.saveProgress(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// NewRefused returns the error for an object of Stripe's that the books cannot take.
func NewRefused(text string) error { return &refused{text} }

// IsRefused reports whether an error says that the books cannot take an object of Stripe's.
func IsRefused(err error) bool {
	_, ok := errors.AsType[*refused](err)
	return ok
}

// bookIntent books what Stripe has of a payment, also if the books do not have its top-up. It reports whether anything
// has changed.
func (s *Store) bookIntent(ctx context.Context, intent *stripe.PaymentIntent) (bool, error) {
	c, err := s.topUpOfIntent(ctx, intent)
	if err != nil {
		return false, err
	}
	is, err := s.reconcile(ctx, c, noChange)
	return is.changed, err
}

// topUpOfIntent returns the top-up of a payment. If Stripe's answer to its request was lost, the books have the top-up
// without its payment, which it gets here. If they do not have it, or it was paid by another payment, it is recorded.
func (s *Store) topUpOfIntent(ctx context.Context, intent *stripe.PaymentIntent) (checkout, error) {
	c, err := getByIntent(ctx, s.DB, intent.ID)
	if !errors.Is(err, sql.ErrNoRows) {
		return c, err
	}
	c, err = getCheckout(ctx, s.DB, intent.Metadata["topup_id"])
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s.recordUnknown(ctx, intent, false)
	case err != nil:
		return c, err
	case c.automatic() && c.IntentID == "":
		c.IntentID = intent.ID
		return c, nil
	case c.automatic():
		return s.recordUnknown(ctx, intent, true)
	}
	p, err := store.GetPayment(ctx, s.DB, c.ID)
	if err == nil && p.PaymentIntent == intent.ID {
		return c, nil
	} else if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return c, err
	}
	sessionID, err := s.findSessionOfIntent(ctx, intent.ID)
	switch {
	case err != nil:
		return c, err
	case sessionID == "":
		return c, &refused{"payment " + intent.ID + " of top-up " + c.ID + " has no session"}
	case c.SessionID == "" || c.SessionID == sessionID:
		c.SessionID = sessionID
		return c, nil
	}
	if second, err := getBySession(ctx, s.DB, sessionID); !errors.Is(err, sql.ErrNoRows) {
		return second, err
	}
	return s.recordUnknown(ctx, intent, true)
}

// recordUnknown records the top-up of a payment that Stripe has and the books have not, because the database went back
// in time: then no money leaves until a reconciliation has ended. Or the payment is the second one for a top-up: then
// it is a top-up of its own, and its user is told. A payment of an account that is not there is refused: it may be
// another installation's.
func (s *Store) recordUnknown(ctx context.Context, intent *stripe.PaymentIntent, isSecond bool) (c checkout,
	err error) {
	c.order = order{ID: intent.Metadata["topup_id"], AccountID: intent.Metadata["account_id"], Cents: intent.Amount}
	if isSecond {
		c.ID, c.NamedID = id.New(id.Payment, s.Now()), c.ID
	}
	_, err = accounts.GetAccount(ctx, s.DB, c.AccountID)
	if errors.Is(err, sql.ErrNoRows) {
		return c, s.refuseTopUp(c.ID, "payment "+intent.ID+" is of account "+c.AccountID+", which is unknown")
	} else if err != nil {
		return c, err
	}
	c.CreatedUS = intent.Created * 1e6
	if intent.Customer != nil {
		c.Customer = intent.Customer.ID
	}
	if c.SessionID, err = s.findSessionOfIntent(ctx, intent.ID); err != nil {
		return c, err
	}
	if !isSecond { // first: a crash must not leave only the row
		if err := WaitForReconciliation(ctx, s.DB, s.Now()); err != nil {
			return c, err
		}
	}
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if c.SessionID == "" {
			if err := s.fillAttempt(ctx, tx, &c, intent); err != nil {
				return err
			}
		}
		err := insertFound(ctx, tx, c)
		if err == nil && isSecond {
			err = s.sendMail(ctx, tx, c.AccountID, paidTwiceEmail(c.Cents, s.DashboardURL))
		}
		return err
	})
	if err != nil {
		return c, err
	}
	text, alarm := "stripe has a top-up that the books did not have", "payment_unknown"
	if isSecond {
		text, alarm = "a top-up was paid a second time", "payment_twice"
	}
	s.Log.Error(text, "topup_id", c.ID, "names", c.name(), "payment_intent", intent.ID)
	s.Metrics.RaiseAlarm(alarm, "stripe")
	return getCheckout(ctx, s.DB, c.ID)
}

// fillAttempt makes c the account's next automatic attempt, which counts for the month of its payment.
func (s *Store) fillAttempt(ctx context.Context, tx *db.Tx, c *checkout, intent *stripe.PaymentIntent) error {
	p, err := lockPlan(ctx, tx, c.AccountID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	month, _ := monthBounds(time.Unix(intent.Created, 0))
	n, used, _, err := getMonthUse(ctx, tx, c.AccountID, month.UnixMicro())
	if err != nil {
		return err
	}
	c.attempt = attempt{
		N:         n + 1,
		MonthUS:   month.UnixMicro(),
		MostCents: max(p.Most, used+c.Cents), // it was charged, whatever the maximum was
		IntentID:  intent.ID,
	}
	if intent.PaymentMethod != nil {
		c.PaymentMethod = intent.PaymentMethod.ID
	}
	return nil
}

// errMoneyWaits says that no money leaves until a reconciliation has ended.
var errMoneyWaits = errors.New("topups: no money leaves until the books are compared with stripe")

// checkBeforeCharge returns errMoneyWaits if a card must not be charged now: the database went back in time, or it did,
// as a charge shows that Stripe has of this customer and the books have not.
func (s *Store) checkBeforeCharge(ctx context.Context, c checkout) error {
	if waits, err := MoneyWaits(ctx, s.DB); err != nil {
		return err
	} else if waits {
		return errMoneyWaits
	}
	intent, err := s.findUnknownCharge(ctx, c)
	if err != nil || intent == nil {
		return err
	}
	_, err = s.bookIntent(ctx, intent)
	return errors.Join(errMoneyWaits, err)
}

// noteUnknownRefunds begins a reconciliation if Stripe tells refunds of a payment that were asked for here, and the
// books do not have them: the database went back in time. What a comparison has booked since is known, although only
// Stripe still has its name.
func (s *Store) noteUnknownRefunds(ctx context.Context, c checkout, told []*stripe.Refund) error {
	ours, err := refundsOfPayment(ctx, s.DB, c.ID)
	if err != nil {
		return err
	}
	booked, err := toldRefunds(ctx, s.DB, c.ID)
	if err != nil {
		return fmt.Errorf("topups: refunds of %s: %w", c.ID, err)
	}
	for _, t := range told {
		name := t.Metadata["refund_id"]
		if name == "" || slices.Contains(booked, t.ID) ||
			slices.ContainsFunc(ours, func(r refund) bool { return r.ID == name }) {
			continue
		}
		s.Log.Error("stripe has a refund that the books did not have", "topup_id", c.ID, "refund_id", name)
		s.Metrics.RaiseAlarm("payment_unknown", "stripe")
		return WaitForReconciliation(ctx, s.DB, s.Now())
	}
	return nil
}

// findUnknownCharge reports whether Stripe has an automatic payment of the customer of an attempt that the books do not
// have, of its month.
func (s *Store) findUnknownCharge(ctx context.Context, c checkout) (*stripe.PaymentIntent, error) {
	from := min(c.CreatedUS, c.MonthUS)/1e6 - 3600 // clocks differ
	p := stripe.Params{
		"customer":     c.Customer,
		"created[gte]": strconv.FormatInt(from, 10),
		"limit":        strconv.Itoa(comparedTogether),
	}
	for i, err := range stripe.List[stripe.PaymentIntent](ctx, s.client, p) {
		if stripeapi.Sort(err).Outcome == stripeapi.Gone { // the customer, whose card is forgotten when it is charged
			return nil, nil
		} else if err != nil {
			return nil, fmt.Errorf("topups: payments of a customer: %w", err)
		}
		if i.Metadata["topup_id"] == "" {
			continue
		}
		_, err := getCheckout(ctx, s.DB, i.Metadata["topup_id"])
		if errors.Is(err, sql.ErrNoRows) {
			return i, nil
		} else if err != nil {
			return nil, err
		}
	}
	return nil, nil
}
