package google

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

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

// appendCall appends the members of a tool call in OpenAI's shape, without the braces. newID makes an id if Gemini gave
// none.
func appendCall(b []byte, p part, newID func() string) []byte {
	b = append(b, `"id":`...)
	if len(p.id) > 2 {
		b = append(b, p.id...)
	} else {
		b = provider.AppendQuote(b, "call_"+newID())
	}
	b = provider.AppendQuote(append(b, `,"type":"function","function":{"name":`...), p.name)
	b = provider.AppendQuote(append(b, `,"arguments":`...), provider.CompactObject(p.args))
	return appendSignature(append(b, '}'), p.signature)
}

// appendSignature appends extra_content, which the app must send back unchanged (contract §4.3).
func appendSignature(b, signature []byte) []byte {
	if len(signature) <= 2 {
		return b
	}
	return appendExtra(append(b, ','), signature)
}

// appendExtra appends the member extra_content with a signature.
func appendExtra(b, signature []byte) []byte {
	b = append(b, `"extra_content":{"google":{"thought_signature":`...)
	return append(append(b, signature...), "}}"...)
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

// finishReason returns OpenAI's finish reason, "" if the response is unusable. An unknown reason counts as none.
func (o *outcome) finishReason() string {
	switch f := o.finish; {
	case f == "MAX_TOKENS", f == "CONTINUATION":
		return "length"
	case f == "SAFETY", f == "RECITATION", f == "BLOCKLIST", f == "PROHIBITED_CONTENT", f == "SPII", f == "LANGUAGE",
		strings.HasPrefix(f, "IMAGE_"), f == "" && o.blocked:
		return "content_filter"
	case unusable[f] != "":
		return ""
	case o.calls > 0:
		return "tool_calls"
	case o.spoke, f == "STOP":
		return "stop"
	}
	return ""
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
	var end outcome
	var text, thoughts, signature []byte // the last of the text, or of the first call
	calls := []byte{'['}
	for _, p := range in.parts {
		switch {
		case p.call:
			if end.calls == 0 && r.WantReasoning && len(p.signature) > 2 {
				signature, p.signature = p.signature, nil
			}
			end.calls++
			calls = append(appendCall(append(appendComma(calls), '{'), p, c.newID), '}')
		case p.thought:
			thoughts = append(thoughts, unquote(p.text)...)
		default:
			text = append(text, unquote(p.text)...)
			if len(p.signature) > 2 {
				signature = p.signature
			}
		}
	}
	end.spoke = len(text) > 0
	end.readEnd(&in)
	reason := end.finishReason()
	if reason == "" {
		return nil, makeUnusableError(&end, true)
	}
	var count counts
	count.add(in.usage)
	usage := end.makeUsage(&count)

	b := c.appendHead(make([]byte, 0, 512+len(text)+len(calls)), r, &in, "chat.completion")
	b = append(b, `[{"index":0,"message":{"role":"assistant","content":`...)
	if end.calls > 0 && !end.spoke {
		b = append(b, "null"...)
	} else {
		b = append(append(append(b, '"'), text...), '"')
	}
	b = append(b, `,"refusal":null`...)
	if len(thoughts) > 0 && r.WantReasoning {
		b = append(append(append(b, `,"reasoning_content":"`...), thoughts...), '"')
	}
	if end.calls > 0 {
		b = append(append(append(b, `,"tool_calls":`...), calls...), ']')
	}
	b = appendSignature(b, signature)
	b = append(append(append(b, `},"logprobs":null,"finish_reason":"`...), reason...), `"}]`...)
	if usage != nil {
		b = appendUsage(append(b, `,"usage":`...), usage)
	}
	return &provider.Response{Body: append(b, '}'), Usage: usage}, nil
}

// appendHead appends the start of a response or chunk in OpenAI's shape, up to the value of choices.
func (c *Client) appendHead(b []byte, r *provider.Request, in *response, object string) []byte {
	b = append(b, `{"id":`...)
	if len(in.id) > 2 {
		b = append(b, in.id...)
	} else {
		b = provider.AppendQuote(b, "chatcmpl-"+c.newID())
	}
	b = append(append(append(b, `,"object":"`...), object...), `","created":`...)
	b = append(strconv.AppendInt(b, c.now().Unix(), 10), `,"model":`...)
	if len(in.model) > 2 {
		b = append(b, in.model...)
	} else {
		b = provider.AppendQuote(b, r.Model)
	}
	return append(b, `,"choices":`...)
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
