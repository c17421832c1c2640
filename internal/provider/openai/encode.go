package openai

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"purser/internal/provider"
)

// encode writes the body that goes to the provider. It names every member that
// may ever leave: what is not here is never forwarded. The token cap of the
// hold is sent, so that the answer cannot cost more.
func encode(r *provider.Request) []byte {
	b := make([]byte, 0, 1024)
	b = append(b, `{"model":`...)
	b = quote(b, r.Model)
	b = append(b, `,"messages":[`...)
	for i := range r.Messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendMessage(b, &r.Messages[i])
	}
	b = append(b, `],"max_completion_tokens":`...)
	b = strconv.AppendInt(b, r.MaxTokens, 10)
	b = append(b, `,"service_tier":"default"`...) // the tier whose price we know
	b = appendNumber(b, "temperature", r.Temperature)
	b = appendNumber(b, "top_p", r.TopP)
	for i, s := range r.Stop {
		b = quote(append(b, [...]string{`,"stop":[`, `,`}[min(i, 1)]...), s)
	}
	if len(r.Stop) > 0 {
		b = append(b, ']')
	}
	b = appendTools(b, r)
	if r.ResponseFormat != nil {
		b = append(append(b, `,"response_format":`...), r.ResponseFormat...)
	}
	if r.ReasoningEffort != "" {
		b = quote(append(b, `,"reasoning_effort":`...), r.ReasoningEffort)
	}
	if r.Stream {
		b = append(b, `,"stream":true,"stream_options":{"include_usage":true}`...)
	}
	return append(b, '}')
}

func quote(b []byte, s string) []byte {
	b, err := jsontext.AppendQuote(b, s)
	if err != nil { // invalid UTF-8 was refused when the request was read, or is replaced
		return b
	}
	return b
}

func appendNumber(b []byte, name string, v *float64) []byte {
	if v == nil {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return strconv.AppendFloat(b, *v, 'g', -1, 64)
}

func appendMessage(b []byte, m *provider.Message) []byte {
	b = quote(append(b, `{"role":`...), m.Role)
	b = appendContent(append(b, `,"content":`...), m)
	if m.Name != "" {
		b = quote(append(b, `,"name":`...), m.Name)
	}
	if m.Refusal != "" {
		b = quote(append(b, `,"refusal":`...), m.Refusal)
	}
	if m.ToolCallID != "" {
		b = quote(append(b, `,"tool_call_id":`...), m.ToolCallID)
	}
	for i, c := range m.ToolCalls {
		b = append(b, [...]string{`,"tool_calls":[`, `,`}[min(i, 1)]...)
		b = quote(append(b, `{"id":`...), c.ID)
		b = quote(append(b, `,"type":"function","function":{"name":`...), c.Name)
		b = quote(append(b, `,"arguments":`...), c.Arguments)
		b = append(b, "}}"...) // extra_content stays with us: this provider does not know it
	}
	if len(m.ToolCalls) > 0 {
		b = append(b, ']')
	}
	return append(b, '}')
}

func appendContent(b []byte, m *provider.Message) []byte {
	switch {
	case !m.HasContent:
		return append(b, "null"...)
	case m.Parts == nil:
		return quote(b, m.Text)
	}
	b = append(b, '[')
	for i, p := range m.Parts {
		if i > 0 {
			b = append(b, ',')
		}
		if p.Type == "text" {
			b = append(quote(append(b, `{"type":"text","text":`...), p.Text), '}')
			continue
		}
		b = quote(append(b, `{"type":"image_url","image_url":{"url":`...), p.ImageURL)
		if p.Detail != "" {
			b = quote(append(b, `,"detail":`...), p.Detail)
		}
		b = append(b, "}}"...)
	}
	return append(b, ']')
}

func appendTools(b []byte, r *provider.Request) []byte {
	if len(r.Tools) == 0 {
		return b
	}
	b = append(b, `,"tools":[`...)
	for i, t := range r.Tools {
		if i > 0 {
			b = append(b, ',')
		}
		b = quote(append(b, `{"type":"function","function":{"name":`...), t.Name)
		if t.Description != "" {
			b = quote(append(b, `,"description":`...), t.Description)
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
		b = append(quote(append(b, `,"tool_choice":{"type":"function","function":{"name":`...), c.Name), "}}"...)
	default:
		b = quote(append(b, `,"tool_choice":`...), c.Mode)
	}
	if r.ParallelToolCalls != nil {
		b = strconv.AppendBool(append(b, `,"parallel_tool_calls":`...), *r.ParallelToolCalls)
	}
	return b
}
