package topups

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/people/stripeapi"
)

// reconciliationPrefix is that of the ids of reconciliations.
const reconciliationPrefix = "rcn_"

// Causes of a reconciliation. During the last two no money leaves: no return, transfer or automatic charge.
const (
	causeDaily    = "daily"
	causeAsked    = "asked"    // by an operator
	causeUnknown  = "unknown"  // Stripe has something of ours that the books do not have
	causeRestored = "restored" // the database went back in time
)

// Times of reconciliations.
const (
	reconciliationPause  = 24 * time.Hour
	lookBack             = 3 * 24 * time.Hour   // before the last one
	firstLookBack        = 180 * 24 * time.Hour // of the first one: what is older is no longer disputed
	refundsMayFail       = 60 * 24 * time.Hour  // after they succeeded
	eventsTake           = time.Hour            // what is younger may still be told by an event
	eventsHurry          = 10 * time.Minute     // most events come within it
	reconciliationClaim  = 5 * time.Minute
	reconciliationRetry  = time.Minute // after an error
	comparedTogether     = 100         // objects, in one statement
	endReconciliationFor = 5 * time.Second
)

// The stages of a reconciliation, in their order. In plans, automatic top-ups of a database that went back in time are
// turned off: their users may have done so since.
var stages = []string{"payments", "charges", "refunds", "disputes", "transfers", "plans"}

// Reconciliation compares the books with Stripe: it asks about what has not ended, and lists what the books may not
// know (decision 127). It goes on where it was, on any node.
type Reconciliation struct {
	ID, Cause string
	SinceUS   int64  // Stripe's objects since then are listed
	Stage     string // "" = it has ended
	Compared  int64  // objects of ours
	Booked    int64  // differences, each booked
	Unbooked  int64  // objects that the books cannot take, such as those of accounts that a restore has lost
	Error     string // why it does not go on
	CreatedUS int64
	EndedUS   int64 // 0 = it is open

	waits, claimedUS int64
	after            string
}

// Waits reports whether no money leaves until it has ended.
func (r *Reconciliation) Waits() bool { return r.waits == 1 }

// errClaimLost says that another node goes on with a reconciliation, or that it has begun again.
var errClaimLost = errors.New("topups: the reconciliation has begun again, or another node has it")

// MoneyWaits reports whether the books must be compared with Stripe before money leaves: returns to cards, transfers
// and automatic charges wait.
func MoneyWaits(ctx context.Context, q db.Queryer) (bool, error) {
	// In this order: the transaction that unsets the mark opens a reconciliation.
	restored, err := settings.Get(ctx, q, settings.Restored)
	if err != nil || restored != "" {
		return restored != "", err
	}
	return hasOpenReconciliation(ctx, q, 1)
}

// LoadWaiting returns the reconciliation that money waits for, and whether any money waits. Its id is "" while no node
// has begun it.
func LoadWaiting(ctx context.Context, q db.Queryer) (r Reconciliation, waits bool, err error) {
	if waits, err = MoneyWaits(ctx, q); err != nil || !waits {
		return r, waits, err
	}
	if r, err = getOpenReconciliation(ctx, q); errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return r, true, err
}

// FoundUnknown reports whether it began because Stripe had something of ours that the books did not have.
func (r *Reconciliation) FoundUnknown() bool { return r.Cause == causeUnknown }

// WaitForReconciliation begins a reconciliation during which no money leaves, because Stripe has something of ours that
// the books did not have: the database went back in time.
func WaitForReconciliation(ctx context.Context, d *db.DB, now time.Time) error {
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := beginReconciliation(ctx, tx, causeUnknown, now, time.Time{})
		return err
	})
}

// BeginReconciliation begins a reconciliation that lists what Stripe has had since a time, or, with the zero time,
// since the one before. After a restore no money leaves until it has ended.
func (s *Store) BeginReconciliation(ctx context.Context, tx *db.Tx, since time.Time, restored bool) (Reconciliation,
	error) {
	cause := causeAsked
	if restored {
		cause = causeRestored
	}
	return beginReconciliation(ctx, tx, cause, s.Now(), since)
}

// GetReconciliation returns a reconciliation, or sql.ErrNoRows.
func (s *Store) GetReconciliation(ctx context.Context, reconciliationID string) (Reconciliation, error) {
	return getReconciliation(ctx, s.DB, reconciliationID)
}

