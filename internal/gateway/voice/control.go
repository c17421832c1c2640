package voice

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/purserhq/purser/internal/base/money"
)

// Limits of what an app may send.
const (
	maxControlBytes = 256 << 10
	maxInstructions = 64 << 10
)

// control is an event that an app sends (spec §4.4, Control channel). Exactly what
// is listed here gets through: nothing that could loosen a limit of cost.
type control struct {
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

	update  *sessionUpdate
	item    *appItem
	request *appReply
	wrong   string // why it is refused
}

// sessionUpdate is what an app may change of a running session.
type sessionUpdate struct {
	Type         string          `json:"type"`
	Instructions *string         `json:"instructions"`
	Voice        *string         `json:"voice"`
	Tools        json.RawMessage `json:"tools"`
	ToolChoice   json.RawMessage `json:"tool_choice"`
	MaxOutput    *int64          `json:"max_output_tokens"`
	Audio        *struct {
		Output *struct {
			Voice *string `json:"voice"`
		} `json:"output"`
	} `json:"audio"`
}

// appItem is what an app may add to a conversation.
type appItem struct {
	Type    string `json:"type"`
	Role    string `json:"role,omitempty"`
	CallID  string `json:"call_id,omitempty"`
	Output  string `json:"output,omitempty"`
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content,omitempty"`
}

