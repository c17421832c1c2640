package emulator

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/emulator/exchange"
)

// startEmulator serves an emulator.
func startEmulator(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(New(Options{}))
	t.Cleanup(s.Close)
	return s
}

// postBody sends a body to a path with the key and the version that it wants.
func postBody(t *testing.T, s *httptest.Server, path, body string) (*http.Response, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}}
	switch {
	case strings.HasPrefix(path, "/v1/messages"):
		r.Header.Set("X-Api-Key", "k")
		r.Header.Set("Anthropic-Version", "2023-06-01")
	case strings.HasPrefix(path, "/v1beta"):
		r.Header.Set("X-Goog-Api-Key", "k")
	default:
		r.Header.Set("Authorization", "Bearer k")
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

const (
	chatPath      = "/v1/chat/completions"
	claudePath    = "/v1/messages"
	responsesPath = "/v1/responses"
	googlePath    = "/v1beta/models/gemini-3.8-flash:generateContent"
)

// quoted is a text as JSON.
func quoted(text string) string { return string(exchange.Encode(text)) }

// promptBodies is a request with one text of the user, for each path; more goes before
// the messages.
func promptBodies(path, text, more string) string {
	switch {
	case strings.HasPrefix(path, "/v1/messages"):
		return `{"model":"claude-haiku-4-5","max_tokens":1000,` + more + `"messages":[{"role":"user","content":` +
			quoted(text) + `}]}`
	case strings.HasPrefix(path, "/v1beta"):
		return `{` + more + `"contents":[{"role":"user","parts":[{"text":` + quoted(text) + `}]}]}`
	case strings.HasPrefix(path, "/v1/responses"):
		return `{"model":"gpt-6.2-sol",` + more + `"input":` + quoted(text) + `}`
	}
	return `{"model":"gpt-6-sol",` + more + `"messages":[{"role":"user","content":` + quoted(text) + `}]}`
}

// FuzzRequest looks for bodies that bring the emulator down.
func FuzzRequest(f *testing.F) {
	for i, path := range paths {
		for _, text := range []string{"Hi", "Hi\n!call f {\"a\":1}\n!step\n!call g",
			"!emu words=3 usage=1,2,3,4 cut=5 split", "!emu calls=2 malformed_call thinking"} {
			f.Add(i, promptBodies(path, text, ""))
			f.Add(i, promptBodies(path, text, `"stream":true,`))
		}
	}
	e := New(Options{})
	gone, cancel := context.WithCancel(f.Context())
	cancel() // so that nothing waits
	f.Fuzz(func(t *testing.T, i int, body string) {
		r := httptest.NewRequestWithContext(gone, "POST", paths[(i%len(paths)+len(paths))%len(paths)],
			strings.NewReader(body))
		r.Header = http.Header{
			"Content-Type":      {"application/json"},
			"Authorization":     {"Bearer k"},
			"X-Api-Key":         {"k"},
			"X-Goog-Api-Key":    {"k"},
			"Anthropic-Version": {"2023-06-01"},
		}
		e.ServeHTTP(httptest.NewRecorder(), r)
	})
}

func TestDropsThinkingWhenAsked(t *testing.T) {
	t.Parallel()
	s := startEmulator(t)
	_, text, _ := postBody(t, s, claudePath,
		strings.Replace(promptBodies(claudePath, "Hi", ""), "claude-haiku-4-5", "claude-opus-5-5", 1))
	var first struct {
		Content jsontext.Value `json:"content"`
	}
	if err := json.Unmarshal([]byte(text), &first); err != nil {
		t.Fatal(err)
	}
	again := `{"model":"claude-opus-5-5","max_tokens":1000,"system":"new","thinking":{"type":"adaptive",` +
		`"block_binding":{"prefix_mismatch_behavior":"drop_block"}},` +
		`"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":` + string(first.Content) +
		`},{"role":"user","content":"More"}]}`
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+claudePath, strings.NewReader(again))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Content-Type":      {"application/json"},
		"X-Api-Key":         {"k"},
		"Anthropic-Version": {"2023-06-01"},
		"Anthropic-Beta":    {"thinking-binding-controls-2026-08-01"},
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), `"path":"messages.1.content.0"`) ||
		!strings.Contains(string(body), "prefix_binding_mismatch") {
		t.Errorf("%v: %s", err, body)
	}
	if _, body, _ := postBody(t, s, claudePath, again); !strings.Contains(body,
		"block_binding: Extra inputs are not permitted") {
		t.Errorf("without the header: %s", body)
	}
}
