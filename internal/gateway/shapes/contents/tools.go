package contents

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/models/provider"
)

// A tool declares functions, or names something that Google does by itself.
type tool struct {
	Functions list[declaration] `json:"functionDeclarations,case:ignore"`
	Googles   jsontext.Value    `json:",unknown"`
}

type declaration struct {
	Name                 string         `json:"name"`
	Description          string         `json:"description"`
	Parameters           jsontext.Value `json:"parameters"`
	ParametersJSONSchema jsontext.Value `json:"parametersJsonSchema,case:ignore"`
	Unknown              jsontext.Value `json:",unknown"`
}

func (r *reader) readTools() error {
	for i := range r.body.Tools {
		t := &r.body.Tools[i]
		path := at("tools", i)
		if err := r.readGoogles(t.Googles, path); err != nil {
			return err
		}
		for j := range t.Functions {
			if len(r.out.Tools) == plan.MaxTools {
				return plan.Invalid("tools: at most %d functions", plan.MaxTools)
			}
			if err := r.readFunction(&t.Functions[j], at(path+".functionDeclarations", j)); err != nil {
				return err
			}
		}
	}
	return nil
}

// readGoogles reads the tools of Google's own: a search is dropped beside functions (decision 173), others are refused.
func (r *reader) readGoogles(unknown jsontext.Value, path string) (err error) {
	provider.Members(unknown, func(raw, value []byte) bool {
		name := string(raw)
		if string(value) == "null" {
			return true
		}
		switch strings.ToLower(strings.ReplaceAll(name, "_", "")) {
		case "googlesearch", "googlesearchretrieval":
			r.out.DropTool(name, "tools."+name)
			return true
		}
		err = plan.Invalid("%s.%s: a tool of Google's own, which is not offered here; declare a function, and run it "+
			"in the client", path, name)
		return false
	})
	return err
}

func (r *reader) readFunction(d *declaration, path string) error {
	if !plan.IsToolName(d.Name) {
		return plan.Invalid("%s.name: required, must match %s", path, plan.ToolNameRule())
	}
	schema, from := d.ParametersJSONSchema, path+".parametersJsonSchema"
	if plan.IsSet(d.Parameters) {
		if plan.IsSet(schema) {
			return plan.Invalid("%s.parameters: parametersJsonSchema means the same; send one", path)
		}
		schema, from = d.Parameters, path+".parameters"
		if r.call.openAPI == nil {
			r.call.openAPI = map[string]bool{}
		}
		r.call.openAPI[path] = true
	}
	t := provider.Tool{Name: d.Name, Description: d.Description}
	if plan.IsSet(schema) {
		plain, err := readSchema(schema, from)
		if err != nil {
			return err
		}
		t.Parameters = json.RawMessage(plain)
	}
	r.out.IgnoreIn("tools.functionDeclarations", d.Unknown)
	r.out.Tools = append(r.out.Tools, t)
	r.call.tools = append(r.call.tools, path)
	return nil
}

type toolConfig struct {
	Calling *struct {
		Mode    string         `json:"mode"`
		Allowed []string       `json:"allowedFunctionNames,case:ignore"`
		Unknown jsontext.Value `json:",unknown"`
	} `json:"functionCallingConfig,case:ignore"`
	Unknown jsontext.Value `json:",unknown"`
}

