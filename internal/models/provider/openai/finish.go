package openai

import "github.com/purserhq/purser/internal/models/provider"

// An answer with tool calls always ends with the reason tool_calls (contract).
// Where a call was forced by name, older models say stop: then that one word is
// changed, and no other byte.

const (
	plainStop = `"stop"`
	callsStop = `"tool_calls"`
)

// An ending is what a choice says about its end.
type ending struct {
	calls  bool   // it holds tool calls
	reason []byte // the finish_reason as it stands, nil if there is none
}

// readEnding reads the first choice of an answer or a chunk.
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

// hasCalls says whether a message, or a piece of one, has tool calls.
func hasCalls(message []byte) (some bool) {
	provider.Members(message, func(name, value []byte) bool {
		if string(name) == "tool_calls" {
			provider.Elements(value, func([]byte) bool { some = true; return false })
		}
		return !some
	})
	return some
}

// called returns the body of a whole answer with the reason that it should have.
func called(body, choices []byte) []byte {
	if e := readEnding(choices); e.calls && string(e.reason) == plainStop {
		return replaced(body, e.reason, callsStop)
	}
	return body
}

// replaced returns a copy of text with another word in place of part, which is a
// piece of text's array.
func replaced(text, part []byte, word string) []byte {
	at := cap(text) - cap(part) // both end where the array ends
	b := make([]byte, 0, len(text)-len(part)+len(word))
	return append(append(append(b, text[:at]...), word...), text[at+len(part):]...)
}
