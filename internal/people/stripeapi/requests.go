package stripeapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/models/metrics"
)

// A Kind is a kind of what is done at Stripe.
type Kind string

// Charges, refunds and transfers move money; the others are made by Requests.Make.
const (
	Charge   Kind = "charge"
	Refund   Kind = "refund"
	Transfer Kind = "transfer"
	Session  Kind = "session"
	Customer Kind = "customer"
	Payee    Kind = "payee"
)

// alarms are raised when something waits, by its kind.
var alarms = map[Kind]string{Charge: "charge_waits", Refund: "refund_waits", Transfer: "payout_waits"}

// What the terms of a request say, before Stripe is asked. The last two are outcomes of a request, too.
const (
	Wanted    Outcome = "wanted"
	Unwanted  Outcome = "unwanted"  // its terms no longer hold, and Stripe has not carried it out: it ends
	Postponed Outcome = "postponed" // something here holds it up, such as a suspension
)

const (
	claimTTL = 5 * time.Minute // longer than the look-up and the request with all tries
	// newAttemptAfter is how long Stripe must not have what was asked for, after it has repeated a stored error, until
	// it is asked under another key.
	newAttemptAfter = time.Hour
	// overdueAfter is how long something may wait without the alarm overdue.
	overdueAfter = time.Hour
)

// ErrClaimed says that another node, or another request, carries the request out at this moment.
var ErrClaimed = errors.New("stripeapi: it is carried out at this moment")

