package voice

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/models/catalog"
)

// maxControlBytes bounds an event of an app.
const maxControlBytes = 256 << 10

// controlEvent is an event of the control channel as an app writes it (contract §4.4). Members that
// are not listed here are refused.
type controlEvent struct {
	Type    string          `json:"type"`
	EventID string          `json:"event_id"`
	When    string          `json:"when"`
	Session json.RawMessage `json:"session"`
	Item    json.RawMessage `json:"item"`
	Reply   json.RawMessage `json:"response"`

	ResponseID     string  `json:"response_id"`
	PreviousItemID *string `json:"previous_item_id"`
	ItemID         string  `json:"item_id"`
	ContentIndex   int64   `json:"content_index"`
	AudioEndMS     int64   `json:"audio_end_ms"`
}

// parseControlEvent reads an app's event, for a session with a model. What is wrong with it is the Problem of the
// result, not an error: the app gets an error event, and the session goes on.
func parseControlEvent(data []byte, m *catalog.Model) session.AppEvent {
	if len(data) > maxControlBytes {
		return session.AppEvent{Problem: fmt.Sprintf("an event may have at most %d bytes", maxControlBytes)}
	}
	var c controlEvent
	err := decodeStrict(data, &c)
	if problem := problemOfName("event_id", c.EventID); problem != "" {
		return session.AppEvent{Type: c.Type, Problem: problem}
	}
	if err != nil {
		return session.AppEvent{EventID: c.EventID, Problem: err.Error()}
	}
	e := session.AppEvent{
		Type:       c.Type,
		EventID:    c.EventID,
		Immediate:  c.When == session.Immediate,
		ResponseID: c.ResponseID,
		ItemID:     c.ItemID,
		AudioEndMS: c.AudioEndMS,
	}
	switch c.Type {
	case "session.update":
		e.Update, e.Problem = parseConfigUpdate(c.Session, m)
	case "conversation.item.create":
		e.ItemBytes = len(c.Item)
		if e.Item, e.Problem = parseItem(c.Item); c.PreviousItemID != nil && e.Problem == "" {
			e.After, e.Problem = *c.PreviousItemID, problemOfName("previous_item_id", *c.PreviousItemID)
		}
	case "response.create":
		e.Reply, e.Problem = parseReplyOptions(c.Reply)
	case "conversation.item.truncate":
		e.Problem = problemOfName("item_id", c.ItemID)
		if c.ItemID == "" || c.ContentIndex != 0 || c.AudioEndMS < 0 {
			e.Problem = "item_id is required, content_index is 0, audio_end_ms is 0 or more"
		}
	case "conversation.item.retrieve":
		e.Problem = problemOfName("item_id", c.ItemID)
		if c.ItemID == "" {
			e.Problem = "item_id: required"
		}
	case "svc.session.end":
		if c.When != "" && c.When != session.AfterHeard && c.When != session.Immediate {
			e.Problem = "when: must be after_heard or immediate"
		}
	case "response.cancel":
		e.Problem = problemOfName("response_id", c.ResponseID)
	case "svc.session.approve_block":
	case "":
		e.Problem = "type: required"
	default:
		e.Problem = fmt.Sprintf("type: %.64q is not an event that this channel takes", c.Type)
	}
	return e
}

// problemOfName returns what is wrong with an id that an app has given as a member; "" = nothing.
func problemOfName(member, name string) string {
	if len(name) > session.MaxName {
		return fmt.Sprintf("%s: at most %d characters", member, session.MaxName)
	}
	return ""
}

// configUpdate is the session of a session.update as an app writes it: the voice stands at the top,
// or where the provider has it. The members below it are the provider's, which its client libraries always
// send. They are taken if they say what is so, or what Purser decides in any case (decision 195).
type configUpdate struct {
	Type            string          `json:"type"`
	Instructions    *string         `json:"instructions"`
	Voice           *string         `json:"voice"`
	Tools           json.RawMessage `json:"tools"`
	ToolChoice      json.RawMessage `json:"tool_choice"`
	MaxOutputTokens *int64          `json:"max_output_tokens"`
	Audio           *struct {
		Input  json.RawMessage `json:"input"` // Purser decides
		Output *struct {
			Voice  *string         `json:"voice"`
			Format json.RawMessage `json:"format"` // of no effect on WebRTC
			Speed  *float64        `json:"speed"`
		} `json:"output"`
	} `json:"audio"`

	Model      *string         `json:"model"`
	Modalities []string        `json:"output_modalities"`
	Prompt     json.RawMessage `json:"prompt"`
	Reasoning  json.RawMessage `json:"reasoning"`
	Tracing    json.RawMessage `json:"tracing"` // Purser decides, as it does the next three
	Truncation json.RawMessage `json:"truncation"`
	Include    json.RawMessage `json:"include"`
	Parallel   json.RawMessage `json:"parallel_tool_calls"`
}

