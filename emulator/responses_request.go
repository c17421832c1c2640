package emulator

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

type responsesRequest struct {
	Model             string            `json:"model"`
	Input             raw               `json:"input"`
	Instructions      string            `json:"instructions"`
	MaxOutputTokens   *int              `json:"max_output_tokens"`
	Temperature       *float64          `json:"temperature"`
	Tools             []responsesTool   `json:"tools"`
	ToolChoice        raw               `json:"tool_choice"`
	ParallelToolCalls *bool             `json:"parallel_tool_calls"`
	Stream            bool              `json:"stream"`
	StreamOptions     *responsesOptions `json:"stream_options"`
	Store             *bool             `json:"store"`
	Metadata          map[string]string `json:"metadata"`
	Include           []string          `json:"include"`
	ServiceTier       string            `json:"service_tier"`
	SafetyIdentifier  string            `json:"safety_identifier"`
	PromptCacheKey    string            `json:"prompt_cache_key"`
	Reasoning         *struct {
		Effort  string `json:"effort"`
		Summary string `json:"summary"`
	} `json:"reasoning"`
	responsesRest
}

// responsesRest are parameters that are taken and change nothing here.
type responsesRest struct {
	Background   raw `json:"background"`
	MaxToolCalls raw `json:"max_tool_calls"`
	CacheOptions raw `json:"prompt_cache_options"`
	Retention    raw `json:"prompt_cache_retention"`
	Text         raw `json:"text"`
	TopLogprobs  raw `json:"top_logprobs"`
	TopP         raw `json:"top_p"`
	Truncation   raw `json:"truncation"`
	User         raw `json:"user"`
}

type responsesOptions struct {
	IncludeObfuscation *bool `json:"include_obfuscation"`
}

type responsesTool struct {
	Type        string `json:"type"`
	Name        string `json:"name"`
	Description string `json:"description,omitzero"`
	Parameters  raw    `json:"parameters,omitzero"`
	Strict      *bool  `json:"strict,omitzero"`
}

