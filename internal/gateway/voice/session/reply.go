package session

import (
	"encoding/json"
	"slices"
	"time"
)

// failed is the status of a reply that the provider could not make.
const failed = "failed"

const (
	// MaxFailures is how many replies in a row the provider may fail before the session ends.
	MaxFailures = 3
	// playbackSlack is how much longer than its audio a reply may be heard.
	playbackSlack = 5 * time.Second
)

// replyCreated notes that a reply began, asked for by the user's speech, by the app, or by the
// browser. The reply takes the current hold.
func (m *machine) replyCreated(r *responseObject) {
	if r == nil || r.ID == "" || m.findReply(r.ID) != nil || slices.Contains(m.BilledIDs, r.ID) {
		return
	}
	if !r.isOutOfBand() { // the conversation has one reply at a time: the end of the last one was missed
		for i := 0; i < len(m.Replies); {
			if m.Replies[i].Held {
				m.billReply(i, nil, "", false)
				continue
			}
			i++
		}
	}
	m.renewHold()
	if !r.isOutOfBand() {
		m.SpokenItemID = ""
	}
	m.Replies = append(m.Replies, Reply{
		ID:        r.ID,
		StartedUS: m.nowUS,
		EventUS:   m.nowUS,
		Held:      !m.hasHeldReply() && (m.Hold == Held || m.Hold == Requested),
		OutOfBand: r.isOutOfBand(),
		AddedText: m.AddedTextTokens,
		Speech:    m.UserSpeech,

		BeginChanges: m.BeginChanges,
	})
	m.LastActivityUS, m.mustPersist = m.nowUS, true
	reply := &m.Replies[len(m.Replies)-1]
	if json.Unmarshal(r.MaxOutputTokens, &reply.MaxOutput) != nil {
		reply.MaxOutput = m.Config.MaxOutputTokens
	}
	m.addActions(CheckSpending{})
	if fields := m.replyOverrides(r); len(fields) > 0 && m.Ending == nil {
		m.cancelReply(reply)
		m.reportReset(fields)
		return
	}
	switch {
	case m.ApprovalMissed:
		m.beginEnd(BudgetNotApproved, true)
	case m.Ending != nil:
		m.cancelReply(reply)
	default:
		m.cancelIfUncovered(reply)
	}
}

// hasHeldReply reports whether a reply in progress has the current hold.
func (m *machine) hasHeldReply() bool {
	return slices.ContainsFunc(m.Replies, func(r Reply) bool { return r.Held })
}

// playbackStarted notes that the user begins to hear a reply.
func (m *machine) playbackStarted(replyID string) {
	m.AudioHeard = true
	if r := m.findReply(replyID); r != nil && r.AudioUS == 0 {
		r.AudioUS, m.mustPersist = m.nowUS, true
	}
}

// playbackEnded notes that the user no longer hears a reply.
func (m *machine) playbackEnded(replyID string) {
	if r := m.findReply(replyID); r != nil && r.SilentUS == 0 {
		r.SilentUS, m.mustPersist = m.nowUS, true
	}
	if m.Playback != nil && m.Playback.ReplyID == replyID {
		m.Playback = nil
	}
	m.LastActivityUS = m.nowUS
}

// textReported counts a part of a reply's text.
func (m *machine) textReported(replyID, text string) {
	if r := m.findReply(replyID); r != nil {
		r.TextBytes += int64(len(text))
	}
}

// replyDone ends and bills a reply. A second event for the same reply changes nothing; one
// whose begin was missed is billed as well.
func (m *machine) replyDone(r *responseObject) {
	if r == nil || r.ID == "" || slices.Contains(m.BilledIDs, r.ID) {
		return
	}
	if m.findReply(r.ID) == nil {
		m.replyCreated(&responseObject{ID: r.ID})
	}
	i := slices.IndexFunc(m.Replies, func(x Reply) bool { return x.ID == r.ID })
	if i < 0 {
		return
	}
	reply, usage := m.Replies[i], readUsage(r.Usage)
	m.LastActivityUS = m.nowUS
	if r.Status == failed {
		m.Failures++
		m.addActions(ToApp{Event: newFailureMessage(r)})
	} else {
		m.Failures = 0
	}
	m.AudioHeard = m.AudioHeard || usage != nil && usage.AudioOutput > 0
	if usage != nil && usage.AudioOutput > 0 && reply.AudioUS > 0 && reply.SilentUS == 0 {
		left := reply.AudioUS + usage.AudioOutput*1e6/AudioOutputPerSecond - m.nowUS
		m.Playback = &Playback{r.ID, m.after(time.Duration(max(left, 0))*time.Microsecond + playbackSlack)}
	}
	m.billReply(i, usage, r.Status, true)
	if m.Failures >= MaxFailures {
		m.beginEnd(ProviderError, true)
	}
}
