package responses

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/provider"
)

// A Call is a parsed request of the Responses API. It is a shapes.Call.
type Call struct {
	request      plan.Request
	showsSummary bool     // the client asked for readable reasoning
	echo         []byte   // the members of the response that repeat the request, each with a comma before it
	paths        []string // of each canonical message in the body
	calls        [][]string
	tools        []string               // the path of each canonical tool in the body
	declared     map[string]declaration // of the canonical tools, by name
	find         Finder                 // nil = nothing is stored
}

// body is the request. Unknown members are dropped, and the response names them.
type body struct {
	Model             *string          `json:"model"`
	Input             jsontext.Value   `json:"input"`
	Instructions      *string          `json:"instructions"`
	Tools             []jsontext.Value `json:"tools"`
	ToolChoice        jsontext.Value   `json:"tool_choice"`
	ParallelToolCalls *bool            `json:"parallel_tool_calls"`
	Text              *struct {
		Format  jsontext.Value `json:"format"`
		Unknown jsontext.Value `json:",unknown"`
	} `json:"text"`
	Reasoning *struct {
		Effort          *string        `json:"effort"`
		Summary         *string        `json:"summary"`
		GenerateSummary *string        `json:"generate_summary"` // the former name of summary
		Mode            *string        `json:"mode"`
		Unknown         jsontext.Value `json:",unknown"`
	} `json:"reasoning"`
	MaxOutputTokens *int64         `json:"max_output_tokens"`
	Temperature     *float64       `json:"temperature"`
	TopP            *float64       `json:"top_p"`
	Stream          *bool          `json:"stream"`
	StreamOptions   jsontext.Value `json:"stream_options"` // obfuscation of deltas, which are never padded here
	Include         []string       `json:"include"`
	Metadata        jsontext.Value `json:"metadata"`
	Truncation      *string        `json:"truncation"`
	PromptCacheKey  *string        `json:"prompt_cache_key"`
	refused
	ignored
	Unknown jsontext.Value `json:",unknown"`
}

// refused are members that ask for something that is not done here.
type refused struct {
	Store              jsontext.Value `json:"store"`
	PreviousResponseID jsontext.Value `json:"previous_response_id"`
	Conversation       jsontext.Value `json:"conversation"`
	Background         jsontext.Value `json:"background"`
	Prompt             jsontext.Value `json:"prompt"`
	MaxToolCalls       jsontext.Value `json:"max_tool_calls"`
	ServiceTier        jsontext.Value `json:"service_tier"`
	TopLogprobs        jsontext.Value `json:"top_logprobs"`
	APIBase            jsontext.Value `json:"api_base"`
	BaseURL            jsontext.Value `json:"base_url"`
	APIKey             jsontext.Value `json:"api_key"`
}

// ignored are members that clients send by default and that have no effect here. The end user is identified by the
// account, never by what an app says.
type ignored struct {
	User             jsontext.Value `json:"user"`
	SafetyIdentifier jsontext.Value `json:"safety_identifier"`
}

// Parse is ParseWith where nothing is stored.
func Parse(data []byte) (*Call, error) { return ParseWith(data, nil) }

// ParseWith reads a body strictly. Its errors name the member and the rule, or are those of find.
func ParseWith(data []byte, find Finder) (*Call, error) {
	var b body
	if err := web.DecodeSaid(data, &b); err != nil {
		return nil, err
	}
	c := &Call{find: find}
	c.request.IncludeUsage, c.request.FromResponses = true, true
	for _, read := range []func(*body) error{
		c.readUnknown, c.readRefused, c.readScalars, c.readReasoning,
		c.readTools, c.readInput, c.readChoice, c.readText, // the input has tools too
	} {
		if err := read(&b); err != nil {
			return nil, err
		}
	}
	if err := c.request.Check(); err != nil {
		return nil, shapes.RenameMember(err, c.MemberName)
	}
	c.echo = appendEcho(nil, &b)
	return c, nil
}

// Request returns the canonical request (see shapes.Call).
func (c *Call) Request() *plan.Request { return &c.request }

// Format returns the form of the answers (see shapes.Call).
func (c *Call) Format() shapes.Format { return format{c} }

