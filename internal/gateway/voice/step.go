package voice

import (
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger"
	"github.com/purserhq/purser/internal/models/pricing"
)

// Times of the contract and of reliability, F-85…F-93.
const (
	attachIn      = 10 * time.Second // the sideband, after the provider's answer
	redialIn      = 3 * time.Second  // the sideband, after it was lost
	controlGrace  = 10 * time.Second // spec §8, control-lost end delay
	approveIn     = 30 * time.Second // spec §8, block approval window
	cancelIn      = 2 * time.Second  // a reply that we cancelled tells its usage
	hearSlack     = 5 * time.Second  // beyond the length of a reply's audio
	replyIn       = 2 * time.Minute  // no reply of 4,096 tokens takes longer
	missedIn      = 20 * time.Second // a reply of which a gap of the sideband may have hidden the end
	shutdownIn    = 20 * time.Second
	nextUtterance = 30 * time.Second // of the user's speech, which the next hold covers

	audioInPerS  = 10 // tokens a second of the user's speech (provider's documentation)
	audioOutPerS = 20 // tokens a second of the model's speech
	maxResets    = 3  // so many attempts to change the session end it
	maxFailures  = 3
)

// Step is all rules of a session: from what it is and what happened follows what
// it becomes and what is to be done. It does nothing itself, and knows the time
// only as an argument.
func Step(s State, e Event, now time.Time) (State, []Action) {
	m := &machine{State: s.clone(), now: now.UnixMicro()}
	if m.Status != Ended {
		m.on(e)
		m.deadlines()
		m.advance()
	}
	if m.keep {
		m.todo = append([]Action{Persist{}}, m.todo...)
	}
	return m.State, m.todo
}

// machine is one step.
type machine struct {
	State
	now  int64
	todo []Action
	keep bool // something that the next node must know
}

func (m *machine) do(a ...Action) { m.todo = append(m.todo, a...) }

func (m *machine) in(d time.Duration) int64 { return m.now + d.Microseconds() }

// due says whether a time has come; 0 never comes.
func (m *machine) due(us int64) bool { return us > 0 && m.now >= us }

func (m *machine) on(e Event) {
	switch e := e.(type) {
	case TicketUsed:
		m.Used, m.keep = true, true
	case Answered:
		m.answered(e.CallID)
	case NotAnswered:
		m.end(ProviderError, true)
	case Adopted:
		m.adopted()
	case SidebandUp:
		m.watched()
	case SidebandDown:
		m.unwatched(e.Gone)
	case DialFailed:
		m.dialFailed(e.Gone)
	case ControlUp:
		m.controlUp()
	case ControlDown:
		m.Controlled, m.ControlUS, m.keep = false, m.now, true
	case FromApp:
		m.fromApp(e.control)
	case FromProvider:
		m.fromProvider(e.providerEvent, e.Raw)
	case HoldMade:
		if e.N == m.HoldN && m.Hold == Asking {
			m.Hold = Held
		}
	case HoldRefused:
		m.holdRefused(e)
	case Settled:
		m.settled(e)
	case Released:
		if e.N == m.HoldN && m.Hold == Releasing {
			m.Hold = NoHold
		}
	case Halt:
		m.end(e.Reason, true)
	case Shutdown:
		m.end(ServerShutdown, false)
		m.Ending.DueUS = min(m.Ending.DueUS, m.in(shutdownIn))
	case EndAsked:
		m.end(AppEnded, e.Immediate)
	}
}

// answered makes the session live (decisions, Voice).
func (m *machine) answered(callID string) {
	if m.Status != Pending {
		return
	}
	if m.Ending != nil && m.Ending.Closing { // it was ended while the provider answered
		m.CallID, m.keep = callID, true
		m.do(HangUp{})
		return
	}
	m.Status, m.CallID, m.StartedUS, m.ActUS, m.keep = Live, callID, m.now, m.now, true
	m.LostUS = m.now
	if !m.Mock {
		m.do(Dial{})
	}
	m.do(Control{started{Type: "svc.session.started", ID: m.ID, Model: m.Config.Model, Mock: m.Mock, StartedAt: ledger.Timestamp(m.now)}})
}

