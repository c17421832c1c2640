package responses

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/models/provider"
)

// appendEcho appends the members of a response that repeat its request. Official clients expect them.
func appendEcho(b []byte, q *body) []byte {
	value := func(name string, v jsontext.Value, otherwise string) {
		b = append(append(append(b, `,"`...), name...), `":`...)
		if plan.IsSet(v) {
			b = appendCompact(b, v)
		} else {
			b = append(b, otherwise...)
		}
	}
	b = append(b, `,"background":false,"instructions":`...)
	if q.Instructions != nil {
		b = provider.AppendQuote(b, *q.Instructions)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"max_output_tokens":`...)
	if q.MaxOutputTokens != nil {
		b = strconv.AppendInt(b, *q.MaxOutputTokens, 10)
	} else {
		b = append(b, "null"...)
	}
	value("metadata", q.Metadata, "{}")
	b = append(b, `,"parallel_tool_calls":`...)
	b = strconv.AppendBool(b, q.ParallelToolCalls == nil || *q.ParallelToolCalls)
	b = append(b, `,"previous_response_id":null,"prompt_cache_key":`...)
	b = append(appendOptional(b, q.PromptCacheKey), `,"reasoning":{"effort":`...)
	var effort, summary *string
	if q.Reasoning != nil {
		effort, summary = q.Reasoning.Effort, q.Reasoning.Summary
	}
	b = appendOptional(append(appendOptional(b, effort), `,"summary":`...), summary)
	b = append(b, `},"service_tier":"default","store":false`...)
	b = appendNumber(append(b, `,"temperature":`...), q.Temperature)
	var format jsontext.Value
	if q.Text != nil {
		format = q.Text.Format
	}
	b = append(b, `,"text":{"format":`...)
	if plan.IsSet(format) {
		b = appendCompact(b, format)
	} else {
		b = append(b, `{"type":"text"}`...)
	}
	b = append(b, '}')
	value("tool_choice", q.ToolChoice, `"auto"`)
	b = append(b, `,"tools":[`...)
	for i, t := range q.Tools {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCompact(b, t)
	}
	b = appendNumber(append(b, `],"top_p":`...), q.TopP)
	return append(b, `,"truncation":"disabled"`...)
}

// appendCompact appends a value in one line, as an event of a stream has it.
func appendCompact(b []byte, v jsontext.Value) []byte {
	if out, err := jsontext.AppendFormat(b, v); err == nil { // it was decoded before
		return out
	}
	return append(b, "null"...)
}

func appendOptional(b []byte, s *string) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	return provider.AppendQuote(b, *s)
}

// appendNumber appends a number, or its default 1.
func appendNumber(b []byte, f *float64) []byte {
	if f == nil {
		return append(b, '1')
	}
	return strconv.AppendFloat(b, *f, 'g', -1, 64)
}
