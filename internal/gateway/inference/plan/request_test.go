package plan

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/models/provider"
)

// FuzzParse: whatever comes, it is read or refused by name; what is read stays
// inside the bounds of contract §8.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"messages":[{"role":"user","content":"hi"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url",` +
			`"image_url":{"url":"https://x/y.png"}}]}],"max_tokens":5,"stream":true,` +
			`"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",` +
			`"function":{"name":"f","arguments":"{}"},"extra_content":{"a":1}}]},{"role":"tool","tool_call_id":"c",` +
			`"content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],` +
			`"tool_choice":{"type":"function","function":{"name":"f"}}}`,
		`{"messages":[{"role":"user","content":"a"}],"stop":["x"],"response_format":{"type":"json_object"},"n":1,` +
			`"api_base":null}`,
		`{"model":"m","messages":[{"role":"developer","content":"a","name":"b"},{"role":"assistant","content":"",` +
			`"refusal":"no"}],"stop":"\u2028","max_completion_tokens":9223372036854775807,"top_p":1e-7}`,
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk=",` +
			`"detail":"low"}}]}],"temperature":2,"reasoning_effort":"none"}`,
		`{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f",` +
			`"strict":true}},{"type":"function","function":{"name":"g","description":"b"}}],` +
			`"tool_choice":"required","parallel_tool_calls":false}`,
		`{"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema",` +
			`"json_schema":{"name":"s","schema":{"type":"object"}}},"service_tier":"auto","modalities":["text"],` +
			`"logprobs":false,"top_logprobs":0}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":""}},{"id":"d",` +
			`"function":{"name":"f","arguments":"x"}}]},{"role":"tool","tool_call_id":"d","content":"x"},` +
			`{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":""}]}]}`,
		`{"messages":[{"role":"tool","tool_call_id":"` + strings.Repeat("é", 99) + `","content":"x"}]}`,
		`{"messages":[{"role":"user","content":"\ud83e\uddfe \u0000"}],"messages":[]}`,
		`{"messages":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `,"` + strings.Repeat("a.", 99) + `":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		var e *apierr.Error
		if err != nil {
			if !errors.As(err, &e) || e.Code != apierr.InvalidRequest || e.Message == "" || len(e.Message) > 1000 ||
				!utf8.ValidString(e.Message) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if len(p.Messages) == 0 || len(p.Messages) > maxMessages || len(p.Tools) > maxTools || p.Images > maxImages ||
			p.MaxTokens < 0 || len(p.Stop) > 4 {
			t.Fatalf("read past the bounds: %+v", p)
		}
		if (p.ToolChoice.Mode != "" || p.ParallelToolCalls != nil) && len(p.Tools) == 0 {
			t.Fatalf("a choice among no tools: %+v", p)
		}
		c := p.ToolChoice
		offered := slices.ContainsFunc(p.Tools, func(x provider.Tool) bool { return x.Name == c.Name })
		if (c.Mode == "function") != (c.Name != "") || c.Name != "" && !offered {
			t.Fatalf("a choice of none: %+v", p)
		}
		for _, m := range p.Messages {
			for _, text := range append([]string{m.Text, m.Name, m.ToolCallID, m.Refusal}, p.Stop...) {
				if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
					t.Fatalf("%q was read", text)
				}
			}
		}
		if again, err := Parse(data); err != nil || len(again.Messages) != len(p.Messages) {
			t.Fatalf("read twice, it differs: %v", err)
		}
	})
}

// TestUnknownMembers: near misses of what bounds the cost are refused and name the right member;
// any other unknown member is dropped and listed.
func TestUnknownMembers(t *testing.T) {
	t.Parallel()
	const head = `{"messages":[{"role":"user","content":"a"}],`
	for member, right := range map[string]string{
		`"maxTokens":5`:                              "max_tokens",
		`"max_output_tokens":5`:                      "max_tokens",
		`"Max_Tokens":5`:                             "max_tokens",
		`"max-tokens":5`:                             "max_tokens",
		`"max_new_tokens":5`:                         "max_tokens",
		`"generationConfig":{"maxOutputTokens":5}`:   "max_tokens",
		`"reasoning":{"effort":"low"}`:               "reasoning_effort",
		`"reasoningEffort":"low"`:                    "reasoning_effort",
		`"thinking":{"type":"disabled"}`:             "reasoning_effort",
		`"thinking_config":{"thinking_budget":0}`:    "reasoning_effort",
		`"seed":1,"output_config":{"effort":"low"}`:  "reasoning_effort",
		`"max_tokens":5,"maxCompletionTokens":50000`: "max_tokens",
	} {
		_, err := Parse([]byte(head + member + `}`))
		var e *apierr.Error
		if !errors.As(err, &e) || e.Code != apierr.InvalidRequest || !strings.HasSuffix(e.Message, "send "+right) {
			t.Errorf("%s: %v", member, err)
		}
	}
	p, err := Parse([]byte(head + `"seed":1,"top_k":5,"frequency_penalty":0.5,"logit_bias":{},"verbosity":"low",` +
		`"reasoning":null,"maxTokens":null,"store":false,"max_tokens":7,"x\r\ny":1,"user":"u"}`))
	want := []string{"seed", "top_k", "frequency_penalty", "logit_bias", "verbosity", "user"}
	if err != nil || !slices.Equal(p.Ignored, want) || p.MaxTokens != 7 {
		t.Errorf("%v: ignored %q", err, p.Ignored)
	}
	many := head
	for i := range 100 {
		many += `"m` + strings.Repeat("x", i) + `":1,`
	}
	if p, err := Parse([]byte(many + `"z":1}`)); err != nil || len(p.Ignored) != maxIgnored {
		t.Errorf("%v: %d names", err, len(p.Ignored))
	}
	if _, err := Parse([]byte(`{"messages":[{"role":"robot","content":"a"}]}`)); err == nil ||
		!strings.Contains(err.Error(), "must be one of system, developer, user, assistant, tool") {
		t.Errorf("a role that is none: %v", err)
	}
}

// TestExtraContent reads what an assistant message brings back. Its reasoning_content is dropped
// without a word.
func TestExtraContent(t *testing.T) {
	t.Parallel()
	p, err := Parse([]byte(`{"messages":[{"role":"user","content":"a","extra_content":{"x":1}},` +
		`{"role":"assistant","content":"b","reasoning_content":"c","extra_content":{"google":{}}},` +
		`{"role":"assistant","content":"d","extra_content":null},{"role":"user","content":"e"}]}`))
	if err != nil || len(p.Ignored) != 0 || p.Messages[0].ExtraContent != nil ||
		string(p.Messages[1].ExtraContent) != `{"google":{}}` || p.Messages[2].ExtraContent != nil {
		t.Errorf("%v: %+v", err, p)
	}
}
