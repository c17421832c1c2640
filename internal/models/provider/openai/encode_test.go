package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

func ptr[T any](v T) *T { return &v }

// full is a request with every member there is.
func full() *provider.Request {
	return &provider.Request{
		ID:          "req_1",
		Model:       "gpt-6-luna",
		MaxTokens:   800,
		Temperature: ptr(0.7),
		TopP:        ptr(0.95),
		Stop:        []string{"END", "\n\n"},
		Stream:      true,
		Turns: []conversation.Turn{
			conversation.Say("system", "Be \"brief\" – 日本 🧾\u2028\x01"),
			{Role: "user", Name: "ann", Blocks: []conversation.Block{
				{Text: "What is this?"},
				{
					Kind:    conversation.ImageBlock,
					Picture: &conversation.Picture{URL: "data:image/png;base64,AAAA", Detail: "low"},
				},
				{Kind: conversation.ImageBlock, Picture: &conversation.Picture{URL: "https://example.com/a.png"}},
			}},
			{Role: "assistant", Blocks: []conversation.Block{
				{
					Kind:      conversation.CallBlock,
					ID:        "call_1",
					Name:      "look",
					Arguments: `{"q":"a"}`,
					Extra:     json.RawMessage(`{"google":{"thought_signature":"secret"}}`),
				},
				{Kind: conversation.CallBlock, ID: "call_2", Name: "look", Arguments: `{"q":`},
			}},
			{Role: "tool", Blocks: []conversation.Block{
				{Kind: conversation.ResultBlock, ID: "call_1", Blocks: []conversation.Block{{Text: ""}}},
			}},
			{Role: "tool", Blocks: []conversation.Block{
				{
					Kind:   conversation.ResultBlock,
					ID:     "call_2",
					Blocks: []conversation.Block{{Text: "fo"}, {Text: "und"}},
				},
			}},
			{Role: "assistant", Blocks: []conversation.Block{
				{Text: ""},
				{Kind: conversation.RefusalBlock, Text: "I will not"},
			}},
		},
		Tools: []provider.Tool{
			{
				Name:        "look",
				Description: "Looks",
				Parameters:  json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}}}`),
				Strict:      ptr(false),
			},
			{Name: "now"},
		},
		ToolChoice:        provider.ToolChoice{Mode: "function", Name: "look"},
		ParallelToolCalls: ptr(false),
		ResponseFormat:    json.RawMessage(`{"type":"json_object"}`),
		ReasoningEffort:   "none",
	}
}

func TestBodyHasEveryMemberThatIsForwarded(t *testing.T) {
	t.Parallel()
	same(t, encodeChat(full()), `{
		"model": "gpt-6-luna",
		"messages": [
			{"role": "system", "content": "Be \"brief\" – 日本 🧾\u2028\u0001"},
			{"role": "user", "name": "ann", "content": [
				{"type": "text", "text": "What is this?"},
				{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
				{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
			{"role": "assistant", "content": null, "tool_calls": [
				{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{\"q\":\"a\"}"}},
				{"id": "call_2", "type": "function", "function": {"name": "look", "arguments": "{\"q\":"}}]},
			{"role": "tool", "tool_call_id": "call_1", "content": ""},
			{"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "fo"},
				{"type": "text", "text": "und"}]},
			{"role": "assistant", "content": "", "refusal": "I will not"}
		],
		"max_completion_tokens": 800, "service_tier": "default", "temperature": 0.7, "top_p": 0.95, "stop": ["END", "\n\n"],
		"tools": [
			{"type": "function", "function": {"name": "look", "description": "Looks", "strict": false,
				"parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}},
			{"type": "function", "function": {"name": "now"}}],
		"tool_choice": {"type": "function", "function": {"name": "look"}}, "parallel_tool_calls": false,
		"response_format": {"type": "json_object"}, "reasoning_effort": "none",
		"stream": true, "stream_options": {"include_usage": true}
	}`)
}

func TestBodyHasNothingThatWasNotAsked(t *testing.T) {
	t.Parallel()
	r := &provider.Request{
		ID:          "req_1",
		Model:       "gpt-4o-mini",
		MaxTokens:   1,
		Temperature: ptr(1.0),
		TopP:        ptr(1.0),
		Turns:       []conversation.Turn{conversation.Say("user", "hi")},
	}
	same(t, encodeChat(r),
		`{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 1, "service_tier": "default"}`)
	r.Temperature, r.Tools, r.ToolChoice.Mode = ptr(0.0), []provider.Tool{{Name: "now"}}, "required"
	same(t, encodeChat(r),
		`{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 1, "service_tier": "default",
		"temperature": 0, "tools": [{"type": "function", "function": {"name": "now"}}], "tool_choice": "required"}`)
}

// TestEdge20CallsOfAnotherProvider: a call and its result keep one id, in either
// dialect, whatever another provider or an app called it.
func TestEdge20CallsOfAnotherProvider(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for id, kept := range map[string]bool{
		"call_1":                true,
		strings.Repeat("x", 40): true,
		"toolu_01A-b":           true,
		"7":                     true,
		strings.Repeat("x", 41): false,
		"a b":                   false,
		"functions.look:0":      false,
		"é":                     false,
		"call/1":                false,
		"call/2":                false,
		"\xff":                  false,
		"a\n":                   false,
	} {
		got := normalizeCallID(id)
		if kept != (got == id) || len(got) > 40 || strings.IndexFunc(got, isForeignIDChar) >= 0 ||
			got != normalizeCallID(id) {
			t.Errorf("%q becomes %q", id, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q are one id", id, other)
		}
		seen[got] = id
		r := request(false)
		r.Turns = append(r.Turns,
			conversation.Turn{Role: "assistant", Blocks: []conversation.Block{
				{Kind: conversation.CallBlock, ID: id, Name: "f", Arguments: "{}"},
			}},
			conversation.Turn{Role: "tool", Blocks: []conversation.Block{{Kind: conversation.ResultBlock, ID: id}}})
		flat, err := encodeResponses(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range [][]byte{encodeChat(r), flat} {
			if n := strings.Count(string(body), fmt.Sprintf("%q", got)); n != 2 {
				t.Errorf("%q is %d times in %s", got, n, body)
			}
		}
	}
}

// TestFailedTool: neither API has a member for a failure, so the text says it, always with the same words.
func TestFailedTool(t *testing.T) {
	t.Parallel()
	r := request(false)
	r.Turns = append(r.Turns, conversation.Turn{Role: "assistant", Blocks: []conversation.Block{
		{Kind: conversation.CallBlock, ID: "c", Name: "f", Arguments: `{}`},
	}}, conversation.Turn{Role: "tool", Blocks: []conversation.Block{{
		Kind:   conversation.ResultBlock,
		ID:     "c",
		Failed: true,
		Blocks: []conversation.Block{{Text: "no "}, {Text: "disk"}},
	}}})
	flat, err := encodeResponses(r)
	for body, want := range map[string]string{
		string(encodeChat(r)): `"content":"The tool failed. no disk","tool_call_id":"c"`,
		string(flat):          `"call_id":"c","output":"The tool failed. no disk"`,
	} {
		if err != nil || !strings.Contains(body, want) {
			t.Errorf("%v: %s lacks %s", err, body, want)
		}
	}
}

// TestNamesAndArguments: names of tools stand as they are, and so do arguments
// that are no JSON.
func TestNamesAndArguments(t *testing.T) {
	t.Parallel()
	r := request(false)
	r.Tools = []provider.Tool{{Name: "a-b_C9"}, {Name: strings.Repeat("n", 64)}}
	r.Turns = append(r.Turns,
		conversation.Turn{Role: "assistant", Blocks: []conversation.Block{
			{Kind: conversation.CallBlock, ID: "c", Name: "f", Arguments: `{"q":"\u00`},
			{Kind: conversation.CallBlock, ID: "d", Name: "f"},
		}},
		conversation.Turn{Role: "tool", Blocks: []conversation.Block{{Kind: conversation.ResultBlock, ID: "c"}}},
		conversation.Turn{Role: "tool", Blocks: []conversation.Block{{Kind: conversation.ResultBlock, ID: "d"}}})
	var chat struct {
		Tools []struct {
			Function struct{ Name string }
		}
		Messages []struct {
			Calls []struct {
				Function struct{ Arguments string }
			} `json:"tool_calls"`
		}
	}
	var items struct {
		Tools []struct{ Name string }
		Input []struct{ Type, Arguments string }
	}
	flat, err := encodeResponses(r)
	if err != nil || json.Unmarshal(flat, &items) != nil || json.Unmarshal(encodeChat(r), &chat) != nil {
		t.Fatal(err, string(flat))
	}
	for i := range r.Tools {
		if want := r.Tools[i].Name; chat.Tools[i].Function.Name != want || items.Tools[i].Name != want {
			t.Errorf("tool %d: %s, %s, want %s", i, chat.Tools[i].Function.Name, items.Tools[i].Name, want)
		}
	}
	for i, want := range []string{`{"q":"\u00`, ""} {
		if got := chat.Messages[1].Calls[i].Function.Arguments; got != want || items.Input[1+i].Arguments != want {
			t.Errorf("arguments %q, %q, want %q", got, items.Input[1+i].Arguments, want)
		}
	}
}

func same(t *testing.T, got []byte, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatalf("%v in %s", err, got)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(b, a); d != "" {
		t.Error(d)
	}
}

// FuzzEncode: texts arrive as they were, and no text can add a member.
func FuzzEncode(f *testing.F) {
	f.Add(`","n":5,"x":"`, `\`, "\xff", 0.1)
	f.Add("", "\u2028</script>", "\x00\x1f\x7f", 5e-324)
	f.Add("\xed\xa0\x80", `"}],"tools":[{`, "\xf0\x9f\xa7", 2.0)
	f.Add(strings.Repeat(`\"`, 99), "日本 🧾", "\ufeff", -0.0000001)
	f.Fuzz(func(t *testing.T, text, name, stop string, temperature float64) {
		if temperature != temperature || temperature-temperature != 0 || temperature == 1 {
			return
		}
		r := &provider.Request{
			Model:       name,
			MaxTokens:   5,
			Stop:        []string{stop},
			Temperature: &temperature,
			Turns: []conversation.Turn{
				{Role: "assistant", Name: name, Blocks: []conversation.Block{
					{Text: text},
					{Kind: conversation.CallBlock, ID: name, Name: stop, Arguments: text},
				}},
				{Role: "tool", Blocks: []conversation.Block{
					{Kind: conversation.ResultBlock, ID: stop, Blocks: []conversation.Block{{Text: text}}},
				}},
			},
		}
		var got struct {
			Model       string
			Temperature float64
			Stop        []string
			Messages    []struct{ Content string }
		}
		body := encodeChat(r)
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		clean := func(s string) string { return string([]rune(s)) }
		if got.Model != clean(name) || got.Stop[0] != clean(stop) || got.Messages[0].Content != clean(text) ||
			got.Temperature != temperature {
			t.Errorf("%s", body)
		}
		var members []string
		provider.Members(body, func(name, _ []byte) bool {
			members = append(members, string(name))
			return true
		})
		slices.Sort(members)
		if got, want := strings.Join(members, " "),
			"max_completion_tokens messages model service_tier stop temperature"; got != want {
			t.Errorf("members %s", got)
		}
	})
}
