package messages

import (
	"github.com/purserhq/purser/internal/testkit/shapetest"

	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/models/conversation"
)

// onePixel is a PNG of one pixel.
const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// describeRequest writes a canonical request in lines.
func describeRequest(p *plan.Request) (lines []string) {
	for _, m := range p.Turns {
		line, blocks, end := m.Role, m.Blocks, ""
		if r := m.Result(); r != nil {
			line += "(" + r.ID + ")"
			if r.Failed {
				line += " failed"
			}
			blocks, end = r.Blocks, mark(r.CacheBreakpoint)
		}
		for _, b := range blocks {
			switch b.Kind {
			case conversation.TextBlock:
				line += " " + b.Text
			case conversation.ImageBlock:
				line += fmt.Sprintf(" [%.22s]", b.Picture.URL)
			case conversation.ReasoningBlock:
				line += " " + string(b.Extra)
			case conversation.CallBlock:
				line += fmt.Sprintf(" %s=%s(%s)", b.ID, b.Name, b.Arguments)
			}
			line += mark(b.CacheBreakpoint)
		}
		lines = append(lines, line+end)
	}
	for _, t := range p.Tools {
		lines = append(lines,
			fmt.Sprintf("tool %s %q %s%s", t.Name, t.Description, t.Parameters, mark(t.CacheBreakpoint)))
	}
	if c := p.ToolChoice; c.Mode != "" || p.ParallelToolCalls != nil {
		lines = append(lines, fmt.Sprintf("choice %s %s parallel %t", c.Mode, c.Name, p.ParallelToolCalls == nil))
	}
	if p.ReasoningEffort != "" || p.WantReasoning {
		lines = append(lines, fmt.Sprintf("effort %q reasoning %t thinking %s", p.ReasoningEffort, p.WantReasoning,
			p.Thinking))
	}
	if p.ResponseFormat != nil {
		lines = append(lines, "format "+string(p.ResponseFormat))
	}
	if len(p.Ignored) > 0 {
		lines = append(lines, "ignored "+strings.Join(p.Ignored, " "))
	}
	return lines
}

func mark(marked bool) string {
	if marked {
		return " |"
	}
	return ""
}

// user is a conversation of one text.
const user = `"messages":[{"role":"user","content":"Hi"}]`

