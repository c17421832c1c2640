package session

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// updateTimeout is how long the provider may take to answer a session.update. It needs 50 ms.
	updateTimeout = 5 * time.Second

	// Bounds of the app's updates that wait for their answers.
	maxAppUpdates     = 16
	maxAppUpdateBytes = 256 << 10 // unless one alone is longer
)

// An updateKind says what a session.update of ours is for. What the app wants, the output limit and the muting are
// sent apart, so that no refused one keeps another from being set.
type updateKind string

const (
	appUpdate   updateKind = "app"
	limitUpdate updateKind = "limit" // the output limit that a hold covers
	muteUpdate  updateKind = "mute"  // the provider begins no reply by itself
	// restoreUpdate sets the provider's session to Config.
	restoreUpdate updateKind = "restore"
)

// Update is a session.update of ours that the provider has not answered. It answers each of them, in their order: by
// session.updated, which names none, or by an error that names the update.
type Update struct {
	ID      string // its event_id
	Kind    updateKind
	SentUS  int64         // 0 = not yet, because the sideband is missing
	EventID string        `json:",omitempty"` // the app's name of it
	Change  *ConfigUpdate `json:",omitempty"` // of the app; it is never changed
	Limit   int64         `json:",omitempty"` // the output limit
	Fields  []string      `json:",omitempty"` // of a restoreUpdate: what was changed; nil = it sets what Config has
	Last    bool          `json:",omitempty"` // of a restoreUpdate: all others were refused
	Differs []string      `json:",omitempty"` // of a restoreUpdate: what was still different in the newest report
	More    []string      `json:",omitempty"` // of a restoreUpdate: what was changed besides Fields since it was sent
}

// size returns about how many bytes an app's change has.
func (u *ConfigUpdate) size() int {
	n := len(u.Tools) + len(u.ToolChoice)
	if u.Instructions != nil {
		n += len(*u.Instructions)
	}
	return n
}

// realtimeSession renders a change as the provider's session object, without the output limit.
func (u *ConfigUpdate) realtimeSession() map[string]any {
	out := map[string]any{"type": "realtime"}
	if u.Instructions != nil {
		out["instructions"] = *u.Instructions
	}
	if u.Voice != nil {
		out["audio"] = map[string]any{"output": map[string]any{"voice": *u.Voice}}
	}
	if len(u.Tools) > 0 {
		out["tools"] = u.Tools
	}
	if len(u.ToolChoice) > 0 {
		out["tool_choice"] = u.ToolChoice
	}
	return out
}

// fields returns which fields an update sets. What the provider reports of them is not known to be newer than the
// update.
func (u *Update) fields() (list []string) {
	switch {
	case u.Kind == limitUpdate:
		return []string{"max_output_tokens"}
	case u.Kind == muteUpdate:
		return []string{"audio.input.turn_detection"}
	case u.Change == nil:
		return nil
	}
	if u.Change.Instructions != nil {
		list = append(list, "instructions")
	}
	if u.Change.Voice != nil {
		list = append(list, voiceField)
	}
	if len(u.Change.Tools) > 0 {
		list = append(list, "tools")
	}
	if len(u.Change.ToolChoice) > 0 {
		list = append(list, "tool_choice")
	}
	return list
}

// agrees reports whether a report of the provider's session can be the answer to an update.
func (u *Update) agrees(got *sessionObject) bool {
	switch c := u.Change; {
	case u.Kind == limitUpdate:
		return equalMaxOutputTokens(got, &Config{MaxOutputTokens: u.Limit})
	case u.Kind == muteUpdate:
		return len(compareMembers("", map[string]any{"audio": map[string]any{"input": map[string]any{
			"turn_detection": map[string]any{"create_response": false},
		}}}, got.Rest, false)) == 0
	case c == nil:
		return false
	default:
		return (c.Instructions == nil || equalInstructions(got, &Config{Instructions: *c.Instructions})) &&
			(c.Voice == nil || equalVoice(got, &Config{Voice: *c.Voice})) &&
			(len(c.Tools) == 0 || got.Tools == nil || equalTools(got.Tools, c.Tools)) &&
			(len(c.ToolChoice) == 0 || equalToolChoice(got, &Config{ToolChoice: c.ToolChoice}))
	}
}

