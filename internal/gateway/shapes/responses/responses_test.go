package responses

import (
	"github.com/purserhq/purser/internal/testkit/shapetest"

	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/models/conversation"
)

var update = flag.Bool("update", false, "write testdata/*.events and *.json again")

// The head of each canonical chunk, and its end.
const (
	head = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1795256100,"model":"m","choices":[`
	bill = `"svc_final":{"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14,"prompt_tokens_details":` +
		`{"cached_tokens":4,"cache_write_tokens":1},"completion_tokens_details":{"reasoning_tokens":2}},` +
		`"svc":{"user_charge_mc":7},"settlement":"settled"}`
	finalChunk = head + `],"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14},` + bill + "}\n\n"
	doneChunk  = "data: [DONE]\n\n"
)

func delta(members string) string {
	return head + `{"index":0,"delta":{` + members + `},"finish_reason":null}]}` + "\n\n"
}

func finish(reason string) string {
	return head + `{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}` + "\n\n" + finalChunk + doneChunk
}

const roleDelta = `"role":"assistant","content":"","refusal":null`

// translations are canonical responses, as the chunks of a stream and as the message of a whole response; "" = there
// is none. The results stand in testdata.
var translations = []struct {
	name, request, chunks, message, reason string
}{
	{
		name: "text",
		chunks: delta(roleDelta) + delta(`"content":"Blue\n\ud83d"`) + delta(`"content":"\ude00 sky"`) +
			finish("stop"),
		message: `"content":"Blue\n\ud83d\ude00 sky","refusal":null`,
		reason:  "stop",
	},
	{
		name: "tools",
		request: `,"tools":[{"type":"function","name":"f","parameters":{ "type": "object" }}],` +
			`"tool_choice":"required","parallel_tool_calls":false,"metadata":{"a": "b"},"max_output_tokens":50`,
		chunks: delta(roleDelta) + delta(`"content":"Let me see."`) +
			delta(`"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"f","arguments":""},`+
				`"extra_content":{"google":{"thought_signature":"sig"}}}]`) +
			delta(`"tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}}]`) +
			delta(`"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]`) + finish("tool_calls"),
		message: `"content":"Let me see.","tool_calls":[{"id":"call_a","type":"function","function":{"name":"f",` +
			`"arguments":"{\"x\":1}"},"extra_content":{"google":{"thought_signature":"sig"}}}]`,
		reason: "tool_calls",
	},
	{
		name: "parallel tools",
		chunks: delta(`"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"a","type":"function",`+
			`"function":{"name":"f","arguments":"{}"}}]`) +
			delta(`"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g",`+
				`"arguments":"{\"y\":"}}]`) +
			delta(`"tool_calls":[{"index":1,"function":{"arguments":"2}"}}]`) + finish("tool_calls"),
		message: `"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},` +
			`{"id":"b","type":"function","function":{"name":"g","arguments":"{\"y\":2}"}}]`,
		reason: "tool_calls",
	},
	{
		name: "custom tools",
		request: `,"tools":[{"type":"custom","name":"patch"},{"type":"namespace","name":"functions",` +
			`"tools":[{"type":"custom","name":"exec"}]}]`,
		chunks: delta(`"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"a","type":"function",`+
			`"function":{"name":"functions__exec","arguments":""}}]`) +
			delta(`"tool_calls":[{"index":0,"function":{"arguments":"{\"input\": \"text(\\\"a\\"}}]`) +
			delta(`"tool_calls":[{"index":0,"function":{"arguments":"n\ud83d\ude00\\\u0022)\"}"}}]`) +
			delta(`"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"patch",`+
				`"arguments":"not JSON"}}]`) +
			delta(`"tool_calls":[{"index":2,"id":"c","type":"function","function":{"name":"patch",`+
				`"arguments":"{\"input\":\"\"}"}}]`) + finish("tool_calls"),
		message: `"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"functions__exec",` +
			`"arguments":"{\"input\": \"text(\\\"a\\n\ud83d\ude00\\\")\"}"}},` +
			`{"id":"b","type":"function","function":{"name":"patch","arguments":"not JSON"}},` +
			`{"id":"c","type":"function","function":{"name":"patch","arguments":"{\"input\":\"\"}"}}]`,
		reason: "tool_calls",
	},
	{
		name:    "cut custom tool",
		request: `,"tools":[{"type":"custom","name":"patch"}]`,
		chunks: delta(`"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"a","type":"function",`+
			`"function":{"name":"patch","arguments":"{\"input\":\"abc"}}]`) + finish("length"),
		message: `"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"patch",` +
			`"arguments":"{\"input\":\"abc"}}]`,
		reason: "length",
	},
	{
		name:    "refusal",
		chunks:  delta(roleDelta) + delta(`"refusal":"I can"`) + delta(`"refusal":"not."`) + finish("stop"),
		message: `"content":null,"refusal":"I cannot."`,
		reason:  "stop",
	},
	{
		name:    "length",
		chunks:  delta(roleDelta) + delta(`"content":"Once upon"`) + finish("length"),
		message: `"content":"Once upon","refusal":null`,
		reason:  "length",
	},
	{
		name:    "filtered",
		chunks:  delta(roleDelta) + finish("content_filter"),
		message: `"content":""`,
		reason:  "content_filter",
	},
	{
		name:    "reasoning",
		request: `,"reasoning":{"effort":"low","summary":"auto"},"include":["reasoning.encrypted_content"]`,
		chunks: delta(roleDelta) + delta(`"reasoning_content":"Hm"`) + delta(`"reasoning_content":", sky"`) +
			delta(`"extra_content":{"anthropic":{"thinking":[{"type":"thinking","thinking":"Hm, sky",`+
				`"signature":"s"}]}}`) +
			delta(`"content":"Blue"`) + finish("stop"),
		message: `"content":"Blue","reasoning_content":"Hm, sky","extra_content":{"anthropic":{"thinking":` +
			`[{"type":"thinking","thinking":"Hm, sky","signature":"s"}]}}`,
		reason: "stop",
	},
	{
		name: "hidden reasoning",
		chunks: delta(roleDelta) + delta(`"reasoning_content":"Hm"`) +
			delta(`"extra_content":{"openai":{"reasoning":[{"id":"rs_1","type":"reasoning",`+
				`"encrypted_content":"x"}]}}`) +
			delta(`"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]`) +
			finish("tool_calls"),
		message: `"content":null,"reasoning_content":"Hm","extra_content":{"openai":{"reasoning":[{"id":"rs_1",` +
			`"type":"reasoning","encrypted_content":"x"}]}},"tool_calls":[{"id":"a","type":"function","function":` +
			`{"name":"f","arguments":"{}"}}]`,
		reason: "tool_calls",
	},
	{
		name: "broken off",
		chunks: delta(roleDelta) + delta(`"content":"Blu"`) +
			`data: {"error":{"code":"provider_error","message":"cut",` +
			`"type":"provider_error","connection_id":"conn_1","increase_url":null,"review_url":null}}` + "\n\n" +
			finalChunk + doneChunk,
	},
	{
		name: "failed before",
		chunks: `data: {"error":{"code":"provider_error","message":"overloaded","type":"provider_error",` +
			`"connection_id":"conn_1","increase_url":null,"review_url":null}}` + "\n\n" + doneChunk,
	},
	{
		name: "pending",
		chunks: delta(roleDelta) + delta(`"content":"Blue"`) +
			head + `{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
			head + `],"usage":null,"svc_final":{"usage":null,"svc":null,"settlement":"pending"}}` + "\n\n" + doneChunk,
	},
}

func parseForTest(t testing.TB, members string) *Call {
	t.Helper()
	c, err := Parse([]byte(`{"model":"m","input":"Why?"` + members + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// compareGolden compares with a file of testdata.
func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "_"))
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// TestTranslations compares events and whole responses with testdata. The same chunks in other portions give the same
// bytes, and a whole response has the output of the stream.
func TestTranslations(t *testing.T) {
	t.Parallel()
	for _, tt := range translations {
		c := parseForTest(t, tt.request)
		events := shapetest.Stream(c, tt.chunks, 100)
		compareGolden(t, tt.name+".events", events)
		again := shapetest.Stream(c, tt.chunks, 1)
		if !bytes.Equal(again, events) {
			t.Errorf("%s: chunk by chunk it differs:\n%s", tt.name, again)
		}
		if tt.message == "" {
			continue
		}
		body := shapetest.Whole(c, `{"id":"chatcmpl-1","object":"chat.completion","created":1795256100,"model":"m",`+
			`"choices":[{"index":0,"message":{"role":"assistant",`+tt.message+`},"finish_reason":"`+tt.reason+
			`"}],"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14,"prompt_tokens_details":`+
			`{"cached_tokens":4,"cache_write_tokens":1},"completion_tokens_details":{"reasoning_tokens":2}},`+
			`"svc":{"user_charge_mc":7}}`+"\n")
		last := events[bytes.LastIndex(events, []byte(`"response":`))+len(`"response":`):]
		if last = bytes.TrimSuffix(last, []byte("}\n\n")); !bytes.Equal(bytes.TrimSpace(body), last) {
			t.Errorf("%s: the whole response is\n%s\nthe stream's\n%s", tt.name, body, last)
		}
	}
}

// TestReasoningComesBack sends all output items back, as agents do: the canonical request has the reasoning again.
func TestReasoningComesBack(t *testing.T) {
	t.Parallel()
	for _, tt := range translations {
		if tt.message == "" || !strings.Contains(tt.chunks, "extra_content") {
			continue
		}
		c := parseForTest(t, tt.request)
		events := shapetest.Stream(c, tt.chunks, 100)
		last := events[bytes.LastIndex(events, []byte(`"response":`))+len(`"response":`):]
		var response struct{ Output []json.RawMessage }
		if err := json.Unmarshal(bytes.TrimSuffix(last, []byte("}\n\n")), &response); err != nil {
			t.Fatal(err)
		}
		items := []string{`{"role":"user","content":"Why?"}`}
		for _, item := range response.Output {
			items = append(items, string(item))
		}
		if strings.Contains(tt.chunks, "tool_calls") {
			id := `call_a`
			if !strings.Contains(tt.chunks, id) {
				id = "a"
			}
			items = append(items, `{"type":"function_call_output","call_id":"`+id+`","output":"done"}`)
		} else {
			items = append(items, `{"role":"user","content":"And?"}`)
		}
		next, err := Parse([]byte(`{"model":"m","input":[` + strings.Join(items, ",") + `]}`))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		extra := ""
		for _, b := range next.Request().Turns[1].Blocks {
			extra += string(b.Extra)
		}
		_, want, _ := strings.Cut(tt.chunks, `"extra_content":`)
		if extra == "" || !strings.HasPrefix(want, extra) {
			t.Errorf("%s: %q came back of %.200s", tt.name, extra, want)
		}
	}
}

// TestOpenAIReasoning hands the reasoning of a conversation with OpenAI itself through.
func TestOpenAIReasoning(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte(`{"model":"m","input":[{"role":"user","content":"a"},` +
		`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAAB"},` +
		`{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"gAAAAC"},` +
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"b","annotations":[]}]},` +
		`{"type":"reasoning","id":"rs_3","summary":[],"encrypted_content":"gAAAAD"},` +
		`{"type":"function_call","call_id":"x","name":"f","arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"x","output":[{"type":"input_text","text":"c"}]},` +
		`{"type":"reasoning","id":"rs_4","summary":[]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var got string
	for _, b := range c.Request().Turns[1].Blocks {
		got += string(b.Extra) + b.Text + b.ID + "\n"
	}
	if want := `{"openai":{"reasoning":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAAB"}]}}
{"openai":{"reasoning":[{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"gAAAAC"}]}}
b
{"openai":{"reasoning":[{"type":"reasoning","id":"rs_3","summary":[],"encrypted_content":"gAAAAD"}]}}
x
`; got != want || len(c.Request().Turns) != 3 {
		t.Errorf("%s", got)
	}
}

// TestParse reads what clients send.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ body, want string }{
		{`"input":"a"`, `user "a"`},
		{`"input":"a","instructions":"be brief"`, `system "be brief", user "a"`},
		{`"input":[{"role":"developer","content":"x"},{"role":"user","content":[{"type":"input_text","text":"a"},` +
			`{"type":"input_image","image_url":"https://x/y.png","detail":"low"}]}]`,
			`developer "x", user "a" image "https://x/y.png" low`},
		{`"input":[{"role":"user","content":"a"},{"type":"message","id":"msg_1","status":"completed",` +
			`"role":"assistant","content":[{"type":"output_text","text":"b","annotations":[]}]},` +
			`{"role":"user","content":"c"}]`, `user "a", assistant "b", user "c"`},
		{`"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},` +
			`{"type":"function_call","call_id":"2","name":"g","arguments":""},` +
			`{"type":"function_call_output","call_id":"2","output":"y"},` +
			`{"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"x"},` +
			`{"type":"input_image","image_url":"https://x/y.png"}]},` +
			`{"role":"user","content":"b"}]`,
			`user "a", assistant f(1) g(2), tool 2 "y", tool 1 "x", user image "https://x/y.png", user "b"`},
		{`"input":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"assistant",` +
			`"content":[{"type":"refusal","refusal":"no"}]},{"role":"assistant","content":"c"}]`,
			`user "a", assistant "b" refuses "no" "c"`},
		{`"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},` +
			`{"type":"function_call_output","call_id":"1","output":[{"type":"input_image",` +
			`"image_url":"https://x/y.png"}]}]`,
			`user "a", assistant f(1), tool 1 "The result is the image that follows.", ` +
				`user image "https://x/y.png"`},
		{`"input":"a","text":{"verbosity":"low","format":{"type":"text"}},` +
			`"reasoning":{"mode":"standard","context":"all"}`,
			`user "a"; ignored reasoning.context text.verbosity`},
		{`"input":[{"role":"user","content":"a"},{"role":"assistant","content":[]},{"role":"user","content":"b"}]`,
			`user "a", user "b"`},
		{`"input":"a","tools":[{"type":"web_search"},{"type":"function","name":"f","strict":true}],` +
			`"tool_choice":{"type":"function","name":"f"},"parallel_tool_calls":true`,
			`user "a"; tool f; choice function f; ignored tools.web_search`},
		{`"input":"a","tools":[{"type":"custom","name":"patch"}],"tool_choice":{"type":"custom","name":"patch"}`,
			`user "a"; tool patch; choice function patch`},
		{`"input":[{"role":"user","content":"a"},` +
			`{"type":"custom_tool_call","call_id":"1","name":"patch","input":"x"},` +
			`{"type":"custom_tool_call_output","call_id":"1","output":[{"type":"input_text","text":"b"}]},` +
			`{"type":"custom_tool_call_output","call_id":"1","name":"patch","output":"c"},` +
			`{"type":"custom_tool_call","call_id":"1","namespace":"n","name":"patch","input":""},` +
			`{"type":"custom_tool_call_output","call_id":"1","output":"d"}]`,
			`user "a", assistant patch(1), tool 1 "b" "c", assistant n__patch(1), tool 1 "d"`},
		{`"input":[{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"f"},` +
			`{"type":"web_search"},{"type":"namespace","name":"n","tools":[{"type":"custom","name":"f"}]}]},` +
			`{"role":"user","content":"a"},{"type":"additional_tools","tools":[{"type":"function","name":"f"},` +
			`{"type":"function","name":"g"}]}],"tool_choice":"auto","parallel_tool_calls":false`,
			`user "a"; tool f; tool n__f; tool g; choice auto ; ignored tools.web_search`},
		{`"input":"a","tools":[{"type":"web_search"}],"tool_choice":"none","parallel_tool_calls":true`,
			`user "a"; ignored tools.web_search`},
		{`"input":"a","tool_choice":"none","store":true`, `user "a"; ignored store`},
		{`"input":"a","tools":[{"type":"function","name":"f"},{"type":"namespace","name":"n","tools":[` +
			`{"type":"custom","name":"f"}]},{"type":"function","name":"g"}],"tool_choice":{"type":"allowed_tools",` +
			`"mode":"required","tools":[{"type":"function","name":"g"},{"type":"custom","name":"f","namespace":"n"}]}`,
			`user "a"; tool n__f; tool g; choice required `},
		{`"input":"a","text":{"format":{"type":"json_schema","name":"n","schema":{},"strict":true},"verbosity":"low"}`,
			`user "a"; format {"type":"json_schema","json_schema":{"name":"n","schema":{},"strict":true}}; ` +
				`ignored text.verbosity`},
		{`"input":"a","text":{"format":{"type":"text"}}`, `user "a"`},
		{`"input":"a","user":"u","safety_identifier":"s","truncation":"auto","seed":1,"include":["x"],"store":false,` +
			`"background":false,"service_tier":"auto","previous_response_id":null`,
			`user "a"; ignored seed truncation user safety_identifier include.x`},
	} {
		c, err := Parse([]byte(`{"model":"m",` + tt.body + `}`))
		if err != nil {
			t.Errorf("%s: %v", tt.body, err)
			continue
		}
		if got := describe(c); got != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.body, got, tt.want)
		}
	}
	c := parseForTest(t,
		`,"reasoning":{"effort":"low"},"include":["reasoning.encrypted_content"],"max_output_tokens":7,`+
			`"temperature":0.5,"top_p":1,"stream":true,"prompt_cache_key":"k"`)
	if r := c.Request(); r.ReasoningEffort != "low" || !r.WantReasoning || r.MaxTokens != 7 || *r.Temperature != 0.5 ||
		*r.TopP != 1 || !r.Stream || !r.IncludeUsage || r.BodyModel != "m" || r.CacheKey != "k" {
		t.Errorf("%+v", r)
	}
}

