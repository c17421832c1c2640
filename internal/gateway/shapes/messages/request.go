package messages

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/provider"
)

// body is the request of Anthropic's Messages API. Unknown members are dropped, and the response names them, unless
// they would change the cost or the route of the call (decision 012).
type body struct {
	Model         *string        `json:"model"`
	MaxTokens     *int64         `json:"max_tokens"`
	System        jsontext.Value `json:"system"`
	Messages      []message      `json:"messages"`
	Temperature   *float64       `json:"temperature"`
	TopP          *float64       `json:"top_p"`
	StopSequences []string       `json:"stop_sequences"`
	Stream        *bool          `json:"stream"`
	Tools         []tool         `json:"tools"`
	ToolChoice    *toolChoice    `json:"tool_choice"`
	Thinking      *thinking      `json:"thinking"`
	OutputConfig  *struct {
		Effort  *string        `json:"effort"`
		Format  jsontext.Value `json:"format"`
		Unknown jsontext.Value `json:",unknown"`
	} `json:"output_config"`
	OutputFormat jsontext.Value `json:"output_format"` // the beta's name of output_config.format
	Thread       jsontext.Value `json:"thread"`        // that Anthropic keeps the conversation
	CacheControl *cacheControl  `json:"cache_control"`
	refused
	Unknown jsontext.Value `json:",unknown"`
}

// refused are the members that would change the price or the route of a call.
type refused struct {
	ServiceTier  jsontext.Value `json:"service_tier"`
	Speed        jsontext.Value `json:"speed"`
	InferenceGeo jsontext.Value `json:"inference_geo"`
	Container    jsontext.Value `json:"container"`
	MCPServers   jsontext.Value `json:"mcp_servers"`
}

type thinking struct {
	Type         string         `json:"type"`
	BudgetTokens *int64         `json:"budget_tokens"`
	Unknown      jsontext.Value `json:",unknown"`
}

// A cacheControl marks the end of a prefix that the provider's cache should keep.
type cacheControl struct {
	Type    string         `json:"type"`
	TTL     string         `json:"ttl"`
	Unknown jsontext.Value `json:",unknown"`
}

// A reader builds the canonical request.
type reader struct {
	body *body
	call *Call
	out  *plan.Request // that of call

	calls     map[string]int // how many tool_use blocks have no result yet, by id
	dropped   []string       // the names of tools that were dropped
	cacheHour bool           // a cache_control asks for an hour
}

// decodeAt decodes a value that stands at path; errors name the members from there.
func decodeAt(v []byte, dst any, path string) error {
	err := web.DecodeSaid(v, dst)
	var e *apierr.Error
	if !errors.As(err, &e) {
		return err
	}
	rest := strings.TrimPrefix(e.Message, "body")
	if rest == e.Message && !strings.HasPrefix(rest, "[") {
		rest = "." + rest
	}
	e.Message = path + rest
	return e
}

// readUnknown lists the unknown members. metadata is one of them: the provider gets an identifier of our own.
func (r *reader) readUnknown() error {
	return r.out.IgnoreUnknown(r.body.Unknown, func(name string) string {
		switch strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "").Replace(name)) {
		case "maxtoken", "maxtokens", "maxoutputtokens", "maxcompletiontokens", "maxtokenstosample":
			return "max_tokens"
		case "budgettokens", "thinkingbudget", "reasoning", "reasoningeffort":
			return "thinking"
		case "apikey", "apibase", "baseurl":
			return "the address and the key as the client's settings"
		}
		return ""
	})
}

// readThread refuses a conversation that we would have to keep, by the details that let Anthropic's SDKs go on without:
// their loop for tools asks for one by default, and would send only what is new in its next step.
func (r *reader) readThread() error {
	if !plan.IsSet(r.body.Thread) {
		return nil
	}
	e := apierr.InvalidRequest.Errorf("thread: conversations are not kept here; leave it out, and send all messages")
	e.Details = map[string]any{"error_code": "thread_unsupported_request", "unsupported": []string{"thread"}}
	return e
}

func (r *reader) readRefused() error {
	for _, m := range []struct {
		name     string
		value    jsontext.Value
		accepted []string
	}{
		{"service_tier", r.body.ServiceTier, []string{`"auto"`, `"standard_only"`}},
		{"speed", r.body.Speed, []string{`"standard"`}},
		{"inference_geo", r.body.InferenceGeo, nil},
		{"container", r.body.Container, nil},
		{"mcp_servers", r.body.MCPServers, []string{`[]`}},
	} {
		if plan.IsSet(m.value) && !slices.Contains(m.accepted, string(m.value)) {
			return plan.Invalid("%s: not offered here, because it would change the price or the route of the call; "+
				"leave it out", m.name)
		}
	}
	return nil
}

