package messages

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/conversation"
)

// A writer writes an answer as Anthropic's events, or as one message. Of a stream, one content block is open at a time;
// what belongs to a later block waits while the arguments of an open tool call are incomplete. Of a message that comes
// whole, all blocks wait.
type writer struct {
	head    shapes.Head
	reasons bool   // the client asked for reasoning; without it, only what tool calls need is returned
	b       []byte // the events since the last Take
	taken   bool

	id, model []byte       // of the answer, raw JSON strings without the quotes
	owed      []thoughtRef // thoughts that the next tool call needs
	behind    *signed      // the signature of the text before; nil = none, or it was written
	open      part         // the content block that is open; kind 0 = none
	waiting   []part       // later blocks
	index     int64        // of the next content block
	called    bool
	refused   bool // a refusal was written

	ended  bool
	reason conversation.Reason
	stop   []byte // the stop sequence that ended the message
}

// A thoughtRef is something opaque that the client returns.
type thoughtRef struct {
	origin conversation.Origin
	opaque []byte
}

// A signed is the signature of a text, which follows it as thinking if another block does. A message does not end with
// it (decision 191): some clients show only the last block of a message, and no provider insists on it.
type signed struct {
	thoughtRef
	number int // of the block of the answer
}

// A part is a content block. Its strings are raw JSON without the quotes.
type part struct {
	kind      byte // text, thinking, redacted, tool
	number    int  // of the block of the answer
	id, name  []byte
	body      []byte // of an open block: thinking or arguments so far; of a waiting one: all of it
	signature []byte
	complete  bool // no further piece belongs to it
}

const (
	kindText     = 't'
	kindThinking = 'h'
	kindRedacted = 'r'
	kindTool     = 'c'
)

// Write takes a delta (see shapes.Writer).
func (s *writer) Write(d *conversation.Delta) {
	if s.taken {
		s.b, s.taken = s.b[:0], false
	}
	if s.ended && d.Kind != conversation.Begin {
		return
	}
	switch d.Kind {
	case conversation.Begin:
		s.begin(d)
	case conversation.Text:
		s.addPiece(kindText, d.Block, d.Text)
		if d.Opaque != nil && s.reasons {
			s.behind = &signed{thoughtRef{d.Origin, bytes.Clone(d.Opaque)}, d.Block}
		}
	case conversation.Refusal:
		s.refused = true
		s.addPiece(kindText, d.Block, d.Text)
	case conversation.Reasoning:
		if s.reasons {
			s.addPiece(kindThinking, d.Block, d.Text)
		}
	case conversation.Thought:
		if s.reasons {
			s.addThought(false, d.Block, d.Origin, d.Opaque)
		} else {
			s.owed = append(s.owed, thoughtRef{d.Origin, bytes.Clone(d.Opaque)})
		}
	case conversation.Call:
		s.addCall(d)
	case conversation.Arguments:
		if p := s.find(kindTool, d.Block); p != nil && len(d.Text) > 0 {
			s.extend(p, d.Text)
		}
	case conversation.End:
		s.ended, s.reason, s.stop = true, d.Reason, bytes.Clone(d.Text)
		if s.head.Stream {
			s.closeBlocks()
		}
	}
}

// Take returns the events that were written (see shapes.Writer).
func (s *writer) Take() []byte {
	if s.taken {
		return nil
	}
	s.taken = true
	return s.b
}

