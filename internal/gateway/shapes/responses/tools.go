package responses

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/models/provider"
)

// dropped are tools that agents offer by default. The model works without them, and nothing runs that would cost, so
// they are dropped. The other ones carry what an app relies on, so they are refused. custom takes text instead of JSON.
var dropped = []string{"web_search", "web_search_preview", "image_generation", "custom"}

type tool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      *bool          `json:"strict"`
	// The functions of a namespace. Their names are unique within it only.
	Tools []jsontext.Value `json:"tools"`
}

// joinNamespace returns the canonical name of a namespace's function.
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
	if len(c.request.Tools) > 0 { // agents send it without tools too
		c.request.ParallelToolCalls = b.ParallelToolCalls
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
	case t.Type == "function":
	case t.Type == "namespace" && namespace == "" && t.Name != "":
		for i, inner := range t.Tools {
			if err := c.readTool(inner, fmt.Sprintf("%s.tools[%d]", path, i), t.Name); err != nil {
				return err
			}
		}
		return nil
	case slices.Contains(dropped, t.Type) && namespace == "":
		c.request.Ignore("tools." + t.Type)
		return nil
	default:
		return plan.Invalid("%s.type: %q is not offered; declare a function, and run it in the client",
			path, t.Type)
	}
	q := provider.Tool{Name: joinNamespace(namespace, t.Name), Description: t.Description, Strict: t.Strict}
	if plan.IsSet(t.Parameters) {
		q.Parameters = json.RawMessage(t.Parameters)
	}
	if namespace != "" {
		if c.namespaces == nil {
			c.namespaces = map[string]string{}
		}
		c.namespaces[q.Name] = namespace
	}
	c.request.Tools = append(c.request.Tools, q)
	c.tools = append(c.tools, path)
	return nil
}

func (c *Call) readChoice(b *body) error {
	v := b.ToolChoice
	if !plan.IsSet(v) {
		return nil
	}
	choice := &c.request.ToolChoice
	switch v.Kind() {
	case '"':
		if err := json.Unmarshal(v, &choice.Mode); err == nil &&
			slices.Contains([]string{"auto", "none", "required"}, choice.Mode) {
			if len(c.request.Tools) == 0 && choice.Mode != "required" {
				choice.Mode = ""
			}
			return nil
		}
	case '{':
		var named struct {
			Type      string `json:"type"`
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		}
		if err := decodeAt("tool_choice", v, &named); err != nil {
			return err
		}
		switch named.Type {
		case "function":
			*choice = provider.ToolChoice{Mode: "function", Name: joinNamespace(named.Namespace, named.Name)}
			return nil
		case "allowed_tools":
			return plan.Invalid(
				"tool_choice.type: allowed_tools is not offered; send only the tools that may be called")
		}
	}
	return plan.Invalid("tool_choice: must be auto, none, required, or {type: function, name}")
}