var requests = []struct {
	name, body string // without model and max_tokens
	want       []string
}{
	{"a text", user, []string{"user Hi"}},
	{"a system prompt", `"system":"Be brief.",` + user, []string{"system Be brief.", "user Hi"}},
	{"system blocks with a mark", `"system":[{"type":"text","text":"a"},{"type":"text","text":"b",` +
		`"cache_control":{"type":"ephemeral"}}],` + user, []string{"system a b |", "user Hi"}},
	{"one system block with a mark", `"system":[{"type":"text","text":"a",` +
		`"cache_control":{"type":"ephemeral"}}],` + user,
		[]string{"system a |", "user Hi"}},
	{"an hour of cache", `"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral",` +
		`"ttl":"1h"}}],` + user,
		[]string{"system a |", "user Hi", "ignored cache_control.ttl"}},
	{"the whole request is marked", `"cache_control":{"type":"ephemeral"},` + user, []string{"user Hi |"}},
	{"images", `"messages":[{"role":"user","content":[{"type":"text","text":"See"},` +
		`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + onePixel + `"}},` +
		`{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}]}]`,
		[]string{"user See [data:image/png;base64,] [https://example.com/a.]"}},
	{"turns are joined", `"messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text",` +
		`"text":"b"}]}]`,
		[]string{"user a b"}},
	{"a tool round trip", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text",` +
		`"text":"I look."},{"type":"tool_use","id":"t1","name":"f","input":{"x":1}},` +
		`{"type":"tool_use","id":"t2","name":"g","input":{}}]},{"role":"user","content":[` +
		`{"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"two"}]},` +
		`{"type":"tool_result","tool_use_id":"t1","content":"one","cache_control":{"type":"ephemeral"}},` +
		`{"type":"text","text":"Go on"}]}],"tools":[{"name":"f","input_schema":{"type":"object"}}]`,
		[]string{"user a", `assistant I look. t1=f({"x":1}) t2=g({})`, "tool(t2) two", "tool(t1) one |", "user Go on",
			`tool f "" {"type":"object"}`}},
	{"a result without content", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[` +
		`{"type":"tool_use","id":"t1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result",` +
		`"tool_use_id":"t1","is_error":true}]}]`, []string{"user a", "assistant t1=f({})", "tool(t1) failed"}},
	{"an image in a result", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[` +
		`{"type":"tool_use","id":"t1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result",` +
		`"tool_use_id":"t1","content":[{"type":"text","text":"shot"},{"type":"image","source":{"type":"url",` +
		`"url":"https://example.com/a.png"}}]}]}]`,
		[]string{"user a", "assistant t1=f({})", "tool(t1) shot", "user [https://example.com/a.]"}},
	{"thinking of Claude", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[` +
		`{"type":"thinking","thinking":"Hm","signature":"s1"},{"type":"redacted_thinking","data":"d1"},` +
		`{"type":"text","text":"b"}]},{"role":"user","content":"c"}]`,
		[]string{"user a", `assistant {"anthropic":{"thinking":[{"type":"thinking","thinking":"Hm",` +
			`"signature":"s1"}]}} ` +
			`{"anthropic":{"thinking":[{"type":"redacted_thinking","data":"d1"}]}} b`, "user c"}},
	{"thinking between two calls", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[` +
		`{"type":"tool_use","id":"t1","name":"f","input":{}},{"type":"thinking","thinking":"Hm","signature":"s1"},` +
		`{"type":"tool_use","id":"t2","name":"f","input":{}},{"type":"tool_use","id":"t3","name":"f","input":{}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1"},` +
		`{"type":"tool_result","tool_use_id":"t2"},{"type":"tool_result","tool_use_id":"t3"}]}]`,
		[]string{"user a", `assistant t1=f({}) {"anthropic":{"thinking":[{"type":"thinking","thinking":"Hm",` +
			`"signature":"s1"}]}} t2=f({}) t3=f({})`, "tool(t1)", "tool(t2)", "tool(t3)"}},
	{"reasoning of other providers", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[` +
		`{"type":"thinking","thinking":"Hm","signature":"extra.message.eyJ4Ijp7InkiOlsxXX19"},` +
		`{"type":"thinking","thinking":"","signature":"extra.message.eyJ4Ijp7InkiOlsxXX19"},` +
		`{"type":"thinking","thinking":"","signature":"extra.call.eyJ4Ijp7InoiOjJ9fQ"},` +
		`{"type":"tool_use","id":"t1","name":"f","input":{}}]},{"role":"user","content":[` +
		`{"type":"tool_result","tool_use_id":"t1"}]}]`,
		[]string{"user a", `assistant {"x":{"y":[1]}} {"x":{"y":[1]}} {"x":{"z":2}} t1=f({})`, "tool(t1)"}},
	{"unsigned thinking is dropped", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[` +
		`{"type":"thinking","thinking":"Hm","signature":""},{"type":"text","text":"b"}]},` +
		`{"role":"user","content":"c"}]`, []string{"user a", "assistant b", "user c"}},
	{"a prefill", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"{"}]`,
		[]string{"user a", "assistant {"}},
	{"a system message in the middle", `"messages":[{"role":"user","content":"a"},{"role":"system","content":"b"}]`,
		[]string{"user a", "system b"}},
	{"tools and a choice", user + `,"tools":[{"type":"custom","name":"f","description":"d","input_schema":` +
		`{"type":"object"},"cache_control":{"type":"ephemeral"},"strict":true}],"tool_choice":{"type":"tool",` +
		`"name":"f","disable_parallel_tool_use":true}`,
		[]string{"user Hi", `tool f "d" {"type":"object"} |`, "choice function f parallel false"}},
	{"any", user + `,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"}`,
		[]string{"user Hi", `tool f "" {}`, "choice required  parallel true"}},
	{"web search beside a tool", user + `,"tools":[{"type":"web_search_20250305","name":"web_search"},` +
		`{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"}`,
		[]string{"user Hi", `tool f "" {}`, "choice required  parallel true", "ignored tools.web_search_20250305"}},
	{"web search that is not wanted", user + `,"tools":[{"type":"web_search_20250305","name":"web_search"}],` +
		`"tool_choice":{"type":"none"}`, []string{"user Hi", "ignored tools.web_search_20250305"}},
	{"a choice without tools", user + `,"tool_choice":{"type":"auto"}`, []string{"user Hi"}},
	{"a small budget", user + `,"thinking":{"type":"enabled","budget_tokens":1024}`,
		[]string{"user Hi", `effort "low" reasoning true thinking on`}},
	{"a middle budget", user + `,"thinking":{"type":"enabled","budget_tokens":4096}`,
		[]string{"user Hi", `effort "medium" reasoning true thinking on`}},
	{"a large budget", user + `,"thinking":{"type":"enabled","budget_tokens":16384}`,
		[]string{"user Hi", `effort "high" reasoning true thinking on`}},
	{"adaptive thinking with an effort", user + `,"thinking":{"type":"adaptive"},"output_config":{"effort":"max"}`,
		[]string{"user Hi", `effort "max" reasoning true thinking on`}},
	{"thinking of its own effort", user + `,"thinking":{"type":"adaptive"}`,
		[]string{"user Hi", `effort "" reasoning true thinking on`}},
	{"a budget above the output cap", user + `,"thinking":{"type":"enabled","budget_tokens":1000000}`,
		[]string{"user Hi", `effort "high" reasoning true thinking on`}},
	{"a budget below Anthropic's least", user + `,"thinking":{"type":"enabled","budget_tokens":1}`,
		[]string{"user Hi", `effort "low" reasoning true thinking on`}},
	{"an effort without thinking", user + `,"output_config":{"effort":"low"}`,
		[]string{"user Hi", `effort "low" reasoning false thinking off`}},
	{"no thinking", user + `,"thinking":{"type":"disabled"},"output_config":{"effort":"max"}`,
		[]string{"user Hi", `effort "none" reasoning false thinking off`}},
	{"a loose schema", user + `,"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`,
		[]string{"user Hi", `format {"type":"json_schema","json_schema":{"name":"response",` +
			`"schema":{"type":"object"}}}`}},
	{"a strict schema", user + `,"output_format":{"type":"json_schema","schema":{"type":"object","properties":` +
		`{"a":{"type":"array","items":{"type":"string"}}},"required":["a"],"additionalProperties":false}}`,
		[]string{"user Hi", `format {"type":"json_schema","json_schema":{"name":"response","schema":{"type":"object",` +
			`"properties":{"a":{"type":"array","items":{"type":"string"}}},"required":["a"],` +
			`"additionalProperties":false},"strict":true}}`}},
	{"what is dropped", user + `,"top_k":5,"metadata":{"user_id":"u"},"context_management":{"edits":[]},` +
		`"service_tier":"auto","speed":"standard","mcp_servers":[],"container":null`,
		[]string{"user Hi", "ignored top_k metadata context_management"}},
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range requests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := Parse([]byte(`{"model":"m","max_tokens":20000,` + tt.body + `}`))
			if err != nil {
				t.Fatal(err)
			}
			p := c.Request()
			if diff := cmp.Diff(tt.want, describeRequest(p)); diff != "" {
				t.Errorf("want (-) got (+):\n%s", diff)
			}
			if p.BodyModel != "m" || p.MaxTokens != 20000 || !p.IncludeUsage {
				t.Errorf("%+v", p)
			}
		})
	}
}