// Body is not needed: answers have deltas (see shapes.Call).
func (c *Call) Body(canonical []byte) []byte { return canonical }

// readUnknown lists the unknown members, and refuses those of Chat Completions that have another name here, and near
// misses of what bounds the cost.
func (c *Call) readUnknown(b *body) error {
	return c.request.IgnoreUnknown(b.Unknown, func(name string) string {
		switch name {
		case "messages":
			return "input"
		case "response_format":
			return "text.format"
		case "functions":
			return "tools"
		}
		return c.MemberName(plan.FindBound(name))
	})
}

// readRefused refuses what cannot be done here, and says what can. It accepts a value that asks for what happens
// anyway.
func (c *Call) readRefused(b *body) error {
	const stateless = "nothing is stored here; send the whole conversation as input, with the items of earlier " +
		"responses, and set store to false"
	const price = "not offered here, because it would change the price or the route of the call; leave it out"
	for _, m := range []struct {
		name     string
		value    jsontext.Value
		accepted []string
		why      string
	}{
		{"store", b.Store, []string{"true", "false"}, "must be true or false"},
		{"previous_response_id", b.PreviousResponseID, nil, stateless},
		{"conversation", b.Conversation, nil, stateless},
		{"background", b.Background, []string{"false"}, "a response comes with its request; stream it"},
		{"prompt", b.Prompt, nil, "templates are not offered; send their text as instructions and input"},
		{"max_tool_calls", b.MaxToolCalls, nil,
			"it bounds OpenAI's own tools, which are not offered; max_output_tokens bounds the cost"},
		{"service_tier", b.ServiceTier, []string{`"default"`, `"auto"`}, price},
		{"top_logprobs", b.TopLogprobs, []string{"0"},
			"not offered here, because not every provider returns them; leave it out"},
		{"api_base", b.APIBase, nil, price},
		{"base_url", b.BaseURL, nil, price},
		{"api_key", b.APIKey, nil, price},
	} {
		if plan.IsSet(m.value) && !slices.Contains(m.accepted, string(m.value)) {
			return apierr.InvalidRequest.Errorf("%s: %s", m.name, m.why)
		}
	}
	if string(b.Store) == "true" { // it is only made false
		c.request.Ignore("store")
	}
	return nil
}

func (c *Call) readScalars(b *body) error {
	r := &c.request
	if b.Model == nil || *b.Model == "" {
		return plan.Invalid("model: required")
	}
	r.BodyModel = *b.Model
	if m := b.MaxOutputTokens; m != nil {
		if *m < 1 {
			return plan.Invalid("max_output_tokens: must be at least 1")
		}
		r.MaxTokens = *m
	}
	r.Temperature, r.TopP = b.Temperature, b.TopP
	r.Stream = b.Stream != nil && *b.Stream
	if plan.IsSet(b.Metadata) && b.Metadata.Kind() != '{' {
		return plan.Invalid("metadata: must be an object")
	}
	if t := b.Truncation; t != nil && *t != "disabled" {
		if *t != "auto" {
			return plan.Invalid("truncation: must be auto or disabled")
		}
		c.request.Ignore("truncation") // a request that is too long is refused, as with disabled
	}
	for _, m := range []struct {
		name  string
		value jsontext.Value
	}{{"user", b.User}, {"safety_identifier", b.SafetyIdentifier}} {
		if plan.IsSet(m.value) {
			c.request.Ignore(m.name)
		}
	}
	return r.SetCacheKey(b.PromptCacheKey)
}

func (c *Call) readReasoning(b *body) error {
	for _, name := range b.Include {
		if name == "reasoning.encrypted_content" {
			c.request.WantReasoning = true
		} else {
			c.request.Ignore("include." + name)
		}
	}
	if b.Reasoning == nil {
		return nil
	}
	c.request.IgnoreIn("reasoning", b.Reasoning.Unknown)
	if m := b.Reasoning.Mode; m != nil && *m != "standard" {
		return plan.Invalid("reasoning.mode: only standard is offered, because %q would change the price of the call",
			*m)
	}
	if e := b.Reasoning.Effort; e != nil {
		if *e == "" {
			return plan.Invalid("reasoning.effort: must not be empty")
		}
		c.request.ReasoningEffort = *e
	}
	for _, summary := range []*string{b.Reasoning.Summary, b.Reasoning.GenerateSummary} {
		if summary == nil || *summary == "none" {
			continue
		}
		if !slices.Contains([]string{"auto", "concise", "detailed"}, *summary) {
			return plan.Invalid("reasoning.summary: must be one of auto, concise, detailed")
		}
		c.showsSummary, c.request.WantReasoning, c.request.WantSummary = true, true, true
	}
	return nil
}

