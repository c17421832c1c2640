package anthropic

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// maxAnswer bounds what is kept of one answer, in bytes.
const maxAnswer = 32 << 20

// A sink receives the content of a message. Strings are raw JSON without the quotes, and are valid until the call
// returns.
type sink interface {
	begin()
	text(piece []byte)
	call(i int, id, name, thinking []byte) // thinking: the blocks that led to it, with commas between
	arguments(i int, piece []byte)
	finish(reason string, refusal []byte)
}

// decoder reads the events of one message.
type decoder struct {
	sink
	usage    usage
	started  bool // message_start came
	begun    bool // and something of the answer: before that, another try is free
	finished bool // the reason for the end came
	open     block
	calls    int
	thinking []byte // blocks that were thought since the last call
}

// block is the content block being read. There is one at a time.
type block struct {
	kind      string // text, tool_use, thinking, or "" for none and for what we do not know
	index     int64  // its place in the content, -1 for none
	some      bool   // something came of its arguments
	held      []byte // half a character, until the other half comes
	thought   []byte
	signature []byte
}

func newDecoder(s sink) decoder { return decoder{sink: s, usage: newUsage(), open: block{index: -1}} }

var errDone = errors.New("done")

// event takes in one event, and returns errDone at the last. It keeps none; its
// shape is that of provider.SSE's Run.
func (d *decoder) event(e provider.Event) (bool, error) {
	var kind, index, delta, content, message, reported []byte
	switch {
	case !pick(e.Payload, member{"type", &kind}, member{"index", &index}, member{"delta", &delta},
		member{"content_block", &content}, member{"message", &message}, member{"usage", &reported}):
		return false, garbage(e.Payload, d.begun)
	case e.Failed || string(kind) == `"error"`:
		return false, interrupted(e.Payload, d.begun)
	}
	ok := true
	switch string(kind) {
	case `"message_start"`:
		ok = d.start(message)
	case `"content_block_start"`:
		ok = d.openBlock(index, content)
	case `"content_block_delta"`:
		ok = d.started && d.delta(index, delta)
	case `"content_block_stop"`:
		at := int64(-1)
		ok = d.started && count(index, &at) && at == d.open.index
		d.closeBlock()
	case `"message_delta"`:
		d.usage.read(reported, false)
		if ok = d.started; ok && delta != nil {
			return false, d.stop(delta)
		}
	case `"message_stop"`:
		if !d.started {
			return false, garbage(e.Payload, d.begun)
		}
		d.end(nil, nil)
		return false, errDone
	}
	switch {
	case !ok:
		return false, garbage(e.Payload, d.begun)
	case len(d.thinking)+len(d.open.thought)+len(d.open.signature) > maxAnswer:
		return false, upstream.Failed(http.StatusOK, fmt.Errorf("the thinking has more than %d bytes", maxAnswer))
	}
	return false, nil
}

// whole says whether nothing is missing but the last event.
func (d *decoder) whole() bool { return d.finished && d.usage.total() != nil }

func (d *decoder) start(message []byte) bool {
	var reported []byte
	if d.started || !pick(message, member{"usage", &reported}) {
		return false
	}
	d.usage.read(reported, true)
	d.started = true
	d.begin()
	return true
}

// openBlock begins a content block. What stands in it already counts as its
// first piece, but for the input of a call, which is always sent in pieces.
func (d *decoder) openBlock(index, content []byte) bool {
	var kind, text, id, name, thinking, signature, data []byte
	if !d.started || d.finished ||
		!pick(content, member{"type", &kind}, member{"text", &text}, member{"id", &id}, member{"name", &name},
			member{"thinking", &thinking}, member{"signature", &signature}, member{"data", &data}) {
		return false
	}
	d.closeBlock()
	if index == nil || !count(index, &d.open.index) {
		return false
	}
	d.begun = true
	switch string(kind) {
	case `"text"`:
		d.open.kind = "text"
		return d.piece(text, d.text)
	case `"tool_use"`:
		if !isString(id) || !isString(name) || len(id) == 2 || len(name) == 2 {
			return false
		}
		d.open.kind = "tool_use"
		d.call(d.calls, plain(id), plain(name), d.thinking)
		d.calls, d.thinking = d.calls+1, d.thinking[:0]
	case `"thinking"`:
		d.open.kind = "thinking"
		return join(&d.open.thought, thinking) && join(&d.open.signature, signature)
	case `"redacted_thinking"`:
		if !isString(data) {
			return false
		}
		d.thinking = appendRedacted(comma(d.thinking, len(d.thinking)), plain(data))
	}
	return true
}

