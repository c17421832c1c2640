package anthropic

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/models/provider"
)

// turns writes the members system and messages. The API requires alternating user and assistant turns, each a list of
// nonempty blocks. A turn opens with its first block, and consecutive messages of one role share a turn.
type turns struct {
	b       []byte
	role    string // of the open turn, "" = none yet
	asked   bool   // there is a user message that is not empty
	thinks  bool   // thinking of earlier turns may be sent back
	replays bool   // some thinking was sent back
	cache   breakpoints

	used map[string]int    // how often each tool id was used
	open map[string]string // calls without a result: the id that was sent, by the app's id
}

// greeting is the user turn before a conversation that begins with the assistant. The API requires a user turn first.
const greeting = "(The assistant speaks first.)"

// writeMessages appends the members system and messages.
func (t *turns) writeMessages(messages []provider.Message) error {
	t.used, t.open = map[string]int{}, map[string]string{}
	leading := 0
	for leading < len(messages) && isSystem(&messages[leading]) {
		leading++
	}
	t.writeSystem(messages[:leading])
	t.b = append(t.b, `,"messages":[`...)
	for i := leading; i < len(messages); i++ {
		m := &messages[i]
		var err error
		switch m.Role {
		case "assistant":
			err = t.writeAssistant(i, m)
		case "tool":
			err = t.writeResult(i, m)
		default: // also later system messages: in the system member they would change the start of the request
			err = t.writeUser(i, m)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case !t.asked:
		return makeRejection("messages: this model needs a user message that is not empty")
	case t.role == "assistant":
		return makeRejection(
			"messages: the last one with content is the assistant's; this model cannot continue it, so end with a user message")
	}
	t.b = append(t.b, "]}]"...)
	return nil
}

func isSystem(m *provider.Message) bool { return m.Role == "system" || m.Role == "developer" }

// writeSystem appends the system member, a block for each text.
func (t *turns) writeSystem(messages []provider.Message) {
	n := 0
	for i := range messages {
		m := &messages[i]
		said := false // in this message
		for _, p := range listParts(m) {
			wrote := p.Type == "text" && !isBlank(p.Text)
			if wrote {
				if n == 0 {
					t.b = append(t.b, `,"system":[`...)
				}
				t.b = appendText(appendComma(t.b, n), p.Text)
				n++
			}
			if p.CacheBreakpoint {
				t.b = t.cache.mark(t.b, wrote)
			}
			said = said || wrote
		}
		if marksEnd(m) {
			t.b = t.cache.mark(t.b, said)
		}
	}
	if n > 0 {
		t.b = append(t.b, ']')
	}
}

// listParts returns a message's content as a list.
func listParts(m *provider.Message) []provider.Part {
	if m.Parts == nil {
		return []provider.Part{{Type: "text", Text: m.Text}}
	}
	return m.Parts
}

func appendText(b []byte, text string) []byte {
	return append(provider.AppendQuote(append(b, `{"type":"text","text":`...), text), '}')
}

// openBlock starts a block in a turn of the role and opens the turn if necessary.
func (t *turns) openBlock(role string) {
	switch {
	case t.role == role:
		t.b = append(t.b, ',')
		return
	case t.role != "":
		t.b = append(t.b, "]},"...)
	case role == "assistant":
		t.openBlock("user")
		t.b = appendText(t.b, greeting)
		t.openBlock(role)
		return
	}
	t.role = role
	t.b = append(append(append(t.b, `{"role":"`...), role...), `","content":[`...)
}

func (t *turns) writeText(role, text string) bool {
	if isBlank(text) {
		return false
	}
	t.openBlock(role)
	t.b = appendText(t.b, text)
	return true
}

func (t *turns) writeUser(i int, m *provider.Message) error {
	clear(t.open)
	wrote := false
	for j, p := range listParts(m) {
		said := true
		if p.Type == "text" {
			said = t.writeText("user", p.Text)
		} else if !t.writeImage(p.ImageURL) {
			return makeRejection(
				"messages[%d].content[%d].image_url.url: must be a data: URL with an image/png, image/jpeg, image/webp or image/gif in base64", i, j)
		}
		if p.CacheBreakpoint {
			t.b = t.cache.mark(t.b, said)
		}
		wrote = wrote || said
		t.asked = t.asked || said && m.Role == "user"
	}
	if marksEnd(m) {
		t.b = t.cache.mark(t.b, wrote)
	}
	return nil
}

var imageTypes = []string{"image/png", "image/jpeg", "image/webp", "image/gif"}

// writeImage appends an image block. Remote images are already data: URLs here.
func (t *turns) writeImage(url string) bool {
	rest, ok := strings.CutPrefix(url, "data:")
	kind, data, ok2 := strings.Cut(rest, ";base64,")
	if !ok || !ok2 || !slices.Contains(imageTypes, kind) {
		return false
	}
	t.openBlock("user")
	t.b = provider.AppendQuote(append(t.b, `{"type":"image","source":{"type":"base64","media_type":`...), kind)
	t.b = append(provider.AppendQuote(append(t.b, `,"data":`...), data), "}}"...)
	return true
}

// writeAssistant appends a message of the model: its thinking, its text, then its tool calls.
func (t *turns) writeAssistant(i int, m *provider.Message) error {
	clear(t.open)
	t.writeThinking(m.ExtraContent)
	if len(m.ToolCalls) > 0 {
		t.writeThinking(m.ToolCalls[0].ExtraContent)
	}
	said := false
	for _, p := range listParts(m) {
		wrote := p.Type == "text" && t.writeText("assistant", p.Text)
		if p.CacheBreakpoint {
			t.b = t.cache.mark(t.b, wrote)
		}
		said = said || wrote
	}
	if !said {
		said = t.writeText("assistant", m.Refusal)
	}
	for j := range m.ToolCalls {
		c := &m.ToolCalls[j]
		if j > 0 {
			t.writeThinking(c.ExtraContent)
		}
		input, ok := parseArguments(c.Arguments)
		if !ok {
			return makeRejection("messages[%d].tool_calls[%d].function.arguments: must be a JSON object for this model",
				i,
				j)
		}
		t.open[c.ID] = t.newID(c.ID)
		t.openBlock("assistant")
		t.b = provider.AppendQuote(append(t.b, `{"type":"tool_use","id":`...), t.open[c.ID])
		t.b = provider.AppendQuote(append(t.b, `,"name":`...), c.Name)
		t.b = append(append(append(t.b, `,"input":`...), input...), '}')
	}
	if marksEnd(m) {
		t.b = t.cache.mark(t.b, said || len(m.ToolCalls) > 0)
	}
	return nil
}

// newID returns the id under which a call is sent. The API accepts letters, digits, - and _, and each id only one time;
// ids of other providers may break both rules.
func (t *turns) newID(id string) string {
	plain := strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z') {
			return r
		}
		return '_'
	}, id)
	if plain == "" {
		plain = "_"
	}
	unique := plain
	for t.used[unique] > 0 {
		t.used[plain]++
		unique = plain + "_" + strconv.Itoa(t.used[plain])
	}
	t.used[unique]++
	return unique
}

