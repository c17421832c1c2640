package purser

import (
	"encoding/json"
	"fmt"
)

// A ChatRequest is the body of a call, in the shape of OpenAI's chat completions, with the options of the call.
type ChatRequest struct {
	Messages []Message `json:"messages"`
	// the largest output; it bounds the hold. 0: the app's default
	MaxTokens       int64    `json:"max_tokens,omitempty"`
	Temperature     *float64 `json:"temperature,omitempty"`
	TopP            *float64 `json:"top_p,omitempty"`
	Stop            []string `json:"stop,omitempty"`
	Tools           []Tool   `json:"tools,omitempty"`
	ToolChoice      any      `json:"tool_choice,omitempty"` // "auto", "none", "required", or an object
	ResponseFormat  any      `json:"response_format,omitempty"`
	ReasoningEffort string   `json:"reasoning_effort,omitempty"`

	// Extra has other members of the body, which win.
	Extra map[string]any `json:"-"`

	// Feature is the slug of the feature that the call is for. CallFeature and StreamFeature set it themselves.
	Feature string `json:"-"`
	// IdempotencyKey is a UUID. A call with the key of an earlier one returns its answer and is not billed again.
	// Default: a new one for each call.
	IdempotencyKey string `json:"-"`
	// Fit says whether a call that does not fit gets a lower output cap instead of a refusal. Nil: as the feature and
	// the app say.
	Fit *bool `json:"-"`
}

// MarshalJSON returns the body of the call.
func (r ChatRequest) MarshalJSON() ([]byte, error) {
	type plain ChatRequest
	return marshalWith(plain(r), r.Extra)
}

// A Message is one turn of a conversation. Send the messages of a model back as they came.
type Message struct {
	Role       string     // system, user, assistant or tool
	Content    string     // the text; unused if there are Parts
	Parts      []Part     // text and images
	ToolCalls  []ToolCall // of the assistant
	ToolCallID string     // of a tool's result: the call that it answers
	// Extra has other members, such as extra_content, which some models need back.
	Extra map[string]any
}

// SystemMessage returns instructions for the model.
func SystemMessage(text string) Message { return Message{Role: "system", Content: text} }

// UserMessage returns what a user says.
func UserMessage(text string) Message { return Message{Role: "user", Content: text} }

// AssistantMessage returns what a model has said.
func AssistantMessage(text string) Message { return Message{Role: "assistant", Content: text} }

// ToolMessage returns the result of a tool's call.
func ToolMessage(toolCallID, result string) Message {
	return Message{Role: "tool", ToolCallID: toolCallID, Content: result}
}

