package google

import (
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/models/provider"
)

// opening is the user's turn that is put before a conversation that begins with the model, or has only system messages.
// Gemini requires a user's turn there. The other providers accept such conversations, so Purser does not refuse them.
const opening = `{"text":"Begin."}`

// placeholder is the documented stand-in for a signature that is not at hand:
// the app dropped it, or another provider's model made the call.
const placeholder = "skip_thought_signature_validator"

func isSystem(role string) bool { return role == "system" || role == "developer" }

// texts calls f with each text of a message that is not empty: Gemini has no
// use for empty parts.
func texts(m *provider.Message, f func(string)) {
	if m.Text != "" {
		f(m.Text)
	}
	for i := range m.Parts {
		if m.Parts[i].Type == "text" && m.Parts[i].Text != "" {
			f(m.Parts[i].Text)
		}
	}
}

func appendText(b []byte, text string) []byte {
	return append(provider.AppendQuote(append(b, `{"text":`...), text), '}')
}

// appendInstruction writes the leading system messages, one part each text.
func appendInstruction(b []byte, messages []provider.Message) []byte {
	start := len(b)
	b = append(b, `"systemInstruction":{"parts":[`...)
	none := len(b)
	for i := range messages {
		texts(&messages[i], func(s string) { b = appendText(comma(b), s) })
	}
	if len(b) == none {
		return b[:start]
	}
	return append(b, "]},"...)
}

// Whose turn a content is. The results of functions are the user's too, but they
// stand alone: there must be as many of them as there were calls.
type turn int

const (
	nobody turn = iota
	user
	model
	function
)

// contents writes the turns; parts of one turn share a content.
type contents struct {
	r    *provider.Request
	b    []byte
	open turn
}

// appendContents writes the messages from first on.
func appendContents(b []byte, r *provider.Request, first int) ([]byte, error) {
	c := &contents{r: r, b: b}
	for i := first; i < len(r.Messages); i++ {
		var err error
		switch m := &r.Messages[i]; {
		case m.Role == "assistant":
			err = c.model(i, m)
		case m.Role == "tool":
			i, err = c.results(i)
		default: // a late system message is the user's, who alone can speak here
			err = c.user(i, m)
		}
		if err != nil {
			return nil, err
		}
	}
	if c.open == nobody {
		c.part(user)
		c.b = append(c.b, opening...)
	}
	return append(c.b, "]}"...), nil
}

// part makes room for a part of a turn.
func (c *contents) part(whose turn) {
	if c.open == nobody && whose != user {
		c.part(user)
		c.b = append(c.b, opening...)
	}
	if c.open == whose {
		c.b = append(c.b, ',')
		return
	}
	if c.open != nobody {
		c.b = append(c.b, "]},"...)
	}
	role := "user"
	if c.open = whose; whose == model {
		role = "model"
	}
	c.b = append(append(append(c.b, `{"role":"`...), role...), `","parts":[`...)
}

func (c *contents) text(whose turn, text string) {
	c.part(whose)
	c.b = appendText(c.b, text)
}

// user writes a turn of the user. It always stands: without anything to say it
// is a space.
func (c *contents) user(i int, m *provider.Message) error {
	said := m.Text != ""
	if said {
		c.text(user, m.Text)
	}
	for j := range m.Parts {
		p := &m.Parts[j]
		switch {
		case p.Type == "image_url":
			c.part(user)
			if err := c.image(p.ImageURL, i, j); err != nil {
				return err
			}
		case p.Text != "":
			c.text(user, p.Text)
		default:
			continue
		}
		said = true
	}
	if !said {
		c.text(user, " ")
	}
	return nil
}

