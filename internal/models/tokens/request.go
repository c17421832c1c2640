package tokens

import (
	"bytes"
	"encoding/json"
	"iter"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// A family is a group of models with the same token counts. No tokenizer is published for the later ones. They are
// estimated from the o200k_base count, so that the estimate is seldom below the real number.
type family struct {
	textPercent     int64 // tokens of text per 100 of o200k_base
	toolPercent     int64 // the same for definitions of tools and schemas
	perMessage      int64 // tokens around each message, its role included
	perTool, ifTool int64 // tokens around each tool, and once when there are tools
	extra           bool  // extra_content is sent and read as input
	image           image
	embedding       bool // of models that make embeddings, whose inputs have nothing around their text
}

// families are the families by name. Each model of the price list names its family.
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
	// OpenAI's embeddings read cl100k_base, which needs more tokens than o200k_base, most of all outside
	// English. Google reports no tokens, so that the count is the charge: it has no addition.
	"embedding-3":      {textPercent: 125, embedding: true},
	"gemini-embedding": {textPercent: 100, embedding: true},
}

// KnownFamily reports whether CountRequest knows a family of this name, of models that make embeddings or of others.
func KnownFamily(name string, embedding bool) bool {
	f, ok := families[name]
	return ok && f.embedding == embedding
}

// Tokens around the parts of a request.
const (
	replyStart     = 3 // the start of the response
	perName        = 1
	perToolCall    = 8
	perToolResult  = 4
	perToolForced  = 4
	perSchemaGiven = 20
)

// CountRequest estimates the input tokens of a request to a model of the family. An image of unknown size counts its
// upper bound. The estimate of a text is at most its number of bytes. An unknown family counts as the newest Claude,
// whose counts are the highest.
func CountRequest(r *provider.Request, familyName string) int64 {
	f, ok := families[familyName]
	if !ok {
		f = families["claude-5"]
	}
	if r.Embedding != nil {
		return countInputs(r.Embedding, f)
	}
	extra := f.extra || r.Facts.Responses // OpenAI takes reasoning back through the Responses API only
	text := measureTexts(eachText(r, extra))
	tools := measureTexts(eachSchema(r))
	return text.scale(f.textPercent) + tools.scale(f.toolPercent) + countOverhead(r, f)
}

// countInputs counts the inputs of a call for embeddings. Token ids are not scaled: their number is exact.
func countInputs(e *provider.Embedding, f family) int64 {
	var a amount
	for i := range e.Inputs {
		a.tokens += e.Inputs[i].Tokens
		a.bytes += int64(len(e.Inputs[i].Text))
	}
	if e.HasIDs() {
		return a.tokens
	}
	return a.scale(f.textPercent)
}

// countOverhead counts the tokens that are not text: those around messages and tools, and images.
func countOverhead(r *provider.Request, f family) int64 {
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
	for i := range r.Turns {
		t := &r.Turns[i]
		n += f.perMessage
		if t.Name != "" {
			n += perName
		}
		for j := range t.Blocks {
			switch b := &t.Blocks[j]; b.Kind {
			case conversation.CallBlock:
				n += perToolCall
			case conversation.ResultBlock:
				n += perToolResult
			case conversation.ImageBlock:
				n += f.image.countTokens(b.Picture)
			}
		}
	}
	return n
}

// eachText yields all texts that the model reads unchanged.
func eachText(r *provider.Request, extra bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range r.Turns {
			if !yield(r.Turns[i].Name) || !yieldBlocks(yield, r.Turns[i].Blocks, extra) {
				return
			}
		}
		yield(r.ToolChoice.Name)
	}
}

func yieldBlocks(yield func(string) bool, blocks []conversation.Block, extra bool) bool {
	for i := range blocks {
		b := &blocks[i]
		if !yield(b.Text) || !yield(b.Name) || !yield(b.Arguments) || extra && !yield(string(b.Extra)) ||
			!yieldBlocks(yield, b.Blocks, extra) {
			return false
		}
	}
	return true
}

// eachSchema yields the texts of the tools and of the response format. Providers render them in unknown ways, so they
// are counted as compact JSON.
func eachSchema(r *provider.Request) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range r.Tools {
			t := &r.Tools[i]
			if !yield(t.Name) || !yield(t.Description) || !yield(compactJSON(t.Parameters)) {
				return
			}
		}
		yield(compactJSON(r.ResponseFormat))
	}
}

// compactJSON returns JSON without white space. It returns other texts unchanged.
func compactJSON(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}

// amount is the size of a sequence of texts.
type amount struct{ tokens, bytes int64 }

// measureTexts counts texts. Above ExactBytes in all they are estimated like one long text.
func measureTexts(texts iter.Seq[string]) amount {
	var a amount
	for s := range texts {
		a.bytes += int64(len(s))
		if a.bytes <= ExactBytes {
			a.tokens += int64(countCached(s))
		}
	}
	if a.bytes > ExactBytes {
		a.tokens = (a.bytes + 2) / 3
	}
	return a
}

// scale returns the given percentage of the tokens, rounded up, at most one per byte.
func (a amount) scale(percent int64) int64 {
	return min((a.tokens*percent+99)/100, a.bytes)
}
