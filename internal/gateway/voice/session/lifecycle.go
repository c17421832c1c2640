package session

import (
	"time"

	"github.com/purserhq/purser/internal/base/timestamp"
)

// adoptedNumbers are left to the node that had a session before: it may have numbered replies that it
// could not save.
const adoptedNumbers = 1000

// missedDoneWait is how long a reply may go on after the sideband was attached again: the event of its
// end may have been missed.
const missedDoneWait = 20 * time.Second

// callAnswered makes the session live (decision 045).
func (m *machine) callAnswered(callID string) {
	if m.Status != Pending {
		return
	}
	if m.Ending != nil && m.Ending.HungUp { // the session was ended while the provider answered
		m.CallID, m.mustPersist = callID, true
		m.addActions(HangUp{})
		return
	}
	m.Status, m.CallID, m.StartedUS, m.LastActivityUS, m.mustPersist = Live, callID, m.nowUS, m.nowUS, true
	m.SidebandLostUS = m.nowUS
	if !m.Mock {
		m.addActions(AttachSideband{})
	}
	if m.ControlAttached { // a channel that opens later hears of it then
		m.sendStarted()
	}
}

// sendStarted tells the app that the session is live.
func (m *machine) sendStarted() {
	m.addActions(ToApp{Event: startedMessage{
		Type:      "svc.session.started",
		ID:        m.ID,
		Model:     m.Config.Model,
		Mock:      m.Mock,
		StartedAt: timestamp.Format(m.StartedUS),
	}, Saved: true})
	if m.NearMaxCost {
		m.warnOfMaxCost()
	}
}

// adopted continues a session of a dead node from what that node saved. Charges on their way are
// asked for again: the ledger charges a reply once. The replies in progress are billed as estimates,
// and the hold of the next one is released: it belongs to the dead node.
func (m *machine) adopted(sinceUS int64) {
	m.SidebandAttached, m.ControlAttached, m.mustPersist = false, false, true
	m.LastN += adoptedNumbers
	m.Spending = NotChecked
	for _, charge := range m.Unsettled {
		m.addActions(charge)
	}
	if m.Hold != NoHold {
		m.Hold = Held // whether it was made or released, the ledger knows
	}
	for i := range m.Transcripts { // one that comes on the new sideband is charged without a hold
		if t := &m.Transcripts[i]; t.Hold != NoHold {
			t.Hold = Held
		}
	}
	m.giveUpTranscripts(true)
	m.billReplies(false)
	m.releaseHold()
	switch {
	case m.Status == Pending && m.TicketUsed:
		m.beginEnd(ServerShutdown, true) // whether there is a call is not known
	case m.Mock && m.Status == Live:
		m.beginEnd(SidebandLost, true) // the dead node had its socket
	case m.Status == Live:
		m.SidebandLostUS, m.LostCleanly = m.nowUS, false
		if m.UnwatchedUS == 0 && m.EverAttached {
			m.UnwatchedUS = m.nowUS
			if sinceUS > 0 {
				m.UnwatchedUS = max(min(sinceUS, m.nowUS), m.StartedUS)
			}
		}
		m.addActions(AttachSideband{Again: true})
		if m.Ending != nil && m.Ending.HungUp {
			m.addActions(HangUp{})
		}
	}
	if m.Status == Live && m.ControlLostUS == 0 && m.EndOnControlLost {
		m.ControlLostUS = m.nowUS
	}
}

// sidebandUp takes up the supervision of the call.
func (m *machine) sidebandUp() {
	if m.Status != Live {
		return
	}
	again := m.EverAttached
	if again {
		m.forgetMissed()
	}
	m.reportUnwatched()
	m.SidebandAttached, m.EverAttached, m.SidebandLostUS, m.LostCleanly = true, true, 0, false
	m.resendUpdates(!m.Mock || again) // a change may have been missed: our update makes the provider report the session
	for i := range m.Replies {
		if r := &m.Replies[i]; r.GiveUpUS == 0 || r.GiveUpUS > m.after(missedDoneWait) {
			r.GiveUpUS = m.after(missedDoneWait)
		}
	}
	if m.Ending != nil && m.Ending.Immediate {
		m.cancelReplies()
	}
}

// forgetMissed forgets what may have changed while no sideband was attached: where the conversation ends, and whether
// the user still speaks.
func (m *machine) forgetMissed() {
	m.LastItemID, m.SpokenItemID = "", ""
	for i := range m.Transcripts {
		if t := &m.Transcripts[i]; t.GiveUpUS == 0 {
			t.GiveUpUS, m.mustPersist = m.after(transcriptSpeech+transcriptWait), true
		}
	}
}

// reportUnwatched reports the time since which the call has no sideband.
func (m *machine) reportUnwatched() {
	if m.UnwatchedUS > 0 && !m.Mock {
		m.addActions(Unmetered{Gap: time.Duration(m.nowUS-m.UnwatchedUS) * time.Microsecond})
		m.Unheard = true
	}
	m.UnwatchedUS = 0
}

// sidebandDown attaches the sideband again, unless the call is gone.
func (m *machine) sidebandDown(e SidebandDown) {
	if !m.SidebandAttached {
		return
	}
	m.SidebandAttached, m.SidebandLostUS, m.LostCleanly, m.UnwatchedUS = false, m.nowUS, e.Clean, m.nowUS
	switch {
	case e.Gone || m.Mock:
		m.LostCleanly = true
		m.callGone()
	case m.Ending == nil || !m.Ending.HungUp || !e.Clean:
		m.addActions(AttachSideband{Again: true})
	}
}

// callHungUp notes that the provider has ended the call.
func (m *machine) callHungUp() {
	if m.Ending != nil && m.Ending.HungUp {
		m.Ending.CallGone, m.mustPersist = true, true
	}
}

// attachFailed ends a session whose call cannot be supervised.
func (m *machine) attachFailed(gone bool) {
	if m.SidebandAttached || m.Status != Live {
		return
	}
	if gone && m.EverAttached {
		m.callGone()
		return
	}
	m.beginEnd(SidebandLost, true)
}

// callGone ends a session whose call no longer exists. The browser has left if the provider closed
// the sideband as at the end of a call; a sideband that broke first is the provider's failure.
func (m *machine) callGone() {
	reason := ProviderError
	if m.LostCleanly {
		reason = ClientClosed
	}
	m.beginEnd(reason, true)
	m.cutReplies()
	if m.Ending.HungUp {
		m.Ending.CallGone = true
	}
}

// controlUp notes that the app opened its control channel.
func (m *machine) controlUp() {
	m.ControlAttached, m.ControlLostUS, m.mustPersist = true, 0, true
	if m.Status == Live {
		m.sendStarted()
	}
}

// controlDown notes that the app's control channel is closed.
func (m *machine) controlDown() {
	m.ControlAttached, m.ControlLostUS, m.mustPersist = false, m.nowUS, true
}

// shutDown ends the session within shutdownGrace, because its node stops.
func (m *machine) shutDown() {
	m.beginEnd(ServerShutdown, false)
	m.Ending.DeadlineUS = min(m.Ending.DeadlineUS, m.after(ShutdownGrace))
}