// hasRoomForUpdate reports whether the app may send another update before the provider has answered the last ones.
func (m *machine) hasRoomForUpdate(u *ConfigUpdate) bool {
	count, bytes := 0, 0
	for i := range m.Updates {
		if c := m.Updates[i].Change; c != nil {
			count, bytes = count+1, bytes+c.size()
		}
	}
	return count == 0 || count < maxAppUpdates && bytes+u.size() <= maxAppUpdateBytes
}

// sendUpdate sends a session.update. Without a sideband one of the app waits; the others follow from Config, which the
// next sideband sends.
func (m *machine) sendUpdate(u Update, session map[string]any) {
	if !m.SidebandAttached && u.Kind != appUpdate {
		return
	}
	m.LastUpdate++
	u.ID = m.ownEventID(strconv.FormatInt(m.LastUpdate, 10))
	if m.SidebandAttached {
		u.SentUS = m.nowUS
		m.addActions(ToProvider{map[string]any{"type": "session.update", "event_id": u.ID, "session": session}})
	}
	m.Updates = append(m.Updates, u)
}

// sendLimit sets the output limit.
func (m *machine) sendLimit() {
	n := m.Config.MaxOutputTokens
	m.sendUpdate(Update{Kind: limitUpdate, Limit: n}, map[string]any{"type": "realtime", "max_output_tokens": n})
}

// sendMute sets whether the provider begins a reply when the user has stopped speaking.
func (m *machine) sendMute() {
	input := map[string]any{"turn_detection": m.Config.turnDetection()}
	m.sendUpdate(Update{Kind: muteUpdate}, map[string]any{"type": "realtime", "audio": map[string]any{"input": input}})
}

// noteDiffering notes what a report shows that is older than a restoreUpdate. One that was sent for no change may be
// answered after reports of what was set before.
func (u *Update) noteDiffering(paths []string) {
	u.Differs = paths
	for _, path := range paths {
		if u.Fields != nil && len(u.More) < maxFields && !isWithin(path, u.Fields) && !slices.Contains(u.More, path) {
			u.More = append(slices.Clone(u.More), path)
		}
	}
}

// sendRestore sets the provider's session to what it must be: all of it if these fields were changed, what Config has
// if fields is nil.
func (m *machine) sendRestore(fields []string) {
	m.sendUpdate(Update{Kind: restoreUpdate, Fields: fields}, m.restoringSession(fields))
}

// isInFlight reports whether an update that the provider has not answered sets a field.
func (m *machine) isInFlight(path string) bool {
	return slices.ContainsFunc(m.Updates, func(u Update) bool { return isWithin(path, u.fields()) })
}

// restoring returns the newest restoreUpdate in flight, or nil. A report that differs from Config is older than it.
func (m *machine) restoring() *Update {
	for i := len(m.Updates) - 1; i >= 0; i-- {
		if m.Updates[i].Kind == restoreUpdate {
			return &m.Updates[i]
		}
	}
	return nil
}

// resendUpdates sends, on a new sideband, the session as it must be if all is set, and what the app has asked for and
// the last sideband has not answered.
func (m *machine) resendUpdates(all bool) {
	waiting := slices.DeleteFunc(m.Updates, func(u Update) bool { return u.Kind != appUpdate })
	m.Updates = nil
	if all {
		m.sendRestore(nil)
	}
	for _, u := range waiting {
		m.sendUpdate(u, u.Change.realtimeSession())
	}
}

// confirmUpdate takes a report of the provider's session as the answer to the oldest update, if it can be that.
func (m *machine) confirmUpdate(got *sessionObject) {
	i := slices.IndexFunc(m.Updates, func(u Update) bool { return u.Kind != restoreUpdate })
	if i >= 0 && m.Updates[i].SentUS > 0 && m.Updates[i].agrees(got) {
		m.applyUpdate(&m.Updates[i])
		m.Updates = slices.Delete(m.Updates, i, i+1)
	}
}