// readText reads text.format, which has no nesting here.
func (c *Call) readText(b *body) error {
	if b.Text == nil {
		return nil
	}
	c.request.IgnoreIn("text", b.Text.Unknown)
	if !plan.IsSet(b.Text.Format) {
		return nil
	}
	v := b.Text.Format
	var f struct {
		Type string `json:"type"`
	}
	if err := decodeAt("text.format", v, &f); err != nil {
		return err
	}
	if f.Type != "json_schema" {
		c.request.ResponseFormat = json.RawMessage(v)
		return nil
	}
	nested := []byte(`{"type":"json_schema","json_schema":{`)
	begun := false
	provider.Members(v, func(name, value []byte) bool {
		if string(name) != "type" {
			if begun {
				nested = append(nested, ',')
			}
			begun = true
			nested = append(append(provider.AppendQuote(nested, string(name)), ':'), value...)
		}
		return true
	})
	c.request.ResponseFormat = append(nested, "}}"...)
	return nil
}

// decodeAt decodes the value of a member. Its errors name what is in it.
func decodeAt(path string, v jsontext.Value, dst any) error {
	err := web.DecodeSaid(v, dst)
	e, ok := err.(*apierr.Error)
	if !ok {
		return err
	}
	switch {
	case strings.HasPrefix(e.Message, "body:"):
		e.Message = path + strings.TrimPrefix(e.Message, "body")
	case strings.HasPrefix(e.Message, "["):
		e.Message = path + e.Message
	default:
		e.Message = path + "." + e.Message
	}
	return e
}

var indexed = regexp.MustCompile(`^(messages|tools)\[(\d+)\](.*)$`)

// MemberName returns the name of a canonical member in the body (see shapes.Call).
func (c *Call) MemberName(canonical string) string {
	switch canonical {
	case "":
		return ""
	case "max_tokens":
		return "max_output_tokens"
	case "reasoning_effort":
		return "reasoning.effort"
	case "messages":
		return "input"
	case "tool_choice.function.name":
		return "tool_choice.name"
	}
	if rest, ok := strings.CutPrefix(canonical, "response_format"); ok {
		return "text.format" + strings.TrimPrefix(rest, ".json_schema")
	}
	m := indexed.FindStringSubmatch(canonical)
	if m == nil {
		return canonical
	}
	i, err := strconv.Atoi(m[2])
	switch {
	case err != nil:
	case m[1] == "tools" && i < len(c.tools):
		return c.tools[i] + strings.TrimPrefix(m[3], ".function")
	case m[1] == "messages" && i < len(c.paths):
		return c.nameMessage(i, m[3])
	}
	return canonical
}

var callMember = regexp.MustCompile(`^\.tool_calls\[(\d+)\](?:\.function)?(.*)$`)

// nameMessage returns the name of a member of canonical message i.
func (c *Call) nameMessage(i int, rest string) string {
	if m := callMember.FindStringSubmatch(rest); m != nil {
		if k, err := strconv.Atoi(m[1]); err == nil && k < len(c.calls[i]) {
			return c.calls[i][k] + strings.Replace(m[2], ".id", ".call_id", 1)
		}
	}
	if strings.HasSuffix(c.paths[i], ".output") { // an image of the result of a tool
		return c.paths[i]
	}
	rest = strings.Replace(rest, ".image_url.url", ".image_url", 1)
	rest = strings.Replace(rest, ".image_url.detail", ".detail", 1)
	return c.paths[i] + strings.Replace(rest, ".tool_call_id", ".call_id", 1)
}
