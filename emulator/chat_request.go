package emulator

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// raw is a member that is known and not looked at.
type raw = jsontext.Value

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

func (c *chat) read(_ *http.Request, body []byte) (*prompt, *refusal) {
	q := &c.request
	if f := openAIBody(body, q); f != nil {
		return nil, f
	}
	m, f := c.emulator.openAIModel(q.Model)
	if f != nil {
		return nil, f
	}
	p := &prompt{model: m, stream: q.Stream, parallel: q.ParallelToolCalls == nil || *q.ParallelToolCalls}
	effort, f := m.effort(q.ReasoningEffort, "reasoning_effort")
	p.thinks = effort != "none"
	for _, check := range []func() *refusal{
		func() *refusal { return f },
		func() *refusal { return q.options(m) },
		func() *refusal { return m.temperature(q.Temperature, effort) },
		func() *refusal { return q.limits(p) },
		func() *refusal { return q.tools(p, effort) },
		func() *refusal { return q.converse(p) },
		func() *refusal { return m.room(q.MaxCompletionTokens, "max_completion_tokens", p.input) },
	} {
		if f := check(); f != nil {
			return nil, f
		}
	}
	return p, nil
}

// options checks what stands beside the conversation.
func (q *chatRequest) options(m Model) *refusal {
	switch {
	case q.N != nil && *q.N != 1:
		return badParam("unsupported_value", "n", "The emulator answers once.")
	case q.StreamOptions != nil && !q.Stream:
		return badParam("", "stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	case q.Metadata != nil && !q.Store:
		return badParam("", "metadata", "The 'metadata' parameter is only allowed when 'store' is enabled.")
	case len(q.Metadata) > 16:
		return badParam("object_above_max_properties", "metadata", "Invalid 'metadata': too many properties. Expected an object with at most 16 properties, but got an object with %d properties instead.", len(q.Metadata))
	case len(q.SafetyIdentifier) > 128:
		return badParam("string_above_max_length", "safety_identifier", "Invalid 'safety_identifier': string too long.")
	case !slices.Contains([]string{"", "auto", "default", "flex", "scale", "priority", "fast"}, q.ServiceTier):
		return badParam("invalid_value", "service_tier", "Invalid value: '%s'.", q.ServiceTier)
	case len(q.Messages) == 0:
		return badParam("empty_array", "messages", "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	}
	for k, v := range q.Metadata {
		if len(k) > 64 || len(v) > 512 {
			return badParam("string_above_max_length", "metadata", "Invalid 'metadata.%s': string too long.", k)
		}
	}
	return nil
}

func (q *chatRequest) limits(p *prompt) *refusal {
	if q.MaxTokens != nil && len(p.model.Efforts) > 0 {
		return badParam("unsupported_parameter", "max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")
	}
	if q.MaxTokens != nil && q.MaxCompletionTokens != nil {
		return badParam("invalid_parameter_combination", "max_tokens", "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	}
	if q.MaxTokens != nil {
		q.MaxCompletionTokens = q.MaxTokens
	}
	if q.MaxCompletionTokens != nil {
		p.limit = *q.MaxCompletionTokens
	}
	return nil
}

// tools checks tools as wire A.8 says.
func (q *chatRequest) tools(p *prompt, effort string) *refusal {
	for i, t := range q.Tools {
		if t.Type != "function" {
			return badParam("invalid_value", fmt.Sprintf("tools[%d].type", i), "Invalid value: '%s'. Supported values are: 'function'.", t.Type)
		}
		p.tools = append(p.tools, tool{t.Function.Name, t.Function.Parameters})
		p.input.add(t.Function.Description)
	}
	if f := openAITools(p.tools, "tools[%d].function.name", &p.input); f != nil {
		return f
	}
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if q.ToolChoice.Kind() == '{' {
		if f := openAIBody(q.ToolChoice, &named); f != nil {
			return f
		}
	}
	if f := openAIChoice(q.ToolChoice, named.Function.Name, p); f != nil {
		return f
	}
	if len(p.tools) == 0 {
		if q.ParallelToolCalls != nil {
			return badParam("", "parallel_tool_calls", "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified.")
		}
		return nil
	}
	rule, asked := p.model.ChatTools, q.ReasoningEffort
	if rule == "never" || rule == "none" && asked != "none" || rule == "unset" && asked != "" && asked != "none" {
		end := " or set reasoning_effort to 'none'"
		if rule == "never" {
			end = ""
		}
		return &refusal{status: 400, param: "reasoning_effort", message: "Function tools with reasoning_effort are not supported for " + p.model.ID + " in /v1/chat/completions. To use function tools, use /v1/responses" + end + "."}
	}
	return nil
}

// converse reads the messages, and refuses those in the wrong order.
func (q *chatRequest) converse(p *prompt) *refusal {
	var open []string // calls without an answer
	for i, m := range q.Messages {
		at := fmt.Sprintf("messages[%d]", i)
		if m.Role != "tool" && len(open) > 0 {
			return unanswered(open, at)
		}
		text, f := m.contents(at, p)
		if f != nil {
			return f
		}
		p.input.message()
		p.input.add(text)
		switch m.Role {
		case "system", "developer":
		case "user":
			p.text, p.rounds, p.seen = text, 0, nil
		case "assistant":
			if open, f = m.calls(at, p); f != nil {
				return f
			}
		case "tool":
			at := slices.Index(open, m.ToolCallID)
			if at < 0 {
				return badParam("", fmt.Sprintf("messages.[%d].role", i), "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.")
			}
			open = slices.Delete(open, at, at+1)
			p.seen = append(p.seen, text)
		default:
			return badParam("invalid_value", at+".role", "Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.", m.Role)
		}
	}
	if len(open) > 0 {
		return unanswered(open, "messages")
	}
	return nil
}

func unanswered(open []string, at string) *refusal {
	return badParam("", at, "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: %s", strings.Join(open, ", "))
}

// calls are the ids of the calls of an assistant message.
func (m *chatMessage) calls(at string, p *prompt) (open []string, f *refusal) {
	if len(m.ToolCalls) > 0 {
		p.rounds++
	}
	for j, c := range m.ToolCalls {
		at := fmt.Sprintf("%s.tool_calls[%d]", at, j)
		switch {
		case c.Type != "function":
			return nil, badParam("invalid_value", at+".type", "Invalid value: '%s'. Supported values are: 'function'.", c.Type)
		case c.ID == "" || c.Function.Name == "":
			return nil, badParam("missing_required_parameter", at, "Missing required parameter: '%s.id'.", at)
		case len(c.ID) > 40:
			return nil, badParam("string_above_max_length", at+".id", "Invalid '%s.id': string too long. Expected a string with maximum length 40, but instead got a string with length %d instead.", at, len(c.ID))
		case !openAIName.MatchString(c.Function.Name):
			return nil, badParam("invalid_value", at+".function.name", "Invalid '%s.function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.", at)
		}
		open = append(open, c.ID)
		p.input.add(c.Function.Name, c.Function.Arguments)
	}
	return open, nil
}

// contents reads the content of a message: a text, or parts.
func (m *chatMessage) contents(at string, p *prompt) (string, *refusal) {
	switch m.Content.Kind() {
	case 0, 'n':
		if m.Role != "assistant" || len(m.ToolCalls) == 0 && m.Refusal == nil {
			return "", badParam("", at+".content", "Invalid value for 'content': expected a string, got null.")
		}
		return "", nil
	case '"':
		var text string
		f := openAIBodyAt(m.Content, &text, at)
		return text, f
	}
	var parts []chatPart
	if f := openAIBodyAt(m.Content, &parts, at+".content"); f != nil {
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
			if f := openAIImage(part.ImageURL.URL, part.ImageURL.Detail, at+".image_url", &p.input); f != nil {
				return "", f
			}
		default:
			return "", badParam("invalid_value", at+".type", "Invalid value: '%s'. A message with role '%s' cannot hold this part.", part.Type, m.Role)
		}
	}
	return strings.Join(texts, "\n"), nil
}

// openAIBodyAt decodes a part of a request.
func openAIBodyAt(body []byte, v any, at string) *refusal {
	f := openAIBody(body, v)
	if f != nil && f.param != "" {
		inner := f.param
		if inner[0] >= '0' && inner[0] <= '9' {
			index, rest, _ := strings.Cut(inner, ".")
			inner = "[" + index + "]." + rest
		} else {
			inner = "." + inner
		}
		f.message = strings.Replace(f.message, f.param, at+inner, 1)
		f.param = at + inner
	}
	return f
}
