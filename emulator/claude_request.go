package emulator

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

type claudeRequest struct {
	Model         string          `json:"model"`
	MaxTokens     *int            `json:"max_tokens"`
	Messages      []claudeMessage `json:"messages"`
	System        raw             `json:"system"`
	Temperature   *float64        `json:"temperature"`
	TopP          *float64        `json:"top_p"`
	TopK          *int            `json:"top_k"`
	Tools         []claudeTool    `json:"tools"`
	ToolChoice    *claudeChoice   `json:"tool_choice"`
	Stream        bool            `json:"stream"`
	StopSequences []string        `json:"stop_sequences"`
	Thinking      *claudeThinking `json:"thinking"`
	ServiceTier   string          `json:"service_tier"`
	OutputConfig  *struct {
		Effort string `json:"effort"`
		Format raw    `json:"format"`
	} `json:"output_config"`
	Metadata *struct {
		UserID string `json:"user_id"`
	} `json:"metadata"`
	CacheControl raw `json:"cache_control"`
	Container    raw `json:"container"`
	InferenceGeo raw `json:"inference_geo"`
	Speed        raw `json:"speed"`
	Diagnostics  raw `json:"diagnostics"`
}

type claudeMessage struct {
	Role    string `json:"role"`
	Content raw    `json:"content"`
}

type claudeTool struct {
	Type                string `json:"type"`
	Name                string `json:"name"`
	Description         string `json:"description"`
	InputSchema         raw    `json:"input_schema"`
	CacheControl        raw    `json:"cache_control"`
	Strict              *bool  `json:"strict"`
	EagerInputStreaming *bool  `json:"eager_input_streaming"`
	DeferLoading        *bool  `json:"defer_loading"`
	AllowedCallers      raw    `json:"allowed_callers"`
	InputExamples       raw    `json:"input_examples"`
}

type claudeChoice struct {
	Type                   string `json:"type"`
	Name                   string `json:"name"`
	DisableParallelToolUse *bool  `json:"disable_parallel_tool_use"`
}

type claudeThinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens"`
	Display      string `json:"display"`
	BlockBinding *struct {
		PrefixMismatchBehavior string `json:"prefix_mismatch_behavior"`
	} `json:"block_binding"`
}

// A claudeBlock has the members of all kinds of blocks.
type claudeBlock struct {
	Type         string        `json:"type"`
	Text         *string       `json:"text,omitzero"`
	Source       *claudeSource `json:"source,omitzero"`
	ID           string        `json:"id,omitzero"`
	Name         string        `json:"name,omitzero"`
	Input        raw           `json:"input,omitzero"`
	ToolUseID    string        `json:"tool_use_id,omitzero"`
	Content      raw           `json:"content,omitzero"`
	IsError      bool          `json:"is_error,omitzero"`
	Thinking     string        `json:"thinking,omitzero"`
	Signature    string        `json:"signature,omitzero"`
	Data         string        `json:"data,omitzero"`
	Citations    raw           `json:"citations,omitzero"`
	CacheControl raw           `json:"cache_control,omitzero"`

	at string // where it was sent
}

type claudeSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitzero"`
	Data      string `json:"data,omitzero"`
	URL       string `json:"url,omitzero"`
	FileID    string `json:"file_id,omitzero"`
}

// A claudeTurn is what consecutive messages of one role are merged into.
type claudeTurn struct {
	Role   string        `json:"role"`
	Blocks []claudeBlock `json:"blocks"`
}

func badClaude(format string, args ...any) *refusal {
	return &refusal{status: 400, message: fmt.Sprintf(format, args...)}
}

// claudeBody decodes a request, and refuses what is not known; at is where it
// stands in the whole.
func claudeBody(body []byte, v any, at string) *refusal {
	pointer, unknown, err := strict(body, v)
	path := strings.Trim(at+strings.ReplaceAll(pointer, "/", "."), ".")
	switch {
	case err == nil:
		return nil
	case unknown:
		return badClaude("%s: Extra inputs are not permitted", path)
	case path != "":
		return badClaude("%s: Input should be of another type", path)
	}
	return badClaude("The request body is not valid JSON: %v", err)
}