func (r *reader) readScalars() error {
	b, out := r.body, r.out
	if b.Model == nil || *b.Model == "" {
		return plan.Invalid("model: required")
	}
	out.BodyModel = *b.Model
	if b.MaxTokens != nil {
		if *b.MaxTokens < 1 {
			return plan.Invalid("max_tokens: must be at least 1")
		}
		out.MaxTokens = *b.MaxTokens
	}
	if t := b.Temperature; t != nil && (*t < 0 || *t > 1) {
		return plan.Invalid("temperature: must be between 0 and 1")
	}
	if t := b.TopP; t != nil && (*t < 0 || *t > 1) {
		return plan.Invalid("top_p: must be between 0 and 1")
	}
	out.Temperature, out.TopP = b.Temperature, b.TopP
	if len(b.StopSequences) > plan.MaxStops {
		return plan.Invalid("stop_sequences: at most %d", plan.MaxStops)
	}
	for i, s := range b.StopSequences {
		if s == "" || len(s) > plan.MaxStop {
			return plan.Invalid("stop_sequences[%d]: must have 1 to %d bytes", i, plan.MaxStop)
		}
	}
	out.Stop = b.StopSequences
	out.Stream = b.Stream != nil && *b.Stream
	return nil
}

// readThinking maps thinking to a reasoning effort, which is what every provider understands (decision 074).
func (r *reader) readThinking() error {
	t := r.body.Thinking
	r.out.Thinking = "off" // here an effort alone is no wish to think
	if t == nil {
		return nil
	}
	r.call.fromThinking = true
	r.out.IgnoreIn("thinking", t.Unknown)
	switch t.Type {
	case "disabled":
		r.out.ReasoningEffort = "none"
	case "adaptive", "enabled":
		r.out.WantReasoning, r.out.Thinking = true, "on"
		if b := t.BudgetTokens; b != nil && t.Type == "enabled" {
			r.out.ReasoningEffort = shapes.EffortOfBudget(*b)
		}
	default:
		return plan.Invalid("thinking.type: must be one of adaptive, enabled, disabled")
	}
	return nil
}

// readOutput reads output_config, and output_format, which is an earlier name of its format.
func (r *reader) readOutput() error {
	format, path := r.body.OutputFormat, "output_format"
	if c := r.body.OutputConfig; c != nil {
		r.out.IgnoreIn("output_config", c.Unknown)
		if c.Effort != nil {
			if !slices.Contains([]string{"low", "medium", "high", "xhigh", "max"}, *c.Effort) {
				return plan.Invalid("output_config.effort: must be one of low, medium, high, xhigh, max")
			}
			if r.out.ReasoningEffort != "none" { // thinking: disabled is about more than how much
				r.out.ReasoningEffort, r.call.fromThinking = *c.Effort, false
			}
		}
		if plan.IsSet(c.Format) {
			if plan.IsSet(format) {
				return plan.Invalid("output_format: output_config.format means the same; send one")
			}
			format, path = c.Format, "output_config.format"
		}
	}
	if !plan.IsSet(format) {
		return nil
	}
	var f struct {
		Type   string         `json:"type"`
		Schema jsontext.Value `json:"schema"`

		Unknown jsontext.Value `json:",unknown"`
	}
	if err := decodeAt(format, &f, path); err != nil {
		return err
	}
	r.out.IgnoreIn(path, f.Unknown)
	switch {
	case f.Type != "json_schema":
		return plan.Invalid("%s.type: must be json_schema", path)
	case f.Schema.Kind() != '{':
		return plan.Invalid("%s.schema: required, a JSON Schema object", path)
	}
	r.out.ResponseFormat = shapes.SchemaFormat(f.Schema)
	return nil
}

// marks reports whether a cache_control marks a prefix. An hour costs more to write than we price, so the prefix is
// kept for the usual five minutes, and the response names the member as ignored.
func (r *reader) marks(c *cacheControl, path string) (bool, error) {
	if c == nil {
		return false, nil
	}
	r.out.IgnoreIn(join(path, "cache_control"), c.Unknown)
	switch {
	case c.Type != "ephemeral":
		return false, plan.Invalid("%s: must be ephemeral", join(path, "cache_control.type"))
	case c.TTL == "1h":
		if !r.cacheHour {
			r.cacheHour = true
			r.out.Ignore("cache_control.ttl")
		}
	case c.TTL != "" && c.TTL != "5m":
		return false, plan.Invalid("%s: must be 5m or 1h", join(path, "cache_control.ttl"))
	}
	return true, nil
}

