package mock

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

var openings = []string{
	"This is a canned answer from mock mode.",
	"Here is a deterministic reply, made without any model.",
	"Mock mode read your message and answers the same every time.",
	"No model was called for this answer, and no real money was spent.",
}

var phrases = []string{
	"its tokens are counted as a live call's would be", "the ledger has one row for it that never changes",
	"the margin of the app was added in the same step", "the user stays in control of the cap",
	"a retry with the same key brings this very text again", "the price comes from today's price book",
	"the hold was released down to the real cost", "one command can check all of it",
}

// composeText makes readable text that depends only on the conversation.
func composeText(r *provider.Request, seed uint64, words int) string {
	if r.ResponseFormat != nil {
		if text, ok := composeJSON(r.ResponseFormat, seed); ok {
			return text
		}
	}
	all := strings.Fields(fmt.Sprintf("%s You said %s.", openings[seed%uint64(len(openings))],
		quoteUserMessage(r.Turns)))
	for first := true; first || len(all) < words; first = false {
		seed = seed*6364136223846793005 + 1442695040888963407
		n := uint64(len(phrases))
		i, step := seed>>33%n, 1+seed>>47%(n-1)
		all = append(all, strings.Fields(fmt.Sprintf("Note that %s, and %s.", phrases[i], phrases[(i+step)%n]))...)
	}
	if words > 0 {
		return strings.Join(all[:words], " ")
	}
	return fmt.Sprintf("%s Reference %04x-%04x.", strings.Join(all, " "), seed>>48, seed>>32&0xffff)
}

// quoteUserMessage quotes the first words of the last user message.
func quoteUserMessage(turns []conversation.Turn) string {
	for i := len(turns) - 1; i >= 0; i-- {
		if turns[i].Role != "user" {
			continue
		}
		var words []string
		for _, b := range turns[i].Blocks {
			words = appendWords(words, b.Text)
		}
		switch {
		case len(words) == 0:
			return "nothing"
		case len(words) > maxQuotedWords:
			words[maxQuotedWords] = "…"
		}
		if quote := []rune(strings.Join(words, " ")); len(quote) > maxQuotedRunes {
			return "“" + string(quote[:maxQuotedRunes]) + "…”"
		}
		return "“" + strings.Join(words, " ") + "”"
	}
	return "nothing"
}

// What bounds the quote of a message, which may be of any length.
const (
	maxQuotedWords = 6
	maxQuotedRunes = 80
)

// appendWords appends the words of a text without the lines of its script, until there is one more than is quoted. Of a
// long word it appends more than is quoted.
func appendWords(words []string, text string) []string {
	for line := range strings.Lines(text) {
		if provider.IsCommand(line, scriptWord, slowWord, cutWord) {
			continue
		}
		for word := range strings.FieldsSeq(line) {
			if len(words) > maxQuotedWords {
				return words
			}
			words = append(words, word[:min(len(word), utf8.UTFMax*(maxQuotedRunes+1))])
		}
	}
	return words
}

// composeJSON returns JSON in the requested format, and false for plain text.
func composeJSON(format json.RawMessage, seed uint64) (string, bool) {
	var f struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if err := json.Unmarshal(format, &f); err != nil || f.Type == "text" {
		return "", false
	}
	if f.Type == "json_schema" && f.JSONSchema.Schema != nil {
		e := examples{values: maxValues, bytes: maxReadBytes}
		text, err := json.Marshal(e.makeExample(f.JSONSchema.Schema))
		if err == nil && len(text) <= maxJSONBytes {
			return string(text), true
		}
	}
	return fmt.Sprintf(`{"answer":"This is a canned answer from mock mode.","reference":%d}`, seed%1_000_000), true
}

// examples makes small values that fit simple schemas, without references and conditions. A schema of a few bytes can
// ask for any number of values of any size, so it bounds both.
type examples struct {
	values int // that it may still make
	bytes  int // of schemas that it may still read: a value is no longer than its schema, but for its quotes
}

const (
	maxValues    = 1000
	maxReadBytes = 256 << 10 // each schema counts in those around it, and once for each item of a list
	maxJSONBytes = 16 << 10  // of a text; about as long as one of MaxWords
)

type schema struct {
	Type       any                        `json:"type"` // a name or a list of them
	Enum       []any                      `json:"enum"`
	Const      any                        `json:"const"`
	Properties map[string]json.RawMessage `json:"properties"`
	Items      json.RawMessage            `json:"items"`
	MinItems   int                        `json:"minItems"`
	Minimum    json.Number                `json:"minimum"`
	AnyOf      []json.RawMessage          `json:"anyOf"`
}

func (e *examples) makeExample(raw json.RawMessage) any {
	var s schema
	e.values, e.bytes = e.values-1, e.bytes-len(raw)
	if e.values < 0 || e.bytes < 0 || json.Unmarshal(raw, &s) != nil {
		return map[string]any{}
	}
	switch {
	case s.Const != nil:
		return s.Const
	case len(s.Enum) > 0:
		return s.Enum[0]
	case len(s.AnyOf) > 0:
		return e.makeExample(s.AnyOf[0])
	}
	switch s.readKind() {
	case "string":
		return "mock"
	case "integer", "number":
		if s.Minimum != "" {
			return s.Minimum
		}
		return 0
	case "boolean":
		return true
	case "null":
		return nil
	case "array":
		items := []any{}
		for len(items) < s.MinItems && e.values > 0 && e.bytes > 0 {
			items = append(items, e.makeExample(s.Items))
		}
		return items
	}
	object := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		object[name] = e.makeExample(s.Properties[name])
	}
	return object
}

func (s *schema) readKind() string {
	if list, ok := s.Type.([]any); ok && len(list) > 0 {
		s.Type = list[0]
	}
	kind, _ := s.Type.(string) // what is no name is an object
	return kind
}
