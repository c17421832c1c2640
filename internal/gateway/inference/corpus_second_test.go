package inference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/purserhq/purser/internal/base/id"
)

// A corpusSecond is what a provider gets after the first question, if clients of these APIs send the answer back.
type corpusSecond struct {
	At   []string // the route and the model
	List any
}

// playSecond sends a whole answer back as it came, with results of its calls, to the same model and to another one, and
// compares what the provider gets.
func (r *corpusRun) playSecond(want []corpusSecond, route, mark, first, text string, v *clientView,
	fail func(string, ...any)) {
	r.t.Helper()
	body, err := answerBack(route, first, text, v)
	if err != nil {
		fail("%v", err)
		return
	}
	for i := range want {
		for _, at := range want[i].At {
			if to, model, _ := strings.Cut(at, " "); to == route || to == "chat" && route == "ai" {
				r.sendBack(want[i].List, route, model, mark, body, fail)
			}
		}
	}
}

// sendBack sends a second turn to a model.
func (r *corpusRun) sendBack(want any, route, model, mark, body string, fail func(string, ...any)) {
	r.t.Helper()
	r.played++
	name := fmt.Sprintf("PLAY-%d", r.played)
	var heard []byte
	r.stub.put(name, &play{heard: func(_ string, body []byte) { heard = bytes.Clone(body) }})
	defer r.stub.drop(name)
	path, _ := corpusQuestion(route, model, "", false)
	body = modelMember.ReplaceAllString(strings.ReplaceAll(body, mark, name), `"model":"`+model+`"`)
	got := r.ask(id.NewUUID(), path, body)
	o, err := decode(string(heard))
	if got.status != http.StatusOK || err != nil {
		fail("the second turn at %s: %d %.500s", model, got.status, got.raw.String())
		return
	}
	for _, member := range []string{"messages", "input", "contents"} {
		list, ok := o[member].([]any)
		if !ok {
			continue
		}
		gotText, _ := json.Marshal(plain(list[1:]))
		wantText, _ := json.Marshal(want)
		if !bytes.Equal(gotText, wantText) {
			fail("at %s the second turn\n%s, want\n%s", model, gotText, wantText)
		}
	}
}

var modelMember = regexp.MustCompile(`"model":"[a-z0-9.-]+"`)

// plain is a list without the marks of a cache, which depend on our count of tokens, and with the arguments of calls
// that are an object as one: clients of two APIs have nothing else.
func plain(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		delete(v, "cache_control")
		for name := range v {
			v[name] = plain(v[name])
		}
		if text, ok := v["arguments"].(string); ok {
			if o, err := decode(text); err == nil && o != nil {
				v["arguments"] = numbered(map[string]any(o))
			}
		}
	}
	return numbered(v)
}

// answerBack makes the next request of a client, of its first one and of the whole answer.
func answerBack(route, first, text string, v *clientView) (string, error) {
	q, err := decode(first)
	if err != nil {
		return "", err
	}
	o, err := decode(text)
	if err != nil {
		return "", err
	}
	calls := v.Calls
	for _, b := range v.Blocks {
		if b := b.([]any); b[0] == "call" {
			calls = append(calls, b[1:])
		}
	}
	var next []any
	for _, c := range calls {
		c := c.([]any)
		next = append(next, map[string]any{
			"ai":        object{"role": "tool", "tool_call_id": c[0], "content": "rain"},
			"chat":      object{"role": "tool", "tool_call_id": c[0], "content": "rain"},
			"messages":  object{"type": "tool_result", "tool_use_id": c[0], "content": "rain"},
			"responses": object{"type": "function_call_output", "call_id": c[0], "output": "rain"},
			"contents": object{"functionResponse": object{
				"id": c[0], "name": c[1], "response": object{"output": "rain"},
			}},
		}[route])
	}
	asked := object{"role": "user", "content": "And?"}
	switch route {
	case "ai", "chat":
		if next == nil {
			next = []any{asked}
		}
		q["messages"] = append(append(q["messages"].([]any), o.list("choices")[0].at("message")), next...)
	case "messages":
		if next == nil {
			next = []any{object{"type": "text", "text": "And?"}}
		}
		q["messages"] = append(q["messages"].([]any), object{"role": "assistant", "content": o["content"]},
			object{"role": "user", "content": next})
	case "responses":
		if next == nil {
			next = []any{asked}
		}
		question := []any{object{"role": "user", "content": q["input"]}}
		q["input"] = append(append(question, o["output"].([]any)...), next...)
	case "contents":
		if next == nil {
			next = []any{object{"text": "And?"}}
		}
		q["contents"] = append(q["contents"].([]any), o.list("candidates")[0].at("content"),
			object{"role": "user", "parts": next})
	}
	b, err := json.Marshal(q)
	return string(b), err
}
