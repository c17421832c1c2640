package openai

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/purserhq/purser/emulator/exchange"
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
	Text *struct {
		Format    raw    `json:"format"`
		Verbosity string `json:"verbosity"`
	} `json:"text"`
	responsesRest
}

// responsesRest are parameters that are taken and change nothing here.
type responsesRest struct {
	Background   raw `json:"background"`
	MaxToolCalls raw `json:"max_tool_calls"`
	CacheOptions raw `json:"prompt_cache_options"`
	Retention    raw `json:"prompt_cache_retention"`
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

// isStored reports whether the response is stored, which is the default.
func (q *responsesRequest) isStored() bool { return q.Store == nil || *q.Store }

func (q *responsesRequest) includes(what string) bool { return slices.Contains(q.Include, what) }

func (c *responses) ReadPrompt(_ *http.Request, body []byte) (*exchange.Prompt, *exchange.Refusal) {
	q := &c.request
	if f := decodeBody(body, q); f != nil {
		return nil, f
	}
	m, f := c.api.findModel(q.Model)
	if f != nil {
		return nil, f
	}
	asked := ""
	if q.Reasoning != nil {
		asked = q.Reasoning.Effort
	}
	if c.effort, f = checkEffort(m, asked, "reasoning.effort"); f != nil {
		return nil, f
	}
	p := &exchange.Prompt{
		Model:    m,
		Stream:   q.Stream,
		Parallel: q.ParallelToolCalls == nil || *q.ParallelToolCalls,
		Thinks:   c.effort != "none",
	}
	if q.MaxOutputTokens != nil {
		p.Limit = *q.MaxOutputTokens
	}
	if q.Text != nil {
		p.Schema = readSchema(q.Text.Format)
	}
	p.Input.AddTexts(q.Instructions)
	for _, check := range []func() *exchange.Refusal{
		func() *exchange.Refusal { return checkTemperature(m, q.Temperature, c.effort) },
		func() *exchange.Refusal { return q.checkOptions() },
		func() *exchange.Refusal { return checkCacheKey(q.PromptCacheKey) },
		func() *exchange.Refusal { return q.readTools(p) },
		func() *exchange.Refusal { return q.readInput(p) },
		func() *exchange.Refusal { return checkRoom(m, q.MaxOutputTokens, "max_output_tokens", p.Input) },
	} {
		if f := check(); f != nil {
			return nil, f
		}
	}
	return p, nil
}

func (q *responsesRequest) checkOptions() *exchange.Refusal {
	switch {
	case len(q.Input) == 0:
		return BadParam("missing_required_parameter", "input", "Missing required parameter: 'input'.")
	case q.MaxOutputTokens != nil && *q.MaxOutputTokens < 16:
		return BadParam("integer_below_min_value", "max_output_tokens",
			"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got %d instead.",
			*q.MaxOutputTokens)
	case len(q.Metadata) > 16:
		return BadParam("object_above_max_properties", "metadata", "Invalid 'metadata': too many properties.")
	}
	return nil
}

func (q *responsesRequest) readTools(p *exchange.Prompt) *exchange.Refusal {
	for i, t := range q.Tools {
		if t.Type != "function" {
			return BadParam("invalid_value", fmt.Sprintf("tools[%d].type", i),
				"Invalid value: '%s'. The emulator knows 'function' only.", t.Type)
		}
		p.Tools = append(p.Tools, exchange.Tool{Name: t.Name, Schema: t.Parameters})
		p.Input.AddTexts(t.Description)
		if t.Strict != nil && *t.Strict && !isClosedSchema(t.Parameters) { // without strict it would be made to fit
			return BadParam("invalid_function_parameters", fmt.Sprintf("tools[%d].parameters", i),
				"Invalid schema for function '%s': In context=(), 'additionalProperties' is required to be supplied "+
					"and to be false.", t.Name)
		}
	}
	if f := CheckTools(p.Tools, "tools[%d].name", &p.Input); f != nil {
		return f
	}
	p.CacheKey = q.PromptCacheKey
	p.AddBlock(exchange.Encode([]any{q.Instructions, q.Tools}), false)
	var named struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	if q.ToolChoice.Kind() == '{' {
		if f := decodeBody(q.ToolChoice, &named); f != nil {
			return f
		}
	}
	return ReadToolChoice(q.ToolChoice, named.Name, p)
}

// isClosedSchema says whether a schema is fit for strict.
func isClosedSchema(schema raw) bool {
	text := strings.ReplaceAll(string(schema), " ", "")
	return strings.Contains(text, `"additionalProperties":false`)
}

// readInput reads the input: a text, or items.
func (q *responsesRequest) readInput(p *exchange.Prompt) *exchange.Refusal {
	if q.Input.Kind() == '"' {
		p.Input.AddMessage()
		f := decodePart(q.Input, &p.Text, "input")
		p.Input.AddTexts(p.Text)
		return f
	}
	var items []responsesItem
	if f := decodePart(q.Input, &items, "input"); f != nil {
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
				return BadParam("missing_required_parameter", at+".call_id",
					"Missing required parameter: '%s.call_id'.", at)
			}
			if answered {
				p.Rounds++
			}
			answered, open, calls[item.CallID] = false, append(open, item.CallID), true
			p.Input.AddTexts(item.Name, item.Arguments)
		case item.Type == "function_call_output":
			if !calls[item.CallID] {
				return BadParam("", "input", "No tool call found for function call output with call_id %s.",
					item.CallID)
			}
			answered, open = true, slices.DeleteFunc(open, func(id string) bool { return id == item.CallID })
			text, f := readParts(item.Output, at+".output", p)
			if f != nil {
				return f
			}
			p.Input.AddTexts(text)
			p.Results = append(p.Results, text)
		case item.Type == "reasoning":
			if item.Encrypted == "" && item.ID == "" {
				return BadParam("missing_required_parameter", at, "Missing required parameter: '%s.id'.", at)
			}
			if !isFollowed(items[i+1:]) {
				return BadParam("", "input", "Item '%s' of type 'reasoning' was provided without its required "+
					"following item.", item.ID)
			}
		case item.Type == "" || item.Type == "message":
			if f := item.readMessage(at, p); f != nil {
				return f
			}
		default:
			return BadParam("invalid_value", at, "Invalid value: '%s'.", item.Type)
		}
		p.AddBlock(exchange.Encode(item), false)
	}
	if len(open) > 0 {
		return BadParam("", "input", "No tool output found for function call %s.", open[0])
	}
	return nil
}

