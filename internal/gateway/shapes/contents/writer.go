package contents

import (
	"bytes"
	"strings"

	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// A writer writes an answer as Google's chunks, or as one response. A call of a function is one part, so what belongs
// to a later block waits while its arguments are incomplete. Of a response that comes whole, all blocks wait.
type writer struct {
	head     shapes.Head
	thoughts bool   // the client reads summaries of thoughts
	b        []byte // the chunks since the last Take
	taken    bool

	id, model []byte    // of the answer, raw JSON strings without the quotes
	owed      []thought // what the next part carries
	open      piece     // the text that is open; kind 0 = none
	waiting   []piece

	refused bool
	reason  conversation.Reason
	ended   bool
}

// A thought is something opaque that the client returns.
type thought struct {
	origin conversation.Origin
	opaque []byte
}

// A piece is a block of the answer, or the begin of one. Its strings are raw JSON without the quotes.
type piece struct {
	kind     byte // text, thinking, call; 0 = nothing but thoughts
	number   int  // of the block
	id, name []byte
	body     []byte

	thoughts []thought // before it
	own      thought   // of itself
	phase    []byte
	begins   bool // it does not go on with the text before it
}

const (
	kindText     = 't'
	kindThinking = 'h'
	kindCall     = 'c'
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
		*s = writer{head: s.head, thoughts: s.thoughts, b: s.b[:0], id: bytes.Clone(d.ID), model: bytes.Clone(d.Name)}
		if len(s.id) == 0 {
			s.id = shapes.Escape(strings.TrimPrefix(s.head.RequestID, "req_"))
		}
		if len(s.model) == 0 {
			s.model = shapes.Escape(s.head.Model)
		}
	case conversation.Text:
		s.addText(d)
	case conversation.Refusal:
		s.refused = true
		s.addText(d)
	case conversation.Reasoning:
		if s.thoughts && len(d.Text) > 0 {
			s.addPiece(piece{kind: kindThinking, number: d.Block}, d.Text)
		}
	case conversation.Thought:
		s.owed = append(s.owed, thought{d.Origin, bytes.Clone(d.Opaque)})
	case conversation.Call:
		s.addPiece(piece{
			kind:   kindCall,
			number: d.Block,
			id:     bytes.Clone(d.ID),
			name:   bytes.Clone(d.Name),
			own:    thought{d.Origin, bytes.Clone(d.Opaque)},
		}, d.Text)
	case conversation.Arguments:
		if p := s.find(kindCall, d.Block); p != nil {
			p.body = append(p.body, d.Text...)
		}
	case conversation.End:
		s.ended, s.reason = true, d.Reason
		if len(s.owed) > 0 {
			s.waiting = append(s.waiting, piece{thoughts: s.owed})
			s.owed = nil
		}
		for s.head.Stream && len(s.waiting) > 0 { // what was generated is counted before the last chunk
			s.write(&s.waiting[0])
			s.waiting = s.waiting[1:]
		}
	}
}

// addText adds a piece of a text.
func (s *writer) addText(d *conversation.Delta) {
	p := piece{kind: kindText, number: d.Block, phase: d.Phase}
	if d.Opaque != nil {
		p.own = thought{d.Origin, bytes.Clone(d.Opaque)}
	}
	if len(d.Text) > 0 || d.Opaque != nil {
		s.addPiece(p, d.Text)
	}
}

// find returns the block with a number if it is of this kind, and open or waits; otherwise nil.
func (s *writer) find(kind byte, number int) *piece {
	if s.open.kind == kind && s.open.number == number && len(s.waiting) == 0 {
		return &s.open
	}
	for i := len(s.waiting) - 1; i >= 0; i-- { // the last one: what is signed is a piece of its own
		if p := &s.waiting[i]; p.kind == kind && p.number == number {
			return p
		}
	}
	return nil
}

// addPiece adds a piece of a block, which begins with it or goes on.
func (s *writer) addPiece(p piece, text []byte) {
	before := s.find(p.kind, p.number)
	switch {
	case before == nil:
		p.begins = p.kind == kindText && s.last() == kindText
		if p.kind != kindThinking {
			p.thoughts, s.owed = s.owed, nil
		}
	case before != &s.open && p.own.opaque == nil:
		before.body = append(before.body, text...)
		return
	default: // it goes on, and what is known of it has been said; Google signs a text at its end
		p.phase = nil
	}
	if s.head.Stream && p.kind != kindCall {
		s.releaseComplete()
		if len(s.waiting) == 0 {
			p.body = text
			s.write(&p)
			s.open = piece{kind: p.kind, number: p.number}
			return
		}
	}
	p.phase, p.body = bytes.Clone(p.phase), bytes.Clone(text)
	if s.head.Stream && p.kind == kindCall {
		s.releaseComplete()
	}
	s.waiting = append(s.waiting, p)
}

