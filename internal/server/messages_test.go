package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

const messagesPath = "/anthropic/v1/messages"

// message returns a body of Anthropic's shape with one text of the user.
func message(model, text string, more ...string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return `{"model":"` + model + `","max_tokens":100,"messages":[{"role":"user","content":` + string(b) + `}]` +
		strings.Join(append([]string{""}, more...), ",") + `}`
}

// TestMessages asks a model of each provider in Anthropic's shape, whole and streamed. Both cost the same, and a replay
// has the same bytes.
func TestMessages(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		for _, model := range []string{"gpt-6-luna", "claude-haiku-5-5", "gemini-3.8-flash"} {
			key := "Idempotency-Key: " + servertest.UUID()
			body := message(model, "Say hello.")
			a := whole(t, p.Call("POST", messagesPath, body, key))
			if a.status != 200 || !strings.HasPrefix(a.body, `{"id":"msg_`) ||
				!strings.Contains(a.body, `"stop_reason":"end_turn"`) {
				t.Fatalf("%s: %+v", model, a)
			}
			if again := whole(t, p.Call("POST", messagesPath, body, key)); again.body != a.body ||
				again.header.Get("Idempotent-Replayed") != "true" ||
				again.header.Get("Request-Id") != a.header.Get("X-Request-Id") {
				t.Errorf("%s: replayed %+v, first %+v", model, again, a)
			}
			key = "Idempotency-Key: " + servertest.UUID()
			body = message(model, "Say hello.", streamed)
			s := whole(t, p.Call("POST", messagesPath, body, key))
			if again := whole(t, p.Call("POST", messagesPath, body, key)); again.body != s.body {
				t.Errorf("%s: replayed %s\nfirst %s", model, again.body, s.body)
			}
			if got, want := messageBill(t, s.body)["user_charge_mc"], a.billing(t)["user_charge_mc"]; got != want {
				t.Errorf("%s: streamed it costs %v, whole %v", model, got, want)
			}
		}
		// A stream that breaks off ends with an error that has the charge, in the replay too.
		key, body := "Idempotency-Key: "+servertest.UUID(), message("gpt-6-luna", "!mock cut=5", streamed)
		cut := whole(t, p.Call("POST", messagesPath, body, key))
		again := whole(t, p.Call("POST", messagesPath, body, key))
		if cut.body != again.body || !strings.Contains(cut.body, "event: error\n") ||
			!strings.Contains(cut.body, `"settlement":"estimated"`) {
			t.Errorf("a stream that broke off: %s\nreplayed: %s", cut.body, again.body)
		}
		// Clients that send one key at once read the same stream.
		key, body = "Idempotency-Key: "+servertest.UUID(), message("gpt-6-luna", "!mock pace=20ms words=20", streamed)
		joined := make([]string, 4)
		var calls sync.WaitGroup
		for i := range joined {
			calls.Go(func() { joined[i] = whole(t, p.Call("POST", messagesPath, body, key)).body })
		}
		calls.Wait()
		for _, other := range joined {
			if other != joined[0] || !strings.Contains(other, "event: message_stop") {
				t.Errorf("joined: %s\nand %s", other, joined[0])
			}
		}
	})
}

// messageBill returns the svc block of a streamed message.
func messageBill(t *testing.T, events string) map[string]any {
	t.Helper()
	_, data, _ := strings.Cut(events, "event: message_delta\ndata: ")
	data, _, _ = strings.Cut(data, "\n")
	var v struct {
		Final struct {
			Svc map[string]any `json:"svc"`
		} `json:"svc_final"`
	}
	if err := json.Unmarshal([]byte(data), &v); err != nil || v.Final.Svc == nil {
		t.Fatalf("%v: no bill in %s", err, events)
	}
	return v.Final.Svc
}

// block is a content block of a message.
type block map[string]any

