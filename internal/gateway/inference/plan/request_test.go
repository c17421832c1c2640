package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// FuzzParse: whatever comes, it is read or refused by name; what is read stays
// inside the bounds of contract §8.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"messages":[{"role":"user","content":"hi"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url",` +
			`"image_url":{"url":"https://x/y.png"}}]}],"max_tokens":5,"stream":true,` +
			`"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",` +
			`"function":{"name":"f","arguments":"{}"},"extra_content":{"a":1}}]},{"role":"tool","tool_call_id":"c",` +
			`"content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],` +
			`"tool_choice":{"type":"function","function":{"name":"f"}}}`,
		`{"messages":[{"role":"user","content":"a"}],"stop":["x"],"response_format":{"type":"json_object"},"n":1,` +
			`"api_base":null}`,
		`{"model":"m","messages":[{"role":"developer","content":"a","name":"b"},{"role":"assistant","content":"",` +
			`"refusal":"no"}],"stop":"\u2028","max_completion_tokens":9223372036854775807,"top_p":1e-7}`,
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk=",` +
			`"detail":"low"}}]}],"temperature":2,"reasoning_effort":"none"}`,
		`{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f",` +
			`"strict":true}},{"type":"function","function":{"name":"g","description":"b"}}],` +
			`"tool_choice":"required","parallel_tool_calls":false}`,
		`{"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema",` +
			`"json_schema":{"name":"s","schema":{"type":"object"}}},"service_tier":"auto","modalities":["text"],` +
			`"logprobs":false,"top_logprobs":0}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":""}},{"id":"d",` +
			`"function":{"name":"f","arguments":"x"}}]},{"role":"tool","tool_call_id":"d","content":"x"},` +
			`{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":""}]}]}`,
		`{"messages":[{"role":"tool","tool_call_id":"` + strings.Repeat("é", 99) + `","content":"x"}]}`,
		`{"messages":[{"role":"user","content":"\ud83e\uddfe \u0000"}],"messages":[]}`,
		`{"messages":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `,"` + strings.Repeat("a.", 99) + `":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		var e *apierr.Error
		if err != nil {
			if !errors.As(err, &e) || e.Code != apierr.InvalidRequest || e.Message == "" || len(e.Message) > 1000 ||
				!utf8.ValidString(e.Message) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if len(p.Turns) == 0 || len(p.Turns) > maxMessages || len(p.Tools) > maxTools ||
			p.MaxTokens < 0 || len(p.Stop) > 4 {
			t.Fatalf("read past the bounds: %+v", p)
		}
		if (p.ToolChoice.Mode != "" || p.ParallelToolCalls != nil) && len(p.Tools) == 0 {
			t.Fatalf("a choice among no tools: %+v", p)
		}
		c := p.ToolChoice
		offered := slices.ContainsFunc(p.Tools, func(x provider.Tool) bool { return x.Name == c.Name })
		if (c.Mode == "function") != (c.Name != "") || c.Name != "" && !offered {
			t.Fatalf("a choice of none: %+v", p)
		}
		for _, m := range p.Turns {
			texts := append([]string{m.Name}, p.Stop...)
			for _, b := range m.Blocks {
				texts = append(texts, b.Text, b.ID, conversation.Texts(b.Blocks))
			}
			for _, text := range texts {
				if !utf8.ValidString(text) {
					t.Fatalf("%q was read", text)
				}
			}
		}
		if again, err := Parse(data); err != nil || len(again.Turns) != len(p.Turns) {
			t.Fatalf("read twice, it differs: %v", err)
		}
	})
}

