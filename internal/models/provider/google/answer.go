package google

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// response is what matters of a GenerateContentResponse: members as they stand,
// nil where they are absent or null.
type response struct {
	failure   []byte // an error object in place of an answer
	id, model []byte
	parts     []part // of the first candidate, the only one that we ask for
	finish    []byte
	blocked   []byte // why the prompt was refused
	usage     []byte
}

// read takes in a response; false if it is none.
func (r *response) read(p []byte) bool {
	w := provider.NewWalk(p)
	return walk(&w, func(name []byte) bool {
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
			return walk(&w, func(name []byte) bool {
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
	return walk(w, func(name []byte) bool {
		switch string(name) {
		case "finishReason":
			r.finish = w.Value()
		case "content":
			return walk(w, func(name []byte) bool {
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

// walk is Members of w without those that are null.
func walk(w *provider.Walk, f func(name []byte) bool) bool {
	return w.Members(func(name []byte) bool { return w.Null() || f(name) })
}

// members is provider.Members without those that are null.
func members(p []byte, f func(name, value []byte) bool) bool {
	return provider.Members(p, func(name, value []byte) bool {
		return string(value) == "null" || f(name, value)
	})
}

// isText reports whether a member is a string or absent.
func isText(value []byte) bool { return value == nil || value[0] == '"' }

// inner is a JSON string without its quotes; escapes stay as they are.
func inner(quoted []byte) []byte {
	if len(quoted) < 2 {
		return nil
	}
	return quoted[1 : len(quoted)-1]
}

// part is a part of the model's turn. What is not named here was never asked for.
type part struct {
	text      []byte // a JSON string, nil = none
	thought   bool   // the text is a summary of thoughts, which is never shown
	signature []byte // a JSON string
	call      bool
	name      string
	args, id  []byte
}

func (r *response) readPart(w *provider.Walk) bool {
	var p part
	ok := walk(w, func(name []byte) bool {
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
	return walk(w, func(name []byte) bool {
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

// appendCall writes a call's members in OpenAI's shape, without the braces.
// newID makes the id of a call that Gemini did not name.
func appendCall(b []byte, p part, newID func() string) []byte {
	b = append(b, `"id":`...)
	if len(p.id) > 2 {
		b = append(b, p.id...)
	} else {
		b = provider.AppendQuote(b, "call_"+newID())
	}
	b = provider.AppendQuote(append(b, `,"type":"function","function":{"name":`...), p.name)
	b = provider.AppendQuote(append(b, `,"arguments":`...), compact(p.args))
	return appendSignature(append(b, '}'), p.signature)
}

// compact is a JSON object in one line, "{}" if it is absent. Nothing else of it
// changes, so that numbers keep their digits.
func compact(object []byte) string {
	if object == nil {
		return "{}"
	}
	v := jsontext.Value(bytes.Clone(object))
	if v.Compact() != nil { // too deep; the app can read it all the same
		return string(object)
	}
	return string(v)
}

// appendSignature writes what the app must bring back as it is (contract §4.3).
func appendSignature(b, signature []byte) []byte {
	if len(signature) <= 2 {
		return b
	}
	b = append(b, `,"extra_content":{"google":{"thought_signature":`...)
	return append(append(b, signature...), "}}"...)
}

// outcome is what is known of how an answer ends.
type outcome struct {
	finish  string
	blocked bool
	spoke   bool // there was text
	calls   int
}

// see takes in how a response ends, if it does.
func (o *outcome) see(r *response) {
	if r.finish != nil {
		o.finish = string(inner(r.finish))
	}
	if r.blocked != nil {
		o.blocked = true
	}
}

// over reports whether the provider said that the answer ends.
func (o *outcome) over() bool { return o.finish != "" || o.blocked }

// reason is why the answer ended, in OpenAI's words; "" if it is of no use. A
// reason that we do not know is as good as none.
func (o *outcome) reason() string {
	switch f := o.finish; {
	case f == "MAX_TOKENS", f == "CONTINUATION":
		return "length"
	case f == "SAFETY", f == "RECITATION", f == "BLOCKLIST", f == "PROHIBITED_CONTENT", f == "SPII", f == "LANGUAGE",
		strings.HasPrefix(f, "IMAGE_"), f == "" && o.blocked:
		return "content_filter"
	case f == "MALFORMED_FUNCTION_CALL", f == "UNEXPECTED_TOOL_CALL", f == "TOO_MANY_TOOL_CALLS":
		return ""
	case o.calls > 0:
		return "tool_calls"
	case o.spoke, f == "STOP":
		return "stop"
	}
	return ""
}

// usage is the usage of an answer with this outcome. What generated something
// but counts nothing is not true.
func (o *outcome) usage(c *counts) *provider.Usage {
	u := c.usage()
	if u != nil && u.Output == 0 && (o.spoke || o.calls > 0) {
		return nil
	}
	return u
}

// answer turns a whole answer into OpenAI's shape.
func (c *Client) answer(r *provider.Request, h http.Header, body []byte) (*provider.Response, error) {
	var in response
	if !in.read(body) || in.failure != nil {
		return nil, c.instead(h, body)
	}
	var end outcome
	var text, signature []byte // signature of the text
	calls := []byte{'['}
	for _, p := range in.parts {
		switch {
		case p.call:
			end.calls++
			calls = append(appendCall(append(comma(calls), '{'), p, c.newID), '}')
		case !p.thought:
			text = append(text, inner(p.text)...)
			if len(p.signature) > 2 {
				signature = p.signature
			}
		}
	}
	end.spoke = len(text) > 0
	end.see(&in)
	reason := end.reason()
	if reason == "" {
		return nil, unusable(&end, true)
	}
	var count counts
	count.add(in.usage)
	usage := end.usage(&count)

	b := c.appendHead(make([]byte, 0, 512+len(text)+len(calls)), r, &in, "chat.completion")
	b = append(b, `[{"index":0,"message":{"role":"assistant","content":`...)
	if end.calls > 0 && !end.spoke {
		b = append(b, "null"...)
	} else {
		b = append(append(append(b, '"'), text...), '"')
	}
	b = append(b, `,"refusal":null`...)
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

// appendHead writes an object of OpenAI's up to the value of its choices.
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

// unusable is the failure of an answer without anything that an app could use.
// The model may do better the next time, if nothing was sent yet.
func unusable(o *outcome, fresh bool) error {
	e := upstream.Failed(http.StatusOK, fmt.Errorf("%w: it ended with %.100q", errNoUse, o.finish))
	e.Retry = fresh
	return e
}