// TestRefusals: the message names the member of this shape.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const call = `{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"t1",` +
		`"name":"f","input":{}}]}`
	for body, want := range map[string]string{
		`[]`:                            "body: must be a JSON object",
		`{"max_tokens":5,` + user + `}`: "model: required",
		`{"model":"m",` + user + `}`:    "max_tokens: required",
		`{"model":"m","max_tokens":0,` + user + `}`:                           "max_tokens: must be at least 1",
		`{"model":"m","max_tokens":"5",` + user + `}`:                         "max_tokens: must be an integer",
		`{"model":"m","max_tokens":5}`:                                        "messages: required",
		`{"model":"m","max_tokens":5,"messages":[]}`:                          "messages: required",
		`{"model":"m","max_tokens":5,"max_output_tokens":9,` + user + `}`:     "max_output_tokens: is not a member",
		`{"model":"m","max_tokens":5,"temperature":1.5,` + user + `}`:         "temperature: must be between 0 and 1",
		`{"model":"m","max_tokens":5,"top_p":2,` + user + `}`:                 "top_p: must be",
		`{"model":"m","max_tokens":5,"stop_sequences":[""],` + user + `}`:     "stop_sequences[0]: must have",
		`{"model":"m","max_tokens":5,"service_tier":"priority",` + user + `}`: "service_tier: not offered",
		`{"model":"m","max_tokens":5,"speed":"fast",` + user + `}`:            "speed: not offered",
		`{"model":"m","max_tokens":5,"mcp_servers":[{}],` + user + `}`:        "mcp_servers: not offered",
		`{"model":"m","max_tokens":5,"container":"c",` + user + `}`:           "container: not offered",
		`{"model":"m","max_tokens":5,"thinking":{"type":"deep"},` + user + `}`: "thinking." +
			"type: must be one of",
		`{"model":"m","max_tokens":5,"output_config":{"effort":"x"},` + user + `}`: "output_config." +
			"effort: must be",
		`{"model":"m","max_tokens":5,"output_config":{"format":{"type":"text"}},` + user + `}`: "output_config.format" +
			".type: must be json_schema",
		`{"model":"m","max_tokens":5,"system":5,` + user + `}`: "system: must " +
			"be a string or",
		`{"model":"m","max_tokens":5,"system":[{"type":"image"}],` +
			`` + user + `}`: "system[0].type: must be text",
		`{"model":"m","max_tokens":5,"tool_choice":{"type":"any"},` + user + `}`: "tool_choice: " +
			"requires tools",
		`{"model":"m","max_tokens":5,"tools":[{"name":"f"}],` + user + `}`:                   "tools[0].input_schema",
		`{"model":"m","max_tokens":5,"tools":[{"name":"é","input_schema":{}}],` + user + `}`: "tools[0].name",
		`{"model":"m","max_tokens":5,"tools":[{"type":"web_search_20250305","name":"web_search"}],` +
			`` + user + `}`: "tools: web_search_20250305 is not offered here; declare a function, and run it",
		`{"model":"m","max_tokens":5,"tools":[{"type":"web_search_20250305","name":"web_search"}],` +
			`"tool_choice":{"type":"any"},` + user + `}`: "tools: web_search_20250305 is not offered here",
		`{"model":"m","max_tokens":5,"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"f",` +
			`"input_schema":{}}],"tool_choice":{"type":"tool","name":"web_search"},` +
			user + `}`: "tools: web_search_20250305 is not offered here",
		`{"model":"m","max_tokens":5,"tools":[{"type":"bash_20250124","name":"bash"}],` +
			user + `}`: "tools[0].type: bash_20250124 is a tool of Anthropic's own",
		`{"model":"m","max_tokens":5,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool",` +
			`"name":"g"},` +
			user + `}`: `tool_choice.name: "g" is not among the tools`,
		`{"model":"m","max_tokens":5,"messages":[{"role":"robot","content":"a"}]}`: "messages[0].role: must be",
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":null}]}`: "messages[0].content: must be a " +
			"string or an array of blocks",
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text",` +
			`"text":5}]}]}`: "messages[0]" +
			".content[0].text: must be a string",
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"document",` +
			`"source":{"type":"text"}}]}]}`: "" +
			"messages[0].content[0].type: document blocks are not offered",
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64",` +
			`"media_type":"image/tiff","data":""}}]}]}`: "messages[0].content[0].source.media_type: must be one of",
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"image",` +
			`"source":{"type":"file"}}]}]}`: "" +
			"messages[0].content[0].source.type: must be base64 or url",
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url",` +
			`"url":"ftp://x"}}]}]}`: "messages[0].content[0].source.url: ",
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":` +
			`{"type":"forever"}}]}]}`: "messages[0].content[0].cache_control.type: must be ephemeral",
		`{"model":"m","max_tokens":5,"messages":[` + call + `]}`: `messages: tool_use "t1" has no tool_result`,
		`{"model":"m","max_tokens":5,"messages":[` + call + `,{"role":"user","content":"b"}]}`: `messages[2]: ` +
			`tool_use ` +
			`"t1" has no tool_result`,
		`{"model":"m","max_tokens":5,"messages":[` + call + `,{"role":"user","content":[{"type":"tool_result",` +
			`"tool_use_id":"t9"}]}]}`: `messages[2].content[0].tool_use_id: "t9" answers no open tool_use`,
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[` +
			`{"type":"thinking","thinking":"","signature":"extra.call.!"}]}]}`: "messages[1].content[0].signature: " +
			"must be " +
			"sent back as it came",
	} {
		_, err := Parse([]byte(body))
		var e *apierr.Error
		if !errors.As(err, &e) || e.Code != apierr.InvalidRequest || !strings.HasPrefix(e.Message, want) {
			t.Errorf("%s:\n%v, want %s", body, err, want)
		}
	}
	if _, err := ParseCount([]byte(`{"model":"m",` + user + `}`)); err != nil {
		t.Errorf("to count: %v", err)
	}
}

// TestThreads: Anthropic's SDKs send the whole conversation when they read these details, in a thread's first turn and
// in a later one.
func TestThreads(t *testing.T) {
	t.Parallel()
	for _, thread := range []string{`{"type":"create"}`, `{"type":"continue","previous_message_id":"msg_1"}`} {
		_, err := Parse([]byte(`{"model":"m","max_tokens":5,"thread":` + thread + `,` + user + `}`))
		refused, ok := errors.AsType[*apierr.Error](err)
		if !ok {
			t.Errorf("%s: %v", thread, err)
			continue
		}
		body, err := ErrorBody(refused, web.Links{}, "")
		if err != nil || !strings.Contains(string(body),
			`"details":{"error_code":"thread_unsupported_request","unsupported":["thread"]}`) {
			t.Errorf("%s: %v: %s", thread, err, body)
		}
	}
	if _, err := Parse([]byte(`{"model":"m","max_tokens":5,"thread":null,` + user + `}`)); err != nil {
		t.Errorf("no thread: %v", err)
	}
}

// TestMemberName: what the plan or a provider refuses is named as the client has sent it.
func TestMemberName(t *testing.T) {
	t.Parallel()
	call, err := Parse([]byte(`{"model":"m","max_tokens":5,"system":"s","messages":[{"role":"user","content":[` +
		`{"type":"text","text":"a"},{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}]},` +
		`{"role":"assistant","content":[{"type":"text","text":"b"},{"type":"tool_use","id":"t1","name":"f",` +
		`"input":{}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"x"},{"type":"text",` +
		`"text":"c"}]}],` +
		`"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"f","input_schema":{}}],` +
		`"thinking":{"type":"adaptive"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for canonical, want := range map[string]string{
		"model":                                        "model",
		"stop[1]":                                      "stop_sequences[1]",
		"reasoning_effort":                             "thinking",
		"response_format.json_schema.schema":           "output_config.format.schema",
		"tools[0].function.parameters":                 "tools[1].input_schema",
		"tools[2].function.parameters":                 "tools[2].input_schema",
		"tool_choice.function.name":                    "tool_choice.name",
		"messages[0].content":                          "system.content",
		"messages[1].content[1].image_url.url":         "messages[0].content[1].source",
		"messages[2].tool_calls[0].function.arguments": "messages[1].content[1].input",
		"messages[3].tool_call_id":                     "messages[2].content[0].tool_use_id",
		"messages[4]":                                  "messages[2]",
		"messages[9]":                                  "messages[9]",
	} {
		if got := call.MemberName(canonical); got != want {
			t.Errorf("%s: %s, want %s", canonical, got, want)
		}
	}
}

var bodies = []struct{ name, in, want string }{
	{"text", `{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]`,
		`"content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn"`},
	{
		"a stop sequence",
		`{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop","stop_sequence":"#"}]`,
		`"content":[{"type":"text","text":"Hi"}],"stop_reason":"stop_sequence","stop_sequence":"#"`,
	},
	{"calls", `{"choices":[{"message":{"content":null,"tool_calls":[{"id":"c1","function":{"name":"f",` +
		`"arguments":"{\"x\":1}"}},` +
		`{"id":"c2","function":{"name":"g","arguments":""}}]},"finish_reason":"tool_calls"}]`,
		`"content":[{"type":"tool_use","id":"c1","name":"f","input":{"x":1}},{"type":"tool_use","id":"c2","name":"g",` +
			`"input":{}}],"stop_reason":"tool_use"`},
	{"arguments that were cut off",
		`{"choices":[{"message":{"tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{\"x"}}]},` +
			`"finish_reason":"length"}]`,
		`"content":[{"type":"tool_use","id":"c1","name":"f","input":{"invalid_json":"{\"x"}}],` +
			`"stop_reason":"max_tokens"`},
	{"a refusal", `{"choices":[{"message":{"content":null,"refusal":"No."},"finish_reason":"stop"}]`,
		`"content":[{"type":"text","text":"No."}],"stop_reason":"refusal"`},
	{"thinking of Claude", `{"choices":[{"message":{"content":"a","reasoning_content":"Hm",` +
		`"extra_content":{"anthropic":` +
		`{"thinking":[{"type":"thinking","thinking":"Hm","signature":"s1"},{"type":"redacted_thinking",` +
		`"data":"d1"}]}}},` +
		`"finish_reason":"stop"}]`,
		`"content":[{"type":"thinking","thinking":"Hm","signature":"s1"},{"type":"redacted_thinking","data":"d1"},` +
			`{"type":"text","text":"a"}],"stop_reason":"end_turn"`},
	{"reasoning of another provider", `{"choices":[{"message":{"content":"a","reasoning_content":"Hm",` +
		`"extra_content":` +
		`{"x":{"y":1}}},"finish_reason":"stop"}]`,
		`"content":[{"type":"thinking","thinking":"Hm","signature":"extra.message.eyJ4Ijp7InkiOjF9fQ"},` +
			`{"type":"text","text":"a"}],"stop_reason":"end_turn"`},
}

