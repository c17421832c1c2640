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

func TestRefusesWhatTheProviderRefuses(t *testing.T) {
	t.Parallel()
	const (
		tools  = `"tools":[{"type":"function","function":{"name":"f"}}],`
		claude = `"tools":[{"name":"f","input_schema":{"type":"object"}}],`
		user   = `{"role":"user","content":"Hi"}`
		gif    = `R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==`
		call   = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function",` +
			`"function":{"name":"f","arguments":"{}"}}]}`
		use   = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}`
		calls = `{"role":"model","parts":[{"functionCall":{"name":"f"},` +
			`"thoughtSignature":"skip_thought_signature_validator"},{"functionCall":{"name":"f"}}]}`
		one     = `{"role":"user","parts":[{"functionResponse":{"name":"f","response":{}}}]}`
		said    = `{"role":"user","parts":[{"text":"Hi"}]}`
		declare = `"tools":[{"functionDeclarations":[{"name":"f"`
	)
	claudeOf := func(model, more, messages string) string {
		return `{"model":"` + model + `","max_tokens":1000,` + more + `"messages":[` + messages + `]}`
	}
	format := func(schema string) string {
		return `"output_config":{"format":{"type":"json_schema","schema":` + schema + `}},`
	}
	chatOf := func(model, more, messages string) string {
		return `{"model":"` + model + `",` + more + `"messages":[` + messages + `]}`
	}
	for name, c := range map[string]struct{ path, body, want string }{
		"chat: unknown parameter": {chatPath, chatOf("gpt-6-sol", `"foo":1,`, user),
			`"param":"foo","code":"unknown_parameter"`},
		"chat: unknown member inside": {chatPath,
			chatOf("gpt-6-sol", "", `{"role":"user","content":"x","extra_content":{}}`), `messages[0].extra_content`},
		"chat: tools with an effort": {chatPath, chatOf("gpt-6-sol", tools, user),
			`"param":"reasoning_effort","code":null`},
		"chat: tools never":           {chatPath, chatOf("gpt-6.2-sol", tools, user), `/v1/responses`},
		"chat: stop while it reasons": {chatPath, chatOf("gpt-6-sol", `"stop":["x"],`, user), `"param":"stop"`},
		"chat: effort none unknown": {chatPath, chatOf("gpt-6.2-sol", `"reasoning_effort":"none",`, user),
			`unsupported_value`},
		"chat: fixed temperature": {chatPath, chatOf("gpt-6-sol", `"temperature":0.5,`, user),
			`"param":"temperature","code":"unsupported_value"`},
		"chat: max_tokens": {chatPath, chatOf("gpt-6-sol", `"max_tokens":5,`, user),
			`"param":"max_tokens","code":"unsupported_parameter"`},
		"chat: above the ceiling": {chatPath, chatOf("gpt-6-sol", `"max_completion_tokens":128001,`, user),
			`128000`},
		"chat: choice without tools": {chatPath, chatOf("gpt-6-sol", `"tool_choice":"auto",`, user),
			`only allowed when 'tools'`},
		"chat: result without call": {chatPath,
			chatOf("gpt-6-sol", "", user+`,{"role":"tool","tool_call_id":"a","content":"x"}`), `must be a response`},
		"chat: call without result": {chatPath, chatOf("gpt-6-sol", "", user+","+call+","+user),
			`did not have response messages: a`},
		"chat: long id": {chatPath,
			chatOf("gpt-6-sol", "", user+","+strings.Replace(call, `"a"`, quoted(strings.Repeat("a", 41)), 1)),
			`string_above_max_length`},
		"chat: image that is none": {chatPath,
			chatOf("gpt-6-sol", "",
				`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}`),
			`invalid_image_format`},
		"responses: unknown parameter": {responsesPath, `{"model":"gpt-6.2-sol","input":"x","messages":[]}`,
			`Unknown parameter: 'messages'`},
		"responses: strict and open": {responsesPath,
			`{"model":"gpt-6.2-sol","input":"x","tools":[{"type":"function","name":"f","strict":true,` +
				`"parameters":{"type":"object"}}]}`, `additionalProperties`},
		"responses: no output": {responsesPath,
			`{"model":"gpt-6.2-sol","input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"a",` +
				`"name":"f","arguments":"{}"}]}`, `No tool output found for function call a`},
		"responses: no call": {responsesPath,
			`{"model":"gpt-6.2-sol","input":[{"role":"user","content":"x"},{"type":"function_call_output",` +
				`"call_id":"a","output":"x"}]}`, `No tool call found`},
		"claude: unknown member": {claudePath, claudeOf("claude-haiku-4-5", `"foo":1,`, user),
			`foo: Extra inputs are not permitted`},
		"claude: unknown member below": {claudePath,
			claudeOf("claude-haiku-4-5", "", `{"role":"user","content":"x","name":"n"}`),
			`messages.0.name: Extra inputs`},
		"claude: no max_tokens": {claudePath, `{"model":"claude-haiku-4-5","messages":[` + user + `]}`,
			`max_tokens: Field required`},
		"claude: above the ceiling": {claudePath,
			strings.Replace(claudeOf("claude-haiku-4-5", "", user), "1000", "64001", 1), `64001 > 64000`},
		"claude: an open object": {claudePath, claudeOf("claude-haiku-4-5",
			format(`{"type":"object","$defs":{"a":{"type":"object"}},"additionalProperties":false}`), user),
			`must be explicitly set to false`},
		"claude: a bound": {claudePath, claudeOf("claude-haiku-4-5",
			format(`{"anyOf":[{"type":"integer","minimum":1}]}`), user), `'minimum' is not supported`},
		"claude: a recursive schema": {claudePath, claudeOf("claude-haiku-4-5",
			format(`{"$defs":{"n":{"type":"array","items":{"$ref":"#/$defs/n"}}}}`), user), `Recursive schemas`},
		"claude: a schema of elsewhere": {claudePath, claudeOf("claude-haiku-4-5",
			format(`{"$ref":"#/$defs/n"}`), user), `could not be resolved`},
		"claude: a bound of a strict tool": {claudePath, claudeOf("claude-haiku-4-5", `"tools":[{"name":"f",`+
			`"strict":true,"input_schema":{"type":"object","additionalProperties":false,"properties":{"a":`+
			`{"type":"string","maxLength":5}}}}],`, user), `'maxLength' is not supported`},
		"claude: an effort where there is a budget": {claudePath,
			claudeOf("claude-haiku-4-5", `"output_config":{"effort":"low"},`, user), `does not support the effort`},
		"claude: an effort that it lacks": {claudePath,
			claudeOf("claude-sonnet-4-6", `"output_config":{"effort":"xhigh"},`, user), `'xhigh' is not supported`},
		"claude: a temperature while it thinks": {claudePath,
			claudeOf("claude-sonnet-4-6", `"thinking":{"type":"adaptive"},"temperature":0.5,`, user),
			`may only be set to 1`},
		"claude: prefill of Sonnet 4.6": {claudePath,
			claudeOf("claude-sonnet-4-6", "", user+`,{"role":"assistant","content":"x"}`), `not support assistant`},
		"claude: prefill while it thinks": {claudePath,
			strings.Replace(claudeOf("claude-haiku-4-5", `"thinking":{"type":"enabled","budget_tokens":1024},`,
				user+`,{"role":"assistant","content":"x"}`), "1000", "2000", 1), `does not support assistant`},
		"claude: fixed temperature": {claudePath, claudeOf("claude-opus-5-5", `"temperature":0.5,`, user),
			`not supported`},
		"claude: forced choice": {claudePath,
			claudeOf("claude-opus-5-5", claude+`"tool_choice":{"type":"any"},`, user),
			`tool_choice: type 'any' is not supported`},
		"claude: thinking always": {claudePath,
			claudeOf("claude-opus-5-5", `"thinking":{"type":"disabled"},`, user), `'disabled' is not supported`},
		"claude: prefill": {claudePath,
			claudeOf("claude-opus-5-5", "", user+`,{"role":"assistant","content":"I"}`), `prefill`},
		"claude: empty text": {claudePath,
			claudeOf("claude-haiku-4-5", "", `{"role":"user","content":[{"type":"text","text":""}]}`),
			`must be non-empty`},
		"claude: call without result": {claudePath, claudeOf("claude-haiku-4-5", claude, user+","+use+","+user),
			"without `tool_result` blocks immediately after: a"},
		"claude: result after text": {claudePath,
			claudeOf("claude-haiku-4-5", claude,
				user+","+use+`,{"role":"user","content":[{"type":"text","text":"x"},{"type":"tool_result",`+
					`"tool_use_id":"a"}]}`), "without `tool_result` blocks"},
		"claude: unknown result": {claudePath,
			claudeOf("claude-haiku-4-5", claude,
				user+`,{"role":"assistant","content":"x"},{"role":"user","content":[{"type":"tool_result",`+
					`"tool_use_id":"b"}]}`), "unexpected `tool_use_id`"},
		"claude: two results for one": {claudePath,
			claudeOf("claude-haiku-4-5", claude,
				user+","+use+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"},`+
					`{"type":"tool_result","tool_use_id":"a"}]}`), "must have a single result"},
		"claude: history, no tools": {claudePath,
			claudeOf("claude-haiku-4-5", "",
				user+","+use+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}`),
			"must define tools"},
		"claude: wrong media type": {claudePath,
			claudeOf("claude-haiku-4-5", "",
				`{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"`+
					gif+`"}}]}`), `appears to be a image/gif`},
		"claude: strange signature": {claudePath,
			claudeOf("claude-opus-5-5", "",
				user+`,{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"AAAA"},`+
					`{"type":"text","text":"x"}]},`+user), "Invalid `signature`"},
		"google: unknown name": {googlePath, `{"contents":[` + said + `],"generationConfig":{"maxTokens":1}}`,
			`Unknown name \"maxTokens\" at 'generation_config': Cannot find field.`},
		"google: schema keyword": {googlePath,
			`{` + declare + `,"parameters":{"type":"object","additionalProperties":false}}]}],"contents":[` + said +
				`]}`, `Unknown name \"additionalProperties\" at 'tools[0].function_declarations[0].parameters'`},
		"google: list of types": {googlePath,
			`{` + declare + `,"parameters":{"type":["string","null"]}}]}],"contents":[` + said + `]}`,
			`Invalid value at`},
		"google: name with a digit": {googlePath,
			`{"tools":[{"functionDeclarations":[{"name":"1f"}]}],"contents":[` + said + `]}`, `Invalid function name`},
		"google: too few responses": {googlePath, `{"contents":[` + said + "," + calls + "," + one + `]}`,
			`number of function response parts`},
		"google: response without": {googlePath, `{"contents":[` + said + "," + one + `]}`,
			`immediately after a function call turn`},
		"google: call without text": {googlePath, `{"contents":[` + calls + "," + one + `]}`,
			`function call turn comes immediately after a user turn`},
		"google: missing signature": {googlePath,
			strings.Replace(`{"contents":[`+said+","+calls+
				`,{"role":"user","parts":[{"functionResponse":{"name":"f","response":{}}},`+
				`{"functionResponse":{"name":"f",`+
				`"response":{}}}]}]}`, `,"thoughtSignature":"skip_thought_signature_validator"`, "", 1),
			`missing a thought_signature`},
		"google: GIF": {googlePath,
			`{"contents":[{"role":"user","parts":[{"inlineData":{"mimeType":"image/gif","data":"` + gif + `"}}]}]}`,
			`Unsupported MIME type`},
		"google: above the ceiling": {googlePath,
			`{"contents":[` + said + `],"generationConfig":{"maxOutputTokens":65537}}`,
			`maxOutputTokens value of 65537`},
		"steering that is not known": {chatPath, promptBodies(chatPath, "!emu statsu=500", ""), `statsu`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, body, err := postBody(t, startEmulator(t), c.path, c.body)
			if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, c.want) {
				t.Errorf("%v, %v: %s", resp, err, body)
			}
		})
	}
}

