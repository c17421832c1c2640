package session

import (
	"encoding/json"
	"fmt"
	"time"
)

// voiceFixed is the provider's code of another voice after the model has spoken.
const voiceFixed = "cannot_update_voice"

const (
	maxToolCallIDs = 128 // tool results of the app that are remembered

	// MaxName is how many bytes an id may have that an app names: of its event, of an item, a reply or a tool call.
	MaxName = 512
)

// handleAppEvent applies an event of the control channel. One that is refused is answered with an
// error event, and the session goes on.
func (m *machine) handleAppEvent(e *AppEvent) {
	if problem := m.problemOf(e); problem != "" {
		m.refuseAppEvent(e, problem)
		return
	}
	switch e.Type {
	case "session.update":
		m.updateConfig(e)
	case "conversation.item.create":
		m.AddedTextTokens += textTokens(e.ItemBytes) + itemOverheadTokens
		if e.Item.Type == "function_call_output" {
			m.ToolCallIDs = append(m.ToolCallIDs, e.Item.CallID)
			m.ToolCallIDs = m.ToolCallIDs[max(len(m.ToolCallIDs)-maxToolCallIDs, 0):]
		}
		members := map[string]any{"item": e.Item}
		if e.After != "" {
			members["previous_item_id"] = e.After
			m.beginChanged()
		}
		m.forwardToProvider(e, members)
	case "response.create":
		m.queueReply(e)
	case "response.cancel":
		members := map[string]any{}
		if e.ResponseID != "" {
			members["response_id"] = e.ResponseID
		}
		m.forwardToProvider(e, members)
	case "conversation.item.retrieve":
		m.retrieveItem(e)
	case "conversation.item.truncate":
		m.forwardToProvider(e, map[string]any{
			"item_id":       e.ItemID,
			"content_index": 0,
			"audio_end_ms":  e.AudioEndMS,
		})
	case "svc.session.end":
		m.beginEnd(AppEnded, e.Immediate)
	case "svc.session.approve_block":
		m.approveBlock(e)
	}
}

// What an app may retrieve: each answer has the whole item.
const (
	retrievalInterval = time.Second
	maxRetrievals     = 10 // at once
)

// retrieveItem passes a retrieval on, within its rate.
func (m *machine) retrieveItem(e *AppEvent) {
	next := max(m.RetrievalsUS, m.nowUS) + retrievalInterval.Microseconds()
	if next > m.after(maxRetrievals*retrievalInterval) {
		m.refuseAppEvent(e, fmt.Sprintf("at most %d items at once can be retrieved, and one a second; try again later",
			maxRetrievals))
		return
	}
	m.RetrievalsUS = next
	m.forwardToProvider(e, map[string]any{"item_id": e.ItemID})
}

// problemOf returns why an event is refused whatever it says; "" = it is not.
func (m *machine) problemOf(e *AppEvent) string {
	switch {
	case e.Problem != "":
		return e.Problem
	case e.Type == "svc.session.end":
		return ""
	case m.Status != Live && e.Type != "session.update":
		return "the session is not live yet"
	case m.Ending != nil:
		return "the session is ending"
	}
	return ""
}

// NewRefusal returns the error event that refuses an app's event.
func NewRefusal(e *AppEvent, problem string) any { return newErrorMessage(e.EventID, problem) }

func (m *machine) refuseAppEvent(e *AppEvent, problem string) {
	m.addActions(ToApp{Event: newErrorMessage(e.EventID, problem)})
}

// RefusalBeforeLive returns the error event that answers an app's event while no node runs the
// session, or nil if the event ends it.
func RefusalBeforeLive(e *AppEvent) any {
	m := &machine{State: State{Status: Pending}}
	problem := m.problemOf(e)
	if problem == "" && e.Type != "svc.session.end" {
		problem = "too many updates wait for the session to be live"
	}
	if problem != "" {
		return newErrorMessage(e.EventID, problem)
	}
	return nil
}

// forwardToProvider sends an app's event on, with these members.
func (m *machine) forwardToProvider(e *AppEvent, members map[string]any) {
	members["type"] = e.Type
	if e.EventID != "" {
		members["event_id"] = e.EventID
	}
	m.addActions(ToProvider{members})
}