// last returns the kind of the last block.
func (s *writer) last() byte {
	if n := len(s.waiting); n > 0 {
		return s.waiting[n-1].kind
	}
	return s.open.kind
}

// releaseComplete writes the blocks that wait, up to a call whose arguments are incomplete.
func (s *writer) releaseComplete() {
	for len(s.waiting) > 0 {
		p := &s.waiting[0]
		if p.kind == kindCall && !shapes.IsObject(shapes.Unescape(p.body)) {
			return
		}
		s.write(p)
		s.open = piece{kind: p.kind, number: p.number}
		s.waiting = s.waiting[1:]
	}
}

// write writes a chunk with a part.
func (s *writer) write(p *piece) {
	s.b = append(s.b, `data: {"candidates":[{"content":{"parts":[`...)
	s.b = append(appendPart(s.b, p), `],"role":"model"},"index":0}]`...)
	s.b = append(s.appendNames(s.b), "}\n\n"...)
}

// appendNames appends the members of a chunk that name the answer, with a comma before each.
func (s *writer) appendNames(b []byte) []byte {
	b = append(append(b, `,"modelVersion":"`...), s.model...)
	return append(append(append(b, `","responseId":"`...), s.id...), '"')
}

// appendPart appends a part.
func appendPart(b []byte, p *piece) []byte {
	switch p.kind {
	case kindCall:
		b = append(b, `{"functionCall":{`...)
		if len(p.id) > 0 {
			b = append(append(append(b, `"id":"`...), p.id...), `",`...)
		}
		b = append(append(append(b, `"name":"`...), p.name...), `","args":`...)
		b = append(appendArguments(b, shapes.Unescape(p.body)), '}')
	case kindText:
		b = append(append(append(b, `{"text":"`...), p.body...), '"')
	default: // a thought, of which clients may keep nothing
		b = append(append(append(b, `{"text":"`...), p.body...), `","thought":true`...)
	}
	return append(appendMark(b, p), '}')
}

// appendArguments appends the arguments of a call in one line, as a line break would end the event.
func appendArguments(b, arguments []byte) []byte {
	at := len(b)
	b = provider.AppendArguments(b, string(arguments))
	for i, c := range b[at:] {
		if c == '\n' || c == '\r' { // between the tokens
			b[at+i] = ' '
		}
	}
	return b
}

// Take returns the chunks that were written (see shapes.Writer).
func (s *writer) Take() []byte {
	if s.taken {
		return nil
	}
	s.taken = true
	return s.b
}

// End returns the last chunk, or the whole response (see shapes.Writer).
func (s *writer) End() []byte {
	if s.taken || !s.head.Stream {
		s.b = s.b[:0]
	}
	s.taken = true
	if !s.head.Stream {
		return append(s.appendLast(s.b), shapes.BlockHole+"}\n"...)
	}
	return append(s.appendLast(append(s.b, "data: "...)), shapes.FinalHole+"}\n\n"...)
}

// appendLast appends the last chunk with the parts that wait, up to its bill. Clients refuse a content without parts.
func (s *writer) appendLast(b []byte) []byte {
	b = append(b, `{"candidates":[{"content":{"parts":[`...)
	if len(s.waiting) == 0 {
		b = append(b, `{"text":""}`...)
	}
	for i := range s.waiting {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendPart(b, &s.waiting[i])
	}
	b = append(append(append(b, `],"role":"model"},"finishReason":"`...), s.finishReason()...), `","index":0}]`...)
	return append(s.appendNames(b), `,"usageMetadata":`+shapes.UsageHole...)
}

// finishReason returns why the answer ended. Calls of functions end with STOP.
func (s *writer) finishReason() string {
	switch {
	case s.reason == conversation.Cut:
		return "MAX_TOKENS"
	case s.reason == conversation.Filtered || s.refused:
		return "SAFETY"
	}
	return "STOP"
}
