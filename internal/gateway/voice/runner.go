package voice

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/retry"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
)

const (
	tickInterval = 250 * time.Millisecond
	maxEvents    = 64 // that may wait for a session
)

// node is what the sessions of this node share.
type node struct {
	store    *Store
	provider *Provider
	biller   *biller
	memory   Memory
	freeRate *callers.FreeRate // nil = none
	log      *slog.Logger

	lease nodeLease

	maxSilence atomic.Int64 // a time.Duration; tests shorten it

	work      sync.WaitGroup  // the goroutines of all sessions
	abandoned context.Context // ends when the node no longer waits for its sessions
	abandon   context.CancelFunc
}

// runner runs one session on this node: it feeds the rules with events and carries out their
// actions. What stops a call goes out at once. The books are kept beside it, in their order: the saver
// saves the state, and billing gives the ledger what follows from a state that is saved.
type runner struct {
	node   *node
	id     string
	config session.Config // as the session was created, as is relayAll

	relayAll bool

	terms   *billingTerms
	billing *billing
	saver   *saver
	events  chan datedEvent
	state   session.State // only run uses it, as it does turnedAt
	// turnedAt is when the session's loop last turned.
	turnedAt time.Time

	stopped    chan struct{}   // closed when the session has ended, or another node owns it
	ctx        context.Context // ends with stopped, and when the node abandons its sessions
	cancel     context.CancelFunc
	attached   chan struct{} // closed when the sideband is attached for the first time
	attachOnce sync.Once

	mu       sync.Mutex
	provider *providerLink
	control  *controlChannel
}

// mayOrder reports whether this node may give the provider orders for its sessions: no other node can own them. While
// the database does not answer, no other node is known to, and stopping a call must not wait (F-98). On SQLite there is
// no other node.
func (n *node) mayOrder() bool {
	return n.store.DB.Engine == db.SQLite || n.lease.isCurrent(n.store.passing()) || n.lease.lasts(renewTimeout)
}

// providerLink is the way to the provider: the sideband, or the mock voice.
type providerLink struct {
	send  func(event []byte) error
	close func()
}

// datedEvent is an event with the time when this node received it.
type datedEvent struct {
	session.Event
	at time.Time
}

