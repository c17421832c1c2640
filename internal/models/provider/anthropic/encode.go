package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// maxBody bounds the body of a request, in bytes. The API takes 32 MB.
const maxBody = 32_000_000

// Encode writes the body of a request, or returns an error that names what this dialect cannot express. It is pure. The
// bytes of a message stay the same when the conversation grows, because the provider binds thinking to them.
func Encode(r *provider.Request) ([]byte, error) {
	body, _, err := encodeRequest(r)
	return body, err
}

// encodeRequest names every member that may be sent; other members are never forwarded. It sends the output cap of the
// hold, so that the response cannot cost more. replays reports whether the body contains thinking of earlier turns.
func encodeRequest(r *provider.Request) (body []byte, replays bool, err error) {
	schema, anyJSON, err := readFormat(r.ResponseFormat)
	if err != nil {
		return nil, false, err
	}
	onTools, onTurns := countBreakpoints(r)
	surplus := onTools + onTurns - maxBreakpoints
	t := turns{
		b:       make([]byte, 0, sizeHint(r)),
		thinks:  modelThinks(r),
		prefill: r.Facts.Prefill,
		json:    anyJSON,
		cache:   breakpoints{seen: onTools, surplus: surplus},
	}
	t.b = provider.AppendQuote(append(t.b, `{"model":`...), r.Model)
	t.b = strconv.AppendInt(append(t.b, `,"max_tokens":`...), r.MaxTokens, 10)
	t.b = append(t.b, `,"stream":true,"service_tier":"standard_only"`...) // the tier whose price we know
	if r.EndUser != "" {
		t.b = append(provider.AppendQuote(append(t.b, `,"metadata":{"user_id":`...), r.EndUser), '}')
	}
	if err := t.write(r.Turns); err != nil {
		return nil, false, err
	}
	b, err := appendTools(t.b, r, &breakpoints{surplus: surplus})
	if err != nil {
		return nil, false, err
	}
	if b, err = appendSampling(b, r); err != nil {
		return nil, false, err
	}
	if b, err = appendThinking(b, r, schema, t.replays); err != nil {
		return nil, false, err
	}
	if b = append(b, '}'); len(b) > maxBody {
		return nil, false,
			makeRejection("messages: with its images this request has %d bytes for the provider, which takes at most %d",
				len(b), maxBody)
	}
	return b, t.replays, nil
}

func makeRejection(format string, args ...any) error {
	return &provider.Error{Kind: provider.Rejected, Message: fmt.Sprintf(format, args...)}
}

// sizeHint estimates the length of the body in bytes.
func sizeHint(r *provider.Request) int {
	n := 512 + conversation.SumBytes(r.Turns)
	for i := range r.Tools {
		n += 128 + len(r.Tools[i].Description) + len(r.Tools[i].Parameters)
	}
	return n
}

// appendComma appends a comma before each element of a list except the first.
func appendComma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// appendTools appends tools and tool_choice. A history with tool calls requires tools: if the request has none, it
// declares those of the history and forbids calls.
func appendTools(b []byte, r *provider.Request, cache *breakpoints) ([]byte, error) {
	tools, choice := r.Tools, r.ToolChoice.Mode
	if len(tools) == 0 {
		if tools = collectTools(r.Turns); len(tools) == 0 {
			return b, nil
		}
		choice = "none"
	}
	b = append(b, `,"tools":[`...)
	for i := range tools {
		t := &tools[i]
		b = provider.AppendQuote(append(appendComma(b, i), `{"name":`...), t.Name)
		if t.Description != "" {
			b = provider.AppendQuote(append(b, `,"description":`...), t.Description)
		}
		schema, at := []byte(t.Parameters), fmt.Sprintf("tools[%d].function.parameters", i)
		strict := t.Strict != nil && *t.Strict
		if strict && schema != nil {
			var err error
			if schema, err = fitSchema(schema, at); err != nil {
				return nil, err
			}
		}
		var ok bool
		if b, ok = appendSchema(append(b, `,"input_schema":`...), schema); !ok {
			return nil, makeRejection("%s: must be a JSON Schema object", at)
		}
		if strict {
			b = append(b, `,"strict":true`...)
		}
		if b = append(b, '}'); t.CacheBreakpoint {
			b = cache.mark(b, true)
		}
	}
	return appendChoice(append(b, ']'), choice, r), nil
}