// adopted goes on with a session whose node has died: what it heard last is known
// as far as that node had kept it. Its hold belongs to the dead node, so it ends.
func (m *machine) adopted() {
	m.Watched, m.Controlled, m.keep = false, false, true
	for _, a := range m.Owed { // what became of these, the ledger knows: it charges a reply once
		m.do(a)
	}
	if m.Hold != NoHold {
		m.Hold = Held // and of this
	}
	for i := range m.Replies {
		m.Replies[i].CutUS = m.now
	}
	for len(m.Replies) > 0 {
		m.bill(0, nil, "")
	}
	if m.Hold == Held {
		m.Hold = Releasing
		m.do(Release{m.HoldN})
	}
	switch {
	case m.Status == Pending && m.Used:
		m.end(ProviderError, true) // whether there is a call is not known
	case m.Mock && m.Status == Live:
		m.end(SidebandLost, true) // its socket was the dead node's
	case m.Status == Live:
		m.LostUS = m.now
		m.do(Dial{Again: true})
	}
	if m.Controlled = false; m.Status == Live && m.ControlUS == 0 && m.EndWithControl {
		m.ControlUS = m.now
	}
}

func (m *machine) watched() {
	if m.Status != Live || m.Ending != nil && m.Ending.Closing {
		return
	}
	again := m.EverWatch
	m.Watched, m.EverWatch, m.LostUS = true, true, 0
	if !m.Mock || again { // events may have been missed: the call says how it is set
		m.restore()
	}
	for i := range m.Replies {
		if r := &m.Replies[i]; r.GiveUpUS == 0 || r.GiveUpUS > m.in(missedIn) {
			r.GiveUpUS = m.in(missedIn)
		}
	}
	if m.Ending != nil && m.Ending.Immediate {
		m.cancelAll()
	}
}

func (m *machine) unwatched(gone bool) {
	if !m.Watched {
		return
	}
	m.Watched, m.LostUS = false, m.now
	if gone || m.Mock {
		m.gone()
		return
	}
	if m.Ending == nil || !m.Ending.Closing {
		m.do(Dial{Again: true})
	}
}

func (m *machine) dialFailed(gone bool) {
	if m.Watched || m.Status != Live {
		return
	}
	if gone && m.EverWatch {
		m.gone()
		return
	}
	m.end(SidebandLost, true)
}

// gone ends a session whose call is no longer there: the browser has left.
func (m *machine) gone() {
	m.end(ClientClosed, true)
	m.cut()
}

// cut bills what runs by our own count: nobody will tell more.
func (m *machine) cut() {
	for len(m.Replies) > 0 {
		m.bill(0, nil, "")
	}
	m.Playing = nil
}

func (m *machine) controlUp() {
	m.Controlled, m.ControlUS, m.keep = true, 0, true
	if m.Status == Live {
		m.do(Control{started{Type: "svc.session.started", ID: m.ID, Model: m.Config.Model, Mock: m.Mock, StartedAt: ledger.Timestamp(m.StartedUS)}})
	}
}

// deadlines ends what has run out of time.
func (m *machine) deadlines() {
	for i := 0; i < len(m.Replies); {
		if r := &m.Replies[i]; m.due(r.GiveUpUS) || m.now >= r.StartedUS+replyIn.Microseconds() {
			m.bill(i, nil, "")
			continue
		}
		i++
	}
	if m.Playing != nil && m.due(m.Playing.UntilUS) {
		m.Playing = nil
	}
	if m.Status == Pending {
		if m.now >= m.TicketUS && !m.Used {
			m.end(TicketExpired, true)
		} else if m.now >= m.TicketUS+answerIn.Microseconds() { // whoever used it would know by now
			m.end(ProviderError, true)
		}
		return
	}
	if m.due(m.BlockUS) {
		m.Barred, m.BlockUS, m.keep = true, 0, true
	}
	idle := m.Idle
	if m.TalkUS > 0 {
		idle *= 3 // somebody may talk for long, but not for ever
	}
	patience := redialIn
	if !m.EverWatch {
		patience = attachIn
	}
	switch {
	case m.now >= m.StartedUS+m.MaxDuration.Microseconds():
		m.end(MaxDuration, true)
	case !m.Watched && m.LostUS > 0 && m.now >= m.LostUS+(patience+time.Second).Microseconds():
		m.end(SidebandLost, true)
	case len(m.Replies) == 0 && m.Playing == nil && m.now >= m.ActUS+idle.Microseconds():
		m.end(IdleTimeout, false)
	case m.EndWithControl && !m.Controlled && m.ControlUS > 0 && m.now >= m.ControlUS+controlGrace.Microseconds():
		m.end(ControlLost, false)
	}
}