// messageBlocks returns the content of a message, whole or streamed, as a client sends it back.
func messageBlocks(t *testing.T, body string) (blocks []block) {
	t.Helper()
	if !strings.HasPrefix(body, "event: ") {
		var m struct{ Content []block }
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		return m.Content
	}
	arguments := ""
	for line := range strings.SplitSeq(body, "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var e struct {
			Type  string
			Block block `json:"content_block"`
			Delta map[string]string
		}
		if strings.Contains(data, `"content_block_`) {
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatalf("%v in %s", err, data)
			}
		}
		switch e.Type {
		case "content_block_start":
			blocks, arguments = append(blocks, e.Block), ""
		case "content_block_delta":
			last := blocks[len(blocks)-1]
			for _, name := range []string{"text", "thinking", "signature"} {
				if piece, ok := e.Delta[name]; ok {
					last[name] = last[name].(string) + piece
				}
			}
			arguments += e.Delta["partial_json"]
		case "content_block_stop":
			if last := blocks[len(blocks)-1]; last["type"] == "tool_use" && arguments != "" {
				last["input"] = json.RawMessage(arguments)
			}
		}
	}
	return blocks
}

// TestMessagesToolsAndThinking: a client of Anthropic's shape that sends all blocks back unchanged gives every provider
// its reasoning again, which Google requires, and gets an answer from the result of its tool.
func TestMessagesToolsAndThinking(t *testing.T) {
	t.Parallel()
	eachEmulated(t, func(t *testing.T, n *emulated) {
		for _, tt := range []struct{ model, reasoning string }{
			{"gpt-6.2-sol", `"encrypted_content"`},
			{"gpt-6-luna", `"encrypted_content"`},
			{"claude-haiku-5-5", `"signature"`},
			{"claude-haiku-4-5", `"budget_tokens":2000}`},
			{"claude-sonnet-4-6", `"signature"`},
			{"gemini-3.8-flash", `"thoughtSignature"`},
		} {
			for _, stream := range []bool{false, true} {
				n.forget()
				ask := map[string]any{
					"model": tt.model, "max_tokens": 4000, "stream": stream,
					"thinking": map[string]string{"type": "adaptive"},
					"tools": []any{map[string]any{"name": "weather", "input_schema": map[string]any{
						"type": "object", "properties": map[string]any{"city": map[string]string{"type": "string"}},
					}}},
				}
				messages := []any{map[string]any{
					"role": "user", "content": "!emu thinking\n!call weather {\"city\":\"Rome\"}",
				}}
				send := func() answer {
					ask["messages"] = messages
					body, err := json.Marshal(ask)
					if err != nil {
						t.Fatal(err)
					}
					return whole(t, n.Call("POST", messagesPath, string(body)))
				}
				a := send()
				blocks := messageBlocks(t, a.body)
				if a.status != 200 || len(blocks) < 2 || blocks[0]["type"] != "thinking" {
					t.Fatalf("%s, stream %t: %+v", tt.model, stream, a)
				}
				call := blocks[len(blocks)-1]
				if call["type"] != "tool_use" || call["name"] != "weather" {
					t.Fatalf("%s, stream %t: %v", tt.model, stream, blocks)
				}
				messages = append(messages, map[string]any{"role": "assistant", "content": blocks},
					map[string]any{"role": "user", "content": []any{map[string]any{
						"type": "tool_result", "tool_use_id": call["id"], "content": "18 degrees",
					}}})
				b := send()
				if b.status != 200 || !strings.Contains(b.body, "end_turn") {
					t.Errorf("%s, stream %t: %+v", tt.model, stream, b)
				}
				if text := n.lastBody(); !strings.Contains(text, tt.reasoning) {
					t.Errorf("%s, stream %t: the provider got no reasoning back: %s", tt.model, stream, text)
				}
			}
		}
	})
}

// lastBody returns the body of the last request that reached the emulator.
func (n *emulated) lastBody() string {
	n.t.Helper()
	resp, err := http.Get(n.url + "/emulator/requests")
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	var all struct {
		Data []struct{ Body json.RawMessage }
	}
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil || len(all.Data) == 0 {
		n.t.Fatalf("%v: no requests", err)
	}
	return string(all.Data[len(all.Data)-1].Body)
}