func (c *messages) read(r *http.Request, body []byte) (*prompt, *refusal) {
	q := &c.request
	if f := claudeBody(body, q, ""); f != nil {
		return nil, f
	}
	m, ok := c.emulator.model(anthropic, q.Model)
	if !ok && q.Model != "" {
		return nil, &refusal{status: 404, message: "model: " + q.Model}
	}
	c.model, c.beta = m, strings.Contains(strings.Join(r.Header.Values("Anthropic-Beta"), ","), "thinking-binding-controls-2026-08-01")
	p := &prompt{model: m, stream: q.Stream, parallel: true, choice: "auto"}
	for _, check := range []func() *refusal{
		func() *refusal { return q.required(m, c.counting) },
		func() *refusal { return q.sampling(m) },
		func() *refusal { return q.thinks(p, c.beta) },
		func() *refusal { return q.tools(p) },
		func() *refusal { return c.system(p) },
		func() *refusal { return c.merge(p) },
		func() *refusal { return c.order(p) },
		func() *refusal { return c.bind() },
		func() *refusal { return c.last(p) },
	} {
		if f := check(); f != nil {
			return nil, f
		}
	}
	if n := p.input.text + p.input.images; n > m.Context {
		return nil, badClaude("prompt is too long: %d tokens > %d maximum", n, m.Context)
	}
	return p, nil
}

