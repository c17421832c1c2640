package google

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// FuzzStream: any bytes give whole chunks in OpenAI's shape, an end or an error,
// and the same however they are split.
func FuzzStream(f *testing.F) {
	files, err := filepath.Glob("testdata/*.sse")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, uint16(len(text)/2))
	}
	for _, s := range []string{event(overloaded), event("[" + overloaded + "]"), says("a") + event(invalid),
		event(`{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}],` +
			`"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"totalTokenCount":25}}`),
		event(`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"\ud800","args":{}}}]},"finishReason":"\""}]}`)} {
		f.Add([]byte(s), uint16(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, split uint16) {
		i := int(split) % (len(text) + 1)
		whole := relay(servedText(string(text)))
		parts := relay(served(func(context.Context) io.Reader {
			return io.MultiReader(strings.NewReader(string(text[:i])),
				iotest.OneByteReader(strings.NewReader(string(text[i:]))))
		}))
		if whole.String() != parts.String() {
			t.Fatalf("whole:\n%s\nin parts:\n%s", whole, parts)
		}
		words := shape(t, whole.frames)
		if whole.err == nil || errors.Is(whole.err, io.EOF) && len(words) < 2 {
			t.Fatalf("%v after %v", whole.err, words)
		}
		if u := whole.usage; u != nil {
			_, back := provider.Classify([]byte(strings.TrimPrefix(strings.TrimSpace(whole.usageFrame), "data: ")))
			want := *u
			want.SumDiffers = false // the frame is ours, and its sum does not
			if back == nil || *back != want {
				t.Errorf("%+v in %s", u, whole.usageFrame)
			}
		}
	})
}

// FuzzAnswer: any body is an error or a whole answer.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{sampleAnswer, overloaded, `{"promptFeedback":{"blockReason":"SAFETY"}}`,
		`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"a","args":{"b":[1]},"id":"c"},"thoughtSignature":"d"}]},"finishReason":"STOP"}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := servedText(string(body)).Complete(t.Context(), request(false))
		if err != nil {
			var e *provider.Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			return
		}
		var o object
		if err := json.Unmarshal(r.Body, &o); err != nil || len(o.Choices) != 1 || o.Choices[0].Message == nil ||
			o.Choices[0].FinishReason == nil {
			t.Fatalf("%v: %s", err, r.Body)
		}
		if r.Usage != nil {
			r.Usage.SumDiffers = false // ours does not
			if back := provider.ParseUsage(o.Usage); back == nil || *back != *r.Usage {
				t.Errorf("%+v in %s", r.Usage, r.Body)
			}
		}
	})
}

// FuzzUsage: counts are never negative, and the parts are never more than the whole.
func FuzzUsage(f *testing.F) {
	f.Add([]byte(`{"promptTokenCount":10,"cachedContentTokenCount":4}`),
		[]byte(`{"candidatesTokenCount":3,"thoughtsTokenCount":2,"totalTokenCount":15}`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var c counts
		c.add(first)
		c.add(second)
		u := c.makeUsage()
		if u == nil {
			return
		}
		if min(u.Input, u.Cached, u.CacheWrite, u.Output, u.Reasoning, u.Output-u.Reasoning) < 0 {
			t.Errorf("%+v", u)
		}
	})
}

// FuzzEncode: a request is refused, or becomes valid JSON, the same every time;
// the turns begin with the user's.
func FuzzEncode(f *testing.F) {
	for _, r := range []*provider.Request{
		request(true),
		{
			Turns: []conversation.Turn{said("system", "a"), said("assistant", "b"),
				called(conversation.Block{
					ID:        "x",
					Name:      "1",
					Arguments: `{"a":[]}`,
					Extra:     json.RawMessage(`{"google":{"thought_signature":"c2ln"}}`),
				}), result("x", "d")},
		},
		{
			Turns: []conversation.Turn{
				{Role: "user", Blocks: []conversation.Block{text("a"), image("data:image/png;base64,iVBO")}},
			},
			Tools:           []provider.Tool{{Name: "-", Parameters: json.RawMessage(`{"$schema":1}`)}},
			ToolChoice:      provider.ToolChoice{Mode: "function", Name: "-"},
			ResponseFormat:  json.RawMessage(`{"type":"json_schema","json_schema":{"schema":{}}}`),
			ReasoningEffort: "low",
		},
	} {
		b, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r provider.Request
		if json.Unmarshal(b, &r) != nil {
			return
		}
		out, err := Encode(&r)
		if err != nil {
			var e *provider.Error
			if !errors.As(err, &e) || e.Kind != provider.Rejected || e.Message == "" {
				t.Fatal(err)
			}
			return
		}
		var body struct {
			Contents []struct {
				Role  string            `json:"role"`
				Parts []json.RawMessage `json:"parts"`
			} `json:"contents"`
		}
		if err := json.Unmarshal(out, &body); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if len(body.Contents) == 0 || body.Contents[0].Role != "user" {
			t.Fatalf("%s", out)
		}
		for _, c := range body.Contents {
			if len(c.Parts) == 0 {
				t.Fatalf("a content without parts: %s", out)
			}
		}
		if again, err := Encode(&r); err != nil || !reflect.DeepEqual(out, again) {
			t.Fatalf("%s, then %s, %v", out, again, err)
		}
	})
}