func TestBody(t *testing.T) {
	t.Parallel()
	for _, tt := range bodies {
		c := &Call{}
		c.request.WantReasoning = true
		in := tt.in + `,"id":"chatcmpl-1","model":"m","usage":{"prompt_tokens":5,"completion_tokens":2,` +
			`"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":1}},` +
			`"svc":{"a":1}}`
		if !strings.Contains(tt.want, `"stop_sequence":`) {
			tt.want += `,"stop_sequence":null`
		}
		want := `{"id":"msg_1","type":"message","role":"assistant","model":"m",` + tt.want + `,` +
			`"usage":{"input_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":1,"output_tokens":2,` +
			`"output_tokens_details":{"thinking_tokens":1}},"svc":{"a":1}}` + "\n"
		if diff := cmp.Diff(want, string(shapetest.Whole(c, in))); diff != "" {
			t.Errorf("%s: want (-) got (+):\n%s", tt.name, diff)
		}
	}
}

// TestErrorBody: a person who reads the message alone knows what to do.
func TestErrorBody(t *testing.T) {
	t.Parallel()
	links := web.Links{Dashboard: "https://pay.example"}
	exhausted := apierr.AllocationExhausted.On("conn_1", "this call may cost up to $1.00 and $0.10 remains")
	exhausted.Details = map[string]any{"required_mc": 1}
	for _, tt := range []struct {
		err  *apierr.Error
		want string
	}{
		{exhausted, `{"type":"error","error":{"type":"billing_error","message":"this call may cost up to ` +
			`$1.00 and $0.10 ` +
			`remains. Raise the spend cap at https://pay.example/connections/conn_1/increase",` +
			`"code":"allocation_exhausted",` +
			`"connection_id":"conn_1","increase_url":"https://pay.example/connections/conn_1/increase",` +
			`"review_url":null,` +
			`"details":{"required_mc":1}},"request_id":"req_1"}`},
		{apierr.RateLimited.Errorf("too fast"), `{"type":"error","error":{"type":"rate_limit_error",` +
			`"message":"too fast",` +
			`"code":"rate_limited","connection_id":null,"increase_url":null,"review_url":null},"request_id":"req_1"}`},
	} {
		got, err := ErrorBody(tt.err, links, "req_1")
		if diff := cmp.Diff(tt.want+"\n", string(got)); err != nil || diff != "" {
			t.Errorf("%v: want (-) got (+):\n%s", err, diff)
		}
	}
	for _, c := range apierr.All {
		if kind := errorType(c.Name); (c.Status >= 500) != (kind == "api_error" || kind == "overloaded_error") {
			t.Errorf("%s: %s", c.Name, kind)
		}
	}
}

