package provider

import (
	"strings"
	"testing"
)

func frames(payloads ...string) []byte {
	var b []byte
	for _, p := range payloads {
		b = AppendFrame(b, []byte(p))
	}
	return b
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]Payload{
		"[DONE]":    Finish,
		" [DONE] ":  Finish,
		sampleChunk: Ordinary,
		`{"choices":[{"delta":{"content":"\"usage\":{} \"error\":{}"}}],"error":null,"usage":null}`: Ordinary,
		`{"choices":[],"prompt_filter_results":[]}`:                                                 Ordinary,
		`{"error":{"message":"m","type":"server_error"}}`:                                           Failure,
		`{"error":"overloaded","choices":[]}`:                                                       Failure,
		`{"choices":[],"usage":` + sampleUsage + `}`:                                                UsageOnly,
		`{"choices":[ ],"usage":{"prompt_tokens":-1}}`:                                              UsageOnly,
		`{"usage":` + sampleUsage + `}`:                                                             UsageOnly,
		`{"choices":null,"usage":` + sampleUsage + `}`:                                              UsageOnly,
		`{"choices":[{"delta":{}}],"usage":` + sampleUsage + `}`:                                    WithUsage,
		`<html>`:           Garbage,
		`{"choices":[`:     Garbage,
		`[]`:               Garbage,
		`"[DONE]"`:         Garbage,
		"{\"a\":\"\xff\"}": Garbage,
		`{} {}`:            Garbage,
	} {
		got, usage := Classify([]byte(payload))
		if got != want {
			t.Errorf("%s: %d, want %d", payload, got, want)
		}
		if hasUsage := strings.Contains(payload, sampleUsage); (usage != nil) != hasUsage {
			t.Errorf("%s: usage %v", payload, usage)
		}
	}
}

