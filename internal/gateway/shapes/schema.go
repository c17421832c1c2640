package shapes

import (
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/provider"
)

// SchemaFormat returns the canonical response_format for a JSON Schema. It is strict if OpenAI's strict mode takes the
// schema: every object closes itself and requires all its properties. Others are sent without strict, which the model
// then follows as well as it can.
func SchemaFormat(schema []byte) json.RawMessage {
	out := append([]byte(`{"type":"json_schema","json_schema":{"name":"response","schema":`), schema...)
	if w := provider.NewWalk(schema); isStrict(&w) {
		out = append(out, `,"strict":true`...)
	}
	return append(out, "}}"...)
}

// isStrict takes the schema at w, which is valid JSON. It reads each byte once, however deep the schemas are nested.
func isStrict(w *provider.Walk) bool {
	if w.Null() {
		return true
	}
	isObject, isClosed := false, false
	properties, required := map[string]bool{}, map[string]bool{}
	valid := w.Members(func(name []byte) bool {
		switch string(name) {
		case "type":
			isObject = isObject || string(w.Value()) == `"object"`
		case "additionalProperties":
			isClosed = string(w.Value()) == "false"
		case "properties":
			isObject = isObject || !w.Null()
			return w.Null() || w.Members(func(name []byte) bool {
				properties[string(name)] = true
				return isStrict(w)
			})
		case "required":
			return w.Null() || w.Elements(func() bool {
				text, err := jsontext.AppendUnquote(nil, w.Value())
				required[string(text)] = true
				return err == nil
			})
		case "items":
			return isStrict(w)
		}
		return true
	})
	if !valid || isObject && !isClosed {
		return false
	}
	for name := range properties {
		if !required[name] {
			return false
		}
	}
	return true
}
