package session

import "time"

const (
	// MaxReply bounds the length of a reply: none of 4,096 tokens takes longer.
	MaxReply = 2 * time.Minute
	// CancelWait is how long a cancelled reply has to report its usage.
	CancelWait = 2 * time.Second
)

// beginEnd begins the end of the session. The first reason stands. An immediate end turns an end
// after the current reply into an immediate one.
func (m *machine) beginEnd(reason string, immediate bool) {
	if m.Ending == nil {
		m.Ending, m.mustPersist = &Ending{Reason: reason, BegunUS: m.nowUS, DeadlineUS: m.after(MaxReply)}, true
		m.QueuedReply = nil
		if m.Status == Live {
			m.addActions(ToApp{Event: endingMessage{Type: "svc.session.ending", ID: m.ID, Reason: reason}})
			m.mute()
		}
	}
	if immediate && !m.Ending.Immediate {
		m.endAtOnce()
	}
}

// endAtOnce cancels the replies in progress. Those that begin afterwards do not put off the hanging up: a browser may
// ask for one after the other.
func (m *machine) endAtOnce() {
	m.Ending.Immediate, m.Ending.DeadlineUS, m.mustPersist = true, m.after(CancelWait), true
	m.cancelReplies()
}

// mute keeps the provider from beginning a reply when the user has spoken.
func (m *machine) mute() {
	if m.Config.AutoReply {
		m.Config.AutoReply = false
		m.sendMute()
	}
}

// cancelReplies cancels the replies in progress. Each has CancelWait to report its usage.
func (m *machine) cancelReplies() {
	for i := range m.Replies {
		m.cancelReply(&m.Replies[i])
	}
	m.Playback = nil
}

func (m *machine) cancelReply(r *Reply) {
	if r.GiveUpUS == 0 || r.GiveUpUS > m.after(CancelWait) {
		r.GiveUpUS = m.after(CancelWait)
	}
	if m.SidebandAttached {
		m.addActions(ToProvider{map[string]any{
			"type":        "response.cancel",
			"event_id":    m.ownEventID("cancel"),
			"response_id": r.ID,
		}})
	} else {
		r.GiveUpUS = m.nowUS
	}
}
