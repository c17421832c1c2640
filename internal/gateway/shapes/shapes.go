// Package shapes lets clients of other APIs call: OpenAI's Responses (shapes/responses) and Embeddings
// (shapes/embeddings), Anthropic's Messages (shapes/messages), and Google's Gemini API (shapes/contents). A shape
// translates at the client's side only. A request becomes the canonical one, and the deltas of the answer become what
// the client gets. That is what is stored and what a replay returns, byte for byte, but for the bill: where it belongs
// are holes until the ledger row is written. Hold, attempt, idempotency and settlement are those of every call. It is
// pure.
package shapes

import (
	"bytes"
	"errors"
	"regexp"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/models/conversation"
)

// A Call is a parsed request of a shape.
type Call interface {
	// Request returns the canonical request. Its IncludeUsage is true.
	Request() *plan.Request
	// NewWriter returns a writer of one answer; nil if answers are translated by Body.
	NewWriter(Head) Writer
	// Body translates a whole answer that has no deltas: a list of embeddings.
	Body(canonical []byte) []byte
	// MemberName returns how the client names a member of the canonical request, such as messages[2].content.
	MemberName(canonical string) string
	// Format returns the form of the answers.
	Format() Format
}

// A Head names an answer.
type Head struct {
	RequestID   string // ours, req_…
	Model       string // that was asked
	CreatedUnix int64
	InputTokens int64 // of the request, as they were counted for its hold
	Stream      bool  // it is streamed, and otherwise comes whole
}

// A Writer writes one answer for a client.
type Writer interface {
	// Write takes a delta. Begin forgets what came before it.
	Write(*conversation.Delta)
	// Take returns what has been written of a stream since it was last called. It is valid until the next Write.
	Take() []byte
	// End returns the rest of a stream, or the whole answer, with holes.
	End() []byte
}

// A Format is what answers of a shape have in common.
type Format interface {
	// Fail returns what ends a stream of which sent has been sent: the error object of an envelope, and holes.
	Fail(sent, failure []byte) []byte
	// AppendUsage appends the client's usage object for OpenAI's; nil = it is not known.
	AppendUsage(b, usage []byte) []byte
	// KeepAlive returns what is sent in a silence. Clients take it as nothing.
	KeepAlive() []byte
	// Text returns all that the model generated in the events of a stream or in a whole answer, its readable reasoning
	// and the names of the tools too, so that what was delivered can be counted.
	Text(answer []byte) string
}

// Comment is a line of a stream of events that clients skip.
const Comment = ": waiting\n\n"

// Holes are where the bill goes in an answer. No JSON has a NUL.
const (
	UsageHole = "\x00u" // the usage, in the client's form
	BlockHole = "\x00s" // the member svc, with a comma before it: the block of a ledger row, or how the call is settled
	FinalHole = "\x00f" // the member svc_final, with a comma before it
)

// FillHoles returns an answer with its bill. fill appends what belongs into a hole.
func FillHoles(answer []byte, fill func(b []byte, hole string) []byte) []byte {
	out := make([]byte, 0, len(answer)+2048)
	for {
		i := bytes.IndexByte(answer, 0)
		if i < 0 || i+2 > len(answer) {
			return append(out, answer...)
		}
		out = fill(append(out, answer[:i]...), string(answer[i:i+2]))
		answer = answer[i+2:]
	}
}

// WithoutBill returns an answer of whose bill nothing is known.
func WithoutBill(answer []byte) []byte {
	return FillHoles(answer, func(b []byte, hole string) []byte {
		if hole == UsageHole {
			b = append(b, "null"...)
		}
		return b
	})
}

// SplitStream splits a stream as it is stored into what was sent while it ran, and its end: from the first event with a
// hole on.
func SplitStream(stored []byte) (sent, end []byte) {
	i := bytes.IndexByte(stored, 0)
	if i < 0 {
		return stored, nil
	}
	i = bytes.LastIndex(stored[:i], []byte("\n\n"))
	if i < 0 {
		return nil, stored
	}
	return stored[:i+2], stored[i+2:]
}

// NextEvent cuts the first event off a stream in which each event has a name, and returns its data.
func NextEvent(stream []byte) (data, rest []byte) {
	event, rest, _ := bytes.Cut(stream, []byte("\n\n"))
	_, data, _ = bytes.Cut(event, []byte("\ndata: "))
	return data, rest
}

// TooLong is error.details.reason of a request that has more tokens than its model takes, and OpenAI's code for it.
const TooLong = "context_length_exceeded"

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
