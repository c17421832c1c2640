package openai

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// encodeResponses writes the body of a Responses API request. The provider stores nothing; the app's own history
// carries the encrypted reasoning.
func encodeResponses(r *provider.Request) ([]byte, error) {
	b := provider.AppendQuote(append(make([]byte, 0, sizeHint(r)), `{"model":`...), r.Model)
	b = append(b, `,"input":[`...)
	n := len(b)
	for i := range r.Turns {
		b = appendItems(b, n, &r.Turns[i])
	}
	b = strconv.AppendInt(append(b, `],"max_output_tokens":`...), r.MaxTokens, 10)
	b = append(b, `,"store":false,"include":["reasoning.encrypted_content"],"service_tier":"default","stream":true`...)
	b = appendNumber(b, "temperature", r.Temperature)
	b = appendNumber(b, "top_p", r.TopP)
	b = appendFlatTools(appendNames(appendReasoningConfig(b, r), r), r)
	if r.ResponseFormat == nil {
		return append(b, '}'), nil
	}
	format, err := flattenFormat(r.ResponseFormat)
	return append(append(append(b, `,"text":{"format":`...), format...), "}}"...), err
}

// appendReasoningConfig appends the effort, and asks for a summary of the reasoning if the client did.
func appendReasoningConfig(b []byte, r *provider.Request) []byte {
	effort := provider.AppendQuote([]byte(`"effort":`), r.ReasoningEffort)
	const summary = `"summary":"auto"`
	switch {
	case r.ReasoningEffort != "" && r.WantSummary:
		b = append(append(append(append(b, `,"reasoning":{`...), effort...), ','), summary...)
	case r.ReasoningEffort != "":
		b = append(append(b, `,"reasoning":{`...), effort...)
	case r.WantSummary:
		b = append(b, `,"reasoning":{`+summary...)
	default:
		return b
	}
	return append(b, '}')
}

// appendItemComma appends a comma before each item of a list that begins at n, except the first.
func appendItemComma(b []byte, n int) []byte { return appendComma(b, len(b)-n) }

// appendItems writes a turn as items.
func appendItems(b []byte, n int, t *conversation.Turn) []byte {
	switch t.Role {
	case "tool":
		result := t.Result()
		b = provider.AppendQuote(append(appendItemComma(b, n), `{"type":"function_call_output","call_id":`...),
			normalizeCallID(result.ID))
		return append(provider.AppendQuote(append(b, `,"output":`...), conversation.Texts(listResult(result))), '}')
	case "assistant":
		return appendAssistant(b, n, t.Blocks)
	case "system":
		return appendTurn(b, n, "developer", t.Blocks)
	}
	return appendTurn(b, n, t.Role, t.Blocks)
}

func appendTurn(b []byte, n int, role string, blocks []conversation.Block) []byte {
	b = provider.AppendQuote(append(appendItemComma(b, n), `{"type":"message","role":`...), role)
	b = append(b, `,"content":[`...)
	for i := range blocks {
		p := blocks[i].Picture
		if b = appendComma(b, i); p == nil {
			b = append(provider.AppendQuote(append(b, `{"type":"input_text","text":`...), blocks[i].Text), '}')
			continue
		}
		detail := p.Detail
		if detail == "" {
			detail = "auto"
		}
		b = provider.AppendQuote(append(b, `{"type":"input_image","image_url":`...), p.URL)
		b = append(provider.AppendQuote(append(b, `,"detail":`...), detail), '}')
	}
	return append(b, "]}"...)
}

// appendAssistant writes a turn of the model, block by block. The API refuses reasoning that nothing follows.
func appendAssistant(b []byte, n int, blocks []conversation.Block) []byte {
	last := len(blocks)
	for last > 0 && isSilent(&blocks[last-1]) {
		last--
	}
	open := false // a message
	for i := range blocks[:last] {
		c := &blocks[i]
		if isSilent(c) && c.Kind != conversation.ReasoningBlock {
			continue
		}
		joins := open && c.Joined
		if open && !joins {
			b = append(b, "]}"...)
		}
		switch open = false; c.Kind {
		case conversation.ReasoningBlock:
			b = appendReasoningItems(b, n, c.Extra)
		case conversation.CallBlock:
			b = appendReasoningItems(b, n, c.Extra)
			b = provider.AppendQuote(append(appendItemComma(b, n), `{"type":"function_call","call_id":`...),
				normalizeCallID(c.ID))
			b = provider.AppendQuote(append(b, `,"name":`...), c.Name)
			b = append(provider.AppendQuote(append(b, `,"arguments":`...), c.Arguments), '}')
		default:
			b = appendSaid(b, n, c, joins)
			open = true
		}
	}
	if open {
		b = append(b, "]}"...)
	}
	return b
}

