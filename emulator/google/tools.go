package google

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/purserhq/purser/emulator/exchange"
)

var toolName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$`)

func (q *generateRequest) readTools(p *exchange.Prompt) *exchange.Refusal {
	if len(q.Tools) > 1 {
		return badRequest("Multiple tools are supported only when they are all search tools.")
	}
	for _, t := range q.Tools {
		for i, f := range t.FunctionDeclarations {
			at := fmt.Sprintf("GenerateContentRequest.tools[0].function_declarations[%d]", i)
			switch {
			case !toolName.MatchString(f.Name):
				return badRequest(
					"* %s.name: [FIELD_INVALID] Invalid function name. Must start with a letter or an underscore. "+
						"Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), "+
						"with a maximum length of 128.\n", at)
			case slices.ContainsFunc(p.Tools, func(o exchange.Tool) bool { return o.Name == f.Name }):
				return badRequest("Duplicate function declaration found: %s", f.Name)
			case f.Parameters != nil && len(f.ParametersJSONSchema) > 0:
				return badRequest("* %s: parameters and parameters_json_schema are mutually exclusive.\n", at)
			case f.Parameters != nil && strings.EqualFold(f.Parameters.Type, "object") &&
				len(f.Parameters.Properties) == 0 && !p.Model.Signatures:
				return badRequest("* %s.parameters.properties: should be non-empty for OBJECT type\n", at)
			}
			schema := f.ParametersJSONSchema
			if f.Parameters != nil {
				if refusal := f.Parameters.checkFormats(at + ".parameters"); refusal != nil {
					return refusal
				}
				schema = exchange.Encode(f.Parameters)
			}
			p.Tools = append(p.Tools, exchange.Tool{Name: f.Name, Schema: schema})
			p.Input.AddTexts(f.Name, f.Description, string(schema))
		}
	}
	p.AddBlock(exchange.Encode(q.Tools), false)
	return q.readToolConfig(p)
}

// checkFormats refuses formats that are not of a type (provider notes C.5).
func (s *schemaObject) checkFormats(at string) *exchange.Refusal {
	formats := map[string][]string{
		"STRING": {"enum", "date-time"}, "NUMBER": {"float", "double"}, "INTEGER": {"int32", "int64"},
	}[strings.ToUpper(s.Type)]
	if s.Format != "" && !slices.Contains(formats, s.Format) {
		return badRequest("* %s.format: format '%s' is not supported for type %s\n", at, s.Format, s.Type)
	}
	parts := slices.Clone(s.AnyOf)
	if s.Items != nil {
		parts = append(parts, *s.Items)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		parts = append(parts, s.Properties[name])
	}
	for i := range parts {
		if f := parts[i].checkFormats(at); f != nil {
			return f
		}
	}
	return nil
}

func (q *generateRequest) readToolConfig(p *exchange.Prompt) *exchange.Refusal {
	if q.ToolConfig == nil || q.ToolConfig.FunctionCallingConfig == nil {
		return nil
	}
	c := q.ToolConfig.FunctionCallingConfig
	choice, ok := map[string]string{
		"":                 "auto",
		"MODE_UNSPECIFIED": "auto",
		"AUTO":             "auto",
		"ANY":              "required",
		"NONE":             "none",
		"VALIDATED":        "auto",
	}[strings.ToUpper(c.Mode)]
	switch {
	case !ok:
		return badRequest(
			"Invalid value at 'tool_config.function_calling_config.mode' "+
				"(type.googleapis.com/google.ai.generativelanguage.v1beta.FunctionCallingConfig.Mode), \"%s\"", c.Mode)
	case len(p.Tools) == 0 && choice == "required":
		return badRequest("Function calling config is set without function_declarations.")
	case len(c.AllowedFunctionNames) > 0 && choice != "required":
		return badRequest("Allowed function names should only be set when function calling mode is ANY.")
	}
	p.Choice = choice
	for _, name := range c.AllowedFunctionNames {
		if !slices.ContainsFunc(p.Tools, func(t exchange.Tool) bool { return t.Name == name }) {
			return badRequest("Allowed function name %s is not declared.", name)
		}
		p.Choice, p.Named = "named", name
	}
	return nil
}
