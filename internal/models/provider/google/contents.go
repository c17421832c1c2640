package google

import (
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/models/provider"
)

// opening is the user's turn that is put before a conversation that begins with the model, or has only system messages.
// Gemini requires a user's turn there. The other providers accept such conversations, so Purser does not refuse them.
const opening = `{"text":"Begin."}`

// placeholder is the value that Gemini documents for a missing signature: the app dropped it, or another provider's
// model made the call.
const placeholder = "skip_thought_signature_validator"

func isSystem(role string) bool { return role == "system" || role == "developer" }

// eachText calls f with each text of a message that is not empty. Gemini does not accept empty parts.
func eachText(m *provider.Message, f func(string)) {
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

// appendInstruction writes the leading system messages, one part for each text.
func appendInstruction(b []byte, messages []provider.Message) []byte {
	start := len(b)
	b = append(b, `"systemInstruction":{"parts":[`...)
	none := len(b)
	for i := range messages {
		eachText(&messages[i], func(s string) { b = appendText(appendComma(b), s) })
	}
	if len(b) == none {
		return b[:start]
	}
	return append(b, "]},"...)
}

// turn is the author of a content. Results of functions are the user's too, but in a content without other parts: it
// must have as many parts as there were calls.
type turn int

const (
	noTurn turn = iota
	user
	model
	function
)

// contents writes the turns. Parts of one turn share a content.
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
			err = c.writeModel(i, m)
		case m.Role == "tool":
			i, err = c.writeResults(i)
		default: // later system messages become the user's: there is no other role for them
			err = c.writeUser(i, m)
		}
		if err != nil {
			return nil, err
		}
	}
	if c.open == noTurn {
		c.openPart(user)
		c.b = append(c.b, opening...)
	}
	return append(c.b, "]}"...), nil
}

// openPart starts a part and opens a content for its turn if necessary.
func (c *contents) openPart(whose turn) {
	if c.open == noTurn && whose != user {
		c.openPart(user)
		c.b = append(c.b, opening...)
	}
	if c.open == whose {
		c.b = append(c.b, ',')
		return
	}
	if c.open != noTurn {
		c.b = append(c.b, "]},"...)
	}
	role := "user"
	if c.open = whose; whose == model {
		role = "model"
	}
	c.b = append(append(append(c.b, `{"role":"`...), role...), `","parts":[`...)
}

func (c *contents) writeText(whose turn, text string) {
	c.openPart(whose)
	c.b = appendText(c.b, text)
}

// writeUser writes a message of the user. An empty message becomes a space, so that the turn is kept.
func (c *contents) writeUser(i int, m *provider.Message) error {
	said := m.Text != ""
	if said {
		c.writeText(user, m.Text)
	}
	for j := range m.Parts {
		p := &m.Parts[j]
		switch {
		case p.Type == "image_url":
			c.openPart(user)
			if err := c.writeImage(p.ImageURL, i, j); err != nil {
				return err
			}
		case p.Text != "":
			c.writeText(user, p.Text)
		default:
			continue
		}
		said = true
	}
	if !said {
		c.writeText(user, " ")
	}
	return nil
}

