package voice

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/retry"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/models/pricing"
)

// holdTimeout bounds the tries of a hold while the database is unavailable.
const holdTimeout = 5 * time.Second

// biller gives the holds and charges of sessions to the ledger. The sessions of a node share it.
type biller struct {
	store        *Store
	ledger       *store.Writer
	apps         *apps.Store
	policies     *policies.Book
	metrics      *metrics.Metrics
	developerKey func(ctx context.Context, accountID string) (key string, err error) // nil = no app has one
	log          *slog.Logger
	abandoned    context.Context // ends when the node no longer waits for its sessions
}

// replyCall returns the ledger's call of a reply. Its request id stays the same from its first hold
// on.
func (b *biller) replyCall(t *billingTerms, sessionID string, h session.Hold) (rules.Call, error) {
	requestID, err := b.store.requestIDOf(sessionID, h.N)
	if err != nil {
		return rules.Call{}, err
	}
	return t.ledgerCall(sessionID, requestID, h)
}

// demand returns the ledger's command for the hold of a reply.
func (b *biller) demand(t *billingTerms, app *apps.App, sessionID string, h session.Hold) (rules.Hold, error) {
	c, err := b.replyCall(t, sessionID, h)
	if err != nil {
		return rules.Hold{}, err
	}
	now := b.store.Now()
	d, err := t.demand(b.policies.At(now), app, c, h, now)
	d.NodeID = b.store.NodeID
	return d, err
}

// holdFirst makes the hold of a new session's first reply, decides whose provider key pays the
// provider, and saves both.
func (b *biller) holdFirst(ctx context.Context, saved *savedSession, h session.Hold) error {
	state, terms := &saved.State, &saved.Terms
	app, err := b.apps.Get(ctx, terms.AppID)
	if err != nil {
		return err
	}
	own := ""
	if !state.Mock && app.Tier == tiers.Sandbox && b.developerKey != nil {
		if own, err = b.developerKey(ctx, app.OwnerID); err != nil {
			return err
		}
	}
	made, res, err := b.holdFitting(ctx, terms, &app, state.ID, h, own != "")
	if err != nil {
		return err
	}
	*state, _ = session.Step(*state, made, b.store.Now())
	terms.DeveloperKey, saved.FirstCall = res.UseProviderKey, &res.Call
	if terms.DeveloperKey {
		terms.OwnKey = nameKey(own)
	}
	if err := b.store.saveFirstHold(ctx, saved); err != nil {
		// The row does not know of the hold. If the release fails as well, the session's end releases it.
		_, releaseErr := b.ledger.Do(ctx, rules.Release{Call: res.Call, Attempt: 1})
		return errors.Join(err, releaseErr)
	}
	return nil
}

// holdFitting makes the hold of a reply. It lowers the reply's output limit to what fits under the
// session's max_cost_mc and into the allocation. The error is that of the smallest reply if not even
// that one fits.
func (b *biller) holdFitting(
	ctx context.Context, t *billingTerms, app *apps.App, sessionID string, h session.Hold, hasProviderKey bool,
) (made session.HoldMade, res rules.Result, err error) {
	if made, h, err = t.fitMaxCost(h); err != nil {
		return made, res, err
	}
	for {
		d, err := b.demand(t, app, sessionID, h)
		if err != nil {
			return made, res, err
		}
		d.HasProviderKey = hasProviderKey
		if res, err = b.ledger.Do(ctx, d); err == nil {
			made.AmountMC, made.MaxOutputTokens = res.Call.HoldMC, h.MaxOutputTokens
			return made, res, nil
		}
		remaining, ok := remainingOf(err)
		if !ok {
			return made, res, err
		}
		lower, fitErr := t.fitOutput(h, remaining)
		if fitErr != nil || lower == 0 || lower >= h.MaxOutputTokens {
			return made, res, err
		}
		h.MaxOutputTokens = lower
	}
}

// remainingOf returns what remains of the allocation that refused a hold.
func remainingOf(err error) (money.MC, bool) {
	e, ok := errors.AsType[*apierr.Error](err)
	if !ok || e.Code != apierr.AllocationExhausted {
		return 0, false
	}
	remaining, ok := e.Details["remaining_mc"].(money.MC)
	return remaining, ok
}

// errOverMaxCost says that not even the smallest reply fits under max_cost_mc.
type errOverMaxCost struct{ leastMC money.MC }

func (e errOverMaxCost) Error() string {
	return fmt.Sprintf("max_cost_mc: the shortest reply may cost up to %d mc (%s); allow at least that much",
		e.leastMC, e.leastMC.Display())
}