// TestRoundTrip sends the blocks of a response back: its reasoning comes to the message or call that it belongs to.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	const own = `{"openai":{"reasoning":[{"id":"rs_1"}]}}`
	const ofCall = `{"google":{"thought_signature":"c2ln"}}`
	c := &Call{}
	c.request.WantReasoning = true
	body := shapetest.Whole(c, `{"id":"chatcmpl-1","model":"m","choices":[{"message":{"content":"a",`+
		`"reasoning_content":"Hm",`+
		`"extra_content":`+own+`,"tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{}"},`+
		`"extra_content":`+
		ofCall+`}]},"finish_reason":"tool_calls"}]}`)
	var message struct{ Content json.RawMessage }
	if err := json.Unmarshal(body, &message); err != nil {
		t.Fatal(err)
	}
	call, err := Parse([]byte(`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"a"},` +
		`{"role":"assistant","content":` + string(message.Content) + `},{"role":"user","content":[` +
		`{"type":"tool_result","tool_use_id":"c1"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	b := call.Request().Turns[1].Blocks
	if len(b) != 4 || string(b[0].Extra) != own || b[1].Text != "a" || string(b[2].Extra) != ofCall || b[3].ID != "c1" {
		t.Errorf("%+v", b)
	}
}

// FuzzParse reads any body. What it accepts passes the checks of the canonical request.
func FuzzParse(f *testing.F) {
	for _, tt := range requests {
		f.Add(`{"model":"m","max_tokens":20000,` + tt.body + `}`)
	}
	f.Fuzz(func(t *testing.T, body string) {
		c, err := Parse([]byte(body))
		if err != nil {
			var e *apierr.Error
			if !errors.As(err, &e) || e.Code != apierr.InvalidRequest {
				t.Errorf("%v", err)
			}
			return
		}
		if err := c.Request().Check(); err != nil {
			t.Errorf("the canonical request: %v", err)
		}
	})
}