// isFollowed reports whether what follows reasoning is the model's own output.
func isFollowed(rest []responsesItem) bool {
	for _, item := range rest {
		if item.Type != "reasoning" {
			return item.Type == "function_call" || item.Role == "assistant"
		}
	}
	return false
}

// readMessage reads an item that is a message.
func (item *responsesItem) readMessage(at string, p *exchange.Prompt) *exchange.Refusal {
	if !slices.Contains([]string{"user", "assistant", "system", "developer"}, item.Role) {
		return BadParam("invalid_value", at,
			"Invalid value: '%s'. Supported values are: 'assistant', 'system', 'developer', and 'user'.", item.Role)
	}
	text, f := readParts(item.Content, at+".content", p)
	if f != nil {
		return f
	}
	for _, kind := range []string{`"output_text"`, `"refusal"`, `"input_text"`, `"input_image"`} {
		output := kind == `"output_text"` || kind == `"refusal"`
		if strings.Contains(string(item.Content), `"type":`+kind) && output != (item.Role == "assistant") {
			return BadParam("invalid_value", at+".content[0]", "Invalid value: '%s'. It is not for role '%s'.",
				strings.Trim(kind, `"`), item.Role)
		}
	}
	p.Input.AddMessage()
	p.Input.AddTexts(text)
	if item.Role == "user" {
		p.Text, p.Rounds, p.Results = text, 0, nil
	}
	return nil
}

// readParts reads content: a text, or parts.
func readParts(content raw, at string, p *exchange.Prompt) (string, *exchange.Refusal) {
	if content.Kind() == '"' {
		var text string
		f := decodePart(content, &text, at)
		return text, f
	}
	var list []responsesPart
	if f := decodePart(content, &list, at); f != nil {
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
			if f := checkImage(part.ImageURL, part.Detail, at+".image_url", &p.Input); f != nil {
				return "", f
			}
		default:
			return "", BadParam("invalid_value", at,
				"Invalid value: '%s'. Supported values are: 'input_text', 'input_image', 'output_text', 'refusal'.",
				part.Type)
		}
	}
	return strings.Join(texts, "\n"), nil
}