// appendSaid writes a text or a refusal, as a part of the open message if it joins, and otherwise as the first one of
// another.
func appendSaid(b []byte, n int, c *conversation.Block, joins bool) []byte {
	if joins {
		b = append(b, ',')
	} else {
		b = append(appendItemComma(b, n), `{"type":"message","role":"assistant",`...)
		if c.Phase != "" {
			b = append(provider.AppendQuote(append(b, `"phase":`...), c.Phase), ',')
		}
		b = append(b, `"content":[`...)
	}
	if c.Kind == conversation.RefusalBlock {
		return append(provider.AppendQuote(append(b, `{"type":"refusal","refusal":`...), c.Text), '}')
	}
	return append(provider.AppendQuote(append(b, `{"type":"output_text","text":`...), c.Text), '}')
}

// isSilent reports whether a block of the model says nothing.
func isSilent(b *conversation.Block) bool { return b.Kind != conversation.CallBlock && b.Text == "" }

// appendReasoningItems writes the reasoning that an app sent back.
func appendReasoningItems(b []byte, n int, extra []byte) []byte {
	for _, item := range readReasoning(extra) {
		b = append(appendItemComma(b, n), item...)
	}
	return b
}

// readReasoning returns the reasoning items that an app sent back with a message or a call. It
// rebuilds them from the members that they may have and drops malformed items; then the model reasons again.
func readReasoning(extra []byte) (list [][]byte) {
	var v struct {
		OpenAI struct {
			Reasoning []item `json:"reasoning"`
		} `json:"openai"`
	}
	if len(extra) == 0 || json.Unmarshal(extra, &v) != nil {
		return nil
	}
	for _, i := range v.OpenAI.Reasoning {
		if i.Type != "reasoning" || i.Encrypted == nil {
			continue
		}
		b := provider.AppendQuote([]byte(`{"type":"reasoning","id":`), i.ID)
		b = append(b, `,"summary":`...)
		if i.Summary.Kind() == '[' {
			b = append(b, i.Summary...)
		} else {
			b = append(b, "[]"...)
		}
		list = append(list, append(provider.AppendQuote(append(b, `,"encrypted_content":`...), *i.Encrypted), '}'))
	}
	return list
}

// appendFlatTools writes tools without the nesting of Chat Completions. A tool without strict is strict here, as far as
// its schema allows. Only clients that speak this API mean that.
func appendFlatTools(b []byte, r *provider.Request) []byte {
	if len(r.Tools) == 0 {
		return b
	}
	b = append(b, `,"tools":[`...)
	for i := range r.Tools {
		t := &r.Tools[i]
		b = provider.AppendQuote(append(appendComma(b, i), `{"type":"function","name":`...), t.Name)
		if t.Description != "" {
			b = provider.AppendQuote(append(b, `,"description":`...), t.Description)
		}
		b = append(b, `,"parameters":`...)
		if t.Parameters != nil {
			b = append(b, t.Parameters...)
		} else {
			b = append(b, `{"type":"object","properties":{}}`...)
		}
		if t.Strict != nil || !r.FromResponses {
			b = strconv.AppendBool(append(b, `,"strict":`...), t.Strict != nil && *t.Strict)
		}
		b = append(b, '}')
	}
	b = append(b, ']')
	switch c := r.ToolChoice; c.Mode {
	case "":
	case "function":
		b = append(provider.AppendQuote(append(b, `,"tool_choice":{"type":"function","name":`...), c.Name), '}')
	default:
		b = provider.AppendQuote(append(b, `,"tool_choice":`...), c.Mode)
	}
	if r.ParallelToolCalls != nil {
		b = strconv.AppendBool(append(b, `,"parallel_tool_calls":`...), *r.ParallelToolCalls)
	}
	return b
}

// flattenFormat returns a response_format without the nesting of Chat Completions.
func flattenFormat(raw []byte) ([]byte, error) {
	var schema []byte
	if !provider.Members(raw, func(name, value []byte) bool {
		if string(name) == "json_schema" {
			schema = value
		}
		return true
	}) {
		return nil, &provider.Error{Kind: provider.Rejected, Message: "response_format: must be an object"}
	}
	if schema == nil {
		return raw, nil
	}
	b := []byte(`{"type":"json_schema"`)
	ok := provider.Members(schema, func(name, value []byte) bool {
		if string(name) != "type" {
			b = fmt.Appendf(b, `,%q:%s`, name, value)
		}
		return true
	})
	if !ok {
		return nil, &provider.Error{Kind: provider.Rejected, Message: "response_format.json_schema: must be an object"}
	}
	return append(b, '}'), nil
}