// problem returns what the update asks for that cannot be had; "" = nothing.
func (c *configUpdate) problem(m *catalog.Model) string {
	switch {
	case c.Type != "" && c.Type != "realtime":
		return "type: must be realtime"
	case c.Model != nil && *c.Model != m.ID:
		return fmt.Sprintf("model: is %s, and stays", m.ID)
	case c.Modalities != nil && !slices.Equal(c.Modalities, []string{"audio"}):
		return `output_modalities: must be ["audio"]`
	case isSet(c.Prompt):
		return "prompt: cannot be set; write instructions"
	case isSet(c.Reasoning):
		return "reasoning: cannot be set"
	case c.Audio != nil && c.Audio.Output != nil && c.Audio.Output.Speed != nil && *c.Audio.Output.Speed != 1:
		return "audio.output.speed: must be 1"
	}
	return ""
}

// isSet reports whether a member has a value.
func isSet(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func parseConfigUpdate(raw json.RawMessage, m *catalog.Model) (update *session.ConfigUpdate, problem string) {
	if len(raw) == 0 {
		return nil, "session: required"
	}
	var c configUpdate
	if err := decodeStrict(raw, &c); err != nil {
		return nil, "session." + err.Error()
	}
	if c.Audio != nil && c.Audio.Output != nil && c.Audio.Output.Voice != nil {
		c.Voice = c.Audio.Output.Voice
	}
	problem = c.problem(m)
	switch {
	case problem != "":
		return nil, "session." + problem
	case c.Instructions != nil && len(*c.Instructions) > maxInstructions:
		return nil, fmt.Sprintf("session.instructions: at most %d bytes", maxInstructions)
	case c.Voice != nil && !wordName.MatchString(*c.Voice):
		return nil, "session.voice: must be the name of a voice"
	case c.Voice != nil && !m.HasVoice(*c.Voice):
		return nil, "session.voice: " + refuseVoice(m, *c.Voice)
	}
	u := &session.ConfigUpdate{Instructions: c.Instructions, Voice: c.Voice, MaxOutputTokens: c.MaxOutputTokens}
	var err error
	if len(c.Tools) > 0 {
		if u.Tools, err = flattenTools(c.Tools); err != nil {
			return nil, "session." + err.Error()
		}
	}
	if len(c.ToolChoice) > 0 {
		if u.ToolChoice, err = flattenToolChoice(c.ToolChoice); err != nil {
			return nil, "session." + err.Error()
		}
	}
	return u, ""
}

func parseItem(raw json.RawMessage) (item *session.Item, problem string) {
	if len(raw) == 0 {
		return nil, "item: required"
	}
	item = &session.Item{}
	if err := decodeStrict(raw, item); err != nil {
		return nil, "item." + err.Error()
	}
	if problem := problemOfName("item.id", item.ID); problem != "" {
		return nil, problem
	}
	switch {
	case item.Object != "" && item.Object != "realtime.item":
		return nil, "item.object: must be realtime.item"
	case item.Status != "" && !slices.Contains([]string{"completed", "incomplete", "in_progress"}, item.Status):
		return nil, "item.status: must be completed, incomplete or in_progress"
	case item.Type == "function_call_output" && (item.CallID == "" || item.Role != "" || item.Content != nil):
		return nil, "item: a function_call_output has call_id and output"
	case item.Type == "function_call_output":
		return item, problemOfName("item.call_id", item.CallID)
	case item.Type != "message":
		return nil, "item.type: must be function_call_output or message"
	case item.Role != "user" && item.Role != "system" || len(item.Content) == 0 || item.CallID != "" ||
		item.Output != "":
		return nil, "item: a message has role user or system, and content"
	case slices.ContainsFunc(item.Content, func(p session.ContentPart) bool { return p.Type != "input_text" }):
		return nil, "item.content: must be of type input_text"
	}
	return item, ""
}

func parseReplyOptions(raw json.RawMessage) (options *session.ReplyOptions, problem string) {
	options = &session.ReplyOptions{}
	if len(raw) == 0 || string(raw) == "null" {
		return options, ""
	}
	if err := decodeStrict(raw, options); err != nil {
		return nil, "response." + err.Error()
	}
	if options.Instructions != nil && len(*options.Instructions) > maxInstructions {
		return nil, fmt.Sprintf("response.instructions: at most %d bytes", maxInstructions)
	}
	return options, ""
}
