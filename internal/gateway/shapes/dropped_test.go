package shapes_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes/contents"
	"github.com/purserhq/purser/internal/gateway/shapes/messages"
	"github.com/purserhq/purser/internal/gateway/shapes/responses"
)

// TestDroppedMembersAreNamed puts an unknown member into each object of a body, one at a time: the response names it by
// its path. What stands in opaque is passed on, or is not read.
func TestDroppedMembersAreNamed(t *testing.T) {
	t.Parallel()
	const image = "https://example.com/a.png"
	for name, c := range map[string]struct {
		body   string
		opaque string // a pattern of paths
		parse  func([]byte) (*plan.Request, error)
	}{
		"chat": {`{"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":` +
			`"ephemeral"}},` +
			`{"type":"image_url","image_url":{"url":"` + image + `"}}]},{"role":"assistant","content":"b",` +
			`"tool_calls":[` +
			`{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}],"extra_content":{}},` +
			`{"role":"tool","tool_call_id":"1","content":"c"}],"tools":[{"type":"function","function":{"name":"f",` +
			`"parameters":{}}}],"tool_choice":{"type":"function","function":{"name":"f"}},` +
			`"stream":true,"stream_options":{"include_usage":true},"response_format":{"type":"json_schema",` +
			`"json_schema":` +
			`{"name":"a","schema":{}}}}`,
			`parameters|extra_content|schema|response_format`, plan.Parse},
		"responses": {`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"a"},` +
			`{"type":"input_image","image_url":"` + image + `"}]},{"type":"reasoning","summary":[{"type":` +
			`"summary_text",` +
			`"text":"b"}]},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},` +
			`{"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"a"}]}],"tools":[` +
			`{"type":"function","name":"f","parameters":{}},{"type":"namespace","name":"n","tools":[{"type":"custom",` +
			`"name":"g","format":{"type":"text"}}]}],"tool_choice":{"type":"function","name":"f"},"text":{"format":` +
			`{"type":"json_schema","name":"a","schema":{}}},"reasoning":{"effort":"low"},"metadata":{"a":"b"}}`,
			`parameters|metadata|schema|summary|text\.format`,
			func(b []byte) (*plan.Request, error) {
				c, err := responses.Parse(b)
				if err != nil {
					return nil, err
				}
				return c.Request(), nil
			}},
		"messages": {`{"model":"m","max_tokens":5,"system":[{"type":"text","text":"s","cache_control":{"type":` +
			`"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":` +
			`"` + image +
			`"}}]},{"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":"b"},{"type":` +
			`"tool_use",` +
			`"id":"1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1",` +
			`"content":[{"type":"text","text":"c"}]}]}],"tools":[{"name":"f","input_schema":{}}],"tool_choice":` +
			`{"type":` +
			`"auto"},"thinking":{"type":"adaptive"},"output_config":{"effort":"low","format":{"type":"json_schema",` +
			`"schema":{}}},"cache_control":{"type":"ephemeral"}}`,
			`input|input_schema|schema`,
			func(b []byte) (*plan.Request, error) {
				c, err := messages.Parse(b)
				if err != nil {
					return nil, err
				}
				return c.Request(), nil
			}},
		"contents": {`{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"parts":[{"text":"a"},{"fileData":{` +
			`"fileUri":"` + image + `"}}]},{"role":"model","parts":[{"functionCall":{"id":"1","name":"f",` +
			`"args":{}}}]},` +
			`{"parts":[{"functionResponse":{"id":"1","name":"f","response":{},"parts":[{"fileData":{"fileUri":` +
			`"` + image +
			`"}}]}}]}],"tools":[{"functionDeclarations":[{"name":"f","parametersJsonSchema":{}}]}],"toolConfig":{` +
			`"functionCallingConfig":{"mode":"AUTO"}},"generationConfig":{"thinkingConfig":{"thinkingBudget":5},` +
			`"responseMimeType":"application/json","responseSchema":{}}}`,
			`args|response|parametersJsonSchema|responseSchema|tools`, // a member of a tool is a tool of Google's
			func(b []byte) (*plan.Request, error) {
				c, err := contents.Parse(b, "m", false)
				if err != nil {
					return nil, err
				}
				return c.Request(), nil
			}},
	} {
		opaque := regexp.MustCompile(`(^|\.)(` + c.opaque + `)$`)
		n := 0
		for _, path := range objectsOf(t, c.body, opaque) {
			n++
			body := withMember(t, c.body, path)
			r, err := c.parse(body)
			if err != nil {
				t.Errorf("%s: %s: %v", name, path, err)
				continue
			}
			if want := strings.TrimPrefix(plain(path)+".zz", "."); !slices.Contains(r.Ignored, want) {
				t.Errorf("%s: %s is dropped, and named are %q", name, want, r.Ignored)
			}
		}
		if n < 10 {
			t.Errorf("%s: the body has %d objects", name, n)
		}
	}
}

var places = regexp.MustCompile(`\[\d+\]`)

// plain returns a path without the places in its lists.
func plain(path string) string { return places.ReplaceAllString(path, "") }

// objectsOf returns the paths of the objects of a body that are not opaque.
func objectsOf(t *testing.T, body string, opaque *regexp.Regexp) (paths []string) {
	var value any
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	var walk func(v any, path string)
	walk = func(v any, path string) {
		switch v := v.(type) {
		case map[string]any:
			if opaque.MatchString(plain(path)) {
				return
			}
			paths = append(paths, path)
			for name, inner := range v {
				walk(inner, strings.TrimPrefix(path+"."+name, "."))
			}
		case []any:
			if !opaque.MatchString(plain(path)) {
				for i, inner := range v {
					walk(inner, fmt.Sprintf("%s[%d]", path, i))
				}
			}
		}
	}
	walk(value, "")
	return paths
}

// withMember returns a body whose object at a path has one more member.
func withMember(t *testing.T, body, path string) []byte {
	var value any
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		t.Fatal(err)
	}
	at := value
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		switch v := at.(type) {
		case map[string]any:
			at = v[step]
		case []any:
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil {
				t.Fatal(err)
			}
			at = v[i]
		}
	}
	at.(map[string]any)["zz"] = 1
	changed, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}
