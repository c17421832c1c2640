package openai

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/purserhq/purser/emulator/exchange"
)

type chatRequest struct {
	Model               string            `json:"model"`
	Messages            []chatMessage     `json:"messages"`
	MaxTokens           *int              `json:"max_tokens"`
	MaxCompletionTokens *int              `json:"max_completion_tokens"`
	Temperature         *float64          `json:"temperature"`
	ReasoningEffort     string            `json:"reasoning_effort"`
	Tools               []chatTool        `json:"tools"`
	ToolChoice          raw               `json:"tool_choice"`
	ParallelToolCalls   *bool             `json:"parallel_tool_calls"`
	Stream              bool              `json:"stream"`
	StreamOptions       *streamOptions    `json:"stream_options"`
	Store               bool              `json:"store"`
	Metadata            map[string]string `json:"metadata"`
	N                   *int              `json:"n"`
	SafetyIdentifier    string            `json:"safety_identifier"`
	PromptCacheKey      string            `json:"prompt_cache_key"`
	ServiceTier         string            `json:"service_tier"`
	chatRest
}

// chatRest are parameters that are taken and change nothing here.
type chatRest struct {
	Audio            raw `json:"audio"`
	FrequencyPenalty raw `json:"frequency_penalty"`
	LogitBias        raw `json:"logit_bias"`
	Logprobs         raw `json:"logprobs"`
	Modalities       raw `json:"modalities"`
	Prediction       raw `json:"prediction"`
	PresencePenalty  raw `json:"presence_penalty"`
	CacheRetention   raw `json:"prompt_cache_retention"`
	CacheOptions     raw `json:"prompt_cache_options"`
	ResponseFormat   raw `json:"response_format"`
	Seed             raw `json:"seed"`
	Stop             raw `json:"stop"`
	TopLogprobs      raw `json:"top_logprobs"`
	TopP             raw `json:"top_p"`
	User             raw `json:"user"`
	Verbosity        raw `json:"verbosity"`
	WebSearch        raw `json:"web_search_options"`
}

type streamOptions struct {
	IncludeUsage       bool  `json:"include_usage"`
	IncludeObfuscation *bool `json:"include_obfuscation"`
}

type chatMessage struct {
	Role       string     `json:"role"`
	Content    raw        `json:"content"`
	Name       string     `json:"name"`
	Refusal    *string    `json:"refusal"`
	Audio      raw        `json:"audio"`
	ToolCalls  []chatCall `json:"tool_calls"`
	ToolCallID string     `json:"tool_call_id"`
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type chatPart struct {
	Type     string  `json:"type"`
	Text     *string `json:"text"`
	Refusal  string  `json:"refusal"`
	ImageURL *struct {
		URL    string `json:"url"`
		Detail string `json:"detail"`
	} `json:"image_url"`
}

type chatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Parameters  raw    `json:"parameters"`
		Strict      *bool  `json:"strict"`
	} `json:"function"`
}

func (c *chat) ReadPrompt(_ *http.Request, body []byte) (*exchange.Prompt, *exchange.Refusal) {
	q := &c.request
	if f := decodeBody(body, q); f != nil {
		return nil, f
	}
	m, f := c.api.findModel(q.Model)
	if f != nil {
		return nil, f
	}
	p := &exchange.Prompt{Model: m, Stream: q.Stream, Parallel: q.ParallelToolCalls == nil || *q.ParallelToolCalls}
	effort, f := checkEffort(m, q.ReasoningEffort, "reasoning_effort")
	p.Thinks, p.Schema = effort != "none", readSchema(q.ResponseFormat)
	for _, check := range []func() *exchange.Refusal{
		func() *exchange.Refusal { return f },
		func() *exchange.Refusal { return q.checkOptions(m, effort) },
		func() *exchange.Refusal { return checkCacheKey(q.PromptCacheKey) },
		func() *exchange.Refusal { return checkTemperature(m, q.Temperature, effort) },
		func() *exchange.Refusal { return q.readLimits(p) },
		func() *exchange.Refusal { return q.readTools(p, effort) },
		func() *exchange.Refusal { return q.readMessages(p) },
		func() *exchange.Refusal { return checkRoom(m, q.MaxCompletionTokens, "max_completion_tokens", p.Input) },
	} {
		if f := check(); f != nil {
			return nil, f
		}
	}
	return p, nil
}

