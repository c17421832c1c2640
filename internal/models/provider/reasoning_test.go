package provider_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/anthropic"
	"github.com/purserhq/purser/internal/models/provider/google"
	"github.com/purserhq/purser/internal/models/provider/openai"
)

// shown is what an app sees of a response: its events in their order, and the message that they add up to.
type shown struct {
	Order   []string // reasoning, extra, text, call
	Message message
	Finish  string
}

type message struct {
	Content   string          `json:"content"`
	Reasoning string          `json:"reasoning_content"`
	Extra     json.RawMessage `json:"extra_content"`
	Calls     []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
		Extra json.RawMessage `json:"extra_content"`
	} `json:"tool_calls"`
}

// observe notes an event of a stream, unless the last one was of its kind.
func (s *shown) observe(kind string, seen bool) {
	if n := len(s.Order); seen && (n == 0 || s.Order[n-1] != kind) {
		s.Order = append(s.Order, kind)
	}
}

func streamReasoning(t *testing.T, p provider.Provider, r *provider.Request) (s shown) {
	t.Helper()
	r.Stream = true
	up, err := p.Stream(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	for {
		chunk, err := up.Next()
		if err != nil {
			return s
		}
		for frame := range strings.SplitSeq(strings.TrimSuffix(string(chunk.Frames), "\n\n"), "\n\n") {
			var c struct {
				Choices []struct {
					Delta  message
					Finish string `json:"finish_reason"`
				}
			}
			payload := strings.TrimPrefix(frame, "data: ")
			if err := json.Unmarshal([]byte(payload), &c); frame != "" && (err != nil || len(c.Choices) != 1) {
				t.Fatalf("%v in %q", err, frame)
			}
			for _, choice := range c.Choices {
				d := choice.Delta
				s.observe("reasoning", d.Reasoning != "")
				s.observe("text", d.Content != "")
				s.observe("extra", d.Extra != nil)
				s.Message.Reasoning += d.Reasoning
				s.Message.Content += d.Content
				s.Finish += choice.Finish
				if d.Extra != nil {
					s.Message.Extra = d.Extra
				}
				for _, call := range d.Calls {
					if call.ID != "" {
						s.observe("call", true)
						s.Message.Calls = append(s.Message.Calls, call)
					} else {
						s.Message.Calls[len(s.Message.Calls)-1].Function.Arguments += call.Function.Arguments
					}
				}
			}
		}
	}
}

func completeReasoning(t *testing.T, p provider.Provider, r *provider.Request) (s shown) {
	t.Helper()
	r.Stream = false
	answer, err := p.Complete(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Choices []struct {
			Message message
			Finish  string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal(answer.Body, &v); err != nil || len(v.Choices) != 1 {
		t.Fatalf("%v in %s", err, answer.Body)
	}
	return shown{Message: v.Choices[0].Message, Finish: v.Choices[0].Finish}
}

// TestReasoningIsReturned asks each provider for its reasoning: readable text and the opaque blocks come before the
// call that they led to, streamed and whole alike, and the provider accepts the blocks with the next request.
func TestReasoningIsReturned(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(emulator.New(emulator.Options{}))
	t.Cleanup(srv.Close)
	const key = "sampleKey"
	for _, tt := range []struct {
		provider provider.Provider
		model    string
		facts    provider.ModelFacts
		readable string // in the reasoning
		opaque   string // in extra_content, and in the body of the next request
	}{
		{
			provider: openai.New(srv.URL+"/v1", key),
			model:    "gpt-6.2-sol",
			facts:    provider.ModelFacts{Responses: true},
			readable: "**Reading** what the user says.\n\n**Choosing** how",
			opaque:   `"encrypted_content":"`,
		},
		{
			provider: anthropic.New(srv.URL, key),
			model:    "claude-opus-5-5",
			facts:    provider.ModelFacts{Thinking: "always"},
			readable: "A summary of what the model thought.",
			opaque:   `"signature":"`,
		},
		{
			provider: google.New(srv.URL, key),
			model:    "gemini-3.8-flash",
			facts:    provider.ModelFacts{Thinking: "level"},
			readable: "**Thinking** about it.",
			opaque:   `"thought_signature":"`,
		},
	} {
		name := tt.provider.Name()
		r := &provider.Request{
			ID:            "req_1",
			Model:         tt.model,
			MaxTokens:     1000,
			Turns:         []conversation.Turn{conversation.Say("user", "!call now")},
			Tools:         []provider.Tool{{Name: "now"}},
			Facts:         tt.facts,
			WantReasoning: true,
			WantSummary:   true,
		}
		streamed, whole := streamReasoning(t, tt.provider, r), completeReasoning(t, tt.provider, r)
		if d := cmp.Diff([]string{"reasoning", "extra", "call"}, streamed.Order); d != "" {
			t.Errorf("%s: the order of events: %s", name, d)
		}
		for _, s := range []shown{streamed, whole} {
			m := s.Message
			if !strings.Contains(m.Reasoning, tt.readable) || !strings.Contains(string(m.Extra), tt.opaque) ||
				len(m.Calls) != 1 || m.Calls[0].Extra != nil || s.Finish != "tool_calls" {
				t.Fatalf("%s: %+v", name, s)
			}
		}
		if streamed.Message.Reasoning != whole.Message.Reasoning {
			t.Errorf("%s: %q streamed, %q whole", name, streamed.Message.Reasoning, whole.Message.Reasoning)
		}

		call := whole.Message.Calls[0]
		r.Turns = append(r.Turns, conversation.Turn{Role: "assistant", Blocks: []conversation.Block{
			{Kind: conversation.ReasoningBlock, Extra: whole.Message.Extra},
			{Kind: conversation.CallBlock, ID: call.ID, Name: call.Function.Name, Arguments: "{}"},
		}}, conversation.Turn{Role: "tool", Blocks: []conversation.Block{
			{Kind: conversation.ResultBlock, ID: call.ID, Blocks: []conversation.Block{{Text: "noon"}}},
		}})
		answer := streamReasoning(t, tt.provider, r)
		if answer.Message.Content == "" || answer.Message.Extra == nil && name != "google" {
			t.Errorf("%s: the answer after the call: %+v", name, answer)
		}
		if d := cmp.Diff(answer.Message.Content, completeReasoning(t, tt.provider, r).Message.Content); d != "" {
			t.Errorf("%s: %s", name, d)
		}

		// A text keeps its reasoning too.
		r.Turns = append(r.Turns, conversation.Turn{Role: "assistant", Blocks: []conversation.Block{
			{Kind: conversation.ReasoningBlock, Extra: answer.Message.Extra},
			{Text: answer.Message.Content},
		}}, conversation.Say("user", "and now?"))
		completeReasoning(t, tt.provider, r)

		// Without the wish, the call carries the opaque blocks, and there is nothing to read.
		r.Turns, r.WantReasoning = r.Turns[:1], false
		for _, s := range []shown{streamReasoning(t, tt.provider, r), completeReasoning(t, tt.provider, r)} {
			if m := s.Message; m.Reasoning != "" || m.Extra != nil || len(m.Calls) != 1 ||
				!strings.Contains(string(m.Calls[0].Extra), tt.opaque) {
				t.Errorf("%s: without the wish: %+v", name, s)
			}
		}
	}
}

// TestReasoningIsSentBack shows where the reasoning of an assistant message stands in the next request.
func TestReasoningIsSentBack(t *testing.T) {
	t.Parallel()
	messages := func(extra string, call bool) []conversation.Turn {
		m := conversation.Turn{Role: "assistant", Blocks: []conversation.Block{
			{Kind: conversation.ReasoningBlock, Extra: []byte(extra)},
			{Text: "Hm."},
		}}
		list := []conversation.Turn{conversation.Say("user", "hi"), m}
		if call {
			list[1].Blocks = append(list[1].Blocks,
				conversation.Block{Kind: conversation.CallBlock, ID: "call_1", Name: "now", Arguments: "{}"})
			return append(list, conversation.Turn{Role: "tool", Blocks: []conversation.Block{
				{Kind: conversation.ResultBlock, ID: "call_1", Blocks: []conversation.Block{{Text: "noon"}}},
			}})
		}
		return append(list, conversation.Say("user", "go on"))
	}
	for _, tt := range []struct {
		name   string
		encode func(*provider.Request) ([]byte, error)
		facts  provider.ModelFacts
		extra  string
		call   bool
		want   string
	}{
		{
			name:   "thinking blocks before the text",
			encode: anthropic.Encode,
			facts:  provider.ModelFacts{Thinking: "always"},
			extra:  `{"anthropic":{"thinking":[{"type":"thinking","thinking":"t","signature":"s"}]}}`,
			want: `{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},` +
				`{"type":"text","text":"Hm."}]}`,
		},
		{
			name:   "the readable thinking is asked for",
			encode: anthropic.Encode,
			facts:  provider.ModelFacts{Thinking: "on"},
			extra:  `null`,
			want:   `"thinking":{"type":"adaptive","display":"summarized"}`,
		},
		{
			name:   "and the blocks of an edited history may be dropped",
			encode: anthropic.Encode,
			facts:  provider.ModelFacts{Thinking: "on"},
			extra:  `{"anthropic":{"thinking":[{"type":"redacted_thinking","data":"d"}]}}`,
			want: `"thinking":{"type":"adaptive","display":"summarized",` +
				`"block_binding":{"prefix_mismatch_behavior":"drop_block"}}`,
		},
		{
			name:   "the signature on the text",
			encode: google.Encode,
			facts:  provider.ModelFacts{Thinking: "level"},
			extra:  `{"google":{"thought_signature":"c2ln"}}`,
			want:   `{"role":"model","parts":[{"text":"Hm.","thoughtSignature":"c2ln"}]}`,
		},
		{
			name:   "the signature on the first call",
			encode: google.Encode,
			facts:  provider.ModelFacts{Thinking: "level"},
			extra:  `{"google":{"thought_signature":"c2ln"}}`,
			call:   true,
			want:   `{"text":"Hm."},{"functionCall":{"name":"now","args":{}},"thoughtSignature":"c2ln"}`,
		},
		{
			name:   "thoughts are included",
			encode: google.Encode,
			facts:  provider.ModelFacts{Thinking: "budget"},
			extra:  `{"anthropic":{}}`,
			want:   `"thinkingConfig":{"includeThoughts":true}`,
		},
	} {
		body, err := tt.encode(&provider.Request{
			Model:         "m",
			MaxTokens:     100,
			Turns:         messages(tt.extra, tt.call),
			Facts:         tt.facts,
			WantReasoning: true,
		})
		if err != nil || !strings.Contains(string(body), tt.want) {
			t.Errorf("%s: %v, no %s in\n%s", tt.name, err, tt.want, body)
		}
	}
}