// Requests carry out what moves money at Stripe, and number the attempts of it (decision 126).
type Requests struct {
	DB      *db.DB
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// A Request moves money at Stripe: it charges a card, refunds a payment, or pays a developer. It is stored by its owner
// before, with its terms, which never change.
type Request struct {
	Kind Kind
	ID   string
	// Find asks Stripe whether it has done it.
	Find func(context.Context) (bool, error)
	// Check reads from the database whether it is still to be done, by its own state and by all terms of now: Wanted,
	// Unwanted or Postponed.
	Check func(context.Context) (Outcome, error)
	// Create asks Stripe to do it, once: when a client repeats a try that was cut, Stripe may refuse the second one for
	// our pace and have done the first.
	Create func(ctx context.Context, idempotencyKey string) error
	// Judge asks Stripe what an answer of Ours, NotNow or Gone does not say by itself, such as whether a card is still
	// there, and returns what the answer means. nil = it means what Sort says. A look-up that was refused is not
	// judged: an earlier try may have done what it looks for.
	Judge func(context.Context, Answer) (Answer, error)
	// End records in one transaction how the request has ended: Done, Refused, Gone or Unwanted. forget is a part of
	// the transaction.
	End func(ctx context.Context, a Answer, forget Forget) error
}

// Forget ends the claim of a request that has ended, in the transaction that records the end. So no crash separates the
// two: a request that is forgotten and has not ended would begin again with the first key. It returns ErrClaimed if the
// claim is lost and Stripe has not done it: then another node may be asking Stripe, and the end must not be recorded.
type Forget func(context.Context, *db.Tx) error

// Do carries out a request, if Stripe has not done so already and it is still wanted. It may be repeated by any node,
// and must be, until the outcome is Done, Refused, Gone or Unwanted: these end a request, and the claim is held until
// its owner has recorded the end. Stripe repeats a stored answer to the same key for a day and then forgets the key. So
// every attempt has the same key, until Stripe has repeated an error and then has nothing for an hour: only then a new
// key does something else than before, and nothing twice.
func (q *Requests) Do(ctx context.Context, r Request) (Answer, error) {
	now := q.Now()
	c, err := claimRequest(ctx, q.DB, r.Kind, r.ID, now.UnixMicro(), now.Add(claimTTL).UnixMicro())
	if err != nil {
		return Answer{}, fmt.Errorf("stripeapi: claim of %s %s: %w", r.Kind, r.ID, err)
	}
	a, err := q.attempt(ctx, r, &c)
	if err == nil {
		err = q.record(ctx, r, c, a)
	}
	if err != nil { // also when the node stops: the next run shall not wait for the end of the claim
		return a, errors.Join(err, releaseClaim(context.WithoutCancel(ctx), q.DB, c))
	}
	return a, nil
}

// attempt asks Stripe under a claim.
func (q *Requests) attempt(ctx context.Context, r Request, c *claim) (Answer, error) {
	if found, err := r.Find(ctx); err != nil {
		a := sortLookUp(err)
		if a.Outcome == Gone {
			a = q.judge(ctx, r, a)
		}
		return a, nil
	} else if found {
		return Answer{Outcome: Done}, nil
	}
	if terms, err := r.Check(ctx); err != nil {
		return Answer{}, fmt.Errorf("stripeapi: terms of %s %s: %w", r.Kind, r.ID, err)
	} else if terms != Wanted {
		return Answer{Outcome: terms}, nil
	}
	now := q.Now()
	if c.ReplayedUS > now.UnixMicro() { // by a clock that was ahead: the hour begins now
		c.ReplayedUS = now.UnixMicro()
	}
	if c.ReplayedUS > 0 {
		if now.UnixMicro() < c.ReplayedUS+newAttemptAfter.Microseconds() {
			return q.judge(ctx, r, Answer{Outcome: c.Outcome, Text: c.Text}), nil
		}
		c.Attempt, c.ReplayedUS = c.Attempt+1, 0
	}
	c.UntilUS = now.Add(claimTTL).UnixMicro()
	if mine, err := renewClaim(ctx, q.DB, *c); err != nil || !mine {
		return Answer{}, errors.Join(err, ErrClaimed)
	}
	a := Sort(r.Create(ctx, makeKey(r.ID, c.Attempt)))
	if a.Replayed && a.Outcome != Done {
		c.ReplayedUS = q.Now().UnixMicro()
	}
	return q.judge(ctx, r, a), nil
}

// sortLookUp sorts a look-up that fails. It says nothing about what was looked for.
func sortLookUp(err error) Answer {
	a := Sort(err)
	if a.Outcome == Refused || a.Outcome == NotNow {
		a.Outcome = Unknown
	}
	return a
}

// makeKey returns the idempotency key of an attempt. The first has the key of earlier versions.
func makeKey(id string, attempt int64) string {
	if attempt == 1 {
		return id
	}
	return id + ":" + strconv.FormatInt(attempt, 10)
}

// judge returns what an answer means by the owner's question. Nothing is gone whose owner could not ask.
func (q *Requests) judge(ctx context.Context, r Request, a Answer) Answer {
	if r.Judge == nil || a.Outcome != Ours && a.Outcome != NotNow && a.Outcome != Gone {
		return a
	}
	judged, err := r.Judge(ctx, a)
	if err == nil {
		return judged
	}
	if a.Outcome == Gone {
		a.Outcome = Ours
	}
	a.Text += "; " + err.Error()
	return a
}

// record records what Stripe has answered: the end of the request, or why it waits.
func (q *Requests) record(ctx context.Context, r Request, c claim, a Answer) error {
	switch a.Outcome {
	case Done, Refused, Gone, Unwanted:
		if err := r.End(ctx, a, c.forget(a.Outcome == Done)); err != nil {
			return fmt.Errorf("stripeapi: end of %s %s: %w", c.Kind, c.ID, err)
		}
		return releaseClaim(context.WithoutCancel(ctx), q.DB, c) // of one that has not ended after all
	}
	ctx = context.WithoutCancel(ctx) // Stripe has answered: also a node that stops remembers it
	if a.Outcome == Postponed {      // it waits for nobody but us here
		return saveWait(ctx, q.DB, c, false, q.Now().UnixMicro())
	}
	q.Log.Error("stripe has not done it", "kind", c.Kind, "id", c.ID, "outcome", a.Outcome, "answer", a.Text)
	q.Metrics.RaiseAlarm(alarms[c.Kind], "stripe")
	c.Outcome, c.Text = a.Outcome, a.Text
	if err := saveWait(ctx, q.DB, c, a.Outcome != NotNow, q.Now().UnixMicro()); err != nil {
		return fmt.Errorf("stripeapi: wait of %s %s: %w", c.Kind, c.ID, err)
	}
	return nil
}

// forget returns the Forget of a claimed request.
func (c claim) forget(isDone bool) Forget {
	return func(ctx context.Context, tx *db.Tx) error {
		mine, err := deleteClaimed(ctx, tx, c)
		if err == nil && !mine && !isDone {
			err = ErrClaimed
		}
		return err
	}
}

// End forgets a request that Stripe has carried out, as its owner has found out besides, such as by an event, and
// records in the same transaction. A node that carries it out at this moment finds it ended.
func (q *Requests) End(ctx context.Context, tx *db.Tx, kind Kind, id string) error {
	if err := deleteRequest(ctx, tx, kind, id); err != nil {
		return fmt.Errorf("stripeapi: end of %s %s: %w", kind, id, err)
	}
	return nil
}

// Make makes something that moves no money, such as a customer. What is made and not known does no harm, so that a new
// key follows at once when Stripe repeats an error, or has the key with other parameters.
func (q *Requests) Make(ctx context.Context, kind Kind, id, prefix string, create func(key string) error) error {
	n, err := getAttempt(ctx, q.DB, kind, id)
	if err != nil {
		return fmt.Errorf("stripeapi: attempt of %s %s: %w", kind, id, err)
	}
	err = create(makeKey(prefix+id, n))
	if err == nil || !Sort(err).Replayed {
		return err
	}
	if n, err = addAttempt(ctx, q.DB, kind, id, n); err != nil {
		return fmt.Errorf("stripeapi: attempt of %s %s: %w", kind, id, err)
	}
	return create(makeKey(prefix+id, n))
}

// Renew makes the next Make make another one, because what was made is gone.
func (q *Requests) Renew(ctx context.Context, tx *db.Tx, kind Kind, id string) error {
	if err := renewAttempt(ctx, tx, kind, id); err != nil {
		return fmt.Errorf("stripeapi: renew %s %s: %w", kind, id, err)
	}
	return nil
}

// Overdue is a request that has waited for more than an hour.
type Overdue struct {
	Kind    Kind
	ID      string
	Outcome Outcome
	Text    string // Stripe's words
	SinceUS int64
}

// ListOverdue returns what has waited for more than an hour, for us or to know what Stripe has done, the oldest first:
// requests, at most limit, and others that the caller knows of.
func ListOverdue(ctx context.Context, q db.Queryer, now time.Time, limit int, others ...Overdue) ([]Overdue, error) {
	list, err := addWaiting(ctx, q, limit, others)
	return slices.DeleteFunc(list, func(w Overdue) bool { return w.SinceUS > now.Add(-overdueAfter).UnixMicro() }), err
}

// addWaiting adds the requests that wait to others, and sorts them, the oldest first.
func addWaiting(ctx context.Context, q db.Queryer, limit int, others []Overdue) ([]Overdue, error) {
	requests, err := listWaiting(ctx, q, limit)
	if err != nil {
		return nil, fmt.Errorf("stripeapi: overdue: %w", err)
	}
	for _, c := range requests {
		others = append(others, Overdue{c.Kind, c.ID, c.Outcome, c.Text, c.WaitsUS})
	}
	slices.SortStableFunc(others, func(a, b Overdue) int { return cmp.Compare(a.SinceUS, b.SinceUS) })
	return others, nil
}

// maxOverdue bounds the requests that a run names.
const maxOverdue = 100

// ReportOverdue raises an alarm for what has waited for more than an hour, for us or to know what Stripe has done: the
// requests, and others that the caller knows of. It also sets the metric of the longest wait.
func (q *Requests) ReportOverdue(ctx context.Context, others ...Overdue) error {
	now := q.Now()
	list, err := addWaiting(ctx, q.DB, maxOverdue, others)
	if err != nil {
		return err
	}
	longest := time.Duration(0)
	for _, c := range list {
		age := now.Sub(time.UnixMicro(c.SinceUS))
		if longest = max(longest, age); age < overdueAfter {
			continue
		}
		q.Log.Error("stripe has not done it for an hour", "kind", c.Kind, "id", c.ID, "outcome", c.Outcome,
			"age", age.Round(time.Minute).String(), "answer", c.Text)
		q.Metrics.RaiseAlarm("overdue", "stripe")
	}
	q.Metrics.SetStripeAge("waiting", longest)
	return nil
}
