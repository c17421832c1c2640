package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestReferences sends the items of an answer back by their ids, as clients do that think that OpenAI stores them: the
// provider gets what it gets when they come themselves. Items that are not stored, or another's, are refused; reasoning
// is left out.
func TestReferences(t *testing.T) {
	t.Parallel()
	eachEmulated(t, func(t *testing.T, n *emulated) {
		for _, model := range []string{"gpt-6.2-sol", "claude-opus-5-5", "gemini-3.8-flash"} {
			for _, stream := range []string{`"stream":false`, streamed} {
				n.checkReferences(t, model, stream)
			}
		}
	})
}

func (n *emulated) checkReferences(t *testing.T, model, stream string) {
	t.Helper()
	const question = `{"role":"user","content":"!emu thinking say\n!call weather {\"city\":\"Oslo\"}\nWarm?"}`
	body := func(items ...string) string {
		return `{"model":"` + model + `","input":[` + strings.Join(items, ",") + `],"max_output_tokens":4000,` +
			stream + `,` + weatherFunction + `}`
	}
	first := readAnswer(t, n.ask(body(question)))
	themselves, references := []string{question}, []string{question}
	result, last, reasoning := "", "", ""
	for _, raw := range first.Output {
		var item struct {
			ID, Type string
			CallID   string `json:"call_id"`
		}
		if err := json.Unmarshal(raw, &item); err != nil {
			t.Fatal(err)
		}
		themselves = append(themselves, string(raw))
		last = `{"type":"item_reference","id":"` + item.ID + `"}`
		references = append(references, last)
		if item.Type == "reasoning" {
			reasoning = item.ID
		}
		if item.CallID != "" {
			result = `{"type":"function_call_output","call_id":"` + item.CallID + `","output":"mild"}`
		}
	}
	if result == "" || reasoning == "" {
		t.Fatalf("%s, %s: %s", model, stream, first.text())
	}
	n.forget()
	readAnswer(t, n.ask(body(append(themselves, result)...)))
	want := n.lastBody()
	n.forget()
	readAnswer(t, n.ask(body(append(references, result)...)))
	if got := n.lastBody(); got != want {
		t.Errorf("%s, %s: by references the provider gets\n%s\nand by items\n%s", model, stream, got, want)
	}

	gone := strings.Replace(reasoning, "_06", "_01", 1)
	a := n.ask(body(question, `{"type":"item_reference","id":"`+gone+`"}`))
	if a.status != 200 || !strings.Contains(a.header.Get("Svc-Ignored"), "item_reference") {
		t.Errorf("%s, %s: reasoning that is gone: %+v", model, stream, a)
	}
	a = n.ask(body(question, strings.Replace(last, "_06", "_01", 1), result))
	if e := readRefusal(t, a.body); a.status != 400 || !strings.HasPrefix(e.Message, "input[1].id: the answer with") {
		t.Errorf("%s, %s: an item that is gone: %+v", model, stream, a)
	}

	child := whole(t, n.Call("POST", "/v1/connection/children", `{"amount_mc":100000000}`,
		"Idempotency-Key: "+servertest.UUID()))
	var made struct{ ID, Token string }
	if err := json.Unmarshal([]byte(child.body), &made); err != nil || made.Token == "" {
		t.Fatalf("%+v", child)
	}
	req, err := http.NewRequest("POST", n.BaseURL+responsesPath, strings.NewReader(body(append(references, result)...)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + made.Token}, "Content-Type": {"application/json"}}
	resp, err := n.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if a := whole(t, resp); a.status != 400 {
		t.Errorf("%s, %s: a child reads the answers of its parent: %+v", model, stream, a)
	}
	if a := whole(t, n.Call("POST", "/v1/connection/children/"+made.ID+"/end", "")); a.status != 200 {
		t.Errorf("the child is not ended: %+v", a)
	}
}
