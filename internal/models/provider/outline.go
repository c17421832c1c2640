package provider

import "bytes"

// Outline is what a relay looks at in an answer or a chunk: the members as they
// stand, nil where they are absent or null.
type Outline struct{ Error, Usage, Choices []byte }

// ReadOutline returns the outline of a JSON object; false if p is none.
func ReadOutline(p []byte) (Outline, bool) {
	var o Outline
	ok := Members(p, func(name, value []byte) bool {
		if string(value) == "null" {
			return true
		}
		switch string(name) {
		case "error":
			o.Error = value
		case "usage":
			o.Usage = value
		case "choices":
			o.Choices = value
		}
		return true
	})
	return o, ok
}

// HasChoices reports whether there is at least one choice.
func (o *Outline) HasChoices() bool {
	i := skipSpace(o.Choices, 1)
	return i < len(o.Choices) && o.Choices[0] == '[' && o.Choices[i] != ']'
}

// Payload is what an event's payload means to a relay.
type Payload int

// The payloads that a relay tells apart.
const (
	Ordinary  Payload = iota // a chunk with choices, or one that only the app understands
	Finish                   // [DONE]
	Failure                  // an error object
	UsageOnly                // a chunk without choices that carries usage
	WithUsage                // a chunk with choices that carries usage too
	Garbage                  // not a JSON object
)

// Classify says what a payload is. For payloads with usage it returns that too,
// nil if it is unusable.
func Classify(payload []byte) (Payload, *Usage) {
	o, ok := ReadOutline(payload)
	switch {
	case ok && o.Error == nil && o.Usage == nil:
		return Ordinary, nil
	case string(bytes.TrimSpace(payload)) == "[DONE]":
		return Finish, nil
	case !ok:
		return Garbage, nil
	case o.Error != nil:
		return Failure, nil
	case o.HasChoices():
		return WithUsage, ParseUsage(o.Usage)
	}
	return UsageOnly, ParseUsage(o.Usage)
}
