package session

import "time"

// Times of contract §8 and of the failure modes F-85 to F-93.
const (
	AnswerTimeout = 20 * time.Second // for the provider's answer to an offer
	AttachTimeout = 10 * time.Second // for the first sideband of a call
	RedialTimeout = 3 * time.Second  // for a sideband that was lost
	ControlGrace  = 10 * time.Second // between the loss of the control channel and the end
	ShutdownGrace = 20 * time.Second // for an end because the node stops
	// SilentReply is how long an end waits for a reply of which no event comes: its end was missed.
	SilentReply = 10 * time.Second
)

// applyReplyDeadlines ends replies, playbacks and approval windows that have run out of time.
func (m *machine) applyReplyDeadlines() {
	deaf := m.Ending != nil && !m.SidebandAttached // completeEnd gives up what is left, too
	for i := 0; i < len(m.Replies); {
		if m.isOverdue(&m.Replies[i]) {
			m.billReply(i, nil, "", deaf)
			continue
		}
		i++
	}
	if m.Playback != nil && m.isDue(m.Playback.UntilUS) {
		m.Playback = nil
	}
	m.giveUpTranscripts(false)
	if m.isDue(m.ApproveByUS) {
		m.ApprovalMissed, m.ApproveByUS, m.mustPersist = true, 0, true
	}
}

// isOverdue reports whether a reply is billed by our own count because its end does not come.
func (m *machine) isOverdue(r *Reply) bool {
	return m.isDue(r.GiveUpUS) || m.nowUS >= r.StartedUS+MaxReply.Microseconds() ||
		m.Ending != nil && m.nowUS >= max(r.EventUS, m.Ending.BegunUS)+SilentReply.Microseconds()
}

// applyDeadlines ends a session that has run out of time.
func (m *machine) applyDeadlines() {
	if m.Status == Pending {
		m.applyPendingDeadlines()
		return
	}
	switch {
	case m.nowUS >= m.StartedUS+m.MaxDuration.Microseconds():
		m.beginEnd(MaxDuration, true)
	case m.sidebandOverdue():
		m.beginEnd(SidebandLost, true)
	case m.isIdle():
		m.beginEnd(IdleTimeout, false)
	case m.controlOverdue():
		m.beginEnd(ControlLost, false)
	}
}

// applyPendingDeadlines ends a session whose ticket has expired, or whose offer was not answered.
func (m *machine) applyPendingDeadlines() {
	if m.nowUS >= m.TicketExpiresUS && !m.TicketUsed {
		m.beginEnd(TicketExpired, true)
	} else if m.nowUS >= m.TicketExpiresUS+AnswerTimeout.Microseconds() {
		m.beginEnd(ProviderError, true)
	}
}

// sidebandOverdue reports whether the sideband is missing for a second longer than attaching it may
// take.
func (m *machine) sidebandOverdue() bool {
	timeout := RedialTimeout
	if !m.EverAttached {
		timeout = AttachTimeout
	}
	return !m.SidebandAttached && m.SidebandLostUS > 0 &&
		m.nowUS >= m.SidebandLostUS+(timeout+time.Second).Microseconds()
}

// isIdle reports whether neither the user nor the model has spoken for the idle timeout. A user who
// is speaking has three times as long: the end of the speech may have been missed.
func (m *machine) isIdle() bool {
	timeout := m.IdleTimeout
	if m.SpeakingUS > 0 {
		timeout *= 3
	}
	return len(m.Replies) == 0 && m.Playback == nil && m.nowUS >= m.LastActivityUS+timeout.Microseconds()
}

// controlOverdue reports whether the session must end because its control channel is lost.
func (m *machine) controlOverdue() bool {
	return m.EndOnControlLost && !m.ControlAttached && m.ControlLostUS > 0 &&
		m.nowUS >= m.ControlLostUS+ControlGrace.Microseconds()
}

// advance does what has become possible: the hold of the next reply, a reply that waited for its
// hold, or the next part of an end.
func (m *machine) advance() {
	if m.Ending != nil {
		m.completeEnd()
		return
	}
	if m.ApprovalMissed && len(m.Replies) == 0 {
		m.releaseHold()
	}
	m.renewHold()
	if m.Hold == NoHold && len(m.Unsettled) == 0 && !m.ApprovalMissed && !m.hasHeldReply() {
		m.requestHold()
	}
	if m.QueuedReply != nil && m.Hold == Held && len(m.Replies) == 0 && m.SidebandAttached {
		m.sendQueuedReply()
	}
}

// completeEnd takes an end as far as it can go: let the user hear the reply, hang up, wait until the
// call is gone, settle, finish. A call that the provider does not end stays watched: the replies that
// begin there are cancelled, and billed.
func (m *machine) completeEnd() {
	e := m.Ending
	if !e.HungUp {
		hearing := len(m.Replies) > 0 || m.Playback != nil
		if hearing && !e.Immediate && m.SidebandAttached && !m.isDue(e.DeadlineUS) {
			return // the user has not heard all of it
		}
		if m.Status == Live && !m.SidebandAttached {
			m.cutReplies()
		}
		if len(m.Replies) > 0 && !e.Immediate {
			m.endAtOnce()
		}
		if len(m.Replies) > 0 && !m.isDue(e.DeadlineUS) {
			return // until each has reported its usage or is given up
		}
		e.HungUp, m.Playback, m.mustPersist = true, nil, true
		if m.Status == Live || m.TicketUsed {
			m.addActions(HangUp{})
		}
	}
	m.releaseHold()
	if !m.callIsOver() {
		return
	}
	m.cutReplies()
	m.giveUpTranscripts(true)
	if m.Hold == NoHold && len(m.Unsettled) == 0 && len(m.Transcripts) == 0 {
		if !m.LostCleanly {
			m.reportUnwatched()
		}
		m.Status, m.EndReason = Ended, e.Reason
		m.addActions(Finish{e.Reason})
		m.mustPersist = false // Finish saves the state
	}
}

// callIsOver reports whether nothing more can be said in the call, or watched: the provider has ended
// it, or its sideband cannot be attached.
func (m *machine) callIsOver() bool {
	return m.Mock || m.Ending.CallGone || m.Status != Live || !m.EverAttached ||
		!m.SidebandAttached && m.LostCleanly || m.sidebandOverdue()
}
