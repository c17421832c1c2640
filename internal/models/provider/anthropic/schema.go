package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/models/provider"
)

// Claude holds its answers and the arguments of strict tools to a part of JSON Schema. A schema is fitted to it as
// Anthropic's own SDKs do (decision 172): every object is closed, oneOf becomes anyOf, and what the API refuses, such
// as bounds, becomes words of the description, which the model reads.

// maxSchema bounds a schema, in bytes.
const maxSchema = 256 << 10

// fitSchema returns a schema in the form that Claude takes. at is its member, for errors.
func fitSchema(schema []byte, at string) ([]byte, error) {
	if len(schema) > maxSchema {
		return nil, makeRejection("%s: this model takes at most %d bytes", at, maxSchema)
	}
	if why := checkReferences(schema); why != "" {
		return nil, makeRejection("%s: %s", at, why)
	}
	fitted, ok := appendFitted(make([]byte, 0, len(schema)+len(schema)/4), schema)
	if !ok {
		return nil, makeRejection("%s: must be a JSON Schema object", at)
	}
	return fitted, nil
}

// appendFitted appends a schema in the form that Claude takes. It returns false if the schema is no valid JSON. Schemas
// that are no objects, such as true, stand as they are.
func appendFitted(b, schema []byte) ([]byte, bool) {
	if len(schema) == 0 || schema[0] != '{' {
		return append(b, schema...), len(schema) > 0
	}
	if ref := findMember(schema, "$ref"); ref != nil { // what stands beside it has no meaning
		return append(append(append(b, `{"$ref":`...), ref...), '}'), true
	}
	var description []byte
	var notes []string
	hasAnyOf := findMember(schema, "anyOf") != nil
	b = append(b, '{')
	open := len(b)
	isObject, isTyped := false, false
	valid := provider.Members(schema, func(name, value []byte) bool {
		to := string(name)
		switch {
		case to == "description" && value[0] == '"':
			description = value
			return true
		case to == "additionalProperties", to == "$schema", to == "$id", to == "$comment":
			return true // an object is closed below
		case to == "type":
			isTyped = true
			isObject = isObject || isType(value, "object")
		case to == "properties":
			isObject = true
		case to == "oneOf" && !hasAnyOf:
			to = "anyOf"
		}
		rest, ok := appendKept(appendName(b, open, to), to, value)
		if rest == nil {
			notes = append(notes, note(to, value))
		} else {
			b = rest
		}
		return ok
	})
	if isObject && !isTyped {
		b = append(appendName(b, open, "type"), `"object"`...)
	}
	if isObject {
		b = append(appendName(b, open, "additionalProperties"), "false"...)
	}
	if len(notes) > 0 && description != nil {
		var text string
		valid = json.Unmarshal(description, &text) == nil && valid
		notes[0] = text + "\n\n" + notes[0]
	}
	switch {
	case len(notes) > 0:
		b = provider.AppendQuote(appendName(b, open, "description"), strings.Join(notes, " "))
	case description != nil:
		b = append(appendName(b, open, "description"), description...)
	}
	return append(b, '}'), valid
}

// appendName appends the name of a member of an object that begins at open.
func appendName(b []byte, open int, name string) []byte {
	return append(provider.AppendQuote(appendComma(b, len(b)-open), name), ':')
}

// appendKept appends the value of a keyword that Claude takes, fitted. It returns nil for another one.
func appendKept(b []byte, name string, value []byte) (kept []byte, ok bool) {
	switch name {
	case "type", "title", "enum", "const", "default", "required":
		return append(b, value...), true
	case "properties", "$defs", "definitions":
		b = append(b, '{')
		open := len(b)
		ok = provider.Members(value, func(name, value []byte) (fits bool) {
			b, fits = appendFitted(appendName(b, open, string(name)), value)
			return fits
		})
		return append(b, '}'), ok
	case "anyOf", "allOf":
		b = append(b, '[')
		open := len(b)
		ok = provider.Elements(value, func(value []byte) (fits bool) {
			b, fits = appendFitted(appendComma(b, len(b)-open), value)
			return fits
		})
		return append(b, ']'), ok
	case "items":
		if value[0] != '[' {
			return appendFitted(b, value)
		}
	case "format":
		if slices.Contains(formats, string(value)) {
			return append(b, value...), true
		}
	case "minItems":
		if s := string(value); s == "0" || s == "1" {
			return append(b, value...), true
		}
	}
	return nil, true
}

// formats are those of a string to which Claude is held.
var formats = []string{
	`"date-time"`, `"time"`, `"date"`, `"duration"`, `"email"`, `"hostname"`, `"uri"`, `"ipv4"`, `"ipv6"`, `"uuid"`,
}

// phrases say what a keyword asks for.
var phrases = map[string]string{
	"minimum":          "At least %s.",
	"maximum":          "At most %s.",
	"exclusiveMinimum": "More than %s.",
	"exclusiveMaximum": "Less than %s.",
	"multipleOf":       "A multiple of %s.",
	"minLength":        "At least %s characters.",
	"maxLength":        "At most %s characters.",
	"pattern":          "Matches the regular expression %s.",
	"format":           "In the format %s.",
	"minItems":         "At least %s elements.",
	"maxItems":         "At most %s elements.",
	"minProperties":    "At least %s members.",
	"maxProperties":    "At most %s members.",
}

// note says in words what a keyword asks for.
func note(name string, value []byte) string {
	phrase, ok := phrases[name]
	if !ok {
		return fmt.Sprintf("%s: %s.", name, compact(value))
	}
	return fmt.Sprintf(phrase, value)
}

// compact returns JSON without white space.
func compact(value []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return value
	}
	return b.Bytes()
}

// isType reports whether the value of type is a name, or a list with it.
func isType(value []byte, name string) bool {
	if value[0] == '"' {
		return string(value[1:len(value)-1]) == name
	}
	found := false
	provider.Elements(value, func(value []byte) bool {
		found = found || string(value) == `"`+name+`"`
		return true
	})
	return found
}

// findMember returns a member of an object; nil = there is none.
func findMember(object []byte, name string) (found []byte) {
	provider.Members(object, func(n, value []byte) bool {
		if string(n) == name {
			found = value
		}
		return true
	})
	return found
}
