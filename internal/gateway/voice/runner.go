package voice

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// Times of a node's work on its sessions. Another node takes a session over when
// its lease has ended: unwatched audio ends within 15 s (F-86). A node that was only
// late loses no money by that: what it owes, the ledger charges once.
const (
	lease    = 5 * time.Second
	tick     = 250 * time.Millisecond
	patience = 5 * time.Second // how long a hold waits for a database that is away
)

// saved is a session in its row.
type saved struct {
	State session.State
	Book  book
	First *rules.Call `json:",omitempty"` // as it is held, until the browser comes
}

// running is a session that this node runs. Its state belongs to its goroutine.
type running struct {
	h      *Handler
	id     string
	config session.Config // as the session was created
	book   book
	state  session.State
	events chan session.Event
	over   chan struct{} // closed when the session has ended, or is another node's
	here   context.Context
	gone   context.CancelFunc // ends here, as over is closed
	seen   func()             // says that the sideband is there; after the first time it says nothing
	first  <-chan struct{}    // closed by it
	calls  map[int64]rules.Call

	mu      sync.Mutex
	money   []session.Action // for the ledger, in order
	line    *line            // to the provider: the sideband, or the mock
	control *channel         // to the app
}

// line is a way to the provider.
type line struct {
	send  func(event []byte) error
	close func()
}

// start runs a session whose row this node has.
func (h *Handler) start(s saved) *running {
	r := &running{h: h, id: s.State.ID, config: s.State.Config, book: s.Book, state: s.State, events: make(chan session.Event, 64), over: make(chan struct{}), calls: map[int64]rules.Call{}}
	r.here, r.gone = context.WithCancel(h.giveUp)
	first := make(chan struct{})
	r.first, r.seen = first, sync.OnceFunc(func() { close(first) })
	if s.First != nil {
		r.calls[1] = *s.First
	}
	h.mu.Lock()
	if old := h.sessions[s.State.ID]; old != nil { // this node slept, and the session went round
		old.drop()
	}
	h.sessions[s.State.ID] = r
	waited := h.waiting[s.State.ID]
	r.control = waited // from here on another channel may take its place
	delete(h.waiting, s.State.ID)
	h.mu.Unlock()
	h.work.Go(r.run)
	if waited != nil {
		go r.post(session.ControlUp{})
	}
	return r
}

// post gives the session an event, and says whether it is still there.
func (r *running) post(e session.Event) bool {
	select {
	case r.events <- e:
		return true
	case <-r.over:
		return false
	}
}

func (r *running) run() {
	ctx := context.Background()
	clock := time.NewTicker(tick)
	defer clock.Stop()
	defer r.leave()
	for r.state.Status != session.Ended {
		var e session.Event = session.Tick{}
		select {
		case e = <-r.events:
		case <-clock.C:
		case <-r.over:
			return
		}
		next, todo := session.Step(r.state, e, r.h.Now())
		r.state = next
		for _, a := range todo {
			r.do(ctx, a)
		}
	}
}

// leave forgets the session.
func (r *running) leave() {
	r.h.mu.Lock()
	if r.h.sessions[r.id] == r {
		delete(r.h.sessions, r.id)
	}
	r.h.mu.Unlock()
	r.drop()
	r.mu.Lock()
	line, control := r.line, r.control
	r.line, r.control = nil, nil
	r.mu.Unlock()
	if line != nil {
		line.close()
	}
	if control != nil {
		control.end(r.state.Status == session.Ended)
	}
}

// drop stops the session here: it has ended, or is another node's.
func (r *running) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.over:
	default:
		close(r.over)
		r.gone()
	}
}

func (r *running) do(ctx context.Context, a session.Action) {
	switch a := a.(type) {
	case session.Persist:
		r.persist(ctx)
	case session.Hold, session.Settle, session.Release:
		r.owe(a)
	case session.ToProvider:
		r.upstream(a.Event)
	case session.ToApp:
		r.tell(a.Event)
	case session.AttachSideband:
		call := r.state.CallID // the state is read here only
		r.h.work.Go(func() { r.dial(call, a.Again) })
	case session.HangUp:
		r.hangUp(ctx)
	case session.Finish:
		r.finish(ctx, a.Reason)
	}
}

// persist keeps the state. A session whose row is no longer this node's stops here,
// and leaves the call alone: its new node has it.
func (r *running) persist(ctx context.Context) {
	mine, err := r.h.keep(&r.state, string(mustJSON(saved{State: r.state, Book: r.book})))
	if err != nil {
		r.h.Log.ErrorContext(ctx, "a voice session could not be saved; it goes on", "session_id", r.id, "error", err)
	} else if !mine {
		r.h.Log.WarnContext(ctx, "a voice session is another node's now", "session_id", r.id)
		r.drop()
	}
}

