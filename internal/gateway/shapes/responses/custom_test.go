package responses

import (
	"github.com/purserhq/purser/internal/testkit/shapetest"

	"encoding/json"
	"testing"
)

// TestCustomTools declares a custom tool as Codex does, and sends the model's call back: the canonical call is the one
// that the model made.
func TestCustomTools(t *testing.T) {
	t.Parallel()
	const tools = `{"type":"additional_tools","role":"developer","tools":[{"type":"namespace","name":"functions",` +
		`"tools":[{"type":"custom","name":"exec","description":"Runs.","format":{"type":"grammar","syntax":"lark",` +
		`"definition":"start: /.+/"}},{"type":"function","name":"wait","description":"Waits."}]},` +
		`{"type":"custom","name":"note","format":{"type":"text"}}]},{"role":"user","content":"Hi"}`
	c, err := Parse([]byte(`{"model":"m","input":[` + tools + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	q := c.Request().Tools
	if len(q) != 3 || q[0].Name != "functions__exec" || string(q[0].Parameters) != customParameters ||
		q[0].Description != "Runs.\n\nThe input must match this grammar (lark):\nstart: /.+/" ||
		q[1].Name != "functions__wait" || q[1].Parameters != nil || q[2].Description != "" {
		t.Errorf("read as %+v", q)
	}
	for _, input := range []string{"", "text(\"a\\n\")\n// \u2028 😀 </script> \x01", `{"input":"x"}`} {
		call, err := json.Marshal(wrapInput(input))
		if err != nil {
			t.Fatal(err)
		}
		body := shapetest.Whole(c, `{"id":"chatcmpl-1","choices":[{"message":{"tool_calls":[{"id":"a",`+
			`"type":"function",`+
			`"function":{"name":"functions__exec","arguments":`+string(call)+`}}]},`+
			`"finish_reason":"tool_calls"}]}`)
		var response struct{ Output []json.RawMessage }
		var item struct{ ID, Type, Status, Name, Namespace, Input string }
		if err := json.Unmarshal(body, &response); err != nil || len(response.Output) != 1 {
			t.Fatalf("%v of %s", err, body)
		}
		if err := json.Unmarshal(response.Output[0], &item); err != nil || item.Type != "custom_tool_call" ||
			item.ID != "ctc_1_0" || item.Status != "completed" || item.Name != "exec" ||
			item.Namespace != "functions" || item.Input != input {
			t.Errorf("%v, %q came as %s", err, input, response.Output[0])
		}
		next, err := Parse([]byte(`{"model":"m","input":[` + tools + `,` + string(response.Output[0]) +
			`,{"type":"custom_tool_call_output","call_id":"a","output":"done"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		m := next.Request().Turns
		if len(m) != 3 || len(m[1].Blocks) != 1 || m[1].Blocks[0].Name != "functions__exec" ||
			m[1].Blocks[0].Arguments != wrapInput(input) || m[2].Blocks[0].Blocks[0].Text != "done" {
			t.Errorf("%q came back as %+v", input, m)
		}
	}
}
