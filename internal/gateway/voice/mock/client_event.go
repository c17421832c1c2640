package mock

import (
	"encoding/json"

	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// clientEvent is what a browser or the sideband may send.
type clientEvent struct {
	Type     string         `json:"type"`
	EventID  string         `json:"event_id"`
	ItemID   string         `json:"item_id"`
	Content  *int64         `json:"content_index"`
	AudioEnd *int64         `json:"audio_end_ms"`
	Audio    string         `json:"audio"`
	Session  *sessionUpdate `json:"session"`
	Item     *session.Item  `json:"item"`
	Response *struct {
		MaxOutputTokens *int64 `json:"max_output_tokens"`
	} `json:"response"`
}

// maxOutputTokens returns the output cap of a response.create, or the session's.
func (e *clientEvent) maxOutputTokens(ofSession int64) int64 {
	if e.Response != nil && e.Response.MaxOutputTokens != nil {
		return *e.Response.MaxOutputTokens
	}
	return ofSession
}

// sessionUpdate is the session of a session.update. An absent member stays as it is.
type sessionUpdate struct {
	Instructions    *string         `json:"instructions"`
	MaxOutputTokens *int64          `json:"max_output_tokens"`
	Tools           json.RawMessage `json:"tools"`
	ToolChoice      json.RawMessage `json:"tool_choice"`
	Audio           *struct {
		Input *struct {
			TurnDetection *struct {
				CreateResponse *bool `json:"create_response"`
			} `json:"turn_detection"`
		} `json:"input"`
		Output *struct {
			Voice *string `json:"voice"`
		} `json:"output"`
	} `json:"audio"`
}

// applyTo changes c. A nil update changes nothing.
func (u *sessionUpdate) applyTo(c *session.Config) {
	if u == nil {
		return
	}
	if u.Instructions != nil {
		c.Instructions = *u.Instructions
	}
	if u.MaxOutputTokens != nil {
		c.MaxOutputTokens = *u.MaxOutputTokens
	}
	if u.Tools != nil {
		c.Tools = u.Tools
	}
	if u.ToolChoice != nil {
		c.ToolChoice = u.ToolChoice
	}
	if a := u.Audio; a != nil && a.Output != nil && a.Output.Voice != nil {
		c.Voice = *a.Output.Voice
	}
	if a := u.Audio; a != nil && a.Input != nil {
		if t := a.Input.TurnDetection; t != nil && t.CreateResponse != nil {
			c.AutoReply = *t.CreateResponse
		}
	}
}