// applyUpdate takes a change of the app into Config.
func (m *machine) applyUpdate(u *Update) {
	c := u.Change
	if c == nil {
		return
	}
	m.mustPersist = true
	if c.Instructions != nil || len(c.Tools) > 0 {
		m.beginChanged()
	}
	if c.Instructions != nil {
		m.Config.Instructions = *c.Instructions
	}
	if c.Voice != nil {
		m.Config.Voice = *c.Voice
	}
	if len(c.Tools) > 0 {
		m.Config.Tools = c.Tools
	}
	if len(c.ToolChoice) > 0 {
		m.Config.ToolChoice = c.ToolChoice
	}
	if c.MaxOutputTokens != nil {
		m.AppOutput = *c.MaxOutputTokens
	}
}

// updateRefused applies an error that names an update. Those before it are answered, too.
func (m *machine) updateRefused(e *errorObject) {
	i := slices.IndexFunc(m.Updates, func(u Update) bool { return u.ID == e.EventID })
	if i < 0 {
		return
	}
	for j := range i {
		m.applyUpdate(&m.Updates[j])
	}
	u := m.Updates[i]
	m.Updates, m.mustPersist = slices.Delete(m.Updates, 0, i+1), true
	switch u.Kind {
	case appUpdate:
		m.takeBack(&u, newRefusedUpdateMessage(u.EventID, e))
	case limitUpdate, muteUpdate:
		m.sendRestore(nil)
	case restoreUpdate:
		m.restoreRefused(&u, e)
	}
}

// restoreRefused sets back the rest when the provider refuses to set some of it. A session in which not even Config can
// be set ends.
func (m *machine) restoreRefused(u *Update, e *errorObject) {
	path, _, _ := strings.Cut(strings.TrimPrefix(e.Param, "session."), "[")
	switch {
	case u.Fields == nil: // nothing was changed
	case u.Last:
		m.beginEnd(ProviderError, true)
	case e.Code == voiceFixed && !m.AudioHeard:
		m.AudioHeard = true
		m.sendRestore(u.Fields)
	case !isOfConfig(path) && m.giveUpRestoring([]string{path}),
		m.giveUpRestoring(slices.DeleteFunc(slices.Clone(u.Fields), isOfConfig)):
		m.sendRestore(u.Fields)
	default:
		m.sendUpdate(Update{Kind: restoreUpdate, Fields: u.Fields, Last: true}, m.restoringSession(nil))
	}
}

// isOfConfig reports whether a path is what Config has of the session.
func isOfConfig(path string) bool {
	return isWithin(path, []string{"audio.input.turn_detection", "audio.input.transcription"}) ||
		slices.ContainsFunc(configChecks, func(c configCheck) bool { return c.field == path })
}

// remaining returns which of the changed fields a restoreUpdate sets back.
func (u *Update) remaining(changed []string) []string {
	if u.Fields != nil && !u.Last {
		return changed
	}
	return slices.DeleteFunc(slices.Clone(changed), func(path string) bool {
		return !isOfConfig(path) || path == voiceField
	})
}

// takeBack tells the app that its change is not made, and sets the session to what it was before.
func (m *machine) takeBack(u *Update, message errorMessage) {
	m.addActions(ToApp{Event: message})
	m.beginChanged()
	m.limitOutput()
	m.sendRestore(nil)
}

// newRefusedUpdateMessage returns the error event of an app's update that the provider has refused.
func newRefusedUpdateMessage(eventID string, e *errorObject) errorMessage {
	out := newErrorMessage(eventID, cmp.Or(e.Message, "the provider refused the update"))
	out.Error.Type, out.Error.Code = cmp.Or(e.Type, out.Error.Type), cmp.Or(e.Code, out.Error.Code)
	return out
}

// applyUpdateDeadlines gives up the updates that the provider does not answer.
func (m *machine) applyUpdateDeadlines() {
	for i := 0; i < len(m.Updates); {
		u := m.Updates[i]
		if !m.SidebandAttached || u.SentUS == 0 || m.nowUS < u.SentUS+updateTimeout.Microseconds() {
			i++
			continue
		}
		m.Updates, m.mustPersist = slices.Delete(m.Updates, i, i+1), true
		switch {
		case u.Kind == appUpdate:
			m.takeBack(&u, newErrorMessage(u.EventID, "the provider did not answer; the session is as it was before"))
		case len(u.Differs) > 0: // it was answered, and sets nothing
			m.giveUpRestoring(u.Differs)
			if still := slices.DeleteFunc(slices.Clone(u.Differs), m.isUnrestorable); len(still) > 0 {
				m.resetConfig(still)
			}
		}
	}
}
