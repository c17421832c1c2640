package server_test

import (
	"encoding/json"
	"strings"
	"testing"

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
	eachNode(t, func(t *testing.T, p *servertest.Process) {
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
