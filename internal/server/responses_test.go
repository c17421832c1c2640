package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/testkit/servertest"
)

const responsesPath = "/openai/v1/responses"

// responseBody returns a body of the Responses API with one text of the user.
func responseBody(model, text string, more ...string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return `{"model":"` + model + `","input":` + string(b) + strings.Join(append([]string{""}, more...), ",") + `}`
}

// A responseObject has the members of a response that tests read.
type responseObject struct {
	ID         string
	Status     string
	Incomplete *struct{ Reason string } `json:"incomplete_details"`
	Error      *struct{ Code string }
	Output     []json.RawMessage
	Usage      struct {
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
	}
	Svc map[string]any
}

func readResponse(t *testing.T, body string) (r responseObject) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return r
}

// lastResponse returns the response of the last event of a stream.
func lastResponse(t *testing.T, events string) responseObject {
	t.Helper()
	_, data, ok := strings.Cut(events[strings.LastIndex(events, "event: "):], "\ndata: ")
	var e struct{ Response json.RawMessage }
	if err := json.Unmarshal([]byte(data), &e); !ok || err != nil {
		t.Fatalf("%v in %s", err, events)
	}
	return readResponse(t, string(e.Response))
}

// TestResponses asks a model of each provider in the shape of the Responses API, whole and streamed. Both have the same
// output and cost the same, and a replay has the same bytes.
func TestResponses(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *servertest.Process) {
		for _, model := range []string{"gpt-6-luna", "claude-haiku-5-5", "gemini-3.8-flash"} {
			key := "Idempotency-Key: " + servertest.UUID()
			body := responseBody(model, "Say hello.", `"max_output_tokens":100`)
			a := whole(t, p.Call("POST", responsesPath, body, key))
			first := readResponse(t, a.body)
			if a.status != 200 || first.Status != "completed" || len(first.Output) != 1 || first.Usage.Output == 0 {
				t.Fatalf("%s: %+v", model, a)
			}
			if again := whole(t, p.Call("POST", responsesPath, body, key)); again.body != a.body ||
				again.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%s: replayed %+v, first %+v", model, again, a)
			}
			key = "Idempotency-Key: " + servertest.UUID()
			body = responseBody(model, "Say hello.", `"max_output_tokens":100`, streamed)
			s := whole(t, p.Call("POST", responsesPath, body, key))
			if again := whole(t, p.Call("POST", responsesPath, body, key)); again.body != s.body {
				t.Errorf("%s: replayed %s\nfirst %s", model, again.body, s.body)
			}
			last := lastResponse(t, s.body)
			if last.Svc["user_charge_mc"] != first.Svc["user_charge_mc"] || last.Usage != first.Usage ||
				len(last.Output) != 1 {
				t.Errorf("%s: streamed %+v, whole %+v", model, last, first)
			}
		}
	})
}
