package anthropic

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// turns writes the members system and messages. The API requires alternating user and assistant turns, each a list of
// nonempty blocks. A turn opens with its first block, and consecutive messages of one role share a turn.
type turns struct {
	b       []byte
	all     []conversation.Turn
	role    string // of the open turn, "" = none yet
	asked   bool   // there is a user message that is not empty
	thinks  bool   // thinking of earlier turns may be sent back
	replays bool   // some thinking was sent back
	prefill bool   // the last turn may be the assistant's
	json    bool   // the answer shall be JSON
	cache   breakpoints

	used map[string]int    // how often each tool id was used
	open map[string]string // calls without a result: the id that was sent, by the app's id
}

// greeting is the user turn before a conversation that begins with the assistant. The API requires a user turn first.
const greeting = "(The assistant speaks first.)"

// anyJSON tells a model to answer as response_format json_object asks.
const anyJSON = "Answer with one JSON object, and with nothing before or after it: no words, no Markdown."

// write appends the members system and messages.
func (t *turns) write(all []conversation.Turn) error {
	t.used, t.open, t.all = map[string]int{}, map[string]string{}, all
	leading := 0
	for leading < len(all) && all[leading].IsSystem() {
		leading++
	}
	t.writeSystem(all[:leading])
	t.b = append(t.b, `,"messages":[`...)
	for i := leading; i < len(all); i++ {
		var err error
		switch {
		case all[i].Role == "assistant":
			t.writeAssistant(i)
		case all[i].Result() != nil:
			err = t.writeResult(i)
		default: // also later system messages: in the system member they would change the start of the request
			err = t.writeUser(i)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case !t.asked:
		return makeRejection("messages: this model needs a user message that is not empty")
	case t.role == "assistant" && !t.prefill:
		return makeRejection(
			"messages: the last one with content is the assistant's; this model cannot continue it, so end with a user message")
	}
	t.b = append(t.b, "]}]"...)
	return nil
}

// writeSystem appends the system member, a block for each text.
func (t *turns) writeSystem(all []conversation.Turn) {
	n := 0
	for i := range all {
		said := false // in this turn
		for j := range all[i].Blocks {
			b := &all[i].Blocks[j]
			if !isBlank(b.Text) {
				if n == 0 {
					t.b = append(t.b, `,"system":[`...)
				}
				t.b = appendText(appendComma(t.b, n), b.Text)
				n++
				said = true
			}
			if b.CacheBreakpoint {
				t.b = t.cache.mark(t.b, said)
			}
		}
	}
	if t.json { // after what the conversation begins with, so that the cache keeps that
		if n == 0 {
			t.b = append(t.b, `,"system":[`...)
		}
		t.b = appendText(appendComma(t.b, n), anyJSON)
		n++
	}
	if n > 0 {
		t.b = append(t.b, ']')
	}
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

func (t *turns) writeUser(i int) error {
	clear(t.open)
	said := false
	for j := range t.all[i].Blocks {
		b := &t.all[i].Blocks[j]
		wrote := true
		if b.Picture == nil {
			wrote = t.writeText("user", b.Text)
		} else if !t.writeImage(b.Picture.URL) {
			return makeRejection("%s.image_url.url: must be a data: URL with an image/png, image/jpeg, image/webp or "+
				"image/gif in base64", conversation.Member(t.all, i, j))
		}
		said = said || wrote
		if b.CacheBreakpoint {
			t.b = t.cache.mark(t.b, said)
		}
		t.asked = t.asked || wrote && t.all[i].Role == "user"
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

// writeAssistant appends a turn of the model, block by block. Thinking that came with the first call stands before the
// text, as Claude thinks before it speaks; a refusal stands in for a text.
func (t *turns) writeAssistant(i int) {
	clear(t.open)
	blocks := t.all[i].Blocks
	if i == len(t.all)-1 {
		blocks = trimEnd(blocks)
	}
	spoke := slices.ContainsFunc(blocks, func(b conversation.Block) bool {
		return b.Kind == conversation.TextBlock && !isBlank(b.Text)
	})
	first := slices.IndexFunc(blocks, func(b conversation.Block) bool { return b.Kind == conversation.CallBlock })
	said, begun := false, false
	for j := range blocks {
		b := &blocks[j]
		if !begun && b.Kind != conversation.ReasoningBlock {
			if begun = true; first >= 0 {
				t.writeThinking(blocks[first].Extra)
			}
		}
		switch b.Kind {
		case conversation.ReasoningBlock:
			t.writeThinking(b.Extra)
		case conversation.TextBlock:
			said = t.writeText("assistant", b.Text) || said
		case conversation.RefusalBlock:
			said = !spoke && t.writeText("assistant", b.Text) || said
		case conversation.CallBlock:
			if j > first {
				t.writeThinking(b.Extra)
			}
			t.writeCall(b)
			said = true
		}
		if b.CacheBreakpoint {
			t.b = t.cache.mark(t.b, said)
		}
	}
}

// trimEnd returns blocks without the white space at their end, with which the last turn may not end.
func trimEnd(blocks []conversation.Block) []conversation.Block {
	blocks = slices.Clone(blocks)
	for i := len(blocks) - 1; i >= 0; i-- {
		blocks[i].Text = strings.TrimRightFunc(blocks[i].Text, unicode.IsSpace)
		if blocks[i].Text != "" {
			break
		}
	}
	return blocks
}

// writeCall appends a tool call.
func (t *turns) writeCall(c *conversation.Block) {
	t.open[c.ID] = t.newID(c.ID)
	t.openBlock("assistant")
	t.b = provider.AppendQuote(append(t.b, `{"type":"tool_use","id":`...), t.open[c.ID])
	t.b = provider.AppendQuote(append(t.b, `,"name":`...), c.Name)
	t.b = append(provider.AppendArguments(append(t.b, `,"input":`...), c.Arguments), '}')
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
func (t *turns) writeResult(i int) error {
	r := t.all[i].Result()
	id, ok := t.open[r.ID]
	if !ok {
		return makeRejection(
			"messages[%d].tool_call_id: %.100q answers no open tool call of the assistant message before it", i, r.ID)
	}
	delete(t.open, r.ID)
	t.asked = true
	t.openBlock("user")
	t.b = provider.AppendQuote(append(t.b, `{"type":"tool_result","tool_use_id":`...), id)
	if len(r.Blocks) == 1 {
		if text := r.Blocks[0].Text; text != "" {
			t.b = provider.AppendQuote(append(t.b, `,"content":`...), text)
		}
	} else {
		t.writeTexts(r.Blocks)
	}
	if r.Failed {
		t.b = append(t.b, `,"is_error":true`...)
	}
	if t.b = append(t.b, '}'); marksBlock(r) {
		t.b = t.cache.mark(t.b, true)
	}
	return nil
}

// writeTexts appends the content of a result, if there is one.
func (t *turns) writeTexts(blocks []conversation.Block) {
	n := 0
	for i := range blocks {
		if isBlank(blocks[i].Text) {
			continue
		}
		if n == 0 {
			t.b = append(t.b, `,"content":[`...)
		}
		t.b = appendText(appendComma(t.b, n), blocks[i].Text)
		n++
	}
	if n > 0 {
		t.b = append(t.b, ']')
	}
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
