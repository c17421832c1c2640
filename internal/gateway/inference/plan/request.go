package plan

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/conversation/completions"
	"github.com/purserhq/purser/internal/models/provider"
)

// MaxBody is the most bytes that the body of a request may have.
const MaxBody = 32 << 20

// body is the inference body of contract §4.3 with the additions of decision 042.
// Unknown members are dropped, and the response names them: only what is named here
// reaches a provider. The members of refused, and misspelled ones that look like a bound
// on the cost, would change the cost or the route silently, so they are refused instead
// (decision 012).
type body struct {
	Model               *string        `json:"model"`
	Messages            []message      `json:"messages"`
	MaxTokens           *int64         `json:"max_tokens"`
	MaxCompletionTokens *int64         `json:"max_completion_tokens"`
	Temperature         *float64       `json:"temperature"`
	TopP                *float64       `json:"top_p"`
	Stop                jsontext.Value `json:"stop"`
	Tools               []tool         `json:"tools"`
	ToolChoice          jsontext.Value `json:"tool_choice"`
	ParallelToolCalls   *bool          `json:"parallel_tool_calls"`
	ResponseFormat      jsontext.Value `json:"response_format"`
	ReasoningEffort     *string        `json:"reasoning_effort"`
	Stream              *bool          `json:"stream"`
	StreamOptions       *struct {
		IncludeUsage *bool          `json:"include_usage"`
		Unknown      jsontext.Value `json:",unknown"`
	} `json:"stream_options"`
	N              *int64        `json:"n"`
	CacheControl   *cacheControl `json:"cache_control"`
	PromptCacheKey *string       `json:"prompt_cache_key"`
	Cache          *bool         `json:"cache"`
	refused
	Unknown jsontext.Value `json:",unknown"`
}

type refused struct {
	ServiceTier      jsontext.Value `json:"service_tier"`
	Store            jsontext.Value `json:"store"`
	Modalities       jsontext.Value `json:"modalities"`
	Audio            jsontext.Value `json:"audio"`
	Prediction       jsontext.Value `json:"prediction"`
	WebSearchOptions jsontext.Value `json:"web_search_options"`
	Functions        jsontext.Value `json:"functions"`
	FunctionCall     jsontext.Value `json:"function_call"`
	Logprobs         jsontext.Value `json:"logprobs"`
	TopLogprobs      jsontext.Value `json:"top_logprobs"`
	APIBase          jsontext.Value `json:"api_base"`
	BaseURL          jsontext.Value `json:"base_url"`
	APIKey           jsontext.Value `json:"api_key"`
}