// checkOptions checks the members other than the conversation and the tools.
func (q *chatRequest) checkOptions(m exchange.Model, effort string) *exchange.Refusal {
	switch {
	case len(q.Stop) > 0 && len(m.Efforts) > 0 && effort != "none":
		return BadParam("unsupported_parameter", "stop",
			"Unsupported parameter: 'stop' is not supported with this model.")
	case exchange.CountElements(q.Stop) > 4:
		return BadParam("array_above_max_length", "stop",
			"Invalid 'stop': array too long. Expected an array with maximum length 4.")
	case q.N != nil && *q.N != 1:
		return BadParam("unsupported_value", "n", "The emulator answers once.")
	case q.StreamOptions != nil && !q.Stream:
		return BadParam("", "stream_options",
			"The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	case q.Metadata != nil && !q.Store:
		return BadParam("", "metadata", "The 'metadata' parameter is only allowed when 'store' is enabled.")
	case len(q.Metadata) > 16:
		return BadParam("object_above_max_properties", "metadata",
			"Invalid 'metadata': too many properties. Expected an object with at most 16 properties, but got an "+
				"object with %d properties instead.", len(q.Metadata))
	case len(q.SafetyIdentifier) > 128:
		return BadParam("string_above_max_length", "safety_identifier", "Invalid 'safety_identifier': string too long.")
	case !slices.Contains([]string{"", "auto", "default", "flex", "scale", "priority", "fast"}, q.ServiceTier):
		return BadParam("invalid_value", "service_tier", "Invalid value: '%s'.", q.ServiceTier)
	case len(q.Messages) == 0:
		return BadParam("empty_array", "messages",
			"Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	}
	for k, v := range q.Metadata {
		if len(k) > 64 || len(v) > 512 {
			return BadParam("string_above_max_length", "metadata", "Invalid 'metadata.%s': string too long.", k)
		}
	}
	return nil
}

func (q *chatRequest) readLimits(p *exchange.Prompt) *exchange.Refusal {
	if q.MaxTokens != nil && len(p.Model.Efforts) > 0 {
		return BadParam("unsupported_parameter", "max_tokens",
			"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "+
				"instead.")
	}
	if q.MaxTokens != nil && q.MaxCompletionTokens != nil {
		return BadParam("invalid_parameter_combination", "max_tokens",
			"Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	}
	if q.MaxTokens != nil {
		q.MaxCompletionTokens = q.MaxTokens
	}
	if q.MaxCompletionTokens != nil {
		p.Limit = *q.MaxCompletionTokens
	}
	return nil
}

// readTools checks tools as provider notes A.8 says.
func (q *chatRequest) readTools(p *exchange.Prompt, effort string) *exchange.Refusal {
	for i, t := range q.Tools {
		if t.Type != "function" {
			return BadParam("invalid_value", fmt.Sprintf("tools[%d].type", i),
				"Invalid value: '%s'. Supported values are: 'function'.", t.Type)
		}
		p.Tools = append(p.Tools, exchange.Tool{Name: t.Function.Name, Schema: t.Function.Parameters})
		p.Input.AddTexts(t.Function.Description)
	}
	if f := CheckTools(p.Tools, "tools[%d].function.name", &p.Input); f != nil {
		return f
	}
	p.CacheKey = q.PromptCacheKey
	p.AddBlock(exchange.Encode(q.Tools), false)
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if q.ToolChoice.Kind() == '{' {
		if f := decodeBody(q.ToolChoice, &named); f != nil {
			return f
		}
	}
	if f := ReadToolChoice(q.ToolChoice, named.Function.Name, p); f != nil {
		return f
	}
	if len(p.Tools) == 0 {
		if q.ParallelToolCalls != nil {
			return BadParam("", "parallel_tool_calls",
				"Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are "+
					"specified.")
		}
		return nil
	}
	rule, asked := p.Model.ChatTools, q.ReasoningEffort
	if rule == "never" || rule == "none" && asked != "none" || rule == "unset" && asked != "" && asked != "none" {
		end := " or set reasoning_effort to 'none'"
		if rule == "never" {
			end = ""
		}
		return &exchange.Refusal{
			Status: 400,
			Param:  "reasoning_effort",
			Message: "Function tools with reasoning_effort are not supported for " + p.Model.ID +
				" in /v1/chat/completions. To use function tools, use /v1/responses" + end + ".",
		}
	}
	return nil
}

// readMessages reads the messages, and refuses those in the wrong order.
func (q *chatRequest) readMessages(p *exchange.Prompt) *exchange.Refusal {
	var open []string // calls without an answer
	for i, m := range q.Messages {
		at := fmt.Sprintf("messages[%d]", i)
		if m.Role != "tool" && len(open) > 0 {
			return missingResults(open, at)
		}
		text, f := m.readContent(at, p)
		if f != nil {
			return f
		}
		p.Input.AddMessage()
		p.Input.AddTexts(text)
		block := exchange.Encode([]any{m.Role, m.Content, m.ToolCalls, m.ToolCallID})
		switch m.Role {
		case "system", "developer":
		case "user":
			p.Text, p.Rounds, p.Results = text, 0, nil
		case "assistant":
			if open, f = m.readCalls(at, p); f != nil {
				return f
			}
		case "tool":
			at := slices.Index(open, m.ToolCallID)
			if at < 0 {
				return BadParam("", fmt.Sprintf("messages.[%d].role", i),
					"Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "+
						"'tool_calls'.")
			}
			open = slices.Delete(open, at, at+1)
			p.Results = append(p.Results, text)
		default:
			return BadParam("invalid_value", at+".role",
				"Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and "+
					"'developer'.", m.Role)
		}
		p.AddBlock(block, false)
	}
	if len(open) > 0 {
		return missingResults(open, "messages")
	}
	return nil
}

func missingResults(open []string, at string) *exchange.Refusal {
	return BadParam("", at,
		"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "+
			"The following tool_call_ids did not have response messages: %s", strings.Join(open, ", "))
}

// readCalls are the ids of the calls of an assistant message.
func (m *chatMessage) readCalls(at string, p *exchange.Prompt) (open []string, f *exchange.Refusal) {
	if len(m.ToolCalls) > 0 {
		p.Rounds++
	}
	for j, c := range m.ToolCalls {
		at := fmt.Sprintf("%s.tool_calls[%d]", at, j)
		switch {
		case c.Type != "function":
			return nil, BadParam("invalid_value", at+".type", "Invalid value: '%s'. Supported values are: 'function'.",
				c.Type)
		case c.ID == "" || c.Function.Name == "":
			return nil, BadParam("missing_required_parameter", at, "Missing required parameter: '%s.id'.", at)
		case len(c.ID) > 40:
			return nil, BadParam("string_above_max_length", at+".id",
				"Invalid '%s.id': string too long. Expected a string with maximum length 40, but instead got a "+
					"string with length %d instead.", at, len(c.ID))
		case !toolName.MatchString(c.Function.Name):
			return nil, BadParam("invalid_value", at+".function.name",
				"Invalid '%s.function.name': string does not match pattern. Expected a string that matches the "+
					"pattern '^[a-zA-Z0-9_-]+$'.", at)
		}
		open = append(open, c.ID)
		p.Input.AddTexts(c.Function.Name, c.Function.Arguments)
	}
	return open, nil
}

// readContent reads the content of a message: a text, or parts.
func (m *chatMessage) readContent(at string, p *exchange.Prompt) (string, *exchange.Refusal) {
	switch m.Content.Kind() {
	case 0, 'n':
		if m.Role != "assistant" || len(m.ToolCalls) == 0 && m.Refusal == nil {
			return "", BadParam("", at+".content", "Invalid value for 'content': expected a string, got null.")
		}
		return "", nil
	case '"':
		var text string
		f := decodePart(m.Content, &text, at)
		return text, f
	}
	var parts []chatPart
	if f := decodePart(m.Content, &parts, at+".content"); f != nil {
		return "", f
	}
	var texts []string
	for i, part := range parts {
		at := fmt.Sprintf("%s.content[%d]", at, i)
		switch {
		case part.Type == "text" && part.Text != nil:
			texts = append(texts, *part.Text)
		case part.Type == "refusal" && m.Role == "assistant":
			texts = append(texts, part.Refusal)
		case part.Type == "image_url" && part.ImageURL != nil && m.Role == "user":
			if f := checkImage(part.ImageURL.URL, part.ImageURL.Detail, at+".image_url", &p.Input); f != nil {
				return "", f
			}
		default:
			return "", BadParam("invalid_value", at+".type",
				"Invalid value: '%s'. A message with role '%s' cannot hold this part.", part.Type, m.Role)
		}
	}
	return strings.Join(texts, "\n"), nil
}

// decodePart decodes a part of a request.
func decodePart(body []byte, v any, at string) *exchange.Refusal {
	f := decodeBody(body, v)
	if f != nil && f.Param != "" {
		inner := f.Param
		if inner[0] >= '0' && inner[0] <= '9' {
			index, rest, _ := strings.Cut(inner, ".")
			inner = "[" + index + "]." + rest
		} else {
			inner = "." + inner
		}
		f.Message = strings.Replace(f.Message, f.Param, at+inner, 1)
		f.Param = at + inner
	}
	return f
}
