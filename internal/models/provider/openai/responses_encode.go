package openai

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/internal/models/provider"
)

// encodeResponses writes the body of a Responses API request. The provider stores nothing; the app's own history
// carries the encrypted reasoning.
func encodeResponses(r *provider.Request) ([]byte, error) {
	b := provider.AppendQuote(append(make([]byte, 0, sizeHint(r)), `{"model":`...), r.Model)
	b = append(b, `,"input":[`...)
	n := len(b)
	for i := range r.Messages {
		b = appendItems(b, n, &r.Messages[i])
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

// appendItems writes a message as items: its text, then its calls, each after the reasoning that led to it.
func appendItems(b []byte, n int, m *provider.Message) []byte {
	switch m.Role {
	case "tool":
		b = provider.AppendQuote(append(appendItemComma(b, n), `{"type":"function_call_output","call_id":`...),
			normalizeCallID(m.ToolCallID))
		return append(provider.AppendQuote(append(b, `,"output":`...), joinText(m)), '}')
	case "assistant":
		return appendAssistant(b, n, m)
	case "system":
		return appendTurn(b, n, "developer", m)
	}
	return appendTurn(b, n, m.Role, m)
}

func appendTurn(b []byte, n int, role string, m *provider.Message) []byte {
	b = provider.AppendQuote(append(appendItemComma(b, n), `{"type":"message","role":`...), role)
	b = append(b, `,"content":[`...)
	if m.Parts == nil {
		b = append(provider.AppendQuote(append(b, `{"type":"input_text","text":`...), m.Text), '}')
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		if b = appendComma(b, i); p.Type == "text" {
			b = append(provider.AppendQuote(append(b, `{"type":"input_text","text":`...), p.Text), '}')
			continue
		}
		detail := p.Detail
		if detail == "" {
			detail = "auto"
		}
		b = provider.AppendQuote(append(b, `{"type":"input_image","image_url":`...), p.ImageURL)
		b = append(provider.AppendQuote(append(b, `,"detail":`...), detail), '}')
	}
	return append(b, "]}"...)
}

// appendAssistant writes a message of the model: its reasoning, its text, then its calls. The API
// refuses reasoning that nothing follows.
func appendAssistant(b []byte, n int, m *provider.Message) []byte {
	text := joinText(m)
	if text != "" || m.Refusal != "" || len(m.ToolCalls) > 0 {
		b = appendReasoningItems(b, n, m.ExtraContent)
	}
	if text != "" || m.Refusal != "" {
		b = append(appendItemComma(b, n), `{"type":"message","role":"assistant","content":[`...)
		if text != "" {
			b = append(provider.AppendQuote(append(b, `{"type":"output_text","text":`...), text), '}')
		}
		if m.Refusal != "" {
			b = append(provider.AppendQuote(append(appendComma(b, len(text)), `{"type":"refusal","refusal":`...),
				m.Refusal),
				'}')
		}
		b = append(b, "]}"...)
	}
	for i := range m.ToolCalls {
		c := &m.ToolCalls[i]
		b = appendReasoningItems(b, n, c.ExtraContent)
		b = provider.AppendQuote(append(appendItemComma(b, n), `{"type":"function_call","call_id":`...),
			normalizeCallID(c.ID))
		b = provider.AppendQuote(append(b, `,"name":`...), c.Name)
		b = append(provider.AppendQuote(append(b, `,"arguments":`...), c.Arguments), '}')
	}
	return b
}

// appendReasoningItems writes the reasoning that an app sent back.
func appendReasoningItems(b []byte, n int, extra []byte) []byte {
	for _, item := range readReasoning(extra) {
		b = append(appendItemComma(b, n), item...)
	}
	return b
}

// joinText returns the text of a message with all its parts.
func joinText(m *provider.Message) string {
	var text strings.Builder // a message may have thousands of parts
	text.WriteString(m.Text)
	for i := range m.Parts {
		text.WriteString(m.Parts[i].Text)
	}
	return text.String()
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