type message struct {
	Role       string         `json:"role"`
	Content    jsontext.Value `json:"content"`
	Name       string         `json:"name"`
	ToolCalls  []toolCall     `json:"tool_calls"`
	ToolCallID string         `json:"tool_call_id"`
	Refusal    *string        `json:"refusal"`

	CacheControl *cacheControl `json:"cache_control"`

	// What an app sends back of an earlier response. reasoning_content, which comes with it,
	// is for reading only, and is dropped.
	ExtraContent jsontext.Value `json:"extra_content"`
	Unknown      jsontext.Value `json:",unknown"`
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`

		Unknown jsontext.Value `json:",unknown"`
	} `json:"function"`
	ExtraContent jsontext.Value `json:"extra_content"`
	Unknown      jsontext.Value `json:",unknown"`
}

type tool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string         `json:"name"`
		Description string         `json:"description"`
		Parameters  jsontext.Value `json:"parameters"`
		Strict      *bool          `json:"strict"`
		Unknown     jsontext.Value `json:",unknown"`
	} `json:"function"`
	CacheControl *cacheControl  `json:"cache_control"`
	Unknown      jsontext.Value `json:",unknown"`
}

type part struct {
	CacheControl *cacheControl `json:"cache_control"`

	Type     string  `json:"type"`
	Text     *string `json:"text"`
	ImageURL *struct {
		URL     string         `json:"url"`
		Detail  string         `json:"detail"`
		Unknown jsontext.Value `json:",unknown"`
	} `json:"image_url"`
	Unknown jsontext.Value `json:",unknown"`
}

// A Request is a body that has passed every check that needs no model.
type Request struct {
	provider.Request        // the canonical request; its model and its facts are not set
	BodyModel        string // the member model; "" = absent
	IncludeUsage     bool   // stream_options.include_usage
	Images           int
	Ignored          []string // unknown members, which were dropped

	// NoCacheMarks keeps Purser from marking prefixes for the provider's cache by itself
	// (decision 071). Marks of the app are kept.
	NoCacheMarks bool

	parts         int    // content parts and tool calls, as CountParts has counted them
	dropped       string // the type of a tool that was dropped, as DropTool says; "" = none
	forcesDropped bool   // the client forces a call of it
	toolAt        []int  // where each tool stands in the body of chat completions; nil = as it stands here
}

// Parse reads a body strictly. Its errors name the member and the rule.
func Parse(data []byte) (*Request, error) {
	var b body
	if err := web.DecodeSaid(data, &b); err != nil {
		return nil, err
	}
	p := &Request{}
	for _, step := range []func(*body, *Request) error{
		readUnknown, readRefused, readScalars, readMessages, readTools, readCache,
	} {
		if err := step(&b, p); err != nil {
			return nil, err
		}
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	return p, nil
}

// maxQuoted is how many bytes of a client's text an error message quotes.
const maxQuoted = 100

// invalid refuses a request. It shortens what it quotes of the request: the message is
// stored for the receipt, and a name may be as long as the body.
func invalid(format string, args ...any) error {
	for i, a := range args {
		if s, ok := a.(string); ok && len(s) > maxQuoted {
			args[i] = strings.ToValidUTF8(s[:maxQuoted], "") + "…"
		}
	}
	return apierr.InvalidRequest.Errorf(format, args...)
}

// isSet reports whether a member is there and is not null.
func isSet(v jsontext.Value) bool { return len(v) > 0 && string(v) != "null" }

// readRefused refuses the members that would change the cost or the route silently. It
// accepts a value that asks for what happens anyway.
func readRefused(b *body, p *Request) error {
	if b.N != nil && *b.N != 1 {
		return invalid("n: must be 1; each call answers once")
	}
	if string(b.Store) == "true" { // it is only made false
		p.Ignore("store")
	}
	const price = "not offered here, because it would change the price or the route of the call; leave it out"
	const text = "only text is offered here; voice is at POST /v1/realtime/sessions"
	const logprobs = "not offered here, because not every provider returns them; leave it out"
	for _, m := range []struct {
		name     string
		value    jsontext.Value
		accepted []string
		why      string
	}{
		{"service_tier", b.ServiceTier, []string{`"default"`, `"auto"`}, price},
		{"store", b.Store, []string{`true`, `false`}, "must be true or false"},
		{"modalities", b.Modalities, []string{`["text"]`}, text},
		{"audio", b.Audio, nil, text},
		{"prediction", b.Prediction, nil, price},
		{"functions", b.Functions, nil, "is the former name of tools; send them as tools"},
		{"function_call", b.FunctionCall, nil, "is the former name of tool_choice; send that, with tools"},
		{"logprobs", b.Logprobs, []string{`false`}, logprobs},
		{"top_logprobs", b.TopLogprobs, []string{`0`}, logprobs},
		{"api_base", b.APIBase, nil, price},
		{"base_url", b.BaseURL, nil, price},
		{"api_key", b.APIKey, nil, price},
	} {
		if isSet(m.value) && !slices.Contains(m.accepted, string(m.value)) {
			return apierr.InvalidRequest.Errorf("%s: %s", m.name, m.why)
		}
	}
	return nil
}

// maxIgnored bounds the members that a response names as ignored.
const maxIgnored = 20

var plainMember = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,128}$`)

