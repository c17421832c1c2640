package messages

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/provider"
)

// A stream translates canonical chunks into Anthropic's events. One content block is open at a time; what belongs to
// a later block waits while the arguments of an open tool call are incomplete.
//
// The usage of message_start is zero, because it is known only at the end. Clients take it from message_delta.
type stream struct {
	reasons bool   // the client asked for reasoning; without it, only what tool calls need is returned
	b       []byte // the events of one Translate
	chunk   chunk

	begun   bool   // message_start was written
	open    part   // the content block that is open; kind 0 = none
	waiting []part // later blocks
	index   int64  // of the next content block
	calls   []int64
	refused bool // a refusal was written

	finish  string
	stop    []byte // the stop sequence that ended the message
	failure []byte // the error object that ended the response
	ended   bool   // the last event was written
}

// A part is a content block. Its strings are raw JSON without the quotes.
type part struct {
	kind      byte // text, thinking, redacted, tool
	call      int64
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

// Translate returns the events for whole canonical events (see shapes.Stream).
func (s *stream) Translate(frames []byte) []byte {
	s.b = s.b[:0]
	for len(frames) > 0 {
		var payload []byte
		payload, frames = nextEvent(frames)
		switch {
		case s.ended || len(payload) == 0:
		case string(payload) == "[DONE]":
			s.end()
		case s.chunk.parse(payload):
			s.addChunk(&s.chunk)
		}
	}
	return s.b
}

func (s *stream) addChunk(c *chunk) {
	if c.failure != nil && s.failure == nil {
		s.failure = bytes.Clone(c.failure)
	}
	if c.choice && s.failure == nil && s.finish == "" {
		s.begin(c)
		s.addDelta(&c.delta)
		if len(c.finish) > 0 {
			s.finish, s.stop = string(c.finish), bytes.Clone(c.stop)
			s.closeBlocks()
		}
	}
	if c.final == nil && (c.usage == nil || c.choice) {
		return
	}
	if s.failure != nil {
		s.writeError(c.final)
		s.ended = true
		return
	}
	s.begin(c)
	s.finishMessage(c.usage, c.final)
}

// begin writes message_start, at most one time.
func (s *stream) begin(c *chunk) {
	if s.begun {
		return
	}
	s.begun = true
	s.b = append(s.b, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
	s.b = appendHead(s.b, c.id, c.model)
	s.b = append(s.b, `"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...)
	s.b = append(appendUsage(s.b, nil), "}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n"...)
}

// addDelta writes a piece of the message. Reasoning in it came before its text and its calls.
func (s *stream) addDelta(d *delta) {
	if len(d.reasoning) > 0 && s.reasons {
		s.addPiece(kindThinking, d.reasoning)
	}
	if len(d.content) > 0 {
		s.addPiece(kindText, d.content)
	}
	if d.extra != nil && s.reasons { // with a text, it is the text's signature
		s.addExtra(opaque{extra: d.extra})
	}
	if len(d.refusal) > 0 {
		s.refused = true
		s.addPiece(kindText, d.refusal)
	}
	for i := range d.calls {
		s.addCall(&d.calls[i])
	}
}

// last returns the block that came last.
func (s *stream) last() *part {
	if n := len(s.waiting); n > 0 {
		return &s.waiting[n-1]
	}
	return &s.open
}

// addPiece writes a piece of text or thinking.
func (s *stream) addPiece(kind byte, piece []byte) {
	p := s.last()
	if p.kind != kind || p.complete {
		p = s.add(part{kind: kind})
	}
	s.extend(p, piece)
}

// addCall writes a piece of a tool call.
func (s *stream) addCall(c *callDelta) {
	p := s.findCall(c.index)
	switch {
	case p != nil:
	case slices.Contains(s.calls, c.index) || len(c.name) == 0:
		return // it is complete, or never began
	default:
		if c.extra != nil {
			s.addExtra(opaque{call: true, extra: c.extra})
		}
		s.calls = append(s.calls, c.index)
		p = s.add(part{kind: kindTool, call: c.index, id: c.id, name: c.name})
	}
	if len(c.arguments) > 0 {
		s.extend(p, c.arguments)
	}
}

// findCall returns the block of a tool call that is open or waits, or nil.
func (s *stream) findCall(index int64) *part {
	if s.open.kind == kindTool && s.open.call == index {
		return &s.open
	}
	for i := range s.waiting {
		if s.waiting[i].kind == kindTool && s.waiting[i].call == index {
			return &s.waiting[i]
		}
	}
	return nil
}

// addExtra writes an extra_content as thinking blocks. It closes the thinking block whose text it signs.
func (s *stream) addExtra(o opaque) {
	thoughts, native := nativeThoughts(o.extra)
	p := s.last()
	signs := p.kind == kindThinking && !p.complete
	switch {
	case native && signs && thoughts[0].data == nil && bytes.Equal(p.body, thoughts[0].text):
		s.sign(p, thoughts[0].signature)
		thoughts = thoughts[1:]
	case native && signs && len(thoughts) > 0 && thoughts[0].data == nil, !native:
		if !signs {
			p = s.add(part{kind: kindThinking})
		}
		s.sign(p, appendOpaque(nil, o))
		return
	}
	for _, t := range thoughts {
		if t.data != nil {
			s.add(part{kind: kindRedacted, body: bytes.Clone(t.data), complete: true})
			continue
		}
		p := s.add(part{kind: kindThinking})
		if len(t.text) > 0 {
			s.extend(p, t.text)
		}
		s.sign(p, t.signature)
	}
}

// add starts a block. It waits while the arguments of the open tool call are incomplete.
func (s *stream) add(p part) *part {
	if len(s.waiting) > 0 || s.open.kind == kindTool && !isObject(unescape(s.open.body)) {
		p.id, p.name = bytes.Clone(p.id), bytes.Clone(p.name)
		s.waiting = append(s.waiting, p)
		return &s.waiting[len(s.waiting)-1]
	}
	s.closeOpen()
	s.openBlock(p)
	return &s.open
}

// extend adds a piece to a block, and writes it if the block is open.
func (s *stream) extend(p *part, piece []byte) {
	if p != &s.open || p.kind != kindText { // only what is compared or waits is kept
		p.body = append(p.body, piece...)
	}
	if p == &s.open {
		s.writeDelta(p.kind, piece)
	}
}

// sign completes a thinking block.
func (s *stream) sign(p *part, signature []byte) {
	p.complete = true
	if p == &s.open {
		s.writeSignature(signature)
		return
	}
	p.signature = bytes.Clone(signature)
}

// openBlock writes content_block_start. The block continues with the body that it has.
func (s *stream) openBlock(p part) {
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
func (s *stream) writeDelta(kind byte, piece []byte) {
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

func (s *stream) writeSignature(signature []byte) {
	s.beginDelta()
	s.b = append(append(append(s.b, `signature_delta","signature":"`...), signature...), "\"}}\n\n"...)
}

func (s *stream) beginDelta() {
	s.b = append(s.b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":"...)
	s.b = append(strconv.AppendInt(s.b, s.index, 10), `,"delta":{"type":"`...)
}

// closeOpen writes content_block_stop, if a block is open.
func (s *stream) closeOpen() {
	if s.open.kind == 0 {
		return
	}
	s.b = append(s.b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":"...)
	s.b = append(strconv.AppendInt(s.b, s.index, 10), "}\n\n"...)
	s.index++
	s.open = part{}
}

// closeBlocks writes all that waits, and closes the last block.
func (s *stream) closeBlocks() {
	s.closeOpen()
	for _, p := range s.waiting {
		s.openBlock(p)
		s.closeOpen()
	}
	s.waiting = nil
}

// finishMessage writes message_delta with the whole usage and the bill, which is an additive member.
func (s *stream) finishMessage(usage, final []byte) {
	s.closeBlocks()
	s.ended = true
	s.b = append(s.b, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
	s.b = appendStop(s.b, stopReason(s.finish, s.refused, len(s.calls) > 0), s.stop)
	s.b = appendUsage(append(s.b, `},"usage":`...), usage)
	if final != nil {
		s.b = append(append(s.b, `,"svc_final":`...), final...)
	}
	s.b = append(s.b, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
}

// writeError writes the error that ended the response, with the bill if there is one.
func (s *stream) writeError(final []byte) {
	s.b = append(s.b, "event: error\ndata: "...)
	s.b = appendError(s.b, s.failure, "", final)
	s.b = append(s.b, "\n\n"...)
}

// end writes what is still missing when the canonical stream has ended.
func (s *stream) end() {
	switch {
	case s.failure != nil:
		s.writeError(nil)
	case s.begun:
		s.finishMessage(nil, nil)
	}
	s.ended = true
}

// unescape returns the text of a raw JSON string without its quotes.
func unescape(raw []byte) []byte {
	quoted := append(append(append(make([]byte, 0, len(raw)+2), '"'), raw...), '"')
	plain, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return nil
	}
	return plain
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

// stopReason returns the reason for a canonical one.
func stopReason(finish string, refused, called bool) string {
	switch {
	case finish == "length":
		return "max_tokens"
	case finish == "content_filter" || refused:
		return "refusal"
	case finish == "tool_calls" || called:
		return "tool_use"
	}
	return "end_turn"
}

// appendUsage appends Anthropic's usage, whose input_tokens count no cached input, for OpenAI's; nil = not known.
func appendUsage(b, usage []byte) []byte {
	var prompt, cached, written, output, reasoning int64
	provider.Members(usage, func(name, value []byte) bool {
		switch string(name) {
		case "prompt_tokens":
			prompt = number(value)
		case "completion_tokens":
			output = number(value)
		case "prompt_tokens_details":
			provider.Members(value, func(name, value []byte) bool {
				switch string(name) {
				case "cached_tokens":
					cached = number(value)
				case "cache_write_tokens":
					written = number(value)
				}
				return true
			})
		case "completion_tokens_details":
			provider.Members(value, func(name, value []byte) bool {
				if string(name) == "reasoning_tokens" {
					reasoning = number(value)
				}
				return true
			})
		}
		return true
	})
	b = strconv.AppendInt(append(b, `{"input_tokens":`...), max(prompt-cached-written, 0), 10)
	b = strconv.AppendInt(append(b, `,"cache_creation_input_tokens":`...), written, 10)
	b = strconv.AppendInt(append(b, `,"cache_read_input_tokens":`...), cached, 10)
	b = strconv.AppendInt(append(b, `,"output_tokens":`...), output, 10)
	b = strconv.AppendInt(append(b, `,"output_tokens_details":{"thinking_tokens":`...), reasoning, 10)
	return append(b, "}}"...)
}
