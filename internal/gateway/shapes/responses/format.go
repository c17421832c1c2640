package responses

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/provider"
)

// format is the form of responses.
type format struct {
	call *Call // nil = not known
}

var firstEvent = []byte("event: response.created\n")

// FormatOf returns the form of responses if a stream is one of them, and otherwise nil.
func FormatOf(sent []byte) shapes.Format {
	if bytes.HasPrefix(sent, firstEvent) {
		return format{}
	}
	return nil
}

// AppendUsage appends usage with the names of the Responses API (see shapes.Format).
func (format) AppendUsage(b, usage []byte) []byte { return appendUsage(b, usage) }

// Fail returns the events with an error (see shapes.Format).
func (f format) Fail(sent, failure []byte) []byte {
	s := resume(sent)
	if s.failure = failure; !s.begun { // nothing but the failure has come
		s.id, s.made, s.model = []byte("failed"), []byte("0"), []byte(`""`)
		if f.call != nil {
			s.echo, s.model = f.call.echo, provider.AppendQuote(nil, f.call.request.BodyModel)
		}
		s.writeBegin()
	}
	s.fail()
	return s.b
}

// resume returns the state of a stream after what was sent of it.
func resume(sent []byte) *stream {
	s := &stream{message: -1, reasoning: -1}
	s.head.Stream = true
	for len(sent) > 0 {
		var data []byte
		if data, sent = shapes.NextEvent(sent); data != nil {
			s.resumeEvent(data)
		}
	}
	return s
}

// resumeEvent reads one event of ours.
func (s *stream) resumeEvent(data []byte) {
	var kind, response, item, piece, part []byte
	var index int64
	if !provider.Members(data, func(name, value []byte) bool {
		switch string(name) {
		case "type":
			kind = unquote(value)
		case "response":
			response = value
		case "item":
			item = value
		case "part":
			part = value
		case "delta":
			piece = unquote(value)
		case "output_index":
			_ = json.Unmarshal(value, &index) // ours
		}
		return true
	}) {
		return // a comment
	}
	s.next++
	if string(kind) == "response.created" {
		s.resumeResponse(response)
		return
	}
	if string(kind) == "response.output_item.added" {
		s.items = append(s.items, readItem(item))
	}
	if index >= int64(len(s.items)) {
		return
	}
	it := &s.items[index]
	switch string(kind) {
	case "response.output_item.done":
		it.done, it.closed = item, true
	case "response.content_part.added":
		it.parts = append(it.parts, readPartHead(part))
	case "response.output_text.delta", "response.refusal.delta":
		if n := len(it.parts); n > 0 {
			it.parts[n-1].text = append(it.parts[n-1].text, piece...)
		}
	case "response.reasoning_summary_text.delta":
		it.summary = append(it.summary, piece...)
	case "response.function_call_arguments.delta":
		it.arguments = append(it.arguments, piece...)
	}
}

// resumeResponse reads the response of the first event. What is not named here repeats the request.
func (s *stream) resumeResponse(response []byte) {
	s.begun = true
	provider.Members(response, func(name, value []byte) bool {
		switch string(name) {
		case "object", "status", "error", "incomplete_details", "output", "usage", "svc":
		case "id":
			s.id = bytes.TrimPrefix(unquote(value), []byte("resp_"))
		case "created_at":
			s.made = value
		case "model":
			s.model = value
		default:
			s.echo = append(append(provider.AppendQuote(append(s.echo, ','), string(name)), ':'), value...)
		}
		return true
	})
}

// readItem reads an item that was added.
func readItem(raw []byte) (it item) {
	provider.Members(raw, func(name, value []byte) bool {
		switch string(name) {
		case "type":
			it.kind = map[string]itemKind{
				"reasoning": reasoningItem, "function_call": callItem, "custom_tool_call": customItem,
			}[string(unquote(value))]
		case "call_id":
			it.callID = unquote(value)
		case "name":
			it.name = unquote(value)
		case "namespace":
			it.namespace = string(unquote(value))
		case "phase":
			it.phase = unquote(value)
		}
		return true
	})
	return it
}

func readPartHead(raw []byte) (p part) {
	provider.Members(raw, func(name, value []byte) bool {
		p.refusal = p.refusal || string(name) == "type" && string(value) == `"refusal"`
		return true
	})
	return p
}

// generated is what a model generated in an item or in an event.
type generated struct {
	Item      *generated  `json:"item"`
	Type      string      `json:"type"`
	Name      string      `json:"name"`
	Arguments string      `json:"arguments"`
	Input     string      `json:"input"`
	Delta     string      `json:"delta"`
	Content   []generated `json:"content"`
	Summary   []generated `json:"summary"`
	Text      string      `json:"text"`
	Refusal   string      `json:"refusal"`
}

func (g *generated) appendTo(b *strings.Builder) {
	for _, list := range [][]generated{g.Summary, g.Content} {
		for i := range list {
			list[i].appendTo(b)
		}
	}
	for _, text := range []string{g.Name, g.Arguments, g.Input, g.Delta, g.Text, g.Refusal} {
		b.WriteString(text)
	}
}

// KeepAlive returns a comment (see shapes.Format).
func (format) KeepAlive() []byte { return []byte(shapes.Comment) }

// Text returns what the model generated (see shapes.Format).
func (format) Text(answer []byte) string {
	var b strings.Builder
	if len(answer) > 0 && answer[0] == '{' {
		var whole struct {
			Output []generated `json:"output"`
		}
		if json.Unmarshal(shapes.WithoutBill(answer), &whole) == nil {
			for i := range whole.Output {
				whole.Output[i].appendTo(&b)
			}
		}
		return b.String()
	}
	for len(answer) > 0 {
		var data []byte
		data, answer = shapes.NextEvent(answer)
		var g generated
		if json.Unmarshal(data, &g) != nil {
			continue
		}
		switch {
		case strings.HasSuffix(g.Type, ".delta"):
			b.WriteString(g.Delta)
		case g.Type == "response.output_item.added" && g.Item != nil:
			b.WriteString(g.Item.Name)
		}
	}
	return b.String()
}

// unquote returns the text of a JSON string as it stands between the quotes; nil if it is none.
func unquote(raw jsontext.Value) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	return raw[1 : len(raw)-1]
}