// beginReconciliation opens a reconciliation, or adds its cause to the one that is open. That one begins again if it
// has not listed all that this one would, or has let money leave meanwhile.
func beginReconciliation(ctx context.Context, tx *db.Tx, cause string, now, since time.Time) (r Reconciliation,
	err error) {
	from, err := ListedSinceUS(ctx, tx, now)
	if err != nil {
		return r, err
	}
	if !since.IsZero() {
		from = min(from, since.UnixMicro())
	}
	fresh := Reconciliation{
		ID:        id.New(reconciliationPrefix, now),
		Cause:     cause,
		SinceUS:   from,
		Stage:     stages[0],
		CreatedUS: now.UnixMicro(),
	}
	if cause == causeUnknown || cause == causeRestored {
		fresh.waits = 1
	}
	r, err = insertReconciliation(ctx, tx, fresh)
	if err != nil || r.ID == fresh.ID {
		return r, err
	}
	rank := func(cause string) int {
		return slices.Index([]string{causeDaily, causeAsked, causeUnknown, causeRestored}, cause)
	}
	if fresh.SinceUS >= r.SinceUS && fresh.waits <= r.waits && rank(cause) <= rank(r.Cause) {
		return r, nil
	}
	if rank(cause) > rank(r.Cause) {
		r.Cause = cause
	}
	r.SinceUS, r.waits, r.Stage, r.after = min(r.SinceUS, fresh.SinceUS), max(r.waits, fresh.waits), stages[0], ""
	r.CreatedUS = fresh.CreatedUS
	return r, restartReconciliation(ctx, tx, r)
}

// ListedSinceUS returns from when on the books may not know what Stripe has: some days before the last reconciliation.
func ListedSinceUS(ctx context.Context, q db.Queryer, now time.Time) (int64, error) {
	last, err := newestReconciliation(ctx, q)
	if errors.Is(err, sql.ErrNoRows) {
		return now.Add(-firstLookBack).UnixMicro(), nil
	}
	return time.UnixMicro(last.CreatedUS).Add(-lookBack).UnixMicro(), err
}

// Reconcile begins the daily reconciliation when it is due, and goes on with the one that is open, unless another node
// does. Every node may run it. It also raises alarms about the endpoint of events, and about what waits for a Stripe
// that is no longer configured.
func (s *Store) Reconcile(ctx context.Context) error {
	if !s.IsConfigured() {
		return s.reportUnfinished(ctx)
	}
	if err := s.account.Check(ctx); errors.Is(err, stripeapi.ErrOtherAccount) {
		return err // it has nothing of what the books have
	}
	if err := s.checkSignatures(ctx); err != nil {
		return err
	}
	if err := s.beginDueReconciliation(ctx); err != nil {
		return fmt.Errorf("topups: reconciliation: %w", err)
	}
	now := s.Now()
	r, err := claimReconciliation(ctx, s.DB, now.UnixMicro(), now.Add(reconciliationClaim).UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	} else if err != nil {
		return fmt.Errorf("topups: reconciliation: %w", err)
	}
	err = s.compareAll(ctx, &r)
	if errors.Is(err, errClaimLost) {
		return nil
	}
	r.Error = ""
	if err != nil {
		r.Error = err.Error()
		if stripeapi.Sort(err).Outcome == stripeapi.Gone { // Stripe does not know the object to go on after
			r.after = ""
		}
		s.Metrics.RaiseAlarm("reconciliation_waits", "stripe")
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endReconciliationFor)
	defer cancel()
	save := endReconciliation
	if r.Stage != "" {
		save = func(ctx context.Context, q db.Execer, r *Reconciliation) error {
			return saveReconciliation(ctx, q, r, s.Now().Add(reconciliationRetry).UnixMicro())
		}
	}
	r.EndedUS = s.Now().UnixMicro()
	if saved := save(ending, s.DB, &r); !errors.Is(saved, errClaimLost) {
		err = errors.Join(err, saved)
	}
	if err == nil {
		s.Log.Info("reconciled with stripe", "cause", r.Cause, "compared", r.Compared, "booked", r.Booked,
			"unbooked", r.Unbooked)
	}
	return err
}

// beginDueReconciliation begins the one that follows a restore, or that of the day.
func (s *Store) beginDueReconciliation(ctx context.Context) error {
	restored, err := settings.Get(ctx, s.DB, settings.Restored)
	if err != nil {
		return err
	}
	if restored != "" {
		return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			if restored, err = settings.Lock(ctx, tx, settings.Restored); err != nil || restored == "" {
				return err
			}
			_, err := beginReconciliation(ctx, tx, causeRestored, s.Now(), time.Time{})
			return errors.Join(err, settings.Set(ctx, tx, settings.Restored, ""))
		})
	}
	open, err := hasOpenReconciliation(ctx, s.DB, 0)
	if err != nil || open {
		return err
	}
	last, err := newestReconciliation(ctx, s.DB)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	} else if err == nil && s.Now().UnixMicro() < last.CreatedUS+reconciliationPause.Microseconds() {
		return nil
	}
	return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := beginReconciliation(ctx, tx, causeDaily, s.Now(), time.Time{})
		return err
	})
}

