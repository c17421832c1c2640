package responses

import (
	"github.com/purserhq/purser/internal/testkit/shapetest"

	"strings"
	"testing"
)

// TestNamespaces sends functions of namespaces, as Codex does, and gives their calls back with the namespace.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte(`{"model":"m","input":[{"role":"user","content":"Hi"},
		{"type":"function_call","call_id":"c1","namespace":"team","name":"wait","arguments":"{}"},
		{"type":"function_call_output","call_id":"c1","output":"done"}],
		"tools":[{"type":"function","name":"wait"},{"type":"namespace","name":"team","description":"A team.",
			"tools":[{"type":"function","name":"wait","parameters":{"type":"object"}}]}],
		"tool_choice":{"type":"function","namespace":"team","name":"wait"}}`))
	if err != nil {
		t.Fatal(err)
	}
	q := c.Request()
	if len(q.Tools) != 2 || q.Tools[0].Name != "wait" || q.Tools[1].Name != "team__wait" ||
		q.ToolChoice.Name != "team__wait" || q.Turns[1].Blocks[0].Name != "team__wait" {
		t.Errorf("read as %+v", q)
	}
	if name := c.MemberName("tools[1].function.name"); name != "tools[1].tools[0].name" {
		t.Errorf("the second tool is %s", name)
	}
	body := string(shapetest.Whole(c, `{"id":"chatcmpl-1","created":1,"model":"m","choices":[{"index":0,"message":{
		"role":"assistant","tool_calls":[
			{"id":"a","type":"function","function":{"name":"wait","arguments":"{}"}},
			{"id":"b","type":"function","function":{"name":"team__wait","arguments":"{}"}}]},
		"finish_reason":"tool_calls"}]}`))
	for _, want := range []string{
		`"call_id":"a","name":"wait","arguments":"{}"`,
		`"call_id":"b","name":"wait","namespace":"team","arguments":"{}"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if _, err := Parse([]byte(`{"model":"m","input":"Hi","tools":[{"type":"namespace","name":"team","tools":[
		{"type":"web_search"}]}]}`)); err == nil ||
		!strings.Contains(err.Error(), "tools[0].tools[0].type") {
		t.Errorf("a search in a namespace: %v", err)
	}
}
