package messages

import (
	"bytes"

	"github.com/purserhq/purser/internal/models/provider"
)

// A chunk is what a canonical event says. Its strings are raw JSON without the quotes, and nil if they are absent.
type chunk struct {
	id, model []byte
	choice    bool // it has a choice
	delta     delta
	finish    []byte
	stop      []byte // the stop sequence that ended the message
	usage     []byte // an object
	final     []byte // svc_final, an object
	failure   []byte // the error, an object
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
		case "usage":
			c.usage = object(&w)
		case "svc_final":
			c.final = object(&w)
		case "error":
			c.failure = object(&w)
		}
		return true
	}) && w.End()
}

func (c *chunk) parseChoice(w *provider.Walk) bool {
	c.choice = true
	return w.Members(func(name []byte) bool {
		switch string(name) {
		case "delta":
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
			call.index = number(w.Value())
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

const maxNumber = 1 << 53

// number returns a whole number from 0 to 2^53; 0 for any other value.
func number(raw []byte) (n int64) {
	for _, c := range raw {
		if c < '0' || '9' < c || n > maxNumber/10 {
			return 0
		}
		n = n*10 + int64(c-'0')
	}
	return n
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
