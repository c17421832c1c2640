package responses

import (
	"encoding/base64"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/provider"
)

// A reasoning item carries the canonical extra_content of a message or a tool call in encrypted_content, in Base64, so
// that the reasoning of every provider comes back with the next request. An item that OpenAI itself has encrypted is
// handed through as it is.

// appendEncrypted appends encrypted_content for extra content, without quotes.
func appendEncrypted(b, extra []byte) []byte { return base64.StdEncoding.AppendEncode(b, extra) }

// readEncrypted returns the extra content of a reasoning item, or nil if the item has none.
func readEncrypted(raw jsontext.Value, encrypted string) json.RawMessage {
	if encrypted == "" {
		return nil
	}
	// OpenAI's own encrypted content is no JSON.
	extra, err := base64.StdEncoding.DecodeString(encrypted)
	if err == nil && jsontext.Value(extra).IsValid() && jsontext.Value(extra).Kind() == '{' {
		return extra
	}
	return json.RawMessage(`{"openai":{"reasoning":[` + string(raw) + `]}}`)
}

// mergeExtra joins the extra content of two places. Lists that both have are joined; of other members, later ones
// replace earlier ones.
func mergeExtra(first, second json.RawMessage) json.RawMessage {
	if len(first) == 0 || string(first) == "null" {
		return second
	}
	if len(second) == 0 || string(second) == "null" {
		return first
	}
	return mergeValues(first, second)
}

func mergeValues(first, second []byte) []byte {
	a, b := jsontext.Value(first), jsontext.Value(second)
	switch {
	case a.Kind() == '{' && b.Kind() == '{':
		return mergeObjects(first, second)
	case a.Kind() == '[' && b.Kind() == '[':
		return mergeLists(first, second)
	}
	return second
}

func mergeObjects(first, second []byte) []byte {
	out := []byte{'{'}
	add := func(name, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(provider.AppendQuote(out, string(name)), ':'), value...)
	}
	others := map[string][]byte{}
	provider.Members(second, func(name, value []byte) bool {
		others[string(name)] = value
		return true
	})
	provider.Members(first, func(name, value []byte) bool {
		if other, ok := others[string(name)]; ok {
			value = mergeValues(value, other)
			delete(others, string(name))
		}
		add(name, value)
		return true
	})
	provider.Members(second, func(name, value []byte) bool {
		if _, ok := others[string(name)]; ok {
			delete(others, string(name))
			add(name, value)
		}
		return true
	})
	return append(out, '}')
}

func mergeLists(first, second []byte) []byte {
	out := []byte{'['}
	for _, list := range [][]byte{first, second} {
		provider.Elements(list, func(value []byte) bool {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, value...)
			return true
		})
	}
	return append(out, ']')
}