func collectTools(all []conversation.Turn) []provider.Tool {
	var tools []provider.Tool
	seen := map[string]bool{}
	for i := range all {
		for _, b := range all[i].Blocks {
			if b.Kind == conversation.CallBlock && !seen[b.Name] {
				seen[b.Name] = true
				tools = append(tools, provider.Tool{Name: b.Name})
			}
		}
	}
	return tools
}

// appendSchema appends the schema of a tool's arguments. It adds the type object, which the API requires.
func appendSchema(b, schema []byte) ([]byte, bool) {
	if len(schema) == 0 || string(schema) == "null" {
		return append(b, `{"type":"object","properties":{}}`...), true
	}
	object := false
	if !provider.Members(schema, func(name, value []byte) bool {
		object = object || string(name) == "type" && string(value) == `"object"`
		return true
	}) {
		return b, false
	}
	if object {
		return append(b, schema...), true
	}
	b = append(b, `{"type":"object"`...)
	provider.Members(schema, func(name, value []byte) bool {
		if string(name) != "type" {
			b = append(append(provider.AppendQuote(append(b, ','), string(name)), ':'), value...)
		}
		return true
	})
	return append(b, '}'), true
}

func appendChoice(b []byte, mode string, r *provider.Request) []byte {
	single := r.ParallelToolCalls != nil && !*r.ParallelToolCalls
	switch {
	case mode == "none":
		return append(b, `,"tool_choice":{"type":"none"}`...) // has no member for parallel calls
	case mode == "required":
		b = append(b, `,"tool_choice":{"type":"any"`...)
	case mode == "function":
		b = provider.AppendQuote(append(b, `,"tool_choice":{"type":"tool","name":`...), r.ToolChoice.Name)
	case single:
		b = append(b, `,"tool_choice":{"type":"auto"`...)
	default:
		return b
	}
	if single {
		b = append(b, `,"disable_parallel_tool_use":true`...)
	}
	return append(b, '}')
}

// appendSampling appends temperature or top_p, of which the API takes one, and
// the stop sequences. It omits 1, which is the default: models with fixed sampling refuse the member.
func appendSampling(b []byte, r *provider.Request) ([]byte, error) {
	if r.Facts.Temperature {
		switch {
		case r.Temperature != nil && *r.Temperature < 1:
			b = appendNumber(append(b, `,"temperature":`...), *r.Temperature)
		case r.TopP != nil && *r.TopP < 1:
			b = appendNumber(append(b, `,"top_p":`...), *r.TopP)
		}
	}
	for i, s := range r.Stop {
		if isBlank(s) {
			return nil, makeRejection("stop[%d]: a stop sequence of this model cannot be white space alone", i)
		}
		if i == 0 {
			b = append(b, `,"stop_sequences":[`...)
		}
		b = provider.AppendQuote(appendComma(b, i), s)
	}
	if len(r.Stop) > 0 {
		b = append(b, ']')
	}
	return b, nil
}

func appendNumber(b []byte, v float64) []byte { return strconv.AppendFloat(b, max(v, 0), 'f', -1, 64) }

// modelThinks reports whether the model will think. Only then may the request send thinking back.
func modelThinks(r *provider.Request) bool {
	switch r.Facts.Thinking {
	case "always":
		return true
	case "on":
		return !mustDisableThinking(r)
	}
	return r.AsksToThink()
}

// mustDisableThinking reports whether the request must disable thinking: when the app wants none, or when it forces a
// tool call, which the API does not allow with thinking. Models that always think ignore both.
func mustDisableThinking(r *provider.Request) bool {
	forced := r.ToolChoice.Mode == "required" || r.ToolChoice.Mode == "function"
	return r.Facts.Thinking == "on" && (forced || r.ReasoningEffort == "none")
}