// join returns the path of a member; the path of the body is "".
func join(path, member string) string {
	if path == "" {
		return member
	}
	return path + "." + member
}

// readCacheControl reads the top-level cache_control, which marks the whole request.
func (r *reader) readCacheControl() error {
	c := r.body.CacheControl
	marked, err := r.marks(c, "")
	if err != nil || !marked {
		return err
	}
	r.out.Turns[len(r.out.Turns)-1].MarkEnd()
	return nil
}

type tool struct {
	Type         string         `json:"type"`
	Name         string         `json:"name"`
	Description  string         `json:"description"`
	InputSchema  jsontext.Value `json:"input_schema"`
	Strict       *bool          `json:"strict"`
	CacheControl *cacheControl  `json:"cache_control"`
	Unknown      jsontext.Value `json:",unknown"`
}

func (r *reader) readTools() error {
	if len(r.body.Tools) > plan.MaxTools {
		return plan.Invalid("tools: at most %d", plan.MaxTools)
	}
	names := map[string]bool{}
	for i := range r.body.Tools {
		t := &r.body.Tools[i]
		path := at("tools", i)
		if plan.IsDroppable(t.Type) {
			r.out.DropTool(t.Type, "tools."+t.Type)
			r.dropped = append(r.dropped, t.Name)
			continue
		}
		switch {
		case t.Type != "" && t.Type != "custom":
			return plan.Invalid("%s.type: %s is a tool of Anthropic's own, which is not offered here; declare a tool "+
				"of type custom with an input_schema", path, t.Type)
		case !plan.IsToolName(t.Name):
			return plan.Invalid("%s.name: required, must match %s", path, plan.ToolNameRule())
		case names[t.Name]:
			return plan.Invalid("%s.name: %q stands twice", path, t.Name)
		case t.InputSchema.Kind() != '{':
			return plan.Invalid("%s.input_schema: required, a JSON Schema object", path)
		}
		names[t.Name] = true
		r.out.IgnoreIn("tools", t.Unknown)
		r.call.tools = append(r.call.tools, path)
		marked, err := r.marks(t.CacheControl, path)
		if err != nil {
			return err
		}
		r.out.Tools = append(r.out.Tools, provider.Tool{
			Name:            t.Name,
			Description:     t.Description,
			Parameters:      json.RawMessage(t.InputSchema),
			Strict:          t.Strict,
			CacheBreakpoint: marked,
		})
	}
	return nil
}

type toolChoice struct {
	Type                   string `json:"type"`
	Name                   string `json:"name"`
	DisableParallelToolUse *bool  `json:"disable_parallel_tool_use"`

	Unknown jsontext.Value `json:",unknown"`
}

func (r *reader) readChoice() error {
	c := r.body.ToolChoice
	if c == nil {
		return nil
	}
	r.out.IgnoreIn("tool_choice", c.Unknown)
	modes := map[string]string{"auto": "auto", "any": "required", "tool": "function", "none": "none"}
	mode, ok := modes[c.Type]
	switch {
	case !ok:
		return plan.Invalid("tool_choice.type: must be one of auto, any, tool, none")
	case mode == "function" && slices.Contains(r.dropped, c.Name):
		r.out.ForceDropped()
		return nil
	case len(r.out.Tools) == 0 && r.out.HasDropped(): // only none makes sense
	case len(r.out.Tools) == 0 && (mode == "auto" || mode == "none"): // there is nothing to choose from
		return nil
	case len(r.out.Tools) == 0:
		return plan.Invalid("tool_choice: requires tools")
	case mode == "function" &&
		!slices.ContainsFunc(r.out.Tools, func(t provider.Tool) bool { return t.Name == c.Name }):
		return plan.Invalid("tool_choice.name: %q is not among the tools", c.Name)
	case mode == "function":
		r.out.ToolChoice.Name = c.Name
	}
	r.out.ToolChoice.Mode = mode
	if c.DisableParallelToolUse != nil && *c.DisableParallelToolUse {
		parallel := false
		r.out.ParallelToolCalls = &parallel
	}
	return nil
}
