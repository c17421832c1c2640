package anthropic

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/emulator/exchange"
)

type messagesRequest struct {
	Model         string          `json:"model"`
	MaxTokens     *int            `json:"max_tokens"`
	Messages      []inputMessage  `json:"messages"`
	System        raw             `json:"system"`
	Temperature   *float64        `json:"temperature"`
	TopP          *float64        `json:"top_p"`
	TopK          *int            `json:"top_k"`
	Tools         []customTool    `json:"tools"`
	ToolChoice    *toolChoice     `json:"tool_choice"`
	Stream        bool            `json:"stream"`
	StopSequences []string        `json:"stop_sequences"`
	Thinking      *thinkingConfig `json:"thinking"`
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

type inputMessage struct {
	Role    string `json:"role"`
	Content raw    `json:"content"`
}

type customTool struct {
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

type toolChoice struct {
	Type                   string `json:"type"`
	Name                   string `json:"name"`
	DisableParallelToolUse *bool  `json:"disable_parallel_tool_use"`
}

type thinkingConfig struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens"`
	Display      string `json:"display"`
	BlockBinding *struct {
		PrefixMismatchBehavior string `json:"prefix_mismatch_behavior"`
	} `json:"block_binding"`
}

// An inputBlock has the members of all kinds of blocks.
type inputBlock struct {
	Type         string       `json:"type"`
	Text         *string      `json:"text,omitzero"`
	Source       *imageSource `json:"source,omitzero"`
	ID           string       `json:"id,omitzero"`
	Name         string       `json:"name,omitzero"`
	Input        raw          `json:"input,omitzero"`
	ToolUseID    string       `json:"tool_use_id,omitzero"`
	Content      raw          `json:"content,omitzero"`
	IsError      bool         `json:"is_error,omitzero"`
	Thinking     string       `json:"thinking,omitzero"`
	Signature    string       `json:"signature,omitzero"`
	Data         string       `json:"data,omitzero"`
	Citations    raw          `json:"citations,omitzero"`
	CacheControl raw          `json:"cache_control,omitzero"`

	at string // where it was sent
}

type imageSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitzero"`
	Data      string `json:"data,omitzero"`
	URL       string `json:"url,omitzero"`
	FileID    string `json:"file_id,omitzero"`
}

// An inputTurn is what consecutive messages of one role are merged into.
type inputTurn struct {
	Role   string       `json:"role"`
	Blocks []inputBlock `json:"blocks"`
}

func badRequest(format string, args ...any) *exchange.Refusal {
	return &exchange.Refusal{Status: 400, Message: fmt.Sprintf(format, args...)}
}

// decodeBody decodes a request, and refuses what is not known; at is where it
// stands in the whole.
func decodeBody(body []byte, v any, at string) *exchange.Refusal {
	pointer, unknown, err := exchange.DecodeStrict(body, v)
	path := strings.Trim(at+strings.ReplaceAll(pointer, "/", "."), ".")
	switch {
	case err == nil:
		return nil
	case unknown:
		return badRequest("%s: Extra inputs are not permitted", path)
	case path != "":
		return badRequest("%s: Input should be of another type", path)
	}
	return badRequest("The request body is not valid JSON: %v", err)
}

func (c *messages) Read(r *http.Request, body []byte) (*exchange.Prompt, *exchange.Refusal) {
	q := &c.request
	if f := decodeBody(body, q, ""); f != nil {
		return nil, f
	}
	m, ok := c.api.server.Model(exchange.Anthropic, q.Model)
	if !ok && q.Model != "" {
		return nil, &exchange.Refusal{Status: 404, Message: "model: " + q.Model}
	}
	c.model, c.beta = m,
		strings.Contains(strings.Join(r.Header.Values("Anthropic-Beta"), ","), "thinking-binding-controls-2026-08-01")
	p := &exchange.Prompt{Model: m, Stream: q.Stream, Parallel: true, Choice: "auto"}
	for _, check := range []func() *exchange.Refusal{
		func() *exchange.Refusal { return q.checkRequired(m, c.counting) },
		func() *exchange.Refusal { return q.checkSampling(m) },
		func() *exchange.Refusal { return q.checkThinking(p, c.beta) },
		func() *exchange.Refusal { return q.readTools(p) },
		func() *exchange.Refusal { return c.readSystem(p) },
		func() *exchange.Refusal { return c.readTurns(p) },
		func() *exchange.Refusal { return c.checkOrder(p) },
		func() *exchange.Refusal { return c.checkBindings() },
		func() *exchange.Refusal { return c.checkLastTurn(p) },
	} {
		if f := check(); f != nil {
			return nil, f
		}
	}
	if n := p.Input.Text + p.Input.Images; n > m.Context {
		return nil, badRequest("prompt is too long: %d tokens > %d maximum", n, m.Context)
	}
	return p, nil
}

