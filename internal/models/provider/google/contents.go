package google

import (
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// opening is the user's turn that is put before a conversation that begins with the model, or has only system messages.
// Gemini requires a user's turn there. The other providers accept such conversations, so Purser does not refuse them.
const opening = `{"text":"Begin."}`

// placeholder is the value that Gemini documents for a missing signature: the app dropped it, or another provider's
// model made the call.
const placeholder = "skip_thought_signature_validator"

func appendText(b []byte, text string) []byte {
	return append(provider.AppendQuote(append(b, `{"text":`...), text), '}')
}

// appendInstruction writes the leading system turns, one part for each text. Gemini does not accept empty parts.
func appendInstruction(b []byte, all []conversation.Turn) []byte {
	start := len(b)
	b = append(b, `"systemInstruction":{"parts":[`...)
	none := len(b)
	for i := range all {
		for _, said := range all[i].Blocks {
			if said.Text != "" {
				b = appendText(appendComma(b), said.Text)
			}
		}
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

// appendContents writes the turns from first on.
func appendContents(b []byte, r *provider.Request, first int) ([]byte, error) {
	c := &contents{r: r, b: b}
	for i := first; i < len(r.Turns); i++ {
		var err error
		switch t := &r.Turns[i]; {
		case t.Role == "assistant":
			err = c.writeModel(i)
		case t.Result() != nil:
			i, err = c.writeResults(i)
		default: // later system messages become the user's: there is no other role for them
			err = c.writeUser(i)
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

// writeUser writes a turn of the user. An empty one becomes a space, so that it is kept.
func (c *contents) writeUser(i int) error {
	said := false
	for j := range c.r.Turns[i].Blocks {
		switch b := &c.r.Turns[i].Blocks[j]; {
		case b.Picture != nil:
			c.openPart(user)
			if err := c.writeImage(b.Picture.URL, i, j); err != nil {
				return err
			}
		case b.Text != "":
			c.writeText(user, b.Text)
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
	at := func() string { return conversation.Member(c.r.Turns, i, j) + ".image_url.url" }
	switch {
	case !isData || !isBase64:
		return makeRejection("%s: must be a data: URL in base64 here", at())
	case kind == "image/gif":
		return makeRejection("%s: %s takes no GIF; send PNG, JPEG or WEBP", at(), c.r.Model)
	case !slices.Contains(imageTypes, kind):
		return makeRejection("%s: %s takes no %.100q; send PNG, JPEG or WEBP", at(), c.r.Model, kind)
	}
	c.b = append(append(append(c.b, `{"inlineData":{"mimeType":"`...), kind...), `","data":`...)
	c.b = append(provider.AppendQuote(c.b, data), "}}"...)
	return nil
}

// writeModel writes a turn of the model, block by block.
func (c *contents) writeModel(i int) error {
	t := &c.r.Turns[i]
	w := modelTurn{contents: c}
	for j := range t.Blocks {
		switch b := &t.Blocks[j]; b.Kind {
		case conversation.ReasoningBlock:
			if s, ok := readSignature(b.Extra); ok && s != "" { // the model can do without a malformed one
				w.addSignature(s)
			}
		case conversation.TextBlock, conversation.RefusalBlock:
			if b.Text != "" {
				w.addText(b.Text)
			}
		case conversation.CallBlock:
			if err := w.addCall(i, j); err != nil {
				return err
			}
		}
	}
	w.signText()
	if calls := listCalls(t); len(calls) > 0 && (i+1 == len(c.r.Turns) || c.r.Turns[i+1].Result() == nil) {
		return makeRejection("messages[%d].tool_calls[0].id: %.100q has no tool message", i, calls[0].ID)
	}
	return nil
}

// modelTurn is a turn of the model that is being written. A signature that came by itself belongs to the next call, or
// to a text: the one directly before it, or else the last one.
type modelTurn struct {
	*contents
	signature string // that came by itself; "" = none
	ofText    bool   // it directly follows a text
	text      int    // the end of the last text
	calls     int
}

func (w *modelTurn) addSignature(s string) {
	w.signText()
	w.signature, w.ofText = s, w.text == len(w.b)
}

func (w *modelTurn) addText(text string) {
	if w.ofText {
		w.signText()
	}
	w.writeText(model, text)
	w.text = len(w.b)
}

// signText gives the signature to the text that was written last.
func (w *modelTurn) signText() {
	if w.signature != "" && w.text == len(w.b) {
		w.b = provider.AppendQuote(append(w.b[:w.text-1], `,"thoughtSignature":`...), w.signature)
		w.b = append(w.b, '}')
		w.signature, w.ofText = "", false
	}
}

func (w *modelTurn) addCall(i, j int) error {
	call := &w.r.Turns[i].Blocks[j]
	signature, ok := readSignature(call.Extra)
	switch {
	case !ok:
		return makeRejection("%s.extra_content.google.thought_signature: must be the string that came with the call",
			conversation.Member(w.r.Turns, i, j))
	case signature == "":
		signature, w.signature, w.ofText = w.signature, "", false
	default:
		w.signText()
	}
	// Of parallel calls only the first needs one. Gemini 2.5 does not look.
	if signature == "" && w.calls == 0 && w.r.Facts.Thinking != "budget" {
		signature = placeholder
	}
	w.calls++
	w.openPart(model)
	w.b = appendName(append(w.b, `{"functionCall":{"name":`...), call.Name)
	w.b = provider.AppendArguments(append(w.b, `,"args":`...), call.Arguments)
	w.b = append(appendID(w.b, call.ID), '}')
	if signature != "" {
		w.b = provider.AppendQuote(append(w.b, `,"thoughtSignature":`...), signature)
	}
	w.b = append(w.b, '}')
	return nil
}

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

// writeResults writes the results from i on as one turn, in the order of the
// calls that they answer. It returns the index of the last of them.
func (c *contents) writeResults(i int) (int, error) {
	turns := c.r.Turns
	var calls []*conversation.Block
	if i > 0 {
		calls = listCalls(&turns[i-1])
	}
	unanswered := make(map[string]bool, len(calls))
	for j := range calls {
		unanswered[calls[j].ID] = true
	}
	answers := make(map[string]*conversation.Block, len(calls))
	for ; i < len(turns) && turns[i].Result() != nil; i++ {
		r := turns[i].Result()
		if !unanswered[r.ID] {
			return 0, makeRejection(
				"messages[%d].tool_call_id: %.100q answers no open tool call of the assistant message before it", i,
				r.ID)
		}
		delete(unanswered, r.ID)
		answers[r.ID] = r
	}
	for j := range calls {
		r := answers[calls[j].ID]
		if r == nil {
			return 0, makeRejection("messages: tool call %.100q has no tool message", calls[j].ID)
		}
		c.openPart(function)
		c.b = appendName(append(c.b, `{"functionResponse":{"name":`...), calls[j].Name)
		c.b = append(appendID(c.b, calls[j].ID), `,"response":{`...)
		// The result is always sent as text, even if it is JSON: Gemini gives its members output and error a meaning
		// that the app did not intend.
		if r.Failed {
			c.b = append(c.b, `"error":`...)
		} else {
			c.b = append(c.b, `"output":`...)
		}
		c.b = append(provider.AppendQuote(c.b, conversation.Texts(r.Blocks)), "}}}"...)
	}
	return i - 1, nil
}

// listCalls returns the tool calls of a turn.
func listCalls(t *conversation.Turn) (calls []*conversation.Block) {
	for i := range t.Blocks {
		if t.Blocks[i].Kind == conversation.CallBlock {
			calls = append(calls, &t.Blocks[i])
		}
	}
	return calls
}
