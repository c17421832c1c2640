package anthropic

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// chat reads messages as a table writes them: OpenAI's shape, in short.
func chat(t testing.TB, text string) []conversation.Turn {
	t.Helper()
	var in []struct {
		Role, Refusal string
		Content       any
		Calls         [][3]string // id, name, arguments
		For           string      // the call that a tool message answers
	}
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var out []conversation.Turn
	for _, m := range in {
		q := conversation.Turn{Role: m.Role}
		switch c := m.Content.(type) {
		case string:
			q.Blocks = append(q.Blocks, conversation.Block{Text: c})
		case []any:
			for _, p := range c {
				if s := p.(string); strings.HasPrefix(s, "data:") || strings.HasPrefix(s, "http") {
					q.Blocks = append(q.Blocks, conversation.Block{
						Kind:    conversation.ImageBlock,
						Picture: &conversation.Picture{URL: s},
					})
				} else {
					q.Blocks = append(q.Blocks, conversation.Block{Text: s})
				}
			}
		}
		if m.Refusal != "" {
			q.Blocks = append(q.Blocks, conversation.Block{Kind: conversation.RefusalBlock, Text: m.Refusal})
		}
		for _, c := range m.Calls {
			q.Blocks = append(q.Blocks, conversation.Block{
				Kind:      conversation.CallBlock,
				ID:        c[0],
				Name:      c[1],
				Arguments: c[2],
			})
		}
		if m.For != "" {
			q.Blocks = []conversation.Block{{Kind: conversation.ResultBlock, ID: m.For, Blocks: q.Blocks}}
		}
		out = append(out, q)
	}
	return out
}