// TestMessagesEdges: credentials, errors and routes of Anthropic's base URL.
func TestMessagesEdges(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		const model = "claude-haiku-5-5"
		token := p.Connection.AccessToken
		send := func(path, body string, headers map[string]string) answer {
			method := "POST"
			if body == "" {
				method = "GET"
			}
			req, err := http.NewRequest(method, p.BaseURL+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			for name, value := range headers {
				req.Header.Set(name, value)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			return whole(t, resp)
		}
		key := map[string]string{"X-Api-Key": token, "Anthropic-Version": "2023-06-01", "Anthropic-Beta": "x-1,y-2"}
		for _, tt := range []struct {
			name, path, body string
			headers          map[string]string
			status           int
			says             string
		}{
			{"a key", messagesPath + "?beta=true", message(model, "Hi"), key, 200, `"end_turn"`},
			{"the token twice", messagesPath, message(model, "Hi"),
				map[string]string{"X-Api-Key": token, "Authorization": "Bearer " + token}, 200, `"end_turn"`},
			{"two tokens", messagesPath, message(model, "Hi"),
				map[string]string{"X-Api-Key": "other", "Authorization": "Bearer " + token}, 401, "different " +
					"access tokens"},
			{"no token", messagesPath, message(model, "Hi"), nil, 401, `"type":"authentication_error"`},
			{"a key elsewhere", "/v1/chat/completions", `{}`, key, 401, `"code":"unauthorized"`},
			{"a model that is not offered", messagesPath, message("claude-9", "Hi"), key, 400, "GET /v1/models lists"},
			{"a model that cannot do it", messagesPath, message("claude-opus-5-5", "Hi", `"tools":[{"name":"f",`+
				`"input_schema":{"type":"object"}}],"tool_choice":{"type":"any"}`), key, 400,
				"tool_choice: claude-opus-5-5 cannot be forced to call a tool"},
			{"the count", messagesPath + "/count_tokens", `{"model":"` + model + `",` +
				`"messages":[{"role":"user","content":"Hi"}]}`,
				key, 200, `{"input_tokens":`},
			{"the models", "/anthropic/v1/models", "", key, 200, `"id":"gpt-6-luna"`},
			{"a model", "/anthropic/v1/models/" + model, "", nil, 200, `"type":"model"`},
			{"no model", "/anthropic/v1/models/none", "", nil, 404, `"type":"not_found_error"`},
			{"batches", messagesPath + "/batches", "{}", key, 404, "POST /anthropic/v1/messages"},
			{"the wrong method", messagesPath, "", key, 405, `"type":"invalid_request_error"`},
		} {
			a := send(tt.path, tt.body, tt.headers)
			if a.status != tt.status || !strings.Contains(a.body, tt.says) {
				t.Errorf("%s: %d %.500s, want %d %s", tt.name, a.status, a.body, tt.status, tt.says)
			}
			if strings.HasPrefix(tt.path, "/anthropic") && (a.header.Get("Request-Id") == "" ||
				a.header.Get("Request-Id") != a.header.Get("X-Request-Id")) {
				t.Errorf("%s: header request-id is %q", tt.name, a.header.Get("Request-Id"))
			}
		}
		// A message for a person comes with the refusal for money: nine of these calls at once do not fit.
		var refused atomic.Int64
		var calls sync.WaitGroup
		for range 9 {
			calls.Go(func() {
				body := strings.Replace(message("claude-opus-5", "!mock delay=2s"), `:100,`, `:128000,`, 1)
				a := send(messagesPath, body, key)
				if a.status == 402 && strings.Contains(a.body, `"type":"billing_error"`) &&
					strings.Contains(a.body, "calls in flight hold the rest") {
					refused.Add(1)
				} else if a.status != 200 {
					t.Errorf("too many at once: %+v", a)
				}
			})
		}
		if calls.Wait(); refused.Load() == 0 {
			t.Error("no call was refused for money")
		}
		// A retry of an SDK is the same call.
		body := message(model, "Once.")
		first := send(messagesPath, body, key)
		again := send(messagesPath, body, map[string]string{"X-Api-Key": token, "X-Stainless-Retry-Count": "1"})
		if again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("a retry got %+v, the first %+v", again, first)
		}
		if other := send(messagesPath, body, key); other.header.Get("Idempotent-Replayed") != "" {
			t.Error("a call without a retry count was replayed")
		}
	})
}
