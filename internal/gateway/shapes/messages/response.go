package messages

import (
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/provider"
)

// whole returns the message that was written.
func (s *writer) whole() []byte {
	b := appendHead(make([]byte, 0, 1024), s.id, s.model)
	b = append(b, `"content":[`...)
	for i := range s.waiting {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendBlock(b, &s.waiting[i])
	}
	b = appendStop(append(b, "],"...), s.stopReason(), s.stop)
	return append(b, `,"usage":`+shapes.UsageHole+shapes.BlockHole+"}\n"...)
}

// appendBlock appends a block of a whole message. Arguments that are no object become one (decision 176).
func appendBlock(b []byte, p *part) []byte {
	switch p.kind {
	case kindText:
		return append(append(append(b, `{"type":"text","text":"`...), p.body...), `"}`...)
	case kindThinking:
		b = append(append(append(b, `{"type":"thinking","thinking":"`...), p.body...), `","signature":"`...)
		return append(append(b, p.signature...), `"}`...)
	case kindRedacted:
		return append(append(append(b, `{"type":"redacted_thinking","data":"`...), p.body...), `"}`...)
	}
	b = append(append(append(b, `{"type":"tool_use","id":"`...), p.id...), `","name":"`...)
	b = append(append(b, p.name...), `","input":`...)
	return append(provider.AppendArguments(b, string(shapes.Unescape(p.body))), '}')
}

// format is the form of Anthropic's answers.
type format struct{}

// Format returns the form of the answers (see shapes.Call).
func (c *Call) Format() shapes.Format { return format{} }

// Body is not needed: answers have deltas (see shapes.Call).
func (c *Call) Body(canonical []byte) []byte { return canonical }

// Formats of answers that are known by their first event.
const firstEvent = "event: message_start\n"

// FormatOf returns the form of Anthropic's answers if a stream is one of them, and otherwise nil.
func FormatOf(stream []byte) shapes.Format {
	if strings.HasPrefix(string(stream[:min(len(stream), len(firstEvent))]), firstEvent) {
		return format{}
	}
	return nil
}

// Fail returns the event with an error (see shapes.Format).
func (format) Fail(_, failure []byte) []byte {
	b := appendError([]byte("event: error\ndata: "), failure, "", []byte(shapes.FinalHole))
	return append(b, "\n\n"...)
}

// AppendUsage appends Anthropic's usage (see shapes.Format).
func (format) AppendUsage(b, usage []byte) []byte { return appendUsage(b, usage) }

// generated is what a model generated in a message, a block or a delta of one.
type generated struct {
	Content  []generated    `json:"content"`
	Block    *generated     `json:"content_block"`
	Delta    *generated     `json:"delta"`
	Name     string         `json:"name"`
	Text     string         `json:"text"`
	Thinking string         `json:"thinking"`
	Partial  string         `json:"partial_json"`
	Input    jsontext.Value `json:"input"`
}

func (g *generated) appendTo(b *strings.Builder) {
	b.WriteString(g.Name)
	b.WriteString(g.Thinking)
	b.WriteString(g.Text)
	b.WriteString(g.Partial)
	if len(g.Input) > len("{}") {
		b.Write(g.Input)
	}
	for i := range g.Content {
		g.Content[i].appendTo(b)
	}
	for _, one := range []*generated{g.Block, g.Delta} {
		if one != nil {
			one.appendTo(b)
		}
	}
}

// KeepAlive returns a comment (see shapes.Format).
func (format) KeepAlive() []byte { return []byte(shapes.Comment) }

// Text returns what the model generated (see shapes.Format).
func (format) Text(answer []byte) string {
	var b strings.Builder
	add := func(data []byte) {
		var g generated
		if json.Unmarshal(data, &g) == nil { // what cannot be read the app cannot read either
			g.appendTo(&b)
		}
	}
	if len(answer) > 0 && answer[0] == '{' {
		add(shapes.WithoutBill(answer))
		return b.String()
	}
	for len(answer) > 0 {
		var data []byte
		data, answer = shapes.NextEvent(answer)
		add(data)
	}
	return b.String()
}