func (q *messagesRequest) checkRequired(m exchange.Model, counting bool) *exchange.Refusal {
	switch {
	case q.Model == "":
		return badRequest("model: Field required")
	case q.Messages == nil:
		return badRequest("messages: Field required")
	case len(q.Messages) == 0:
		return badRequest("messages: at least one message is required")
	case counting:
		return nil
	case q.MaxTokens == nil:
		return badRequest("max_tokens: Field required")
	case *q.MaxTokens < 1:
		return badRequest("max_tokens: Input should be greater than or equal to 1")
	case *q.MaxTokens > m.MaxOutput:
		return badRequest("max_tokens: %d > %d, which is the maximum allowed number of output tokens for %s",
			*q.MaxTokens, m.MaxOutput, m.ID)
	case !slices.Contains([]string{"", "auto", "standard_only"}, q.ServiceTier):
		return badRequest("service_tier: Input should be 'auto' or 'standard_only'")
	case q.OutputConfig != nil &&
		!slices.Contains([]string{"", "low", "medium", "high", "xhigh", "max"}, q.OutputConfig.Effort):
		return badRequest("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
	}
	return nil
}

func (q *messagesRequest) checkSampling(m exchange.Model) *exchange.Refusal {
	t := q.Temperature
	switch {
	case t != nil && (*t < 0 || *t > 1):
		return badRequest("temperature: range: 0..1")
	case m.Fixed && (t != nil && *t != 1 || q.TopP != nil && *q.TopP != 1 || q.TopK != nil):
		return badRequest(
			"`temperature`, `top_p` and `top_k` are not supported for %s; only their defaults may be sent.", m.ID)
	case t != nil && q.TopP != nil:
		return badRequest("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
	}
	return nil
}

// checkThinking checks thinking as provider notes B.8 says.
func (q *messagesRequest) checkThinking(p *exchange.Prompt, beta bool) *exchange.Refusal {
	kind := p.Model.Thinking
	p.Thinks = kind == "always" || kind == "between" || kind == "may"
	if q.MaxTokens != nil {
		p.Limit = *q.MaxTokens
	}
	t := q.Thinking
	if t == nil {
		return nil
	}
	if t.BlockBinding != nil && !beta {
		return badRequest("thinking.%s.block_binding: Extra inputs are not permitted", t.Type)
	}
	allowed := map[string][]string{
		"always": {"adaptive"}, "between": {"adaptive", "between_tools"}, "may": {"adaptive", "enabled", "disabled"},
		"off": {"adaptive", "enabled", "disabled"}, "budget": {"enabled", "disabled"},
	}[kind]
	if !slices.Contains(allowed, t.Type) {
		return badRequest("thinking.type: '%s' is not supported for %s. Supported: %s.", t.Type, p.Model.ID,
			strings.Join(allowed, ", "))
	}
	if t.Type == "enabled" && t.BudgetTokens < 1024 {
		return badRequest("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
	}
	if t.Type == "enabled" && p.Limit > 0 && t.BudgetTokens >= p.Limit {
		return badRequest("`max_tokens` must be greater than `thinking.budget_tokens`.")
	}
	p.Thinks = t.Type != "disabled"
	return nil
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

func (q *messagesRequest) readTools(p *exchange.Prompt) *exchange.Refusal {
	for i, t := range q.Tools {
		var schema struct {
			Type string `json:"type"`
		}
		switch at := fmt.Sprintf("tools.%d.custom", i); {
		case t.Type != "" && t.Type != "custom":
			return badRequest("tools.%d: Input tag '%s' found using 'type' does not match any of the expected tags", i,
				t.Type)
		case !toolName.MatchString(t.Name):
			return badRequest("%s.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'", at)
		case slices.ContainsFunc(p.Tools, func(o exchange.Tool) bool { return o.Name == t.Name }):
			return badRequest("tools: Tool names must be unique.")
		case t.InputSchema.Kind() != '{':
			return badRequest("%s.input_schema: Field required", at)
		default:
			if err := json.Unmarshal(t.InputSchema, &schema); err != nil || schema.Type != "object" {
				return badRequest("%s.input_schema.type: Input should be 'object'", at)
			}
		}
		p.Tools = append(p.Tools, exchange.Tool{Name: t.Name, Schema: t.InputSchema})
		p.Input.AddTexts(t.Name, t.Description, string(t.InputSchema))
	}
	if len(q.Tools) > 0 {
		p.Input.Text += 300 // the hidden instructions for tools
	}
	return q.readToolChoice(p)
}

// readToolChoice checks tool_choice as provider notes B.5 says.
func (q *messagesRequest) readToolChoice(p *exchange.Prompt) *exchange.Refusal {
	c := q.ToolChoice
	if c == nil {
		return nil
	}
	p.Parallel = c.DisableParallelToolUse == nil || !*c.DisableParallelToolUse
	forced := c.Type == "any" || c.Type == "tool"
	switch {
	case !slices.Contains([]string{"auto", "any", "tool", "none"}, c.Type):
		return badRequest(
			"tool_choice: Input tag '%s' found using 'type' does not match any of the expected tags: 'auto', 'any', "+
				"'tool', 'none'", c.Type)
	case len(p.Tools) == 0 && c.Type != "none":
		return badRequest("tool_choice may only be specified while providing tools.")
	case c.Type == "none" && c.DisableParallelToolUse != nil:
		return badRequest("tool_choice.none.disable_parallel_tool_use: Extra inputs are not permitted")
	case c.Type != "tool" && c.Name != "":
		return badRequest("tool_choice.%s.name: Extra inputs are not permitted", c.Type)
	case forced && p.Model.Unforced:
		return badRequest("tool_choice: type '%s' is not supported for %s.", c.Type, p.Model.ID)
	case forced && p.Thinks:
		return badRequest("Thinking may not be enabled when tool_choice forces tool use.")
	case c.Type == "tool" && !slices.ContainsFunc(p.Tools, func(t exchange.Tool) bool { return t.Name == c.Name }):
		return badRequest("Tool '%s' not found in provided tools", c.Name)
	}
	p.Choice = map[string]string{"auto": "auto", "any": "required", "tool": "named", "none": "none"}[c.Type]
	p.Named = c.Name
	return nil
}

// readSystem reads the system prompt.
func (c *messages) readSystem(p *exchange.Prompt) *exchange.Refusal {
	if len(c.request.System) == 0 {
		return nil
	}
	blocks, f := readBlocks(c.request.System, "system")
	for i, b := range blocks {
		if f == nil && b.Type != "text" {
			f = badRequest("system.%d.type: Input should be 'text'", i)
		} else if f == nil && (b.Text == nil || *b.Text == "") {
			f = badRequest("system: text content blocks must be non-empty")
		} else if f == nil {
			p.Input.AddTexts(*b.Text)
		}
	}
	c.instructions = blocks
	return f
}

// readBlocks reads content: a text, or blocks.
func readBlocks(content raw, at string) (blocks []inputBlock, f *exchange.Refusal) {
	if content.Kind() == '"' {
		var text string
		f := decodeBody(content, &text, at)
		return []inputBlock{{Type: "text", Text: &text}}, f
	}
	f = decodeBody(content, &blocks, at)
	return blocks, f
}

// readTurns reads the messages into turns.
func (c *messages) readTurns(p *exchange.Prompt) *exchange.Refusal {
	for i, m := range c.request.Messages {
		at := fmt.Sprintf("messages.%d", i)
		if m.Role != "user" && m.Role != "assistant" {
			return badRequest("%s.role: Input should be 'user' or 'assistant'", at)
		}
		if len(m.Content) == 0 {
			return badRequest("%s.content: Field required", at)
		}
		blocks, f := readBlocks(m.Content, at+".content")
		if f != nil {
			return f
		}
		empty := len(blocks) == 0 || m.Content.Kind() == '"' && *blocks[0].Text == ""
		if empty && (m.Role == "user" || i < len(c.request.Messages)-1) {
			return badRequest("%s: %s messages must have non-empty content", at, m.Role)
		}
		for j := range blocks {
			if f := c.checkBlock(&blocks[j], m.Role, fmt.Sprintf("%s.content.%d", at, j), p); f != nil {
				return f
			}
		}
		p.Input.AddMessage()
		if n := len(c.turns); n > 0 && c.turns[n-1].Role == m.Role {
			c.turns[n-1].Blocks = append(c.turns[n-1].Blocks, blocks...)
		} else {
			c.turns = append(c.turns, inputTurn{m.Role, blocks})
		}
	}
	if c.turns[0].Role != "user" {
		return badRequest("messages: first message must use the \"user\" role")
	}
	return c.checkSizes()
}

var toolUseID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// checkBlock checks one block and counts it.
func (c *messages) checkBlock(b *inputBlock, role, at string, p *exchange.Prompt) *exchange.Refusal {
	b.at, b.CacheControl = at, nil // no part of what thinking is bound to
	users := map[string]bool{
		"image":             true,
		"tool_result":       true,
		"tool_use":          false,
		"thinking":          false,
		"redacted_thinking": false,
	}
	if user, known := users[b.Type]; b.Type != "text" && (!known || user != (role == "user")) {
		return badRequest(
			"%s: Input tag '%s' found using 'type' does not match any of the expected tags in a message of the %s", at,
			b.Type, role)
	}
	switch b.Type {
	case "text":
		if b.Text == nil {
			return badRequest("%s.text.text: Field required", at)
		} else if *b.Text == "" {
			return badRequest("messages: text content blocks must be non-empty")
		} else if strings.TrimSpace(*b.Text) == "" {
			return badRequest("messages: text content blocks must contain non-whitespace text")
		}
		p.Input.AddTexts(*b.Text)
	case "image":
		return c.checkImage(b.Source, at, p)
	case "tool_use":
		if !toolUseID.MatchString(b.ID) {
			return badRequest("%s.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", at)
		} else if !toolName.MatchString(b.Name) {
			return badRequest("%s.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'", at)
		} else if b.Input.Kind() != '{' {
			return badRequest("%s.tool_use.input: Input should be a valid dictionary", at)
		}
		p.Input.AddTexts(b.Name, string(b.Input))
	case "tool_result":
		return c.checkResult(b, at, p)
	case "thinking":
		if b.Signature == "" {
			return badRequest("%s.thinking.signature: Field required", at)
		}
	}
	return nil
}

// checkResult reads the content of a tool's result.
func (c *messages) checkResult(b *inputBlock, at string, p *exchange.Prompt) *exchange.Refusal {
	if !toolUseID.MatchString(b.ToolUseID) {
		return badRequest("%s.tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'", at)
	}
	if len(b.Content) == 0 || b.Content.Kind() == 'n' {
		return nil
	}
	blocks, f := readBlocks(b.Content, at+".tool_result.content")
	if f != nil {
		return f
	}
	for i, part := range blocks {
		at := fmt.Sprintf("%s.tool_result.content.%d", at, i)
		switch {
		case part.Type == "image":
			f = c.checkImage(part.Source, at, p)
		case part.Type != "text" || part.Text == nil:
			f = badRequest("%s: Input tag '%s' found using 'type' does not match any of the expected tags: 'image', "+
				"'text'", at, part.Type)
		case *part.Text == "" && b.Content.Kind() == '[':
			f = badRequest("messages: text content blocks must be non-empty")
		default:
			p.Input.AddTexts(*part.Text)
		}
		if f != nil {
			return f
		}
	}
	return nil
}

// checkImage checks an image as provider notes B.4 says.
func (c *messages) checkImage(s *imageSource, at string, p *exchange.Prompt) *exchange.Refusal {
	if s == nil {
		return badRequest("%s.image.source: Field required", at)
	}
	kinds := []string{"image/jpeg", "image/png", "image/gif", "image/webp"}
	switch {
	case s.Type == "url" && strings.HasPrefix(s.URL, "https://"):
		c.pictures = append(c.pictures, exchange.Image{})
		p.Input.Images += 1_600
		return nil
	case s.Type != "base64":
		return badRequest("%s.image.source: only base64 and https sources are supported", at)
	case !slices.Contains(kinds, s.MediaType):
		return badRequest(
			"%s.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'",
			at)
	case len(s.Data)/4*3 > 5<<20:
		return badRequest("%s.image.source.base64: image exceeds 5 MB maximum: %d bytes > 5242880 bytes", at,
			len(s.Data)/4*3)
	}
	pic, err := exchange.DecodeImage(s.Data)
	if err != nil {
		return badRequest("%s.image.source.base64.data: The file format is invalid or unsupported", at)
	} else if pic.Kind != s.MediaType {
		return badRequest(
			"%s.image.source.base64.data: The image was specified using the %s media type, but the image appears to "+
				"be a %s image", at, s.MediaType, pic.Kind)
	}
	c.pictures = append(c.pictures, pic)
	most := 4_784
	if !c.model.Fixed {
		most = 1_568
	}
	p.Input.Images += pic.Patches(28, most)
	return nil
}

// checkSizes checks all images together: many must be smaller.
func (c *messages) checkSizes() *exchange.Refusal {
	side := 8000
	if len(c.pictures) > 20 {
		side = 2000
	}
	for _, p := range c.pictures {
		if max(p.Width, p.Height) > side {
			return badRequest(
				"messages: At least one of the image dimensions exceed max allowed size for these images: %d pixels",
				side)
		}
	}
	most := 600
	if c.model.Context <= 200_000 {
		most = 100
	}
	if len(c.pictures) > most {
		return badRequest("messages: too many images: %d > %d", len(c.pictures), most)
	}
	return nil
}

// checkOrder checks that each call has its result, at the beginning of the next turn.
func (c *messages) checkOrder(p *exchange.Prompt) *exchange.Refusal {
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
				return badRequest(
					"messages.%d.content.%d: each tool_use must have a single result. Found multiple `tool_result` "+
						"blocks with id: %s", i, j, b.ToolUseID)
			case at < 0:
				return badRequest(
					"messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each "+
						"`tool_result` block must have a corresponding `tool_use` block in the previous "+
						"message.", i, j, b.ToolUseID)
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
	if used && len(p.Tools) == 0 {
		return badRequest("Requests which include `tool_use` or `tool_result` blocks must define tools.")
	}
	return nil
}

func orphans(i int, ids []string) *exchange.Refusal {
	return badRequest(
		"messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` "+
			"block must have a corresponding `tool_result` block in the next message.", i, strings.Join(ids, ", "))
}

// ids of the calls among blocks.
func ids(blocks []inputBlock) (list []string) {
	for _, b := range blocks {
		if b.Type == "tool_use" {
			list = append(list, b.ID)
		}
	}
	return list
}

// checkLastTurn finds what the user said last, and refuses a conversation that ends with
// the assistant.
func (c *messages) checkLastTurn(p *exchange.Prompt) *exchange.Refusal {
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
			p.Text, p.Rounds, p.Results = strings.Join(texts, "\n"), 0, nil
		case turn.Role == "user":
			p.Results = append(p.Results, results...)
		case len(ids(turn.Blocks)) > 0:
			p.Rounds++
		}
	}
	end := c.turns[len(c.turns)-1]
	if end.Role == "user" {
		return nil
	}
	if !c.model.Prefill {
		return badRequest(
			"This model does not support assistant message prefill. The conversation must end with a user message.")
	}
	if n := len(end.Blocks); n > 0 && end.Blocks[n-1].Type == "text" &&
		strings.TrimRight(*end.Blocks[n-1].Text, " \t\r\n") != *end.Blocks[n-1].Text {
		return badRequest("messages: final assistant content cannot end with trailing whitespace")
	}
	return nil
}
