package google

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/models/provider"
)

const sampleAnswer = `{"candidates":[{"content":{"parts":[{"text":"H\u00e9 "},{"text":"\"you\""}],"role":"model"},"finishReason":"STOP","index":0,"safetyRatings":[]}],` +
	`"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":3,"totalTokenCount":43,"thoughtsTokenCount":30,"cachedContentTokenCount":4},"modelVersion":"gemini-3.8-flash-001","responseId":"rEsP0nSe"}`

type call struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
	ExtraContent json.RawMessage `json:"extra_content"`
}

type spoken struct {
	Role         *string         `json:"role"`
	Content      *string         `json:"content"`
	ToolCalls    []call          `json:"tool_calls"`
	ExtraContent json.RawMessage `json:"extra_content"`
}

type object struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices []struct {
		Index        int     `json:"index"`
		Delta        *spoken `json:"delta"`
		Message      *spoken `json:"message"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage json.RawMessage `json:"usage"`
}

// chunks reads frames as an app would, strictly.
func chunks(t testing.TB, frames string) (all []object) {
	t.Helper()
	for frame := range strings.SplitAfterSeq(frames, "\n\n") {
		if frame == "" {
			continue
		}
		payload, ok := strings.CutPrefix(strings.TrimSuffix(frame, "\n\n"), "data: ")
		var o object
		if err := json.Unmarshal([]byte(payload), &o); err != nil || !ok || strings.Contains(payload, "\n") {
			t.Fatalf("%v: %q", err, frame)
		}
		if len(o.Choices) != 1 || o.Choices[0].Delta == nil || o.Object != "chat.completion.chunk" || o.ID == "" ||
			o.Model == "" || o.Created == 0 || o.Usage != nil {
			t.Fatalf("not a chunk: %s", payload)
		}
		all = append(all, o)
	}
	return all
}

// shape says in a word what each chunk is.
func shape(t testing.TB, frames string) (words []string) {
	t.Helper()
	calls := 0
	for i, o := range chunks(t, frames) {
		d, finish := o.Choices[0].Delta, o.Choices[0].FinishReason
		switch {
		case (d.Role != nil) != (i == 0):
			t.Fatalf("chunk %d: the role stands in the first one, and only there", i)
		case d.Role != nil:
			words = append(words, "role")
		case finish != nil && d.Content == nil && d.ToolCalls == nil && d.ExtraContent == nil:
			words = append(words, *finish)
		case finish != nil:
			t.Fatalf("chunk %d says something beside its finish reason", i)
		case len(d.ToolCalls) == 1 && d.ToolCalls[0].Index != nil && *d.ToolCalls[0].Index == calls &&
			d.ToolCalls[0].Type == "function":
			words = append(words, "call"+string(rune('0'+calls)))
			calls++
		case d.Content != nil && *d.Content != "":
			words = append(words, "text")
		case d.Content != nil && d.ExtraContent != nil:
			words = append(words, "signature")
		default:
			t.Fatalf("chunk %d says nothing: %+v", i, d)
		}
	}
	return words
}

func last(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

func toolCalls(t testing.TB, frames string) (all []call) {
	t.Helper()
	for _, o := range chunks(t, frames) {
		all = append(all, o.Choices[0].Delta.ToolCalls...)
	}
	return all
}

func complete(t *testing.T, answer string) *provider.Response {
	t.Helper()
	r, err := servedText(answer).Complete(t.Context(), request(false))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	r := complete(t, " "+sampleAnswer+"\n")
	want := `{"id":"rEsP0nSe","object":"chat.completion","created":1700000000,"model":"gemini-3.8-flash-001","choices":[{"index":0,"message":` +
		`{"role":"assistant","content":"H\u00e9 \"you\"","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":33,"total_tokens":43,` +
		`"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},` +
		`"completion_tokens_details":{"reasoning_tokens":30}}}`
	if string(r.Body) != want {
		t.Errorf("%s", r.Body)
	}
	if d := cmp.Diff(&provider.Usage{Input: 6, Cached: 4, Output: 33, Reasoning: 30}, r.Usage); d != "" {
		t.Error(d)
	}
}

// TestAnswerWithCalls: ids, names, signatures, and content that is null.
func TestAnswerWithCalls(t *testing.T) {
	t.Parallel()
	r := complete(t,
		`{"candidates":[{"content":{"parts":[{"text":"hm","thought":true},{"functionCall":{"name":"_1st","args":{"a": 1}},"thoughtSignature":"c2ln"},{"functionCall":{"name":"f","id":"x9"}}]},"finishReason":"STOP"}]}`)
	want := `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"gemini-3.8-flash","choices":[{"index":0,"message":{"role":"assistant","content":null,"refusal":null,"tool_calls":[` +
		`{"id":"call_000000000000000000000001","type":"function","function":{"name":"1st","arguments":"{\"a\":1}"},"extra_content":{"google":{"thought_signature":"c2ln"}}},` +
		`{"id":"x9","type":"function","function":{"name":"f","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"}]}`
	if string(r.Body) != want || r.Usage != nil {
		t.Errorf("%s, %+v", r.Body, r.Usage)
	}
	r = complete(t, `{"candidates":[{"content":{"parts":[{"text":"a"},{"text":"","thoughtSignature":"c2ln"}]},"finishReason":"STOP"}]}`)
	if !strings.Contains(string(r.Body),
		`"content":"a","refusal":null,"extra_content":{"google":{"thought_signature":"c2ln"}}}`) {
		t.Errorf("%s", r.Body)
	}
	c := New("", "k")
	if a, b := c.newID(), c.newID(); len(a) != 24 || a == b {
		t.Errorf("ids %q and %q", a, b)
	}
}

// TestEdge29OnlyThoughts: the whole cap went into thinking, and is billed.
func TestEdge29OnlyThoughts(t *testing.T) {
	t.Parallel()
	r := complete(t,
		`{"candidates":[{"finishReason":"MAX_TOKENS"}],"usageMetadata":{"promptTokenCount":5,"thoughtsTokenCount":100,"totalTokenCount":105}}`)
	if !strings.Contains(string(r.Body), `"content":"","refusal":null},"logprobs":null,"finish_reason":"length"`) {
		t.Errorf("%s", r.Body)
	}
	want := provider.Usage{Input: 5, Output: 100, Reasoning: 100}
	if r.Usage == nil || *r.Usage != want {
		t.Errorf("%+v", r.Usage)
	}
	if out := relayFixture(t, "length_without_text"); out.usage == nil || *out.usage != want {
		t.Errorf("%+v", out.usage)
	}
}

// TestEdge35BlockedPrompt: one choice with nothing in it, and the prompt is billed.
func TestEdge35BlockedPrompt(t *testing.T) {
	t.Parallel()
	for _, candidates := range []string{"", `"candidates":[],`, `"candidates":null,`} {
		r := complete(t,
			`{`+candidates+`"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":12,"totalTokenCount":12}}`)
		if !strings.Contains(string(r.Body),
			`"content":"","refusal":null},"logprobs":null,"finish_reason":"content_filter"`) || r.Usage == nil ||
			*r.Usage != (provider.Usage{Input: 12}) {
			t.Errorf("%s, %+v", r.Body, r.Usage)
		}
	}
}

// TestAnswersThatAreNone: a status of 200 alone is no answer.
func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		text  string
		retry bool
	}{
		"nothing":                     {"", false},
		"a page":                      {"<html>", false},
		"a list":                      {"[" + sampleAnswer + "]", false},
		"no candidates":               {`{"usageMetadata":{}}`, true},
		"an error":                    {overloaded, true},
		"an error in an array":        {"[" + overloaded + "]", true},
		"candidates of another shape": {`{"candidates":[1]}`, false},
		"half":                        {sampleAnswer[:100], false},
		"parts of another shape":      {`{"candidates":[{"content":{"parts":{}}}]}`, false},
	} {
		_, err := servedText(c.text).Complete(t.Context(), request(false))
		if e := fault(t, err); e.Retry != c.retry {
			t.Errorf("%s: %+v", what, e)
		}
	}
}

// TestEdge38WholeAndStreamedCostTheSame: the same answer, the same usage.
func TestEdge38WholeAndStreamedCostTheSame(t *testing.T) {
	t.Parallel()
	out := relay(servedText(event(sampleAnswer)))
	if d := cmp.Diff(complete(t, sampleAnswer).Usage, out.usage); d != "" {
		t.Error(d)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*provider.Usage{
		`{"promptTokenCount":10,"cachedContentTokenCount":4,"toolUsePromptTokenCount":5,"candidatesTokenCount":3,"thoughtsTokenCount":2,"totalTokenCount":20,"new":[]}`: {
			Input:     11,
			Cached:    4,
			Output:    5,
			Reasoning: 2,
		},
		`{"promptTokenCount":10}`:                                  {Input: 10},
		`{"promptTokenCount":10,"candidatesTokenCount":null}`:      {Input: 10},
		`{"promptTokenCount":9007199254740992}`:                    {Input: 1 << 53},
		`{"promptTokenCount":9007199254740993}`:                    nil,
		`{}`:                                                       nil,
		`null`:                                                     nil,
		`{"promptTokenCount":0}`:                                   nil,
		`{"promptTokenCount":-1}`:                                  nil,
		`{"promptTokenCount":1.5}`:                                 nil,
		`{"promptTokenCount":1e3}`:                                 nil,
		`{"promptTokenCount":"10"}`:                                nil,
		`{"promptTokenCount":10,"cachedContentTokenCount":11}`:     nil,
		`{"promptTokenCount":10,"thoughtsTokenCount":-1}`:          nil,
		`{"promptTokenCount":10,"totalTokenCount":11}`:             {Input: 10, SumDiffers: true},
		`{"promptTokenCount":10,"totalTokenCount":"10"}`:           {Input: 10, SumDiffers: true},
		`{"promptTokenCount":99999999999999999999999999999999999}`: nil,
	} {
		var c counts
		c.add([]byte(text))
		if d := cmp.Diff(want, c.makeUsage()); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}
