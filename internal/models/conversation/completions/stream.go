// Package completions writes answers in the shape of OpenAI's Chat Completions.
package completions

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// A Stream writes the deltas of an answer as chunks, which are whole server-sent events, or passes them on to whom its
// request names.
type Stream struct {
	answer
	hasNew bool
	b      []byte // chunks that were not taken
	head   []byte // the start of each chunk, up to its delta
	top    int    // length of the part of head before the first choice
}

// NewStream returns a writer of the answer to a request, which came at now. It appends to b.
func NewStream(b []byte, r *provider.Request, now time.Time) *Stream {
	return &Stream{answer: newAnswer(r, now), b: b}
}

// HasNew reports whether anything was passed or written since the last Reset.
func (s *Stream) HasNew() bool { return s.hasNew }

// Frames returns the chunks since the last Reset. They are valid until then.
func (s *Stream) Frames() []byte { return s.b }

// Reset forgets the chunks that were written.
func (s *Stream) Reset() { s.b, s.hasNew = s.b[:0], false }

// Write takes a delta.
func (s *Stream) Write(d *conversation.Delta) {
	if s.r.To != nil {
		s.hasNew = true
		s.r.To(d)
		return
	}
	s.write(d)
	s.hasNew = len(s.b) > 0
}

func (s *Stream) write(d *conversation.Delta) {
	s.order.note(d)
	switch d.Kind {
	case conversation.Begin:
		s.kept, s.calls, s.b = s.kept[:0], s.calls[:0], s.b[:0]
		s.head = s.appendHead([]byte("data: "), d, "chat.completion.chunk")
		s.top = len(s.head)
		s.head = append(s.head, `{"index":0,"delta":{`...)
		s.b = append(append(append(s.b, s.head...), `"role":"assistant","content":"","refusal":null`...), unfinished...)
	case conversation.Text:
		s.writeText(`"content":"`, d)
	case conversation.Refusal:
		s.writeText(`"refusal":"`, d)
	case conversation.Reasoning:
		if s.reasons {
			s.writeText(`"reasoning_content":"`, d)
		}
	case conversation.Thought:
		if s.reasons {
			s.b = append(appendExtra(append(s.b, s.head...), d.Origin, d.Opaque), unfinished...)
		} else {
			s.keep(d)
		}
	case conversation.Call:
		s.writeCall(d)
	case conversation.Arguments:
		s.b = s.appendIndex(append(s.b, s.head...), slices.Index(s.calls, d.Block))
		s.b = append(append(s.b, `"function":{"arguments":"`...), d.Text...)
		s.b = append(append(s.b, `"}}]`...), unfinished...)
	case conversation.End:
		if !s.reasons && !s.order.isPlain() {
			s.b = append(s.order.append(append(append(s.b, s.head...), `"extra_content":{`...)), '}')
			s.b = append(s.b, unfinished...)
		}
		s.b = append(append(append(s.b, s.head...), `},"finish_reason":"`...), d.Reason.String()...)
		s.b = append(appendStop(append(s.b, '"'), d.Text), "}]}\n\n"...)
	}
}

const unfinished = `},"finish_reason":null}]}` + "\n\n"

func (s *Stream) writeText(member string, d *conversation.Delta) {
	s.b = append(append(append(append(s.b, s.head...), member...), d.Text...), '"')
	if d.Opaque != nil {
		s.b = appendExtra(append(s.b, ','), d.Origin, d.Opaque)
	}
	s.b = append(s.b, unfinished...)
}

func (s *Stream) writeCall(d *conversation.Delta) {
	s.calls = append(s.calls, d.Block)
	s.b = s.appendIndex(append(s.b, s.head...), len(s.calls)-1)
	s.b = append(appendCall(s.b, d.ID, d.Name, d.Text), '}')
	s.b = append(append(s.appendOwed(s.b, d), "}]"...), unfinished...)
}

// appendIndex appends the begin of a piece of the call with this index.
func (s *Stream) appendIndex(b []byte, index int) []byte {
	return append(strconv.AppendInt(append(b, `"tool_calls":[{"index":`...), int64(index), 10), ',')
}

// AppendUsage appends the chunk that has only the usage, if chunks are written. The answer must have begun.
func (s *Stream) AppendUsage(b []byte, u *provider.Usage) []byte {
	if s.r.To != nil {
		return b
	}
	b = append(append(b, s.head[:s.top]...), `],"usage":`...)
	return append(provider.AppendUsage(b, u), "}\n\n"...)
}

// An answer is what chunks and whole answers have in common.
type answer struct {
	r       *provider.Request
	created int64  // Unix seconds
	reasons bool   // the client wants reasoning as it comes; without it only what calls need is returned, with them
	kept    []byte // thoughts that the next call returns, with commas between
	keptOf  conversation.Origin
	calls   []int // the blocks of the calls, in their order
	order   order
}

func newAnswer(r *provider.Request, now time.Time) answer {
	return answer{r: r, created: now.Unix(), reasons: r.WantReasoning}
}

// appendHead appends the start of an answer or a chunk, up to its first choice.
func (a *answer) appendHead(b []byte, begin *conversation.Delta, object string) []byte {
	b = append(b, `{"id":`...)
	if len(begin.ID) > 0 {
		b = append(append(append(b, '"'), begin.ID...), '"')
	} else {
		b = provider.AppendQuote(b, "chatcmpl-"+strings.TrimPrefix(a.r.ID, "req_"))
	}
	b = append(append(append(b, `,"object":"`...), object...), `","created":`...)
	b = append(strconv.AppendInt(b, a.created, 10), `,"model":`...)
	if len(begin.Name) > 0 {
		b = append(append(append(b, '"'), begin.Name...), '"')
	} else {
		b = provider.AppendQuote(b, a.r.Model)
	}
	return append(b, `,"choices":[`...)
}

// keep keeps a thought for the next call.
func (a *answer) keep(d *conversation.Delta) {
	a.kept, a.keptOf = appendElement(a.kept, d.Opaque), d.Origin
}

// appendOwed appends what the client must return with a call: what the call came with, or what was thought before it.
func (a *answer) appendOwed(b []byte, call *conversation.Delta) []byte {
	switch {
	case call.Opaque != nil:
		return appendExtra(append(b, ','), call.Origin, call.Opaque)
	case len(a.kept) > 0:
		b = appendExtra(append(b, ','), a.keptOf, a.kept)
		a.kept = a.kept[:0]
	}
	return b
}

// appendElement appends an element of a list, with a comma before each but the first.
func appendElement(list, element []byte) []byte {
	if len(list) > 0 {
		list = append(list, ',')
	}
	return append(list, element...)
}

// appendCall appends the members of a call, up to its arguments.
func appendCall(b, id, name, arguments []byte) []byte {
	b = append(append(append(b, `"id":"`...), id...), `","type":"function","function":{"name":"`...)
	b = append(append(b, name...), `","arguments":"`...)
	return append(append(b, arguments...), '"')
}

// appendExtra appends the member extra_content, which the app sends back unchanged (contract §4.3).
func appendExtra(b []byte, origin conversation.Origin, opaque []byte) []byte {
	return origin.AppendExtra(append(b, `"extra_content":`...), opaque)
}

// appendStop appends the stop sequence that ended the answer, if one did. It is an additive member of the choice.
func appendStop(b, stop []byte) []byte {
	if stop == nil {
		return b
	}
	return append(append(append(b, `,"stop_sequence":"`...), stop...), '"')
}