// describe renders a canonical request in short.
func describe(c *Call) string {
	var messages []string
	r := c.Request()
	for _, m := range r.Turns {
		s, blocks := m.Role, m.Blocks
		if result := m.Result(); result != nil {
			s, blocks = s+" "+result.ID, result.Blocks
		}
		for _, b := range blocks {
			switch b.Kind {
			case conversation.TextBlock:
				s += fmt.Sprintf(" %q", b.Text)
			case conversation.ImageBlock:
				s += strings.TrimRight(fmt.Sprintf(" image %q %s", b.Picture.URL, b.Picture.Detail), " ")
			case conversation.CallBlock:
				s += fmt.Sprintf(" %s(%s)", b.Name, b.ID)
			case conversation.RefusalBlock:
				s += fmt.Sprintf(" refuses %q", b.Text)
			}
		}
		messages = append(messages, s)
	}
	out := strings.Join(messages, ", ")
	for _, tool := range r.Tools {
		out += "; tool " + tool.Name
	}
	if r.ToolChoice.Mode != "" {
		out += "; choice " + r.ToolChoice.Mode + " " + r.ToolChoice.Name
	}
	if r.ResponseFormat != nil {
		out += "; format " + string(r.ResponseFormat)
	}
	if len(r.Ignored) > 0 {
		out += "; ignored " + strings.Join(r.Ignored, " ")
	}
	return out
}