// readUnknown lists the unknown members, and refuses near misses of members that bound the
// cost: dropped, they would make the call cost many times what the app meant to allow.
func readUnknown(b *body, p *Request) error {
	return p.IgnoreUnknown(b.Unknown, nearMiss)
}

// Ignore notes an unknown member that was dropped, so that the response names it.
func (r *Request) Ignore(name string) {
	if plainMember.MatchString(name) && len(r.Ignored) < maxIgnored {
		r.Ignored = append(r.Ignored, name)
	}
}

// nearMiss returns the member that a client meant by an unknown one which would bound the
// cost, or "".
func nearMiss(name string) string {
	switch strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "").Replace(name)) {
	case "maxtokens", "maxtoken", "maxoutputtokens", "maxcompletiontokens", "maxnewtokens", "maxtokenstosample",
		"generationconfig":
		return "max_tokens"
	case "reasoning", "reasoningeffort", "thinking", "thinkingconfig", "thinkingbudget", "enablethinking",
		"outputconfig":
		return "reasoning_effort"
	}
	return ""
}

func readScalars(b *body, p *Request) error {
	if b.Model != nil {
		if *b.Model == "" {
			return invalid("model: must not be empty")
		}
		p.BodyModel = *b.Model
	}
	outputCap := b.MaxTokens
	if m := b.MaxCompletionTokens; m != nil {
		if outputCap != nil && *outputCap != *m {
			return invalid("max_completion_tokens: differs from max_tokens, which means the same; send one")
		}
		outputCap = m
	}
	if outputCap != nil {
		if *outputCap < 1 {
			return invalid("max_tokens: must be at least 1")
		}
		p.MaxTokens = *outputCap
	}
	p.Temperature, p.TopP = b.Temperature, b.TopP
	if e := b.ReasoningEffort; e != nil {
		if *e == "" {
			return errEffort()
		}
		p.ReasoningEffort = *e
	}
	p.Stream = b.Stream != nil && *b.Stream
	if o := b.StreamOptions; o != nil {
		p.IgnoreIn("stream_options", o.Unknown)
		if !p.Stream {
			return invalid("stream_options: requires stream to be true")
		}
		p.IncludeUsage = o.IncludeUsage != nil && *o.IncludeUsage
	}
	if err := readStop(b.Stop, p); err != nil {
		return err
	}
	if isSet(b.ResponseFormat) {
		p.ResponseFormat = json.RawMessage(b.ResponseFormat)
	}
	return nil
}

func readStop(v jsontext.Value, p *Request) error {
	if !isSet(v) {
		return nil
	}
	if v.Kind() == '"' {
		p.Stop = make([]string, 1)
		if err := json.Unmarshal(v, &p.Stop[0]); err != nil {
			return invalid("stop: must be a string or an array of strings")
		}
	} else if err := web.DecodeSaid(v, &p.Stop); err != nil || v.Kind() != '[' {
		return invalid("stop: must be a string or an array of strings")
	}
	return nil
}

func readMessages(b *body, p *Request) error {
	if len(b.Messages) > maxMessages {
		return errMessages()
	}
	p.Turns = make([]conversation.Turn, len(b.Messages))
	texts := make([]conversation.Block, len(b.Messages)) // most messages are one text
	for i := range b.Messages {
		t := &p.Turns[i]
		if err := p.readMessage(&b.Messages[i], t, texts[i:i:i+1], fmt.Sprintf("messages[%d]", i)); err != nil {
			return err
		}
		n := len(t.Blocks)
		if r := t.Result(); r != nil {
			n = len(r.Blocks)
		}
		if err := p.CountParts(n); err != nil {
			return err
		}
	}
	return nil
}