// fitMaxCost lowers the output limit of a hold to what fits into its budget.
func (t *billingTerms) fitMaxCost(h session.Hold) (made session.HoldMade, fitted session.Hold, err error) {
	made = session.HoldMade{N: h.N}
	if h.BudgetMC == nil {
		return made, h, nil
	}
	limit, err := t.fitOutput(h, *h.BudgetMC)
	if err != nil {
		return made, h, err
	}
	made.NearMaxCost = limit < h.MaxOutputTokens
	if limit == 0 {
		h.MaxOutputTokens = min(smallestOutput, h.MaxOutputTokens)
		least, err := t.holdAmount(h, t.Margin, t.Fee)
		return made, h, cmp.Or(err, error(errOverMaxCost{least}))
	}
	h.MaxOutputTokens = limit
	if !made.NearMaxCost {
		made.NearMaxCost, err = t.mayBeLast(h)
	}
	return made, h, err
}

// mayBeLast reports whether a reply that takes all of its hold leaves no room in its budget for the smallest one after
// it, which reads what it has said and what the user says then.
func (t *billingTerms) mayBeLast(h session.Hold) (bool, error) {
	amount, err := t.holdAmount(h, t.Margin, t.Fee)
	if err != nil {
		return false, err
	}
	next := h
	next.Audio += h.MaxOutputTokens + session.NextSpeechTokens
	next.MaxOutputTokens = min(smallestOutput, h.MaxOutputTokens)
	least, err := t.holdAmount(next, t.Margin, t.Fee)
	return *h.BudgetMC-amount < least, err
}

// billing is the money of one session. A separate goroutine carries out what the rules ask of the
// ledger, in their order, so that the session never waits for the ledger.
type billing struct {
	*biller
	saver     *saver
	sessionID string
	terms     *billingTerms
	isMock    bool
	post      func(session.Event) bool // gives the session an event
	stopped   <-chan struct{}          // closed when the session no longer runs on this node
	spawn     func(func())             // starts a goroutine that the node waits for

	// Of these only runQueue knows.
	held      map[int64]rules.Call // whose hold was made on this node
	chargedMC money.MC             // of the session

	mu    sync.Mutex
	queue []ledgerAction
	empty chan struct{} // closed when the queue is empty; nil = no goroutine waits for that
}

// ledgerAction is a Hold, Settle or Release, which follows from a version of the session's state.
type ledgerAction struct {
	session.Action
	version int64
}

// enqueue adds a Hold, Settle or Release to what the ledger is to do.
func (b *billing) enqueue(a session.Action) {
	version := b.saver.version()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue = append(b.queue, ledgerAction{a, version}); len(b.queue) == 1 {
		b.spawn(b.runQueue) // only while there is work: an idle goroutine would keep its stack
	}
}

// drain waits until the queue is empty. Nothing may be added meanwhile.
func (b *billing) drain() {
	b.mu.Lock()
	if len(b.queue) == 0 {
		b.mu.Unlock()
		return
	}
	b.empty = make(chan struct{})
	b.mu.Unlock()
	<-b.empty
}

// runQueue carries out the queue until it is empty.
func (b *billing) runQueue() {
	for more := true; more; {
		b.mu.Lock()
		a := b.queue[0]
		b.mu.Unlock()
		b.carryOut(a)
		b.mu.Lock()
		b.queue = b.queue[1:]
		if more = len(b.queue) > 0; !more && b.empty != nil {
			close(b.empty)
		}
		b.mu.Unlock()
	}
}

// carryOut carries out an action when the state that it follows from is saved. If another node has
// taken the session over before, a reply that was said is still charged, and no more is held.
func (b *billing) carryOut(a ledgerAction) {
	ctx := context.Background()
	saved := b.saver.wait(a.version)
	switch a := a.Action.(type) {
	case session.Hold:
		if saved {
			b.holdAndReport(ctx, a)
		}
	case session.Settle:
		b.settleAndReport(ctx, a)
	case session.Release:
		if b.releaseHold(a) {
			b.post(session.Released(a))
		}
	}
}

// holdAndReport makes the hold of a reply. A hold of which it is not known whether it was made is
// released: the session ends without it.
func (b *billing) holdAndReport(ctx context.Context, h session.Hold) {
	answer := b.holdReply(ctx, h)
	b.post(answer)
	refused, ok := answer.(session.HoldRefused)
	unknown := ok && refused.Code == session.Unavailable
	select {
	case <-b.stopped: // another node took the session over, and perhaps looked for this hold too early
		unknown = true
	default:
	}
	if unknown {
		b.releaseHold(session.Release{N: h.N})
	}
}

// retryUnavailable repeats f while the database is unavailable, until ctx ends.
func retryUnavailable[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	return retry.Do(ctx, retry.Backoff{First: 20 * time.Millisecond, Max: time.Second}, f, db.IsUnavailable)
}