// compareAll compares the rest of the stages.
func (s *Store) compareAll(ctx context.Context, r *Reconciliation) error {
	for r.Stage != "" {
		if err := s.compareStage(ctx, r); err != nil {
			return err
		}
		next := slices.Index(stages, r.Stage) + 1
		if r.after = ""; next == len(stages) {
			r.Stage = ""
			return nil
		}
		r.Stage = stages[next]
		if err := s.saveProgress(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) compareStage(ctx context.Context, r *Reconciliation) error {
	switch r.Stage {
	case "payments":
		return s.compareUnsettled(ctx, r)
	case "charges":
		return s.compareList(ctx, r, s.listCharges(ctx, r), knownPayments)
	case "refunds":
		return s.compareList(ctx, r, s.listAllRefunds(ctx, r), knownRefunds)
	case "disputes":
		return s.compareList(ctx, r, s.listAllDisputes(ctx, r), knownDisputes)
	case "transfers":
		return s.compareTransfers(ctx, r)
	case "plans":
		return s.turnOffPlans(ctx, r)
	}
	return nil // of a later version
}

// saveProgress stores how far a reconciliation is.
func (s *Store) saveProgress(ctx context.Context, r *Reconciliation) error {
	return saveReconciliation(ctx, s.DB, r, s.Now().Add(reconciliationClaim).UnixMicro())
}

// compareUnsettled asks about the payments whose refunds or disputes have not ended for sure.
func (s *Store) compareUnsettled(ctx context.Context, r *Reconciliation) error {
	for {
		page, err := listUnsettled(ctx, s.DB, r.after, s.Now().Add(-refundsMayFail).UnixMicro(), comparedTogether)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, paymentID := range page {
			c, err := getCheckout(ctx, s.DB, paymentID)
			if err == nil && (c.SessionID != "" || c.IntentID != "") {
				is, failed := s.reconcile(ctx, c, noChange)
				err = s.count(r, paymentID, is.changed, 0, failed)
			} else if errors.Is(err, sql.ErrNoRows) {
				err = nil
			}
			if err != nil {
				return err
			}
			r.after = paymentID
			if err := s.saveProgress(ctx, r); err != nil {
				return err
			}
		}
	}
}

// count counts what became of an object that was compared. What the books cannot take is an alarm and no error, so that
// the rest is compared.
func (s *Store) count(r *Reconciliation, of string, changed bool, createdUS int64, err error) error {
	r.Compared++
	var bad *refused
	switch {
	case errors.As(err, &bad), stripeapi.Sort(err).Outcome == stripeapi.Gone:
		r.Unbooked++
		s.Log.Error("stripe has what the books cannot take", "object", of, "error", err)
		s.Metrics.RaiseAlarm("reconciliation_unbooked", "stripe")
		return nil
	case err != nil:
		return err
	case !changed:
		return nil
	}
	r.Booked++
	if createdUS < s.Now().Add(-eventsTake).UnixMicro() {
		s.Log.Error("stripe had what the books did not", "object", of)
		s.Metrics.RaiseAlarm("reconciliation_booked", "stripe")
	}
	return nil
}

// turnOffPlans turns automatic top-up off after a restore, and tells the users. A plan that its user has agreed to
// since stays on.
func (s *Store) turnOffPlans(ctx context.Context, r *Reconciliation) error {
	if r.Cause != causeRestored {
		return nil
	}
	for {
		page, err := listPlansBefore(ctx, s.DB, r.CreatedUS, comparedTogether)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, accountID := range page {
			err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				p, err := lockPlan(ctx, tx, accountID)
				if err != nil || !p.On || p.Since >= r.CreatedUS {
					return err
				}
				return errors.Join(turnOff(ctx, tx, accountID, offRestored),
					s.sendMail(ctx, tx, accountID, s.turnedOffEmail(p, offRestored)))
			})
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		if err := s.saveProgress(ctx, r); err != nil {
			return err
		}
	}
}

// checkSignatures raises an alarm when all events of an hour had wrong signatures, while there are payments of which
// events may come.
func (s *Store) checkSignatures(ctx context.Context) error {
	since, now := s.badSinceUS.Load(), s.Now()
	if since == 0 || now.UnixMicro()-since < time.Hour.Microseconds() {
		return nil
	}
	good, err := hasEventSince(ctx, s.DB, since)
	if err != nil {
		return err
	}
	open, err := hasCheckoutSince(ctx, s.DB, now.Add(-firstLookBack).UnixMicro())
	if err != nil {
		return err
	}
	if open && !good {
		s.Log.Error("no event of stripe has a right signature", "since", time.UnixMicro(since))
		s.Metrics.RaiseAlarm("webhook_signatures", "stripe")
	}
	s.badSinceUS.CompareAndSwap(since, 0) // the next alarm is due after another hour
	return nil
}

// reportUnfinished raises an alarm about what waits for Stripe after its key was removed.
func (s *Store) reportUnfinished(ctx context.Context) error {
	n, err := countUnfinished(ctx, s.DB)
	if err != nil || n == 0 {
		return err
	}
	if last := s.reportedUS.Load(); s.Now().UnixMicro()-last < time.Hour.Microseconds() ||
		!s.reportedUS.CompareAndSwap(last, s.Now().UnixMicro()) {
		return nil
	}
	s.Log.Error("refunds and charges wait for stripe, which is not configured", "count", n)
	s.Metrics.RaiseAlarm("stripe_missing", "stripe")
	return nil
}

// A listedObject is an object of one of Stripe's lists.
type listedObject struct {
	id, key   string // key: what the books say of it, if they know it
	createdUS int64
	intent    *stripe.PaymentIntent
}
