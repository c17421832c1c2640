package tokens

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

func user(text string) conversation.Turn {
	return conversation.Say("user", text)
}

func picture(detail string) conversation.Turn {
	return conversation.Turn{Role: "user", Blocks: []conversation.Block{
		{Text: "hello"},
		{
			Kind:    conversation.ImageBlock,
			Picture: &conversation.Picture{URL: "https://example.com/a.png", Detail: detail},
		},
	}}
}

// "hello" and "world" are one token each.
func TestCountRequest(t *testing.T) {
	t.Parallel()
	weather := provider.Tool{
		Name:        "weather",
		Description: "hello world",
		Parameters:  json.RawMessage(`{"type":"object"}`),
	}
	spaced := weather
	spaced.Parameters = json.RawMessage("{\n    \"type\"  :   \"object\"\n}")
	tests := []struct {
		name   string
		family string
		r      provider.Request
		want   int64
	}{
		{"one message: 4 around it, its text, 3 for the reply", "gpt-5.6",
			provider.Request{Turns: []conversation.Turn{user("hello")}}, 4 + 1 + 3},
		{"two messages", "gpt-5.6", provider.Request{Turns: []conversation.Turn{user("hello"), user("hello world")}},
			2*4 + 3 + 3},
		{"a name costs itself and one more", "gpt-5.6",
			provider.Request{Turns: []conversation.Turn{
				{Role: "user", Name: "world", Blocks: []conversation.Block{{Text: "hello"}}},
			}},
			4 + 1 + 1 + 1 + 3},
		{"5 % more for GPT-6, rounded up", "gpt-6",
			provider.Request{Turns: []conversation.Turn{user(strings.Repeat("hello ", 100))}}, 4 + 107 + 3},
		{"25 % more for Claude 4", "claude-4",
			provider.Request{Turns: []conversation.Turn{user(strings.Repeat(" hello", 100))}}, 23 + 125 + 3},
		{"70 % more for Claude 5", "claude-5",
			provider.Request{Turns: []conversation.Turn{user(strings.Repeat(" hello", 100))}}, 23 + 170 + 3},
		{"20 % more for Gemini", "gemini-3",
			provider.Request{Turns: []conversation.Turn{user(strings.Repeat(" hello", 100))}}, 13 + 120 + 3},
		{"never more tokens than bytes", "claude-5", provider.Request{Turns: []conversation.Turn{user("(=)[]{}!")}},
			23 + 8 + 3},
		{"an unknown family is the dearest", "none", provider.Request{Turns: []conversation.Turn{user("hello")}},
			23 + 2 + 3},
		{"an image of low detail", "gpt-6", provider.Request{Turns: []conversation.Turn{picture("low")}},
			4 + 2 + 308 + 3},
		{"an image of high detail", "gpt-6", provider.Request{Turns: []conversation.Turn{picture("high")}},
			4 + 2 + 3000 + 3},
		{"an image without detail", "gpt-6", provider.Request{Turns: []conversation.Turn{picture("")}},
			4 + 2 + 36000 + 3},
		{"an image at Claude", "claude-4", provider.Request{Turns: []conversation.Turn{picture("")}},
			23 + 2 + 1600 + 3},
		{"a tool: its compact JSON and 10 %, 12 for each, 20 once", "gpt-5.6",
			provider.Request{Turns: []conversation.Turn{user("hello")}, Tools: []provider.Tool{weather}},
			4 + 1 + 3 + 20 + 12 + 9}, // weather 1, hello world 2, {"type":"object"} 5; × 1.1
		{"white space in a schema costs nothing", "gpt-5.6",
			provider.Request{Turns: []conversation.Turn{user("hello")}, Tools: []provider.Tool{spaced}},
			4 + 1 + 3 + 20 + 12 + 9},
		{"two tools", "gpt-5.6",
			provider.Request{Turns: []conversation.Turn{user("hello")}, Tools: []provider.Tool{weather, weather}},
			4 + 1 + 3 + 20 + 24 + 18},
		{"Claude's hidden text for tools", "claude-4",
			provider.Request{Turns: []conversation.Turn{user("hello")}, Tools: []provider.Tool{weather}},
			23 + 2 + 3 + 700 + 12 + 12},
		{"a forced tool", "gpt-5.6",
			provider.Request{Turns: []conversation.Turn{
				user("hello"),
			}, ToolChoice: provider.ToolChoice{Mode: "function", Name: "hello"}}, 4 + 1 + 3 + 4 + 1},
		{"a schema of the answer", "gpt-5.6",
			provider.Request{Turns: []conversation.Turn{
				user("hello"),
			}, ResponseFormat: json.RawMessage(`{"type":"object"}`)}, 4 + 1 + 3 + 20 + 6},
		{"a tool call and its result", "gpt-5.6", provider.Request{Turns: []conversation.Turn{
			{Role: "assistant", Blocks: []conversation.Block{
				{
					Kind:      conversation.CallBlock,
					ID:        "call_1",
					Name:      "hello",
					Arguments: "world",
					Extra:     json.RawMessage(`{"a":1}`),
				},
			}},
			{Role: "tool", Blocks: []conversation.Block{
				{Kind: conversation.ResultBlock, ID: "call_1", Blocks: []conversation.Block{{Text: "hello"}}},
			}},
		}}, 4 + 8 + 2 + 4 + 4 + 1 + 3},
		{"extra content is read where it is sent", "gemini-3", provider.Request{Turns: []conversation.Turn{
			{Role: "assistant", Blocks: []conversation.Block{
				{
					Kind:      conversation.CallBlock,
					ID:        "call_1",
					Name:      "hello",
					Arguments: "world",
					Extra:     json.RawMessage(`{"a":1}`),
				},
			}},
		}}, 13 + 8 + 9 + 3}, // hello world {"a":1}: 1+1+5, × 1.2
		{"a refusal", "gpt-5.6", provider.Request{Turns: []conversation.Turn{
			{Role: "assistant", Blocks: []conversation.Block{{Kind: conversation.RefusalBlock, Text: "hello"}}}}},
			4 + 1 + 3},
		{"long texts count as three bytes a token", "gpt-5.6",
			provider.Request{
				Turns: []conversation.Turn{user(strings.Repeat("hello ", 20_000)),
					user(strings.Repeat("hello ", 20_000))},
			},
			2*4 + 80_000 + 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := CountRequest(&test.r, test.family); got != test.want {
				t.Errorf("%d tokens, want %d", got, test.want)
			}
		})
	}
}