// readMessage reads a message into a turn. Its blocks are appended to blocks.
func (p *Request) readMessage(m *message, out *conversation.Turn, blocks []conversation.Block, path string) error {
	if !slices.Contains([]string{"system", "developer", "user", "assistant", "tool"}, m.Role) {
		return invalid("%s.role: must be one of system, developer, user, assistant, tool", path)
	}
	if len(m.ToolCalls) > 0 && m.Role != "assistant" {
		return invalid("%s.tool_calls: only an assistant message has them", path)
	}
	if (m.Role == "tool") != (m.ToolCallID != "") {
		return invalid("%s.tool_call_id: required in a tool message, and only there", path)
	}
	p.IgnoreIn("messages", m.Unknown, "reasoning_content", "annotations")
	out.Role, out.Name = m.Role, m.Name
	if m.Role == "assistant" && isSet(m.ExtraContent) {
		blocks = append(blocks, conversation.Block{
			Kind:  conversation.ReasoningBlock,
			Extra: json.RawMessage(m.ExtraContent),
		})
	}
	blocks, err := p.appendContent(blocks, m, path)
	if err != nil {
		return err
	}
	if m.Refusal != nil && *m.Refusal != "" {
		blocks = append(blocks, conversation.Block{Kind: conversation.RefusalBlock, Text: *m.Refusal, Joined: true})
	}
	for i, c := range m.ToolCalls {
		if c.Type != "function" && c.Type != "" {
			return invalid("%s.tool_calls[%d].type: must be function", path, i)
		}
		p.IgnoreIn("messages.tool_calls", c.Unknown, "index")
		p.IgnoreIn("messages.tool_calls.function", c.Function.Unknown)
		blocks = append(blocks, conversation.Block{
			Kind:      conversation.CallBlock,
			ID:        c.ID,
			Name:      c.Function.Name,
			Arguments: c.Function.Arguments,
			Extra:     json.RawMessage(c.ExtraContent),
		})
	}
	if m.Role == "assistant" {
		blocks = completions.Ordered(blocks)
	}
	if m.Role == "tool" {
		blocks = []conversation.Block{{Kind: conversation.ResultBlock, ID: m.ToolCallID, Blocks: blocks}}
	}
	out.Blocks = blocks
	marked, err := p.readMark(m.CacheControl, path)
	if n := len(blocks); n > 0 && marked {
		blocks[n-1].CacheBreakpoint = true
	}
	return err
}

// appendContent reads the content of a message.
func (p *Request) appendContent(blocks []conversation.Block, m *message, path string) ([]conversation.Block, error) {
	spoke := m.Role == "assistant" && (len(m.ToolCalls) > 0 || m.Refusal != nil && *m.Refusal != "")
	if !isSet(m.Content) && !spoke {
		return nil, invalid("%s.content: required", path)
	}
	switch m.Content.Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, m.Content)
		if err != nil {
			return nil, invalid("%s.content: not a valid string", path)
		}
		return append(blocks, conversation.Block{Text: string(text)}), nil
	case '[':
	default:
		if !isSet(m.Content) {
			return blocks, nil
		}
		return nil, invalid("%s.content: must be a string or an array of parts", path)
	}
	var parts []part
	if err := web.DecodeSaid(m.Content, &parts); err != nil {
		return nil, invalid("%s.content: must be a string or an array of parts with a type", path)
	}
	switch {
	case len(parts) == 0 && spoke: // some clients send it beside tool calls
		return blocks, nil
	case len(parts) == 0 && m.Role == "assistant":
		return nil, invalid("%s.content: required", path)
	case len(parts) == 0:
		return nil, invalid("%s.content: must have at least one part", path)
	}
	for i, q := range parts {
		at := fmt.Sprintf("%s.content[%d]", path, i)
		p.IgnoreIn("messages.content", q.Unknown)
		b, err := p.readPart(q, at)
		if err != nil {
			return nil, err
		}
		if b.CacheBreakpoint, err = p.readMark(q.CacheControl, at); err != nil {
			return nil, err
		}
		b.Joined = i > 0 && m.Role == "assistant"
		blocks = append(blocks, b)
	}
	return blocks, nil
}