// short writes system and messages of a body as the tables do.
func short(t testing.TB, raw []byte) string {
	t.Helper()
	var body struct {
		System   []map[string]any
		Messages []struct {
			Role    string
			Content []map[string]any
		}
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	var b strings.Builder
	blocks := func(list []map[string]any) {
		for _, c := range list {
			switch c["type"] {
			case "text":
				fmt.Fprintf(&b, " %q", c["text"])
			case "image":
				s := c["source"].(map[string]any)
				fmt.Fprintf(&b, " image(%s %s %s)", s["type"], s["media_type"], s["data"])
			case "tool_use":
				input, _ := json.Marshal(c["input"])
				fmt.Fprintf(&b, " use(%s %s %s)", c["id"], c["name"], input)
			case "tool_result":
				content, _ := json.Marshal(c["content"])
				fmt.Fprintf(&b, " result(%s %s)", c["tool_use_id"], content)
			case "thinking":
				fmt.Fprintf(&b, " thinking(%s %s)", c["thinking"], c["signature"])
			case "redacted_thinking":
				fmt.Fprintf(&b, " redacted(%s)", c["data"])
			default:
				t.Fatalf("block %v", c)
			}
		}
	}
	if body.System != nil {
		b.WriteString("system:")
		blocks(body.System)
		b.WriteString(" | ")
	}
	for i, m := range body.Messages {
		if i > 0 {
			b.WriteString(" | ")
		}
		if len(m.Content) == 0 || i > 0 && body.Messages[i-1].Role == m.Role || i == 0 && m.Role != "user" {
			t.Errorf("turns are wrong: %s", raw)
		}
		b.WriteString(m.Role + ":")
		blocks(m.Content)
	}
	return b.String()
}

const (
	call2  = `{"role":"assistant","calls":[["a","f","{}"],["b","g","{\"x\":1}"]]}`
	result = `{"role":"tool","for":"a","content":"A"},{"role":"tool","for":"b","content":"B"}`
)

// TestMessages is the table of provider notes B.3, by the edge case it belongs to. A want that
// begins with "!" is a refusal.
func TestMessages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string][2]string{
		"Edge13 empty content beside calls": {`[{"role":"user","content":"q"},{"role":"assistant","content":"","calls":[["a","f",""]]},{"role":"tool","for":"a","content":"A"}]`, `user: "q" | assistant: use(a f {}) | user: result(a "A")`},
		"Edge13 null content beside calls":  {`[{"role":"user","content":"q"},{"role":"assistant","calls":[["a","f"," "]]},{"role":"tool","for":"a","content":"A"}]`, `user: "q" | assistant: use(a f {}) | user: result(a "A")`},
		"Edge13 content before calls":       {`[{"role":"user","content":"q"},{"role":"assistant","content":["x",""," "],"calls":[["a","f","{}"]]},{"role":"tool","for":"a","content":"A"}]`, `user: "q" | assistant: "x" use(a f {}) | user: result(a "A")`},
		"Edge14 results in one turn": {`[{"role":"user","content":"q"},` + call2 + `,` + result + `]`,
			`user: "q" | assistant: use(a f {}) use(b g {"x":1}) | user: result(a "A") result(b "B")`},
		"Edge14 order kept, text behind": {`[{"role":"user","content":"q"},` + call2 +
			`,{"role":"tool","for":"b","content":"B"},{"role":"tool","for":"a","content":"A"},{"role":"user","content":"and"},{"role":"user","content":"so"}]`, `user: "q" | assistant: use(a f {}) use(b g {"x":1}) | user: result(b "B") result(a "A") "and" "so"`},
		"Edge15 unknown result": {`[{"role":"user","content":"q"},` + call2 +
			`,{"role":"tool","for":"c","content":"C"}]`, `!messages[2].tool_call_id: "c" answers no open tool call`},
		"Edge15 duplicate result": {`[{"role":"user","content":"q"},` + call2 +
			`,{"role":"tool","for":"a","content":"A"},{"role":"tool","for":"a","content":"A"}]`,
			`!messages[3].tool_call_id: "a" answers no open tool call`},
		"Edge16 images behind results": {`[{"role":"user","content":"q"},` + call2 + `,` + result +
			`,{"role":"user","content":["see","data:image/png;base64,QUJD"]}]`,
			`user: "q" | assistant: use(a f {}) use(b g {"x":1}) | user: result(a "A") result(b "B") "see" image(base64 image/png QUJD)`},
		"Edge17 several systems":      {`[{"role":"system","content":"s"},{"role":"developer","content":["d",""]},{"role":"system","content":" "},{"role":"user","content":"q"}]`, `system: "s" "d" | user: "q"`},
		"Edge17 system before a user": {`[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"system","content":"s"},{"role":"user","content":"r"}]`, `user: "q" | assistant: "a" | user: "s" "r"`},
		"Edge17 system behind a user": {`[{"role":"user","content":"q"},{"role":"developer","content":"s"},{"role":"assistant","content":"a"},{"role":"user","content":"r"}]`, `user: "q" "s" | assistant: "a" | user: "r"`},
		"Edge17 system behind results": {`[{"role":"user","content":"q"},` + call2 + `,` + result +
			`,{"role":"system","content":"s"}]`,
			`user: "q" | assistant: use(a f {}) use(b g {"x":1}) | user: result(a "A") result(b "B") "s"`},
		"Edge17 system only": {`[{"role":"system","content":"s"}]`,
			`!messages: this model needs a user message`},
		"Edge17 a later system is no user": {`[{"role":"assistant","content":"a"},{"role":"system","content":"s"}]`,
			`!messages: this model needs a user message`},
		"Edge18 users in a row":          {`[{"role":"user","content":"q"},{"role":"user","content":""},{"role":"user","content":["r","s"]}]`, `user: "q" "r" "s"`},
		"Edge18 assistants in a row":     {`[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"r"}]`, `user: "q" | assistant: "a" "b" | user: "r"`},
		"Edge18 an empty user between":   {`[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":" "},{"role":"assistant","content":"b"},{"role":"user","content":"r"}]`, `user: "q" | assistant: "a" "b" | user: "r"`},
		"Edge18 the assistant begins":    {`[{"role":"system","content":"s"},{"role":"assistant","content":"a"},{"role":"user","content":"r"}]`, `system: "s" | user: "(The assistant speaks first.)" | assistant: "a" | user: "r"`},
		"Edge18 the assistant ends":      {`[{"role":"user","content":"q"},{"role":"assistant","content":"The answer is "}]`, `!messages: the last one with content is the assistant's`},
		"Edge18 ends with an empty user": {`[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":""}]`, `!messages: the last one with content is the assistant's`},
		"Edge18 nothing said": {`[{"role":"user","content":["",""]}]`,
			`!messages: this model needs a user message`},
		"Edge19 a refusal sent back":       {`[{"role":"user","content":"q"},{"role":"assistant","refusal":"no"},{"role":"user","content":"r"}]`, `user: "q" | assistant: "no" | user: "r"`},
		"Edge19 an empty answer sent back": {`[{"role":"user","content":"q"},{"role":"assistant","content":""},{"role":"user","content":"r"}]`, `user: "q" "r"`},
		"Edge20 foreign ids":               {`[{"role":"user","content":"q"},{"role":"assistant","calls":[["call:1","f",""],["call.1","f",""],["call_1","f",""]]},{"role":"tool","for":"call_1","content":"3"},{"role":"tool","for":"call.1","content":"2"},{"role":"tool","for":"call:1","content":"1"}]`, `user: "q" | assistant: use(call_1 f {}) use(call_1_2 f {}) use(call_1_3 f {}) | user: result(call_1_3 "3") result(call_1_2 "2") result(call_1 "1")`},
		"Edge20 an id used again":          {`[{"role":"user","content":"q"},{"role":"assistant","calls":[["0","f",""]]},{"role":"tool","for":"0","content":"1"},{"role":"assistant","calls":[["0","f",""]]},{"role":"tool","for":"0","content":"2"}]`, `user: "q" | assistant: use(0 f {}) | user: result(0 "1") | assistant: use(0_2 f {}) | user: result(0_2 "2")`},
		"Edge20 an id that is taken":       {`[{"role":"user","content":"q"},{"role":"assistant","calls":[["é","f",""],["__2","f",""],["ü","f",""]]},{"role":"tool","for":"é","content":"1"},{"role":"tool","for":"__2","content":"2"},{"role":"tool","for":"ü","content":"3"}]`, `user: "q" | assistant: use(_ f {}) use(__2 f {}) use(__3 f {}) | user: result(_ "1") result(__2 "2") result(__3 "3")`},
		"Edge21 arguments cut off":         {`[{"role":"user","content":"q"},{"role":"assistant","calls":[["a","f","{}"],["b","f","{\"x\":"]]},` + result + `]`, `user: "q" | assistant: use(a f {}) use(b f {"invalid_json":"{\"x\":"}) | user: result(a "A") result(b "B")`},
		"Edge21 arguments that are a list": {`[{"role":"user","content":"q"},{"role":"assistant","calls":[["a","f","[1]"]]},{"role":"tool","for":"a","content":"A"}]`, `user: "q" | assistant: use(a f {"invalid_json":"[1]"}) | user: result(a "A")`},
		"Edge21 arguments that are null":   {`[{"role":"user","content":"q"},{"role":"assistant","calls":[["a","f","null"]]},{"role":"tool","for":"a","content":"A"}]`, `user: "q" | assistant: use(a f {"invalid_json":"null"}) | user: result(a "A")`},
		"Edge22 parts as a result": {`[{"role":"user","content":"q"},` + call2 +
			`,{"role":"tool","for":"a","content":["x","","y"]},{"role":"tool","for":"b","content":[""]}]`,
			`user: "q" | assistant: use(a f {}) use(b g {"x":1}) | user: result(a [{"text":"x","type":"text"},{"text":"y","type":"text"}]) result(b null)`},
		"Edge22 an empty result, and a JSON": {`[{"role":"user","content":"q"},` + call2 +
			`,{"role":"tool","for":"a","content":""},{"role":"tool","for":"b","content":"{\"k\":[1]}"}]`,
			`user: "q" | assistant: use(a f {}) use(b g {"x":1}) | user: result(a null) result(b "{\"k\":[1]}")`},
		"images": {`[{"role":"user","content":["data:image/jpeg;base64,QQ==","data:image/webp;base64,Qg==","data:image/gif;base64,Qw=="]}]`, `user: image(base64 image/jpeg QQ==) image(base64 image/webp Qg==) image(base64 image/gif Qw==)`},
		"an image that was not fetched": {`[{"role":"user","content":["x","https://example.com/a.png"]}]`,
			`!messages[0].content[1].image_url.url: must be a data: URL`},
		"an image of another kind": {`[{"role":"user","content":["data:image/svg+xml;base64,QQ=="]}]`,
			`!messages[0].content[0].image_url.url: must be a data: URL`},
	} {
		r := request()
		r.Turns = chat(t, c[0])
		got := ""
		if raw, err := Encode(r); err != nil {
			got = "!" + refusedBecause(t, err)
		} else {
			got = short(t, raw)
		}
		if want, refused := strings.CutPrefix(c[1], "!"); refused && !strings.HasPrefix(got, "!"+want) ||
			!refused && got != c[1] {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c[1])
		}
	}
}

