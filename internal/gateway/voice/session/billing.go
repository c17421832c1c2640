package session

import (
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/models/pricing"
)

const (
	// ApprovalWindow is how long an app may take to approve a budget block (contract §8).
	ApprovalWindow = 30 * time.Second
	// nextSpeech is the user's speech that a hold covers beyond what was spoken. Who speaks on for longer is held for
	// again, so that little of a cap is held for speech that does not come.
	nextSpeech = 10 * time.Second

	// AudioInputPerSecond and AudioOutputPerSecond are the tokens of a second of the user's and of
	// the model's speech (OpenAI's documentation).
	AudioInputPerSecond  = 10
	AudioOutputPerSecond = 20

	// NextSpeechTokens are the tokens of nextSpeech.
	NextSpeechTokens = AudioInputPerSecond * int64(nextSpeech/time.Second)

	maxBilledIDs = 32 // so many ids of billed replies and transcripts are remembered

	// MaxReplies is how many replies a session may have. Each that is held for counts, as each leaves a row. Long
	// calls have 600.
	MaxReplies = 3000
)

// requestHold asks for the hold of the next reply, or ends the session as a refused hold does if it has had MaxReplies.
func (m *machine) requestHold() {
	if m.Numbers >= MaxReplies {
		m.holdRefused(HoldRefused{N: m.HoldN, Code: RateLimited})
		return
	}
	m.takeNumber()
	m.Hold, m.HoldN, m.mustPersist = Requested, m.LastN, true
	hold := Hold{N: m.LastN, VoiceInput: m.boundContext(nextSpeech), MaxOutputTokens: m.MaxOutputTokens}
	m.HoldText, m.HoldAudio = hold.Text, hold.Audio
	hold.BudgetMC = m.budget()
	m.addActions(hold)
	if i := len(m.Replies) - 1; i >= 0 { // it began before this hold could be made
		m.Replies[i].Held = true
	}
}

// takeNumber gives the next reply its number.
func (m *machine) takeNumber() {
	m.LastN++
	m.Numbers++
}

// renewHold releases a hold that no longer covers the next reply; advance requests another one. A
// reply that begins in between takes that one, or is cancelled if it is refused.
func (m *machine) renewHold() {
	if m.Hold == Held && !m.hasHeldReply() && m.hasOutgrownHold() {
		m.mustPersist = true
		m.releaseHold()
	}
}

// hasOutgrownHold reports whether the next reply may read more than its hold covers: the app or the
// browser has added to the context, or the user has spoken for longer. Text may take the place of
// speech that was not spoken, which costs more.
func (m *machine) hasOutgrownHold() bool {
	in := m.boundContext(0)
	return in.Audio > m.HoldAudio || in.Text+in.Audio > m.HoldText+m.HoldAudio
}

// boundContext returns how many tokens the next reply reads at most: what the last reply read and
// said, what was added since, and the speech that is still to come (provider notes D.9). What the last
// reply read from the provider's cache is there for the next one (decision 047).
func (m *machine) boundContext(nextSpeech time.Duration) (in pricing.VoiceInput) {
	speech := m.UserSpeech + nextSpeech
	if m.SpeakingUS > 0 {
		speech += time.Duration(m.nowUS-m.SpeakingUS) * time.Microsecond
	}
	c := m.Context
	in.TextCached, in.AudioCached = c.TextCached, c.AudioCached
	in.Text = c.TextInput + c.TextOutput + c.ImageInput + c.ImageCached + m.AddedTextTokens
	in.Audio = c.AudioInput + c.AudioOutput + int64(speech/time.Second+1)*AudioInputPerSecond
	text, audio := in.Text+in.TextCached, in.Audio+in.AudioCached
	if window := max(m.ContextTokens, 1); text+audio > window { // the provider drops what does not fit, and reads anew
		audio = min(audio, window)
		return pricing.VoiceInput{Text: window - audio, Audio: audio}
	}
	return in
}

// beginChanged notes that what each reply reads first is not as the last reply read it: instructions or tools are
// others, or an item is gone. The provider's cache has nothing of it.
func (m *machine) beginChanged() {
	m.BeginChanges++
	m.forgetCached()
}

func (m *machine) forgetCached() {
	c := &m.Context
	c.TextInput, c.TextCached = c.TextInput+c.TextCached, 0
	c.AudioInput, c.AudioCached = c.AudioInput+c.AudioCached, 0
	c.ImageInput, c.ImageCached = c.ImageInput+c.ImageCached, 0
}

