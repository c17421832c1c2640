package anthropic

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// maxAnswer bounds the collected content of one response, in bytes.
const maxAnswer = 32 << 20

// decoder reads the events of one message.
type decoder struct {
	emit     func(*conversation.Delta)
	refuser  *upstream.Client   // makes the errors of error events
	delta    conversation.Delta // that is being passed
	usage    usage
	started  bool   // message_start has arrived
	id       []byte // of the message
	begun    bool   // content has arrived; before that, a retry costs nothing
	finished bool   // the finish reason has arrived
	open     block
	blocks   int // that have begun
	called   bool
	thoughts int    // bytes of complete thinking blocks
	thought  []byte // the last one
}

// block is the content block that is being read. There is one at a time.
type block struct {
	kind      string // text, tool_use, thinking, or "" for none and for unknown kinds
	index     int64  // its place in the content, -1 for none
	hasText   bool   // a piece of it was passed
	input     []byte // the arguments that the start of the block brought; nil = none
	held      []byte // the first half of a surrogate pair
	thought   []byte
	signature []byte
}

func (c *Client) newDecoder(emit func(*conversation.Delta)) decoder {
	return decoder{emit: emit, refuser: c.plain, usage: newUsage(), open: block{index: -1}}
}

// pass passes a delta of the block that is open.
func (d *decoder) pass(delta conversation.Delta) {
	d.delta = delta
	d.delta.Block = d.blocks - 1
	d.emit(&d.delta)
}

var errDone = errors.New("done")

// handleEvent processes one event and returns errDone at the last one. It has the signature that provider.SSE.Run needs
// and always returns false, because no event is relayed unchanged.
func (d *decoder) handleEvent(e provider.Event) (bool, error) {
	var kind, index, delta, content, message, reported []byte
	switch {
	case !readMembers(e.Payload, member{"type", &kind}, member{"index", &index}, member{"delta", &delta},
		member{"content_block", &content}, member{"message", &message}, member{"usage", &reported}):
		return false, makeGarbageError(e.Payload, d.begun)
	case e.Failed || string(kind) == `"error"`:
		return false, d.makeStreamError(e.Payload)
	}
	ok := true
	switch string(kind) {
	case `"message_start"`:
		ok = d.startMessage(message)
	case `"content_block_start"`:
		ok = d.openBlock(index, content)
	case `"content_block_delta"`:
		ok = d.started && d.readDelta(index, delta)
	case `"content_block_stop"`:
		at := int64(-1)
		ok = d.started && readCount(index, &at) && at == d.open.index
		d.closeBlock()
	case `"message_delta"`:
		d.usage.addReport(reported, false)
		if ok = d.started; ok && delta != nil {
			return false, d.readStop(delta)
		}
	case `"message_stop"`:
		if !d.started {
			return false, makeGarbageError(e.Payload, d.begun)
		}
		d.finishOnce(nil, nil, nil)
		return false, errDone
	}
	switch {
	case !ok:
		return false, makeGarbageError(e.Payload, d.begun)
	case d.thoughts+len(d.open.thought)+len(d.open.signature) > maxAnswer:
		return false, upstream.NewFailure(http.StatusOK, fmt.Errorf("the thinking has more than %d bytes", maxAnswer))
	}
	return false, nil
}

func (d *decoder) startMessage(message []byte) bool {
	var id, reported []byte
	if !readMembers(message, member{"id", &id}, member{"usage", &reported}) {
		return false
	}
	if d.started { // some servers send it twice
		d.usage.addReport(reported, true)
		return len(id) > 2 && bytes.Equal(id, d.id)
	}
	d.id = bytes.Clone(id)
	d.usage.addReport(reported, true)
	d.started = true
	d.pass(conversation.Delta{Kind: conversation.Begin})
	return true
}

// openBlock starts a content block. Content in the event counts as the first delta, except the input of a tool call,
// which counts if no delta follows.
func (d *decoder) openBlock(index, content []byte) bool {
	var kind, text, id, name, input, thinking, signature, data []byte
	if !d.started || d.finished ||
		!readMembers(content, member{"type", &kind}, member{"text", &text}, member{"id", &id}, member{"name", &name},
			member{"input", &input}, member{"thinking", &thinking}, member{"signature", &signature},
			member{"data", &data}) {
		return false
	}
	d.closeBlock()
	if index == nil || !readCount(index, &d.open.index) {
		return false
	}
	d.blocks++
	switch string(kind) {
	case `"text"`:
		d.open.kind = "text"
		return d.passText(conversation.Text, text)
	case `"tool_use"`:
		if !isString(id) || !isString(name) || len(id) == 2 || len(name) == 2 {
			return false
		}
		d.open.kind, d.begun, d.called = "tool_use", true, true
		if len(input) > 0 && input[0] == '{' {
			d.open.input = provider.AppendQuote(nil, provider.CompactObject(input))
		}
		d.pass(conversation.Delta{Kind: conversation.Call, ID: unquote(id), Name: unquote(name)})
	case `"thinking"`:
		d.open.kind, d.begun = "thinking", true // it may think for long without a word: the provider is paid for that
		return d.readThinking(thinking, signature)
	case `"redacted_thinking"`:
		if !isString(data) {
			return false
		}
		d.begun = true
		d.passThought(appendRedacted(d.thought[:0], unquote(data)))
	}
	return true
}

// readThinking reads a piece of a thinking block.
func (d *decoder) readThinking(thinking, signature []byte) bool {
	if !appendString(&d.open.thought, thinking) || !appendString(&d.open.signature, signature) {
		return false
	}
	return d.passText(conversation.Reasoning, thinking)
}

