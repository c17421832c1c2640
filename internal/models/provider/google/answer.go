package google

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/conversation/completions"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// response has the members of a GenerateContentResponse that are read, as raw JSON; nil = absent or null.
type response struct {
	failure   []byte // an error object in place of a response
	id, model []byte
	parts     []part // of the first candidate; requests ask for one
	finish    []byte
	blocked   []byte // the reason for a refused prompt
	usage     []byte
}

// read parses a response. It returns false if p is not one.
func (r *response) read(p []byte) bool {
	w := provider.NewWalk(p)
	return walkMembers(&w, func(name []byte) bool {
		switch string(name) {
		case "error":
			r.failure = w.Value()
		case "responseId":
			r.id = w.Value()
		case "modelVersion":
			r.model = w.Value()
		case "usageMetadata":
			r.usage = w.Value()
		case "promptFeedback":
			return walkMembers(&w, func(name []byte) bool {
				if string(name) == "blockReason" {
					r.blocked = w.Value()
				}
				return true
			})
		case "candidates":
			first := true
			return w.Elements(func() bool {
				ok := !first || r.readCandidate(&w)
				first = false
				return ok
			})
		}
		return true
	}) && w.End() && isText(r.id) && isText(r.model) && isText(r.finish) && isText(r.blocked)
}

func (r *response) readCandidate(w *provider.Walk) bool {
	return walkMembers(w, func(name []byte) bool {
		switch string(name) {
		case "finishReason":
			r.finish = w.Value()
		case "content":
			return walkMembers(w, func(name []byte) bool {
				if string(name) != "parts" {
					return true
				}
				r.parts = r.parts[:0]
				return w.Elements(func() bool { return r.readPart(w) })
			})
		}
		return true
	})
}

// walkMembers calls f for each member of w that is not null.
func walkMembers(w *provider.Walk, f func(name []byte) bool) bool {
	return w.Members(func(name []byte) bool { return w.Null() || f(name) })
}

// readMembers calls f for each member of p that is not null.
func readMembers(p []byte, f func(name, value []byte) bool) bool {
	return provider.Members(p, func(name, value []byte) bool {
		return string(value) == "null" || f(name, value)
	})
}

// isText reports whether a raw member is a string or absent.
func isText(value []byte) bool { return value == nil || value[0] == '"' }

// unquote returns a raw JSON string without its quotes. It keeps escapes.
func unquote(quoted []byte) []byte {
	if len(quoted) < 2 {
		return nil
	}
	return quoted[1 : len(quoted)-1]
}

// part is a part of the model's turn. Requests ask for no other kinds of parts.
type part struct {
	text      []byte // a JSON string, nil = none
	thought   bool   // the text is a summary of thinking
	signature []byte // a JSON string
	call      bool
	name      string
	args, id  []byte
}

func (r *response) readPart(w *provider.Walk) bool {
	var p part
	ok := walkMembers(w, func(name []byte) bool {
		switch string(name) {
		case "text":
			p.text = w.Value()
		case "thought":
			p.thought = string(w.Value()) == "true"
		case "thoughtSignature":
			p.signature = w.Value()
		case "functionCall":
			p.call = true
			return p.readCall(w)
		}
		return true
	}) && isText(p.text) && isText(p.signature)
	r.parts = append(r.parts, p)
	return ok
}

func (p *part) readCall(w *provider.Walk) bool {
	return walkMembers(w, func(name []byte) bool {
		switch string(name) {
		case "name":
			plain, err := jsontext.AppendUnquote(nil, w.Value())
			p.name = ourName(string(plain))
			return err == nil
		case "args":
			p.args = w.Value()
			return len(p.args) > 0 && p.args[0] == '{'
		case "id":
			p.id = w.Value()
		}
		return true
	}) && isText(p.id)
}

// A decoder makes deltas of the parts of one answer.
type decoder struct {
	emit    func(*conversation.Delta)
	delta   conversation.Delta // that is being passed
	reasons bool               // the client wants reasoning as it comes
	newID   func() string      // makes an id for a call if Gemini gave none

	id, model []byte // of the answer, from its first event; JSON strings
	begun     bool   // the first delta was passed
	blocks    int    // that have begun
	open      conversation.DeltaKind
	end       outcome
}

// name takes the names of the answer from its first event.
func (d *decoder) name(in *response) {
	if d.id == nil {
		d.id, d.model = append([]byte{}, in.id...), append([]byte{}, in.model...)
	}
}

// pass passes a delta. Text continues the block of its kind before it, and a thought ends the reasoning before it.
func (d *decoder) pass(delta conversation.Delta) {
	if !d.begun {
		d.begun = true
		d.delta = conversation.Delta{Kind: conversation.Begin, ID: unquote(d.id), Name: unquote(d.model)}
		d.emit(&d.delta)
	}
	ends := delta.Kind == conversation.Thought && d.open == conversation.Reasoning
	if !ends && (delta.Kind != d.open || delta.Kind == conversation.Call) {
		d.blocks++
	}
	d.open, d.delta = delta.Kind, delta
	d.delta.Block = d.blocks - 1
	d.emit(&d.delta)
}