// begin writes message_start. Its usage has the input as the hold counted it, which is all that is known by then.
func (s *writer) begin(d *conversation.Delta) {
	*s = writer{head: s.head, reasons: s.reasons, b: s.b[:0], id: bytes.Clone(d.ID), model: bytes.Clone(d.Name)}
	if len(s.id) == 0 {
		s.id = shapes.Escape(strings.TrimPrefix(s.head.RequestID, "req_"))
	}
	s.id = bytes.TrimPrefix(s.id, []byte("chatcmpl-"))
	if len(s.model) == 0 {
		s.model = shapes.Escape(s.head.Model)
	}
	if !s.head.Stream {
		return
	}
	s.b = append(s.b, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
	s.b = appendHead(s.b, s.id, s.model)
	s.b = append(s.b, `"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...)
	s.b = append(appendCounts(s.b, s.head.InputTokens, 0, 0, 0, 0), "}}\n\n"...)
	s.b = append(s.b, "event: ping\ndata: {\"type\":\"ping\"}\n\n"...)
}

// find returns the block with a number if it is of this kind, and open or waits; otherwise nil.
func (s *writer) find(kind byte, number int) *part {
	if s.open.kind == kind && s.open.number == number {
		return &s.open
	}
	for i := range s.waiting {
		if p := &s.waiting[i]; p.kind == kind && p.number == number {
			return p
		}
	}
	return nil
}

// addPiece writes a piece of text or thinking. It continues its block, or the one before if that is of its kind.
func (s *writer) addPiece(kind byte, number int, piece []byte) {
	if len(piece) == 0 {
		return
	}
	p := s.find(kind, number)
	if p == nil || p.complete {
		p = s.add(part{kind: kind, number: number})
	}
	s.extend(p, piece)
}

// addCall begins a tool call, after the thoughts that it needs.
func (s *writer) addCall(d *conversation.Delta) {
	for _, t := range s.owed {
		s.addThought(true, -1, t.origin, t.opaque)
	}
	s.owed = nil
	if d.Opaque != nil {
		s.addThought(true, -1, d.Origin, d.Opaque)
	}
	s.called = true
	p := s.add(part{kind: kindTool, number: d.Block, id: d.ID, name: d.Name})
	if len(d.Text) > 0 {
		s.extend(p, d.Text)
	}
}

// addThought writes something opaque as thinking blocks. It closes the thinking block whose text it signs. call says
// that it belongs to the tool call which follows.
func (s *writer) addThought(call bool, number int, origin conversation.Origin, raw []byte) {
	extra := origin.AppendExtra(nil, raw)
	thoughts, native := nativeThoughts(extra)
	p := s.find(kindThinking, number)
	signs := p != nil && !p.complete
	switch {
	case native && signs && thoughts[0].data == nil && bytes.Equal(p.body, thoughts[0].text):
		s.sign(p, thoughts[0].signature)
		thoughts = thoughts[1:]
	case native && signs && len(thoughts) > 0 && thoughts[0].data == nil, !native:
		if !signs {
			p = s.add(part{kind: kindThinking, number: number})
		}
		s.sign(p, appendOpaque(nil, opaque{call: call, extra: extra}))
		return
	}
	for _, t := range thoughts {
		if t.data != nil {
			s.add(part{kind: kindRedacted, number: number, body: bytes.Clone(t.data), complete: true})
			continue
		}
		p := s.add(part{kind: kindThinking, number: number})
		if len(t.text) > 0 {
			s.extend(p, t.text)
		}
		s.sign(p, t.signature)
	}
}

// add starts a block. It waits if the message comes whole, and while the arguments of the open tool call are
// incomplete.
func (s *writer) add(p part) *part {
	if b := s.behind; b != nil {
		s.behind = nil
		s.addThought(false, b.number, b.origin, b.opaque)
	}
	if !s.head.Stream || len(s.waiting) > 0 ||
		s.open.kind == kindTool && !shapes.IsObject(shapes.Unescape(s.open.body)) {
		p.id, p.name = bytes.Clone(p.id), bytes.Clone(p.name)
		s.waiting = append(s.waiting, p)
		return &s.waiting[len(s.waiting)-1]
	}
	s.closeOpen()
	s.openBlock(p)
	return &s.open
}

// extend adds a piece to a block, and writes it if the block is open.
func (s *writer) extend(p *part, piece []byte) {
	if p != &s.open || p.kind != kindText { // only what is compared or waits is kept
		p.body = append(p.body, piece...)
	}
	if p == &s.open {
		s.writeDelta(p.kind, piece)
	}
}

// sign completes a thinking block.
func (s *writer) sign(p *part, signature []byte) {
	p.complete = true
	if p == &s.open {
		s.writeSignature(signature)
		return
	}
	p.signature = bytes.Clone(signature)
}

// openBlock writes content_block_start. The block continues with the body that it has.
func (s *writer) openBlock(p part) {
	s.open = p
	s.b = append(s.b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":"...)
	s.b = append(strconv.AppendInt(s.b, s.index, 10), `,"content_block":`...)
	switch p.kind {
	case kindText:
		s.b = append(s.b, `{"type":"text","text":""}`...)
	case kindThinking:
		s.b = append(s.b, `{"type":"thinking","thinking":"","signature":""}`...)
	case kindRedacted:
		s.b = append(append(append(s.b, `{"type":"redacted_thinking","data":"`...), p.body...), `"}`...)
	case kindTool:
		s.b = append(append(s.b, `{"type":"tool_use","id":"`...), p.id...)
		s.b = append(append(append(s.b, `","name":"`...), p.name...), `","input":{}}`...)
	}
	s.b = append(s.b, "}\n\n"...)
	if p.kind != kindRedacted && len(p.body) > 0 {
		s.writeDelta(p.kind, p.body)
	}
	if len(p.signature) > 0 {
		s.writeSignature(p.signature)
	}
}

// writeDelta writes a piece of the open block.
func (s *writer) writeDelta(kind byte, piece []byte) {
	switch s.beginDelta(); kind {
	case kindText:
		s.b = append(s.b, `text_delta","text":"`...)
	case kindThinking:
		s.b = append(s.b, `thinking_delta","thinking":"`...)
	case kindTool:
		s.b = append(s.b, `input_json_delta","partial_json":"`...)
	}
	s.b = append(append(s.b, piece...), "\"}}\n\n"...)
}

func (s *writer) writeSignature(signature []byte) {
	s.beginDelta()
	s.b = append(append(append(s.b, `signature_delta","signature":"`...), signature...), "\"}}\n\n"...)
}

func (s *writer) beginDelta() {
	s.b = append(s.b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":"...)
	s.b = append(strconv.AppendInt(s.b, s.index, 10), `,"delta":{"type":"`...)
}

// closeOpen writes content_block_stop, if a block is open.
func (s *writer) closeOpen() {
	if s.open.kind == 0 {
		return
	}
	s.b = append(s.b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":"...)
	s.b = append(strconv.AppendInt(s.b, s.index, 10), "}\n\n"...)
	s.index++
	s.open = part{}
}

// closeBlocks writes all that waits, and closes the last block.
func (s *writer) closeBlocks() {
	s.closeOpen()
	for _, p := range s.waiting {
		s.openBlock(p)
		s.closeOpen()
	}
	s.waiting = nil
}

// End returns the end of the message, or all of it (see shapes.Writer). The bill of a stream is an additive member.
func (s *writer) End() []byte {
	if !s.head.Stream {
		return s.whole()
	}
	if s.taken {
		s.b = s.b[:0]
	}
	s.closeBlocks()
	s.b = append(s.b, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
	s.b = appendStop(s.b, s.stopReason(), s.stop)
	s.b = append(s.b, `},"usage":`+shapes.UsageHole+shapes.FinalHole...)
	s.taken = true
	s.b = append(s.b, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
	return s.b
}

// appendHead appends the start of a message, up to its content. The strings are raw JSON without the quotes.
func appendHead(b, id, model []byte) []byte {
	b = append(append(b, `{"id":"msg_`...), bytes.TrimPrefix(id, []byte("chatcmpl-"))...)
	b = append(append(b, `","type":"message","role":"assistant","model":"`...), model...)
	return append(b, `",`...)
}

// appendStop appends stop_reason and stop_sequence. Only models of Anthropic say which stop sequence ended a response;
// it is a raw JSON string without the quotes, or nil.
func appendStop(b []byte, reason string, sequence []byte) []byte {
	if sequence != nil && reason == "end_turn" {
		b = append(append(b, `"stop_reason":"stop_sequence","stop_sequence":"`...), sequence...)
		return append(b, '"')
	}
	b = append(append(b, `"stop_reason":"`...), reason...)
	return append(b, `","stop_sequence":null`...)
}

// stopReason returns why the message ended.
func (s *writer) stopReason() string {
	switch {
	case s.reason == conversation.Cut:
		return "max_tokens"
	case s.reason == conversation.Filtered || s.refused:
		return "refusal"
	case s.reason == conversation.Called || s.called:
		return "tool_use"
	}
	return "end_turn"
}

// appendUsage appends Anthropic's usage, whose input_tokens count no cached input, for OpenAI's; nil = not known.
func appendUsage(b, usage []byte) []byte {
	u := shapes.ReadUsage(usage)
	return appendCounts(b, max(u.Prompt-u.Cached-u.Written, 0), u.Written, u.Cached, u.Output, u.Reasoning)
}

func appendCounts(b []byte, input, written, cached, output, reasoning int64) []byte {
	b = strconv.AppendInt(append(b, `{"input_tokens":`...), input, 10)
	b = strconv.AppendInt(append(b, `,"cache_creation_input_tokens":`...), written, 10)
	b = strconv.AppendInt(append(b, `,"cache_read_input_tokens":`...), cached, 10)
	b = strconv.AppendInt(append(b, `,"output_tokens":`...), output, 10)
	b = strconv.AppendInt(append(b, `,"output_tokens_details":{"thinking_tokens":`...), reasoning, 10)
	return append(b, "}}"...)
}
