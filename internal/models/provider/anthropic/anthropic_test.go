package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

var update = flag.Bool("update", false, "write what is expected of testdata/*.sse anew")

const sampleKey = "aKeyThatLooksLikeNone"

func request() *provider.Request {
	return &provider.Request{
		ID:        "req_1",
		Model:     "claude-haiku-5-5",
		MaxTokens: 100,
		Facts:     provider.ModelFacts{Thinking: "on"},
		Turns:     []conversation.Turn{user("hi")},
	}
}

func user(text string) conversation.Turn {
	return conversation.Say("user", text)
}

// serve is a provider over real HTTP that answers with h.
func serve(t testing.TB, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	c := New(srv.URL, sampleKey)
	c.now = func() time.Time { return time.Unix(1764547200, 0) }
	t.Cleanup(func() {
		c.CloseIdle()
		srv.Close()
	})
	return c
}

// answers is a handler that sends text with a status.
func answers(status int, text string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// A scripted transport stands in for HTTP where reads must be exact.
type scripted func(*http.Request) (*http.Response, error)

func (f scripted) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// served returns a client whose provider answers every request with this body.
func served(body func() io.Reader) *Client {
	c := New("http://provider.test", sampleKey)
	c.now = func() time.Time { return time.Unix(1764547200, 0) }
	c.plain.Transport = scripted(func(*http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode:    200,
			ContentLength: -1,
			Header:        http.Header{},
			Body:          io.NopCloser(body()),
		}, nil
	})
	c.bound.Transport = c.plain.Transport
	return c
}

func says(text string) *Client {
	return served(func() io.Reader { return strings.NewReader(text) })
}

// relayed is what an app would get of a stream.
type relayed struct {
	frames, usageFrame string
	usage              *provider.Usage
	err                error // of Stream, or the one that ended it
	started            bool
}

func relay(c *Client) relayed { return relayOf(c, request()) }

func relayOf(c *Client, r *provider.Request) (out relayed) {
	s, err := c.Stream(context.Background(), r)
	if err != nil {
		return relayed{err: err}
	}
	defer s.Close()
	out.started = true
	for {
		chunk, err := s.Next()
		if err != nil {
			out.err = err
			return out
		}
		out.frames += string(chunk.Frames)
		if chunk.UsageFrame != nil {
			out.usageFrame, out.usage = string(chunk.UsageFrame), chunk.Usage
		}
	}
}

func complete(c *Client) (*provider.Response, error) {
	return c.Complete(context.Background(), request())
}

// said is what a message says in OpenAI's shape.
type said struct {
	Role      string   `json:"role"`
	Content   *string  `json:"content"`
	Refusal   *string  `json:"refusal"`
	ToolCalls []called `json:"tool_calls"`
}

type called struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
	ExtraContent json.RawMessage `json:"extra_content"`
}

// body is an answer as an app reads it.
type body struct {
	ID, Object, Model string
	Created           int64
	Choices           []struct {
		Index        int
		Message      said
		FinishReason *string `json:"finish_reason"`
	}
	Usage json.RawMessage
}

func read(t testing.TB, raw []byte) (said, string) {
	t.Helper()
	var b body
	if err := json.Unmarshal(raw, &b); err != nil || len(b.Choices) != 1 || b.Choices[0].FinishReason == nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return b.Choices[0].Message, *b.Choices[0].FinishReason
}

// joined puts chunks together as the clients of this API do.
func joined(t testing.TB, frames string) (said, string) {
	t.Helper()
	var m said
	var content, reason string
	for i, frame := range strings.SplitAfter(strings.TrimSuffix(frames, "\n\n"), "\n\n") {
		var c struct {
			ID, Object, Model string
			Choices           []struct {
				Index        int
				Delta        said
				FinishReason *string `json:"finish_reason"`
			}
		}
		data, ok := strings.CutPrefix(frame, "data: ")
		if err := json.Unmarshal([]byte(data), &c); !ok || err != nil {
			t.Fatalf("chunk %d: %v: %q", i, err, frame)
		}
		if len(c.Choices) != 1 || c.Choices[0].Index != 0 || c.Object != "chat.completion.chunk" ||
			c.ID != "chatcmpl-1" || c.Model != "claude-haiku-5-5" || reason != "" {
			t.Fatalf("chunk %d: %s", i, frame)
		}
		d := c.Choices[0].Delta
		if (d.Role == "assistant") != (i == 0) {
			t.Fatalf("chunk %d: role %q", i, d.Role)
		}
		if d.Content != nil {
			content += *d.Content
		}
		if d.Refusal != nil {
			m.Refusal = d.Refusal
		}
		for _, call := range d.ToolCalls {
			if call.ID != "" {
				if call.Index != len(m.ToolCalls) {
					t.Fatalf("chunk %d: call %d comes as the %d-th", i, call.Index, len(m.ToolCalls))
				}
				call.Index = 0
				m.ToolCalls = append(m.ToolCalls, call)
			} else {
				m.ToolCalls[call.Index].Function.Arguments += call.Function.Arguments
			}
		}
		if c.Choices[0].FinishReason != nil {
			reason = *c.Choices[0].FinishReason
		}
	}
	m.Role = "assistant"
	if content != "" || len(m.ToolCalls) == 0 {
		m.Content = &content
	}
	return m, reason
}

func fixtures(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/*.sse")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	return names
}

func load(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// expect compares with a file, which says for a reader what is expected.
func expect(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(load(t, name), got); d != "" {
		t.Errorf("%s: %s", name, d)
	}
}

func fault(t *testing.T, err error) *provider.Error {
	t.Helper()
	var e *provider.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no provider.Error", err)
	}
	if strings.Contains(err.Error(), sampleKey) || strings.Contains(e.Message, sampleKey) {
		t.Errorf("the key is shown: %v", err)
	}
	return e
}

// TestRequestOnTheWire: address, credential and version.
func TestRequestOnTheWire(t *testing.T) {
	t.Parallel()
	text := load(t, "testdata/text.sse")
	for _, replays := range []bool{false, true} {
		var got *http.Request
		var sent []byte
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			got = r
			sent, _ = io.ReadAll(r.Body)
			_, _ = io.WriteString(w, text)
		})
		r := request()
		if replays {
			r.Turns = roundTrip(`{"anthropic":{"thinking":[{"type":"thinking","thinking":"","signature":"s"}]}}`)
		}
		if _, err := c.Complete(context.Background(), r); err != nil {
			t.Fatal(err)
		}
		want, _ := Encode(r)
		if string(sent) != string(want) {
			t.Errorf("sent %s", sent)
		}
		if got.Method+got.URL.String() != "POST/v1/messages" || got.Header.Get("X-Api-Key") != sampleKey ||
			got.Header.Get("Anthropic-Version") != "2023-06-01" ||
			got.Header.Get("Content-Type") != "application/json" || got.Header.Get("Authorization") != "" ||
			got.Header.Get("X-Client-Request-Id") != "dfe7be6cee3b99ca63628de710b914dd" {
			t.Errorf("%s %s %v", got.Method, got.URL, got.Header)
		}
		if beta := got.Header.Get("Anthropic-Beta"); (beta != "") != replays {
			t.Errorf("replays %v: beta %q", replays, beta)
		}
	}
}