// newRunner returns a runner for a session that this node owns.
func newRunner(n *node, saved savedSession) *runner {
	r := &runner{
		node:     n,
		id:       saved.State.ID,
		config:   saved.State.Config,
		relayAll: saved.State.RelayAll,
		terms:    &saved.Terms,
		events:   make(chan datedEvent, maxEvents),
		state:    saved.State,
		stopped:  make(chan struct{}),
		attached: make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancel(n.abandoned)
	r.saver = &saver{
		store:     n.store,
		sessionID: r.id,
		log:       n.log,
		spawn:     n.work.Go,
		abandoned: n.abandoned,
		lost:      r.loseSession,
		stopped:   r.stopped,
	}
	r.billing = &billing{
		biller:    n.biller,
		saver:     r.saver,
		sessionID: r.id,
		terms:     r.terms,
		isMock:    saved.State.Mock,
		post:      r.postEvent,
		stopped:   r.stopped,
		spawn:     n.work.Go,
		held:      map[int64]rules.Call{},
		chargedMC: saved.State.ChargedMC,
	}
	if saved.FirstCall != nil {
		r.billing.held[1] = *saved.FirstCall
	}
	return r
}

// postEvent gives the session an event, and reports whether the session still runs here.
func (r *runner) postEvent(e session.Event) bool {
	select {
	case r.events <- datedEvent{e, r.node.store.Now()}:
		return true
	case <-r.stopped:
		return false
	}
}

// postProviderEvent gives the session an event of the provider. It reports as post does. Malformed
// events are ignored.
func (r *runner) postProviderEvent(data []byte) bool {
	data = r.scrubErrors(data)
	e, ok := session.ParseProviderEvent(data)
	if r.relayAll {
		e.RelayAll(removeSpeech(data))
	}
	return !ok || r.postEvent(e)
}

// run feeds the rules until the session has ended, or another node owns it.
func (r *runner) run() {
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	for r.state.Status != session.Ended {
		select {
		case e := <-r.events:
			r.step(e)
		case <-ticker.C:
			r.tick()
		case <-r.stopped:
			r.settleHeard()
			return
		}
	}
	r.closeBooks()
}

// tick lets time pass, unless an event waits, which came earlier.
func (r *runner) tick() {
	if !r.awaitLease() {
		return
	}
	limit := time.Duration(r.node.maxSilence.Load())
	now := r.node.store.Now()
	if r.node.lease.lasts(limit) || r.saver.lasts(limit) {
		r.step(datedEvent{session.DatabaseSilent{}, now})
	}
	if len(r.events) == 0 {
		r.step(datedEvent{session.Tick{LeaseOver: !r.node.lease.isCurrent(r.node.store.passing())}, now})
	}
}

// standstill is longer than a turn of a session's loop takes unless the whole node stood still.
const standstill = 8 * tickInterval

// awaitLease waits until this node may give orders: a node that stood still for longer than its lease judges no event,
// and sends nothing, before it knows whether the session is still its own. It returns false if it is not.
func (r *runner) awaitLease() bool {
	for {
		now := time.Now()
		if !r.turnedAt.IsZero() && now.Sub(r.turnedAt) > standstill {
			r.node.lease.restart()
			r.saver.restart()
		}
		r.turnedAt = now
		if r.node.mayOrder() {
			return true
		}
		select {
		case <-r.stopped:
			return false
		case <-time.After(tickInterval):
		}
	}
}

// step gives the rules an event and carries out what they ask for.
func (r *runner) step(e datedEvent) {
	if !r.awaitLease() {
		r.settleEvent(e)
		return
	}
	var actions []session.Action
	r.state, actions = session.Step(r.state, e.Event, e.at)
	for _, a := range actions {
		r.carryOut(a)
	}
}

// settleHeard gives the ledger what this node has received of a session that another node owns now.
// The other node may have received it, too: a reply is charged once, by its id.
func (r *runner) settleHeard() {
	for {
		select {
		case e := <-r.events:
			r.settleEvent(e)
		default:
			return
		}
	}
}

// settleEvent gives the rules an event of a session that another node owns, and carries out nothing but charges.
func (r *runner) settleEvent(e datedEvent) {
	var actions []session.Action
	r.state, actions = session.Step(r.state, e.Event, e.at)
	for _, a := range actions {
		if settle, ok := a.(session.Settle); ok {
			r.billing.enqueue(settle)
		}
	}
}

// stopSession stops the session on this node: it has ended, or another node owns it.
func (r *runner) stopSession() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.stopped:
	default:
		close(r.stopped)
		r.cancel()
	}
}

// close stops the session and closes its sockets. run has returned.
func (r *runner) close() {
	r.stopSession()
	r.mu.Lock()
	provider, control := r.provider, r.control
	r.provider, r.control = nil, nil
	r.mu.Unlock()
	if provider != nil {
		provider.close()
	}
	if control != nil {
		control.closeAfter(r.state.Status == session.Ended)
	}
}

func (r *runner) carryOut(a session.Action) {
	switch a := a.(type) {
	case session.Persist:
		r.saver.save(savedSession{State: r.state, Terms: *r.terms})
	case session.Hold, session.Settle, session.Release:
		r.billing.enqueue(a)
	case session.ToProvider:
		r.sendToProvider(a.Event)
	case session.ToApp:
		if a.Saved {
			r.holdControl()
		}
		r.sendToApp(a.Event)
	case session.AttachSideband:
		callID := r.state.CallID // only this goroutine may read the state
		r.node.work.Go(func() { r.superviseCall(callID, a.Again) })
	case session.CheckSpending:
		r.node.work.Go(r.checkSpending)
	case session.Unmetered:
		r.reportUnmetered(a)
	case session.HangUp:
		r.hangUp()
	case session.Finish: // run closes the books
	}
}

// checkSpending reads whether the session's connection may spend, and halts the session if not. A
// database that does not answer lets no reply of the app begin.
func (r *runner) checkSpending() {
	reason, err := retryUnavailable(r.ctx, func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, r.node.store.DB.Limit(holdTimeout))
		defer cancel()
		return r.node.store.haltReason(ctx, r.id)
	})
	switch {
	case err != nil:
		if r.ctx.Err() == nil {
			r.node.log.ErrorContext(r.ctx, "voice spending check failed", "session_id", r.id, "error", err)
		}
	case reason != "":
		r.postEvent(session.Halt{Reason: reason})
	default:
		r.postEvent(session.MaySpend{})
	}
}