// updateConfig asks the provider for the change that the app wants. Until the provider has confirmed it, Config stays
// as it is. The output cap of a reply may fall, and rise again up to what the session was created with; it is set
// apart.
func (m *machine) updateConfig(e *AppEvent) {
	u := *e.Update
	if n := u.MaxOutputTokens; n != nil && (*n < 1 || *n > m.MaxOutputTokens) {
		m.refuseAppEvent(e,
			fmt.Sprintf("session.max_output_tokens: must be from 1 to %d, what the session was created with",
				m.MaxOutputTokens))
		return
	}
	if u.Voice != nil && m.AudioHeard {
		if *u.Voice != m.Config.Voice {
			m.refuseVoice(e)
			return
		}
		u.Voice = nil
	}
	if !m.hasRoomForUpdate(&u) {
		m.refuseAppEvent(e, "the provider has not answered the session.update before this one; send it again")
		return
	}
	if u.Instructions != nil {
		m.AddedTextTokens += textTokens(len(*u.Instructions))
	}
	if u.Instructions != nil || len(u.Tools) > 0 {
		m.beginChanged()
	}
	m.AddedTextTokens += textTokens(len(u.Tools))
	m.sendUpdate(Update{Kind: appUpdate, EventID: e.EventID, Change: &u}, u.realtimeSession())
	m.limitOutput()
	m.mustPersist = true
}

// refuseVoice refuses another voice as the provider does when the model has spoken.
func (m *machine) refuseVoice(e *AppEvent) {
	refused := newErrorMessage(e.EventID, "Cannot update a conversation's voice if assistant audio is present.")
	refused.Error.Code = voiceFixed
	m.addActions(ToApp{Event: refused})
}

// queueReply lets a reply begin that the app asked for: now if its hold is made and no other reply
// is in progress, else as soon as that is so (see advance).
func (m *machine) queueReply(e *AppEvent) {
	r := e.Reply
	if n := r.MaxOutputTokens; n != nil && (*n < 1 || *n > m.appOutput()) {
		m.refuseAppEvent(e, fmt.Sprintf("response.max_output_tokens: must be from 1 to %d, what the session has",
			m.appOutput()))
		return
	}
	if m.ApprovalMissed {
		m.beginEnd(BudgetNotApproved, true)
		return
	}
	if m.QueuedReply != nil {
		m.refuseAppEvent(e, "another response.create waits for its turn")
		return
	}
	event := map[string]any{"type": "response.create", "response": r}
	if e.EventID != "" {
		event["event_id"] = e.EventID
	}
	if r.Instructions != nil {
		m.AddedTextTokens += textTokens(len(*r.Instructions))
		m.beginChanged()
	}
	m.QueuedReply = EncodeJSON(event) // its raw members were decoded from JSON
}

// sendQueuedReply lets the queued reply begin if the connection may spend, with at most the output limit
// that its hold covers.
func (m *machine) sendQueuedReply() {
	switch m.Spending {
	case NotChecked:
		m.Spending = Checking
		m.addActions(CheckSpending{})
	case Allowed:
		m.addActions(ToProvider{m.limitReply(m.QueuedReply)})
		m.QueuedReply, m.Spending = nil, NotChecked
	}
}

// maySpend lets the queued reply begin.
func (m *machine) maySpend() {
	if m.Spending == Checking {
		m.Spending = Allowed
	}
}

// limitReply lowers the output limit of a response.create to the session's.
func (m *machine) limitReply(event json.RawMessage) json.RawMessage {
	var e struct {
		Type     string        `json:"type"`
		EventID  string        `json:"event_id,omitempty"`
		Response *ReplyOptions `json:"response"`
	}
	if json.Unmarshal(event, &e) != nil || e.Response == nil || e.Response.MaxOutputTokens == nil ||
		*e.Response.MaxOutputTokens <= m.Config.MaxOutputTokens {
		return event
	}
	e.Response.MaxOutputTokens = &m.Config.MaxOutputTokens
	return EncodeJSON(e) // its raw members were decoded from JSON
}

// approveBlock closes the approval window.
func (m *machine) approveBlock(e *AppEvent) {
	if m.ApproveByUS == 0 {
		m.refuseAppEvent(e, "there is no block to approve")
		return
	}
	m.ApproveByUS, m.mustPersist = 0, true
}