// holdReply asks for the hold of a reply. Any error refuses it, which ends the session.
func (b *billing) holdReply(ctx context.Context, h session.Hold) session.Event {
	ctx, cancel := context.WithTimeout(ctx, b.store.DB.Limit(holdTimeout))
	defer cancel()
	made, err := retryUnavailable(ctx, func(ctx context.Context) (session.HoldMade, error) {
		app, err := b.apps.Get(ctx, b.terms.AppID)
		if err != nil {
			return session.HoldMade{}, err
		}
		if app.Suspended {
			return session.HoldMade{}, apierr.AppSuspended.On(b.terms.ConnectionID, "this app is suspended")
		}
		made, res, err := b.holdFitting(ctx, b.terms, &app, b.sessionID, b.withinBudget(h), false)
		if err == nil {
			b.held[h.N] = res.Call
		}
		return made, err
	})
	if err != nil {
		return session.HoldRefused{N: h.N, Code: b.refusalCode(ctx, err)}
	}
	return made
}

// withinBudget lowers the budget of a hold by what has been charged since it was asked for, and by what the session's
// other holds may take of it.
func (b *billing) withinBudget(h session.Hold) session.Hold {
	if h.BudgetMC == nil || b.terms.BudgetMC == nil { // sessions of before have only the first
		return h
	}
	left := *b.terms.BudgetMC - b.chargedMC
	for _, c := range b.held {
		left -= c.HoldMC
	}
	left = min(left, *h.BudgetMC)
	h.BudgetMC = &left
	return h
}

// refusalCode returns the end reason that an error of a hold is.
func (b *billing) refusalCode(ctx context.Context, err error) string {
	if e, ok := errors.AsType[*apierr.Error](err); ok {
		return e.Code.Name
	}
	if _, ok := errors.AsType[errOverMaxCost](err); ok {
		return session.MaxCost
	}
	b.log.ErrorContext(ctx, "voice hold failed", "session_id", b.sessionID, "error", err)
	return apierr.Unavailable.Name
}

// settleTimeout bounds one try of a charge, without the ledger's own time.
const settleTimeout = 10 * time.Second

// settleAndReport charges a reply. It repeats that while the database is unavailable and the node runs:
// the provider has been paid for the reply. What the node leaves, the session's next node charges.
func (b *billing) settleAndReport(ctx context.Context, s session.Settle) {
	answer := session.Settled{N: s.N, ReplyID: s.ReplyID, Usage: s.Usage}
	numbered := s
	res, err := retryUnavailable(b.abandoned, func(context.Context) (rules.Result, error) {
		ctx, cancel := context.WithTimeout(ctx, settleTimeout)
		defer cancel()
		var err error
		if numbered.N, err = b.store.numberReply(b.sessionID, s.ReplyID, s.N); err != nil {
			return rules.Result{}, err
		}
		return b.settle(ctx, &numbered)
	})
	if err != nil && b.abandoned.Err() != nil {
		return
	}
	if err != nil {
		b.metrics.RaiseAlarm("a voice reply could not be billed", b.terms.Model)
		b.log.ErrorContext(ctx, "voice settlement failed", "session_id", b.sessionID, "n", s.N, "error", err)
	} else {
		b.readReceipt(ctx, &answer, &res)
		if s.Transcript && res.Shortfall > 0 {
			answer.Exhausted = b.terms.exhaustedBy(&res.Entry)
		}
	}
	if numbered.N != s.N && !s.Unheld { // another node charged the reply by its own number
		b.releaseHold(session.Release{N: s.N})
	}
	b.post(answer)
}

// settle charges a reply once.
func (b *billing) settle(ctx context.Context, s *session.Settle) (rules.Result, error) {
	app, err := b.apps.Get(ctx, b.terms.AppID)
	if db.IsUnavailable(err) {
		return rules.Result{}, err
	} else if err != nil { // it is charged without a look at its risk thresholds
		b.log.ErrorContext(ctx, "voice risk check skipped", "session_id", b.sessionID, "n", s.N, "error", err)
	}
	c, err := b.callToSettle(ctx, &app, s)
	if err != nil {
		return rules.Result{}, err
	}
	policy := b.policies.At(b.store.Now())
	command, err := b.terms.settlement(b.sessionID, &c, s, policy.EmptyAnswersDayMC)
	if err != nil {
		return rules.Result{}, err
	}
	command.Risk = policy.RiskOf(&app)
	res, err := b.ledger.Do(ctx, command)
	if err != nil {
		return res, err
	}
	if s.Silent && res.Outcome == rules.Applied {
		waivedMC := int64(0)
		if res.Waived {
			waivedMC = int64(res.Entry.ProviderCostMC)
		}
		b.metrics.CountEmptyAnswer(b.terms.Provider, b.terms.Model, int64(res.Entry.UserChargeMC), waivedMC)
	}
	delete(b.held, s.N)
	if res.Shortfall > 0 { // the fee takes it (decision 018)
		b.metrics.RaiseAlarm("a voice reply cost more than its bounds", b.terms.Model)
		b.log.ErrorContext(ctx, "voice charge exceeds its bounds", "session_id", b.sessionID, "n", s.N,
			"shortfall_mc", res.Shortfall)
	}
	return res, b.store.saveLateTotals(ctx, b.sessionID)
}

