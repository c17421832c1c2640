package provider

import "bytes"

// Outline has the members of a response or chunk that a relay reads, as raw JSON; nil = absent or null.
type Outline struct{ Error, Usage, Choices []byte }

// ReadOutline returns the outline of a JSON object, and false if p is not a JSON object.
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

// Payload is the kind of an event's payload.
type Payload int

// The kinds of payloads that a relay distinguishes.
const (
	Ordinary  Payload = iota // a chunk with choices, or one that only the app understands
	Finish                   // [DONE]
	Failure                  // an error object
	UsageOnly                // a chunk with usage and without choices
	WithUsage                // a chunk with choices and usage
	Garbage                  // not a JSON object
)

// Classify returns the kind of a payload, and its usage if it has one; nil if the usage is unusable.
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