// holdMade notes that the ledger made the current hold.
func (m *machine) holdMade(e HoldMade) {
	if t := m.findTranscript(e.N); t != nil {
		t.transcriptHeld(true)
		m.mustPersist = true
		return
	}
	if e.N != m.HoldN || m.Hold != Requested {
		return
	}
	m.Hold, m.HoldOutput, m.mustPersist = Held, e.MaxOutputTokens, true
	m.limitOutput()
	for i := range m.Replies {
		m.cancelIfUncovered(&m.Replies[i])
	}
	switch {
	case !e.NearMaxCost:
	case m.Status == Pending: // as soon as the app listens
		m.NearMaxCost = true
	case m.Ending == nil:
		m.warnOfMaxCost()
	}
}

// appOutput returns the output limit that the app wants for its replies: by its newest update, unless the provider has
// refused that one.
func (m *machine) appOutput() int64 {
	wanted := m.AppOutput
	for i := range m.Updates {
		if c := m.Updates[i].Change; c != nil && c.MaxOutputTokens != nil {
			wanted = *c.MaxOutputTokens
		}
	}
	if wanted > 0 {
		return min(wanted, m.MaxOutputTokens)
	}
	return m.MaxOutputTokens
}

// limitOutput sets the output limit of the provider's session to what the app wants and the hold covers.
func (m *machine) limitOutput() {
	limit := m.appOutput()
	if m.HoldOutput > 0 {
		limit = min(limit, m.HoldOutput)
	}
	if limit != m.Config.MaxOutputTokens {
		m.Config.MaxOutputTokens = limit
		m.sendLimit()
	}
}

// cancelIfUncovered cancels a reply that began with a higher output limit than its hold covers, before
// the provider had the new limit.
func (m *machine) cancelIfUncovered(r *Reply) {
	if r.Held && m.Hold == Held && m.HoldOutput > 0 && r.MaxOutput > m.HoldOutput {
		m.cancelReply(r)
	}
}

// holdRefused ends the session before its next reply (F-87): the error code of the refusal is the
// end reason. The user may hear what is billed already, but not a reply that began before its hold
// was refused.
func (m *machine) holdRefused(e HoldRefused) {
	if t := m.findTranscript(e.N); t != nil {
		t.transcriptHeld(false)
		m.mustPersist = true
		return
	}
	if e.N != m.HoldN { // of a transcript that has come meanwhile: it takes what is left
		return
	}
	if m.Hold == Requested {
		m.Hold = NoHold
	}
	for i := range m.Replies {
		m.Replies[i].Held = false
	}
	m.beginEnd(e.Code, len(m.Replies) > 0)
}

// holdReleased notes that the ledger released the current hold.
func (m *machine) holdReleased(e Released) {
	if t := m.findTranscript(e.N); t != nil && t.Hold == Releasing {
		t.Hold = NoHold
		return
	}
	if e.N == m.HoldN && m.Hold == Releasing {
		m.Hold = NoHold
	}
}

// releaseHold asks the ledger to end the current hold without a charge, if it is made.
func (m *machine) releaseHold() {
	if m.Hold == Held {
		m.Hold = Releasing
		m.addActions(Release{m.HoldN})
	}
}

// billReplies ends all replies in progress by our own count: this node will hear no more of them. over says that the
// call is over, so that no other node will either.
func (m *machine) billReplies(over bool) {
	for len(m.Replies) > 0 {
		m.billReply(0, nil, "", over)
	}
}

// cutReplies bills all replies in progress, and no longer waits until the user has heard the last.
func (m *machine) cutReplies() {
	m.billReplies(true)
	m.Playback = nil
}