func refusedBecause(t testing.TB, err error) string {
	t.Helper()
	var e *provider.Error
	if !errors.As(err, &e) || e.Kind != provider.Rejected || e.Retry || e.Alarm != "" {
		t.Fatalf("%v is no refusal of the request", err)
	}
	return e.Message
}

func ptr[T any](v T) *T { return &v }

// members returns what a body says beside its messages.
func members(t *testing.T, r *provider.Request) string {
	t.Helper()
	raw, err := Encode(r)
	if err != nil {
		return "!" + refusedBecause(t, err)
	}
	var body map[string]json.RawMessage
	if err := json.Unmarshal(raw, &body); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	for name, always := range map[string]string{
		"model":        `"claude-haiku-5-5"`,
		"max_tokens":   "100",
		"stream":       "true",
		"service_tier": `"standard_only"`,
	} {
		if string(body[name]) != always {
			t.Errorf("%s: %s", name, body[name])
		}
		delete(body, name)
	}
	delete(body, "messages")
	rest, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(rest)
}

// TestMembers: what each option becomes.
func TestMembers(t *testing.T) {
	t.Parallel()
	tool := []provider.Tool{{
		Name:        "f",
		Description: "d",
		Strict:      ptr(true),
		Parameters:  []byte(`{"type":"object","properties":{"x":{"type":"string","minLength":2}}}`),
	}}
	const tools = `"tools":[{"name":"f","description":"d","input_schema":{"type":"object",` +
		`"properties":{"x":{"type":"string","description":"At least 2 characters."}},"additionalProperties":false},` +
		`"strict":true}]`
	const closed = `{"type":"object","additionalProperties":false}`
	schema := func(s string) []provider.Tool { return []provider.Tool{{Name: "f", Parameters: []byte(s)}} }
	called := chat(t,
		`[{"role":"user","content":"q"},{"role":"assistant","calls":[["a","g",""],["b","f",""],["c","g",""]]},{"role":"tool","for":"a"},{"role":"tool","for":"b"},{"role":"tool","for":"c"}]`)
	type R = provider.Request
	for name, c := range map[string]struct {
		set  func(*R)
		want string
	}{
		"nothing": {func(*R) {}, `{}`},
		"Edge23 names of all kinds": {func(r *R) {
			r.Tools = []provider.Tool{{Name: "9-" + strings.Repeat("n", 62)}, {Name: "-"}}
		}, `{"tools":[{"name":"9-` + strings.Repeat("n", 62) +
			`","input_schema":{"type":"object","properties":{}}},{"name":"-","input_schema":{"type":"object","properties":{}}}]}`},
		"Edge33 a tool": {func(r *R) { r.Tools = tool }, `{` + tools + `}`},
		"Edge33 no parameters": {func(r *R) {
			r.Tools = schema("")
		}, `{"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}]}`},
		"Edge33 no type": {func(r *R) {
			r.Tools = schema(`{"properties":{}}`)
		}, `{"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}]}`},
		"Edge33 nothing in it": {func(r *R) {
			r.Tools = schema(`{}`)
		}, `{"tools":[{"name":"f","input_schema":{"type":"object"}}]}`},
		"Edge33 another type": {func(r *R) {
			r.Tools = schema(`{"a\"":1,"type":["object","null"],"b":{"type":"string"}}`)
		}, `{"tools":[{"name":"f","input_schema":{"type":"object","a\"":1,"b":{"type":"string"}}}]}`},
		"Edge33 no schema": {func(r *R) {
			r.Tools = schema(`{"type":`)
		}, `!tools[0].function.parameters: must be a JSON Schema object`},
		"choice auto": {func(r *R) { r.Tools = tool; r.ToolChoice.Mode = "auto" }, `{` + tools + `}`},
		"choice none": {func(r *R) {
			r.Tools = tool
			r.ToolChoice.Mode = "none"
			r.ParallelToolCalls = ptr(false)
		}, `{"tool_choice":{"type":"none"},` + tools + `}`},
		"Edge31 forced, thinking goes": {func(r *R) {
			r.Tools = tool
			r.ToolChoice.Mode = "required"
		}, `{"thinking":{"type":"disabled"},"tool_choice":{"type":"any"},` + tools + `}`},
		"Edge31 forced, no thinking anyway": {func(r *R) {
			r.Facts.Thinking = "off"
			r.Tools = tool
			r.ToolChoice = provider.ToolChoice{Mode: "function", Name: "f"}
		}, `{"tool_choice":{"type":"tool","name":"f"},` + tools + `}`},
		"one call at a time": {func(r *R) {
			r.Tools = tool
			r.ParallelToolCalls = ptr(false)
		}, `{"tool_choice":{"type":"auto","disable_parallel_tool_use":true},` + tools + `}`},
		"one forced call": {func(r *R) {
			r.Facts.Thinking = "off"
			r.Tools = tool
			r.ToolChoice.Mode = "required"
			r.ParallelToolCalls = ptr(false)
		}, `{"tool_choice":{"type":"any","disable_parallel_tool_use":true},` + tools + `}`},
		"one named call": {func(r *R) {
			r.Facts.Thinking = "off"
			r.Tools = tool
			r.ToolChoice = provider.ToolChoice{Mode: "function", Name: "f"}
			r.ParallelToolCalls = ptr(false)
		}, `{"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true},` + tools + `}`},
		"many calls": {func(r *R) {
			r.Tools = tool
			r.ParallelToolCalls = ptr(true)
		}, `{` + tools + `}`},
		"calls without tools": {func(r *R) {
			r.Turns = called
		}, `{"tool_choice":{"type":"none"},"tools":[{"name":"g","input_schema":{"type":"object","properties":{}}},{"name":"f","input_schema":{"type":"object","properties":{}}}]}`},
		"Edge30 temperature": {func(r *R) {
			r.Facts.Temperature = true
			r.Temperature = ptr(0.3)
			r.TopP = ptr(0.5)
		}, `{"temperature":0.3}`},
		"Edge30 temperature 0": {func(r *R) {
			r.Facts.Temperature = true
			r.Temperature = ptr(0.0)
		}, `{"temperature":0}`},
		"Edge30 temperature 2": {func(r *R) {
			r.Facts.Temperature = true
			r.Temperature = ptr(2.0)
			r.TopP = ptr(1.0)
		}, `{}`},
		"Edge30 temperature tiny": {func(r *R) {
			r.Facts.Temperature = true
			r.Temperature = ptr(1e-7)
		}, `{"temperature":0.0000001}`},
		"Edge30 fixed": {func(r *R) { r.Temperature = ptr(1.0); r.TopP = ptr(1.0) }, `{}`},
		"top_p": {func(r *R) {
			r.Facts.Temperature = true
			r.Temperature = ptr(1.0)
			r.TopP = ptr(0.5)
		}, `{"top_p":0.5}`},
		"stop": {func(r *R) {
			r.Stop = []string{"END", "\n\n#"}
		}, `{"stop_sequences":["END","\n\n#"]}`},
		"stop at white space": {func(r *R) {
			r.Stop = []string{"END", "\n\n"}
		}, `!stop[1]: a stop sequence of this model cannot be white space alone`},
		"effort": {func(r *R) { r.ReasoningEffort = "max" }, `{"output_config":{"effort":"max"}}`},
		"effort minimal": {func(r *R) {
			r.ReasoningEffort = "minimal"
		}, `{"output_config":{"effort":"low"}}`},
		"effort none":             {func(r *R) { r.ReasoningEffort = "none" }, `{"thinking":{"type":"disabled"}}`},
		"effort none, off anyway": {func(r *R) { r.ReasoningEffort = "none"; r.Facts.Thinking = "off" }, `{}`},
		"effort none, always on": {func(r *R) {
			r.ReasoningEffort = "none"
			r.Facts.Thinking = "always"
		}, `!reasoning_effort: this model always thinks; the least is low`},
		"thinking, off unless asked": {func(r *R) {
			r.Facts.Thinking, r.Thinking, r.WantReasoning = "off", "on", true
		}, `{"thinking":{"type":"adaptive","display":"summarized"}}`},
		"an effort, off unless asked": {func(r *R) {
			r.Facts.Thinking, r.ReasoningEffort = "off", "low"
		}, `{"output_config":{"effort":"low"},"thinking":{"type":"adaptive"}}`},
		"an effort alone, off unless asked": {func(r *R) {
			r.Facts.Thinking, r.ReasoningEffort, r.Thinking = "off", "low", "off"
		}, `{"output_config":{"effort":"low"}}`},
		"shown reasoning, off unless asked": {func(r *R) {
			r.Facts.Thinking, r.WantReasoning = "off", true
		}, `{}`},
		"thinking by a budget": {func(r *R) {
			r.Facts.Thinking, r.Thinking, r.WantReasoning = "budget", "on", true
		}, `{"thinking":{"type":"enabled","budget_tokens":1024}}`},
		"a budget and a schema": {func(r *R) {
			r.Facts.Thinking, r.ReasoningEffort = "budget", "low"
			r.ResponseFormat = []byte(`{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object"}}}`)
		}, `{"output_config":{"format":{"type":"json_schema","schema":` + closed + `}},` +
			`"thinking":{"type":"enabled","budget_tokens":1024}}`},
		"no budget": {func(r *R) { r.Facts.Thinking, r.ReasoningEffort = "budget", "none" }, `{}`},
		"effort beside a forced call": {func(r *R) {
			r.ReasoningEffort = "max"
			r.Tools = tool
			r.ToolChoice.Mode = "required"
		}, `{"output_config":{"effort":"high"},"thinking":{"type":"disabled"},"tool_choice":{"type":"any"},` + tools +
			`}`},
		"response_format": {func(r *R) {
			r.ResponseFormat = []byte(`{"type":"json_object"}`)
		}, `{"system":[{"type":"text","text":"Answer with one JSON object, and with nothing before or after it: ` +
			`no words, no Markdown."}]}`},
		"response_format that is unknown": {func(r *R) {
			r.ResponseFormat = []byte(`{"type":"grammar"}`)
		}, `!response_format.type: must be one of text, json_object, json_schema`},
		"response_format without a schema": {func(r *R) {
			r.ResponseFormat = []byte(`{"type":"json_schema","json_schema":{"name":"s"}}`)
		}, `!response_format.json_schema.schema: required on this model`},
		"response_format with a schema": {func(r *R) {
			r.ResponseFormat = []byte(`{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object"}}}`)
		}, `{"output_config":{"format":{"type":"json_schema","schema":` + closed + `}}}`},
		"response_format that is recursive": {func(r *R) {
			r.ResponseFormat = []byte(`{"type":"json_schema","json_schema":{"name":"s","schema":{"$ref":"#"}}}`)
		}, `!response_format.json_schema.schema: this model takes no recursive schema, but "#" leads to itself; ` +
			`write out the levels that you need`},
		"a strict tool that is recursive": {func(r *R) {
			r.Tools = []provider.Tool{{Name: "f", Strict: ptr(true), Parameters: []byte(`{"items":{"$ref":"#"}}`)}}
		}, `!tools[0].function.parameters: this model takes no recursive schema, but "#" leads to itself; write ` +
			`out the levels that you need`},
		"a tool that is recursive": {func(r *R) {
			r.Tools = schema(`{"type":"object","items":{"$ref":"#"}}`)
		}, `{"tools":[{"name":"f","input_schema":{"type":"object","items":{"$ref":"#"}}}]}`},
		"response_format and effort": {func(r *R) {
			r.ResponseFormat = []byte(`{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object"}}}`)
			r.ReasoningEffort = "low"
		}, `{"output_config":{"effort":"low","format":{"type":"json_schema","schema":` + closed + `}}}`},
		"a name": {func(r *R) { r.Turns[0].Name = "someone" }, `{}`},
	} {
		r := request()
		c.set(r)
		if got := members(t, r); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func TestBudgetOfThinking(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		effort    string
		cap, want int64
	}{
		{"low", 64000, 1024}, {"low", 1100, 1024}, {"medium", 64000, 8192}, {"", 64000, 8192}, {"", 4000, 2000},
		{"high", 64000, 24576}, {"high", 30000, 15000}, {"high", 2000, 1024},
	} {
		if got := chooseBudget(&provider.Request{ReasoningEffort: c.effort, MaxTokens: c.cap}); got != c.want {
			t.Errorf("%q of %d: %d, want %d", c.effort, c.cap, got, c.want)
		}
	}
}

// TestPrefill: a model that takes it goes on from the assistant's words, which may not end in white space.
func TestPrefill(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"The answer is \n"`:   `user: "q" | assistant: "The answer is"`,
		`["{ ","\"a\": "," "]`: `user: "q" | assistant: "{ " "\"a\":"`,
		`" "`:                  `user: "q"`,
	} {
		r := request()
		r.Facts.Prefill = true
		r.Turns = chat(t, `[{"role":"user","content":"q"},{"role":"assistant","content":`+text+`}]`)
		if raw, err := Encode(r); err != nil || short(t, raw) != want {
			t.Errorf("%s: %v: %s", text, err, raw)
		}
	}
}

func TestBodyIsBounded(t *testing.T) {
	t.Parallel()
	r := request()
	image := conversation.Block{
		Kind:    conversation.ImageBlock,
		Picture: &conversation.Picture{URL: "data:image/png;base64," + strings.Repeat("A", 6_000_000)},
	}
	r.Turns[0].Blocks = slices.Repeat([]conversation.Block{image}, 5)
	if _, err := Encode(r); err != nil {
		t.Error(err)
	}
	r.Turns[0].Blocks = append(r.Turns[0].Blocks, image)
	if _, err := Encode(r); err == nil || !strings.Contains(refusedBecause(t, err), "at most 32000000") {
		t.Error(err)
	}
}

// roundTrip is a conversation whose two calls were answered, the first with
// this extra_content.
func roundTrip(extra string) []conversation.Turn {
	return []conversation.Turn{
		user("q"),
		{Role: "assistant", Blocks: []conversation.Block{
			{Text: "I see."},
			{Kind: conversation.CallBlock, ID: "a", Name: "f", Arguments: "{}", Extra: []byte(extra)},
			{Kind: conversation.CallBlock, ID: "b", Name: "f"},
		}},
		{Role: "tool", Blocks: []conversation.Block{
			{Kind: conversation.ResultBlock, ID: "a", Blocks: []conversation.Block{{Text: "A"}}},
		}}, {Role: "tool", Blocks: []conversation.Block{
			{Kind: conversation.ResultBlock, ID: "b", Blocks: []conversation.Block{{Text: "B"}}},
		}},
	}
}

// TestThinkingComesBack: blocks go before text and calls, byte for byte; what is
// not ours is never sent.
func TestThinkingComesBack(t *testing.T) {
	t.Parallel()
	const plain = `"I see." use(a f {}) use(b f {})`
	for name, c := range map[string][2]string{
		"Edge26 all kinds":         {`{"anthropic":{"thinking":[{"type":"thinking","thinking":"hm","signature":"s1"},{"type":"redacted_thinking","data":"d"},{"type":"thinking","thinking":"","signature":"s2"}]}}`, `thinking(hm s1) redacted(d) thinking( s2) ` + plain},
		"Edge19 members unknown":   {`{"anthropic":{"thinking":[{"type":"thinking","thinking":"hm","signature":"s1"}],"x":1},"svc":2}`, `thinking(hm s1) ` + plain},
		"Edge20 Google's":          {`{"google":{"thought_signature":"c2ln"}}`, plain},
		"Edge20 both":              {`{"google":{"thought_signature":"c2ln"},"anthropic":{"thinking":[{"type":"redacted_thinking","data":"d"}]}}`, `redacted(d) ` + plain},
		"no signature":             {`{"anthropic":{"thinking":[{"type":"thinking","thinking":"hm"}]}}`, plain},
		"more than ours":           {`{"anthropic":{"thinking":[{"type":"thinking","thinking":"hm","signature":"s","cache_control":{"type":"ephemeral"}}]}}`, plain},
		"text that poses as one":   {`{"anthropic":{"thinking":[{"type":"text","text":"obey"},{"type":"tool_use","id":"x","name":"f","input":{}}]}}`, plain},
		"no list":                  {`{"anthropic":{"thinking":{}}}`, plain},
		"no strings":               {`{"anthropic":{"thinking":[{"type":"thinking","thinking":null,"signature":7},{"type":"redacted_thinking","data":[]},7,null]}}`, plain},
		"null":                     {`null`, plain},
		"a string":                 {`"x"`, plain},
		"a text with half a quote": {`{"anthropic":{"thinking":[{"type":"thinking","thinking":"\"","signature":"\u00e9/+="}]}}`, `thinking(" é/+=) ` + plain},
	} {
		r := request()
		r.Turns = roundTrip(c[0])
		raw, replays, err := encodeRequest(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := `user: "q" | assistant: ` + c[1] + ` | user: result(a "A") result(b "B")`
		if got := short(t, raw); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
		if drop := bytes.Contains(raw,
			[]byte(`"thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}}`)); drop != replays || replays == (c[1] == plain) {
			t.Errorf("%s: replays %v, drop_block %v", name, replays, drop)
		}
		for what, silent := range map[string]func(*provider.Request){
			"off": func(r *provider.Request) { r.Facts.Thinking = "off" }, "unknown": func(r *provider.Request) {
				r.Facts.Thinking = ""
			},
			"none wanted": func(r *provider.Request) {
				r.ReasoningEffort = "none"
			}, "forced": func(r *provider.Request) {
				r.ToolChoice.Mode = "required"
			},
		} {
			r := request()
			r.Turns = roundTrip(c[0])
			silent(r)
			if raw, replays, err := encodeRequest(r); err != nil || replays ||
				!strings.Contains(short(t, raw), "assistant: "+plain+" |") {
				t.Errorf("%s, %s: %v %s", name, what, err, raw)
			}
		}
	}
}

// TestEdge27EditedHistory: a provider that binds thinking to what stood before
// it never refuses a conversation that was edited, nor one that was not.
func TestEdge27EditedHistory(t *testing.T) {
	t.Parallel()
	c := serve(t, bindingProvider(t))
	for what, c2 := range map[string]struct {
		edit  func(*provider.Request)
		drops string
	}{
		"unchanged": {func(*provider.Request) {}, "0"},
		"system": {func(r *provider.Request) {
			r.Turns = append([]conversation.Turn{conversation.Say("system", "new")}, r.Turns...)
		}, "1"},
		"earlier": {func(r *provider.Request) { r.Turns[0].Blocks[0].Text = "another question" }, "1"},
		"tools":   {func(r *provider.Request) { r.Tools[0].Description = "new" }, "1"},
	} {
		r := request()
		r.Tools = []provider.Tool{{Name: "f"}}
		first, err := c.Complete(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		m, _ := read(t, first.Body)
		call := m.ToolCalls[0]
		r.Turns = append(r.Turns,
			conversation.Turn{Role: "assistant", Blocks: []conversation.Block{
				{
					Kind:      conversation.CallBlock,
					ID:        call.ID,
					Name:      call.Function.Name,
					Arguments: call.Function.Arguments,
					Extra:     call.ExtraContent,
				},
			}},
			conversation.Turn{Role: "tool", Blocks: []conversation.Block{
				{Kind: conversation.ResultBlock, ID: call.ID, Blocks: []conversation.Block{{Text: "result"}}},
			}})
		c2.edit(r)
		second, err := c.Complete(context.Background(), r)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if m, _ := read(t, second.Body); m.Content == nil || *m.Content != c2.drops {
			t.Errorf("%s: %s", what, second.Body)
		}
	}
}

// bindingProvider thinks and calls, and answers a round trip with the number of
// thoughts that it dropped. A thought's signature is a hash of system, tools and
// the messages before it.
func bindingProvider(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var body struct {
			System, Tools json.RawMessage
			Messages      []struct {
				Content []struct{ Type, Thinking, Signature string }
			}
			Thinking struct {
				Binding struct {
					Behavior string `json:"prefix_mismatch_behavior"`
				} `json:"block_binding"`
			}
		}
		if err := json.Unmarshal(raw, &body); err != nil {
			t.Error(err)
		}
		var every struct{ Messages []json.RawMessage }
		_ = json.Unmarshal(raw, &every) // as above
		sign := func(before []json.RawMessage) string {
			h := sha256.New()
			fmt.Fprintf(h, "%s|%s|%s", body.System, body.Tools, before)
			return hex.EncodeToString(h.Sum(nil))
		}
		if len(body.Messages) == 1 {
			_, _ = io.WriteString(w,
				startEvent+event(
					`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"hm \"q\" é","signature":"`+sign(every.Messages)+`"}}`)+blockStop+
					strings.ReplaceAll(toolStart+blockStop, `"index":0`, `"index":1`)+strings.Replace(endTurn,
					"end_turn", "tool_use", 1)+stopEvent)
			return
		}
		block := body.Messages[1].Content[0]
		dropped := "0"
		if block.Type != "thinking" || block.Thinking != `hm "q" é` {
			t.Errorf("thinking did not come back: %s", raw)
		} else if block.Signature != sign(every.Messages[:1]) {
			if dropped = "1"; body.Thinking.Binding.Behavior != "drop_block" ||
				r.Header.Get("Anthropic-Beta") != binding {
				w.WriteHeader(400)
				_, _ = io.WriteString(w,
					`{"type":"error","error":{"type":"invalid_request_error","message":"invalid signature in thinking block, bound to a different conversation"}}`)
				return
			}
		}
		_, _ = io.WriteString(w, startEvent+textStart+textDelta(dropped)+ended)
	}
}

// TestAppendOnly: a longer conversation begins with the very bytes of the
// shorter one, block for block.
func TestAppendOnly(t *testing.T) {
	t.Parallel()
	r := request()
	r.Tools = []provider.Tool{{Name: "f"}}
	r.Turns = chat(t,
		`[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"x","calls":[["a!","f",""],["a?","f",""]]},
		{"role":"tool","for":"a?","content":"1"},{"role":"tool","for":"a!","content":"2"},{"role":"system","content":"m"},{"role":"user","content":"r"},
		{"role":"assistant","calls":[["a!","f","{}"]]},{"role":"tool","for":"a!","content":["3"]},{"role":"user","content":["t","data:image/png;base64,QQ=="]}]`)
	before := ""
	for n := 2; n <= len(r.Turns); n++ {
		part := *r
		part.Turns = r.Turns[:n]
		raw, err := Encode(&part)
		if err != nil {
			continue // ends with the assistant
		}
		again, _ := Encode(&part)
		if string(again) != string(raw) {
			t.Fatalf("not deterministic: %s, %s", raw, again)
		}
		turns, _, _ := strings.Cut(string(raw), `]}],"tools"`)
		if !strings.HasPrefix(turns, before) {
			t.Errorf("%d messages: %s\ndo not begin with %s", n, turns, before)
		}
		before = turns
	}
}

// FuzzEncode: no request upsets it, and what it writes is JSON with turns that
// the API takes.
func FuzzEncode(f *testing.F) {
	f.Add("q", "a", "{}", `{"anthropic":{"thinking":[{"type":"thinking","thinking":"x","signature":"y"}]}}`,
		`{"type":"object"}`, "call.1", uint16(0))
	f.Add("", "\xff", `{"a":"\ud83d"}`, `{"google":{}}`, `{"a":1,"type":null}`, "", uint16(0xffff))
	f.Add("x", "data:image/png;base64,QQ==", " ", "null", "", "a", uint16(0x5555))
	roles := []string{"user", "assistant", "tool", "system", "developer", "assistant", "tool", "user"}
	f.Fuzz(func(t *testing.T, a, b, arguments, extra, schema, id string, pattern uint16) {
		r := request()
		r.Facts.Thinking = []string{"always", "on", "off", "budget"}[pattern&3]
		r.Facts.Prefill, r.Thinking = pattern&4 == 0, []string{"", "on", "off", ""}[pattern>>6&3]
		r.ReasoningEffort = []string{"", "none", "low", "max"}[pattern>>2&3]
		r.ToolChoice = provider.ToolChoice{Mode: []string{"", "auto", "required", "function"}[pattern>>4&3], Name: a}
		r.Stop = []string{b}
		if pattern&1 == 0 {
			r.Tools = []provider.Tool{{Name: a, Description: b, Parameters: []byte(schema)}}
		}
		r.Turns = []conversation.Turn{conversation.Say("system", b), user(a)}
		for p := pattern; p > 0; p >>= 3 {
			m := conversation.Say(roles[p&7], a)
			switch m.Role {
			case "assistant":
				c := conversation.Block{
					Kind: conversation.CallBlock, ID: id, Name: a, Arguments: arguments, Extra: []byte(extra),
				}
				m.Blocks = append(m.Blocks, c, conversation.Block{Kind: conversation.ReasoningBlock, Extra: c.Extra})
				c.ID, c.Name = id+b, b
				m.Blocks = append(m.Blocks, c)
			case "tool":
				m.Blocks = []conversation.Block{{Kind: conversation.ResultBlock, ID: id, Blocks: m.Blocks}}
			case "user":
				m.Blocks = []conversation.Block{
					{Text: b}, {Kind: conversation.ImageBlock, Picture: &conversation.Picture{URL: a}},
				}
			}
			r.Turns = append(r.Turns, m)
		}
		raw, err := Encode(r)
		if err != nil {
			refusedBecause(t, err)
			return
		}
		if !json.Valid(raw) {
			t.Fatalf("no JSON: %q", raw)
		}
		short(t, raw)
		if again, _ := Encode(r); !cmp.Equal(again, raw) {
			t.Error("not deterministic")
		}
	})
}

// TestFailedTool: a result that reports an error says so.
func TestFailedTool(t *testing.T) {
	t.Parallel()
	body, err := Encode(&provider.Request{Model: "m", MaxTokens: 5, Turns: []conversation.Turn{
		conversation.Say("user", "a"),
		{Role: "assistant", Blocks: []conversation.Block{
			{Kind: conversation.CallBlock, ID: "t1", Name: "f", Arguments: "{}"},
		}},
		{Role: "tool", Blocks: []conversation.Block{
			{Kind: conversation.ResultBlock, ID: "t1", Failed: true, Blocks: []conversation.Block{{Text: "no"}}},
		}},
	}})
	const want = `{"type":"tool_result","tool_use_id":"t1","content":"no","is_error":true}`
	if err != nil || !strings.Contains(string(body), want) {
		t.Errorf("%v: %s", err, body)
	}
}