// passThought passes a complete thinking block, as the provider wants it back.
func (d *decoder) passThought(block []byte) {
	d.thought = block
	d.thoughts += len(block)
	d.pass(conversation.Delta{Kind: conversation.Thought, Opaque: block, Origin: conversation.Anthropic})
}

// readDelta reads a piece of the open block. One of an unknown type may have any members.
func (d *decoder) readDelta(index, delta []byte) bool {
	var kind, text, arguments, thinking, signature []byte
	at := int64(-1)
	if !readCount(index, &at) || at < 0 || at != d.open.index ||
		!readMembers(delta, member{"type", &kind}, member{"text", &text},
			member{"partial_json", &arguments}, member{"thinking", &thinking}, member{"signature", &signature}) {
		return false
	}
	switch string(kind) {
	case "", `"text_delta"`, `"input_json_delta"`, `"thinking_delta"`, `"signature_delta"`:
	default:
		return true
	}
	switch d.open.kind {
	case "text":
		return d.passText(conversation.Text, text)
	case "tool_use":
		return d.passText(conversation.Arguments, arguments)
	case "thinking":
		return d.readThinking(thinking, signature)
	}
	return true
}

// passText passes a piece of the open block. It holds back the first half of a surrogate pair until the second half
// arrives.
func (d *decoder) passText(kind conversation.DeltaKind, raw []byte) bool {
	if raw == nil {
		return true
	}
	if !isString(raw) {
		return false
	}
	text := unquote(raw)
	d.begun = d.begun || len(text) > 0
	if len(d.open.held) > 0 {
		text = append(d.open.held, text...)
		d.open.held = nil
	}
	if n := len(text) - 6; halfAtEnd(text) {
		text, d.open.held = text[:n], bytes.Clone(text[n:])
	}
	if len(text) > 0 {
		d.open.hasText = true
		d.pass(conversation.Delta{Kind: kind, Text: text})
	}
	return true
}

// halfAtEnd reports whether text ends with an escape like \ud83d, the first half of a surrogate pair.
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
		d.passHeld(conversation.Text)
	case "tool_use":
		d.passHeld(conversation.Arguments)
		switch {
		case b.hasText:
		case b.input != nil:
			d.pass(conversation.Delta{Kind: conversation.Arguments, Text: unquote(b.input)})
		default:
			d.pass(conversation.Delta{Kind: conversation.Arguments, Text: []byte("{}")})
		}
	case "thinking":
		d.passHeld(conversation.Reasoning)
		if len(b.signature) > 0 { // without a signature the API would refuse it in the next request
			d.passThought(appendThought(d.thought[:0], b.thought, b.signature))
		}
	}
	*b = block{index: -1, thought: b.thought[:0], signature: b.signature[:0]}
}

// passHeld passes what was held back of the open block.
func (d *decoder) passHeld(kind conversation.DeltaKind) {
	if len(d.open.held) > 0 {
		d.open.hasText = true
		d.pass(conversation.Delta{Kind: kind, Text: d.open.held})
	}
}

// readStop reads the stop reason of a message_delta event.
func (d *decoder) readStop(delta []byte) error {
	var reason, stop, details, explanation []byte
	if !readMembers(delta, member{"stop_reason", &reason}, member{"stop_sequence", &stop},
		member{"stop_details", &details}) ||
		details != nil && !readMembers(details, member{"explanation", &explanation}) ||
		reason != nil && !isString(reason) || stop != nil && !isString(stop) ||
		explanation != nil && !isString(explanation) {
		return makeGarbageError(delta, d.begun)
	}
	if string(reason) == `"pause_turn"` { // only with server tools, which Purser never sends
		return upstream.NewFailure(http.StatusOK, errors.New("the model paused its turn"))
	}
	if reason != nil {
		d.finishOnce(reason, stop, explanation)
	}
	return nil
}

// finishOnce passes why the message has ended, at most one time. An unknown reason counts as the usual one.
func (d *decoder) finishOnce(reason, stop, explanation []byte) {
	if d.finished {
		return
	}
	d.closeBlock()
	d.begun, d.finished = true, true
	end := conversation.Delta{Kind: conversation.End, Reason: conversation.Stopped}
	switch string(reason) {
	case `"tool_use"`:
		end.Reason = conversation.Called
	case `"max_tokens"`, `"model_context_window_exceeded"`:
		end.Reason = conversation.Cut
	case `"refusal"`:
		end.Reason = conversation.Filtered
		if explanation != nil {
			d.blocks++
			d.pass(conversation.Delta{Kind: conversation.Refusal, Text: unquote(explanation)})
		}
	case `"end_turn"`:
	case `"stop_sequence"`:
		if stop != nil {
			end.Text = unquote(stop)
		}
	default:
		if d.called {
			end.Reason = conversation.Called
		}
	}
	d.pass(end)
}

// member names a member of an object and the place for its raw value.
type member struct {
	name string
	to   *[]byte
}

// readMembers reads members of an object. Absent and null members stay nil. It returns false if p is not an object or
// has one of the members twice.
func readMembers(p []byte, members ...member) bool {
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

// unquote returns a raw JSON string without its quotes.
func unquote(raw []byte) []byte { return raw[1 : len(raw)-1] }

// appendString appends a raw JSON string without its quotes. It returns false if raw is another value.
func appendString(to *[]byte, raw []byte) bool {
	if raw == nil {
		return true
	}
	if !isString(raw) {
		return false
	}
	*to = append(*to, unquote(raw)...)
	return true
}
