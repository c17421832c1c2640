package openai

import "github.com/purserhq/purser/internal/models/provider"

// A response with tool calls always has the finish reason tool_calls (contract §4.3). Older models say stop when the
// request forced a call by name. Then only that word is replaced.

const (
	plainStop = `"stop"`
	callsStop = `"tool_calls"`
)

// An ending has the members of a choice that concern its end.
type ending struct {
	calls  bool   // the choice has tool calls
	reason []byte // the raw finish_reason, nil if absent
}

// readEnding reads the first choice of a response or chunk.
func readEnding(choices []byte) (e ending) {
	provider.Elements(choices, func(choice []byte) bool {
		provider.Members(choice, func(name, value []byte) bool {
			switch string(name) {
			case "finish_reason":
				e.reason = value
			case "message", "delta":
				e.calls = e.calls || hasCalls(value)
			}
			return true
		})
		return false // there is only one
	})
	return e
}

// hasCalls reports whether a message or a delta has tool calls.
func hasCalls(message []byte) (some bool) {
	provider.Members(message, func(name, value []byte) bool {
		if string(name) == "tool_calls" {
			provider.Elements(value, func([]byte) bool { some = true; return false })
		}
		return !some
	})
	return some
}

// fixFinishReason returns the body of a whole response with the correct finish reason.
func fixFinishReason(body, choices []byte) []byte {
	if e := readEnding(choices); e.calls && string(e.reason) == plainStop {
		return replacePart(body, e.reason, callsStop)
	}
	return body
}

// replacePart returns a copy of text with word in place of part. The slice part must share the array of text.
func replacePart(text, part []byte, word string) []byte {
	at := cap(text) - cap(part) // both end where the array ends
	b := make([]byte, 0, len(text)-len(part)+len(word))
	return append(append(append(b, text[:at]...), word...), text[at+len(part):]...)
}
