package anthropic

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// TestBreakpoints shows which blocks of a request carry cache_control: those that are marked, at most four, the last
// ones.
func TestBreakpoints(t *testing.T) {
	t.Parallel()
	marked := func(texts ...string) (blocks []conversation.Block) {
		for _, s := range texts {
			text, isMarked := strings.CutSuffix(s, "*")
			blocks = append(blocks, conversation.Block{Text: text, CacheBreakpoint: isMarked})
		}
		return blocks
	}
	call := conversation.Block{Kind: conversation.CallBlock, ID: "c", Name: "f"}
	called := conversation.Turn{Role: "assistant", Blocks: []conversation.Block{call}}
	markedCall := call
	markedCall.CacheBreakpoint = true
	result := conversation.Turn{Role: "tool", Blocks: []conversation.Block{
		{Kind: conversation.ResultBlock, ID: "c", Blocks: []conversation.Block{{Text: "r"}}},
	}}
	for _, tt := range []struct {
		name     string
		tools    []provider.Tool
		messages []conversation.Turn
		want     string // the marked blocks, by name or text
	}{
		{
			name:     "none",
			tools:    []provider.Tool{{Name: "f"}},
			messages: []conversation.Turn{conversation.Say("system", "s"), conversation.Say("user", "q")},
		},
		{
			name:  "everywhere",
			tools: []provider.Tool{{Name: "f"}, {Name: "g", CacheBreakpoint: true}},
			messages: []conversation.Turn{
				{Role: "system", Blocks: marked("s*")},
				{Role: "user", Blocks: marked("a*", "b")},
				conversation.Say("assistant", "c"),
				{Role: "user", Blocks: marked("d", "e*")},
			},
			want: "g s a e",
		},
		{
			name:  "five: the first gives way",
			tools: []provider.Tool{{Name: "f", CacheBreakpoint: true}},
			messages: []conversation.Turn{
				{Role: "system", Blocks: marked("s*")},
				{Role: "user", Blocks: marked("a*", "b*", "c*")},
			},
			want: "s a b c",
		},
		{
			name: "six, all on messages",
			messages: []conversation.Turn{
				{Role: "system", Blocks: marked("s*", "t*")},
				{Role: "user", Blocks: marked("a*", "b*", "c*", "d*")},
			},
			want: "a b c d",
		},
		{
			name: "what is not sent is not marked, and a block only once",
			messages: []conversation.Turn{
				{Role: "user", Blocks: marked("a*", " *", "*")},
				conversation.Say("assistant", "b"),
				conversation.Say("user", "c"),
			},
			want: "a",
		},
		{
			name:  "calls and results",
			tools: []provider.Tool{{Name: "f"}},
			messages: []conversation.Turn{
				conversation.Say("user", "q"),
				{Role: "assistant", Blocks: append(marked("t*"), markedCall)},
				{Role: "tool", Blocks: []conversation.Block{{
					Kind:            conversation.ResultBlock,
					ID:              "c",
					Blocks:          marked("x*", "y*"),
					CacheBreakpoint: true,
				}}},
			},
			want: "t f c",
		},
		{
			name:     "a call whose message is not marked",
			tools:    []provider.Tool{{Name: "f"}},
			messages: []conversation.Turn{{Role: "user", Blocks: marked("q*")}, called, result},
			want:     "q",
		},
	} {
		r := request()
		r.Tools, r.Turns = tt.tools, tt.messages
		raw, err := Encode(r)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		type block struct {
			Name, Text   string
			ToolUseID    string `json:"tool_use_id"`
			CacheControl *struct{ Type string }
		}
		var body struct {
			Tools    []block
			System   []block
			Messages []struct{ Content []block }
		}
		// The tag of the last member differs from its name.
		text := strings.ReplaceAll(string(raw), `"cache_control"`, `"CacheControl"`)
		if err := json.Unmarshal([]byte(text), &body); err != nil {
			t.Fatalf("%s: %v: %s", tt.name, err, raw)
		}
		blocks := append(body.Tools, body.System...)
		for _, m := range body.Messages {
			blocks = append(blocks, m.Content...)
		}
		var got []string
		for _, b := range blocks {
			if b.CacheControl != nil {
				if b.CacheControl.Type != "ephemeral" {
					t.Errorf("%s: %+v", tt.name, b.CacheControl)
				}
				got = append(got, b.Name+b.Text+b.ToolUseID)
			}
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s: marked %q, want %q in\n%s", tt.name, s, tt.want, raw)
		}
		if n := strings.Count(string(raw), "cache_control"); n != len(got) {
			t.Errorf("%s: %d marks on %d blocks: %s", tt.name, n, len(got), raw)
		}
	}
}
