package google

import (
	"fmt"
	"strconv"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// maxRequest bounds a request with the images in it, in bytes.
const maxRequest = 20 << 20

// Encode writes the body of a request. It names every member that may be sent; other members are never forwarded. It
// sends the output cap of the hold, so that the response cannot cost more. An error is a *provider.Error of kind
// Rejected that names the member which the model does not accept. Encode is pure, so that it can run before the hold.
func Encode(r *provider.Request) ([]byte, error) {
	if r.Embedding != nil {
		return encodeEmbeddings(r)
	}
	b := append(make([]byte, 0, sizeHint(r)), '{')
	system := 0
	for system < len(r.Turns) && r.Turns[system].IsSystem() {
		system++
	}
	b = appendInstruction(b, r.Turns[:system])
	b, err := appendContents(append(b, `"contents":[`...), r, system)
	if err != nil {
		return nil, err
	}
	if b, err = appendTools(append(b, ']'), r); err != nil {
		return nil, err
	}
	if b, err = appendConfig(append(b, `,"generationConfig":{`...), r); err != nil {
		return nil, err
	}
	b = append(b, "}}"...)
	if len(b) > maxRequest {
		return nil, makeRejection("messages: %s takes at most 20 MB in one request, images in base64 included", r.Model)
	}
	return b, nil
}

// makeRejection makes the error of a request that this dialect cannot express.
func makeRejection(format string, args ...any) *provider.Error {
	return &provider.Error{Kind: provider.Rejected, Message: fmt.Sprintf(format, args...)}
}

// sizeHint estimates the length of the body in bytes.
func sizeHint(r *provider.Request) int {
	n := 512 + len(r.ResponseFormat) + conversation.SumBytes(r.Turns)
	for i := range r.Tools {
		n += 128 + len(r.Tools[i].Description) + len(r.Tools[i].Parameters)
	}
	return n
}

// appendComma appends a comma, except after an opening bracket or brace.
func appendComma(b []byte) []byte {
	if last := b[len(b)-1]; last != '[' && last != '{' {
		return append(b, ',')
	}
	return b
}

// appendTools writes all functions into one tool, and toolConfig. parallel_tool_calls has no counterpart (contract
// §4.3).
func appendTools(b []byte, r *provider.Request) ([]byte, error) {
	if len(r.Tools) == 0 {
		return b, nil
	}
	b = append(b, `,"tools":[{"functionDeclarations":[`...)
	for i := range r.Tools {
		t := &r.Tools[i]
		b = appendName(append(appendComma(b), `{"name":`...), t.Name)
		if t.Description != "" {
			b = provider.AppendQuote(append(b, `,"description":`...), t.Description)
		}
		if t.Parameters != nil {
			var ok bool
			if b, ok = appendSchema(append(b, `,"parametersJsonSchema":`...), t.Parameters, true); !ok {
				return nil, makeRejection("tools[%d].function.parameters: must be a JSON Schema object", i)
			}
		}
		b = append(b, '}')
	}
	b = append(b, "]}]"...)
	mode := ""
	switch r.ToolChoice.Mode {
	case "":
		return b, nil
	case "none":
		mode = "NONE"
	case "required", "function":
		mode = "ANY"
	default:
		mode = "AUTO"
	}
	b = append(append(append(b, `,"toolConfig":{"functionCallingConfig":{"mode":"`...), mode...), '"')
	if r.ToolChoice.Mode == "function" {
		b = append(appendName(append(b, `,"allowedFunctionNames":[`...), r.ToolChoice.Name), ']')
	}
	return append(b, "}}"...), nil
}

// Gemini's function names begin with a letter or an underscore; ours may also begin with a digit or a dash. appendName
// puts an underscore before such names, and before names that look like the result, so that ourName can always remove
// it.

func appendName(b []byte, name string) []byte {
	if isShifted(name) {
		name = "_" + name
	}
	return provider.AppendQuote(b, name)
}

// ourName reverses appendName.
func ourName(name string) string {
	if isShifted(name) && name[0] == '_' {
		return name[1:]
	}
	return name
}

// isShifted reports whether the first character after leading underscores is a digit or a dash.
func isShifted(name string) bool {
	for i := range len(name) {
		if c := name[i]; c != '_' {
			return c == '-' || '0' <= c && c <= '9'
		}
	}
	return false
}

// appendSchema writes a JSON Schema without the member $schema, which Gemini does not know. It adds the required type
// object to the schema of a function's arguments if the schema has no type. It reports whether the schema is an object.
func appendSchema(b, schema []byte, arguments bool) ([]byte, bool) {
	if arguments && !provider.Members(schema, func(name, _ []byte) bool {
		switch string(name) {
		case "type", "$ref", "anyOf", "oneOf", "allOf":
			arguments = false
		}
		return true
	}) {
		return b, false
	}
	b = append(b, '{')
	if arguments {
		b = append(b, `"type":"object"`...)
	}
	ok := provider.Members(schema, func(name, value []byte) bool {
		if string(name) != "$schema" {
			b = append(append(provider.AppendQuote(appendComma(b), string(name)), ':'), value...)
		}
		return true
	})
	return append(b, '}'), ok
}

// appendConfig writes the members of generationConfig.
func appendConfig(b []byte, r *provider.Request) ([]byte, error) {
	b = strconv.AppendInt(append(b, `"maxOutputTokens":`...), r.MaxTokens, 10)
	if r.Temperature != nil {
		b = strconv.AppendFloat(append(b, `,"temperature":`...), *r.Temperature, 'g', -1, 64)
	}
	if r.TopP != nil {
		b = strconv.AppendFloat(append(b, `,"topP":`...), *r.TopP, 'g', -1, 64)
	}
	if len(r.Stop) > 0 {
		b = append(b, `,"stopSequences":[`...)
		for _, s := range r.Stop {
			b = provider.AppendQuote(appendComma(b), s)
		}
		b = append(b, ']')
	}
	b, err := appendThinking(b, r)
	if err != nil || r.ResponseFormat == nil {
		return b, err
	}
	return appendFormat(b, r.ResponseFormat)
}

// appendThinking writes the thinking configuration. Gemini 3 and later have levels and always think; Gemini 2.5 has a
// budget of tokens.
func appendThinking(b []byte, r *provider.Request) ([]byte, error) {
	effort, include := r.ReasoningEffort, ""
	if r.WantReasoning && r.Facts.Thinking != "" {
		include = `"includeThoughts":true`
	}
	switch {
	case effort == "" && include != "":
		return append(append(append(b, `,"thinkingConfig":{`...), include...), '}'), nil
	case effort == "":
		return b, nil
	case include != "":
		include += ","
	}
	level, budget := "", ""
	switch effort {
	case "none":
		budget = "0"
	case "minimal":
		level, budget = "MINIMAL", "1024"
	case "low":
		level, budget = "LOW", "1024"
	case "medium":
		level, budget = "MEDIUM", "8192"
	case "high", "xhigh", "max": // there is nothing above
		level, budget = "HIGH", "24576"
	}
	switch {
	case r.Facts.Thinking == "budget" && budget != "":
		b = append(append(b, `,"thinkingConfig":{`...), include...)
		return append(append(append(b, `"thinkingBudget":`...), budget...), '}'), nil
	case r.Facts.Thinking == "level" && level != "":
		b = append(append(b, `,"thinkingConfig":{`...), include...)
		return append(append(append(b, `"thinkingLevel":"`...), level...), `"}`...), nil
	case r.Facts.Thinking == "" && effort == "none":
		return b, nil
	case r.Facts.Thinking == "level" && effort == "none":
		return nil, makeRejection("reasoning_effort: %s always thinks; the least is minimal or low", r.Model)
	}
	return nil, makeRejection("reasoning_effort: %s does not take %.100q", r.Model, effort)
}

// appendFormat writes the response format.
func appendFormat(b, format []byte) ([]byte, error) {
	var kind, schema []byte
	ok := provider.Members(format, func(name, value []byte) bool {
		switch string(name) {
		case "type":
			kind = value
		case "json_schema":
			return string(value) == "null" || provider.Members(value, func(name, value []byte) bool {
				if string(name) == "schema" && string(value) != "null" {
					schema = value
				}
				return true
			})
		}
		return true
	})
	switch {
	case ok && string(kind) == `"text"`:
		return b, nil
	case ok && string(kind) == `"json_object"`:
		schema = nil
	case ok && string(kind) == `"json_schema"`:
	default:
		return nil, makeRejection("response_format.type: must be one of text, json_object, json_schema")
	}
	b = append(b, `,"responseMimeType":"application/json"`...)
	if schema == nil {
		return b, nil
	}
	if b, ok = appendSchema(append(b, `,"responseJsonSchema":`...), schema, false); !ok {
		return nil, makeRejection("response_format.json_schema.schema: must be a JSON Schema object")
	}
	return b, nil
}