func (r *running) upstream(event any) {
	r.mu.Lock()
	line := r.line
	r.mu.Unlock()
	if line == nil {
		return
	}
	if err := line.send(mustJSON(event)); err != nil {
		line.close() // its reader tells the session
	}
}

// tell sends an event to the app, if it listens.
func (r *running) tell(event any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.control != nil {
		r.control.send(mustJSON(event))
	}
}

// hangUp ends the call at the provider. What does not work at once is repeated by
// whichever node comes to it first (F-85).
func (r *running) hangUp(ctx context.Context) {
	r.mu.Lock()
	line := r.line
	r.mu.Unlock()
	if r.state.Mock {
		if line != nil {
			line.close()
		}
		return
	}
	if r.state.CallID == "" {
		return
	}
	call, book := r.state.CallID, r.book
	r.h.work.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := r.h.hangUp(ctx, &book, call); err != nil {
			r.h.Log.WarnContext(ctx, "a call could not be hung up; it is tried again", "session_id", r.id, "error", err)
			return
		}
		if err := r.h.hungUp(ctx, r.id); err != nil {
			r.h.Log.ErrorContext(ctx, "that a call is gone was not saved", "error", err)
		}
	})
}

// finish writes the end, as often as it takes.
func (r *running) finish(ctx context.Context, reason string) {
	kept := saved{State: r.state, Book: r.book}
	kept.State.Config.Instructions, kept.State.Config.Tools, kept.State.QueuedReply = "", nil, nil // the app's words are needed no longer
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		s, err := r.h.finish(ctx, r.id, reason, string(mustJSON(kept)), r.state.Mock)
		switch {
		case err == nil:
			r.tell(session.NewEndedMessage(s.ID, reason, s.ChargedMC, s.ResponseCount))
			r.h.Log.InfoContext(ctx, "voice session ended", "session_id", s.ID, "reason", reason, "replies", s.ResponseCount, "charged_mc", s.ChargedMC)
			return
		case errors.Is(err, errEnded):
			return
		}
		r.h.Log.ErrorContext(ctx, "the end of a voice session could not be saved; it is tried again", "session_id", r.id, "error", err)
		select {
		case <-time.After(pause):
		case <-r.h.giveUp.Done():
			return // another node ends it
		}
	}
}

// owe gives the ledger something to do, after what it has to do for the session
// already.
func (r *running) owe(a session.Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.money = append(r.money, a); len(r.money) == 1 {
		r.h.work.Go(r.pay) // for the moment: a goroutine that waits keeps its stack
	}
}

// pay gives the ledger what the session owes, in order.
func (r *running) pay() {
	for more := true; more; {
		r.mu.Lock()
		a := r.money[0]
		r.mu.Unlock()
		r.payFor(a)
		r.mu.Lock()
		r.money = r.money[1:]
		more = len(r.money) > 0
		r.mu.Unlock()
	}
}

func (r *running) payFor(a session.Action) {
	ctx := context.Background()
	switch a := a.(type) {
	case session.Hold:
		r.post(r.hold(ctx, a))
		select {
		case <-r.over: // taken over meanwhile: its new node may have looked for this hold too early
			r.release(session.Release{N: a.N})
		default:
		}
	case session.Settle:
		r.post(r.settle(ctx, a))
	case session.Release:
		if r.release(a) { // or this node stops, and the next one does it
			r.post(session.Released(a))
		}
	}
}

// again repeats f while the database is away.
func again[T any](ctx context.Context, d time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		v, err := f(ctx)
		if err == nil || !db.IsUnavailable(err) {
			return v, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return v, err
		}
	}
}

// hold asks for the hold of a reply. Whatever refuses it ends the session.
func (r *running) hold(ctx context.Context, a session.Hold) session.Event {
	res, err := again(ctx, patience, func(ctx context.Context) (rules.Result, error) {
		app, err := r.h.app(ctx, &r.book)
		if err != nil {
			return rules.Result{}, err
		}
		if app.Suspended {
			return rules.Result{}, apierr.AppSuspended.On(r.book.ConnectionID, "this app is suspended")
		}
		c, err := r.name(a.N, a.TextTokens, a.AudioTokens)
		if err != nil {
			return rules.Result{}, err
		}
		d, err := r.h.demand(&r.book, &app, c, a.TextTokens, a.AudioTokens, r.h.Now())
		if err != nil {
			return rules.Result{}, err
		}
		return r.h.Ledger.Do(ctx, d)
	})
	if err != nil {
		return session.HoldRefused{N: a.N, Code: r.h.codeOf(ctx, r.id, err)}
	}
	r.calls[a.N] = res.Call
	return session.HoldMade{N: a.N, AmountMC: res.Call.HoldMC}
}