var imageTypes = []string{"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}

// image writes an image that is at hand; remote ones were fetched before.
func (c *contents) image(url string, i, j int) error {
	rest, isData := strings.CutPrefix(url, "data:")
	kind, data, isBase64 := strings.Cut(rest, ";base64,")
	switch {
	case !isData || !isBase64:
		return rejected("messages[%d].content[%d].image_url.url: must be a data: URL in base64 here", i, j)
	case kind == "image/gif":
		return rejected("messages[%d].content[%d].image_url.url: %s takes no GIF; send PNG, JPEG or WEBP", i, j,
			c.r.Model)
	case !slices.Contains(imageTypes, kind):
		return rejected("messages[%d].content[%d].image_url.url: %s takes no %.100q; send PNG, JPEG or WEBP", i, j,
			c.r.Model, kind)
	}
	c.b = append(append(append(c.b, `{"inlineData":{"mimeType":"`...), kind...), `","data":`...)
	c.b = append(provider.AppendQuote(c.b, data), "}}"...)
	return nil
}

// model writes a turn of the model: what it said, then what it called.
func (c *contents) model(i int, m *provider.Message) error {
	texts(m, func(s string) { c.text(model, s) })
	if m.Refusal != "" {
		c.text(model, m.Refusal)
	}
	for j := range m.ToolCalls {
		call := &m.ToolCalls[j]
		signature, ok := signature(call.ExtraContent)
		if !ok {
			return rejected("messages[%d].tool_calls[%d].extra_content.google.thought_signature: must be the string that came with the call", i, j)
		}
		// Of parallel calls only the first needs one. Gemini 2.5 does not look.
		if signature == "" && j == 0 && c.r.Facts.Thinking != "budget" {
			signature = placeholder
		}
		c.part(model)
		c.b = appendName(append(c.b, `{"functionCall":{"name":`...), call.Name)
		c.b = append(c.b, `,"args":`...)
		switch {
		case call.Arguments == "":
			c.b = append(c.b, "{}"...)
		case provider.Members([]byte(call.Arguments), every):
			c.b = append(c.b, call.Arguments...)
		default:
			return rejected("messages[%d].tool_calls[%d].function.arguments: must be a JSON object", i, j)
		}
		c.b = append(appendID(c.b, call.ID), '}')
		if signature != "" {
			c.b = provider.AppendQuote(append(c.b, `,"thoughtSignature":`...), signature)
		}
		c.b = append(c.b, '}')
	}
	if len(m.ToolCalls) > 0 && (i+1 == len(c.r.Messages) || c.r.Messages[i+1].Role != "tool") {
		return rejected("messages[%d].tool_calls[0].id: %.100q has no tool message", i, m.ToolCalls[0].ID)
	}
	return nil
}

func every(_, _ []byte) bool { return true }

// signature is extra_content.google.thought_signature; what other providers left
// there is theirs. It reports whether a signature, if there is one, can be one.
func signature(extra []byte) (string, bool) {
	found, ok := "", true
	provider.Members(extra, func(name, value []byte) bool {
		if string(name) == "google" {
			provider.Members(value, func(name, value []byte) bool {
				if string(name) == "thought_signature" && string(value) != "null" {
					found, ok = encoded(value)
				}
				return true
			})
		}
		return true
	})
	return found, ok
}

// encoded returns a JSON string that holds base64 of either alphabet.
func encoded(value []byte) (string, bool) {
	if value[0] != '"' {
		return "", false
	}
	text := strings.ReplaceAll(string(value[1:len(value)-1]), `\/`, "/") // some encoders write it so
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("+/-_=", c) < 0:
			return "", false
		}
	}
	return text, true
}

// foreignIDs begin the ids of calls that Gemini did not name: ours, which are
// like OpenAI's, and Anthropic's.
var foreignIDs = []string{"call_", "fc_", "toolu_", "srvtoolu_", "chatcmpl-"}

// appendID writes the id of a call if Gemini gave it.
func appendID(b []byte, callID string) []byte {
	if callID == "" || slices.ContainsFunc(foreignIDs, func(p string) bool { return strings.HasPrefix(callID, p) }) {
		return b
	}
	return provider.AppendQuote(append(b, `,"id":`...), callID)
}

// results writes the tool messages from i on as one turn, in the order of the
// calls that they answer. It returns the index of the last of them.
func (c *contents) results(i int) (int, error) {
	messages := c.r.Messages
	var calls []provider.ToolCall
	if i > 0 {
		calls = messages[i-1].ToolCalls
	}
	unanswered := make(map[string]bool, len(calls))
	for j := range calls {
		unanswered[calls[j].ID] = true
	}
	answers := make(map[string]*provider.Message, len(calls))
	for ; i < len(messages) && messages[i].Role == "tool"; i++ {
		m := &messages[i]
		if !unanswered[m.ToolCallID] {
			return 0, rejected(
				"messages[%d].tool_call_id: %.100q answers no open tool call of the assistant message before it", i,
				m.ToolCallID)
		}
		delete(unanswered, m.ToolCallID)
		answers[m.ToolCallID] = m
	}
	for j := range calls {
		m := answers[calls[j].ID]
		if m == nil {
			return 0, rejected("messages: tool call %.100q has no tool message", calls[j].ID)
		}
		c.part(function)
		c.b = appendName(append(c.b, `{"functionResponse":{"name":`...), calls[j].Name)
		c.b = append(appendID(c.b, calls[j].ID), `,"response":{"output":`...)
		// Always as text, also where it is JSON: a member "error" in it would mean
		// something to the model that the app did not say.
		var all strings.Builder
		texts(m, func(s string) { all.WriteString(s) })
		c.b = append(provider.AppendQuote(c.b, all.String()), "}}}"...)
	}
	return i - 1, nil
}