// end begins the end of a session. The first reason stands; one that must be
// carried out at once makes a patient end a quick one.
func (m *machine) end(reason string, now bool) {
	if m.Ending == nil {
		m.Ending, m.keep = &Ending{Reason: reason, DueUS: m.in(replyIn)}, true
		m.Wanted = nil
		if m.Status == Live {
			m.do(Control{ending{Type: "svc.session.ending", ID: m.ID, Reason: reason}})
			if !now && m.Watched && m.Config.Speaks {
				m.Config.Speaks = false // nothing new begins while the user hears the last of it
				m.restore()
			}
		}
	}
	if now && !m.Ending.Immediate {
		m.Ending.Immediate, m.keep = true, true
		m.cancelAll()
	}
}

// cancelAll stops the replies in progress. Each has a moment to tell its usage.
func (m *machine) cancelAll() {
	for i := range m.Replies {
		m.cancel(&m.Replies[i])
	}
	m.Playing = nil
}

func (m *machine) cancel(r *Reply) {
	if r.GiveUpUS == 0 || r.GiveUpUS > m.in(cancelIn) {
		r.GiveUpUS = m.in(cancelIn)
	}
	if m.Watched {
		m.do(Upstream{map[string]any{"type": "response.cancel", "response_id": r.ID}})
	} else {
		r.GiveUpUS = m.now
	}
}

// advance does what can be done now: the next hold, a reply that waited for it,
// or the next part of an end.
func (m *machine) advance() {
	if m.Ending != nil {
		m.conclude()
		return
	}
	if m.Barred && m.Hold == Held && len(m.Replies) == 0 {
		m.Hold = Releasing
		m.do(Release{m.HoldN})
	}
	if m.Hold == NoHold && len(m.Owed) == 0 && !m.Barred && !slices.ContainsFunc(m.Replies, func(r Reply) bool { return r.Held }) {
		m.hold()
	}
	if m.Wanted != nil && m.Hold == Held && len(m.Replies) == 0 && m.Watched {
		m.do(Upstream{m.Wanted})
		m.Wanted = nil
	}
}

// hold asks for the next reply's hold: its context is bounded by what the last one
// read and said, all of it read anew, and what came since (wire, D.9).
func (m *machine) hold() {
	m.N++
	m.Hold, m.HoldN, m.keep = Asking, m.N, true
	text, audio := m.bound()
	m.do(Hold{m.N, text, audio})
}

func (m *machine) bound() (text, audio int64) {
	b := m.Bound
	text = b.TextInput + b.TextCached + b.TextOutput + b.ImageInput + b.ImageCached + m.Grown
	audio = b.AudioInput + b.AudioCached + b.AudioOutput + int64((m.Heard+nextUtterance)/time.Second+1)*audioInPerS
	if most := max(m.ContextTokens, 1); text+audio > most { // the provider drops what does not fit
		audio = min(audio, most)
		text = most - audio
	}
	return text, audio
}

// conclude goes on with an end: hear, hang up, settle, finish.
func (m *machine) conclude() {
	e := m.Ending
	if !e.Closing {
		if !e.Immediate && m.Watched && !m.due(e.DueUS) && (len(m.Replies) > 0 || m.Playing != nil) {
			return // the user has not heard all of it
		}
		if m.Status == Live && !m.Watched {
			m.cut()
		}
		if len(m.Replies) > 0 {
			if !e.Immediate {
				e.Immediate = true
				m.cancelAll()
			}
			return // each tells its usage, or is given up
		}
		e.Closing, m.Playing, m.keep = true, nil, true
		if m.Status == Live || m.Used {
			m.do(HangUp{})
		}
	}
	m.cut() // what begins now, nobody asked for
	if m.Hold == Held {
		m.Hold = Releasing
		m.do(Release{m.HoldN})
	}
	if m.Hold == NoHold && len(m.Owed) == 0 {
		m.Status, m.Reason = Ended, e.Reason
		m.do(Finish{e.Reason})
		m.keep = false // Finish keeps it
	}
}

// holdRefused ends the session before its next reply (F-87): a hold's error code
// is an end reason of its own. What is billed already may be heard to its end; a
// reply that began before its hold was refused may not.
func (m *machine) holdRefused(e HoldRefused) {
	if e.N == m.HoldN && m.Hold == Asking {
		m.Hold = NoHold
	}
	for i := range m.Replies {
		m.Replies[i].Held = false
	}
	m.end(e.Code, len(m.Replies) > 0)
}