// TestUnknownMembers: near misses of what bounds the cost are refused and name the right member;
// any other unknown member is dropped and listed.
func TestUnknownMembers(t *testing.T) {
	t.Parallel()
	const head = `{"messages":[{"role":"user","content":"a"}],`
	for member, right := range map[string]string{
		`"maxTokens":5`:                              "max_tokens",
		`"max_output_tokens":5`:                      "max_tokens",
		`"Max_Tokens":5`:                             "max_tokens",
		`"max-tokens":5`:                             "max_tokens",
		`"max_new_tokens":5`:                         "max_tokens",
		`"generationConfig":{"maxOutputTokens":5}`:   "max_tokens",
		`"reasoning":{"effort":"low"}`:               "reasoning_effort",
		`"reasoningEffort":"low"`:                    "reasoning_effort",
		`"thinking":{"type":"disabled"}`:             "reasoning_effort",
		`"thinking_config":{"thinking_budget":0}`:    "reasoning_effort",
		`"seed":1,"output_config":{"effort":"low"}`:  "reasoning_effort",
		`"max_tokens":5,"maxCompletionTokens":50000`: "max_tokens",
	} {
		_, err := Parse([]byte(head + member + `}`))
		var e *apierr.Error
		if !errors.As(err, &e) || e.Code != apierr.InvalidRequest || !strings.HasSuffix(e.Message, "send "+right) {
			t.Errorf("%s: %v", member, err)
		}
	}
	p, err := Parse([]byte(head + `"seed":1,"top_k":5,"frequency_penalty":0.5,"logit_bias":{},"verbosity":"low",` +
		`"reasoning":null,"maxTokens":null,"store":false,"max_tokens":7,"x\r\ny":1,"user":"u"}`))
	want := []string{"seed", "top_k", "frequency_penalty", "logit_bias", "verbosity", "user"}
	if err != nil || !slices.Equal(p.Ignored, want) || p.MaxTokens != 7 {
		t.Errorf("%v: ignored %q", err, p.Ignored)
	}
	many := head
	for i := range 100 {
		many += `"m` + strings.Repeat("x", i) + `":1,`
	}
	if p, err := Parse([]byte(many + `"z":1}`)); err != nil || len(p.Ignored) != maxIgnored {
		t.Errorf("%v: %d names", err, len(p.Ignored))
	}
	if _, err := Parse([]byte(`{"messages":[{"role":"robot","content":"a"}]}`)); err == nil ||
		!strings.Contains(err.Error(), "must be one of system, developer, user, assistant, tool") {
		t.Errorf("a role that is none: %v", err)
	}
}

// TestExtraContent reads what an assistant message brings back. Its reasoning_content is dropped
// without a word.
func TestExtraContent(t *testing.T) {
	t.Parallel()
	p, err := Parse([]byte(`{"messages":[{"role":"user","content":"a","extra_content":{"x":1}},` +
		`{"role":"assistant","content":"b","reasoning_content":"c","extra_content":{"google":{}}},` +
		`{"role":"assistant","content":"d","extra_content":null},{"role":"user","content":"e"}]}`))
	if err != nil || len(p.Ignored) != 0 || len(p.Turns[0].Blocks) != 1 ||
		string(p.Turns[1].Blocks[0].Extra) != `{"google":{}}` || len(p.Turns[2].Blocks) != 1 {
		t.Errorf("%v: %+v", err, p)
	}
}

// TestNoParts: an assistant message may have a list without parts, as some clients send it beside tool calls.
func TestNoParts(t *testing.T) {
	t.Parallel()
	p, err := Parse([]byte(`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[],` +
		`"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"1","content":"b"}],` +
		`"tools":[{"type":"function","function":{"name":"f"}}]}`))
	if err != nil || len(p.Turns[1].Blocks) != 1 || p.Turns[1].Blocks[0].ID != "1" {
		t.Errorf("%v: %+v", err, p)
	}
}

