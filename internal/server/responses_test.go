package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/testkit/nodetest"
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

// text returns the output as JSON.
func (r *responseObject) text() string {
	b, err := json.Marshal(r.Output)
	if err != nil {
		panic(err)
	}
	return string(b)
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
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
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

// ask sends a request of the Responses API and returns its checked answer.
func (n *emulated) ask(body string, headers ...string) answer {
	n.t.Helper()
	return whole(n.t, n.Call("POST", responsesPath, body, headers...))
}

const weatherFunction = `"tools":[{"type":"function","name":"weather","description":"The weather","parameters":` +
	`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false},` +
	`"strict":true}]`

// TestResponsesThroughProviders asks one model of each provider, whole and streamed: a tool round trip with reasoning
// that the client sends back as items, the result of a length limit, a refusal, and failures before and within the
// response.
func TestResponsesThroughProviders(t *testing.T) {
	t.Parallel()
	eachEmulated(t, func(t *testing.T, n *emulated) {
		for _, model := range []string{"gpt-6.2-sol", "claude-opus-5-5", "gemini-3.8-flash"} {
			for _, stream := range []string{`"stream":false`, streamed} {
				n.checkRoundTrip(t, model, stream)
				n.checkEnds(t, model, stream)
			}
		}
		a := n.ask(responseBody("gpt-6-luna", "Hello", `"max_output_tokens":200000`))
		if e := readRefusal(t, a.body); a.status != 400 || !strings.HasPrefix(e.Message, "max_output_tokens: ") ||
			!strings.Contains(a.body, `"param":"max_output_tokens"`) {
			t.Errorf("%+v", a)
		}
	})
}

// readAnswer returns the response of an answer, whole or streamed.
func readAnswer(t *testing.T, a answer) responseObject {
	t.Helper()
	if a.status != 200 {
		t.Fatalf("%+v", a)
	}
	if strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") {
		return lastResponse(t, a.body)
	}
	return readResponse(t, a.body)
}

// checkRoundTrip calls two tools at once, sends all items back with the results, as agents do, and goes on.
func (n *emulated) checkRoundTrip(t *testing.T, model, stream string) {
	t.Helper()
	const question = "!emu thinking say\n!call weather {\"city\":\"Oslo\"}\n!call weather {\"city\":\"Rome\"}\nWarm?"
	user, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	items := []string{`{"role":"user","content":` + string(user) + `}`}
	body := func() string {
		return `{"model":"` + model + `","input":[` + strings.Join(items, ",") + `],"max_output_tokens":4000,` +
			`"include":["reasoning.encrypted_content"],"reasoning":{"summary":"auto"},"store":false,` + stream + `,` +
			weatherFunction + `}`
	}
	first := readAnswer(t, n.ask(body()))
	calls, reasoned := 0, 0
	var results []string
	for _, raw := range first.Output {
		var item struct {
			Type, Arguments string
			CallID          string `json:"call_id"`
			Encrypted       string `json:"encrypted_content"`
		}
		if err := json.Unmarshal(raw, &item); err != nil {
			t.Fatal(err)
		}
		items = append(items, string(raw))
		switch item.Type {
		case "reasoning":
			reasoned += len(item.Encrypted)
		case "function_call":
			calls++
			if !strings.HasPrefix(item.Arguments, `{"city":"`) {
				t.Errorf("%s, %s: %s", model, stream, raw)
			}
			results = append(results, `{"type":"function_call_output","call_id":"`+item.CallID+`","output":"mild"}`)
		}
	}
	if calls != 2 || reasoned == 0 {
		t.Fatalf("%s, %s: %d calls, %d bytes of reasoning: %s", model, stream, calls, reasoned, first.Output)
	}
	items = append(items, results...)
	second := readAnswer(t, n.ask(body()))
	if second.Status != "completed" || !strings.Contains(second.text(), `"output_text"`) {
		t.Errorf("%s, %s: %s", model, stream, second.text())
	}
	for _, raw := range second.Output { // the next turn of the user follows all of it
		items = append(items, string(raw))
	}
	items = append(items, `{"role":"user","content":"And tomorrow?"}`)
	if third := readAnswer(t, n.ask(body())); third.Status != "completed" {
		t.Errorf("%s, %s: %s", model, stream, third.text())
	}
}

