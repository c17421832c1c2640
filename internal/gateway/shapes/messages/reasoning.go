package messages

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/provider"
)

// Reasoning comes in the canonical form as extra_content: an object that names the provider, with its opaque data. The
// blocks of Anthropic go to the client as they are. Those of other providers travel in the signature of a thinking
// block, which clients send back unchanged.

// opaquePrefix begins a signature that we have made. Anthropic's own are base64, which has no dot.
const opaquePrefix = "extra."

// An opaque is an extra_content with where it came from.
type opaque struct {
	call  bool // from the tool call that follows; otherwise from the message
	extra []byte
}

func appendOpaque(b []byte, o opaque) []byte {
	b = append(b, opaquePrefix...)
	if o.call {
		b = append(b, "call."...)
	} else {
		b = append(b, "message."...)
	}
	return base64.RawURLEncoding.AppendEncode(b, o.extra)
}

// decodeOpaque reads what follows the prefix of a signature of ours.
func decodeOpaque(text string) (o opaque, ok bool) {
	place, data, _ := strings.Cut(text, ".")
	if place != "call" && place != "message" {
		return o, false
	}
	extra, err := base64.RawURLEncoding.DecodeString(data)
	return opaque{place == "call", extra}, err == nil && isObject(extra)
}

// extras collects the extra_content of one message or call from several blocks: lists are joined, other members
// replaced.
type extras struct {
	providers map[string]map[string][]json.RawMessage // the values of each member, in the order in which they came
	order     []string                                // the providers, in the order in which they came
	native    []byte                                  // blocks of Anthropic, with commas between
}

// add adds one extra_content.
func (e *extras) add(extra []byte) {
	provider.Members(extra, func(name, value []byte) bool {
		var members map[string]json.RawMessage
		if json.Unmarshal(value, &members) != nil {
			return true
		}
		to := e.providers[string(name)]
		if to == nil {
			if e.providers == nil {
				e.providers = map[string]map[string][]json.RawMessage{}
			}
			to = map[string][]json.RawMessage{}
			e.providers[string(name)] = to
			e.order = append(e.order, string(name))
		}
		for key, member := range members {
			to[key] = append(to[key], member)
		}
		return true
	})
}

// joinLists returns the last of the values, with the elements of the lists directly before it if it is a list too. It
// reads each value once: a request may have thousands of blocks.
func joinLists(values []json.RawMessage) json.RawMessage {
	isList := func(i int) bool { return jsontext.Value(values[i]).Kind() == '[' }
	first := len(values) - 1
	for first > 0 && isList(first) && isList(first-1) {
		first--
	}
	if first == len(values)-1 {
		return values[first]
	}
	joined := []byte{'['}
	for _, list := range values[first:] {
		provider.Elements(list, func(value []byte) bool {
			if len(joined) > 1 {
				joined = append(joined, ',')
			}
			joined = append(joined, value...)
			return true
		})
	}
	return append(joined, ']')
}

func (e *extras) addNative(block []byte) {
	if e.native != nil {
		e.native = append(e.native, ',')
	}
	e.native = append(e.native, block...)
}

// encode returns the extra_content; nil = there is none.
func (e *extras) encode() json.RawMessage {
	if e.native != nil {
		e.add(append(append([]byte(`{"anthropic":{"thinking":[`), e.native...), "]}}"...))
		e.native = nil
	}
	if len(e.order) == 0 {
		return nil
	}
	b := []byte{'{'}
	for i, name := range e.order {
		if i > 0 {
			b = append(b, ',')
		}
		joined := map[string]json.RawMessage{}
		for key, values := range e.providers[name] {
			joined[key] = joinLists(values)
		}
		members, err := json.Marshal(joined)
		if err != nil {
			return nil // cannot happen: they were decoded from JSON
		}
		b = append(append(provider.AppendQuote(b, name), ':'), members...)
	}
	return append(b, '}')
}

// A thought is a thinking block of Anthropic in an extra_content. Its strings are raw JSON without the quotes.
type thought struct{ text, signature, data []byte } // data: of redacted_thinking

// nativeThoughts returns the blocks of an extra_content that has nothing but thinking of Anthropic,
// and otherwise false.
func nativeThoughts(extra []byte) (list []thought, ok bool) {
	ok = provider.Members(extra, func(name, value []byte) bool {
		return string(name) == "anthropic" && provider.Members(value, func(name, value []byte) bool {
			return string(name) == "thinking" && provider.Elements(value, func(block []byte) bool {
				var kind string
				var t thought
				valid := provider.Members(block, func(name, value []byte) bool {
					if jsontext.Value(value).Kind() != '"' {
						return false
					}
					text := value[1 : len(value)-1]
					switch string(name) {
					case "type":
						kind = string(text)
					case "thinking":
						t.text = text
					case "signature":
						t.signature = text
					case "data":
						t.data = text
					}
					return true
				})
				list = append(list, t)
				return valid && (kind == "thinking" && t.text != nil && len(t.signature) > 0 && t.data == nil ||
					kind == "redacted_thinking" && len(t.data) > 0)
			})
		})
	})
	return list, ok && len(list) > 0
}
