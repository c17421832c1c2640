package completions

import (
	"bytes"
	"slices"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// A Reader makes deltas of an answer in the shape of Chat Completions, whole or in chunks. Chunks are given in order,
// one or many events at a time.
type Reader struct {
	to    conversation.Sink
	delta conversation.Delta // that is being passed
	chunk chunk

	begun   bool
	ended   bool
	blocks  int // that have begun
	open    conversation.DeltaKind
	calls   []int64 // the indexes of the calls in the chunks
	callsAt []int   // their blocks
}

// NewReader returns a reader that passes deltas to a sink.
func NewReader(to conversation.Sink) Reader { return Reader{to: to} }

// Read reads whole events. Comments and [DONE] have nothing.
func (r *Reader) Read(frames []byte) {
	for len(frames) > 0 {
		var payload []byte
		if payload, frames = nextEvent(frames); len(payload) > 0 && r.chunk.parse(payload) {
			r.pass(&r.chunk)
		}
	}
}

// ReadWhole reads an answer that came whole.
func (r *Reader) ReadWhole(body []byte) {
	if r.chunk.parse(body) {
		r.pass(&r.chunk)
	}
}

func (r *Reader) pass(c *chunk) {
	if !c.choice || r.ended {
		return
	}
	if !r.begun {
		r.begun = true
		r.send(conversation.Delta{Kind: conversation.Begin, ID: c.id, Name: c.model})
	}
	d := &c.delta
	if len(d.reasoning) > 0 {
		r.sendText(conversation.Delta{Kind: conversation.Reasoning, Text: d.reasoning})
	}
	signature := d.extra
	if d.extra != nil && (c.whole || len(d.content) == 0) { // otherwise it is the text's
		signature = nil
		if r.open != conversation.Reasoning {
			r.blocks++
		}
		r.open = conversation.Thought
		r.send(conversation.Delta{Kind: conversation.Thought, Opaque: d.extra})
	}
	if len(d.content) > 0 {
		r.sendText(conversation.Delta{Kind: conversation.Text, Text: d.content, Opaque: signature})
	}
	if len(d.refusal) > 0 {
		r.sendText(conversation.Delta{Kind: conversation.Refusal, Text: d.refusal})
	}
	for i := range d.calls {
		r.passCall(&d.calls[i], int64(i))
	}
	if len(c.finish) > 0 {
		r.end(c)
	}
}

// send passes a delta of the last block.
func (r *Reader) send(d conversation.Delta) {
	r.delta = d
	r.delta.Block = r.blocks - 1
	r.to(&r.delta)
}

// sendText passes a piece of text. It continues the block of its kind before it, and a refusal the text before it.
func (r *Reader) sendText(d conversation.Delta) {
	if d.Kind != r.open && !(d.Kind == conversation.Refusal && r.open == conversation.Text) {
		r.blocks++
	}
	r.open = d.Kind
	r.send(d)
}

// passCall passes a piece of a call. In a whole answer, calls have no index: theirs is their position.
func (r *Reader) passCall(c *callDelta, position int64) {
	index := position
	if c.hasIndex {
		index = c.index
	}
	i := slices.Index(r.calls, index)
	switch {
	case i < 0 && len(c.name) == 0:
		return // it never began
	case i < 0:
		r.blocks++
		r.calls, r.callsAt = append(r.calls, index), append(r.callsAt, r.blocks-1)
		r.open = conversation.Call
		r.send(conversation.Delta{Kind: conversation.Call, ID: c.id, Name: c.name, Text: c.arguments, Opaque: c.extra})
	case len(c.arguments) > 0:
		r.delta = conversation.Delta{Kind: conversation.Arguments, Block: r.callsAt[i], Text: c.arguments}
		r.to(&r.delta)
	}
}

func (r *Reader) end(c *chunk) {
	r.ended = true
	end := conversation.Delta{Kind: conversation.End, Text: c.stop, Reason: conversation.Stopped}
	switch string(c.finish) {
	case "length":
		end.Reason = conversation.Cut
	case "content_filter":
		end.Reason = conversation.Filtered
	case "tool_calls", "function_call":
		end.Reason = conversation.Called
	}
	r.send(end)
}

// A chunk is what an event says. Its strings are raw JSON without the quotes, and nil if they are absent.
type chunk struct {
	id, model []byte
	choice    bool // it has a choice
	whole     bool // it is a whole answer
	delta     delta
	finish    []byte
	stop      []byte // the stop sequence that ended the message
}

// A delta is a piece of a message.
type delta struct {
	content, refusal, reasoning []byte
	extra                       []byte // an object
	calls                       []callDelta
}

// A callDelta is a piece of a tool call.
type callDelta struct {
	index               int64
	hasIndex            bool
	id, name, arguments []byte
	extra               []byte // an object
}

// text takes a string without its quotes; nil if the next value is none.
func text(w *provider.Walk) []byte {
	v := w.Value()
	if len(v) < 2 || v[0] != '"' {
		return nil
	}
	return v[1 : len(v)-1]
}

// object takes an object; nil if the next value is none.
func object(w *provider.Walk) []byte {
	if v := w.Value(); len(v) > 0 && v[0] == '{' {
		return v
	}
	return nil
}

// parse reads the payload of an event into c, whose memory it uses again. It reports whether it is an object.
func (c *chunk) parse(payload []byte) bool {
	*c = chunk{delta: delta{calls: c.delta.calls[:0]}}
	w := provider.NewWalk(payload)
	return w.Members(func(name []byte) bool {
		switch string(name) {
		case "id":
			c.id = text(&w)
		case "model":
			c.model = text(&w)
		case "choices":
			return w.Null() || w.Elements(func() bool { return c.parseChoice(&w) })
		}
		return true
	}) && w.End()
}

func (c *chunk) parseChoice(w *provider.Walk) bool {
	c.choice = true
	return w.Members(func(name []byte) bool {
		switch string(name) {
		case "delta", "message":
			c.whole = string(name) == "message"
			return w.Null() || w.Members(func(name []byte) bool { return c.delta.parseMember(w, name) })
		case "finish_reason":
			c.finish = text(w)
		case "stop_sequence":
			c.stop = text(w)
		}
		return true
	})
}

func (d *delta) parseMember(w *provider.Walk, name []byte) bool {
	switch string(name) {
	case "content":
		d.content = text(w)
	case "refusal":
		d.refusal = text(w)
	case "reasoning_content":
		d.reasoning = text(w)
	case "extra_content":
		d.extra = object(w)
	case "tool_calls":
		return w.Null() || w.Elements(func() bool { return d.parseCall(w) })
	}
	return true
}

func (d *delta) parseCall(w *provider.Walk) bool {
	var call callDelta
	ok := w.Members(func(name []byte) bool {
		switch string(name) {
		case "index":
			call.index, call.hasIndex = number(w.Value())
		case "id":
			call.id = text(w)
		case "function":
			return w.Null() || w.Members(func(name []byte) bool {
				switch string(name) {
				case "name":
					call.name = text(w)
				case "arguments":
					call.arguments = text(w)
				}
				return true
			})
		case "extra_content":
			call.extra = object(w)
		}
		return true
	})
	d.calls = append(d.calls, call)
	return ok
}

// number returns a whole number of up to nine digits.
func number(raw []byte) (n int64, ok bool) {
	for _, c := range raw {
		if c < '0' || '9' < c {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, 0 < len(raw) && len(raw) < 10
}

// nextEvent cuts the first event off frames, and returns its payload: its data lines.
func nextEvent(frames []byte) (payload, rest []byte) {
	event, rest, _ := bytes.Cut(frames, []byte("\n\n"))
	payload, ok := bytes.CutPrefix(event, []byte("data: "))
	if !ok {
		return nil, rest // a comment, which the writer makes and not the call
	}
	if bytes.Contains(payload, []byte("\ndata: ")) {
		payload = bytes.ReplaceAll(payload, []byte("\ndata: "), []byte("\n"))
	}
	return payload, rest
}
