package session

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Bounds of what an app, or a browser that it allows to, may set.
const (
	MaxInstructions = 64 << 10 // bytes
	maxVoiceName    = 64
)

// MaxConfigResets is how many attempts of the browser to change the session end it.
const MaxConfigResets = 3

// audioOnly are the output modalities of every session.
var audioOnly = []string{"audio"}

// itemOverheadTokens is what an item adds to the context besides its text.
const itemOverheadTokens = 16

// textTokens bounds the tokens of so many bytes of text.
func textTokens(bytes int) int64 { return int64(bytes) / 2 }

// A configCheck compares one field of the provider's session with what it must be.
type configCheck struct {
	field string
	equal func(*sessionObject, *Config) bool // also true if the event does not have the field
	// adopt takes a change that the app allowed, and reports whether it is within the bounds of what an app itself may
	// set; nil = none is allowed.
	adopt func(m *machine, got *sessionObject) bool
}

// voiceField is the path of the voice.
const voiceField = "audio.output.voice"

var configChecks = []configCheck{
	{"model", equalModel, nil},
	{"instructions", equalInstructions, adoptInstructions},
	{"output_modalities", equalModalities, nil},
	{"tools", func(got *sessionObject, c *Config) bool {
		return got.Tools == nil || equalTools(got.Tools, c.Tools)
	}, nil},
	{"tool_choice", equalToolChoice, nil},
	{"max_output_tokens", equalMaxOutputTokens, nil},
	{voiceField, equalVoice, adoptVoice},
}

func equalModel(got *sessionObject, c *Config) bool {
	return got.Model == nil || isString(got.Model, c.Model)
}

func equalInstructions(got *sessionObject, c *Config) bool {
	return got.Instructions == nil || isString(got.Instructions, c.Instructions)
}

func adoptInstructions(m *machine, got *sessionObject) bool {
	text, ok := readString(got.Instructions)
	if !ok || len(text) > MaxInstructions {
		return false
	}
	m.AddedTextTokens += textTokens(len(text))
	m.beginChanged()
	m.Config.Instructions = text
	return true
}

func adoptVoice(m *machine, got *sessionObject) bool {
	voice, ok := readString(got.Voice)
	if !ok || len(voice) > maxVoiceName {
		return false
	}
	m.Config.Voice = voice
	return true
}

func equalModalities(got *sessionObject, _ *Config) bool {
	return got.Modalities == nil || equalJSON(got.Modalities, EncodeJSON(audioOnly))
}

func equalToolChoice(got *sessionObject, c *Config) bool {
	return got.ToolChoice == nil || equalJSON(got.ToolChoice, c.ToolChoice)
}

func equalMaxOutputTokens(got *sessionObject, c *Config) bool {
	return got.MaxOutputTokens == nil || readScalar(got.MaxOutputTokens) == strconv.FormatInt(c.MaxOutputTokens, 10)
}

func equalVoice(got *sessionObject, c *Config) bool {
	return got.Voice == nil || isString(got.Voice, c.Voice)
}

// checkConfig compares the provider's session with what it must be. A change that the app allowed the browser
// is kept; any other is set back (contract §4.4).
func (m *machine) checkConfig(got *sessionObject) {
	if got == nil {
		return
	}
	m.confirmUpdate(got)
	if m.Config.Voice == "" && !m.isInFlight(voiceField) { // the model's default, now known
		adoptVoice(m, got)
	}
	changed := m.changedFields(got)
	if r := m.restoring(); r != nil {
		if unset := r.remaining(changed); len(unset) > 0 { // the report is older than our update, which sets it back
			r.noteDiffering(unset)
			return
		}
		if len(r.More) > 0 { // it is set back, too
			m.reportReset(r.More)
		}
		m.Updates = slices.DeleteFunc(m.Updates, func(u Update) bool { return u.Kind == restoreUpdate })
	}
	if len(changed) > 0 {
		m.resetConfig(changed)
		return
	}
	m.keepReference(got)
}

// changedFields returns the paths of what is not as it must be, and is no update of ours on its way. It adopts what the
// app allows the browser to change.
func (m *machine) changedFields(got *sessionObject) (changed []string) {
	for _, c := range configChecks {
		switch {
		case c.equal(got, &m.Config) || m.isInFlight(c.field) || m.isUnrestorable(c.field):
		case c.adopt != nil && m.isUpdatable(c.field) && c.adopt(m, got):
			m.mustPersist = true
		default:
			changed = append(changed, c.field)
			if c.field == voiceField && m.AudioHeard { // the provider would refuse to set it back
				adoptVoice(m, got)
			}
		}
	}
	for _, path := range compareMembers("", m.wantedRest(), got.Rest, len(m.Reference) > 0) {
		if !m.isInFlight(path) && !m.isUnrestorable(path) && len(changed) < maxFields {
			changed = append(changed, path)
		}
	}
	return changed
}

