package anthropic

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/models/provider"
)

// turns writes system and messages. The API wants user and assistant by turns,
// each a list of blocks, none of them empty: a turn opens with its first block,
// and neighbours of one role share one.
type turns struct {
	b       []byte
	role    string // of the open turn, "" = none yet
	asked   bool   // the user has said something
	thinks  bool   // thinking of earlier turns may go back
	replays bool   // some does

	used map[string]int    // tool ids that were sent, and how often they were asked for
	open map[string]string // calls without a result: the app's id and the one that was sent
}

// greeting stands before a conversation that the assistant begins: the API
// wants the user's turn first.
const greeting = "(The assistant speaks first.)"

// write appends the members system and messages.
func (t *turns) write(messages []provider.Message) error {
	t.used, t.open = map[string]int{}, map[string]string{}
	leading := 0
	for leading < len(messages) && isSystem(&messages[leading]) {
		leading++
	}
	t.system(messages[:leading])
	t.b = append(t.b, `,"messages":[`...)
	for i := leading; i < len(messages); i++ {
		m := &messages[i]
		var err error
		switch m.Role {
		case "assistant":
			err = t.assistant(i, m)
		case "tool":
			err = t.result(i, m)
		default: // a later system message too: hoisted, it would change what stood before
			err = t.user(i, m)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case !t.asked:
		return rejected("messages: this model needs a user message that is not empty")
	case t.role == "assistant":
		return rejected("messages: the last one with content is the assistant's; this model cannot continue it, so end with a user message")
	}
	t.b = append(t.b, "]}]"...)
	return nil
}

func isSystem(m *provider.Message) bool { return m.Role == "system" || m.Role == "developer" }

// system appends the system member, a block for each text.
func (t *turns) system(messages []provider.Message) {
	n := 0
	for i := range messages {
		for _, p := range parts(&messages[i]) {
			if p.Type != "text" || blank(p.Text) {
				continue
			}
			if n == 0 {
				t.b = append(t.b, `,"system":[`...)
			}
			t.b = appendText(comma(t.b, n), p.Text)
			n++
		}
	}
	if n > 0 {
		t.b = append(t.b, ']')
	}
}

// parts returns a message's content as a list.
func parts(m *provider.Message) []provider.Part {
	if m.Parts == nil {
		return []provider.Part{{Type: "text", Text: m.Text}}
	}
	return m.Parts
}

func appendText(b []byte, text string) []byte {
	return append(provider.AppendQuote(append(b, `{"type":"text","text":`...), text), '}')
}

// next makes room for a block in a turn of role.
func (t *turns) next(role string) {
	switch {
	case t.role == role:
		t.b = append(t.b, ',')
		return
	case t.role != "":
		t.b = append(t.b, "]},"...)
	case role == "assistant":
		t.next("user")
		t.b = appendText(t.b, greeting)
		t.next(role)
		return
	}
	t.role = role
	t.b = append(append(append(t.b, `{"role":"`...), role...), `","content":[`...)
}

func (t *turns) text(role, text string) bool {
	if blank(text) {
		return false
	}
	t.next(role)
	t.b = appendText(t.b, text)
	return true
}

func (t *turns) user(i int, m *provider.Message) error {
	clear(t.open)
	for j, p := range parts(m) {
		said := true
		if p.Type == "text" {
			said = t.text("user", p.Text)
		} else if !t.image(p.ImageURL) {
			return rejected("messages[%d].content[%d].image_url.url: must be a data: URL with an image/png, image/jpeg, image/webp or image/gif in base64", i, j)
		}
		t.asked = t.asked || said && m.Role == "user"
	}
	return nil
}

var imageTypes = []string{"image/png", "image/jpeg", "image/webp", "image/gif"}

// image appends an image block. Remote images were fetched before.
func (t *turns) image(url string) bool {
	rest, ok := strings.CutPrefix(url, "data:")
	kind, data, ok2 := strings.Cut(rest, ";base64,")
	if !ok || !ok2 || !slices.Contains(imageTypes, kind) {
		return false
	}
	t.next("user")
	t.b = provider.AppendQuote(append(t.b, `{"type":"image","source":{"type":"base64","media_type":`...), kind)
	t.b = append(provider.AppendQuote(append(t.b, `,"data":`...), data), "}}"...)
	return true
}

// assistant appends a turn of the model: its thoughts first, then what it said,
// then its calls.
func (t *turns) assistant(i int, m *provider.Message) error {
	clear(t.open)
	if len(m.ToolCalls) > 0 {
		t.thinking(m.ToolCalls[0].ExtraContent)
	}
	said := false
	for _, p := range parts(m) {
		said = p.Type == "text" && t.text("assistant", p.Text) || said
	}
	if !said {
		t.text("assistant", m.Refusal)
	}
	for j := range m.ToolCalls {
		c := &m.ToolCalls[j]
		if j > 0 {
			t.thinking(c.ExtraContent)
		}
		input, ok := object(c.Arguments)
		if !ok {
			return rejected("messages[%d].tool_calls[%d].function.arguments: must be a JSON object for this model", i,
				j)
		}
		t.open[c.ID] = t.newID(c.ID)
		t.next("assistant")
		t.b = provider.AppendQuote(append(t.b, `{"type":"tool_use","id":`...), t.open[c.ID])
		t.b = provider.AppendQuote(append(t.b, `,"name":`...), c.Name)
		t.b = append(append(append(t.b, `,"input":`...), input...), '}')
	}
	return nil
}

// newID returns the id under which a call is sent. The API takes letters,
// digits, - and _, and no id twice; other providers' ids know neither rule.
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

// result appends the result of a call. Results come right behind the calls, so
// they are the first blocks of the user's turn.
func (t *turns) result(i int, m *provider.Message) error {
	id, ok := t.open[m.ToolCallID]
	if !ok {
		return rejected("messages[%d].tool_call_id: %.100q answers no open tool call of the assistant message before it", i, m.ToolCallID)
	}
	delete(t.open, m.ToolCallID)
	t.asked = true
	t.next("user")
	t.b = provider.AppendQuote(append(t.b, `{"type":"tool_result","tool_use_id":`...), id)
	if m.Parts == nil && m.Text != "" {
		t.b = provider.AppendQuote(append(t.b, `,"content":`...), m.Text)
	}
	n := 0
	for _, p := range m.Parts {
		if p.Type != "text" || blank(p.Text) {
			continue
		}
		if n == 0 {
			t.b = append(t.b, `,"content":[`...)
		}
		t.b = appendText(comma(t.b, n), p.Text)
		n++
	}
	if n > 0 {
		t.b = append(t.b, ']')
	}
	t.b = append(t.b, '}')
	return nil
}

// thinking appends the thoughts that the model had before a call, as they came.
// What is not ours, or was changed beyond its form, is left out: the API does
// without it.
func (t *turns) thinking(extra []byte) {
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
			pick(raw, member{"type", &kind}, member{"thinking", &thought}, member{"signature", &signature},
				member{"data", &data})
		switch {
		case !ok:
		case string(kind) == `"thinking"` && thought != nil && signature != nil && known == 3:
			t.next("assistant")
			t.b = appendThought(t.b, thought[1:len(thought)-1], signature[1:len(signature)-1])
			t.replays = true
		case string(kind) == `"redacted_thinking"` && data != nil && known == 2:
			t.next("assistant")
			t.b = appendRedacted(t.b, data[1:len(data)-1])
			t.replays = true
		}
	}
}

// appendThought and appendRedacted write the blocks that hold thoughts, of
// strings without their quotes.
func appendThought(b, thinking, signature []byte) []byte {
	b = append(append(b, `{"type":"thinking","thinking":"`...), thinking...)
	return append(append(append(b, `","signature":"`...), signature...), `"}`...)
}

func appendRedacted(b, data []byte) []byte {
	return append(append(append(b, `{"type":"redacted_thinking","data":"`...), data...), `"}`...)
}
