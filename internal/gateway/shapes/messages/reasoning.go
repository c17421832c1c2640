package messages

import (
	"encoding/base64"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/gateway/shapes"
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
	return opaque{place == "call", extra}, err == nil && shapes.IsObject(extra)
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