var imageTypes = []string{"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}

// writeImage writes an image. Remote images are already data: URLs here.
func (c *contents) writeImage(url string, i, j int) error {
	rest, isData := strings.CutPrefix(url, "data:")
	kind, data, isBase64 := strings.Cut(rest, ";base64,")
	switch {
	case !isData || !isBase64:
		return makeRejection("messages[%d].content[%d].image_url.url: must be a data: URL in base64 here", i, j)
	case kind == "image/gif":
		return makeRejection("messages[%d].content[%d].image_url.url: %s takes no GIF; send PNG, JPEG or WEBP", i, j,
			c.r.Model)
	case !slices.Contains(imageTypes, kind):
		return makeRejection("messages[%d].content[%d].image_url.url: %s takes no %.100q; send PNG, JPEG or WEBP", i, j,
			c.r.Model, kind)
	}
	c.b = append(append(append(c.b, `{"inlineData":{"mimeType":"`...), kind...), `","data":`...)
	c.b = append(provider.AppendQuote(c.b, data), "}}"...)
	return nil
}

// writeModel writes a message of the model: its text, then its tool calls. The signature of the message belongs to its
// first call, or to the end of its text.
func (c *contents) writeModel(i int, m *provider.Message) error {
	before := len(c.b)
	eachText(m, func(s string) { c.writeText(model, s) })
	if m.Refusal != "" {
		c.writeText(model, m.Refusal)
	}
	ofMessage, ok := readSignature(m.ExtraContent)
	if !ok {
		ofMessage = "" // the model can do without it
	}
	if ofMessage != "" && len(c.b) > before && len(m.ToolCalls) == 0 {
		c.b = provider.AppendQuote(append(c.b[:len(c.b)-1], `,"thoughtSignature":`...), ofMessage)
		c.b = append(c.b, '}')
	}
	for j := range m.ToolCalls {
		call := &m.ToolCalls[j]
		signature, ok := readSignature(call.ExtraContent)
		if !ok {
			return makeRejection(
				"messages[%d].tool_calls[%d].extra_content.google.thought_signature: must be the string that came with the call", i, j)
		}
		if signature == "" && j == 0 {
			signature = ofMessage
		}
		// Of parallel calls only the first needs one. Gemini 2.5 does not look.
		if signature == "" && j == 0 && c.r.Facts.Thinking != "budget" {
			signature = placeholder
		}
		c.openPart(model)
		c.b = appendName(append(c.b, `{"functionCall":{"name":`...), call.Name)
		c.b = append(c.b, `,"args":`...)
		switch {
		case call.Arguments == "":
			c.b = append(c.b, "{}"...)
		case provider.Members([]byte(call.Arguments), acceptAll):
			c.b = append(c.b, call.Arguments...)
		default:
			return makeRejection("messages[%d].tool_calls[%d].function.arguments: must be a JSON object", i, j)
		}
		c.b = append(appendID(c.b, call.ID), '}')
		if signature != "" {
			c.b = provider.AppendQuote(append(c.b, `,"thoughtSignature":`...), signature)
		}
		c.b = append(c.b, '}')
	}
	if len(m.ToolCalls) > 0 && (i+1 == len(c.r.Messages) || c.r.Messages[i+1].Role != "tool") {
		return makeRejection("messages[%d].tool_calls[0].id: %.100q has no tool message", i, m.ToolCalls[0].ID)
	}
	return nil
}

func acceptAll(_, _ []byte) bool { return true }

// readSignature returns extra_content.google.thought_signature and ignores members of other providers. It returns false
// if the signature is malformed.
func readSignature(extra []byte) (string, bool) {
	found, ok := "", true
	provider.Members(extra, func(name, value []byte) bool {
		if string(name) == "google" {
			provider.Members(value, func(name, value []byte) bool {
				if string(name) == "thought_signature" && string(value) != "null" {
					found, ok = unquoteBase64(value)
				}
				return true
			})
		}
		return true
	})
	return found, ok
}

// unquoteBase64 returns the value of a raw JSON string that holds base64 of either alphabet, and false for other
// values.
func unquoteBase64(value []byte) (string, bool) {
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

// foreignIDs are the prefixes of call ids that do not come from Gemini: ours, OpenAI's and Anthropic's.
var foreignIDs = []string{"call_", "fc_", "toolu_", "srvtoolu_", "chatcmpl-"}

// appendID writes the id of a call if Gemini gave it.
func appendID(b []byte, callID string) []byte {
	if callID == "" || slices.ContainsFunc(foreignIDs, func(p string) bool { return strings.HasPrefix(callID, p) }) {
		return b
	}
	return provider.AppendQuote(append(b, `,"id":`...), callID)
}

// writeResults writes the tool messages from i on as one turn, in the order of the
// calls that they answer. It returns the index of the last of them.
func (c *contents) writeResults(i int) (int, error) {
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
			return 0, makeRejection(
				"messages[%d].tool_call_id: %.100q answers no open tool call of the assistant message before it", i,
				m.ToolCallID)
		}
		delete(unanswered, m.ToolCallID)
		answers[m.ToolCallID] = m
	}
	for j := range calls {
		m := answers[calls[j].ID]
		if m == nil {
			return 0, makeRejection("messages: tool call %.100q has no tool message", calls[j].ID)
		}
		c.openPart(function)
		c.b = appendName(append(c.b, `{"functionResponse":{"name":`...), calls[j].Name)
		c.b = append(appendID(c.b, calls[j].ID), `,"response":{"output":`...)
		// The result is always sent as text, even if it is JSON: Gemini gives a member "error" a
		// meaning that the app did not intend.
		var all strings.Builder
		eachText(m, func(s string) { all.WriteString(s) })
		c.b = append(provider.AppendQuote(c.b, all.String()), "}}}"...)
	}
	return i - 1, nil
}
