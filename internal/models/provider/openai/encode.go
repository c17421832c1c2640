package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// encodeChat writes the body of a Chat Completions request. It names every member that may be sent; other members are
// never forwarded. It sends the output cap of the hold, so that the response cannot cost more.
func encodeChat(r *provider.Request) []byte {
	b := make([]byte, 0, sizeHint(r))
	b = append(b, `{"model":`...)
	b = provider.AppendQuote(b, r.Model)
	b = append(b, `,"messages":[`...)
	for i := range r.Turns {
		b = appendMessage(appendComma(b, i), &r.Turns[i])
	}
	b = append(b, `],"max_completion_tokens":`...)
	b = strconv.AppendInt(b, r.MaxTokens, 10)
	b = append(b, `,"service_tier":"default"`...) // the tier whose price we know
	b = appendNumber(b, "temperature", r.Temperature)
	b = appendNumber(b, "top_p", r.TopP)
	if len(r.Stop) > 0 {
		b = append(b, `,"stop":[`...)
		for i, s := range r.Stop {
			b = provider.AppendQuote(appendComma(b, i), s)
		}
		b = append(b, ']')
	}
	b = appendTools(appendNames(b, r), r)
	if r.ResponseFormat != nil {
		b = append(append(b, `,"response_format":`...), r.ResponseFormat...)
	}
	if r.ReasoningEffort != "" {
		b = provider.AppendQuote(append(b, `,"reasoning_effort":`...), r.ReasoningEffort)
	}
	if r.Stream {
		b = append(b, `,"stream":true,"stream_options":{"include_usage":true}`...)
	}
	return append(b, '}')
}

// appendNames appends the identifier of the account, for abuse control, and the key that sends requests of one prefix
// to the same cache.
func appendNames(b []byte, r *provider.Request) []byte {
	if r.EndUser != "" {
		b = provider.AppendQuote(append(b, `,"safety_identifier":`...), r.EndUser)
	}
	if r.CacheKey != "" {
		b = provider.AppendQuote(append(b, `,"prompt_cache_key":`...), r.CacheKey)
	}
	return b
}

// sizeHint estimates the length of the body in bytes.
func sizeHint(r *provider.Request) int {
	n := 512 + len(r.ResponseFormat) + conversation.SumBytes(r.Turns)
	for i := range r.Tools {
		n += 128 + len(r.Tools[i].Description) + len(r.Tools[i].Parameters)
	}
	return n
}

