// Package shapes lets clients of other APIs call: OpenAI's Responses (shapes/responses) and Embeddings
// (shapes/embeddings), and Anthropic's Messages (shapes/messages). A shape translates at the
// client's side only. A request becomes the canonical one, and the canonical response, which is
// that of POST /v1/chat/completions with its usage chunk, becomes the client's. Hold, attempt,
// idempotency, stored response and replay are those of every call, so a replay has the same bytes
// as the first response as long as the translation depends on nothing but request and response. It is pure.
package shapes

import (
	"encoding/json"
	"errors"
	"regexp"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
)

// A Call is a parsed request of a shape.
type Call interface {
	// Request returns the canonical request. Its IncludeUsage is true.
	Request() *plan.Request
	// Body translates a whole response: a chat.completion object, or a list of embeddings, with usage and svc block.
	Body(canonical []byte) []byte
	// NewStream returns a translator for one streamed response.
	NewStream() Stream
	// MemberName returns how the client names a member of the canonical request, such as messages[2].content.
	MemberName(canonical string) string
}

// A Stream translates a streamed response.
type Stream interface {
	// Translate returns what the client gets for whole canonical events: chunks of chat.completion.chunk, an error
	// envelope, the usage chunk with svc_final, and last [DONE]. It is given them in order, one or many at a time. The
	// result is valid until the next call.
	Translate(frames []byte) []byte
}

// TooLong is error.details.reason of a request that has more tokens than its model takes, and OpenAI's code for it.
const TooLong = "context_length_exceeded"

// IsTooLong reports whether the error of an envelope says that the request is too long for its model.
func IsTooLong(failure []byte) bool {
	var e struct {
		Details struct {
			Reason any `json:"reason"`
		} `json:"details"`
	}
	return json.Unmarshal(failure, &e) == nil && e.Details.Reason == TooLong
}

var namedMember = regexp.MustCompile(`^([a-z][a-z0-9_]*(?:\[\d+\]|\.[a-z][a-z0-9_]*)*): `)

// RenameMember makes an error that names a member of the canonical request name the client's. name is that of Call.
func RenameMember(err error, name func(canonical string) string) error {
	var e *apierr.Error
	if !errors.As(err, &e) {
		return err
	}
	member := FindMember(e)
	if member == "" {
		return err
	}
	renamed := *e
	renamed.Message = name(member) + e.Message[len(member):]
	return &renamed
}

// FindMember returns the member of the request that an error names; "" = none.
func FindMember(e *apierr.Error) string {
	m := namedMember.FindStringSubmatch(e.Message)
	if m == nil || e.Code != apierr.InvalidRequest {
		return ""
	}
	return m[1]
}
