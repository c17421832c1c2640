package anthropic

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// TestAgainstTheEmulator: it shares no code with the adapter and checks what the
// provider checks.
func TestAgainstTheEmulator(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(emulator.New(emulator.Options{}))
	c := New(srv.URL, sampleKey)
	t.Cleanup(func() {
		c.CloseIdle()
		srv.Close()
	})
	tools := []provider.Tool{
		{Name: "weather", Parameters: []byte(`{"properties":{"city":{"type":"string"}}}`)},
		{Name: "now"},
	}
	for name, set := range map[string]func(*provider.Request){
		"text": func(*provider.Request) {},
		"prefill": func(r *provider.Request) {
			r.Model, r.Facts.Prefill = "claude-haiku-4-5", true
			r.Turns = append(r.Turns, chat(t, `[{"role":"assistant","content":"The answer is "}]`)...)
		},
		"adaptive": func(r *provider.Request) {
			r.Model, r.Facts.Thinking, r.ReasoningEffort = "claude-sonnet-4-6", "off", "max"
		},
		"system": func(r *provider.Request) {
			r.Turns = append(chat(t, `[{"role":"system","content":"s"}]`), r.Turns...)
		},
		"calls": func(r *provider.Request) {
			r.Tools, r.Turns[0].Blocks[0].Text = tools,
				"!call weather {\"city\":\"Köln\"}\n!call now\n!emu thinking redacted say"
		},
		"calls, with a budget": func(r *provider.Request) {
			r.Model, r.Facts.Thinking, r.ReasoningEffort = "claude-haiku-4-5", "budget", "medium"
			r.Tools, r.Turns[0].Blocks[0].Text = tools,
				"!call weather {\"city\":\"Köln\"}\n!call now\n!emu thinking say"
		},
		"forced": func(r *provider.Request) { r.Tools = tools; r.ToolChoice.Mode = "required" },
		"structured": func(r *provider.Request) {
			r.ResponseFormat = []byte(`{"type":"json_schema","json_schema":{"name":"city","schema":{"type":"object",` +
				`"properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}}}`)
		},
		"fitted": func(r *provider.Request) {
			r.ResponseFormat = []byte(`{"type":"json_schema","json_schema":{"name":"city","schema":{"type":"object",` +
				`"properties":{"city":{"type":"string","minLength":2},"near":{"oneOf":[{"$ref":"#/$defs/p"}]}},` +
				`"$defs":{"p":{"type":"object","properties":{"km":{"type":"integer","minimum":0}}}}}}}`)
			r.Tools = []provider.Tool{{Name: "f", Strict: ptr(true), Parameters: []byte(`{"type":"object",` +
				`"properties":{"a":{"type":"array","items":{"type":"number"},"maxItems":4}}}`)}}
		},
		"refusal":    func(r *provider.Request) { r.Turns[0].Blocks[0].Text = "!emu refusal" },
		"byte split": func(r *provider.Request) { r.Turns[0].Blocks[0].Text = "Grüße\n!emu split" },
		"huge":       func(r *provider.Request) { r.Turns[0].Blocks[0].Text = "Hi\n!emu huge" },
		"usage":      func(r *provider.Request) { r.Turns[0].Blocks[0].Text = "!emu usage=1000,200,100,50,10" },
		"image": func(r *provider.Request) {
			r.Turns = chat(t,
				`[{"role":"user","content":["see","data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="]}]`)
		},
	} {
		r := request()
		r.MaxTokens = 4000
		set(r)
		m, reason := both(t, c, r, name)
		if name == "structured" && (m.Content == nil || !strings.HasPrefix(*m.Content, `{"city":`)) {
			t.Errorf("structured: %+v", m)
		}
		if name != "calls" && name != "calls, with a budget" {
			continue
		}
		if len(m.ToolCalls) != 2 || reason != "tool_calls" || m.ToolCalls[0].ExtraContent == nil {
			t.Fatalf("%+v, %s", m, reason)
		}
		turn := conversation.Turn{Role: "assistant"}
		if m.Content != nil {
			turn.Blocks = append(turn.Blocks, conversation.Block{Text: *m.Content})
		}
		r.Turns = append(r.Turns, turn)
		for i := range m.ToolCalls {
			call := &m.ToolCalls[i]
			r.Turns[1].Blocks = append(r.Turns[1].Blocks, conversation.Block{
				Kind:      conversation.CallBlock,
				ID:        call.ID,
				Name:      call.Function.Name,
				Arguments: call.Function.Arguments,
				Extra:     call.ExtraContent,
			})
			r.Turns = append(r.Turns, conversation.Turn{Role: "tool", Blocks: []conversation.Block{
				{Kind: conversation.ResultBlock, ID: call.ID, Blocks: []conversation.Block{{Text: "result"}}},
			}})
		}
		both(t, c, r, "the results")
		if name != "calls" {
			continue // a budget has no word for an edited history
		}
		r.Turns[0].Blocks[0].Text = "another question"
		both(t, c, r, "an edited history")
	}
	for what, word := range map[string]string{
		"before":  "error=0",
		"within":  "error=6",
		"cut":     "cut=2000",
		"garbage": "garbage=6",
	} {
		r := request()
		r.Turns[0].Blocks[0].Text = "!emu words=200 " + word
		out := relayOf(c, r)
		if e := (*provider.Error)(nil); out.err == nil || errors.Is(out.err, io.EOF) ||
			out.started != (what != "before") || what == "before" && (!errors.As(out.err, &e) || !e.Retry) {
			t.Errorf("%s: %v %v", what, out.started, out.err)
		}
	}
}

// both asks in both ways, which must say the same.
func both(t *testing.T, c *Client, r *provider.Request, name string) (said, string) {
	t.Helper()
	out := relayOf(c, r)
	if !errors.Is(out.err, io.EOF) || out.usage == nil {
		t.Fatalf("%s: %v", name, out.err)
	}
	streamed, reason := joined(t, strings.ReplaceAll(out.frames, r.Model, request().Model))
	answer, err := c.Complete(context.Background(), r)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	whole, reason2 := read(t, answer.Body)
	ids := cmp.FilterPath(func(p cmp.Path) bool {
		return p.Last().String() == ".ID" || strings.HasSuffix(p.String(), "ExtraContent")
	}, cmp.Ignore())
	if d := cmp.Diff(streamed, whole, ids); d != "" || reason != reason2 || *out.usage != *answer.Usage {
		t.Errorf("%s: %s; %s, %s; %+v, %+v", name, d, reason, reason2, out.usage, answer.Usage)
	}
	return whole, reason
}
