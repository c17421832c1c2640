package completions

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// pieces are the deltas of an answer, a letter for each: reasoning, a thought, text, a refusal, a call, its arguments.
func pieces(kinds string) (list []conversation.Delta) {
	list = append(list, conversation.Delta{Kind: conversation.Begin, ID: []byte("a1"), Name: []byte("m")})
	block := -1
	for i := range len(kinds) {
		text := fmt.Appendf(nil, `%d\n`, i)
		if strings.IndexByte("hstrc", kinds[i]) >= 0 {
			block++
		}
		d := conversation.Delta{Block: block, Text: text}
		switch kinds[i] {
		case 'h':
			d.Kind = conversation.Reasoning
		case 's':
			d = conversation.Delta{Kind: conversation.Thought, Block: block, Opaque: []byte(`{"x":1}`)}
		case 't':
			d.Kind = conversation.Text
		case 'r':
			d.Kind = conversation.Refusal
		case 'c':
			d.Kind, d.ID, d.Name = conversation.Call, text, []byte("f")
		case 'a':
			if len(list) == 1 || !slices.Contains([]conversation.DeltaKind{conversation.Call, conversation.Arguments},
				list[len(list)-1].Kind) {
				continue
			}
			d.Kind = conversation.Arguments
		default:
			continue
		}
		list = append(list, d)
	}
	return append(list, conversation.Delta{Kind: conversation.End, Reason: conversation.Cut, Text: []byte("stop")})
}

// say writes what deltas bring, without the numbers of their blocks: chunks have none.
func say(list []conversation.Delta) string {
	var b strings.Builder
	for i := range list {
		d := &list[i]
		fmt.Fprintf(&b, "%d %s %s %s %s %v\n", d.Kind, d.ID, d.Name, d.Text, d.Opaque, d.Reason)
	}
	return b.String()
}

// FuzzStream writes any deltas as chunks, and reads them again; and an answer that is written whole has the same texts.
func FuzzStream(f *testing.F) {
	for _, kinds := range []string{"", "t", "hst", "caaca", "htcarhs", "sc", "tt"} {
		f.Add(kinds)
	}
	f.Fuzz(func(t *testing.T, kinds string) {
		r := &provider.Request{ID: "req_1", Model: "n", WantReasoning: true}
		out, whole := NewStream(nil, r, time.Unix(1, 0)), NewWhole(nil, r, time.Unix(1, 0))
		in := pieces(kinds[:min(len(kinds), 40)])
		var text string
		for i := range in {
			out.Write(&in[i])
			whole.Write(&in[i])
			if in[i].Kind == conversation.Text {
				text += string(in[i].Text)
			}
		}
		var back []conversation.Delta
		reader := NewReader(func(d *conversation.Delta) { back = append(back, *d) })
		reader.Read(out.Frames())
		if got, want := say(back), say(in); got != want {
			t.Errorf("%s: came back as\n%s\nof\n%s", kinds, got, want)
		}
		var said string
		reader = NewReader(func(d *conversation.Delta) {
			if d.Kind == conversation.Text {
				said += string(d.Text)
			}
		})
		reader.ReadWhole(whole.AppendBody(nil, nil))
		if said != text {
			t.Errorf("%s: whole it says %q, in chunks %q", kinds, said, text)
		}
	})
}

// TestReasoningOfCalls: a client that did not ask for reasoning gets what its calls need, with them, and nothing else.
func TestReasoningOfCalls(t *testing.T) {
	t.Parallel()
	r := &provider.Request{ID: "req_1", Model: "n"}
	out, whole := NewStream(nil, r, time.Unix(1, 0)), NewWhole(nil, r, time.Unix(1, 0))
	for _, d := range []conversation.Delta{
		{Kind: conversation.Begin},
		{Kind: conversation.Reasoning, Text: []byte("hm")},
		{Kind: conversation.Thought, Opaque: []byte(`{"n":1}`), Origin: conversation.Anthropic},
		{Kind: conversation.Thought, Block: 1, Opaque: []byte(`{"n":2}`), Origin: conversation.Anthropic},
		{Kind: conversation.Call, Block: 2, ID: []byte("c"), Name: []byte("f"), Text: []byte("{}")},
		{Kind: conversation.Thought, Block: 3, Opaque: []byte(`{"n":3}`), Origin: conversation.Anthropic},
		{Kind: conversation.End, Reason: conversation.Called},
	} {
		out.Write(&d)
		whole.Write(&d)
	}
	const extra = `"arguments":"{}"},"extra_content":{"anthropic":{"thinking":[{"n":1},{"n":2}]}}}]`
	body := whole.AppendBody(nil, nil)
	for name, text := range map[string]string{"chunks": string(out.Frames()), "whole": string(body)} {
		if !strings.Contains(text, extra) || strings.Count(text, "extra_content") != 1 || strings.Contains(text, "hm") {
			t.Errorf("%s: %s", name, text)
		}
	}
}