// readFormat returns the JSON Schema of a response format as Claude takes it, nil if there is none. Claude has no JSON
// mode without a schema: it is told to answer with JSON (decision 185).
func readFormat(format []byte) (schema []byte, anyJSON bool, err error) {
	if format == nil {
		return nil, false, nil
	}
	var f struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	switch err := json.Unmarshal(format, &f); {
	case err == nil && f.Type == "json_object":
		return nil, true, nil
	case err != nil || f.Type != "json_schema":
		return nil, false, makeRejection("response_format.type: must be one of text, json_object, json_schema")
	case len(f.JSONSchema.Schema) == 0:
		return nil, false, makeRejection("response_format.json_schema.schema: required on this model")
	}
	schema, err = fitSchema(bytes.TrimSpace(f.JSONSchema.Schema), "response_format.json_schema.schema")
	return schema, false, err
}

// appendThinking appends thinking, effort and the schema of the response, which is in one member with the effort. It
// asks the provider to drop thinking blocks of an edited conversation; otherwise the provider would refuse the request.
// Readable thinking must be asked for: by default newer models send signatures alone.
func appendThinking(b []byte, r *provider.Request, schema []byte, replays bool) ([]byte, error) {
	silent := mustDisableThinking(r)
	switch {
	case silent:
		b = append(b, `,"thinking":{"type":"disabled"}`...)
	case r.Facts.Thinking == "budget":
		if modelThinks(r) {
			b = strconv.AppendInt(append(b, `,"thinking":{"type":"enabled","budget_tokens":`...), chooseBudget(r), 10)
			b = append(b, '}')
		}
		return appendOutputConfig(b, "", schema), nil // such models have no effort
	case replays || modelThinks(r) && (r.WantReasoning || r.Facts.Thinking == "off"):
		b = append(b, `,"thinking":{"type":"adaptive"`...)
		if r.WantReasoning {
			b = append(b, `,"display":"summarized"`...)
		}
		if replays {
			b = append(b, `,"block_binding":{"prefix_mismatch_behavior":"drop_block"}`...)
		}
		b = append(b, '}')
	}
	effort := r.ReasoningEffort
	switch {
	case effort == "none" && r.Facts.Thinking == "always":
		return nil, makeRejection("reasoning_effort: this model always thinks; the least is low")
	case effort == "none":
		effort = ""
	case effort == "minimal":
		effort = "low"
	case silent && (effort == "xhigh" || effort == "max"):
		effort = "high" // the highest effort that is allowed without thinking
	}
	return appendOutputConfig(b, effort, schema), nil
}

// minBudget is the least budget that the API takes. It must be below max_tokens.
const minBudget = 1024

// chooseBudget returns how many tokens a model may think that has no effort: as many as the effort says, and at most
// half of the output cap, so that the answer has room.
func chooseBudget(r *provider.Request) int64 {
	budget := int64(8192)
	switch r.ReasoningEffort {
	case "minimal", "low":
		budget = minBudget
	case "high", "xhigh", "max":
		budget = 24576
	}
	return max(minBudget, min(budget, r.MaxTokens/2))
}

// appendOutputConfig appends the effort and the schema of the response, if there are any.
func appendOutputConfig(b []byte, effort string, schema []byte) []byte {
	if effort == "" && schema == nil {
		return b
	}
	b = append(b, `,"output_config":{`...)
	if effort != "" {
		b = provider.AppendQuote(append(b, `"effort":`...), effort)
	}
	if schema != nil {
		if effort != "" {
			b = append(b, ',')
		}
		b = append(append(append(b, `"format":{"type":"json_schema","schema":`...), schema...), '}')
	}
	return append(b, '}')
}

// isBlank reports whether a text has only white space. The API refuses blocks of such text.
func isBlank(s string) bool { return strings.TrimSpace(s) == "" }
