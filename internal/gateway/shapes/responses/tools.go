package responses

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/models/provider"
)

type tool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      *bool          `json:"strict"`
	// The tools of a namespace. Their names are unique within it only.
	Tools   []jsontext.Value `json:"tools"`
	Format  jsontext.Value   `json:"format"` // of the input of a custom tool
	Unknown jsontext.Value   `json:",unknown"`
}

// A declaration is what the canonical tool does not say of the tool that the client declared.
type declaration struct {
	namespace string // "" = none
	custom    bool   // its input is text
}

// joinNamespace returns the canonical name of a namespace's tool.
func joinNamespace(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "__" + name
}

func (c *Call) readTools(b *body) error {
	for i, v := range b.Tools {
		if err := c.readTool(v, fmt.Sprintf("tools[%d]", i), ""); err != nil {
			return err
		}
	}
	return nil
}

// readAdditional reads the tools of an input item. A later declaration of a tool replaces the earlier one.
func (c *Call) readAdditional(tools []jsontext.Value, path string) error {
	declared := len(c.request.Tools)
	for i, v := range tools {
		if err := c.readTool(v, fmt.Sprintf("%s.tools[%d]", path, i), ""); err != nil {
			return err
		}
	}
	added, paths := slices.Clone(c.request.Tools[declared:]), slices.Clone(c.tools[declared:])
	c.request.Tools, c.tools = c.request.Tools[:declared], c.tools[:declared]
	for i, q := range added {
		at := slices.IndexFunc(c.request.Tools[:declared], func(t provider.Tool) bool { return t.Name == q.Name })
		if at >= 0 {
			c.request.Tools[at], c.tools[at] = q, paths[i]
		} else {
			c.request.Tools, c.tools = append(c.request.Tools, q), append(c.tools, paths[i])
		}
	}
	return nil
}

// readTool reads a tool at path, which belongs to a namespace unless that is "".
func (c *Call) readTool(v jsontext.Value, path, namespace string) error {
	var t tool
	if err := decodeAt(path, v, &t); err != nil {
		return err
	}
	switch {
	case t.Type == "function" || t.Type == "custom":
	case t.Type == "namespace" && namespace == "" && t.Name != "":
		c.request.IgnoreIn(path, t.Unknown)
		for i, inner := range t.Tools {
			if err := c.readTool(inner, fmt.Sprintf("%s.tools[%d]", path, i), t.Name); err != nil {
				return err
			}
		}
		return nil
	case plan.IsDroppable(t.Type) && namespace == "":
		c.request.DropTool(t.Type, "tools."+t.Type)
		return nil
	default:
		return plan.Invalid("%s.type: %q is not offered; declare a function, and run it in the client",
			path, t.Type)
	}
	c.request.IgnoreIn(path, t.Unknown)
	if len(c.request.Tools) >= 2*plan.MaxTools { // an item may replace all tools; Check counts what remains
		return plan.Invalid("tools: at most %d", plan.MaxTools)
	}
	q := provider.Tool{Name: joinNamespace(namespace, t.Name), Description: t.Description, Strict: t.Strict}
	d := declaration{namespace: namespace, custom: t.Type == "custom"}
	switch {
	case d.custom:
		if err := c.describeCustom(&q, t.Format, path+".format"); err != nil {
			return err
		}
	case plan.IsSet(t.Parameters):
		q.Parameters = json.RawMessage(t.Parameters)
	}
	if c.declared == nil {
		c.declared = map[string]declaration{}
	}
	c.declared[q.Name] = d
	c.request.Tools = append(c.request.Tools, q)
	c.tools = append(c.tools, path)
	return nil
}

// customParameters are those of the function that a custom tool becomes.
const customParameters = `{"type":"object","properties":{"input":{"type":"string",` +
	`"description":"The whole input of the tool, as plain text."}},"required":["input"],"additionalProperties":false}`

// describeCustom gives a custom tool its parameter. Providers cannot hold a function's input to a grammar, so the
// description tells the model the grammar.
func (c *Call) describeCustom(q *provider.Tool, format jsontext.Value, path string) error {
	q.Parameters, q.Strict = json.RawMessage(customParameters), nil
	if !plan.IsSet(format) {
		return nil
	}
	var f struct {
		Type       string `json:"type"`
		Syntax     string `json:"syntax"`
		Definition string `json:"definition"`

		Unknown jsontext.Value `json:",unknown"`
	}
	if err := decodeAt(path, format, &f); err != nil {
		return err
	}
	c.request.IgnoreIn(path, f.Unknown)
	switch f.Type {
	case "text":
	case "grammar":
		q.Description = strings.TrimPrefix(fmt.Sprintf("%s\n\nThe input must match this grammar (%s):\n%s",
			q.Description, f.Syntax, f.Definition), "\n\n")
	default:
		return plan.Invalid("%s.type: must be text or grammar", path)
	}
	return nil
}

// wrapInput returns the arguments of a canonical call of a custom tool.
func wrapInput(input string) string {
	return string(append(provider.AppendQuote([]byte(`{"input":`), input), '}'))
}

// unwrapInput is the reverse of wrapInput, on raw JSON text without the quotes. A model may ignore the parameters, and
// a response may end inside them: arguments of another form are the input as they are.
func unwrapInput(arguments []byte) []byte {
	var text string
	var wrapped struct {
		Input *string `json:"input"`
	}
	if json.Unmarshal(slices.Concat([]byte{'"'}, arguments, []byte{'"'}), &text) != nil ||
		json.Unmarshal([]byte(text), &wrapped) != nil || wrapped.Input == nil {
		return arguments
	}
	return unquote(provider.AppendQuote(nil, *wrapped.Input))
}

func (c *Call) readChoice(b *body) error {
	if len(c.request.Tools) > 0 { // agents send it without tools too
		c.request.ParallelToolCalls = b.ParallelToolCalls
	}
	v := b.ToolChoice
	if !plan.IsSet(v) {
		return nil
	}
	choice := &c.request.ToolChoice
	switch v.Kind() {
	case '"':
		if err := json.Unmarshal(v, &choice.Mode); err == nil &&
			slices.Contains([]string{"auto", "none", "required"}, choice.Mode) {
			if len(c.request.Tools) == 0 && choice.Mode != "required" && !c.request.HasDropped() {
				choice.Mode = ""
			}
			return nil
		}
	case '{':
		type one struct {
			Type      string `json:"type"`
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		}
		var named struct {
			one
			Mode    string         `json:"mode"`
			Tools   []one          `json:"tools"`
			Unknown jsontext.Value `json:",unknown"`
		}
		if err := decodeAt("tool_choice", v, &named); err != nil {
			return err
		}
		c.request.IgnoreIn("tool_choice", named.Unknown)
		switch {
		case named.Type == "function" || named.Type == "custom":
			*choice = provider.ToolChoice{Mode: "function", Name: joinNamespace(named.Namespace, named.Name)}
			return nil
		case plan.IsDroppable(named.Type):
			c.request.ForceDropped()
			return nil
		case named.Type == "allowed_tools":
			var names []string
			for _, t := range named.Tools {
				if !plan.IsDroppable(t.Type) {
					names = append(names, joinNamespace(t.Namespace, t.Name))
				}
			}
			kept, err := c.request.AllowTools(named.Mode, names)
			for i, at := range kept {
				c.tools[i] = c.tools[at]
			}
			return err
		}
	}
	return plan.Invalid("tool_choice: must be auto, none, required, {type: function, name}, {type: custom, name}, or " +
		"{type: allowed_tools, mode, tools}")
}