// appReply is what an app may say about one reply.
type appReply struct {
	Instructions *string         `json:"instructions,omitempty"`
	ToolChoice   json.RawMessage `json:"tool_choice,omitempty"`
	MaxOutput    *int64          `json:"max_output_tokens,omitempty"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
}

// parseControl reads an app's event. What is wrong with it is in the result: the
// app is told by an error event, and the session goes on.
func parseControl(data []byte) (c control) {
	if len(data) > maxControlBytes {
		return control{wrong: fmt.Sprintf("an event may have at most %d bytes", maxControlBytes)}
	}
	if err := strict(data, &c); err != nil {
		return control{EventID: c.EventID, wrong: err.Error()}
	}
	if len(c.EventID) > 512 {
		c.EventID, c.wrong = "", "event_id: at most 512 characters"
		return c
	}
	switch c.Type {
	case "session.update":
		c.update = &sessionUpdate{}
		c.wrong = c.update.read(c.Session)
	case "conversation.item.create":
		c.item = &appItem{}
		c.wrong = c.item.read(c.Item)
	case "response.create":
		c.request = &appReply{}
		if len(c.Reply) > 0 && string(c.Reply) != "null" {
			if err := strict(c.Reply, c.request); err != nil {
				c.wrong = "response." + err.Error()
			} else if c.request.Instructions != nil && len(*c.request.Instructions) > maxInstructions {
				c.wrong = fmt.Sprintf("response.instructions: at most %d bytes", maxInstructions)
			}
		}
	case "conversation.item.truncate":
		if c.ItemID == "" || c.ContentIndex != 0 || c.AudioEndMS < 0 {
			c.wrong = "item_id is required, content_index is 0, audio_end_ms is 0 or more"
		}
	case "svc.session.end":
		if c.When != "" && c.When != AfterHeard && c.When != Immediate {
			c.wrong = "when: must be after_heard or immediate"
		}
	case "response.cancel", "svc.session.approve_block":
	case "":
		c.wrong = "type: required"
	default:
		c.wrong = fmt.Sprintf("type: %.64q is not an event that this channel takes", c.Type)
	}
	return c
}

func (u *sessionUpdate) read(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "session: required"
	}
	if err := strict(raw, u); err != nil {
		return "session." + err.Error()
	}
	if u.Audio != nil && u.Audio.Output != nil && u.Audio.Output.Voice != nil {
		u.Voice = u.Audio.Output.Voice
	}
	switch {
	case u.Type != "" && u.Type != "realtime":
		return "session.type: must be realtime"
	case u.Instructions != nil && len(*u.Instructions) > maxInstructions:
		return fmt.Sprintf("session.instructions: at most %d bytes", maxInstructions)
	case u.Voice != nil && !voiceName.MatchString(*u.Voice):
		return "session.voice: must be the name of a voice"
	}
	if len(u.Tools) > 0 {
		flat, err := flatten(u.Tools)
		if err != nil {
			return "session." + err.Error()
		}
		u.Tools = flat
	}
	if len(u.ToolChoice) > 0 {
		choice, err := flatChoice(u.ToolChoice)
		if err != nil {
			return "session." + err.Error()
		}
		u.ToolChoice = choice
	}
	return ""
}

func (i *appItem) read(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "item: required"
	}
	if err := strict(raw, i); err != nil {
		return "item." + err.Error()
	}
	switch {
	case i.Type == "function_call_output" && (i.CallID == "" || i.Role != "" || i.Content != nil):
		return "item: a function_call_output has call_id and output"
	case i.Type == "function_call_output":
	case i.Type != "message":
		return "item.type: must be function_call_output or message"
	case i.Role != "user" && i.Role != "system" || len(i.Content) == 0 || i.CallID != "" || i.Output != "":
		return "item: a message has role user or system, and content"
	case slices.ContainsFunc(i.Content, func(p struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}) bool {
		return p.Type != "input_text"
	}):
		return "item.content: must be of type input_text"
	}
	return ""
}

// fromApp carries out an event of the control channel.
func (m *machine) fromApp(c control) {
	if c.wrong == "" && m.Status != Live && c.Type != "svc.session.end" {
		c.wrong = "the session is not live yet"
	}
	if c.wrong == "" && m.Ending != nil && c.Type != "svc.session.end" {
		c.wrong = "the session is ending"
	}
	if c.wrong != "" {
		m.refuse(c, c.wrong)
		return
	}
	switch c.Type {
	case "session.update":
		m.update(c)
	case "conversation.item.create":
		m.Grown += int64(len(c.Item))/2 + 16
		if c.item.Type == "function_call_output" {
			m.Outputs = append(m.Outputs, c.item.CallID)
			m.Outputs = m.Outputs[max(len(m.Outputs)-128, 0):]
		}
		m.pass(map[string]any{"type": c.Type, "item": c.item}, c.EventID)
	case "response.create":
		m.create(c)
	case "response.cancel":
		e := map[string]any{"type": c.Type}
		if c.ResponseID != "" {
			e["response_id"] = c.ResponseID
		}
		m.pass(e, c.EventID)
	case "conversation.item.truncate":
		m.pass(map[string]any{"type": c.Type, "item_id": c.ItemID, "content_index": 0, "audio_end_ms": c.AudioEndMS}, c.EventID)
	case "svc.session.end":
		m.end(AppEnded, c.When == Immediate)
	case "svc.session.approve_block":
		if m.BlockUS == 0 {
			m.refuse(c, "there is no block to approve")
			return
		}
		m.BlockUS, m.keep = 0, true
	}
}

func (m *machine) refuse(c control, why string) {
	e := refused{Type: "error"}
	e.Error.Type, e.Error.Code, e.Error.Message = "invalid_request_error", "invalid_event", why
	if c.EventID != "" {
		e.Error.EventID = &c.EventID
	}
	m.do(Control{e})
}

// pass sends an app's event on.
func (m *machine) pass(e map[string]any, eventID string) {
	if eventID != "" {
		e["event_id"] = eventID
	}
	m.do(Upstream{e})
}

// update changes the session as its app wants; the bound of a reply may only fall.
func (m *machine) update(c control) {
	u := c.update
	if u.MaxOutput != nil && (*u.MaxOutput < 1 || *u.MaxOutput > m.MaxOutputTokens) {
		m.refuse(c, fmt.Sprintf("session.max_output_tokens: must be from 1 to %d, what the session was created with", m.MaxOutputTokens))
		return
	}
	if u.Instructions != nil {
		m.Grown += int64(len(*u.Instructions)) / 2
		m.Config.Instructions = *u.Instructions
	}
	if u.Voice != nil {
		m.Config.Voice = *u.Voice
	}
	if len(u.Tools) > 0 {
		m.Grown += int64(len(u.Tools)) / 2
		m.Config.Tools = u.Tools
	}
	if len(u.ToolChoice) > 0 {
		m.Config.ToolChoice = u.ToolChoice
	}
	if u.MaxOutput != nil {
		m.Config.MaxOutput = *u.MaxOutput
	}
	m.keep = true
	m.restore()
}

// create lets a reply begin that the app wants: now if its hold is there and no
// other runs, else as soon as that is so.
func (m *machine) create(c control) {
	r := c.request
	if r.MaxOutput != nil && (*r.MaxOutput < 1 || *r.MaxOutput > m.Config.MaxOutput) {
		m.refuse(c, fmt.Sprintf("response.max_output_tokens: must be from 1 to %d, what the session has", m.Config.MaxOutput))
		return
	}
	if m.Barred {
		m.end(BudgetNotApproved, true)
		return
	}
	if m.Wanted != nil {
		m.refuse(c, "another response.create waits for its turn")
		return
	}
	e := map[string]any{"type": "response.create", "response": r}
	if c.EventID != "" {
		e["event_id"] = c.EventID
	}
	if r.Instructions != nil {
		m.Grown += int64(len(*r.Instructions)) / 2
	}
	m.Wanted = mustJSON(e)
}

// The service's own events on the control channel (spec §6).
type (
	started struct {
		Type      string `json:"type"`
		ID        string `json:"session_id"`
		Model     string `json:"model"`
		Mock      bool   `json:"mock"`
		StartedAt string `json:"started_at"`
	}
	settlement struct {
		Type                  string   `json:"type"`
		ID                    string   `json:"session_id"`
		ResponseID            string   `json:"response_id"`
		Receipt               Receipt  `json:"receipt"`
		ChargedMC             money.MC `json:"charged_mc"`
		ChargedDisplay        string   `json:"charged_display"`
		ResponseCount         int64    `json:"response_count"`
		AllocationRemainingMC money.MC `json:"allocation_remaining_mc"`
	}
	warning struct {
		Type           string    `json:"type"`
		ID             string    `json:"session_id"`
		Reason         string    `json:"reason"`
		ChargedMC      money.MC  `json:"charged_mc"`
		ChargedDisplay string    `json:"charged_display"`
		MaxCostMC      *money.MC `json:"max_cost_mc"`
	}
	checkpoint struct {
		Type             string   `json:"type"`
		ID               string   `json:"session_id"`
		ChargedMC        money.MC `json:"charged_mc"`
		ChargedDisplay   string   `json:"charged_display"`
		BlockMC          money.MC `json:"budget_block_mc"`
		Blocks           int64    `json:"blocks"`
		ApprovalRequired bool     `json:"approval_required"`
		ApproveBy        *string  `json:"approve_by"`
	}
	reset struct {
		Type   string   `json:"type"`
		ID     string   `json:"session_id"`
		Fields []string `json:"fields"`
		Resets int64    `json:"resets"`
	}
	ending struct {
		Type   string `json:"type"`
		ID     string `json:"session_id"`
		Reason string `json:"reason"`
	}
	endedEvent struct {
		Type           string   `json:"type"`
		ID             string   `json:"session_id"`
		Reason         string   `json:"reason"`
		ChargedMC      money.MC `json:"charged_mc"`
		ChargedDisplay string   `json:"charged_display"`
		ResponseCount  int64    `json:"response_count"`
	}
	refused struct {
		Type  string `json:"type"`
		Error struct {
			Type    string  `json:"type"`
			Code    string  `json:"code"`
			Message string  `json:"message"`
			EventID *string `json:"event_id"`
		} `json:"error"`
	}
)

func settledEvent(m *machine, e *Settled) settlement {
	return settlement{
		Type: "svc.response.settled", ID: m.ID, ResponseID: e.Reply, Receipt: receiptOf(e.Entry),
		ChargedMC: m.ChargedMC, ChargedDisplay: m.ChargedMC.Display(), ResponseCount: m.Count, AllocationRemainingMC: e.Entry.RemainingMC,
	}
}