// readChoice reads whether the model may or must call functions, and which.
func (r *reader) readChoice() error {
	if r.body.ToolConfig == nil {
		return nil
	}
	r.out.IgnoreIn("toolConfig", r.body.ToolConfig.Unknown)
	c := r.body.ToolConfig.Calling
	if c == nil {
		return nil
	}
	const path = "toolConfig.functionCallingConfig"
	r.out.IgnoreIn(path, c.Unknown)
	modes := map[string]string{
		"": "", "MODE_UNSPECIFIED": "", "AUTO": "auto", "VALIDATED": "auto", "ANY": "required", "NONE": "none",
	}
	mode, ok := modes[strings.ToUpper(c.Mode)]
	switch {
	case !ok:
		return plan.Invalid(path + ".mode: must be one of AUTO, ANY, NONE, VALIDATED")
	case len(c.Allowed) > 0 && mode != "required" && !strings.EqualFold(c.Mode, "VALIDATED"):
		return plan.Invalid(path + ".allowedFunctionNames: requires the mode ANY or VALIDATED")
	case len(r.out.Tools) == 0 && !r.out.HasDropped() && mode != "required": // there is nothing to choose from
		return nil
	case len(c.Allowed) == 0:
		r.out.ToolChoice.Mode = mode
		return nil
	}
	for _, name := range c.Allowed {
		if !slices.ContainsFunc(r.out.Tools, func(t provider.Tool) bool { return t.Name == name }) {
			return plan.Invalid(path+".allowedFunctionNames: %q is not among the functions", name)
		}
	}
	if len(c.Allowed) == 1 && mode == "required" {
		r.out.ToolChoice = provider.ToolChoice{Mode: "function", Name: c.Allowed[0]}
		return nil
	}
	kept, err := r.out.AllowTools(mode, c.Allowed)
	if err != nil {
		return err
	}
	var paths []string
	for _, i := range kept {
		paths = append(paths, r.call.tools[i])
	}
	r.call.tools = paths
	return nil
}

// appendSchema appends the JSON Schema that a schema in OpenAPI's way at w says: its types are in capital letters, it
// may be nullable, and its counts may be texts. It returns false if it is none.
func appendSchema(b []byte, w *provider.Walk) (out []byte, ok bool) {
	start := len(b)
	b = append(b, '{')
	var counts []string // that it has
	first, nullable, bound, kind := true, false, false, []byte(nil)
	name := func(n []byte) {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(provider.AppendQuote(b, string(n)), ':')
	}
	inner := func() bool {
		b, ok = appendSchema(b, w)
		return ok
	}
	separate := func(empty int) {
		if len(b) > empty {
			b = append(b, ',')
		}
	}
	ok = w.Members(func(n []byte) bool {
		if w.Null() {
			return true
		}
		switch string(n) {
		case "type":
			kind = bytes.ToLower(w.Value())
			return kind[0] == '"'
		case "nullable":
			nullable = string(w.Value()) == "true"
		case "propertyOrdering", "property_ordering", "example":
			w.Value() // says nothing that a model needs
		case "items":
			name(n)
			return inner()
		case "anyOf", "any_of":
			if bound {
				return false
			}
			name([]byte("anyOf"))
			bound, b = true, append(b, '[')
			empty := len(b)
			valid := w.Elements(func() bool {
				separate(empty)
				return inner()
			})
			b = append(b, ']')
			return valid
		case "properties":
			name(n)
			b = append(b, '{')
			empty := len(b)
			valid := w.Members(func(n []byte) bool {
				separate(empty)
				b = append(provider.AppendQuote(b, string(n)), ':')
				return inner()
			})
			b = append(b, '}')
			return valid
		case "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties",
			"min_items", "max_items", "min_length", "max_length", "min_properties", "max_properties":
			member, count := string(camel(n)), bytes.Trim(w.Value(), `"`)
			_, err := strconv.ParseUint(string(count), 10, 63)
			if err != nil || slices.Contains(counts, member) {
				return false
			}
			counts = append(counts, member)
			name([]byte(member))
			b = append(b, count...)
		default:
			bound = bound || string(n) == "enum"
			name(n)
			b = append(b, w.Value()...)
		}
		return true
	})
	hasType := len(kind) > 2 && string(kind) != `"type_unspecified"`
	if hasType {
		name([]byte("type"))
	}
	switch {
	case hasType && nullable && !bound:
		b = append(append(append(b, '['), kind...), `,"null"]`...)
	case hasType:
		b = append(b, kind...)
	}
	b = append(b, '}')
	if nullable && (bound || !hasType) { // the words of the schema itself allow no null
		whole := bytes.Clone(b[start:])
		b = append(append(append(b[:start], `{"anyOf":[`...), whole...), `,{"type":"null"}]}`...)
	}
	return b, ok
}

// camel returns a name of two words in camelCase.
func camel(name []byte) []byte {
	first, second, ok := bytes.Cut(name, []byte("_"))
	if !ok || len(second) == 0 {
		return name
	}
	return append(append(bytes.Clone(first), second[0]-'a'+'A'), second[1:]...)
}
