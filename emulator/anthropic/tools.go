package anthropic

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/emulator/exchange"
)

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
		if t.Strict != nil && *t.Strict {
			if f := checkSchema(t.InputSchema, fmt.Sprintf("tools.%d.custom.input_schema", i)); f != nil {
				return f
			}
		}
		p.Tools = append(p.Tools, exchange.Tool{Name: t.Name, Schema: t.InputSchema})
		if i == 0 {
			p.Input.Text += 300 // the hidden instructions for tools
		}
		p.Input.AddTexts(t.Name, t.Description, string(t.InputSchema))
		if f := q.addBlock(p, exchange.Encode([]string{t.Name, t.Description, string(t.InputSchema)}), t.CacheControl,
			fmt.Sprintf("tools.%d", i)); f != nil {
			return f
		}
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
