package emulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestPromptCaches follows the caches of the providers through conversations. It shows of each request the tokens that
// were read from the cache and written to it, relative to the long text: R is one, W is one.
func TestPromptCaches(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("All of this text is kept. ", 1000) // 6,001 tokens
	mark := `,"cache_control":{"type":"ephemeral"}`
	claude := func(system string, turns ...string) string {
		return fmt.Sprintf(`{"model":"claude-haiku-5-5","max_tokens":50,"system":[%s],"messages":[%s]}`, system,
			strings.Join(turns, ","))
	}
	text := func(s, mark string) string { return fmt.Sprintf(`{"type":"text","text":%q%s}`, s, mark) }
	user := func(blocks ...string) string {
		return `{"role":"user","content":[` + strings.Join(blocks, ",") + `]}`
	}
	const said = `{"role":"assistant","content":"So."}`
	many := strings.Split(strings.TrimSuffix(strings.Repeat(text("x", "")+"\n", 25), "\n"), "\n")
	chat := func(key, first, last string) string {
		return fmt.Sprintf(`{"model":"gpt-6-luna","max_completion_tokens":50,"prompt_cache_key":%q,"messages":[`+
			`{"role":"system","content":%q},{"role":"user","content":%q}]}`, key, first, last)
	}
	gemini := func(first, last string) string {
		return fmt.Sprintf(`{"systemInstruction":{"parts":[{"text":%q}]},"contents":[{"role":"user","parts":`+
			`[{"text":%q}]}]}`, first, last)
	}
	const openAI, google = "/v1/chat/completions", "/v1beta/models/gemini-3.8-flash:generateContent"
	const anthropic = "/v1/messages"
	for name, steps := range map[string][]struct {
		path, body    string
		read, written bool
	}{
		"no marks": {
			{anthropic, claude(text(long, ""), user(text("a", ""))), false, false},
			{anthropic, claude(text(long, ""), user(text("a", ""))), false, false},
		},
		"a marked system prompt": {
			{anthropic, claude(text(long, mark), user(text("a", ""))), false, true},
			{anthropic, claude(text(long, mark), user(text("b", ""))), true, false},
			{anthropic, claude(text("!"+long, mark), user(text("b", ""))), false, true},
		},
		"a short one": {
			{anthropic, claude(text("short", mark), user(text("a", ""))), false, false},
			{anthropic, claude(text("short", mark), user(text("a", ""))), false, false},
		},
		"the end of a conversation that grows": {
			{anthropic, claude(text("s", ""), user(text(long, mark))), false, true},
			{anthropic, claude(text("s", ""), user(text(long, "")), said, user(text("b", mark))), true, false},
		},
		"more than 20 blocks later": {
			{anthropic, claude(text("s", ""), user(text(long, mark))), false, true},
			{anthropic, claude(text("s", ""), user(text(long, "")), said, user(slices.Concat(many,
				[]string{text("b", mark)})...)), false, true},
			{anthropic, claude(text("s", ""), user(text(long, mark)), said, user(slices.Concat(many,
				[]string{text("c", mark)})...)), true, false},
		},
		"OpenAI by key": {
			{openAI, chat("k", long, "a"), false, true},
			{openAI, chat("k", long, "b"), true, false},
			{openAI, chat("l", long, "b"), false, true},
			{openAI, chat("k", "short", "a"), false, false},
			{openAI, chat("k", "short", "a"), false, false},
		},
		"Google": {
			{google, gemini(long, "a"), false, false},
			{google, gemini(long, "b"), true, false},
			{google, gemini("short", "a"), false, false},
			{google, gemini("short", "a"), false, false},
		},
	} {
		e := New(Options{})
		for i, step := range steps {
			req := httptest.NewRequest("POST", step.path, strings.NewReader(step.body))
			req.Header = http.Header{
				"Content-Type":      {"application/json"},
				"Authorization":     {"Bearer k"},
				"X-Api-Key":         {"k"},
				"X-Goog-Api-Key":    {"k"},
				"Anthropic-Version": {"2023-06-01"},
			}
			w := httptest.NewRecorder()
			e.ServeHTTP(w, req)
			var v struct {
				Usage struct {
					Read    int `json:"cache_read_input_tokens"`
					Written int `json:"cache_creation_input_tokens"`
					Details struct {
						Read    int `json:"cached_tokens"`
						Written int `json:"cache_write_tokens"`
					} `json:"prompt_tokens_details"`
				} `json:"usage"`
				Metadata struct {
					Read int `json:"cachedContentTokenCount"`
				} `json:"usageMetadata"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code != http.StatusOK {
				t.Fatalf("%s, request %d: %d %v %s", name, i, w.Code, err, w.Body)
			}
			read := v.Usage.Read + v.Usage.Details.Read + v.Metadata.Read
			written := v.Usage.Written + v.Usage.Details.Written
			if read > 5_500 != step.read || written > 5_500 != step.written {
				t.Errorf("%s, request %d: %d read, %d written, want %+v", name, i, read, written, step)
			}
			if openAIRead := v.Usage.Details.Read; openAIRead%128 != 0 {
				t.Errorf("%s, request %d: %d tokens are no steps of 128", name, i, openAIRead)
			}
		}
	}
}

// TestFiveMarksAreRefused as the provider does.
func TestFiveMarksAreRefused(t *testing.T) {
	t.Parallel()
	block := `{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}`
	req := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(
		`{"model":"claude-haiku-5-5","max_tokens":50,"messages":[{"role":"user","content":[`+
			strings.Repeat(block+",", 4)+block+`]}]}`))
	req.Header = http.Header{
		"Content-Type":      {"application/json"},
		"X-Api-Key":         {"k"},
		"Anthropic-Version": {"2023-06-01"},
	}
	w := httptest.NewRecorder()
	New(Options{}).ServeHTTP(w, req)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "A maximum of 4 blocks") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
