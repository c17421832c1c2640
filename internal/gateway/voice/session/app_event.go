package session

import "encoding/json"

// An AppEvent is an event of the control channel (contract §4.4), decoded and checked by its
// reader. There is a field for exactly what an app may send: nothing that could loosen a limit.
type AppEvent struct {
	Type    string
	EventID string // the app's name of the event, at most MaxName bytes; an error event repeats it
	Problem string // why the event is refused; "" = it is well formed

	Immediate bool          // svc.session.end
	Update    *ConfigUpdate // session.update
	Item      *Item         // conversation.item.create
	ItemBytes int           // how long the item is as the app wrote it
	After     string        // conversation.item.create: the item before it; "" = it is the last one
	Reply     *ReplyOptions // response.create

	ResponseID string // response.cancel; "" = the reply in progress
	ItemID     string // conversation.item.truncate and .retrieve
	AudioEndMS int64  // conversation.item.truncate
}

// ConfigUpdate is what an app may change of a running session. A nil field stays as it is.
type ConfigUpdate struct {
	Instructions    *string
	Voice           *string
	Tools           json.RawMessage `json:",omitempty"` // null in a saved state would read back as "null"
	ToolChoice      json.RawMessage `json:",omitempty"`
	MaxOutputTokens *int64
}

// Item is what an app may add to a conversation: a message, or the result of a tool call. Its JSON
// is read from the app and written to the provider.
type Item struct {
	ID      string        `json:"id,omitempty"`
	Object  string        `json:"object,omitempty"`
	Status  string        `json:"status,omitempty"`
	Type    string        `json:"type"`
	Role    string        `json:"role,omitempty"`
	CallID  string        `json:"call_id,omitempty"`
	Output  string        `json:"output,omitempty"`
	Content []ContentPart `json:"content,omitempty"`
}

// ContentPart is one part of a message.
type ContentPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// ReplyOptions are what an app may choose for one reply. Their JSON is read from the app and written
// to the provider.
type ReplyOptions struct {
	Instructions    *string         `json:"instructions,omitempty"`
	ToolChoice      json.RawMessage `json:"tool_choice,omitempty"`
	MaxOutputTokens *int64          `json:"max_output_tokens,omitempty"`
	Metadata        json.RawMessage `json:"metadata,omitempty"`
}
