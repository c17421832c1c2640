package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// refusalOf is the error of an answer.
type refusalOf struct {
	Code, Message string
	ConnectionID  string `json:"connection_id"`
	Details       map[string]any
}

func readRefusal(t *testing.T, text string) refusalOf {
	t.Helper()
	var e struct{ Error refusalOf }
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return e.Error
}

// TestProviderFailuresTellTheApp: through the emulator, a 502 names the provider, its status and
// what happened, and says whether a retry helps; an error within a stream does too, and names
// the connection.
func TestProviderFailuresTellTheApp(t *testing.T) {
	t.Parallel()
	n := startEmulated(t, db.SQLite)
	for _, v := range vendors {
		for _, tt := range []struct {
			script, kind string
			status       any
			retry        bool
			should       string
		}{
			{"status=529", "overloaded", 529.0, true, ""},
			{"status=503 should_retry=false", "overloaded", 503.0, false, "false"},
			{"status=429 retry_after=90", "quota", 429.0, true, "false"}, // longer than a client should sleep
			{"status=401", "refused", nil, false, "false"},
			{"cut=0", "cut", nil, true, ""},
		} {
			a := n.askModel(v.model, question(tt.script, false), servertest.UUID())
			a.wantAnswer(t, 502, "provider_error")
			d := readRefusal(t, a.body).Details
			if d["provider"] != v.name || d["kind"] != tt.kind || d["upstream_status"] != tt.status ||
				d["retry"] != tt.retry || a.header.Get("X-Should-Retry") != tt.should {
				t.Errorf("%s, %s: %+v", v.name, tt.script, a)
			}
		}
		a := n.askModel(v.model, question("cut=1500 words=200", true), servertest.UUID())
		_, rest, _ := strings.Cut(a.body, `data: {"error":`)
		line, _, _ := strings.Cut(rest, "\n")
		e := readRefusal(t, `{"error":`+line)
		if e.ConnectionID != n.Connection.ID || e.Details["kind"] != "cut" || e.Details["retry"] != false ||
			!strings.HasSuffix(a.body, "data: [DONE]\n\n") {
			t.Errorf("%s: %s", v.name, a.body)
		}
	}
	n.Verify()
}

const citySchema = `"response_format":{"type":"json_schema","json_schema":{"name":"city","schema":{"type":"object",` +
	`"properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}}}`

// TestStructuredOutputOnEveryModel: what GET /v1/models says of response formats is so, at the
// emulated providers, streamed or not. Claude takes json_object as an instruction, and the response names it.
func TestStructuredOutputOnEveryModel(t *testing.T) {
	t.Parallel()
	n := startEmulated(t, db.SQLite)
	var models []struct {
		ID           string
		Capabilities struct {
			Realtime, Embeddings bool
			Formats              []string `json:"response_formats"`
		}
	}
	list := whole(t, n.Call("GET", "/v1/models", ""))
	if err := json.Unmarshal([]byte(list.body), &models); err != nil {
		t.Fatal(err)
	}
	claudes := 0
	for _, m := range models {
		if m.Capabilities.Realtime || m.Capabilities.Embeddings {
			continue
		}
		claude := strings.HasPrefix(m.ID, "claude-")
		if claude {
			claudes++
		}
		if got := strings.Join(m.Capabilities.Formats, " "); got != "json_schema" && claude ||
			got != "json_object json_schema" && !claude {
			t.Errorf("%s takes %q", m.ID, got)
		}
		for _, stream := range []string{"false", "true"} {
			body := `{"max_tokens":400,"stream":` + stream + `,"messages":[{"role":"user","content":"Which city?"}],`
			a := n.askModel(m.ID, body+citySchema+`}`, servertest.UUID())
			if a.status != 200 || claude && !strings.Contains(strings.ReplaceAll(a.body, " ", ""), `{\"city`) {
				t.Errorf("%s, stream %s: %+v", m.ID, stream, a)
			}
			a = n.askModel(m.ID, body+`"response_format":{"type":"json_object"}}`, servertest.UUID())
			if a.status != 200 || (a.header.Get("Svc-Ignored") == "response_format") != claude {
				t.Errorf("%s, stream %s, json_object: %+v", m.ID, stream, a)
			}
		}
	}
	if claudes < 8 {
		t.Errorf("only %d Claude models", claudes)
	}
	n.Verify()
}