func (d *decoder) handlePart(p *part) {
	signature := p.signature
	if len(signature) <= 2 {
		signature = nil
	}
	switch {
	case p.call:
		if d.reasons && d.end.calls == 0 && signature != nil {
			d.pass(conversation.Delta{Kind: conversation.Thought, Opaque: signature, Origin: conversation.Google})
			signature = nil
		}
		id := p.id
		if len(id) <= 2 {
			id = provider.AppendQuote(nil, "call_"+d.newID())
		}
		d.end.calls++
		d.pass(conversation.Delta{
			Kind:   conversation.Call,
			ID:     unquote(id),
			Name:   unquote(provider.AppendQuote(nil, p.name)),
			Text:   unquote(provider.AppendQuote(nil, provider.CompactObject(p.args))),
			Opaque: signature,
			Origin: conversation.Google,
		})
	case p.thought:
		if d.reasons && len(p.text) > 2 {
			d.pass(conversation.Delta{Kind: conversation.Reasoning, Text: unquote(p.text)})
		}
	case len(p.text) > 2 || signature != nil:
		d.end.spoke = d.end.spoke || len(p.text) > 2
		d.pass(conversation.Delta{
			Kind:   conversation.Text,
			Text:   unquote(p.text),
			Opaque: signature,
			Origin: conversation.Google,
		})
	}
}

// finish passes the end of the answer. It returns false if the answer is unusable.
func (d *decoder) finish() bool {
	reason, ok := d.end.reason()
	if ok {
		d.pass(conversation.Delta{Kind: conversation.End, Reason: reason})
	}
	return ok
}

// outcome is how a response ends, as far as it has arrived.
type outcome struct {
	finish  string
	blocked bool
	spoke   bool // the response has text
	calls   int
}

// readEnd reads the finish reason or the block reason of a response, if it has one.
func (o *outcome) readEnd(r *response) {
	if r.finish != nil {
		o.finish = string(unquote(r.finish))
	}
	if r.blocked != nil {
		o.blocked = true
	}
}

// hasEnded reports whether a finish reason or block reason has arrived.
func (o *outcome) hasEnded() bool { return o.finish != "" || o.blocked }

// reason returns why the model has ended, and false if the response is unusable. An unknown reason counts as none.
func (o *outcome) reason() (conversation.Reason, bool) {
	switch f := o.finish; {
	case f == "MAX_TOKENS", f == "CONTINUATION":
		return conversation.Cut, true
	case f == "SAFETY", f == "RECITATION", f == "BLOCKLIST", f == "PROHIBITED_CONTENT", f == "SPII", f == "LANGUAGE",
		strings.HasPrefix(f, "IMAGE_"), f == "" && o.blocked:
		return conversation.Filtered, true
	case unusable[f] != "":
		return 0, false
	case o.calls > 0:
		return conversation.Called, true
	case o.spoke, f == "STOP":
		return conversation.Stopped, true
	}
	return 0, false
}

// makeUsage returns the usage of a response with this outcome. It returns nil for generated output with a count of 0,
// which cannot be true.
func (o *outcome) makeUsage(c *counts) *provider.Usage {
	u := c.makeUsage()
	if u != nil && u.Output == 0 && (o.spoke || o.calls > 0) {
		return nil
	}
	return u
}

// translateAnswer translates a whole response into OpenAI's shape.
func (c *Client) translateAnswer(r *provider.Request, h http.Header, body []byte) (*provider.Response, error) {
	var in response
	if !in.read(body) || in.failure != nil {
		return nil, c.makeBodyError(h, body)
	}
	whole := completions.NewWhole(nil, r, c.now())
	d := decoder{emit: whole.Write, reasons: r.WantReasoning, newID: c.newID}
	d.name(&in)
	for i := range in.parts {
		d.handlePart(&in.parts[i])
	}
	d.end.readEnd(&in)
	if !d.finish() {
		return nil, makeUnusableError(&d.end, true)
	}
	var count counts
	count.add(in.usage)
	usage := d.end.makeUsage(&count)
	return &provider.Response{Body: whole.AppendBody(nil, usage), Usage: usage}, nil
}

var errNoUse = errors.New("the answer is of no use")

// unusable are finish reasons of a model that got its tools wrong. It has worked, and would be paid for each try.
var unusable = map[string]string{
	"MALFORMED_FUNCTION_CALL": "a malformed tool call",
	"UNEXPECTED_TOOL_CALL":    "a call of a tool that the request does not have",
	"TOO_MANY_TOOL_CALLS":     "too many tool calls",
}

// makeUnusableError makes the error of a response without usable content. The call may be retried if no chunk was sent,
// and the model did not get its tools wrong.
func makeUnusableError(o *outcome, fresh bool) error {
	e := upstream.NewFailure(http.StatusOK,
		fmt.Errorf("%w: it ended with %s", errNoUse, upstream.DescribeCode(o.finish)))
	e.Unusable = unusable[o.finish]
	e.Retry = fresh && e.Unusable == ""
	return e
}