// TestTakesSchemasOfBothKinds: Google takes the schema of an answer in its own
// and in JSON's spelling.
func TestTakesSchemasOfBothKinds(t *testing.T) {
	t.Parallel()
	for _, member := range []string{`"responseSchema":{"type":"OBJECT"}`,
		`"responseJsonSchema":{"type":"object","additionalProperties":false}`} {
		more := `"generationConfig":{"responseMimeType":"application/json",` + member + `},`
		if resp, body, err := postBody(t, startEmulator(t), googlePath,
			promptBodies(googlePath, "Hi", more)); err != nil ||
			resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %v, %v: %s", member, resp, err, body)
		}
	}
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

func TestTakesPlaceholderAndOldTurnsWithoutSignature(t *testing.T) {
	t.Parallel()
	s := startEmulator(t)
	said, call := `{"role":"user","parts":[{"text":"Hi"}]}`, `{"role":"model","parts":[{"functionCall":{"name":"f"}}]}`
	answer := `{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"output":"x"}}}]}`
	marked := strings.Replace(call, `}}]`, `},"thoughtSignature":"skip_thought_signature_validator"}]`, 1)
	for name, body := range map[string]string{
		"placeholder": said + "," + marked + "," + answer,
		"older turn":  said + "," + call + "," + answer + "," + said,
	} {
		if resp, text, err := postBody(t, s, googlePath, `{"contents":[`+body+`]}`); err != nil ||
			resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %v %s", name, err, text)
		}
	}
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
