package plan

import (
	"regexp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/provider"
)

// What follows lets the shapes of other APIs apply the rules of the canonical body to their own members.

// Bounds of a request in any shape.
const (
	MaxMessages = maxMessages
	MaxTools    = maxTools
	MaxStops    = 4   // stop sequences
	MaxStop     = 256 // bytes of one
)

// CountParts adds to the content parts and tool calls of the request, and refuses too many. Each reader of a body calls
// it before it reads what it counts, or directly after that, so that a body cannot hide millions in many messages.
func (p *Request) CountParts(n int) error {
	if p.parts += n; p.parts > maxParts {
		return invalid("messages: at most %d content parts and tool calls in all", maxParts)
	}
	return nil
}

// Invalid refuses a request. It shortens what it quotes of the request.
func Invalid(format string, args ...any) error { return invalid(format, args...) }

// IsSet reports whether a member is there and is not null.
func IsSet(v jsontext.Value) bool { return isSet(v) }

// IsToolName reports whether a tool may be declared with this name.
func IsToolName(name string) bool { return toolName.MatchString(name) }

// ToolNameRule is the pattern of tool names, for messages.
func ToolNameRule() string { return toolName.String() }

// IgnoreIn notes the unknown members of what stands at a path, once for all the places of a list. A value that says
// nothing is not noted, nor are the members but, which clients send back of our own answers.
func (p *Request) IgnoreIn(path string, unknown jsontext.Value, but ...string) {
	if len(unknown) == 0 {
		return
	}
	path = placeInList.ReplaceAllString(path, "")
	provider.Members(unknown, func(rawName, value []byte) bool {
		switch name := string(rawName); {
		case string(value) == "null", string(value) == "[]", string(value) == "{}", slices.Contains(but, name):
		case !slices.Contains(p.Ignored, path+"."+name):
			p.Ignore(path + "." + name)
		}
		return true
	})
}

var placeInList = regexp.MustCompile(`\[\d+\]`)

// IgnoreUnknown notes the unknown members of a shape's body. It refuses those that look like a bound on the cost; bound
// returns the member that was meant, or "".
func (p *Request) IgnoreUnknown(unknown jsontext.Value, bound func(name string) string) (err error) {
	if len(unknown) == 0 {
		return nil
	}
	provider.Members(unknown, func(rawName, value []byte) bool {
		if string(value) == "null" {
			return true
		}
		name := string(rawName)
		if right := bound(name); right != "" {
			err = invalid("%s: is not a member of this request; send %s", name, right)
			return false
		}
		p.Ignore(name)
		return true
	})
	return err
}
