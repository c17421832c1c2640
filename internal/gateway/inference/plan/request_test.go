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