func (q *claudeRequest) required(m Model, counting bool) *refusal {
	switch {
	case q.Model == "":
		return badClaude("model: Field required")
	case q.Messages == nil:
		return badClaude("messages: Field required")
	case len(q.Messages) == 0:
		return badClaude("messages: at least one message is required")
	case counting:
		return nil
	case q.MaxTokens == nil:
		return badClaude("max_tokens: Field required")
	case *q.MaxTokens < 1:
		return badClaude("max_tokens: Input should be greater than or equal to 1")
	case *q.MaxTokens > m.MaxOutput:
		return badClaude("max_tokens: %d > %d, which is the maximum allowed number of output tokens for %s", *q.MaxTokens, m.MaxOutput, m.ID)
	case !slices.Contains([]string{"", "auto", "standard_only"}, q.ServiceTier):
		return badClaude("service_tier: Input should be 'auto' or 'standard_only'")
	case q.OutputConfig != nil && !slices.Contains([]string{"", "low", "medium", "high", "xhigh", "max"}, q.OutputConfig.Effort):
		return badClaude("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
	}
	return nil
}

func (q *claudeRequest) sampling(m Model) *refusal {
	t := q.Temperature
	switch {
	case t != nil && (*t < 0 || *t > 1):
		return badClaude("temperature: range: 0..1")
	case m.Fixed && (t != nil && *t != 1 || q.TopP != nil && *q.TopP != 1 || q.TopK != nil):
		return badClaude("`temperature`, `top_p` and `top_k` are not supported for %s; only their defaults may be sent.", m.ID)
	case t != nil && q.TopP != nil:
		return badClaude("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
	}
	return nil
}

// thinks checks thinking as wire B.8 says.
func (q *claudeRequest) thinks(p *prompt, beta bool) *refusal {
	kind := p.model.Thinking
	p.thinks = kind == "always" || kind == "between" || kind == "may"
	if q.MaxTokens != nil {
		p.limit = *q.MaxTokens
	}
	t := q.Thinking
	if t == nil {
		return nil
	}
	if t.BlockBinding != nil && !beta {
		return badClaude("thinking.%s.block_binding: Extra inputs are not permitted", t.Type)
	}
	allowed := map[string][]string{
		"always": {"adaptive"}, "between": {"adaptive", "between_tools"}, "may": {"adaptive", "enabled", "disabled"},
		"off": {"adaptive", "enabled", "disabled"}, "budget": {"enabled", "disabled"},
	}[kind]
	if !slices.Contains(allowed, t.Type) {
		return badClaude("thinking.type: '%s' is not supported for %s. Supported: %s.", t.Type, p.model.ID, strings.Join(allowed, ", "))
	}
	if t.Type == "enabled" && t.BudgetTokens < 1024 {
		return badClaude("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
	}
	if t.Type == "enabled" && p.limit > 0 && t.BudgetTokens >= p.limit {
		return badClaude("`max_tokens` must be greater than `thinking.budget_tokens`.")
	}
	p.thinks = t.Type != "disabled"
	return nil
}

var claudeName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

func (q *claudeRequest) tools(p *prompt) *refusal {
	for i, t := range q.Tools {
		var schema struct {
			Type string `json:"type"`
		}
		switch at := fmt.Sprintf("tools.%d.custom", i); {
		case t.Type != "" && t.Type != "custom":
			return badClaude("tools.%d: Input tag '%s' found using 'type' does not match any of the expected tags", i, t.Type)
		case !claudeName.MatchString(t.Name):
			return badClaude("%s.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'", at)
		case slices.ContainsFunc(p.tools, func(o tool) bool { return o.name == t.Name }):
			return badClaude("tools: Tool names must be unique.")
		case t.InputSchema.Kind() != '{':
			return badClaude("%s.input_schema: Field required", at)
		default:
			if err := json.Unmarshal(t.InputSchema, &schema); err != nil || schema.Type != "object" {
				return badClaude("%s.input_schema.type: Input should be 'object'", at)
			}
		}
		p.tools = append(p.tools, tool{t.Name, t.InputSchema})
		p.input.add(t.Name, t.Description, string(t.InputSchema))
	}
	if len(q.Tools) > 0 {
		p.input.text += 300 // the hidden instructions for tools
	}
	return q.choose(p)
}

// choose checks tool_choice as wire B.5 says.
func (q *claudeRequest) choose(p *prompt) *refusal {
	c := q.ToolChoice
	if c == nil {
		return nil
	}
	p.parallel = c.DisableParallelToolUse == nil || !*c.DisableParallelToolUse
	forced := c.Type == "any" || c.Type == "tool"
	switch {
	case !slices.Contains([]string{"auto", "any", "tool", "none"}, c.Type):
		return badClaude("tool_choice: Input tag '%s' found using 'type' does not match any of the expected tags: 'auto', 'any', 'tool', 'none'", c.Type)
	case len(p.tools) == 0 && c.Type != "none":
		return badClaude("tool_choice may only be specified while providing tools.")
	case c.Type == "none" && c.DisableParallelToolUse != nil:
		return badClaude("tool_choice.none.disable_parallel_tool_use: Extra inputs are not permitted")
	case c.Type != "tool" && c.Name != "":
		return badClaude("tool_choice.%s.name: Extra inputs are not permitted", c.Type)
	case forced && p.model.Unforced:
		return badClaude("tool_choice: type '%s' is not supported for %s.", c.Type, p.model.ID)
	case forced && p.thinks:
		return badClaude("Thinking may not be enabled when tool_choice forces tool use.")
	case c.Type == "tool" && !slices.ContainsFunc(p.tools, func(t tool) bool { return t.name == c.Name }):
		return badClaude("Tool '%s' not found in provided tools", c.Name)
	}
	p.choice = map[string]string{"auto": "auto", "any": "required", "tool": "named", "none": "none"}[c.Type]
	p.named = c.Name
	return nil
}

// system reads the system prompt.
func (c *messages) system(p *prompt) *refusal {
	if len(c.request.System) == 0 {
		return nil
	}
	blocks, f := claudeBlocks(c.request.System, "system")
	for i, b := range blocks {
		if f == nil && b.Type != "text" {
			f = badClaude("system.%d.type: Input should be 'text'", i)
		} else if f == nil && (b.Text == nil || *b.Text == "") {
			f = badClaude("system: text content blocks must be non-empty")
		} else if f == nil {
			p.input.add(*b.Text)
		}
	}
	c.instructions = blocks
	return f
}

// claudeBlocks reads content: a text, or blocks.
func claudeBlocks(content raw, at string) (blocks []claudeBlock, f *refusal) {
	if content.Kind() == '"' {
		var text string
		f := claudeBody(content, &text, at)
		return []claudeBlock{{Type: "text", Text: &text}}, f
	}
	f = claudeBody(content, &blocks, at)
	return blocks, f
}

// merge reads the messages into turns.
func (c *messages) merge(p *prompt) *refusal {
	for i, m := range c.request.Messages {
		at := fmt.Sprintf("messages.%d", i)
		if m.Role != "user" && m.Role != "assistant" {
			return badClaude("%s.role: Input should be 'user' or 'assistant'", at)
		}
		if len(m.Content) == 0 {
			return badClaude("%s.content: Field required", at)
		}
		blocks, f := claudeBlocks(m.Content, at+".content")
		if f != nil {
			return f
		}
		empty := len(blocks) == 0 || m.Content.Kind() == '"' && *blocks[0].Text == ""
		if empty && (m.Role == "user" || i < len(c.request.Messages)-1) {
			return badClaude("%s: %s messages must have non-empty content", at, m.Role)
		}
		for j := range blocks {
			if f := c.block(&blocks[j], m.Role, fmt.Sprintf("%s.content.%d", at, j), p); f != nil {
				return f
			}
		}
		p.input.message()
		if n := len(c.turns); n > 0 && c.turns[n-1].Role == m.Role {
			c.turns[n-1].Blocks = append(c.turns[n-1].Blocks, blocks...)
		} else {
			c.turns = append(c.turns, claudeTurn{m.Role, blocks})
		}
	}
	if c.turns[0].Role != "user" {
		return badClaude("messages: first message must use the \"user\" role")
	}
	return c.sizes()
}

var claudeID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// block checks one block and counts it.
func (c *messages) block(b *claudeBlock, role, at string, p *prompt) *refusal {
	b.at, b.CacheControl = at, nil // no part of what thinking is bound to
	users := map[string]bool{"image": true, "tool_result": true, "tool_use": false, "thinking": false, "redacted_thinking": false}
	if user, known := users[b.Type]; b.Type != "text" && (!known || user != (role == "user")) {
		return badClaude("%s: Input tag '%s' found using 'type' does not match any of the expected tags in a message of the %s", at, b.Type, role)
	}
	switch b.Type {
	case "text":
		if b.Text == nil {
			return badClaude("%s.text.text: Field required", at)
		} else if *b.Text == "" {
			return badClaude("messages: text content blocks must be non-empty")
		} else if strings.TrimSpace(*b.Text) == "" {
			return badClaude("messages: text content blocks must contain non-whitespace text")
		}
		p.input.add(*b.Text)
	case "image":
		return c.image(b.Source, at, p)
	case "tool_use":
		if !claudeID.MatchString(b.ID) {
			return badClaude("%s.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", at)
		} else if !claudeName.MatchString(b.Name) {
			return badClaude("%s.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'", at)
		} else if b.Input.Kind() != '{' {
			return badClaude("%s.tool_use.input: Input should be a valid dictionary", at)
		}
		p.input.add(b.Name, string(b.Input))
	case "tool_result":
		return c.result(b, at, p)
	case "thinking":
		if b.Signature == "" {
			return badClaude("%s.thinking.signature: Field required", at)
		}
	}
	return nil
}

// result reads the content of a tool's result.
func (c *messages) result(b *claudeBlock, at string, p *prompt) *refusal {
	if !claudeID.MatchString(b.ToolUseID) {
		return badClaude("%s.tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'", at)
	}
	if len(b.Content) == 0 || b.Content.Kind() == 'n' {
		return nil
	}
	blocks, f := claudeBlocks(b.Content, at+".tool_result.content")
	if f != nil {
		return f
	}
	for i, part := range blocks {
		at := fmt.Sprintf("%s.tool_result.content.%d", at, i)
		switch {
		case part.Type == "image":
			f = c.image(part.Source, at, p)
		case part.Type != "text" || part.Text == nil:
			f = badClaude("%s: Input tag '%s' found using 'type' does not match any of the expected tags: 'image', 'text'", at, part.Type)
		case *part.Text == "" && b.Content.Kind() == '[':
			f = badClaude("messages: text content blocks must be non-empty")
		default:
			p.input.add(*part.Text)
		}
		if f != nil {
			return f
		}
	}
	return nil
}

// image checks an image as wire B.4 says.
func (c *messages) image(s *claudeSource, at string, p *prompt) *refusal {
	if s == nil {
		return badClaude("%s.image.source: Field required", at)
	}
	kinds := []string{"image/jpeg", "image/png", "image/gif", "image/webp"}
	switch {
	case s.Type == "url" && strings.HasPrefix(s.URL, "https://"):
		c.pictures = append(c.pictures, picture{})
		p.input.images += 1_600
		return nil
	case s.Type != "base64":
		return badClaude("%s.image.source: only base64 and https sources are supported", at)
	case !slices.Contains(kinds, s.MediaType):
		return badClaude("%s.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'", at)
	case len(s.Data)/4*3 > 5<<20:
		return badClaude("%s.image.source.base64: image exceeds 5 MB maximum: %d bytes > 5242880 bytes", at, len(s.Data)/4*3)
	}
	pic, err := look(s.Data)
	if err != nil {
		return badClaude("%s.image.source.base64.data: The file format is invalid or unsupported", at)
	} else if pic.kind != s.MediaType {
		return badClaude("%s.image.source.base64.data: The image was specified using the %s media type, but the image appears to be a %s image", at, s.MediaType, pic.kind)
	}
	c.pictures = append(c.pictures, pic)
	most := 4_784
	if !c.model.Fixed {
		most = 1_568
	}
	p.input.images += pic.patches(28, most)
	return nil
}

// sizes checks all images together: many must be smaller.
func (c *messages) sizes() *refusal {
	side := 8000
	if len(c.pictures) > 20 {
		side = 2000
	}
	for _, p := range c.pictures {
		if max(p.width, p.height) > side {
			return badClaude("messages: At least one of the image dimensions exceed max allowed size for these images: %d pixels", side)
		}
	}
	most := 600
	if c.model.Context <= 200_000 {
		most = 100
	}
	if len(c.pictures) > most {
		return badClaude("messages: too many images: %d > %d", len(c.pictures), most)
	}
	return nil
}

// order checks that each call has its result, at the beginning of the next turn.
func (c *messages) order(p *prompt) *refusal {
	used := false
	for i, turn := range c.turns {
		var calls []string
		if i > 0 {
			calls = ids(c.turns[i-1].Blocks)
		}
		open, first := slices.Clone(calls), true
		for j, b := range turn.Blocks {
			used = used || b.Type == "tool_use" || b.Type == "tool_result"
			if b.Type != "tool_result" {
				first = false
				continue
			}
			at := slices.Index(open, b.ToolUseID)
			switch {
			case at < 0 && slices.Contains(calls, b.ToolUseID):
				return badClaude("messages.%d.content.%d: each tool_use must have a single result. Found multiple `tool_result` blocks with id: %s", i, j, b.ToolUseID)
			case at < 0:
				return badClaude("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", i, j, b.ToolUseID)
			case first:
				open = slices.Delete(open, at, at+1)
			}
		}
		if len(open) > 0 {
			return orphans(i-1, open)
		}
	}
	if n := len(c.turns) - 1; len(ids(c.turns[n].Blocks)) > 0 {
		return orphans(n, ids(c.turns[n].Blocks))
	}
	if used && len(p.tools) == 0 {
		return badClaude("Requests which include `tool_use` or `tool_result` blocks must define tools.")
	}
	return nil
}

func orphans(i int, ids []string) *refusal {
	return badClaude("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", i, strings.Join(ids, ", "))
}

// ids of the calls among blocks.
func ids(blocks []claudeBlock) (list []string) {
	for _, b := range blocks {
		if b.Type == "tool_use" {
			list = append(list, b.ID)
		}
	}
	return list
}

// last finds what the user said last, and refuses a conversation that ends with
// the assistant.
func (c *messages) last(p *prompt) *refusal {
	for _, turn := range c.turns {
		var texts, results []string
		for _, b := range turn.Blocks {
			if b.Type == "text" {
				texts = append(texts, *b.Text)
			} else if b.Type == "tool_result" {
				results = append(results, string(b.Content))
			}
		}
		switch {
		case turn.Role == "user" && len(texts) > 0:
			p.text, p.rounds, p.seen = strings.Join(texts, "\n"), 0, nil
		case turn.Role == "user":
			p.seen = append(p.seen, results...)
		case len(ids(turn.Blocks)) > 0:
			p.rounds++
		}
	}
	end := c.turns[len(c.turns)-1]
	if end.Role == "user" {
		return nil
	}
	if !c.model.Prefill {
		return badClaude("This model does not support assistant message prefill. The conversation must end with a user message.")
	}
	if n := len(end.Blocks); n > 0 && end.Blocks[n-1].Type == "text" && strings.TrimRight(*end.Blocks[n-1].Text, " \t\r\n") != *end.Blocks[n-1].Text {
		return badClaude("messages: final assistant content cannot end with trailing whitespace")
	}
	return nil
}