// TestRequestsAreToldWhatIsIgnored: the response names the members that were dropped, and when a
// deprecated model ends; other APIs' addresses name the one to use; keys that are wrong are told
// how.
func TestRequestsAreToldWhatIsIgnored(t *testing.T) {
	t.Parallel()
	p := apptest.Start(t, apptest.URL(t, db.SQLite))
	for _, stream := range []string{`"stream":false`, `"stream":true`} {
		key := "Idempotency-Key: " + servertest.UUID()
		body := prompt("Hello", `"seed":1`, `"top_k":4`, `"store":false`, stream)
		for range 2 { // a replay names them too
			a := whole(t, p.Call("POST", "/v1/ai/gpt-4o-mini", body, key))
			if a.status != 200 || a.header.Get("Svc-Ignored") != "seed, top_k" ||
				a.header.Get("Sunset") != "Thu, 14 Jan 2027 00:00:00 GMT" ||
				!strings.HasPrefix(a.header.Get("Deprecation"), "@") {
				t.Errorf("%+v", a)
			}
		}
	}
	a := whole(t, p.Call("POST", luna, prompt("Hello"), "Idempotency-Key: "+servertest.UUID()))
	if a.header.Get("Svc-Ignored") != "" || a.header.Get("Deprecation") != "" || a.header.Get("Sunset") != "" {
		t.Errorf("%v", a.header)
	}
	for _, c := range []struct{ path, body, want string }{ // what the model does not take has the client's name
		{luna, prompt("Hello", `"seed":1`, `"stop":["x"]`, `"reasoning_effort":"minimal"`),
			"seed, reasoning_effort, stop"},
		{"/anthropic/v1/messages", `{"model":"gpt-6-luna","max_tokens":50,"stop_sequences":["x"],"top_k":4,` +
			`"messages":[{"role":"user","content":"Hello"}]}`, "top_k, stop_sequences"},
		{"/anthropic/v1/messages", `{"model":"claude-opus-5-5","max_tokens":50,"thinking":{"type":"disabled"},` +
			`"messages":[{"role":"user","content":"Hello"}]}`, "thinking"},
		{responsesPath, responseBody("gpt-5.5", "Hello", `"reasoning":{"effort":"max"}`), "reasoning.effort"},
	} {
		a = whole(t, p.Call("POST", c.path, c.body, "Idempotency-Key: "+servertest.UUID()))
		if a.status != 200 || a.header.Get("Svc-Ignored") != c.want {
			t.Errorf("%s: %+v", c.body, a)
		}
	}
	const recursive = `"tools":[{"type":"web_search"},{"type":"function","function":{"name":"f","strict":true,` +
		`"parameters":{"type":"object","properties":{"a":{"$ref":"#"}}}}}]`
	a = whole(t, p.Call("POST", "/v1/ai/claude-haiku-5-5", prompt("Hello", recursive), "Idempotency-Key: "+
		servertest.UUID()))
	if e := readRefusal(t, a.body); a.status != 400 || !strings.HasPrefix(e.Message, "tools[1].function.parameters: ") {
		t.Errorf("%+v", a)
	}
	a = whole(t, p.Call("POST", luna, prompt("Hello", `"maxOutputTokens":5`), "Idempotency-Key: "+servertest.UUID()))
	if a.status != 400 ||
		!strings.Contains(a.body, "maxOutputTokens: is not a member of this request; send max_tokens") {
		t.Errorf("%+v", a)
	}
	for key, says := range map[string]string{"": "required, one UUID", "x": "Idempotency-Key: must be one UUID"} {
		header := "X-Nothing: 1"
		if key != "" {
			header = "Idempotency-Key: " + key
		}
		req, err := http.NewRequest("POST", p.BaseURL+luna, strings.NewReader(prompt("Hello")))
		if err != nil {
			t.Fatal(err)
		}
		name, value, _ := strings.Cut(header, ": ")
		req.Header = http.Header{
			"Authorization": {"Bearer " + p.Connection.AccessToken},
			"Content-Type":  {"application/json"},
			name:            {value},
		}
		resp, err := direct.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if a := whole(t, resp); a.status != 400 || !strings.Contains(a.body, says) {
			t.Errorf("key %q: %+v", key, a)
		}
	}
	for path, says := range map[string]string{
		"/v1/responses":           "/openai/v1",
		"/v1/messages":            "POST /v1/chat/completions",
		"/v1/ai/chat/completions": "base URL",
		"/v1/embeddings":          "ends in /openai/v1",
		"/v1/nothing":             "There is nothing at this address.",
	} {
		if a := whole(t, p.Call("POST", path, "{}")); a.status != 404 || !strings.Contains(a.body, says) {
			t.Errorf("%s: %+v", path, a)
		}
	}
	p.Verify()
}

// TestACallLargerThanAWindow: without max_tokens, a call of a large model is larger than what a
// limited-live app may spend in a day. It is refused without Retry-After, is told the largest
// max_tokens that fits, and that many are admitted.
func TestACallLargerThanAWindow(t *testing.T) {
	t.Parallel()
	p := apptest.Start(t, apptest.URL(t, db.Postgres))
	d := dbtest.OpenURL(t, p.DB)
	l := calltest.NewLiveApp(t, d, "window-", 1, 20*money.Dollar)
	ask := func(more ...string) answer {
		body := `{"messages":[{"role":"user","content":"Hello"}]` +
			strings.Join(append([]string{""}, more...), ",") + "}"
		req, err := http.NewRequest("POST", p.BaseURL+"/v1/ai/claude-fable-5-1", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{
			"Authorization":   {"Bearer " + l.Tokens[0]},
			"Content-Type":    {"application/json"},
			"Idempotency-Key": {servertest.UUID()},
		}
		resp, err := direct.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return whole(t, resp)
	}
	a := ask()
	a.wantAnswer(t, 429, "daily_limit_reached")
	e := readRefusal(t, a.body)
	fits, _ := e.Details["max_tokens_that_fit"].(float64)
	if a.header.Get("Retry-After") != "" || a.header.Get("X-Should-Retry") != "false" || fits < 1000 ||
		e.Details["capped_by"] != "model_ceiling" || e.Details["allowed_mc"] != float64(5*money.Dollar) ||
		!strings.Contains(e.Message, "No max_tokens was sent, so it is held for 128000 output tokens") {
		t.Errorf("%+v", a)
	}
	number := func(n float64) string { b, _ := json.Marshal(n); return string(b) }
	ask(`"max_tokens":`+number(fits+1)).wantAnswer(t, 429, "daily_limit_reached")
	if a := ask(`"max_tokens":` + number(fits)); a.status != 200 {
		t.Errorf("max_tokens_that_fit: %+v", a)
	}
	p.Verify()
}
