package anthropic

import (
	"slices"
	"strings"

	"github.com/purserhq/purser/emulator/exchange"
)

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
	case slices.ContainsFunc(q.StopSequences, func(s string) bool { return strings.TrimSpace(s) == "" }):
		return badRequest("stop_sequences: each stop sequence must contain non-whitespace")
	case !slices.Contains([]string{"", "auto", "standard_only"}, q.ServiceTier):
		return badRequest("service_tier: Input should be 'auto' or 'standard_only'")
	case q.OutputConfig != nil &&
		!slices.Contains([]string{"", "low", "medium", "high", "xhigh", "max"}, q.OutputConfig.Effort):
		return badRequest("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
	case q.OutputConfig != nil && q.OutputConfig.Effort != "" && m.Thinking == "budget":
		return badRequest("This model does not support the effort parameter.")
	case q.OutputConfig != nil && q.OutputConfig.Effort == "xhigh" && m.Thinking == "off":
		return badRequest("output_config.effort: 'xhigh' is not supported for %s.", m.ID)
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
	if !p.Thinks && p.Model.ID == "claude-opus-5" && q.OutputConfig != nil &&
		(q.OutputConfig.Effort == "xhigh" || q.OutputConfig.Effort == "max") {
		return badRequest("thinking.type: 'disabled' is not supported with effort '%s'.", q.OutputConfig.Effort)
	}
	if p.Thinks && (q.Temperature != nil && *q.Temperature != 1 || q.TopP != nil && *q.TopP < 0.95) {
		return badRequest("`temperature` may only be set to 1 when thinking is enabled.")
	}
	return nil
}

// checkOrder checks that each call has its result, at the beginning of the next turn.
func (c *messages) checkOrder(p *exchange.Prompt) *exchange.Refusal {
	used := false
	for i, turn := range c.turns {
		var calls []string
		if i > 0 {
			calls = toolUseIDs(c.turns[i-1].Blocks)
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
			return missingResults(i-1, open)
		}
	}
	if n := len(c.turns) - 1; len(toolUseIDs(c.turns[n].Blocks)) > 0 {
		return missingResults(n, toolUseIDs(c.turns[n].Blocks))
	}
	if used && len(p.Tools) == 0 {
		return badRequest("Requests which include `tool_use` or `tool_result` blocks must define tools.")
	}
	return nil
}

func missingResults(i int, ids []string) *exchange.Refusal {
	return badRequest(
		"messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` "+
			"block must have a corresponding `tool_result` block in the next message.", i, strings.Join(ids, ", "))
}

// toolUseIDs returns the ids of the calls among blocks.
func toolUseIDs(blocks []inputBlock) (list []string) {
	for _, b := range blocks {
		if b.Type == "tool_use" {
			list = append(list, b.ID)
		}
	}
	return list
}

// checkLastTurn finds the user's last text, and refuses a conversation that ends with the
// assistant, unless the model supports prefill.
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
		case len(toolUseIDs(turn.Blocks)) > 0:
			p.Rounds++
		}
	}
	end := c.turns[len(c.turns)-1]
	if end.Role == "user" {
		return nil
	}
	if !c.model.Prefill || p.Thinks {
		return badRequest(
			"This model does not support assistant message prefill. The conversation must end with a user message.")
	}
	if n := len(end.Blocks); n > 0 && end.Blocks[n-1].Type == "text" &&
		strings.TrimRight(*end.Blocks[n-1].Text, " \t\r\n") != *end.Blocks[n-1].Text {
		return badRequest("messages: final assistant content cannot end with trailing whitespace")
	}
	return nil
}

// readFormat reads the schema of a structured answer (provider notes B.2).
func (q *messagesRequest) readFormat(p *exchange.Prompt) *exchange.Refusal {
	if q.OutputConfig == nil || len(q.OutputConfig.Format) == 0 {
		return nil
	}
	var format struct {
		Type   string `json:"type"`
		Schema raw    `json:"schema"`
	}
	if f := decodeBody(q.OutputConfig.Format, &format, "output_config.format"); f != nil {
		return f
	}
	if format.Type != "json_schema" || format.Schema.Kind() != '{' {
		return badRequest("output_config.format: Input should be a 'json_schema' with a schema")
	}
	if f := checkSchema(format.Schema, "output_config.format.schema"); f != nil {
		return f
	}
	p.Schema = format.Schema
	return nil
}
