package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// contentsPath returns the path of a call in Google's shape.
func contentsPath(model string, stream bool) string {
	if stream {
		return "/google/v1beta/models/" + model + ":streamGenerateContent?alt=sse"
	}
	return "/google/v1beta/models/" + model + ":generateContent"
}

// contentsBody returns a body of Google's shape with one text of the user.
func contentsBody(text string, more ...string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return `{"contents":[{"role":"user","parts":[{"text":` + string(b) + `}]}]` +
		strings.Join(append([]string{""}, more...), ",") + `}`
}

// TestContents asks a model of each provider in Google's shape, whole and streamed. Both cost the same, and a replay
// has the same bytes.
func TestContents(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		for _, model := range []string{"gpt-6-luna", "claude-haiku-5-5", "gemini-3.8-flash"} {
			var charges []any
			for _, stream := range []bool{false, true} {
				key, path := "Idempotency-Key: "+servertest.UUID(), contentsPath(model, stream)
				body := contentsBody("Say hello.", `"generationConfig":{"maxOutputTokens":100}`)
				a := whole(t, p.Call("POST", path, body, key))
				if a.status != 200 || !strings.Contains(a.body, `"finishReason":"STOP"`) {
					t.Fatalf("%s: %+v", model, a)
				}
				if again := whole(t, p.Call("POST", path, body, key)); again.body != a.body ||
					again.header.Get("Idempotent-Replayed") != "true" {
					t.Errorf("%s: replayed %+v, first %+v", model, again, a)
				}
				charges = append(charges, contentsBill(t, a.body)["user_charge_mc"])
			}
			if charges[0] == nil || charges[0] != charges[1] {
				t.Errorf("%s: whole it costs %v, streamed %v", model, charges[0], charges[1])
			}
		}
		key, body := "Idempotency-Key: "+servertest.UUID(), contentsBody("!mock cut=5")
		cut := whole(t, p.Call("POST", contentsPath("gpt-6-luna", true), body, key))
		again := whole(t, p.Call("POST", contentsPath("gpt-6-luna", true), body, key))
		if cut.body != again.body || !strings.Contains(cut.body, `data: {"error":{"code":502,`) ||
			!strings.Contains(cut.body, `"settlement":"estimated"`) {
			t.Errorf("a stream that broke off: %s\nreplayed: %s", cut.body, again.body)
		}
	})
}

// contentsBill returns the svc block of a response, or of the last chunk of a stream.
func contentsBill(t *testing.T, body string) map[string]any {
	t.Helper()
	body = strings.TrimSpace(body)
	if i := strings.LastIndex(body, "data: "); i >= 0 {
		body = body[i+len("data: "):]
	}
	var v struct {
		Svc   map[string]any `json:"svc"`
		Final struct {
			Svc map[string]any `json:"svc"`
		} `json:"svc_final"`
	}
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if v.Svc == nil {
		return v.Final.Svc
	}
	return v.Svc
}

// TestContentsToolsAndThinking: a client of Google's shape that sends the contents of the model back unchanged, but for
// its summaries of thoughts, gives every provider its reasoning again, and gets an answer from the result of its tool.
func TestContentsToolsAndThinking(t *testing.T) {
	t.Parallel()
	eachEmulated(t, func(t *testing.T, n *emulated) {
		for _, tt := range []struct{ model, reasoning string }{
			{"gpt-6.2-sol", `"encrypted_content"`},
			{"claude-haiku-5-5", `"signature"`},
			{"claude-sonnet-4-6", `"signature"`},
			{"gemini-3.8-flash", `"thoughtSignature"`},
		} {
			for _, stream := range []bool{false, true} {
				n.forget()
				contents := []any{json.RawMessage(`{"role":"user","parts":[{"text":"!emu thinking\n!call weather ` +
					`{\"city\":\"Rome\"}"}]}`)}
				send := func() answer {
					body, err := json.Marshal(map[string]any{
						"contents": contents,
						"tools": json.RawMessage(`[{"functionDeclarations":[{"name":"weather","parameters":{"type":` +
							`"OBJECT","properties":{"city":{"type":"STRING"}}}}]}]`),
						"generationConfig": json.RawMessage(`{"maxOutputTokens":4000,"thinkingConfig":` +
							`{"includeThoughts":true}}`),
					})
					if err != nil {
						t.Fatal(err)
					}
					return whole(t, n.Call("POST", contentsPath(tt.model, stream), string(body)))
				}
				a := send()
				if a.status != 200 {
					t.Fatalf("%s, stream %t: %+v", tt.model, stream, a)
				}
				parts, thoughts := contentsParts(t, a.body)
				if len(parts) == 0 || thoughts == "" {
					t.Fatalf("%s, stream %t: %+v", tt.model, stream, a)
				}
				contents = append(contents, map[string]any{"role": "model", "parts": parts},
					json.RawMessage(`{"role":"user","parts":[{"functionResponse":{"name":"weather","response":`+
						`{"output":"18 degrees"}}}]}`))
				if b := send(); b.status != 200 || !strings.Contains(b.body, `"finishReason":"STOP"`) {
					t.Errorf("%s, stream %t: %+v", tt.model, stream, b)
				}
				if text := n.lastBody(); !strings.Contains(text, tt.reasoning) {
					t.Errorf("%s, stream %t: the provider got no reasoning back: %s", tt.model, stream, text)
				}
			}
		}
	})
}