func (d *decoder) delta(index, delta []byte) bool {
	var kind, text, arguments, thinking, signature []byte
	at := int64(-1)
	if !count(index, &at) || at < 0 || at != d.open.index || !pick(delta, member{"type", &kind}, member{"text", &text},
		member{"partial_json", &arguments}, member{"thinking", &thinking}, member{"signature", &signature}) {
		return false
	}
	switch d.open.kind {
	case "text":
		return d.piece(text, d.text)
	case "tool_use":
		return d.piece(arguments, d.argument)
	case "thinking":
		return join(&d.open.thought, thinking) && join(&d.open.signature, signature)
	}
	return true
}

func (d *decoder) argument(piece []byte) {
	d.open.some = true
	d.arguments(d.calls-1, piece)
}

// piece hands a piece of text on. The first half of a character that was split
// waits for its second: alone it is none.
func (d *decoder) piece(raw []byte, to func([]byte)) bool {
	if raw == nil {
		return true
	}
	if !isString(raw) {
		return false
	}
	text := plain(raw)
	if len(d.open.held) > 0 {
		text = append(d.open.held, text...)
		d.open.held = nil
	}
	if n := len(text) - 6; halfAtEnd(text) {
		text, d.open.held = text[:n], bytes.Clone(text[n:])
	}
	if len(text) > 0 {
		to(text)
	}
	return true
}

// halfAtEnd says whether text ends in an escape like \ud83d, the first half of a
// surrogate pair.
func halfAtEnd(text []byte) bool {
	n := len(text) - 6
	if n < 0 || text[n] != '\\' || text[n+1] != 'u' || text[n+2]|0x20 != 'd' ||
		!bytes.ContainsRune([]byte("89abAB"), rune(text[n+3])) {
		return false
	}
	escapes := 0 // backslashes before: an odd number escapes ours
	for n > 0 && text[n-1] == '\\' {
		n--
		escapes++
	}
	return escapes%2 == 0
}

func (d *decoder) closeBlock() {
	b := &d.open
	switch b.kind {
	case "text":
		if len(b.held) > 0 {
			d.text(b.held)
		}
	case "tool_use":
		if len(b.held) > 0 {
			d.argument(b.held)
		}
		if !b.some {
			d.arguments(d.calls-1, []byte("{}"))
		}
	case "thinking":
		if len(b.signature) > 0 { // without it, it could not come back
			d.thinking = appendThought(comma(d.thinking, len(d.thinking)), b.thought, b.signature)
		}
	}
	*b = block{index: -1, thought: b.thought[:0], signature: b.signature[:0]}
}

// stop reads why the message ended.
func (d *decoder) stop(delta []byte) error {
	var reason, details, explanation []byte
	if !pick(delta, member{"stop_reason", &reason}, member{"stop_details", &details}) ||
		details != nil && !pick(details, member{"explanation", &explanation}) ||
		reason != nil && !isString(reason) || explanation != nil && !isString(explanation) {
		return garbage(delta, d.begun)
	}
	if string(reason) == `"pause_turn"` { // comes with tools that we never offer
		return upstream.Failed(http.StatusOK, errors.New("the model paused its turn"))
	}
	if reason != nil {
		d.end(reason, explanation)
	}
	return nil
}

// end tells the finish, once. A reason that we do not know is an ordinary one.
func (d *decoder) end(reason, explanation []byte) {
	if d.finished {
		return
	}
	d.closeBlock()
	d.begun, d.finished = true, true
	switch string(reason) {
	case `"tool_use"`:
		d.finish("tool_calls", nil)
	case `"max_tokens"`, `"model_context_window_exceeded"`:
		d.finish("length", nil)
	case `"refusal"`:
		if explanation != nil {
			explanation = plain(explanation)
		}
		d.finish("content_filter", explanation)
	case `"end_turn"`, `"stop_sequence"`:
		d.finish("stop", nil)
	default:
		if d.calls > 0 {
			d.finish("tool_calls", nil)
		} else {
			d.finish("stop", nil)
		}
	}
}

// member says where the value of a member goes, as it stands.
type member struct {
	name string
	to   *[]byte
}

// pick reads members of an object; what is absent or null stays nil. It refuses
// what is no object, and members that stand twice.
func pick(p []byte, members ...member) bool {
	return provider.Members(p, func(name, value []byte) bool {
		for _, m := range members {
			if string(name) != m.name {
				continue
			}
			if *m.to != nil {
				return false
			}
			if string(value) != "null" {
				*m.to = value
			}
			return true
		}
		return true
	})
}

func isString(raw []byte) bool { return len(raw) > 1 && raw[0] == '"' }

// plain takes the quotes off a string.
func plain(raw []byte) []byte { return raw[1 : len(raw)-1] }

// join appends a string to what came before of it.
func join(to *[]byte, raw []byte) bool {
	if raw == nil {
		return true
	}
	if !isString(raw) {
		return false
	}
	*to = append(*to, plain(raw)...)
	return true
}