type messageJSON struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content,omitempty"`
	ToolCalls  []ToolCall      `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
}

// MarshalJSON returns the message in the API's form.
func (m Message) MarshalJSON() ([]byte, error) {
	var content any = m.Content
	if m.Parts != nil {
		content = m.Parts
	} else if m.Content == "" && len(m.ToolCalls) > 0 {
		content = nil
	}
	text, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	return marshalWith(messageJSON{m.Role, text, m.ToolCalls, m.ToolCallID}, m.Extra)
}

// UnmarshalJSON reads a message in the API's form.
func (m *Message) UnmarshalJSON(data []byte) error {
	var read messageJSON
	if err := json.Unmarshal(data, &read); err != nil {
		return err
	}
	extra, err := unmarshalRest(data, "role", "content", "tool_calls", "tool_call_id")
	if err != nil {
		return err
	}
	*m = Message{Role: read.Role, ToolCalls: read.ToolCalls, ToolCallID: read.ToolCallID, Extra: extra}
	if len(read.Content) > 0 && read.Content[0] == '[' {
		return json.Unmarshal(read.Content, &m.Parts)
	}
	if len(read.Content) > 0 {
		return json.Unmarshal(read.Content, &m.Content)
	}
	return nil
}

// A Part is a text or an image of a message.
type Part struct {
	Type     string    `json:"type"` // text or image_url
	Text     string    `json:"text,omitempty"`
	ImageURL *ImageURL `json:"image_url,omitempty"`
}

// An ImageURL is a data: URL or a public address of an image.
type ImageURL struct {
	URL string `json:"url"`
}

// TextPart returns a text.
func TextPart(text string) Part { return Part{Type: "text", Text: text} }

// ImagePart returns an image.
func ImagePart(url string) Part { return Part{Type: "image_url", ImageURL: &ImageURL{url}} }

// A Tool is a function that a model may ask for.
type Tool struct {
	Name        string // letters, digits, _ and -, at most 64
	Description string
	Parameters  any // a JSON Schema, as any value that becomes one
}

type toolJSON struct {
	Type     string       `json:"type"`
	Function functionJSON `json:"function"`
}

type functionJSON struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Parameters  any    `json:"parameters,omitempty"`
}

// MarshalJSON returns the tool in the API's form.
func (t Tool) MarshalJSON() ([]byte, error) {
	return json.Marshal(toolJSON{"function", functionJSON(t)})
}

// UnmarshalJSON reads a tool in the API's form.
func (t *Tool) UnmarshalJSON(data []byte) error {
	var read toolJSON
	if err := json.Unmarshal(data, &read); err != nil {
		return err
	}
	*t = Tool(read.Function)
	return nil
}

// A ToolCall is a call of a function that a model asks for.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string // JSON, written by the model: check it
	// Extra has other members, such as extra_content, which some models need back.
	Extra map[string]any
}

type toolCallJSON struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// MarshalJSON returns the call in the API's form.
func (c ToolCall) MarshalJSON() ([]byte, error) {
	written := toolCallJSON{ID: c.ID, Type: "function"}
	written.Function.Name, written.Function.Arguments = c.Name, c.Arguments
	return marshalWith(written, c.Extra)
}

// UnmarshalJSON reads a call in the API's form.
func (c *ToolCall) UnmarshalJSON(data []byte) error {
	var read toolCallJSON
	if err := json.Unmarshal(data, &read); err != nil {
		return err
	}
	extra, err := unmarshalRest(data, "id", "type", "function", "index")
	if err != nil {
		return err
	}
	*c = ToolCall{ID: read.ID, Name: read.Function.Name, Arguments: read.Function.Arguments, Extra: extra}
	return nil
}

// An Answer is the answer to a call.
type Answer struct {
	Resource
	Text         string  // the text of the first choice
	Message      Message // the first choice; send it back unchanged to go on
	FinishReason string  // stop, length, tool_calls, content_filter, or another one of the provider
	Usage        Usage
	Bill         Bill
	RequestID    string // names the call's receipt
	Replayed     bool   // whether this is the stored answer of an earlier call with the same IdempotencyKey
}

type completion struct {
	Choices []struct {
		Message      Message `json:"message"`
		FinishReason string  `json:"finish_reason"`
	} `json:"choices"`
	Usage Usage           `json:"usage"`
	Svc   json.RawMessage `json:"svc"`
}

// readAnswer reads the answer to a call.
func readAnswer(r reply) (Answer, error) {
	read, err := decode[completion](r.body)
	if err != nil {
		return Answer{}, err
	}
	if len(read.Choices) == 0 {
		return Answer{}, fmt.Errorf("purser: the answer has no choice")
	}
	answer := Answer{
		Text:         read.Choices[0].Message.Content,
		Message:      read.Choices[0].Message,
		FinishReason: read.Choices[0].FinishReason,
		Usage:        read.Usage,
		RequestID:    r.header.Get("X-Request-Id"),
		Replayed:     r.header.Get("Idempotent-Replayed") == "true",
	}
	answer.keepRaw(r.body)
	if len(read.Svc) > 0 {
		if answer.Bill, err = decode[Bill](read.Svc); err != nil {
			return Answer{}, err
		}
	}
	answer.Bill.Usage = &read.Usage
	return answer, nil
}
