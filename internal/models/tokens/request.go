package tokens

import (
	"bytes"
	"encoding/json"
	"iter"

	"github.com/purserhq/purser/internal/models/provider"
)

// A family is a group of models that count alike. No tokenizer is published for
// the later ones: they are estimated from the o200k_base count, so that the
// estimate is seldom below the real number.
type family struct {
	textPercent     int64 // tokens of text per 100 of o200k_base
	toolPercent     int64 // the same for definitions of tools and schemas
	perMessage      int64 // tokens around each message, its role included
	perTool, ifTool int64 // tokens around each tool, and once when there are tools
	extra           bool  // extra_content of tool calls is sent and read as input
	image           image
}

// families by name; a model of the catalogue names its own.
var families = map[string]family{
	// OpenAI reads o200k_base; from GPT-6 on nothing is published, hence 5 % more.
	"gpt-4o-mini": {textPercent: 100, toolPercent: 110, perMessage: 4, perTool: 12, ifTool: 20, image: tileImage},
	"gpt-mini":    {textPercent: 100, toolPercent: 110, perMessage: 4, perTool: 12, ifTool: 20, image: miniImage},
	"gpt-5.6":     {textPercent: 100, toolPercent: 110, perMessage: 4, perTool: 12, ifTool: 20, image: gptImage},
	"gpt-6":       {textPercent: 105, toolPercent: 116, perMessage: 4, perTool: 12, ifTool: 20, image: gptImage},
	// Claude 4.6 and earlier, and Haiku 4.5; then 4.7 and later with its new tokenizer.
	"claude-4": {
		textPercent: 125,
		toolPercent: 138,
		perMessage:  23,
		perTool:     12,
		ifTool:      700,
		extra:       true,
		image:       claude4Image,
	},
	"claude-5": {
		textPercent: 170,
		toolPercent: 187,
		perMessage:  23,
		perTool:     12,
		ifTool:      700,
		extra:       true,
		image:       claude5Image,
	},
	"gemini-2": {
		textPercent: 120,
		toolPercent: 132,
		perMessage:  13,
		perTool:     12,
		ifTool:      20,
		extra:       true,
		image:       gemini2Image,
	},
	"gemini-3": {
		textPercent: 120,
		toolPercent: 132,
		perMessage:  13,
		perTool:     12,
		ifTool:      20,
		extra:       true,
		image:       gemini3Image,
	},
}

// KnownFamily says whether CountRequest knows a family by this name.
func KnownFamily(name string) bool {
	_, ok := families[name]
	return ok
}

// What stands around the parts of a request, in tokens.
const (
	replyStart     = 3 // the head of the answer
	perName        = 1
	perToolCall    = 8
	perToolResult  = 4
	perToolForced  = 4
	perSchemaGiven = 20
)

// CountRequest estimates the input tokens of a request to a model of the given
// family, an image of unknown size at its bound. The estimate of a text is never
// above its bytes. An unknown family counts as the newest Claude,
// whose text is the dearest.
func CountRequest(r *provider.Request, familyName string) int64 {
	f, ok := families[familyName]
	if !ok {
		f = families["claude-5"]
	}
	text := measure(texts(r, f.extra))
	tools := measure(schemas(r))
	return text.at(f.textPercent) + tools.at(f.toolPercent) + overhead(r, f)
}

// overhead counts what no text stands for.
func overhead(r *provider.Request, f family) int64 {
	n := int64(replyStart) + f.perTool*int64(len(r.Tools))
	if len(r.Tools) > 0 {
		n += f.ifTool
	}
	if r.ToolChoice.Name != "" {
		n += perToolForced
	}
	if r.ResponseFormat != nil {
		n += perSchemaGiven
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		n += f.perMessage + perToolCall*int64(len(m.ToolCalls))
		if m.Name != "" {
			n += perName
		}
		if m.Role == "tool" {
			n += perToolResult
		}
		for j := range m.Parts {
			n += f.image.of(&m.Parts[j])
		}
	}
	return n
}

// texts are all texts of the messages that the model reads as they are.
func texts(r *provider.Request, extra bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range r.Messages {
			m := &r.Messages[i]
			ok := yield(m.Text) && yield(m.Refusal) && yield(m.Name)
			for j := 0; ok && j < len(m.Parts); j++ {
				ok = yield(m.Parts[j].Text)
			}
			for j := 0; ok && j < len(m.ToolCalls); j++ {
				call := &m.ToolCalls[j]
				ok = yield(call.Name) && yield(call.Arguments) && (!extra || yield(string(call.ExtraContent)))
			}
			if !ok {
				return
			}
		}
		yield(r.ToolChoice.Name)
	}
}

// schemas are the texts of the tools and of the response format. A provider
// renders them in a way of its own, so they are counted as compact JSON.
func schemas(r *provider.Request) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range r.Tools {
			t := &r.Tools[i]
			if !yield(t.Name) || !yield(t.Description) || !yield(compact(t.Parameters)) {
				return
			}
		}
		yield(compact(r.ResponseFormat))
	}
}

// compact returns JSON without white space; what is no JSON it returns as it is.
func compact(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}

// amount is what a sequence of texts measures.
type amount struct{ tokens, bytes int64 }

// measure counts texts; together above ExactBytes they are estimated like one
// long text.
func measure(texts iter.Seq[string]) amount {
	var a amount
	for s := range texts {
		a.bytes += int64(len(s))
		if a.bytes <= ExactBytes {
			a.tokens += int64(recall(s))
		}
	}
	if a.bytes > ExactBytes {
		a.tokens = (a.bytes + 2) / 3
	}
	return a
}

// at returns the tokens at so many percent, rounded up, at most one a byte.
func (a amount) at(percent int64) int64 {
	return min((a.tokens*percent+99)/100, a.bytes)
}
