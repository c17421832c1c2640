package anthropic

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/purserhq/purser/emulator/exchange"
)

// unsupported are the keywords of JSON Schema that structured answers and strict tools refuse (provider notes B.2).
var unsupported = []string{
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "maxItems",
	"uniqueItems", "contains", "minProperties", "maxProperties", "patternProperties", "propertyNames", "oneOf", "not",
	"if", "then", "else", "prefixItems",
}

// formats are those of strings to which answers are held.
var formats = []string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}

// A schemaCheck goes through one schema.
type schemaCheck struct {
	root map[string]any
	open []string // the references that led here
}

// checkSchema refuses a schema to which no answer can be held.
func checkSchema(schema raw, at string) *exchange.Refusal {
	var root map[string]any
	if json.Unmarshal(schema, &root) != nil {
		return badRequest("%s: Input should be an object", at)
	}
	c := schemaCheck{root: root}
	if why := c.visit(root); why != "" {
		return badRequest("%s: %s", at, why)
	}
	return nil
}

// visit says why a schema is refused; "" = it is not.
func (c *schemaCheck) visit(v any) string {
	schema, ok := v.(map[string]any)
	if !ok {
		return "" // a schema of any kind
	}
	if ref, ok := schema["$ref"].(string); ok {
		return c.follow(ref)
	}
	for _, name := range unsupported {
		if _, ok := schema[name]; ok {
			return "property '" + name + "' is not supported"
		}
	}
	if format, ok := schema["format"].(string); ok && !slices.Contains(formats, format) {
		return "format '" + format + "' is not supported"
	}
	if n, ok := schema["minItems"].(float64); ok && n > 1 {
		return "For 'array' type, 'minItems' values other than 0 or 1 are not supported"
	}
	types, _ := schema["type"].([]any)
	isObject := schema["type"] == "object" || slices.Contains(types, any("object"))
	if isObject && schema["additionalProperties"] != false {
		return "For 'object' type, 'additionalProperties' must be explicitly set to false"
	}
	var parts []any
	for _, name := range []string{"properties", "$defs", "definitions"} {
		named, _ := schema[name].(map[string]any)
		for _, part := range named {
			parts = append(parts, part)
		}
	}
	for _, name := range []string{"anyOf", "allOf"} {
		list, _ := schema[name].([]any)
		parts = append(parts, list...)
	}
	for _, part := range append(parts, schema["items"]) {
		if why := c.visit(part); why != "" {
			return why
		}
	}
	return ""
}

// follow goes where a reference leads.
func (c *schemaCheck) follow(ref string) string {
	if ref == "#" || slices.Contains(c.open, ref) {
		return "Recursive schemas are not supported"
	}
	path, ok := strings.CutPrefix(ref, "#/")
	var at any = c.root
	for step := range strings.SplitSeq(path, "/") {
		inner, _ := at.(map[string]any)
		if at = inner[step]; at == nil {
			ok = false
		}
	}
	if !ok {
		return "$ref '" + ref + "' could not be resolved"
	}
	c.open = append(c.open, ref)
	defer func() { c.open = c.open[:len(c.open)-1] }()
	return c.visit(at)
}