func TestTextIsAllThatTheModelGenerated(t *testing.T) {
	t.Parallel()
	got := GeneratedText(frames(
		`{"choices":[{"delta":{"role":"assistant","content":""}}]}`,
		`{"choices":[{"delta":{"reasoning_content":"Hm. "}}]}`,
		`{"choices":[{"delta":{"content":"Hé"}}]}`,
		`{"choices":[{"delta":{"content":null,"refusal":" no"}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":" look","arguments":""}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":" {\"a\":"}},{"index":1,"function":{"arguments":"1}"}}]}}]}`,
		`not JSON`,
		`{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
		`{"choices":[],"usage":`+sampleUsage+`}`,
	))
	if want := `Hm. Hé no look {"a":1}`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := GeneratedText(
		[]byte("data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\ndata: {\"choi")); got != "half" {
		t.Errorf("of a torn store: %q", got)
	}
	body := `{"choices":[{"message":{"role":"assistant","reasoning_content":"c","content":"a","refusal":null,` +
		`"tool_calls":[{"function":{"name":"b","arguments":"{}"}}]}}]}`
	if got := GeneratedBodyText([]byte(body)); got != "cab{}" {
		t.Errorf("of a body: %q", got)
	}
}

// Thinking that comes with a tool call is output as that which comes before one; what is no thinking counts nothing and
// hides nothing else of its frame.
func TestThinkingOfAToolCallIsGenerated(t *testing.T) {
	t.Parallel()
	for extra, want := range map[string]string{
		`{"anthropic":{"thinking":[{"type":"thinking","thinking":"Hm. ","signature":"c2ln"},` +
			`{"type":"redacted_thinking","data":"eA=="}]}}`: "f{}Hm. ",
		`{"google":{"thought_signature":"c2ln"}}`: "f{}",
		`"text"`: "f{}",
	} {
		call := `{"tool_calls":[{"function":{"name":"f","arguments":"{}"},"extra_content":` + extra + `}]}`
		if got := GeneratedText([]byte(`data: {"choices":[{"delta":` + call + `}]}` + "\n\n")); got != want {
			t.Errorf("%s: %q", extra, got)
		}
		if got := GeneratedBodyText([]byte(`{"choices":[{"message":` + call + `}]}`)); got != want {
			t.Errorf("%s, whole: %q", extra, got)
		}
	}
}

func TestLastUsageFrame(t *testing.T) {
	t.Parallel()
	usage := `{"choices":[],"usage":` + sampleUsage + `}`
	for _, c := range []struct {
		stored []byte
		want   string
	}{
		{frames(sampleChunk, usage), string(frames(usage))},
		{frames(usage), string(frames(usage))},
		{frames(usage, sampleChunk), ""},
		{frames(sampleChunk), ""},
		{nil, ""},
	} {
		if got := string(LastUsageFrame(c.stored)); got != c.want {
			t.Errorf("of %q: %q", c.stored, got)
		}
	}
}

// TestIsEmptyAnswer finds answers that ended by themselves without anything that an app can read, in both forms.
func TestIsEmptyAnswer(t *testing.T) {
	t.Parallel()
	body := func(message, reason string) string {
		return `{"choices":[{"message":` + message + `,"finish_reason":"` + reason + `"}],"usage":{}}`
	}
	chunk := func(delta, reason string) string {
		return `{"choices":[{"delta":` + delta + `,"finish_reason":` + reason + `}]}`
	}
	for name, tt := range map[string]struct {
		output string
		want   bool
	}{
		"nothing":        {body(`{"role":"assistant","content":"","refusal":null,"tool_calls":[]}`, "stop"), true},
		"null":           {" " + body(`{"role":"assistant","content":null}`, "stop"), true},
		"text":           {body(`{"content":"x"}`, "stop"), false},
		"a space":        {body(`{"content":" "}`, "stop"), false},
		"cut by the cap": {body(`{"content":""}`, "length"), false},
		"filtered":       {body(`{"content":""}`, "content_filter"), false},
		"refusal":        {body(`{"content":null,"refusal":"no"}`, "stop"), false},
		"tool call":      {body(`{"content":null,"tool_calls":[{"id":"a"}]}`, "stop"), false},
		"reasoning":      {body(`{"content":"","reasoning_content":"Well"}`, "stop"), false},
		"embeddings":     {`{"object":"list","data":[]}`, false},
		"torn":           {`{"choices":[{"finish_reason":"stop"`, false},
		"long":           {body(`{"content":""}`, "stop") + strings.Repeat(" ", maxEmptyAnswer), false},
		"nothing at all": {"", false},
		"stream": {string(frames(chunk(`{"role":"assistant","content":""}`, `null`), chunk(`{}`, `"stop"`),
			`{"choices":[],"usage":{}}`, `[DONE]`)), true},
		"stream with text": {string(frames(chunk(`{"content":"x"}`, `null`), chunk(`{}`, `"stop"`))), false},
		"stream cut off":   {string(frames(chunk(`{"content":""}`, `null`))), false},
		"stream with garbage": {string(frames(chunk(`{"content":""}`, `null`), `x`, chunk(`{}`, `"stop"`))),
			false},
	} {
		if got := IsEmptyAnswer([]byte(tt.output)); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

// TestLastFinishReason finds the reason of the last chunk, and no text of the model.
func TestLastFinishReason(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ output, want string }{
		{`{"choices":[{"message":{"content":"x"},"finish_reason":"length"}]}`, "length"},
		{`data: {"choices":[{"finish_reason": "tool_calls"}]}` + "\n\n" + `data: {"choices":[]}`, "tool_calls"},
		{`data: {"choices":[{"finish_reason":"stop"}]} data: {"choices":[{"finish_reason":null}]}`, "stop"},
		{`{"choices":[{"message":{"content":"\"finish_reason\":\"forged\""}}]}`, ""},
		{`{"choices":[{"finish_reason":null}]}`, ""},
		{`{"choices":[{"finish_reason":"<b>not a reason</b>"}]}`, ""},
		{`{"choices":[{"finish_reason":"` + strings.Repeat("a", 41) + `"}]}`, ""},
		{`{"finish_reason":`, ""},
		{"", ""},
	} {
		if got := LastFinishReason([]byte(tt.output)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.output, got, tt.want)
		}
	}
}