// checkEnds compares how responses end.
func (n *emulated) checkEnds(t *testing.T, model, stream string) {
	t.Helper()
	ask := func(script string, more ...string) answer {
		return n.ask(responseBody(model, "!emu "+script+"\nWhat is new?", append(more, stream)...))
	}
	long := readAnswer(t, ask("words=400", `"max_output_tokens":64`))
	if long.Status != "incomplete" || long.Incomplete.Reason != "max_output_tokens" ||
		long.Svc["user_charge_mc"] == nil {
		t.Errorf("%s, %s: cut by length: %+v", model, stream, long)
	}
	refused := readAnswer(t, ask("refusal", `"max_output_tokens":500`))
	if filtered := refused.Incomplete != nil && refused.Incomplete.Reason == "content_filter"; !filtered &&
		!strings.Contains(refused.text(), `"type":"refusal"`) {
		t.Errorf("%s, %s: refused: %s %s", model, stream, refused.Status, refused.text())
	}
	failed := ask("status=503 should_retry=false", `"max_output_tokens":500`)
	if e := readRefusal(t, failed.body); failed.status != 502 || e.Code != "provider_error" ||
		failed.header.Get("X-Should-Retry") != "false" || !strings.Contains(failed.body, `"param":null`) {
		t.Errorf("%s, %s: failed: %+v", model, stream, failed)
	}
	if stream != streamed {
		return
	}
	cut := ask("cut=6000 words=400", `"max_output_tokens":2000`)
	last := lastResponse(t, cut.body)
	if last.Status != "failed" || last.Error == nil || last.Error.Code != "provider_error" || last.Svc == nil ||
		!strings.Contains(cut.body, "event: error\ndata: ") {
		t.Errorf("%s: broken off: %s", model, cut.body)
	}
}

// TestOpenAIBaseURL lists the models in OpenAI's shape; what is not offered there answers in it, and says what is.
func TestOpenAIBaseURL(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		a := whole(t, p.Call("GET", "/openai/v1/models", ""))
		var list struct {
			Object string
			Data   []struct{ ID, Object, OwnedBy string }
		}
		if err := json.Unmarshal([]byte(a.body), &list); err != nil || list.Object != "list" || len(list.Data) < 10 {
			t.Fatalf("%v: %+v", err, a)
		}
		one := whole(t, p.Call("GET", "/openai/v1/models/"+list.Data[0].ID, ""))
		if one.status != 200 || !strings.Contains(one.body, `"object":"model"`) {
			t.Errorf("%+v", one)
		}
		chat := whole(t, p.Call("POST", "/openai/v1/chat/completions",
			prompt("Hello", `"model":"gpt-6-luna"`, streamed, `"stream_options":{"include_usage":true}`)))
		if chat.status != 200 || !strings.Contains(chat.body, `"svc_final"`) {
			t.Errorf("%+v", chat)
		}
		for request, says := range map[string]string{
			"GET /openai/v1/models/none":           "not offered",
			"GET /openai/v1/responses/resp_1":      "not stored here",
			"DELETE /openai/v1/responses/resp_1":   "not stored here",
			"POST /openai/v1/images/generations":   "images are not made here",
			"POST /openai/v1/audio/speech":         "/v1/realtime/sessions",
			"POST /openai/v1/completions":          "POST /openai/v1/responses",
			"POST /openai/v1/vector_stores/x/f":    "vector stores",
			"GET /openai/v1/responses":             "method",
			"POST /openai/v1/something":            "nothing at this address",
			"POST /openai/v1/fine_tuning/jobs":     "fine-tuning",
			"POST /openai/v1/chat/completions/x/y": "not stored",
		} {
			method, path, _ := strings.Cut(request, " ")
			a := whole(t, p.Call(method, path, ""))
			if a.status != 404 && a.status != 405 || !strings.Contains(a.body, says) ||
				!strings.HasPrefix(a.body, `{"error":{"param":`) {
				t.Errorf("%s: %+v", request, a)
			}
		}
	})
}
