package apitest

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"
)

// An Operation is a route of openapi.yaml with all that a request needs.
type Operation struct {
	Method, Path string
	Security     []string          // names of the ways to authenticate, any of which will do; none = none is needed
	Params       map[string]string // of the path, by name, with an example
	Query        map[string]string // parameters of the query, likewise
	MediaType    string            // of the body; "" = there is none
	Bodies       [][]byte          // examples
}

// Operations returns every operation of openapi.yaml, by path and method.
func Operations() (list []Operation) {
	c, err := loadContract()
	if err != nil {
		panic(err)
	}
	for _, path := range slices.Sorted(maps.Keys(c.doc.Paths.Map())) {
		item := c.doc.Paths.Value(path)
		for _, method := range slices.Sorted(maps.Keys(item.Operations())) {
			list = append(list, describe(method, path, item, item.GetOperation(method)))
		}
	}
	return list
}

func describe(method, path string, item *openapi3.PathItem, op *openapi3.Operation) Operation {
	o := Operation{Method: method, Path: path, Params: map[string]string{}, Query: map[string]string{}}
	if op.Security != nil {
		for _, way := range *op.Security {
			o.Security = slices.AppendSeq(o.Security, maps.Keys(way))
		}
	}
	for _, ref := range slices.Concat(item.Parameters, op.Parameters) {
		p := ref.Value
		switch example := exampleText(p.Example, p.Schema); p.In {
		case "path":
			o.Params[p.Name] = example
		case "query":
			o.Query[p.Name] = example
		}
	}
	if op.RequestBody == nil {
		return o
	}
	content := op.RequestBody.Value.Content
	for _, media := range slices.Sorted(maps.Keys(content)) {
		o.MediaType = media
		m := content[media]
		var examples []any
		for _, name := range slices.Sorted(maps.Keys(m.Examples)) {
			examples = append(examples, m.Examples[name].Value.Value)
		}
		if m.Example != nil {
			examples = append(examples, m.Example)
		}
		if len(examples) == 0 {
			examples = append(examples, exampleOf(m.Schema, 0))
		}
		for _, example := range examples {
			if b, err := json.Marshal(example); err == nil {
				o.Bodies = append(o.Bodies, b)
			}
		}
		if media == "application/json" {
			break
		}
	}
	return o
}

func exampleText(example any, schema *openapi3.SchemaRef) string {
	if example == nil {
		example = exampleOf(schema, 0)
	}
	if text, ok := example.(string); ok {
		return text
	}
	b, _ := json.Marshal(example) // it was JSON
	return string(b)
}

// exampleOf returns the example of a schema, or one made of those of its members.
func exampleOf(ref *openapi3.SchemaRef, depth int) any {
	if ref == nil || ref.Value == nil || depth > maxNested {
		return nil
	}
	s := ref.Value
	if s.Example != nil {
		return s.Example
	}
	if s.Type.Includes("object") || len(s.Properties) > 0 {
		members := map[string]any{}
		for name, p := range s.Properties {
			if v := exampleOf(p, depth+1); v != nil && (p.Value.Example != nil || slices.Contains(s.Required, name)) {
				members[name] = v
			}
		}
		return members
	}
	for _, one := range slices.Concat(s.AllOf, s.OneOf, s.AnyOf) {
		return exampleOf(one, depth+1)
	}
	var v any
	if err := json.Unmarshal([]byte(smallest(ref, depth)), &v); err != nil {
		return nil
	}
	return v
}
