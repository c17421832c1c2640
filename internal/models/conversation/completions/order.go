package completions

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// A message of Chat Completions has one text and one list of calls, and a thought comes with the call that it led to.
// Where that does not say in which order the blocks of an answer stood, the message has it in extra_content.svc.order
// (decision 177), a list: the number of characters of a text, or an object with it and the text's phase; the words
// thought and call, for the next of them; and extra, for what else the extra_content of the message has.

// An order notes the blocks of an answer.
type order []element

// An element is a block.
type element struct {
	kind   conversation.DeltaKind // Text, Thought, Call; Begin = the extra_content of the message
	origin conversation.Origin    // of a thought
	block  int
	chars  int // of a text
	phase  []byte
}

// note notes a delta.
func (o *order) note(d *conversation.Delta) {
	switch d.Kind {
	case conversation.Begin:
		*o = nil
	case conversation.Text:
		last := len(*o) - 1
		if last < 0 || (*o)[last].kind != conversation.Text || (*o)[last].block != d.Block {
			*o = append(*o, element{kind: conversation.Text, block: d.Block, phase: bytes.Clone(d.Phase)})
			last++
		}
		(*o)[last].chars += countChars(d.Text)
		if d.Opaque != nil {
			*o = append(*o, element{})
		}
	case conversation.Thought:
		*o = append(*o, element{kind: conversation.Thought, origin: d.Origin})
	case conversation.Call:
		*o = append(*o, element{kind: conversation.Call})
	}
}

// isPlain reports whether the members of the message say the order: one text before all calls and, before the first
// call, behind the thoughts of Claude and before those of others.
func (o order) isPlain() bool {
	texts, calls := 0, false
	for i, e := range o {
		switch e.kind {
		case conversation.Text:
			rest := o[i+1:]
			callsFollow := slices.ContainsFunc(rest, func(e element) bool { return e.kind == conversation.Call })
			if texts++; texts > 1 || calls || callsFollow && len(e.phase) > 0 {
				return false
			}
			if callsFollow && slices.ContainsFunc(o[:i], func(e element) bool {
				return e.kind == conversation.Thought && e.origin != conversation.Anthropic
			}) {
				return false
			}
		case conversation.Thought:
			if !calls && texts > 0 && e.origin == conversation.Anthropic {
				return false
			}
		case conversation.Call:
			calls = true
		}
	}
	return true
}

// append appends the member svc of extra_content.
func (o order) append(b []byte) []byte {
	b = append(b, `"svc":{"order":[`...)
	start := len(b)
	for i, e := range o {
		if e.kind == conversation.Thought &&
			!slices.ContainsFunc(o[i:], func(e element) bool { return e.kind == conversation.Call }) {
			continue // no call brings it
		}
		if len(b) > start {
			b = append(b, ',')
		}
		switch e.kind {
		case conversation.Thought:
			b = append(b, `"thought"`...)
		case conversation.Call:
			b = append(b, `"call"`...)
		case conversation.Text:
			if len(e.phase) == 0 {
				b = strconv.AppendInt(b, int64(e.chars), 10)
				break
			}
			b = strconv.AppendInt(append(b, `{"text":`...), int64(e.chars), 10)
			b = append(append(append(b, `,"phase":"`...), e.phase...), `"}`...)
		default:
			b = append(b, `"extra"`...)
		}
	}
	return append(b, "]}"...)
}

// countChars counts the characters of a raw JSON string without the quotes.
func countChars(raw []byte) (n int) {
	for i := 0; i < len(raw); n++ {
		switch {
		case raw[i] != '\\':
			_, size := utf8.DecodeRune(raw[i:])
			i += size
		case i+1 < len(raw) && raw[i+1] == 'u':
			if isHalf(raw[i:], "89abAB") && isHalf(raw[min(i+6, len(raw)):], "cdefCDEF") {
				i += 6
			}
			i += 6
		default:
			i += 2
		}
	}
	return n
}

// isHalf reports whether raw begins with an escape of half a surrogate pair whose second digit is one of these.
func isHalf(raw []byte, digits string) bool {
	return len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' && raw[2]|0x20 == 'd' &&
		strings.IndexByte(digits, raw[3]) >= 0
}