func TestCountRequestDoesNotAllocate(t *testing.T) {
	r := provider.Request{Turns: []conversation.Turn{user(prose(2000)), picture("low")}}
	CountRequest(&r, "gpt-6")
	if n := testing.AllocsPerRun(100, func() { CountRequest(&r, "gpt-6") }); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}

// TestReasoningIsCountedWhereItIsSent: OpenAI gets reasoning back through the Responses API only.
func TestReasoningIsCountedWhereItIsSent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		family    string
		responses bool
		counted   bool
	}{
		{"gpt-6", false, false},
		{"gpt-6", true, true},
		{"claude-5", false, true},
		{"gemini-3", false, true},
	} {
		r := &provider.Request{
			Turns: []conversation.Turn{conversation.Say("assistant", "Hm.")},
			Facts: provider.ModelFacts{Responses: tt.responses},
		}
		before := CountRequest(r, tt.family)
		r.Turns[0].Blocks[0].Extra = []byte(`{"openai":{"reasoning":[{"encrypted_content":"Z0FBQUFB"}]}}`)
		if got := CountRequest(r, tt.family) > before; got != tt.counted {
			t.Errorf("%s, Responses %v: counted %v", tt.family, tt.responses, got)
		}
	}
}

// Inputs to embed are counted without anything around them; the number of token ids is exact.
func TestCountInputs(t *testing.T) {
	t.Parallel()
	texts := &provider.Request{Embedding: &provider.Embedding{Inputs: []provider.EmbeddingInput{
		{Text: "The harbour keeps its lamps lit.", Tokens: 7},
		{Text: "好", Tokens: 1},
	}}}
	ids := &provider.Request{Embedding: &provider.Embedding{Inputs: []provider.EmbeddingInput{
		{IDs: []int64{1, 2, 3}, Tokens: 3},
		{IDs: []int64{4, 5}, Tokens: 2},
	}}}
	byByte := &provider.Request{Embedding: &provider.Embedding{Inputs: []provider.EmbeddingInput{
		{Text: "zq", Tokens: 2},
	}}}
	for _, test := range []struct {
		request *provider.Request
		family  string
		want    int64
	}{
		{texts, "gemini-embedding", 8},
		{texts, "embedding-3", 10}, // 8 × 1.25
		{ids, "gemini-embedding", 5},
		{ids, "embedding-3", 5},
		{byByte, "embedding-3", 2}, // a token has at least a byte
	} {
		if got := CountRequest(test.request, test.family); got != test.want {
			t.Errorf("%s counts %d, want %d", test.family, got, test.want)
		}
	}
	if !KnownFamily("embedding-3", true) || KnownFamily("embedding-3", false) || KnownFamily("gpt-6", true) {
		t.Error("a family of embeddings is taken for one of text")
	}
}