// readReceipt sets the ledger row of a charge in answer. A fenced charge has none.
func (b *billing) readReceipt(ctx context.Context, answer *session.Settled, res *rules.Result) {
	entry := res.Entry
	switch res.Outcome {
	case rules.Fenced:
		return
	case rules.Done: // it was charged before: the result has only the id of its row
		var err error
		if entry, err = store.GetEntry(ctx, b.store.DB, res.Entry.ID); err != nil {
			b.log.ErrorContext(ctx, "voice receipt read failed", "session_id", b.sessionID, "n", answer.N, "error", err)
			return
		}
	}
	answer.Entry = &entry
	b.chargedMC += entry.UserChargeMC
	answer.FastSpend = res.Connection.WarnedUS > 0 && res.Connection.WarnedUS == entry.CreatedUS
}

// callToSettle returns the ledger's call of a reply: as it was held by this node, as another node
// held it, or, without a hold, one that holds nothing, and counts in the same limits. An estimate, and fake money, is
// bounded by what the hold would have been.
func (b *billing) callToSettle(ctx context.Context, app *apps.App, s *session.Settle) (rules.Call, error) {
	if c, ok := b.held[s.N]; ok {
		return c, nil
	}
	h, err := store.GetHold(ctx, b.store.DB, b.terms.ledgerKey(b.sessionID, s.N))
	if err == nil && h.State == rules.Open {
		return h.Call, nil
	} else if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return rules.Call{}, err
	}
	u := &s.Usage
	whole := session.Hold{
		N:          s.N,
		Transcript: s.Transcript,
		VoiceInput: pricing.VoiceInput{
			Text:  u.TextInput + u.TextCached + u.ImageInput + u.ImageCached,
			Audio: u.AudioInput + u.AudioCached,
		},
		MaxOutputTokens: b.terms.MaxOutputTokens,
	}
	held := whole
	if !s.Estimated && !b.isMock {
		held = session.Hold{N: s.N, Transcript: s.Transcript}
	}
	c, err := b.replyCall(b.terms, b.sessionID, held)
	if err != nil {
		return c, err
	}
	return b.countInLimits(app, c, whole)
}

// countInLimits makes the charge of a call that has no hold count in the limits in which its hold would.
func (b *billing) countInLimits(app *apps.App, c rules.Call, h session.Hold) (rules.Call, error) {
	now := b.store.Now()
	d, err := b.terms.demand(b.policies.At(now), app, c, h, now)
	for _, l := range d.Limits {
		if l.Unit != limits.Calls {
			counted := rules.Reservation{Subject: l.Subject, Unit: l.Unit, Window: l.Window}
			c.Reservations = append(c.Reservations, counted)
		}
	}
	return c, err
}

// releaseHold ends a hold without a charge. It repeats that until it succeeds, because nothing else looks
// for the hold of a session that has ended. It returns false if the node stops first: the session's
// next node releases the hold.
func (b *billing) releaseHold(r session.Release) bool {
	released := retryUntil(b.abandoned, func(ctx context.Context) error {
		c, ok := b.held[r.N]
		if !ok {
			h, err := store.GetHold(ctx, b.store.DB, b.terms.ledgerKey(b.sessionID, r.N))
			if errors.Is(err, sql.ErrNoRows) {
				return nil
			} else if err != nil {
				return err
			}
			c = h.Call
		}
		_, err := b.ledger.Do(ctx, rules.Release{Call: c, Attempt: 1})
		if err != nil {
			b.log.ErrorContext(ctx, "voice hold release failed", "session_id", b.sessionID, "n", r.N, "error", err)
		}
		return err
	})
	delete(b.held, r.N)
	return released
}

// retryUntil repeats f until it succeeds. It returns false if ctx ends first.
func retryUntil(ctx context.Context, f func(context.Context) error) (ok bool) {
	_, err := retry.Do(ctx, retry.Backoff{First: 20 * time.Millisecond, Max: 10 * time.Second},
		func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) },
		func(error) bool { return true })
	return err == nil
}