// billReply ends reply i and gives it to the ledger: by the provider's usage, else as an estimate
// of what the user heard. One that failed or said nothing is free as far as the ledger allows: its context was read all
// the same. Without usage, one that failed is not billed, and one that said nothing only if it is over: no event of it
// can come any more, on this node or another one.
func (m *machine) billReply(i int, usage *pricing.VoiceUsage, status string, over bool) {
	r := m.Replies[i]
	m.Replies = slices.Delete(m.Replies, i, i+1)
	m.mustPersist = true
	charge := Settle{ReplyID: r.ID, Status: status, DurationMS: milliseconds(m.nowUS - r.StartedUS)}
	if r.AudioUS > 0 {
		charge.FirstAudioMS = milliseconds(r.AudioUS - r.StartedUS)
	}
	if usage != nil && pricing.VoiceUsable(*usage, m.MaxOutputTokens, m.ContextTokens) {
		charge.Usage, charge.Silent = *usage, status == failed || usage.Output() == 0
		if status == failed { // its usage need not have all of the context
			m.AddedTextTokens += usage.Output()
		} else {
			m.readContext(&r, usage)
		}
	} else {
		charge.Usage, charge.Estimated = m.estimateUsage(&r), true
		charge.Silent = charge.Usage.Output() == 0
		m.AddedTextTokens += charge.Usage.Output()
		if status == failed || charge.Silent && (!over || isZero(usage)) || charge.Usage == (pricing.VoiceUsage{}) {
			if r.Held {
				m.releaseHold()
			}
			m.reportUncharged(r.ID)
			return
		}
	}
	switch {
	case r.Held && (m.Hold == Held || m.Hold == Requested):
		charge.N, m.Hold = m.HoldN, NoHold
	case charge.Estimated: // an estimate is at most its hold, and there is none
		m.reportUncharged(r.ID)
		return
	default:
		charge.Unheld = true
		m.takeNumber()
		charge.N = m.LastN
	}
	m.giveToLedger(charge)
}

// isZero reports whether the provider says that a reply has cost nothing.
func isZero(u *pricing.VoiceUsage) bool { return u != nil && u.Input()+u.Output() == 0 }

// giveToLedger charges a reply or a transcript.
func (m *machine) giveToLedger(charge Settle) {
	m.rememberBilled(charge.ReplyID)
	m.Unsettled = append(m.Unsettled, charge)
	m.addActions(charge)
}

// rememberBilled keeps a reply or a transcript from being billed by another event of it.
func (m *machine) rememberBilled(name string) {
	if !slices.Contains(m.BilledIDs, name) {
		m.BilledIDs = append(m.BilledIDs, name)
		m.BilledIDs = m.BilledIDs[max(len(m.BilledIDs)-maxBilledIDs, 0):]
	}
}

// readContext takes the context from the usage of a reply. What was added while the reply was in
// progress is not in its usage.
func (m *machine) readContext(r *Reply, usage *pricing.VoiceUsage) {
	if r.OutOfBand {
		return
	}
	m.reportUnheard(usage)
	m.Context = *usage
	if r.BeginChanges != m.BeginChanges {
		m.forgetCached()
	}
	m.AddedTextTokens = max(m.AddedTextTokens-r.AddedText, 0)
	m.UserSpeech = max(m.UserSpeech-r.Speech, 0)
}

// milliseconds returns a time in microseconds as milliseconds, rounded up. A reply whose begin was missed took 0.
func milliseconds(us int64) int64 { return (us + 999) / 1000 }

// reportUnheard compares the first usage after a gap with what the session knew of the context. What is
// more was said in the gap.
func (m *machine) reportUnheard(usage *pricing.VoiceUsage) {
	if !m.Unheard {
		return
	}
	m.Unheard = false
	known := m.Context.AudioInput + m.Context.AudioCached + m.Context.AudioOutput + m.AddedTextTokens +
		int64(m.UserSpeech/time.Second+1)*AudioInputPerSecond
	if more := usage.AudioInput + usage.AudioCached - known; more > 0 {
		m.addActions(Unmetered{AudioTokens: more})
	}
}

// estimateUsage returns what the user certainly got of a reply, rounded down: the context as cached
// input, which is the cheapest, the seconds that the user heard, and the text that was reported.
func (m *machine) estimateUsage(r *Reply) pricing.VoiceUsage {
	u := pricing.VoiceUsage{TextOutput: r.TextBytes / 5}
	if r.AudioUS > 0 {
		until := m.nowUS
		if r.SilentUS > 0 {
			until = min(until, r.SilentUS)
		}
		u.AudioOutput = max(until-r.AudioUS, 0) * AudioOutputPerSecond / 1e6
	}
	if excess := u.Output() - m.MaxOutputTokens; excess > 0 {
		u.AudioOutput = max(u.AudioOutput-excess, 0)
		u.TextOutput = min(u.TextOutput, m.MaxOutputTokens)
	}
	c := m.Context
	u.TextCached, u.AudioCached = c.TextInput+c.TextCached, c.AudioInput+c.AudioCached
	return u
}