func (p *Request) readPart(q part, path string) (conversation.Block, error) {
	switch q.Type {
	case "text":
		if q.Text == nil {
			return conversation.Block{}, invalid("%s.text: required", path)
		}
		return conversation.Block{Text: *q.Text}, nil
	case "image_url":
		if q.ImageURL == nil {
			return conversation.Block{}, invalid("%s.image_url: required", path)
		}
		p.IgnoreIn("messages.content.image_url", q.ImageURL.Unknown)
		return conversation.Block{
			Kind:    conversation.ImageBlock,
			Picture: &conversation.Picture{URL: q.ImageURL.URL, Detail: q.ImageURL.Detail},
		}, nil
	}
	return conversation.Block{}, invalid("%s.type: must be text or image_url", path)
}

func readTools(b *body, p *Request) error {
	if len(b.Tools) > maxTools {
		return errTools()
	}
	for i, t := range b.Tools {
		if IsDroppable(t.Type) {
			p.DropTool(t.Type, "tools."+t.Type)
			continue
		}
		if t.Type != "function" {
			return invalid("tools[%d].type: must be function", i)
		}
		p.IgnoreIn("tools", t.Unknown)
		p.IgnoreIn("tools.function", t.Function.Unknown)
		marked, err := p.readMark(t.CacheControl, fmt.Sprintf("tools[%d]", i))
		if err != nil {
			return err
		}
		q := provider.Tool{
			Name:            t.Function.Name,
			Description:     t.Function.Description,
			Strict:          t.Function.Strict,
			CacheBreakpoint: marked,
		}
		if isSet(t.Function.Parameters) {
			q.Parameters = json.RawMessage(t.Function.Parameters)
		}
		p.Tools, p.toolAt = append(p.Tools, q), append(p.toolAt, i)
	}
	if isSet(b.WebSearchOptions) {
		p.DropTool("web_search", "web_search_options")
	}
	p.ParallelToolCalls = b.ParallelToolCalls
	return readChoice(b.ToolChoice, p)
}

func readChoice(v jsontext.Value, p *Request) error {
	if !isSet(v) {
		return nil
	}
	var mode string
	type choice struct {
		Type     string `json:"type"`
		Function struct {
			Name    string         `json:"name"`
			Unknown jsontext.Value `json:",unknown"`
		} `json:"function"`
	}
	var named struct {
		choice
		Allowed struct {
			Mode    string         `json:"mode"`
			Tools   []choice       `json:"tools"`
			Unknown jsontext.Value `json:",unknown"`
		} `json:"allowed_tools"`
		Unknown jsontext.Value `json:",unknown"`
	}
	switch v.Kind() {
	case '"':
		if err := json.Unmarshal(v, &mode); err == nil && slices.Contains([]string{"auto", "none", "required"}, mode) {
			p.ToolChoice.Mode = mode
			return nil
		}
	case '{':
		if web.DecodeSaid(v, &named) != nil {
			break
		}
		p.IgnoreIn("tool_choice", named.Unknown)
		p.IgnoreIn("tool_choice.function", named.Function.Unknown)
		p.IgnoreIn("tool_choice.allowed_tools", named.Allowed.Unknown)
		switch {
		case named.Type == "function":
			p.ToolChoice = provider.ToolChoice{Mode: "function", Name: named.Function.Name}
			return nil
		case IsDroppable(named.Type):
			p.ForceDropped()
			return nil
		case named.Type == "allowed_tools":
			var names []string
			for _, t := range named.Allowed.Tools {
				if !IsDroppable(t.Type) {
					names = append(names, t.Function.Name)
				}
			}
			_, err := p.AllowTools(named.Allowed.Mode, names)
			return err
		}
	}
	return invalid("tool_choice: must be auto, none, required, {type: function, function: {name}}, or " +
		"{type: allowed_tools, allowed_tools: {mode, tools}}")
}