// appendNumber appends a sampling member unless it is 1, which is the default: models with fixed sampling refuse the
// member.
func appendNumber(b []byte, name string, v *float64) []byte {
	if v == nil || *v == 1 {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return strconv.AppendFloat(b, *v, 'g', -1, 64)
}

// appendMessage appends a turn as a message, which has one content, one refusal and one list of calls. Reasoning has no
// place in it.
func appendMessage(b []byte, t *conversation.Turn) []byte {
	b = provider.AppendQuote(append(b, `{"role":`...), t.Role)
	blocks := t.Blocks
	result := t.Result()
	if result != nil {
		blocks = listResult(result)
	}
	b = appendContent(append(b, `,"content":`...), blocks, result != nil)
	if t.Name != "" {
		b = provider.AppendQuote(append(b, `,"name":`...), t.Name)
	}
	if refusal := joinRefusals(blocks); refusal != "" {
		b = provider.AppendQuote(append(b, `,"refusal":`...), refusal)
	}
	if result != nil {
		b = provider.AppendQuote(append(b, `,"tool_call_id":`...), normalizeCallID(result.ID))
	}
	calls := 0
	for i := range blocks {
		c := &blocks[i]
		if c.Kind != conversation.CallBlock {
			continue
		}
		if calls == 0 {
			b = append(b, `,"tool_calls":[`...)
		}
		b = provider.AppendQuote(append(appendComma(b, calls), `{"id":`...), normalizeCallID(c.ID))
		b = provider.AppendQuote(append(b, `,"type":"function","function":{"name":`...), c.Name)
		b = append(provider.AppendQuote(append(b, `,"arguments":`...), c.Arguments), "}}"...)
		calls++
	}
	if calls > 0 {
		b = append(b, ']')
	}
	return append(b, '}')
}

// failed begins the result of a tool that failed, for which neither API has a member.
const failed = "The tool failed. "

// listResult returns the content of a result.
func listResult(r *conversation.Block) []conversation.Block {
	if r.Failed {
		return []conversation.Block{{Text: failed + conversation.Texts(r.Blocks)}}
	}
	return r.Blocks
}

// joinRefusals returns the refusals of blocks as one.
func joinRefusals(blocks []conversation.Block) (all string) {
	for i := range blocks {
		if blocks[i].Kind == conversation.RefusalBlock {
			all += blocks[i].Text
		}
	}
	return all
}

// maxCallID bounds the id of a call, in characters: longer ones are refused.
const maxCallID = 40

// normalizeCallID returns the id of a tool call in a form that this provider accepts. It keeps the provider's own ids
// and hashes those of other providers. A call and its result keep the same id, and the same history gives the same
// bytes.
func normalizeCallID(s string) string {
	if len(s) <= maxCallID && strings.IndexFunc(s, isForeignIDChar) < 0 {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "call_" + hex.EncodeToString(sum[:16])
}

// isForeignIDChar reports whether a character is not allowed in the id of a call.
func isForeignIDChar(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_' && r != '-'
}

// appendComma appends a comma before each element of a list except the first.
func appendComma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// appendContent appends texts and images. One text is a string, and none is null, but in the result of a tool.
func appendContent(b []byte, blocks []conversation.Block, result bool) []byte {
	n, one := 0, -1
	for i := range blocks {
		if k := blocks[i].Kind; k == conversation.TextBlock || k == conversation.ImageBlock {
			n, one = n+1, i
		}
	}
	switch {
	case n == 0 && result:
		return append(b, `""`...)
	case n == 0:
		return append(b, "null"...)
	case n == 1 && blocks[one].Kind == conversation.TextBlock:
		return provider.AppendQuote(b, blocks[one].Text)
	}
	b = append(b, '[')
	for i, n := 0, 0; i < len(blocks); i++ {
		switch c := &blocks[i]; c.Kind {
		case conversation.TextBlock:
			b = provider.AppendQuote(append(appendComma(b, n), `{"type":"text","text":`...), c.Text)
			b = append(b, '}')
		case conversation.ImageBlock:
			b = append(appendComma(b, n), `{"type":"image_url","image_url":{"url":`...)
			b = provider.AppendQuote(b, c.Picture.URL)
			if c.Picture.Detail != "" {
				b = provider.AppendQuote(append(b, `,"detail":`...), c.Picture.Detail)
			}
			b = append(b, "}}"...)
		default:
			continue
		}
		n++
	}
	return append(b, ']')
}

func appendTools(b []byte, r *provider.Request) []byte {
	if len(r.Tools) == 0 {
		return b
	}
	b = append(b, `,"tools":[`...)
	for i := range r.Tools {
		t := &r.Tools[i]
		b = provider.AppendQuote(append(appendComma(b, i), `{"type":"function","function":{"name":`...), t.Name)
		if t.Description != "" {
			b = provider.AppendQuote(append(b, `,"description":`...), t.Description)
		}
		if t.Parameters != nil {
			b = append(append(b, `,"parameters":`...), t.Parameters...)
		}
		if t.Strict != nil {
			b = strconv.AppendBool(append(b, `,"strict":`...), *t.Strict)
		}
		b = append(b, "}}"...)
	}
	b = append(b, ']')
	switch c := r.ToolChoice; c.Mode {
	case "":
	case "function":
		b = append(provider.AppendQuote(append(b, `,"tool_choice":{"type":"function","function":{"name":`...), c.Name),
			"}}"...)
	default:
		b = provider.AppendQuote(append(b, `,"tool_choice":`...), c.Mode)
	}
	if r.ParallelToolCalls != nil {
		b = strconv.AppendBool(append(b, `,"parallel_tool_calls":`...), *r.ParallelToolCalls)
	}
	return b
}
