package session

import (
	"encoding/json"
	"slices"
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

var configChecks = []configCheck{
	{"model", equalModel, nil},
	{"instructions", equalInstructions, adoptInstructions},
	{"output_modalities", equalModalities, nil},
	{"tools", func(got *sessionObject, c *Config) bool {
		return got.Tools == nil || equalTools(got.Tools, c.Tools)
	}, nil},
	{"tool_choice", equalToolChoice, nil},
	{"max_output_tokens", equalMaxOutputTokens, nil},
	{"voice", equalVoice, adoptVoice},
	{"transcription", equalTranscription, nil},
	{"turn_detection", equalTurnDetection, nil},
}

func equalModel(got *sessionObject, c *Config) bool { return got.Model == "" || got.Model == c.Model }

func equalInstructions(got *sessionObject, c *Config) bool {
	return got.Instructions == nil || *got.Instructions == c.Instructions
}

func adoptInstructions(m *machine, got *sessionObject) bool {
	if len(*got.Instructions) > MaxInstructions {
		return false
	}
	m.AddedTextTokens += textTokens(len(*got.Instructions))
	m.beginChanged()
	m.Config.Instructions = *got.Instructions
	return true
}

func adoptVoice(m *machine, got *sessionObject) bool {
	voice, _ := got.voice()
	if len(voice) > maxVoiceName {
		return false
	}
	m.Config.Voice = voice
	return true
}

func equalModalities(got *sessionObject, _ *Config) bool {
	return got.Modalities == nil || slices.Equal(got.Modalities, audioOnly)
}

func equalToolChoice(got *sessionObject, c *Config) bool {
	return got.ToolChoice == nil || equalJSON(got.ToolChoice, c.ToolChoice)
}

func equalMaxOutputTokens(got *sessionObject, c *Config) bool {
	var n int64
	return got.MaxOutputTokens == nil || json.Unmarshal(got.MaxOutputTokens, &n) == nil && n == c.MaxOutputTokens
}

func equalVoice(got *sessionObject, c *Config) bool {
	if !got.hasVoice() {
		return true
	}
	voice, isName := got.voice()
	return isName && voice == c.Voice
}

func equalTranscription(got *sessionObject, _ *Config) bool {
	in := got.audioInput()
	return in == nil || in.Transcription == nil || string(in.Transcription) == "null"
}

func equalTurnDetection(got *sessionObject, c *Config) bool {
	in := got.audioInput()
	if in == nil || in.TurnDetection == nil {
		return true
	}
	t := in.TurnDetection
	return (t.CreateResponse == nil || *t.CreateResponse == c.AutoReply) && t.IdleTimeoutMS == nil
}

// checkConfig compares the provider's session with Config. A change that the app allowed the browser
// is kept; any other is set back (contract §4.4).
func (m *machine) checkConfig(got *sessionObject) {
	if got == nil {
		return
	}
	m.confirmUpdate(got)
	if m.Config.Voice == "" && !m.isInFlight("voice") { // the model's default, now known
		adoptVoice(m, got)
	}
	var changed []string
	for _, c := range configChecks {
		switch {
		case c.equal(got, &m.Config) || m.isInFlight(c.field):
		case c.adopt != nil && slices.Contains(m.ClientUpdatable, c.field) && c.adopt(m, got):
			m.mustPersist = true
		default:
			changed = append(changed, c.field)
			if c.field == "voice" && m.AudioHeard { // the provider would refuse to set it back
				adoptVoice(m, got)
			}
		}
	}
	switch r := m.restoring(); {
	case len(changed) == 0:
		m.Updates = slices.DeleteFunc(m.Updates, func(u Update) bool { return u.Kind == restoreUpdate })
	case r != nil: // our update, which is on its way, sets it
		r.Differs = changed
	default:
		m.resetConfig(changed)
	}
}

// resetConfig sets the call back to Config and tells the app which fields were changed. After
// MaxConfigResets it ends the session.
func (m *machine) resetConfig(changed []string) {
	m.ConfigResets++
	m.beginChanged()
	m.mustPersist = true
	m.addActions(ToApp{configResetMessage{
		Type:   "svc.session.config_reset",
		ID:     m.ID,
		Fields: changed,
		Resets: m.ConfigResets,
	}})
	if m.ConfigResets >= MaxConfigResets {
		m.beginEnd(ConfigTampering, true)
		return
	}
	m.sendRestore()
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
	if m.Config.Voice != "" && r.Audio != nil && r.Audio.Output != nil &&
		!slices.Contains(m.ClientUpdatable, "voice") && !equalJSON(r.Audio.Output.Voice, encodeString(m.Config.Voice)) {
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
	var n int64
	return string(raw) == "null" || json.Unmarshal(raw, &n) == nil && n <= most
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
		m.AddedTextTokens += textTokens(int(i.Output)) + itemOverheadTokens
		m.cancelReplies()
		m.addActions(ToProvider{map[string]any{
			"type":     "conversation.item.delete",
			"event_id": m.ownEventID("delete"),
			"item_id":  i.ID,
		}})
		m.resetConfig([]string{"conversation.item"})
	case i.Role == "user" || i.Role == "system":
		m.AddedTextTokens += textTokens(int(i.Content)) + itemOverheadTokens
	}
}
