package plan

import (
	"fmt"
	"strings"
	"testing"
)

// TestToolsThatRemain: of the tools of a request, those of a provider are dropped and named, and those that tool_choice
// does not allow are not sent.
func TestToolsThatRemain(t *testing.T) {
	t.Parallel()
	const head = `{"messages":[{"role":"user","content":"a"}],`
	const three = `"tools":[{"type":"function","function":{"name":"f"}},{"type":"web_search_2025_08_26"},` +
		`{"type":"function","function":{"name":"g"}},{"type":"function","function":{"name":"h"}}]`
	allow := func(mode, tools string) string {
		return three + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"` + mode + `","tools":[` +
			tools + `]}}`
	}
	const f, h = `{"type":"function","function":{"name":"f"}}`, `{"type":"function","function":{"name":"h"}}`
	const ignored = "; ignored tools.web_search_2025_08_26"
	none := strings.Replace(allow("auto", ""), `{"type":"web_search_2025_08_26"},`, "", 1)
	for body, want := range map[string]string{
		three:                  "f g h " + ignored,
		allow("auto", h+","+f): "f h auto" + ignored,
		none:                   "tool_choice: allowed_tools must name a tool",
		allow("required", h):   "h required" + ignored,
		allow("any", h):        "tool_choice: the mode of allowed_tools must be auto or required",
		allow("auto", `{"type":"web_search"},`+h):                    "h auto" + ignored,
		allow("auto", `{"type":"web_search"}`):                       "tools: web_search_2025_08_26 is not offered",
		allow("auto", `{"type":"function","function":{"name":"x"}}`): `tool_choice: "x" is not among the tools`,
		three + `,"web_search_options":{"search_context_size":"low"},"store":true`: "f g h ; ignored store " +
			"tools.web_search_2025_08_26 web_search_options",
		`"tools":[{"type":"web_search"}],"tool_choice":"none"`:                          "; ignored tools.web_search",
		`"tools":[{"type":"web_search"},{"type":"function","function":{"name":"a b"}}]`: "tools[1].function.name: ",
	} {
		p, err := Parse([]byte(head + body + "}"))
		got := ""
		if err != nil {
			got = strings.TrimPrefix(err.Error(), "invalid_request: ")
		} else {
			for _, tool := range p.Tools {
				got += tool.Name + " "
			}
			got += fmt.Sprintf("%s; ignored %s", p.ToolChoice.Mode, strings.Join(p.Ignored, " "))
		}
		if got != want && (err == nil || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

// TestMemberName names a tool by its place in the body, from which others were dropped.
func TestMemberName(t *testing.T) {
	t.Parallel()
	p, err := Parse([]byte(`{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"web_search"},` +
		`{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],"tool_choice":` +
		`{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function",` +
		`"function":{"name":"g"}}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for canonical, want := range map[string]string{
		"tools[0].function.parameters": "tools[2].function.parameters",
		"messages[0].content":          "messages[0].content",
	} {
		if got := p.MemberName(canonical); got != want {
			t.Errorf("%s: %s, want %s", canonical, got, want)
		}
	}
}