// gapAlarm is how long a call is without a sideband before that is an alarm: attaching one again takes
// less.
const gapAlarm = 2 * time.Second

// reportUnmetered counts speech that is in no bill, and tells the operator.
func (r *runner) reportUnmetered(u session.Unmetered) {
	r.node.biller.metrics.CountUnmeteredSpeech(r.terms.Model, u.Gap, u.AudioTokens)
	if u.Gap < gapAlarm && u.AudioTokens == 0 && u.Event == "" {
		return
	}
	r.node.biller.metrics.RaiseAlarm("voice speech unmetered", r.terms.Model)
	r.node.log.Error("voice speech unmetered", "session_id", r.id, "gap_ms", u.Gap.Milliseconds(),
		"audio_tokens", u.AudioTokens, "unreadable_event", u.Event)
}

// loseSession stops the session here, because another node owns it. The call is left to that node.
func (r *runner) loseSession() {
	r.node.log.Warn("voice session lost to another node", "session_id", r.id)
	r.stopSession()
}

// closeBooks writes the end of a session, after all that the ledger has still to do. Events that come
// meanwhile are dropped: nothing may wait for the database with them.
func (r *runner) closeBooks() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.billing.drain()
		r.saver.close()
		r.finishSession(context.Background())
	}()
	for {
		select {
		case <-r.events:
		case <-closed:
			return
		}
	}
}

func (r *runner) sendToProvider(event any) {
	r.mu.Lock()
	link := r.provider
	r.mu.Unlock()
	if link == nil {
		return
	}
	if err := link.send(mustJSON(event)); err != nil {
		link.close() // its reader reports the loss to the session
	}
}

// sendToApp sends an event to the app, if its control channel is open.
func (r *runner) sendToApp(event any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.control != nil {
		r.control.queueEvent(mustJSON(event))
	}
}

// maxControlHold is how long the app's events wait for the database at most.
const maxControlHold = 2 * time.Second

// holdControl keeps back what is sent to the app until the newest state is saved.
func (r *runner) holdControl() {
	r.mu.Lock()
	c := r.control
	r.mu.Unlock()
	if c == nil {
		return
	}
	c.hold()
	time.AfterFunc(maxControlHold, c.release)
	version := r.saver.version()
	r.node.work.Go(func() {
		r.saver.wait(version)
		c.release()
	})
}

// finishSession writes the end of the session. It repeats that until it succeeds or the node stops;
// then another node ends the session.
func (r *runner) finishSession(ctx context.Context) {
	saved := savedSession{State: r.state, Terms: *r.terms}
	saved.State.Forget()
	pauses := retry.Backoff{First: 20 * time.Millisecond, Max: 2 * time.Second}
	for {
		ended, err := r.node.store.finishSession(ctx, &saved)
		switch {
		case err == nil:
			r.sendToApp(session.NewEndedMessage(r.id, r.state.EndReason, ended.ChargedMC, ended.ResponseCount))
			r.node.log.InfoContext(ctx, "voice session ended", "session_id", r.id, "reason", r.state.EndReason,
				"replies", ended.ResponseCount, "charged_mc", ended.ChargedMC)
			return
		case errors.Is(err, errAlreadyEnded):
			return
		}
		r.node.log.ErrorContext(ctx, "voice session end failed", "session_id", r.id, "error", err)
		if !retry.Sleep(r.node.abandoned, pauses.Next()) {
			return
		}
	}
}

// connectProvider makes link the session's way to the provider.
func (r *runner) connectProvider(link *providerLink) {
	r.mu.Lock()
	old := r.provider
	r.provider = link
	r.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// replaceControl makes c the session's control channel.
func (r *runner) replaceControl(c *controlChannel) {
	r.mu.Lock()
	if old := r.control; old != nil {
		old.closeReplaced()
	}
	r.control = c
	r.mu.Unlock()
	r.postEvent(session.ControlUp{})
}

// removeControl notes that c is closed, if it is still the session's control channel.
func (r *runner) removeControl(c *controlChannel) {
	r.mu.Lock()
	current := r.control == c
	if current {
		r.control = nil
	}
	r.mu.Unlock()
	if current {
		r.postEvent(session.ControlDown{})
	}
}