// bill gives reply i to the ledger: by the provider's usage, or as an estimate of
// what was heard, or not at all if nothing was.
func (m *machine) bill(i int, usage *pricing.VoiceUsage, status string) {
	r := m.Replies[i]
	m.Replies = slices.Delete(m.Replies, i, i+1)
	m.keep = true
	a := Settle{Reply: r.ID}
	if usage != nil && pricing.VoiceUsable(*usage, m.MaxOutputTokens, m.ContextTokens) {
		a.Usage = *usage
		m.Bound, m.Grown, m.Heard = *usage, 0, 0
	} else {
		a.Usage, a.Estimated = m.estimate(&r), true
		m.Grown += a.Usage.Output()
		if status == "failed" || a.Usage.Output() == 0 {
			m.unbilled(&r)
			return
		}
	}
	switch {
	case r.Held && (m.Hold == Held || m.Hold == Asking):
		a.N, m.Hold = m.HoldN, NoHold
	case a.Estimated:
		return // without a hold there is nothing that it may be at most
	default:
		a.Unheld = true
		m.N++
		a.N = m.N
	}
	m.Billed = append(m.Billed, r.ID)
	m.Billed = m.Billed[max(len(m.Billed)-16, 0):]
	m.Owed = append(m.Owed, a)
	m.do(a)
}

// unbilled ends a reply that said nothing.
func (m *machine) unbilled(r *Reply) {
	if r.Held && m.Hold == Held {
		m.Hold = Releasing
		m.do(Release{m.HoldN})
	}
}

// estimate is what the user certainly got of a reply, rounded down: the context as
// the cheapest kind of input, the seconds that were heard, the text that was told.
func (m *machine) estimate(r *Reply) pricing.VoiceUsage {
	u := pricing.VoiceUsage{TextOutput: r.TextBytes / 5}
	if r.AudioUS > 0 {
		until := m.now
		if r.CutUS > 0 {
			until = min(until, r.CutUS)
		}
		u.AudioOutput = max(until-r.AudioUS, 0) * audioOutPerS / 1e6
	}
	if over := u.Output() - m.MaxOutputTokens; over > 0 {
		u.AudioOutput = max(u.AudioOutput-over, 0)
		u.TextOutput = min(u.TextOutput, m.MaxOutputTokens)
	}
	b := m.Bound
	u.TextCached, u.AudioCached = b.TextInput+b.TextCached, b.AudioInput+b.AudioCached
	return u
}

// settled counts a charge, and looks at what it leads to.
func (m *machine) settled(e Settled) {
	before := len(m.Owed)
	m.Owed = slices.DeleteFunc(m.Owed, func(a Settle) bool { return a.N == e.N })
	if m.keep = true; e.Entry == nil || len(m.Owed) == before {
		return
	}
	m.charged(e)
}

// charged counts what a reply cost.
func (m *machine) charged(e Settled) {
	before := m.ChargedMC
	m.ChargedMC += e.Entry.UserChargeMC
	m.Count++
	m.do(Control{settledEvent(m, &e)})
	if m.Ending != nil {
		return
	}
	m.warn(e.Warn)
	m.block(before)
	if m.MaxCostMC != nil && m.ChargedMC >= *m.MaxCostMC {
		m.end(MaxCost, false)
	}
}

// warn tells the app once that most of max_cost_mc is spent, and whenever its
// connection spends fast.
func (m *machine) warn(fast bool) {
	w := warning{Type: "svc.session.spend_warning", ID: m.ID, ChargedMC: m.ChargedMC, ChargedDisplay: m.ChargedMC.Display(), MaxCostMC: m.MaxCostMC}
	if fast {
		w.Reason = "pace"
		m.do(Control{w})
	}
	if m.MaxCostMC != nil && !m.Warned && m.ChargedMC >= *m.MaxCostMC-*m.MaxCostMC/5 {
		m.Warned, w.Reason = true, "max_cost"
		m.do(Control{w})
	}
}

// block tells the app when spend crosses another block, and may ask it to approve.
func (m *machine) block(before money.MC) {
	if m.BudgetBlockMC == nil {
		return
	}
	blocks := int64(m.ChargedMC / *m.BudgetBlockMC)
	if blocks <= m.Blocks {
		return
	}
	m.Blocks = blocks
	c := checkpoint{Type: "svc.session.budget_checkpoint", ID: m.ID, ChargedMC: m.ChargedMC, ChargedDisplay: m.ChargedMC.Display(), BlockMC: *m.BudgetBlockMC, Blocks: blocks}
	if m.ConfirmBlocks {
		m.BlockUS = m.in(approveIn)
		by := ledger.Timestamp(m.BlockUS)
		c.ApprovalRequired, c.ApproveBy = true, &by
	}
	m.do(Control{c})
}