// codeOf is a refusal as an end reason.
func (h *Handler) codeOf(ctx context.Context, sessionID string, err error) string {
	if e, ok := errors.AsType[*apierr.Error](err); ok {
		return e.Code.Name
	}
	h.Log.ErrorContext(ctx, "a hold failed", "session_id", sessionID, "error", err)
	return apierr.Unavailable.Name
}

// name makes the ledger's call of a reply, with the name that it has since it was
// first held.
func (r *running) name(n, text, audio int64) (rules.Call, error) {
	requestID, err := r.h.addReply(r.id, n)
	if err != nil {
		return rules.Call{}, err
	}
	return r.book.call(r.id, n, requestID, text, audio)
}

// called returns the ledger's call of a reply: as it was held here, or by the node
// before, or, without a hold, as it would have been.
func (r *running) called(ctx context.Context, a session.Settle) (rules.Call, error) {
	if c, ok := r.calls[a.N]; ok {
		delete(r.calls, a.N)
		return c, nil
	}
	k := rules.Key{ConnectionID: r.book.ConnectionID, Key: keyOf(r.id, a.N)}
	row, err := store.GetHold(ctx, r.h.DB, k)
	if err == nil && row.State == rules.Open {
		return row.Call, nil
	} else if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return rules.Call{}, err
	}
	return r.name(a.N, a.Usage.TextInput+a.Usage.TextCached+a.Usage.ImageInput+a.Usage.ImageCached, a.Usage.AudioInput+a.Usage.AudioCached)
}

// settle charges a reply, and does not give up while the database is away: the
// provider has been paid for it.
func (r *running) settle(ctx context.Context, a session.Settle) session.Event {
	app, err := r.h.app(ctx, &r.book)
	if err != nil { // it is charged all the same
		r.h.Log.ErrorContext(ctx, "a voice reply is charged without a look at its pace", "session_id", r.id, "n", a.N, "error", err)
	}
	out := session.Settled{N: a.N, ReplyID: a.ReplyID, Usage: a.Usage}
	res, err := again(ctx, time.Minute, func(ctx context.Context) (rules.Result, error) {
		c, err := r.called(ctx, a)
		if err != nil {
			return rules.Result{}, err
		}
		command, err := r.book.charge(&c, a)
		if err != nil {
			return rules.Result{}, err
		}
		if r.h.risky(&app) {
			command.Risk = &r.h.Risk
		}
		return r.h.Ledger.Do(ctx, command)
	})
	if err != nil {
		r.h.Metrics.Alarm("a voice reply could not be billed", r.book.Model)
		r.h.Log.ErrorContext(ctx, "a voice reply could not be billed", "session_id", r.id, "n", a.N, "error", err)
		return out
	}
	if res.Outcome == rules.Fenced {
		return out
	}
	entry := res.Entry
	if res.Outcome == rules.Done {
		if entry, err = store.GetEntry(ctx, r.h.DB, res.Entry.ID); err != nil {
			r.h.Log.ErrorContext(ctx, "a billed voice reply could not be read", "session_id", r.id, "error", err)
			return out
		}
	}
	out.Entry = &entry
	out.FastSpend = res.Connection.WarnedUS > 0 && res.Connection.WarnedUS == entry.CreatedUS
	return out
}

// release gives a hold back, as often as it takes: nobody else looks for a hold of a
// session that has ended. It is false when this node stops first; the next one does it.
func (r *running) release(a session.Release) bool {
	err := until(r.h.giveUp, func(ctx context.Context) error {
		c, ok := r.calls[a.N]
		if !ok {
			row, err := store.GetHold(ctx, r.h.DB, rules.Key{ConnectionID: r.book.ConnectionID, Key: keyOf(r.id, a.N)})
			if errors.Is(err, sql.ErrNoRows) {
				return nil
			} else if err != nil {
				return err
			}
			c = row.Call
		}
		_, err := r.h.Ledger.Do(ctx, rules.Release{Call: c, Attempt: 1})
		if err != nil {
			r.h.Log.ErrorContext(ctx, "a hold could not be released; it is tried again", "session_id", r.id, "n", a.N, "error", err)
		}
		return err
	})
	delete(r.calls, a.N)
	return err == nil
}

// until repeats f until it succeeds, or ctx ends.
func until(ctx context.Context, f func(context.Context) error) error {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// hear gives the session what a provider's socket says, until it ends.
func (r *running) hear(data []byte) bool {
	e, ok := session.ParseProviderEvent(data)
	if !ok {
		return true // ignore malformed events
	}
	return r.post(e)
}

// connect makes l the session's way to the provider.
func (r *running) connect(l *line) {
	r.mu.Lock()
	old := r.line
	r.line = l
	r.mu.Unlock()
	if old != nil {
		old.close()
	}
}
