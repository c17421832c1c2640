// Package provider defines the one shape in which Purser talks to AI providers
// (contract §1): a canonical request, a completion or a stream of chunks, and the
// usage that is billed. Each sub-package translates one dialect to and from it.
package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// A Provider carries out canonical requests at one AI provider.
type Provider interface {
	// Name is the provider's name in the contract: openai, anthropic, google.
	Name() string
	// Complete runs a request to its end.
	Complete(ctx context.Context, r *Request) (*Response, error)
	// Stream starts a streamed request and returns once the first chunk is
	// here, so that a failure before it can still become a real status.
	Stream(ctx context.Context, r *Request) (Stream, error)
}

// A Stream yields the chunks of one answer in OpenAI's shape.
type Stream interface {
	// Next returns what has arrived, one or more whole chunks. It returns
	// io.EOF after the provider said that it is done, and an *Error, or the
	// error of the connection, when the answer was cut.
	Next() (Chunk, error)
	// Over reports whether the provider has ended the answer's body. Until then
	// Close may wait a moment for that.
	Over() bool
	// Close releases the upstream connection. It may be called at any time.
	Close() error
}

// A Chunk is a run of whole server-sent events as they go to the app. Its
// slices are valid until the next call of Next.
type Chunk struct {
	Frames     []byte // complete "data: {…}\n\n" events with choices
	UsageFrame []byte // the event that carries only usage, if it came; not in Frames
	Usage      *Usage // the usage in it; nil if none came or it is unusable
}

// A Response is a whole answer.
type Response struct {
	Body  []byte // a JSON object in OpenAI's chat.completion shape
	Usage *Usage // nil when missing or unusable: the call is then estimated
}

// Usage counts the tokens of one call in disjoint classes, except Reasoning,
// which is the part of Output that was not shown.
type Usage struct {
	Input      int64 // uncached input
	Cached     int64 // input read from the provider's cache
	CacheWrite int64 // input written to the provider's cache
	Output     int64 // everything generated, reasoning included
	Reasoning  int64
}

// Request is one call in canonical form, checked and complete: Purser has
// already dropped every member that it does not forward.
type Request struct {
	ID                string // our request id, req_…
	Model             string
	Messages          []Message
	MaxTokens         int64    // the resolved output cap (contract §2, holds 5); always set
	Temperature       *float64 // nil = not given
	TopP              *float64
	Stop              []string
	Tools             []Tool
	ToolChoice        ToolChoice
	ParallelToolCalls *bool
	ResponseFormat    json.RawMessage // nil = not given
	ReasoningEffort   string
	Stream            bool
	Facts             Facts
}

// Facts are what the catalogue knows of the model that its dialect must mind.
type Facts struct {
	Responses   bool   // OpenAI: served by the Responses API
	Thinking    string // Anthropic: always, on (can be switched off) or off; Google: level or budget
	Vision      bool
	Temperature bool // free; otherwise only the default is accepted
}

// Message is one turn. Text stands in Text when the content was a string, in
// Parts when it was a list; HasContent tells an absent or null content apart.
type Message struct {
	Role       string // system, developer, user, assistant, tool
	HasContent bool
	Text       string
	Parts      []Part
	Name       string
	ToolCalls  []ToolCall
	ToolCallID string
	Refusal    string
}

// Part is a piece of a message's content: text, or an image by URL.
type Part struct {
	Type     string // text, image_url
	Text     string
	ImageURL string
	Detail   string // auto, low, high, original, or empty

	// What package images found out about the image; zero = unknown.
	MediaType     string // of its bytes, whatever the URL says
	Width, Height int
}

// ToolCall is a call that the model made in an earlier turn.
type ToolCall struct {
	ID           string
	Name         string
	Arguments    string
	ExtraContent json.RawMessage // opaque, sent back unchanged (contract §4.3)
}

// Tool is a function that the model may call.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // nil = no arguments
	Strict      *bool
}

// ToolChoice says whether and what the model must call.
type ToolChoice struct {
	Mode string // "", auto, none, required, function
	Name string // for function
}

// Kind says what an Error means for the caller.
type Kind int

// The kinds of failure: Failed becomes 502 provider_error, Rejected becomes 400
// invalid_request. Neither is billed.
const (
	Failed Kind = iota
	Rejected
)

// Error is a failure at the provider. Message is fit to be shown to an app: it
// holds no key, account or address of ours.
type Error struct {
	Kind       Kind
	Status     int // the provider's HTTP status, 0 if there was none
	Message    string
	RetryAfter time.Duration
	Retry      bool   // nothing of an answer has come, and another try may succeed
	Alarm      string // what the operator must mend: "the key is refused"; "" = nothing
	Cause      error  // for the log only
}

// Error returns the message and, for the log, its cause.
func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("provider: %s: %v", e.Message, e.Cause)
	}
	return "provider: " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }
