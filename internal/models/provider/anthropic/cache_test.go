package anthropic

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/models/provider"
)

// TestBreakpoints shows which blocks of a request carry cache_control: those that are marked, at most four, the last
// ones.
func TestBreakpoints(t *testing.T) {
	t.Parallel()
	marked := func(texts ...string) (parts []provider.Part) {
		for _, s := range texts {
			text, isMarked := strings.CutSuffix(s, "*")
			parts = append(parts, provider.Part{Type: "text", Text: text, CacheBreakpoint: isMarked})
		}
		return parts
	}
	call := provider.Message{
		Role:      "assistant",
		ToolCalls: []provider.ToolCall{{ID: "c", Name: "f"}},
	}
	result := provider.Message{Role: "tool", ToolCallID: "c", HasContent: true, Text: "r"}
	for _, tt := range []struct {
		name     string
		tools    []provider.Tool
		messages []provider.Message
		want     string // the marked blocks, by name or text
	}{
		{
			name:     "none",
			tools:    []provider.Tool{{Name: "f"}},
			messages: []provider.Message{{Role: "system", Text: "s"}, {Role: "user", Text: "q"}},
		},
		{
			name:  "everywhere",
			tools: []provider.Tool{{Name: "f"}, {Name: "g", CacheBreakpoint: true}},
			messages: []provider.Message{
				{Role: "system", Text: "s", CacheBreakpoint: true},
				{Role: "user", Parts: marked("a*", "b")},
				{Role: "assistant", Text: "c"},
				{Role: "user", Parts: marked("d", "e"), CacheBreakpoint: true},
			},
			want: "g s a e",
		},
		{
			name:  "five: the first gives way",
			tools: []provider.Tool{{Name: "f", CacheBreakpoint: true}},
			messages: []provider.Message{
				{Role: "system", Text: "s", CacheBreakpoint: true},
				{Role: "user", Parts: marked("a*", "b*", "c*")},
			},
			want: "s a b c",
		},
		{
			name: "six, all on messages",
			messages: []provider.Message{
				{Role: "system", Parts: marked("s*", "t*")},
				{Role: "user", Parts: marked("a*", "b*", "c*", "d*")},
			},
			want: "a b c d",
		},
		{
			name: "a message and its last part are one",
			messages: []provider.Message{
				{Role: "user", Parts: marked("a*", "b*"), CacheBreakpoint: true},
			},
			want: "a b",
		},
		{
			name: "what is not sent is not marked, and a block only once",
			messages: []provider.Message{
				{Role: "user", Parts: marked("a*", " *", ""), CacheBreakpoint: true},
				{Role: "assistant", Text: "b"},
				{Role: "user", Text: "c"},
			},
			want: "a",
		},
		{
			name:  "calls and results",
			tools: []provider.Tool{{Name: "f"}},
			messages: []provider.Message{
				{Role: "user", Text: "q"},
				{Role: "assistant", Parts: marked("t*"), ToolCalls: call.ToolCalls, CacheBreakpoint: true},
				{Role: "tool", ToolCallID: "c", Parts: marked("x*", "y*"), CacheBreakpoint: true},
			},
			want: "t f c",
		},
		{
			name:     "a call whose message is not marked",
			tools:    []provider.Tool{{Name: "f"}},
			messages: []provider.Message{{Role: "user", Text: "q", CacheBreakpoint: true}, call, result},
			want:     "q",
		},
	} {
		r := request()
		r.Tools, r.Messages = tt.tools, tt.messages
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
