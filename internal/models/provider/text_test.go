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
		`{"choices":[{"delta":{"content":"Hé"}}]}`,
		`{"choices":[{"delta":{"content":null,"refusal":" no"}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":" look","arguments":""}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":" {\"a\":"}},{"index":1,"function":{"arguments":"1}"}}]}}]}`,
		`not JSON`,
		`{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
		`{"choices":[],"usage":`+sampleUsage+`}`,
	))
	if want := `Hé no look {"a":1}`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := GeneratedText(
		[]byte("data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\ndata: {\"choi")); got != "half" {
		t.Errorf("of a torn store: %q", got)
	}
	body := `{"choices":[{"message":{"role":"assistant","content":"a","refusal":null,"tool_calls":[{"function":{"name":"b","arguments":"{}"}}]}}]}`
	if got := GeneratedBodyText([]byte(body)); got != "ab{}" {
		t.Errorf("of a body: %q", got)
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
