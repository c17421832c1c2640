// Package provider defines the form in which Purser calls AI providers (contract §1): a canonical request, a
// completion or a stream of chunks, and the usage that is billed. Each sub-package translates one dialect.
package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/models/conversation"
)

// A Provider executes canonical requests at one AI provider.
type Provider interface {
	// Name is the provider's name in the contract: openai, anthropic, google.
	Name() string
	// Complete executes a request and returns the whole response.
	Complete(ctx context.Context, r *Request) (*Response, error)
	// Stream starts a streamed request and returns after the first chunk has arrived, so that a failure before it
	// can still be answered with an error status.
	Stream(ctx context.Context, r *Request) (Stream, error)
}

// A Stream yields the chunks of one answer in OpenAI's shape.
type Stream interface {
	// Next returns one or more whole chunks that have arrived. It returns io.EOF after the provider has ended the
	// answer, and an *Error, or the error of the connection, if the answer was cut.
	Next() (Chunk, error)
	// BodyEnded reports whether the provider has ended the body of the response. Before that, Close may wait
	// a moment for it.
	BodyEnded() bool
	// Close releases the upstream connection. It may be called at any time.
	Close() error
}

// A Chunk is one or more whole server-sent events as they go to the app. Its slices are valid until the next call of
// Next.
type Chunk struct {
	Frames     []byte // complete "data: {…}\n\n" events with choices; none if deltas were passed to the request's To
	UsageFrame []byte // the event with only usage, if it came; not in Frames
	Usage      *Usage // its usage; nil if none came or it is unusable
}

// A Response is a whole answer.
type Response struct {
	Body  []byte // in OpenAI's shape: a chat.completion, or a list of embeddings; nil = deltas were passed to To
	Usage *Usage // nil if missing or unusable: the call is then estimated
}

// Usage has the token counts of one call in disjoint classes, except Reasoning, which is the part of Output that the
// app does not see.
type Usage struct {
	Input      int64 // uncached input
	Cached     int64 // input read from the provider's cache
	CacheWrite int64 // input written to the provider's cache
	Output     int64 // all output, including reasoning
	Reasoning  int64

	SumDiffers bool // the provider's total is not the sum of its parts, which are what counts
}

// Request is one call in canonical form, validated and complete. Members that Purser does not forward are dropped
// already. A call for embeddings has Embedding and nothing else of what a model reads or writes.
type Request struct {
	ID                string // our request id, req_…
	AppID             string // whose call it is; the circuit breaker keeps apps apart,
	ConnectionID      string // and the connections of an app
	Model             string
	Turns             []conversation.Turn
	MaxTokens         int64    // the resolved maximum of output tokens (contract §2, holds 5); always set
	Temperature       *float64 // nil = not given
	TopP              *float64
	Stop              []string
	Tools             []Tool
	ToolChoice        ToolChoice
	ParallelToolCalls *bool
	ResponseFormat    json.RawMessage // nil = not given
	ReasoningEffort   string
	Stream            bool
	Embedding         *Embedding // what is to be embedded; nil = the call is for text
	Facts             ModelFacts

	// Thinking says whether a client that speaks of thinking itself, beside the effort, asks for it: on or off; "" = it
	// has no such word, so that an effort asks for it.
	Thinking string
	// FromResponses says that the client speaks OpenAI's Responses API: what it leaves out has that API's default.
	FromResponses bool
	// To takes the deltas of the answer in place of chunks and body, if the provider's own shape is another than Chat
	// Completions; nil = the answer is wanted in that shape.
	To conversation.Sink `json:"-"`

	// WantReasoning asks for what the model has thought: readable text in reasoning_content, and the opaque blocks
	// that the app sends back with its next request in extra_content, of the message or of a delta.
	WantReasoning bool
	// WantSummary asks for the readable text, too, where it must be asked for by itself: OpenAI gives it only to
	// organizations that it has verified.
	WantSummary bool
	// EndUser identifies the account for the provider's abuse control; a keyed hash, never an id of ours; "" = none.
	EndUser string
	// CacheKey groups the requests that share a prefix, so that the provider's cache serves them; "" = none.
	CacheKey string
}

// AsksToThink reports whether the client asks for reasoning of a model that does not reason by itself.
func (r *Request) AsksToThink() bool {
	return r.Thinking == "on" || r.Thinking == "" && r.ReasoningEffort != "" && r.ReasoningEffort != "none"
}

// ModelFacts are the properties of the model that a dialect needs.
type ModelFacts struct {
	Responses   bool   // OpenAI: served by the Responses API
	Thinking    string // as catalog.Model has it
	Prefill     bool   // Anthropic: goes on from an assistant's words
	Vision      bool
	Temperature bool  // any value; otherwise only the default is accepted
	Dimensions  int64 // numbers of a full embedding; 0 = the model makes none
}

// Tool is a function that the model may call.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // nil = no arguments
	Strict      *bool

	CacheBreakpoint bool // the provider's cache should keep the request up to here
}

// ToolChoice says whether the model must call a tool, and which one.
type ToolChoice struct {
	Mode string // "", auto, none, required, function
	Name string // for function
}

// Kind is the meaning of an Error for the app.
type Kind int

// The kinds of failure: Failed becomes 502 provider_error, Rejected becomes 400
// invalid_request. Neither is billed.
const (
	Failed Kind = iota
	Rejected
)

// Error is a failure at the provider. Message may be sent to an app: it contains no key, account or
// URL of the operator.
type Error struct {
	Kind       Kind
	Status     int // the provider's HTTP status, 0 if there was none
	Message    string
	RetryAfter time.Duration
	Retry      bool   // nothing of the answer has arrived, and another try may succeed
	Unsent     bool   // the provider has not got the request
	Final      bool   // the provider says that repeating the request cannot help
	Alarm      string // what the operator must fix, such as "the key is refused"; "" = nothing
	OutOfQuota bool   // the account may make no more calls for a time, or without a payment
	KeyRefused bool   // the key, or its account, is refused, though the status says something else
	TooLong    bool   // the request has more tokens than the model takes
	Refusal    string // the text with which the provider calls the request invalid; "" = it does not
	Unusable   string // what is wrong with an answer that came whole, such as "a malformed tool call"; "" = nothing
	Cause      error  // for the log only
}

// Error returns what failed and why, for the log. The message of a rejection is not in it, because it may quote the
// request.
func (e *Error) Error() string {
	message := e.Message
	if e.Kind == Rejected {
		message = "the request was rejected"
	}
	if e.Cause != nil {
		return fmt.Sprintf("provider: %s: %v", message, e.Cause)
	}
	return "provider: " + message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }
