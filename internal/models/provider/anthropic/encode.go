package anthropic

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/models/provider"
)

// maxBody bounds a request, in bytes: the API takes 32 MB.
const maxBody = 32_000_000

// Encode writes the body that goes to the provider, or says what of the request
// this dialect cannot express. It is pure, and what it writes of a conversation
// stays the same when the conversation grows: thinking is bound to what stood
// before it.
func Encode(r *provider.Request) ([]byte, error) {
	body, _, err := encode(r)
	return body, err
}

// encode names every member that may ever leave: what is not here is never
// forwarded. The token cap of the hold is sent, so that the answer cannot cost
// more. replays says that thinking of earlier turns goes back.
func encode(r *provider.Request) (body []byte, replays bool, err error) {
	if r.ResponseFormat != nil {
		return nil, false, rejected("response_format: not offered on this model")
	}
	t := turns{b: make([]byte, 0, sizeHint(r)), thinks: thinks(r)}
	t.b = provider.AppendQuote(append(t.b, `{"model":`...), r.Model)
	t.b = strconv.AppendInt(append(t.b, `,"max_tokens":`...), r.MaxTokens, 10)
	t.b = append(t.b, `,"stream":true,"service_tier":"standard_only"`...) // the tier whose price we know
	if err := t.write(r.Messages); err != nil {
		return nil, false, err
	}
	b, err := appendTools(t.b, r)
	if err != nil {
		return nil, false, err
	}
	if b, err = appendSampling(b, r); err != nil {
		return nil, false, err
	}
	if b, err = appendThinking(b, r, t.replays); err != nil {
		return nil, false, err
	}
	if b = append(b, '}'); len(b) > maxBody {
		return nil, false,
			rejected("messages: with its images this request has %d bytes for the provider, which takes at most %d",
				len(b), maxBody)
	}
	return b, t.replays, nil
}

func rejected(format string, args ...any) error {
	return &provider.Error{Kind: provider.Rejected, Message: fmt.Sprintf(format, args...)}
}

// sizeHint is about how long the body becomes.
func sizeHint(r *provider.Request) int {
	n := 512
	for i := range r.Messages {
		m := &r.Messages[i]
		n += 64 + len(m.Text) + len(m.Text)/16
		for j := range m.Parts {
			n += 64 + len(m.Parts[j].Text) + len(m.Parts[j].ImageURL)
		}
		for j := range m.ToolCalls {
			n += 128 + len(m.ToolCalls[j].Arguments) + len(m.ToolCalls[j].ExtraContent)
		}
	}
	for i := range r.Tools {
		n += 128 + len(r.Tools[i].Description) + len(r.Tools[i].Parameters)
	}
	return n
}

// comma goes before every element of a list but the first.
func comma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// appendTools appends tools and tool_choice. A history with tool calls needs
// tools: when the app sends none, those of the history are declared, and none
// may be called.
func appendTools(b []byte, r *provider.Request) ([]byte, error) {
	tools, choice := r.Tools, r.ToolChoice.Mode
	if len(tools) == 0 {
		if tools = toolsOf(r.Messages); len(tools) == 0 {
			return b, nil
		}
		choice = "none"
	}
	b = append(b, `,"tools":[`...)
	for i := range tools {
		t := &tools[i]
		b = provider.AppendQuote(append(comma(b, i), `{"name":`...), t.Name)
		if t.Description != "" {
			b = provider.AppendQuote(append(b, `,"description":`...), t.Description)
		}
		var ok bool
		if b, ok = appendSchema(append(b, `,"input_schema":`...), t.Parameters); !ok {
			return nil, rejected("tools[%d].function.parameters: must be a JSON Schema object", i)
		}
		b = append(b, '}')
	}
	return appendChoice(append(b, ']'), choice, r), nil
}

func toolsOf(messages []provider.Message) []provider.Tool {
	var tools []provider.Tool
	seen := map[string]bool{}
	for i := range messages {
		for j := range messages[i].ToolCalls {
			if name := messages[i].ToolCalls[j].Name; !seen[name] {
				seen[name] = true
				tools = append(tools, provider.Tool{Name: name})
			}
		}
	}
	return tools
}

// appendSchema appends the schema of a tool's arguments, which must say that it
// is one of an object.
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
		if blank(s) {
			return nil, rejected("stop[%d]: a stop sequence of this model cannot be white space alone", i)
		}
		if i == 0 {
			b = append(b, `,"stop_sequences":[`...)
		}
		b = provider.AppendQuote(comma(b, i), s)
	}
	if len(r.Stop) > 0 {
		b = append(b, ']')
	}
	return b, nil
}

func appendNumber(b []byte, v float64) []byte { return strconv.AppendFloat(b, max(v, 0), 'f', -1, 64) }

// thinks says whether the model will think, so that it may be given its earlier
// thoughts.
func thinks(r *provider.Request) bool {
	return r.Facts.Thinking == "always" || r.Facts.Thinking == "on" && !silenced(r)
}

// silenced says whether thinking is to be switched off where it can be: when
// the app wants none, and for a forced tool call, with which it does not go.
func silenced(r *provider.Request) bool {
	forced := r.ToolChoice.Mode == "required" || r.ToolChoice.Mode == "function"
	return r.Facts.Thinking == "on" && (forced || r.ReasoningEffort == "none")
}

// appendThinking appends thinking and effort. Thoughts whose conversation was
// edited since are to be dropped by the provider: otherwise it would refuse the
// request.
func appendThinking(b []byte, r *provider.Request, replays bool) ([]byte, error) {
	silent := silenced(r)
	switch {
	case silent:
		b = append(b, `,"thinking":{"type":"disabled"}`...)
	case replays:
		b = append(b, `,"thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}}`...)
	}
	effort := r.ReasoningEffort
	switch {
	case effort == "none" && r.Facts.Thinking == "always":
		return nil, rejected("reasoning_effort: this model always thinks; the least is low")
	case effort == "" || effort == "none":
		return b, nil
	case effort == "minimal":
		effort = "low"
	case silent && (effort == "xhigh" || effort == "max"):
		effort = "high" // the most that goes without thinking
	}
	return append(provider.AppendQuote(append(b, `,"output_config":{"effort":`...), effort), '}'), nil
}

// blank says whether a text is empty for the API, which refuses such blocks.
func blank(s string) bool { return strings.TrimSpace(s) == "" }

// object returns a tool call's arguments as the object that the API wants.
func object(arguments string) ([]byte, bool) {
	if blank(arguments) {
		return []byte("{}"), true
	}
	b := bytes.TrimSpace([]byte(arguments))
	return b, provider.Members(b, func(_, _ []byte) bool { return true })
}