// writeResult appends the result of a tool call. Results directly follow the calls, as the first blocks of a user turn.
func (t *turns) writeResult(i int, m *provider.Message) error {
	id, ok := t.open[m.ToolCallID]
	if !ok {
		return makeRejection(
			"messages[%d].tool_call_id: %.100q answers no open tool call of the assistant message before it", i,
			m.ToolCallID)
	}
	delete(t.open, m.ToolCallID)
	t.asked = true
	t.openBlock("user")
	t.b = provider.AppendQuote(append(t.b, `{"type":"tool_result","tool_use_id":`...), id)
	if m.Parts == nil && m.Text != "" {
		t.b = provider.AppendQuote(append(t.b, `,"content":`...), m.Text)
	}
	n, marked := 0, m.CacheBreakpoint
	for _, p := range m.Parts {
		marked = marked || p.CacheBreakpoint
		if p.Type != "text" || isBlank(p.Text) {
			continue
		}
		if n == 0 {
			t.b = append(t.b, `,"content":[`...)
		}
		t.b = appendText(appendComma(t.b, n), p.Text)
		n++
	}
	if n > 0 {
		t.b = append(t.b, ']')
	}
	if m.ToolFailed {
		t.b = append(t.b, `,"is_error":true`...)
	}
	if t.b = append(t.b, '}'); marked {
		t.b = t.cache.mark(t.b, true)
	}
	return nil
}

// writeThinking appends the thinking blocks before a text or a tool call, unchanged. It omits
// blocks of other providers and malformed ones; the API does not need them.
func (t *turns) writeThinking(extra []byte) {
	var ours struct {
		Anthropic struct {
			Thinking []json.RawMessage `json:"thinking"`
		} `json:"anthropic"`
	}
	if !t.thinks || len(extra) == 0 || json.Unmarshal(extra, &ours) != nil {
		return
	}
	for _, raw := range ours.Anthropic.Thinking {
		var kind, thought, signature, data []byte
		known := 0
		ok := provider.Members(raw, func(_, value []byte) bool { known++; return value[0] == '"' }) &&
			readMembers(raw, member{"type", &kind}, member{"thinking", &thought}, member{"signature", &signature},
				member{"data", &data})
		switch {
		case !ok:
		case string(kind) == `"thinking"` && thought != nil && signature != nil && known == 3:
			t.openBlock("assistant")
			t.b = appendThought(t.b, thought[1:len(thought)-1], signature[1:len(signature)-1])
			t.replays = true
		case string(kind) == `"redacted_thinking"` && data != nil && known == 2:
			t.openBlock("assistant")
			t.b = appendRedacted(t.b, data[1:len(data)-1])
			t.replays = true
		}
	}
}

// appendThought appends a thinking block. The strings are raw JSON without the quotes, as in appendRedacted.
func appendThought(b, thinking, signature []byte) []byte {
	b = append(append(b, `{"type":"thinking","thinking":"`...), thinking...)
	return append(append(append(b, `","signature":"`...), signature...), `"}`...)
}

func appendRedacted(b, data []byte) []byte {
	return append(append(append(b, `{"type":"redacted_thinking","data":"`...), data...), `"}`...)
}