// contentsParts returns the parts of a response, whole or streamed, without summaries of thoughts, and these.
func contentsParts(t *testing.T, body string) (parts []json.RawMessage, thoughts string) {
	t.Helper()
	for chunk := range strings.SplitSeq(strings.TrimSpace(body), "\n\n") {
		var v struct {
			Candidates []struct {
				Content struct{ Parts []json.RawMessage }
			}
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(chunk, "data: ")), &v); err != nil {
			t.Fatalf("%v in %s", err, chunk)
		}
		for _, part := range v.Candidates[0].Content.Parts {
			var p struct {
				Text    string
				Thought bool
			}
			if err := json.Unmarshal(part, &p); err != nil {
				t.Fatal(err)
			}
			if p.Thought {
				thoughts += p.Text
			} else {
				parts = append(parts, part)
			}
		}
	}
	return parts, thoughts
}

// TestContentsEdges: credentials, errors and routes of Google's base URL.
func TestContentsEdges(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		const model, models = "claude-haiku-5-5", "/google/v1beta/models"
		token := p.Connection.AccessToken
		key, bearer := []string{"X-Goog-Api-Key", token}, []string{"Authorization", "Bearer " + token}
		path, hi := contentsPath(model, false), contentsBody("Hi")
		for _, tt := range []struct {
			name, path, body string
			headers          []string
			status           int
			says             string
		}{
			{"a key", path, hi, key, 200, `"STOP"`},
			{"a bearer token", path, hi, bearer, 200, `"STOP"`},
			{"two tokens", path, hi, []string{"X-Goog-Api-Key", "other", "Authorization", "Bearer " + token}, 401,
				"different access tokens"},
			{"no token", path, hi, nil, 401, `"status":"UNAUTHENTICATED"`},
			{"a token in the address", path + "?key=" + token, hi, key, 401, "ends up in logs"},
			{"a key elsewhere", "/v1/chat/completions", `{}`, key, 401, `"code":"unauthorized"`},
			{"a model that is not offered", contentsPath("gemini-9", false), hi, key, 400, "GET /v1/models lists"},
			{"an array for a stream", strings.TrimSuffix(contentsPath(model, true), "?alt=sse"), hi, key, 400,
				"alt: must be sse"},
			{"a limit for money", path, hi, append([]string{"X-Svc-Feature", "x y"}, key...), 400, "X-Svc-Feature"},
			{"the count", models + "/" + model + ":countTokens", hi, key, 200, `{"totalTokens":`},
			{"the count of a request", models + "/" + model + ":countTokens",
				`{"generateContentRequest":` + hi + `}`, key, 200, `{"totalTokens":`},
			{"embeddings", models + "/" + model + ":embedContent", hi, key, 404, "POST /openai/v1/embeddings"},
			{"nothing to do", models + "/" + model, hi, key, 404, "generateContent"},
			{"the models", models, "", nil, 200, `"name":"models/gpt-6-luna"`},
			{"a model", models + "/" + model, "", nil, 200, `"name":"models/` + model + `"`},
			{"no model", models + "/none", "", nil, 404, `"status":"NOT_FOUND"`},
			{"files", "/google/upload/v1beta/files", "{}", key, 404, "files are not stored here"},
			{"caches", "/google/v1beta/cachedContents", "{}", key, 404, "caches are not kept here"},
		} {
			method := "POST"
			if tt.body == "" {
				method = "GET"
			}
			req, err := http.NewRequest(method, p.BaseURL+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			for i := 0; i < len(tt.headers); i += 2 {
				req.Header.Set(tt.headers[i], tt.headers[i+1])
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if a := whole(t, resp); a.status != tt.status || !strings.Contains(a.body, tt.says) {
				t.Errorf("%s: %d %.500s, want %d %s", tt.name, a.status, a.body, tt.status, tt.says)
			}
		}
	})
}