// Ordered returns the blocks of a message of the model in the order in which they stood, if its extra_content, which is
// the first block, says it and fits the others. Otherwise it returns them as they are.
func Ordered(blocks []conversation.Block) []conversation.Block {
	if len(blocks) == 0 || blocks[0].Kind != conversation.ReasoningBlock ||
		!bytes.Contains(blocks[0].Extra, []byte(`"svc"`)) {
		return blocks
	}
	var list []byte
	rest := []byte{'{'} // what else the message has
	provider.Members(blocks[0].Extra, func(name, value []byte) bool {
		if string(name) == "svc" {
			return provider.Members(value, func(name, value []byte) bool {
				if string(name) == "order" {
					list = value
				}
				return true
			})
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(provider.AppendQuote(rest, string(name)), ':'), value...)
		return true
	})
	r := arranger{extra: append(rest, '}')}
	for i := range blocks[1:] {
		switch b := &blocks[i+1]; b.Kind {
		case conversation.TextBlock:
			r.text = append(r.text, []rune(b.Text)...)
		case conversation.CallBlock:
			r.calls = append(r.calls, b)
		default:
			r.others = append(r.others, *b)
		}
		if blocks[i+1].CacheBreakpoint {
			return blocks // which would be lost
		}
	}
	n := 0
	if !provider.Elements(list, func(v []byte) bool { n++; return n <= maxElements && r.read(v) }) ||
		len(r.text) > 0 || len(r.calls) > 0 || len(r.thoughts) > 0 {
		return blocks
	}
	return append(r.out, r.others...)
}

// maxElements bounds the blocks of an answer that has an order: a client could send millions.
const maxElements = 4096

// An arranger puts the blocks of a message in order.
type arranger struct {
	out      []conversation.Block
	extra    []byte
	text     []rune
	calls    []*conversation.Block
	others   []conversation.Block
	opened   bool // thoughts are those of the next call
	thoughts [][]byte
}

// read reads an element of the order. It returns false if there is no such block.
func (r *arranger) read(v []byte) bool {
	switch string(v) {
	case `"extra"`:
		r.out = append(r.out, conversation.Block{Kind: conversation.ReasoningBlock, Extra: r.extra})
		return true
	case `"thought"`:
		if r.open(); len(r.thoughts) == 0 {
			return false
		}
		r.out = append(r.out, conversation.Block{Kind: conversation.ReasoningBlock, Extra: r.thoughts[0]})
		r.thoughts = r.thoughts[1:]
		return true
	case `"call"`:
		if len(r.calls) == 0 || len(r.thoughts) > 0 {
			return false
		}
		call := *r.calls[0]
		if r.opened {
			call.Extra = nil
		}
		r.out, r.calls, r.opened = append(r.out, call), r.calls[1:], false
		return true
	}
	var text struct {
		Text  int    `json:"text"`
		Phase string `json:"phase"`
	}
	if json.Unmarshal(v, &text.Text) != nil && json.Unmarshal(v, &text) != nil || text.Text < 0 ||
		text.Text > len(r.text) || string(v) == "null" {
		return false
	}
	r.out = append(r.out, conversation.Block{Text: string(r.text[:text.Text]), Phase: text.Phase})
	r.text = r.text[text.Text:]
	return true
}

// open reads the thoughts that came with the next call: the elements of the one list of one provider.
func (r *arranger) open() {
	if r.opened || len(r.calls) == 0 {
		return
	}
	r.opened = true
	provider.Members(r.calls[0].Extra, func(origin, value []byte) bool {
		return provider.Members(value, func(name, list []byte) bool {
			return provider.Elements(list, func(thought []byte) bool {
				if len(r.thoughts) == maxElements {
					return false // so that there are too many for the order
				}
				one := provider.AppendQuote([]byte{'{'}, string(origin))
				one = append(provider.AppendQuote(append(one, `:{`...), string(name)), `:[`...)
				r.thoughts = append(r.thoughts, append(append(one, thought...), "]}}"...))
				return true
			})
		})
	})
}