// replySettled counts a charge that the ledger confirmed, and applies the session's cost bounds.
func (m *machine) replySettled(e *Settled) {
	i := slices.IndexFunc(m.Unsettled, func(s Settle) bool { return s.N == e.N })
	m.mustPersist = true
	if i < 0 {
		return
	}
	isTranscript := m.Unsettled[i].Transcript
	m.Unsettled = slices.Delete(m.Unsettled, i, i+1)
	if e.Entry == nil {
		if !isTranscript {
			m.reportUncharged(e.ReplyID)
		}
		return
	}
	m.ChargedMC += e.Entry.UserChargeMC
	if isTranscript {
		m.reportTranscript(e)
	} else {
		m.ReplyCount++
		message, receipt := m.newSettledMessage(e.ReplyID), NewReceipt(e.Entry, KindReply)
		message.Receipt, message.AllocationRemainingMC = &receipt, &e.Entry.RemainingMC
		m.addActions(ToApp{Event: message})
	}
	if m.Ending != nil {
		return
	}
	m.warnOfSpend(e.FastSpend)
	m.crossBlock()
	switch {
	case m.MaxCostMC != nil && m.ChargedMC >= *m.MaxCostMC:
		m.beginEnd(MaxCost, false)
	case e.Exhausted != "": // no hold of a reply says so: the user may speak on without one
		m.beginEnd(e.Exhausted, false)
	}
}

// newSettledMessage returns svc.response.settled of a reply that was not charged.
func (m *machine) newSettledMessage(replyID string) settledMessage {
	return settledMessage{
		Type:           "svc.response.settled",
		ID:             m.ID,
		ResponseID:     replyID,
		ChargedMC:      m.ChargedMC,
		ChargedDisplay: m.ChargedMC.Display(),
		ResponseCount:  m.ReplyCount,
	}
}

// reportUncharged tells the app that a reply is over and costs nothing.
func (m *machine) reportUncharged(replyID string) {
	m.addActions(ToApp{Event: m.newSettledMessage(replyID)})
}

// warnOfSpend warns the app when four fifths of max_cost_mc are spent, and each time that its
// connection spends fast.
func (m *machine) warnOfSpend(fast bool) {
	if fast {
		m.addActions(ToApp{Event: m.newSpendWarning("pace")})
	}
	if m.MaxCostMC != nil && m.ChargedMC >= *m.MaxCostMC-*m.MaxCostMC/5 {
		m.warnOfMaxCost()
	}
}

// warnOfMaxCost warns the app once that max_cost_mc is near.
func (m *machine) warnOfMaxCost() {
	if !m.CostWarned {
		m.CostWarned = true
		m.addActions(ToApp{Event: m.newSpendWarning("max_cost")})
	}
}

func (m *machine) newSpendWarning(reason string) spendWarningMessage {
	return spendWarningMessage{
		Type:           "svc.session.spend_warning",
		ID:             m.ID,
		Reason:         reason,
		ChargedMC:      m.ChargedMC,
		ChargedDisplay: m.ChargedMC.Display(),
		MaxCostMC:      m.MaxCostMC,
	}
}

// crossBlock reports a budget checkpoint when spend crosses another budget block, and opens the
// approval window if the app must approve it.
func (m *machine) crossBlock() {
	if m.BudgetBlockMC == nil {
		return
	}
	blocks := int64(m.ChargedMC / *m.BudgetBlockMC)
	if blocks <= m.Blocks {
		return
	}
	m.Blocks = blocks
	c := budgetCheckpointMessage{
		Type:           "svc.session.budget_checkpoint",
		ID:             m.ID,
		ChargedMC:      m.ChargedMC,
		ChargedDisplay: m.ChargedMC.Display(),
		BlockMC:        *m.BudgetBlockMC,
		Blocks:         blocks,
	}
	if m.ConfirmBlocks && !m.ApprovalMissed {
		if m.ApproveByUS == 0 { // a window that is open does not move
			m.ApproveByUS = m.after(ApprovalWindow)
		}
		by := timestamp.Format(m.ApproveByUS)
		c.ApprovalRequired, c.ApproveBy = true, &by
	}
	m.addActions(ToApp{Event: c})
}