// isUpdatable reports whether the browser may change a field.
func (m *machine) isUpdatable(field string) bool {
	return slices.Contains(m.ClientUpdatable, strings.TrimPrefix(field, "audio.output."))
}

// tamperingFields are what a browser changes to get other words or more of them. A library that sets other members by
// itself does no harm: they are set back, and do not count.
var tamperingFields = []string{
	"instructions", "tools", "tool_choice", "model", "max_output_tokens", "reasoning", "prompt",
}

// isTampering reports whether a change of a field counts to the three that end the session. Whatever is said of one
// reply or of an item does, because no library does it by itself.
func isTampering(field string) bool {
	member, _, _ := strings.Cut(field, ".")
	return slices.Contains(tamperingFields, member) || member == "response" || member == "conversation"
}

// resetConfig sets the call back and tells the app which fields were changed.
func (m *machine) resetConfig(changed []string) {
	if m.ConfigResets >= MaxConfigResets { // the session ends by it, and what is refused now is not sent again
		return
	}
	m.reportReset(changed)
	m.sendRestore(changed)
}

// reportReset tells the app what was changed. MaxConfigResets of what counts as tampering end the session.
func (m *machine) reportReset(changed []string) {
	if slices.ContainsFunc(changed, isTampering) {
		m.ConfigResets++
	}
	m.beginChanged()
	m.mustPersist = true
	m.addActions(ToApp{Event: configResetMessage{
		Type:   "svc.session.config_reset",
		ID:     m.ID,
		Fields: changed,
		Resets: m.ConfigResets,
	}})
	if m.ConfigResets >= MaxConfigResets {
		m.beginEnd(ConfigTampering, true)
	}
}

// replyOverrides lists what a reply has other than the session (provider notes D.9).
func (m *machine) replyOverrides(r *responseObject) (fields []string) {
	if r.isOutOfBand() {
		fields = append(fields, "response.conversation")
	}
	if len(r.MaxOutputTokens) > 0 && !m.isWithinOutputCap(r.MaxOutputTokens) {
		fields = append(fields, "response.max_output_tokens")
	}
	if r.Modalities != nil && !slices.Equal(r.Modalities, audioOnly) {
		fields = append(fields, "response.output_modalities")
	}
	if m.Config.Voice != "" && len(r.Voice) > 0 && !m.isUpdatable(voiceField) && !m.isInFlight(voiceField) &&
		!isString(r.Voice, m.Config.Voice) {
		fields = append(fields, "response.audio.output.voice")
	}
	return fields
}

// isWithinOutputCap reports whether a reply's output cap is not above the session's, or, while the
// provider has not confirmed a change of ours, not above the highest.
func (m *machine) isWithinOutputCap(raw json.RawMessage) bool {
	most := m.Config.MaxOutputTokens
	if m.isInFlight("max_output_tokens") || m.restoring() != nil {
		most = m.MaxOutputTokens
	}
	n, err := strconv.ParseInt(readScalar(raw), 10, 64)
	return string(raw) == "null" || err == nil && n <= most
}

// itemAdded counts a new item of the conversation. A tool result that the app did not send is the
// browser's forgery: it is deleted, so that no reply reads it.
func (m *machine) itemAdded(i *itemObject) {
	switch {
	case i == nil:
	case i.Type == "function_call_output":
		if at := slices.Index(m.ToolCallIDs, i.CallID); at >= 0 {
			m.ToolCallIDs = slices.Delete(m.ToolCallIDs, at, at+1)
			return
		}
		m.AddedTextTokens += textTokens(i.Output) + itemOverheadTokens
		m.cancelReplies()
		m.addActions(ToProvider{map[string]any{
			"type":     "conversation.item.delete",
			"event_id": m.ownEventID("delete"),
			"item_id":  i.ID,
		}})
		m.reportReset([]string{"conversation.item"})
	case i.Role == "user" || i.Role == "system":
		m.AddedTextTokens += textTokens(i.Content) + itemOverheadTokens
	case i.Role == "assistant" && len(i.ID) <= MaxName:
		m.SpokenItemID = i.ID
	}
}

// placeItem notes where an item was added. One that is not the last changes what each reply reads first.
func (m *machine) placeItem(e *providerEvent) {
	if e.Item == nil {
		return
	}
	after, _ := readString(e.PreviousID)
	if known := m.LastItemID; known != "" && len(e.PreviousID) > 0 && after != known {
		m.beginChanged()
		m.LastItemID = "" // it was inserted, or the event of another one was missed
		return
	}
	if m.LastItemID = ""; len(e.Item.ID) <= MaxName {
		m.LastItemID = e.Item.ID
	}
}

// itemTruncated notes that a part of an item is gone. The last reply has not read what it has said itself.
func (m *machine) itemTruncated(id string) {
	if id == "" || id != m.SpokenItemID {
		m.beginChanged()
	}
}

// itemDeleted notes that an item is gone.
func (m *machine) itemDeleted(id string) {
	m.beginChanged()
	if id == m.LastItemID {
		m.LastItemID = ""
	}
}
