package conversation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// A Turn is what one side said at a time, as blocks in their order. The result of each tool call is a turn by itself,
// with one block.
type Turn struct {
	Role   string // system, developer, user, assistant, tool
	Name   string // of the speaker; "" = none
	Blocks []Block
}

// A Block is a piece of a turn.
type Block struct {
	Kind Kind
	Text string // of a text or a refusal

	Phase  string // of a text of the model: what it is for, such as commentary; "" = it did not say
	Joined bool   // a text or refusal that goes on in the message of the block before it

	ID        string // of a tool call, and of the call that a result answers
	Name      string // of the tool that is called
	Arguments string // of a tool call
	Failed    bool   // of a result: the tool reports an error
	Blocks    []Block

	Picture *Picture // of an image

	// Extra is what only a provider understands, of reasoning or of a tool call: an object whose member is named by
	// the provider (contract §4.3). It is returned unchanged.
	Extra json.RawMessage

	CacheBreakpoint bool // the provider's cache should keep the request up to the end of this block
}

// Kind says what a block is.
type Kind int

// The kinds of blocks.
const (
	TextBlock Kind = iota
	RefusalBlock
	ReasoningBlock
	CallBlock   // a tool call by the model
	ResultBlock // the result of a tool call; its Blocks are texts
	ImageBlock
)

// A Picture is an image by its URL.
type Picture struct {
	URL    string
	Detail string // auto, low, high, original, or empty

	// Set by package images; zero = unknown.
	MediaType     string // of its bytes
	Width, Height int
}

// Say returns a turn that is one text.
func Say(role, text string) Turn { return Turn{Role: role, Blocks: []Block{{Text: text}}} }

// IsSystem reports whether a turn is an instruction.
func (t *Turn) IsSystem() bool { return t.Role == "system" || t.Role == "developer" }

// Result returns the result that a turn is; nil = it is none.
func (t *Turn) Result() *Block {
	if len(t.Blocks) > 0 && t.Blocks[0].Kind == ResultBlock {
		return &t.Blocks[0]
	}
	return nil
}

// MarkEnd marks the end of a turn as one that the provider's cache should keep.
func (t *Turn) MarkEnd() {
	if n := len(t.Blocks); n > 0 {
		t.Blocks[n-1].CacheBreakpoint = true
	}
}

// IsMarked reports whether the provider's cache should keep the request up to a place in the turn.
func (t *Turn) IsMarked() bool {
	return slices.ContainsFunc(t.Blocks, func(b Block) bool {
		return b.CacheBreakpoint || slices.ContainsFunc(b.Blocks, func(b Block) bool { return b.CacheBreakpoint })
	})
}

// Has reports whether a turn has a block of the kind.
func (t *Turn) Has(kind Kind) bool {
	return slices.ContainsFunc(t.Blocks, func(b Block) bool { return b.Kind == kind })
}

// Texts returns the texts of blocks as one.
func Texts(blocks []Block) string {
	if len(blocks) == 1 && blocks[0].Kind == TextBlock {
		return blocks[0].Text
	}
	var all strings.Builder // there may be thousands
	for i := range blocks {
		if blocks[i].Kind == TextBlock {
			all.WriteString(blocks[i].Text)
		}
	}
	return all.String()
}

// SumBytes estimates the bytes of turns in the body of a request.
func SumBytes(turns []Turn) (n int) {
	for i := range turns {
		n += 64 + sumBlocks(turns[i].Blocks)
	}
	return n
}

func sumBlocks(blocks []Block) (n int) {
	for i := range blocks {
		b := &blocks[i]
		n += 64 + len(b.Text) + len(b.Text)/16 + len(b.Arguments) + len(b.Extra) + sumBlocks(b.Blocks)
		if b.Picture != nil {
			n += len(b.Picture.URL)
		}
	}
	return n
}

// Member returns the name of block j of turn i as errors have it: by the body of POST /v1/chat/completions, whose
// messages are the turns.
func Member(turns []Turn, i, j int) string {
	n := 0
	content := func(k Kind) bool { return k == TextBlock || k == ImageBlock }
	b := &turns[i].Blocks[j]
	for k := range j {
		if other := turns[i].Blocks[k].Kind; other == b.Kind || content(other) && content(b.Kind) {
			n++
		}
	}
	switch b.Kind {
	case CallBlock:
		return fmt.Sprintf("messages[%d].tool_calls[%d]", i, n)
	case RefusalBlock:
		return fmt.Sprintf("messages[%d].refusal", i)
	case ReasoningBlock:
		return fmt.Sprintf("messages[%d].extra_content", i)
	case ResultBlock:
		return fmt.Sprintf("messages[%d].tool_call_id", i)
	}
	return fmt.Sprintf("messages[%d].content[%d]", i, n)
}