// TestRefusedRequests: what cannot be done is refused by the name that the member has in this shape, and the message
// says what can be done.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	const call = `"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"1","name":"f",` +
		`"arguments":"{}"}`
	for body, want := range map[string]string{
		`"input":"a","store":5`:                       "store: must be true or false",
		`"input":"a","previous_response_id":"resp_1"`: "previous_response_id: nothing is stored here",
		`"input":"a","conversation":"c"`:              "conversation: nothing is stored here",
		`"input":"a","background":true`:               "background: a response comes with its request",
		`"input":"a","prompt":{"id":"p"}`:             "prompt: templates are not offered",
		`"input":"a","max_tool_calls":5`:              "max_tool_calls: ",
		`"input":"a","service_tier":"flex"`:           "service_tier: not offered here",
		`"input":"a","max_tokens":5`:                  "max_tokens: is not a member of this request; send max_output",
		`"input":"a","max_completion_tokens":5`:       "send max_output_tokens",
		`"input":"a","reasoning_effort":"low"`:        "send reasoning.effort",
		`"input":"a","messages":[]`:                   "send input",
		`"input":"a","response_format":{}`:            "send text.format",
		`"input":"a","reasoning":{"effort":"much"}`:   "reasoning.effort: must be one of",
		`"input":"a","reasoning":{"mode":"pro"}`:      "reasoning.mode: only standard is offered",
		`"input":"a","temperature":3`:                 "temperature: must be between 0 and 2",
		`"input":"a","max_output_tokens":0`:           "max_output_tokens: must be at least 1",
		`"input":"a","metadata":[]`:                   "metadata: must be an object",
		`"input":"a","tools":[{"type":"file_search"}]`: `tools[0].type: "file_search" is not offered; declare a ` +
			`function, and run it in the client`,
		`"input":"a","tools":[{"type":"custom","name":"f","format":{"type":"x"}}]`: "tools[0].format.type: must be",
		`"input":"a","tools":[{"type":"custom","name":"f","format":5}]`:            "tools[0].format: must be",
		`"input":[{"type":"additional_tools","tools":[{"type":"custom","name":"!"}]},{"role":"user",` +
			`"content":"a"}]`: "input[0].tools[0].name: required, must",
		`"input":[{"type":"additional_tools","tools":[{"type":"mcp"}]}]`:               `"mcp" is not offered`,
		`"input":"a","tools":[{"type":"web_search"},{"type":"function","name":"a b"}]`: "tools[1].name: required, must",
		`"input":"a","tool_choice":"required"`:                                         "tool_choice: requires tools",
		`"input":"a","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"}`: "" +
			`tool_choice.name: "g" is not among the tools`,
		`"input":"a","tool_choice":{"type":"allowed_tools"}`: "tool_choice: the mode of allowed_tools must be auto",
		`"input":"a","tools":[{"type":"web_search"}]`: "tools: web_search is not offered here; declare a " +
			"function, and run it in the client",
		`"input":"a","tools":[{"type":"web_search"},{"type":"function","name":"f"}],` +
			`"tool_choice":{"type":"web_search"}`: "" +
			"tools: web_search is not offered here; declare a function",
		`"input":"a","tools":[{"type":"function","name":"f"},{"type":"function","name":"g","parameters":5}],` +
			`"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]}`: "" +
			"tools[1].parameters: must be a JSON Schema object",
		`"input":"a","text":{"format":{"type":"x"}}`:           "text.format.type: must be one of",
		`"input":"a","text":{"format":{"type":"json_schema"}}`: "text.format.name: required",
		`"input":[]`:         "input: must have 1 to",
		`"input":5`:          "input: required, a string or an array",
		`"instructions":"a"`: "input: required",
		`"input":[{"type":"item_reference","id":"x"}]`:       "input[0].id: the answer with the item",
		`"input":[{"type":"web_search_call"}]`:               `input[0].type: "web_search_call" is not offered`,
		`"input":[{"role":"robot","content":"a"}]`:           "input[0].role: must be one of user",
		`"input":[{"role":"user"}]`:                          "input[0].content: required",
		`"input":[{"role":"user","content":[{"type":"x"}]}]`: "input[0].content[0].type: must be one of",
		`"input":[{"role":"user","content":[{"type":5}]}]`:   "input[0].content[0].type: must be a string",
		`"input":[{"role":"user","content":5}]`:              "input[0].content: required",
		`"input":[5]`:                                        "input[0]: must be",
		call + `]`:                                           `input: tool call "1" has no tool message`,
		call + `,{"role":"user","content":"b"}]`:             `input[2]: tool call "1" has no tool message`,
		`"input":[{"type":"function_call_output","call_id":"1","output":"x"}]`: `input[0].call_id: "1" answers no ` +
			`open tool call`,
		`"input":[{"type":"function_call_output","output":"x"}]`: "input[0].call_id: required",
		`"input":[{"type":"function_call","call_id":"1"}]`:       "input[0].name: required",
		`"input":[{"type":"function_call","name":"f"}]`:          "input[0].call_id: required",
		`"instructions":"a","input":[{"role":"user","content":[{"type":"input_image","image_url":"ftp://x"}]}]`: "" +
			"input[0].content[0].image_url: ",
		`"input":[{"role":"user","content":[{"type":"input_image","file_id":"x"}]}]`: "" +
			"input[0].content[0].image_url: required; files are not offered",
		`"input":[{"role":"system","content":[{"type":"input_image","image_url":"https://x/y.png"}]}]`: "" +
			"input[0].content[0].type: images stand only in user messages",
	} {
		_, err := Parse([]byte(`{"model":"m",` + body + `}`))
		if err == nil || !strings.HasPrefix(err.Error(), "invalid_request: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
	if _, err := Parse([]byte(`{"input":"a"}`)); err == nil || !strings.Contains(err.Error(), "model: required") {
		t.Error(err)
	}
}

// FuzzParse: whatever comes, it is read or refused, and what is read passes the checks of every shape.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"model":"m","input":"a"}`))
	f.Add([]byte(`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"a"},` +
		`{"type":"input_image","image_url":"https://x/y.png"}]},{"type":"reasoning",` +
		`"encrypted_content":"eyJhIjpbMV19"},` +
		`{"type":"reasoning","encrypted_content":"x"},{"type":"function_call","call_id":"1","name":"f",` +
		`"arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"1","output":[{"type":"input_image",` +
		`"image_url":"https://x/y.png"}]}],"tools":[{"type":"function","name":"f","parameters":{}}],` +
		`"tool_choice":"auto","reasoning":{"summary":"auto"},` +
		`"text":{"format":{"type":"json_schema","name":"n","schema":{}}},"metadata":{"a":"b"}}`))
	f.Add([]byte(`{"model":"m","input":[{"type":"additional_tools","tools":[{"type":"custom","name":"f",` +
		`"format":{"type":"grammar","syntax":"lark","definition":"start: /.+/"}}]},{"role":"user","content":"a"},` +
		`{"type":"custom_tool_call","call_id":"1","name":"f","input":"x"},` +
		`{"type":"custom_tool_call_output","call_id":"1","output":"y"},` +
		`{"type":"custom_tool_call_output","call_id":"1","output":[{"type":"input_image",` +
		`"image_url":"https://x/y.png"}]}],"tool_choice":{"type":"custom","name":"f"}}`))
	f.Add([]byte(`{"model":"m","input":[{"role":"assistant","content":[{"type":"refusal","refusal":"a"}]}],"seed":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a message")
			}
			return
		}
		if err := c.Request().Check(); err != nil {
			t.Fatalf("read, but %v", err)
		}
		var body any
		if err := json.Unmarshal(shapetest.Whole(c, `{"id":"chatcmpl-1","choices":[]}`), &body); err != nil {
			t.Fatalf("%v of %s", err, data)
		}
		if bytes.ContainsAny(c.echo, "\r\n") {
			t.Fatalf("an event would have several lines: %q", c.echo)
		}
	})
}

// FuzzStream: whatever chunks come, the events are JSON in one line each and numbered, and their deltas give the text
// of the chunks.
func FuzzStream(f *testing.F) {
	for _, tt := range translations {
		f.Add([]byte(tt.chunks))
	}
	f.Fuzz(func(t *testing.T, chunks []byte) {
		c := parseForTest(t, `,"reasoning":{"summary":"auto"},"tools":[{"type":"custom","name":"patch"}]`)
		events := string(shapetest.Stream(c, string(chunks), 100))
		var text, done strings.Builder
		for i, event := range strings.Split(strings.TrimSuffix(events, "\n\n"), "\n\n") {
			if events == "" {
				return
			}
			name, data, ok := strings.Cut(strings.TrimPrefix(event, "event: "), "\ndata: ")
			var e struct {
				Type     string
				Sequence int `json:"sequence_number"`
				Delta    string
				Text     string
			}
			if err := json.Unmarshal([]byte(data), &e); !ok || err != nil || e.Type != name || e.Sequence != i {
				t.Fatalf("event %d, %v: %q", i, err, event)
			}
			switch e.Type {
			case "response.output_text.delta":
				text.WriteString(e.Delta)
			case "response.output_text.done":
				done.WriteString(e.Text)
			}
		}
		completed := strings.Contains(events, `"type":"response.completed"`)
		halves := strings.Contains(string(chunks), `\u`) // of a surrogate pair, which deltas may split
		if completed && !halves && done.String() != text.String() {
			t.Fatalf("deltas %q, done %q", text.String(), done.String())
		}
	})
}