// A responsesItem has the members of all kinds of items of the input.
type responsesItem struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	Status    string `json:"status"`
	Role      string `json:"role"`
	Phase     string `json:"phase"`
	Content   raw    `json:"content"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	Output    raw    `json:"output"`
	Summary   raw    `json:"summary"`
	Encrypted string `json:"encrypted_content"`
}

type responsesPart struct {
	Type        string  `json:"type"`
	Text        *string `json:"text"`
	ImageURL    string  `json:"image_url"`
	Detail      string  `json:"detail"`
	Refusal     string  `json:"refusal"`
	Annotations raw     `json:"annotations"`
	Logprobs    raw     `json:"logprobs"`
}

// stores: unless told otherwise.
func (q *responsesRequest) stores() bool { return q.Store == nil || *q.Store }

func (q *responsesRequest) includes(what string) bool { return slices.Contains(q.Include, what) }

func (c *responses) read(_ *http.Request, body []byte) (*prompt, *refusal) {
	q := &c.request
	if f := openAIBody(body, q); f != nil {
		return nil, f
	}
	m, f := c.emulator.openAIModel(q.Model)
	if f != nil {
		return nil, f
	}
	asked := ""
	if q.Reasoning != nil {
		asked = q.Reasoning.Effort
	}
	if c.effort, f = m.effort(asked, "reasoning.effort"); f != nil {
		return nil, f
	}
	p := &prompt{model: m, stream: q.Stream, parallel: q.ParallelToolCalls == nil || *q.ParallelToolCalls, thinks: c.effort != "none"}
	if q.MaxOutputTokens != nil {
		p.limit = *q.MaxOutputTokens
	}
	p.input.add(q.Instructions)
	for _, check := range []func() *refusal{
		func() *refusal { return m.temperature(q.Temperature, c.effort) },
		func() *refusal { return q.options() },
		func() *refusal { return q.tools(p) },
		func() *refusal { return q.converse(p) },
		func() *refusal { return m.room(q.MaxOutputTokens, "max_output_tokens", p.input) },
	} {
		if f := check(); f != nil {
			return nil, f
		}
	}
	return p, nil
}

func (q *responsesRequest) options() *refusal {
	switch {
	case len(q.Input) == 0:
		return badParam("missing_required_parameter", "input", "Missing required parameter: 'input'.")
	case q.MaxOutputTokens != nil && *q.MaxOutputTokens < 16:
		return badParam("integer_below_min_value", "max_output_tokens", "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got %d instead.", *q.MaxOutputTokens)
	case len(q.Metadata) > 16:
		return badParam("object_above_max_properties", "metadata", "Invalid 'metadata': too many properties.")
	}
	return nil
}

func (q *responsesRequest) tools(p *prompt) *refusal {
	for i, t := range q.Tools {
		if t.Type != "function" {
			return badParam("invalid_value", fmt.Sprintf("tools[%d].type", i), "Invalid value: '%s'. The emulator knows 'function' only.", t.Type)
		}
		p.tools = append(p.tools, tool{t.Name, t.Parameters})
		p.input.add(t.Description)
		if (t.Strict == nil || *t.Strict) && !closed(t.Parameters) {
			return badParam("invalid_function_parameters", fmt.Sprintf("tools[%d].parameters", i), "Invalid schema for function '%s': In context=(), 'additionalProperties' is required to be supplied and to be false.", t.Name)
		}
	}
	if f := openAITools(p.tools, "tools[%d].name", &p.input); f != nil {
		return f
	}
	var named struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	if q.ToolChoice.Kind() == '{' {
		if f := openAIBody(q.ToolChoice, &named); f != nil {
			return f
		}
	}
	return openAIChoice(q.ToolChoice, named.Name, p)
}

// closed says whether a schema is fit for strict, which is the default here.
func closed(schema raw) bool {
	text := strings.ReplaceAll(string(schema), " ", "")
	return strings.Contains(text, `"additionalProperties":false`)
}

// converse reads the input: a text, or items.
func (q *responsesRequest) converse(p *prompt) *refusal {
	if q.Input.Kind() == '"' {
		p.input.message()
		f := openAIBodyAt(q.Input, &p.text, "input")
		p.input.add(p.text)
		return f
	}
	var items []responsesItem
	if f := openAIBodyAt(q.Input, &items, "input"); f != nil {
		return f
	}
	var open []string
	calls := map[string]bool{}
	answered := true // the calls before this item
	for i, item := range items {
		at := fmt.Sprintf("input[%d]", i)
		switch {
		case item.Type == "function_call":
			if item.CallID == "" || item.Name == "" {
				return badParam("missing_required_parameter", at+".call_id", "Missing required parameter: '%s.call_id'.", at)
			}
			if answered {
				p.rounds++
			}
			answered, open, calls[item.CallID] = false, append(open, item.CallID), true
			p.input.add(item.Name, item.Arguments)
		case item.Type == "function_call_output":
			if !calls[item.CallID] {
				return badParam("", "input", "No tool call found for function call output with call_id %s.", item.CallID)
			}
			answered, open = true, slices.DeleteFunc(open, func(id string) bool { return id == item.CallID })
			text, f := parts(item.Output, at+".output", p)
			if f != nil {
				return f
			}
			p.input.add(text)
			p.seen = append(p.seen, text)
		case item.Type == "reasoning":
			if item.Encrypted == "" && item.ID == "" {
				return badParam("missing_required_parameter", at, "Missing required parameter: '%s.id'.", at)
			}
		case item.Type == "" || item.Type == "message":
			if f := item.message(at, p); f != nil {
				return f
			}
		default:
			return badParam("invalid_value", at, "Invalid value: '%s'.", item.Type)
		}
	}
	if len(open) > 0 {
		return badParam("", "input", "No tool output found for function call %s.", open[0])
	}
	return nil
}

// message reads an item that is a message.
func (item *responsesItem) message(at string, p *prompt) *refusal {
	if !slices.Contains([]string{"user", "assistant", "system", "developer"}, item.Role) {
		return badParam("invalid_value", at, "Invalid value: '%s'. Supported values are: 'assistant', 'system', 'developer', and 'user'.", item.Role)
	}
	text, f := parts(item.Content, at+".content", p)
	if f != nil {
		return f
	}
	for _, kind := range []string{`"output_text"`, `"refusal"`, `"input_text"`, `"input_image"`} {
		output := kind == `"output_text"` || kind == `"refusal"`
		if strings.Contains(string(item.Content), `"type":`+kind) && output != (item.Role == "assistant") {
			return badParam("invalid_value", at+".content[0]", "Invalid value: '%s'. It is not for role '%s'.", strings.Trim(kind, `"`), item.Role)
		}
	}
	p.input.message()
	p.input.add(text)
	if item.Role == "user" {
		p.text, p.rounds, p.seen = text, 0, nil
	}
	return nil
}

// parts reads content: a text, or parts.
func parts(content raw, at string, p *prompt) (string, *refusal) {
	if content.Kind() == '"' {
		var text string
		f := openAIBodyAt(content, &text, at)
		return text, f
	}
	var list []responsesPart
	if f := openAIBodyAt(content, &list, at); f != nil {
		return "", f
	}
	var texts []string
	for i, part := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case (part.Type == "input_text" || part.Type == "output_text") && part.Text != nil:
			texts = append(texts, *part.Text)
		case part.Type == "refusal":
			texts = append(texts, part.Refusal)
		case part.Type == "input_image":
			if f := openAIImage(part.ImageURL, part.Detail, at+".image_url", &p.input); f != nil {
				return "", f
			}
		default:
			return "", badParam("invalid_value", at, "Invalid value: '%s'. Supported values are: 'input_text', 'input_image', 'output_text', 'refusal'.", part.Type)
		}
	}
	return strings.Join(texts, "\n"), nil
}
