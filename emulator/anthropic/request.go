package anthropic

import (
	"fmt"
	"net/http"
	"strings"

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

	marks int // blocks with cache_control
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

// An inputTurn has the merged blocks of consecutive messages of one role.
type inputTurn struct {
	Role   string       `json:"role"`
	Blocks []inputBlock `json:"blocks"`
}

// maxBody is how many bytes a request may have.
const maxBody = 32 << 20

func badRequest(format string, args ...any) *exchange.Refusal {
	return &exchange.Refusal{Status: 400, Message: fmt.Sprintf(format, args...)}
}

// decodeBody decodes a part of a request at a path, and refuses unknown members.
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

func (c *messages) ReadPrompt(r *http.Request, body []byte) (*exchange.Prompt, *exchange.Refusal) {
	q := &c.request
	if len(body) > maxBody {
		return nil, &exchange.Refusal{Status: http.StatusRequestEntityTooLarge,
			Message: "Request exceeds the maximum size"}
	}
	if f := decodeBody(body, q, ""); f != nil {
		return nil, f
	}
	m, ok := c.api.server.FindModel(exchange.Anthropic, q.Model)
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
		func() *exchange.Refusal { return q.readFormat(p) },
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