// TestWhatModelsInvent: two calls may share an id, and names may be any; both come to the provider as it takes them.
func TestWhatModelsInvent(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 70)
	p, err := Parse([]byte(`{"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[` +
		`{"id":"x","function":{"name":"multi_tool_use.parallel","arguments":"{\"a"}},` +
		`{"id":"x","function":{"name":"f"}},{"id":"y","function":{"name":"` + long + `"}}]},` +
		`{"role":"tool","tool_call_id":"y","content":"three"},{"role":"tool","tool_call_id":"x","content":"one"},` +
		`{"role":"tool","tool_call_id":"x","content":"two"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, turn := range p.Turns[1:] {
		for _, b := range turn.Blocks {
			got = append(got, b.ID+" "+b.Name+conversation.Texts(b.Blocks))
		}
	}
	want := []string{"x multi_tool_use_parallel", "x_2 f", "y " + strings.Repeat("_", 56) + "78dcf717",
		"y three", "x one", "x_2 two"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := p.Check(); err != nil || p.Turns[1].Blocks[1].ID != "x_2" {
		t.Errorf("checked again: %v", err)
	}
}

// TestRefusals has a body for each refusal, and for each bound one that is just within it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const user = `"messages":[{"role":"user","content":"a"}]`
	messages := func(list string) string { return `"messages":[` + list + `]` }
	content := func(parts string) string { return messages(`{"role":"user","content":` + parts + `}`) }
	many := func(n int, one string) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	const image = `{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}`
	const inline = `{"type":"image_url","image_url":{"url":"data:image/gif;base64,R0lGODlhAQABAAAAACw="}}`
	tool := func(name string) string { return `{"type":"function","function":{"name":"` + name + `"}}` }
	tools := func(list string) string { return user + `,"tools":[` + list + `]` }
	choice := func(value string) string { return tools(tool("f")) + `,"tool_choice":` + value }
	format := func(value string) string { return user + `,"response_format":` + value }
	stop := func(value string) string { return user + `,"stop":` + value }
	numbered := func(n int) (list []string) {
		for i := range n {
			list = append(list, tool(fmt.Sprint("f", i)))
		}
		return list
	}
	call := func(id, name string) string { return `{"id":"` + id + `","function":{"name":"` + name + `"}}` }
	asks := func(calls string) string { return `{"role":"assistant","tool_calls":[` + calls + `]}` }
	answer := func(id string) string { return `{"role":"tool","tool_call_id":"` + id + `","content":"x"}` }
	// A body, and how the refusal begins; "" = it is read.
	for _, c := range [][2]string{
		{user + `,"model":""`, "model: must not be empty"},
		{user + `,"max_tokens":0`, "max_tokens: must be at least 1"},
		{user + `,"max_tokens":1`, ""},
		{user + `,"max_tokens":5,"max_completion_tokens":6`, "max_completion_tokens: differs from max_tokens"},
		{user + `,"max_tokens":5,"max_completion_tokens":5`, ""},
		{user + `,"temperature":-0.01`, "temperature: must be"},
		{user + `,"temperature":0,"top_p":0`, ""},
		{user + `,"temperature":2,"top_p":1`, ""},
		{user + `,"temperature":2.01`, "temperature: must be"},
		{user + `,"top_p":-0.01`, "top_p: must be"},
		{user + `,"top_p":1.01`, "top_p: must be"},
		{user + `,"reasoning_effort":""`, "reasoning_effort: must be one of"},
		{user + `,"reasoning_effort":"huge"`, "reasoning_effort: must be one of"},
		{user + `,"stream_options":{}`, "stream_options: requires stream"},
		{user + `,"stream":true,"stream_options":{}`, ""},
		{user + `,"n":2`, "n: must be 1"},
		{user + `,"service_tier":"flex"`, "service_tier: not offered"},
		{user + `,"api_key":"k"`, "api_key: not offered"},

		{stop(`5`), "stop: must be a string or an array"},
		{stop(`{}`), "stop: must be a string or an array"},
		{stop(`[1]`), "stop: must be a string or an array"},
		{stop(`["a","b","c","d"]`), ""},
		{stop(`["a","b","c","d","e"]`), "stop: at most 4"},
		{stop(`""`), "stop[0]: must have 1 to 256 bytes"},
		{stop(`["a","` + strings.Repeat("b", 257) + `"]`), "stop[1]: must have 1 to 256 bytes"},
		{stop(`"` + strings.Repeat("b", 256) + `"`), ""},

		{format(`"text"`), "response_format: must be an object"},
		{format(`{"type":5}`), "response_format: must be an object"},
		{format(`{"type":"text"}`), ""},
		{format(`{"type":"xml"}`), "response_format.type: must be one of"},
		{format(`{"type":"json_schema"}`), "response_format.json_schema.name: required"},
		{format(`{"type":"json_schema","json_schema":{"name":"a b"}}`), "response_format.json_schema.name: required"},
		{format(`{"type":"json_schema","json_schema":{"name":"a","schema":[]}}`),
			"response_format.json_schema.schema: must be"},
		{format(`{"type":"json_schema","json_schema":{"name":"a","schema":{}}}`), ""},

		{messages(""), "messages: required"},
		{messages(many(maxMessages, `{"role":"user","content":"a"}`)), ""},
		{messages(many(maxMessages+1, `{"role":"user","content":"a"}`)), "messages: at most 4096"},
		{messages(`{"role":"robot","content":"a"}`), "messages[0].role: must be one of"},
		{messages(`{"role":"user"}`), "messages[0].content: required"},
		{messages(`{"role":"assistant"}`), "messages[0].content: required"},
		{messages(`{"role":"assistant","refusal":"no"}`), ""},
		{messages(`{"role":"user","content":"a","tool_calls":[` + call("c", "f") + `]}`),
			"messages[0].tool_calls: only an assistant"},
		{messages(`{"role":"user","content":"a","tool_call_id":"c"}`), "messages[0].tool_call_id: required in a tool"},
		{messages(`{"role":"tool","content":"a"}`), "messages[0].tool_call_id: required in a tool"},
		{messages(asks(call("", "f"))), "messages[0].tool_calls[0].id: required"},
		{messages(asks(call("c", ""))), "messages[0].tool_calls[0].function.name: required"},
		{messages(asks(`{"id":"c","type":"code","function":{"name":"f"}}`)), "messages[0].tool_calls[0].type: must be"},

		{content(`5`), "messages[0].content: must be a string or an array"},
		{content(`[5]`), "messages[0].content: must be a string or an array"},
		{content(`[]`), "messages[0].content: must have at least one part"},
		{content(`[{"type":"audio"}]`), "messages[0].content[0].type: must be text or image_url"},
		{content(`[{"type":"text"}]`), "messages[0].content[0].text: required"},
		{content(`[{"type":"text","text":""}]`), ""},
		{content(`[{"type":"image_url"}]`), "messages[0].content[0].image_url: required"},
		{content(`[{"type":"image_url","image_url":{"url":"ftp://a"}}]`), "messages[0].content[0].image_url.url: "},
		{content(`[{"type":"image_url","image_url":{"url":"https://example.com/a.png","detail":"all"}}]`),
			"messages[0].content[0].image_url.detail: must be one of"},
		{messages(`{"role":"system","content":[` + image + `]}`), "messages[0].content[0].type: images stand only"},
		{content(`[` + many(maxImages, image) + `]`), ""},
		{content(`[` + many(maxImages+1, image) + `]`), "messages: at most 20 images in a request that are to be"},
		{content(`[` + many(maxImages+1, inline) + `]`), ""},
		{content(`[` + many(maxParts, `{"type":"text","text":""}`) + `]`), ""},
		{content(`[` + many(maxParts+1, `{"type":"text","text":""}`) + `]`), "messages: at most 32768 content parts"},

		{tools(strings.Join(numbered(maxTools), ",")), ""},
		{tools(strings.Join(numbered(maxTools+1), ",")), "tools: at most 128"},
		{tools(`{"type":"file_search"}`), "tools[0].type: must be function"},
		{tools(`{"type":"web_search"}`), "tools: web_search is not offered here; declare a function, and run it"},
		{tools(`{"type":"web_search_preview_2025_03_11"},{"type":"image_generation"}`), "tools: image_generation is"},
		{tools(`{"type":"web_search"}`) + `,"tool_choice":"required"`, "tools: web_search is not offered here"},
		{tools(`{"type":"web_search"},`+numbered(1)[0]) + `,"tool_choice":{"type":"web_search"}`, "tools: web"},
		{tools(`{"type":"web_search"}`) + `,"tool_choice":"none","parallel_tool_calls":true`, ""},
		{tools(`{"type":"web_search"},` + numbered(1)[0]), ""},
		{user + `,"web_search_options":{}`, "tools: web_search is not offered here"},
		{tools(numbered(1)[0]) + `,"web_search_options":{}`, ""},
		{user + `,"functions":[{"name":"f"}]`, "functions: is the former name of tools; send them as tools"},
		{user + `,"function_call":"auto"`, "function_call: is the former name of tool_choice; send that"},
		{user + `,"logprobs":true`, "logprobs: not offered here, because not every provider returns them; leave"},
		{user + `,"top_logprobs":2`, "top_logprobs: not offered here, because not every provider returns them"},
		{user + `,"audio":{}`, "audio: only text is offered here"},
		{user + `,"modalities":["text","audio"]`, "modalities: only text is offered here"},
		{user + `,"service_tier":"flex"`, "service_tier: not offered here, because it would change the price"},
		{user + `,"store":true`, ""},
		{user + `,"store":"yes"`, "store: must be true or false"},
		{tools(tool("f g")), "tools[0].function.name: required, must match"},
		{tools(tool("f") + "," + tool("f")), `tools[1].function.name: "f" stands twice`},
		{tools(`{"type":"function","function":{"name":"f","parameters":[]}}`), "tools[0].function.parameters: must be"},
		{user + `,"parallel_tool_calls":true`, "parallel_tool_calls: requires tools"},
		{user + `,"tool_choice":"auto"`, "tool_choice: requires tools"},
		{choice(`"any"`), "tool_choice: must be auto"},
		{choice(`{"type":"other"}`), "tool_choice: must be auto"},
		{choice(`5`), "tool_choice: must be auto"},
		{choice(`{"type":"function","function":{"name":"g"}}`), `tool_choice.function.name: "g"`},
		{choice(`{"type":"function","function":{"name":"f"}},"parallel_tool_calls":true`), ""},

		{messages(answer("c")), `messages[0].tool_call_id: "c" answers no open tool call`},
		{messages(asks(call("c", "f")) + "," + answer("c") + "," + answer("c")),
			`messages[2].tool_call_id: "c" answers no open tool call`},
		{messages(asks(call("c", "f")) + `,{"role":"user","content":"a"}`), `messages[1]: tool call "c" has no tool`},
		{messages(asks(call("c", "f"))), `messages: tool call "c" has no tool message`},
		{messages(asks(call("c", "f")+","+call("c", "f")) + "," + answer("c")),
			`messages: tool call "c" has no tool message`},
		{messages(asks(call("c", "f")+","+call("d", "f")) + "," + answer("d") + "," + answer("c")), ""},
	} {
		_, err := Parse([]byte("{" + c[0] + "}"))
		e, _ := errors.AsType[*apierr.Error](err)
		if c[1] == "" && err != nil {
			t.Errorf("%.200s: %v", c[0], err)
		} else if c[1] != "" && (e == nil || e.Code != apierr.InvalidRequest || !strings.HasPrefix(e.Message, c[1])) {
			t.Errorf("%.200s: %v, want %s", c[0], err, c[1])
		}
	}
}
