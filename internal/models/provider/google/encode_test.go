package google

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

func said(role, text string) conversation.Turn {
	return conversation.Say(role, text)
}

func called(calls ...conversation.Block) conversation.Turn {
	for i := range calls {
		calls[i].Kind = conversation.CallBlock
	}
	return conversation.Turn{Role: "assistant", Blocks: calls}
}

func result(id, text string) conversation.Turn {
	return conversation.Turn{Role: "tool", Blocks: []conversation.Block{
		{Kind: conversation.ResultBlock, ID: id, Blocks: []conversation.Block{{Text: text}}},
	}}
}

func image(url string) conversation.Block {
	return conversation.Block{Kind: conversation.ImageBlock, Picture: &conversation.Picture{URL: url}}
}

func text(s string) conversation.Block { return conversation.Block{Text: s} }

// member returns a member of the body that Encode writes, "" if it is absent.
func member(t *testing.T, r *provider.Request, name string) string {
	t.Helper()
	b, err := Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return string(all[name])
}

// turns is a readable form of contents: "user: a | b", one content a line.
func turns(t *testing.T, facts string, messages ...conversation.Turn) string {
	t.Helper()
	r := request(false)
	r.Turns, r.Facts.Thinking = messages, facts
	var contents []struct {
		Role  string            `json:"role"`
		Parts []json.RawMessage `json:"parts"`
	}
	if err := json.Unmarshal([]byte(member(t, r, "contents")), &contents); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range contents {
		var parts []string
		for _, p := range c.Parts {
			var text struct {
				Text *string `json:"text"`
			}
			if err := json.Unmarshal(p, &text); err != nil {
				t.Fatal(err)
			}
			if text.Text != nil {
				parts = append(parts, *text.Text)
			} else {
				parts = append(parts, string(p))
			}
		}
		out = append(out, c.Role+": "+strings.Join(parts, " | "))
	}
	return strings.Join(out, "\n")
}

func check(t *testing.T, want, got string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// refused checks that Encode refuses r with this message.
func refused(t *testing.T, r *provider.Request, want string) {
	t.Helper()
	b, err := Encode(r)
	var e *provider.Error
	if !errors.As(err, &e) || b != nil {
		t.Fatalf("%s, %v, want %s", b, err, want)
	}
	if e.Kind != provider.Rejected || e.Message != want || e.Retry || e.Alarm != "" {
		t.Errorf("%+v, want %s", e, want)
	}
}

func refusedMessages(t *testing.T, want string, messages ...conversation.Turn) {
	t.Helper()
	r := request(false)
	r.Turns = messages
	refused(t, r, want)
}

// TestEncodeWhole: every member that can leave, in its order.
func TestEncodeWhole(t *testing.T) {
	t.Parallel()
	half, most, yes := 0.5, 1.0, true
	r := &provider.Request{
		ID:                "req_1",
		Model:             "gemini-3.8-flash",
		MaxTokens:         100,
		Temperature:       &most,
		TopP:              &half,
		Stop:              []string{"END", "\n"},
		Stream:            true,
		ParallelToolCalls: &yes,
		Turns: []conversation.Turn{said("system", "Be brief."), {
			Role:   "user",
			Name:   "ann",
			Blocks: []conversation.Block{text("What is this?"), image("data:image/png;base64,iVBO")},
		}},
		Tools: []provider.Tool{
			{
				Name:        "f",
				Description: "does it",
				Parameters:  json.RawMessage(`{"type":"object","properties":{}}`),
				Strict:      &yes,
			},
			{Name: "g"},
		},
		ToolChoice:      provider.ToolChoice{Mode: "function", Name: "g"},
		ReasoningEffort: "low",
		ResponseFormat:  json.RawMessage(`{"type":"json_object"}`),
		Facts:           provider.ModelFacts{Thinking: "level"},
	}
	b, err := Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	check(t, `{"systemInstruction":{"parts":[{"text":"Be brief."}]},"contents":[{"role":"user","parts":[{"text":"What is this?"},{"inlineData":{"mimeType":"image/png","data":"iVBO"}}]}],`+
		`"tools":[{"functionDeclarations":[{"name":"f","description":"does it","parametersJsonSchema":{"type":"object","properties":{}}},{"name":"g"}]}],`+
		`"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["g"]}},`+
		`"generationConfig":{"maxOutputTokens":100,"temperature":1,"topP":0.5,"stopSequences":["END","\n"],"thinkingConfig":{"thinkingLevel":"LOW"},"responseMimeType":"application/json"}}`, string(b))
}

// TestEdge15ToolResults: each answers a call of the turn before it, once.
func TestEdge15ToolResults(t *testing.T) {
	t.Parallel()
	f := conversation.Block{ID: "a", Name: "f", Arguments: "{}"}
	g := conversation.Block{ID: "b", Name: "g", Arguments: "{}"}
	refusedMessages(t, `messages[2].tool_call_id: "x" answers no open tool call of the assistant message before it`,
		said("user", "hi"), called(f), result("x", ""))
	refusedMessages(t, `messages[3].tool_call_id: "a" answers no open tool call of the assistant message before it`,
		said("user", "hi"), called(f), result("a", ""), result("a", ""))
	refusedMessages(t, `messages[0].tool_call_id: "a" answers no open tool call of the assistant message before it`,
		result("a", ""))
	refusedMessages(t, `messages: tool call "b" has no tool message`, said("user", "hi"), called(f, g), result("a", ""))
	refusedMessages(t, `messages[1].tool_calls[0].id: "a" has no tool message`, said("user", "hi"), called(f, g))
	refusedMessages(t, `messages[0].tool_calls[0].id: "a" has no tool message`, called(f), said("user", "hi"))
}

// TestEdge14And16ResultsStandAlone: in the order of the calls, one content, and
// what the user says or shows next is another.
func TestEdge14And16ResultsStandAlone(t *testing.T) {
	t.Parallel()
	messages := []conversation.Turn{
		said("user", "go"),
		called(conversation.Block{
			ID:        "call_1",
			Name:      "f",
			Arguments: `{"n":1}`,
		}, conversation.Block{ID: "call_2", Name: "g"}),
		result("call_2", "two"), result("call_1", "one"),
		{
			Role:   "user",
			Blocks: []conversation.Block{image("data:image/webp;base64,UklG"), text("and this?")},
		},
	}
	check(t, `user: go
model: {"functionCall":{"name":"f","args":{"n":1}},"thoughtSignature":"skip_thought_signature_validator"} | {"functionCall":{"name":"g","args":{}}}
user: {"functionResponse":{"name":"f","response":{"output":"one"}}} | {"functionResponse":{"name":"g","response":{"output":"two"}}}
user: {"inlineData":{"mimeType":"image/webp","data":"UklG"}} | and this?`, turns(t, "level", messages...))
}

// TestEdge17SystemTurns: several, one in mid-conversation, nothing else.
func TestEdge17SystemMessages(t *testing.T) {
	t.Parallel()
	r := request(false)
	r.Turns = []conversation.Turn{
		said("system", "One."), {
			Role:   "developer",
			Blocks: []conversation.Block{text("Two."), text(""), text("Three.")},
		}, said("system", ""),
		said("user", "hi"), said("assistant", "hello"), said("system", "Now in verse."),
	}
	check(t, `{"parts":[{"text":"One."},{"text":"Two."},{"text":"Three."}]}`, member(t, r, "systemInstruction"))
	check(t, "user: hi\nmodel: hello\nuser: Now in verse.", turns(t, "level", r.Turns...))
	check(t, "user: Begin.", turns(t, "level", said("system", "Greet me.")))
	r.Turns = []conversation.Turn{said("system", ""), said("user", "hi")}
	check(t, "", member(t, r, "systemInstruction"))
}

// TestEdge18Turns: same roles share a content, the user comes first.
func TestEdge18Turns(t *testing.T) {
	t.Parallel()
	check(t, "user: a | b\nmodel: c | d\nuser: e",
		turns(t, "level", said("user", "a"), said("user", "b"), said("assistant", "c"), said("assistant", "d"),
			said("user", "e")))
	check(t, "user: Begin.\nmodel: Welcome!\nuser: hi",
		turns(t, "level", said("assistant", "Welcome!"), said("user", "hi")))
	check(t, "user: hi\nmodel: once upon", turns(t, "level", said("user", "hi"), said("assistant", "once upon")))
	check(t, "user:  ", turns(t, "level", said("user", "")))
	check(t, "user: a |  ",
		turns(t, "level", said("user", "a"), said("assistant", ""), conversation.Turn{
			Role:   "user",
			Blocks: []conversation.Block{text("")},
		}))
	check(t, "user: a\nmodel: I won't.",
		turns(t, "level", said("user", "a"), conversation.Turn{Role: "assistant", Blocks: []conversation.Block{
			{Kind: conversation.RefusalBlock, Text: "I won't."},
		}}))
}

// TestEdge13NoEmptyText beside calls.
func TestEdge13NoEmptyText(t *testing.T) {
	t.Parallel()
	m := called(conversation.Block{ID: "call_1", Name: "f"})
	m.Blocks = append([]conversation.Block{text("")}, m.Blocks...)
	check(t, "user: go\n"+`model: {"functionCall":{"name":"f","args":{}}}`+"\n"+
		`user: {"functionResponse":{"name":"f","response":{"output":""}}}`,
		turns(t, "budget", said("user", "go"), m, result("call_1", "")))
}

// TestEdge19And20ForeignHistory: what another provider left is not sent.
func TestEdge19And20ForeignHistory(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"call_0123456789abcdefghijklmn", "toolu_01A", "fc_1", "srvtoolu_1", "chatcmpl-tool-1"} {
		for _, extra := range []string{``, `null`, `{}`, `[]`, `"x"`,
			`{"anthropic":{"thinking":[{"signature":"c2ln"}]}}`, `{"google":null}`,
			`{"google":{"thought_signature":null}}`, `{"google":{"thought_signature":""}}`} {
			got := turns(t, "level", said("user", "go"),
				called(conversation.Block{ID: id, Name: "f", Arguments: "{}", Extra: json.RawMessage(extra)}),
				result(id, "ok"))
			check(t, "user: go\n"+
				`model: {"functionCall":{"name":"f","args":{}},"thoughtSignature":"skip_thought_signature_validator"}`+
				"\n"+`user: {"functionResponse":{"name":"f","response":{"output":"ok"}}}`, got)
		}
	}
}

// TestEdge21Arguments: what is no object goes as a member of one.
func TestEdge21Arguments(t *testing.T) {
	t.Parallel()
	answer := func(id string) string {
		return `{"functionResponse":{"name":"f","id":"` + id + `","response":{"output":""}}}`
	}
	check(t, "user: go\n"+
		`model: {"functionCall":{"name":"f","args":{},"id":"a"},"thoughtSignature":"`+placeholder+`"} | `+
		`{"functionCall":{"name":"f","args":{"invalid_json":"{\"city\":\"Ro"},"id":"b"}}`+"\n"+
		"user: "+answer("a")+" | "+answer("b"),
		turns(t, "level", said("user", "go"), called(conversation.Block{ID: "a", Name: "f", Arguments: " "},
			conversation.Block{ID: "b", Name: "f", Arguments: `{"city":"Ro`}), result("a", ""), result("b", "")))
}

// TestFailedTool: a result that reports an error says so.
func TestFailedTool(t *testing.T) {
	t.Parallel()
	m := result("x9", "no")
	m.Blocks[0].Failed = true
	got := turns(t, "budget", said("user", "go"), called(conversation.Block{ID: "x9", Name: "f"}), m)
	if want := `"response":{"error":"no"}`; !strings.Contains(got, want) {
		t.Errorf("%s lacks %s", got, want)
	}
}

// TestEdge22ToolResultContent: parts joined, empty, JSON: always the same shape.
func TestEdge22ToolResultContent(t *testing.T) {
	t.Parallel()
	for want, blocks := range map[string][]conversation.Block{
		`one two`:        {text("one "), text(""), text("two")},
		``:               nil,
		`{"error":"no"}`: {text(`{"error":"no"}`)},
	} {
		m := result("x9", "")
		m.Blocks[0].Blocks = blocks
		got := turns(t, "budget", said("user", "go"), called(conversation.Block{ID: "x9", Name: "f"}), m)
		quoted, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		check(t, "user: go\n"+`model: {"functionCall":{"name":"f","args":{},"id":"x9"}}`+"\n"+
			`user: {"functionResponse":{"name":"f","id":"x9","response":{"output":`+string(quoted)+`}}}`, got)
	}
}

// TestEdge23Names: each of our names becomes one that Gemini takes, and comes
// back as it was.
func TestEdge23Names(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 64)
	r := request(false)
	want := map[string]string{
		"get":  "get",
		"_get": "_get",
		"2nd":  "_2nd",
		"_2nd": "__2nd",
		"-x":   "_-x",
		"__-x": "___-x",
		"_":    "_",
		long:   "_" + long,
	}
	seen := map[string]bool{}
	for ours, theirs := range want {
		r.Tools = []provider.Tool{{Name: ours}}
		r.ToolChoice = provider.ToolChoice{Mode: "function", Name: ours}
		check(t, `[{"functionDeclarations":[{"name":"`+theirs+`"}]}]`, member(t, r, "tools"))
		check(t, `{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["`+theirs+`"]}}`,
			member(t, r, "toolConfig"))
		if back := ourName(theirs); back != ours || seen[theirs] {
			t.Errorf("%s became %s, which became %s", ours, theirs, back)
		}
		seen[theirs] = true
	}
	r.Tools, r.ToolChoice = nil, provider.ToolChoice{}
	for i := range 128 {
		r.Tools = append(r.Tools, provider.Tool{Name: fmt.Sprintf("%064d", i)})
	}
	if got := member(t, r, "tools"); strings.Count(got, `"name"`) != 128 ||
		strings.Count(got, "functionDeclarations") != 1 {
		t.Errorf("%s", got)
	}
}

// TestEdge24Signatures: what came goes back on its call; only the first call of
// a step gets the placeholder, and none for Gemini 2.5.
func TestEdge24Signatures(t *testing.T) {
	t.Parallel()
	signed := func(signature string) json.RawMessage {
		return json.RawMessage(`{"other":1,"google":{"thought_signature":` + signature + `,"new":[]}}`)
	}
	history := func(first, second json.RawMessage) []conversation.Turn {
		return []conversation.Turn{
			said("user", "go"),
			called(conversation.Block{ID: "x1", Name: "f", Extra: first}, conversation.Block{
				ID:    "x2",
				Name:  "f",
				Extra: second,
			}),
			result("x1", "a"), result("x2", "b"), called(conversation.Block{ID: "x3", Name: "f"}), result("x3", "c"),
		}
	}
	for _, c := range []struct {
		facts               string
		first, second       json.RawMessage
		want1, want2, want3 string
	}{
		{"level", signed(`"c2ln+/8="`), nil, "c2ln+/8=", "", placeholder},
		{"level", nil, nil, placeholder, "", placeholder},
		{"level", nil, signed(`"c2ln"`), placeholder, "c2ln", placeholder},
		{"level", signed(`"YQ=="`), signed(`"Yg\/_-"`), "YQ==", "Yg/_-", placeholder},
		{"budget", signed(`"c2ln"`), nil, "c2ln", "", ""},
	} {
		got := turns(t, c.facts, history(c.first, c.second)...)
		call := func(id, signature string) string {
			if signature != "" {
				signature = `,"thoughtSignature":"` + signature + `"`
			}
			return `{"functionCall":{"name":"f","args":{},"id":"` + id + `"}` + signature + `}`
		}
		answer := func(id, text string) string {
			return `{"functionResponse":{"name":"f","id":"` + id + `","response":{"output":"` + text + `"}}}`
		}
		check(t, "user: go\nmodel: "+call("x1", c.want1)+" | "+call("x2", c.want2)+"\nuser: "+answer("x1", "a")+" | "+
			answer("x2", "b")+
			"\nmodel: "+call("x3", c.want3)+"\nuser: "+answer("x3", "c"), got)
	}
	for _, odd := range []string{`1`, `"not base64!"`, `"\u0063"`, `{}`} {
		refusedMessages(t,
			"messages[1].tool_calls[0].extra_content.google.thought_signature: must be the string that came with the call", history(signed(odd), nil)...)
	}
}

// TestEdge24RoundTrip: what the stream gave, sent back unchanged, is what came.
func TestEdge24RoundTrip(t *testing.T) {
	t.Parallel()
	m := conversation.Turn{Role: "assistant"}
	messages := []conversation.Turn{said("user", "go")}
	for _, c := range toolCalls(t, relayFixture(t, "parallel_calls").frames) {
		m.Blocks = append(m.Blocks, conversation.Block{
			Kind:      conversation.CallBlock,
			ID:        c.ID,
			Name:      c.Function.Name,
			Arguments: c.Function.Arguments,
			Extra:     c.ExtraContent,
		})
		messages = append(messages, result(c.ID, "ok"))
	}
	messages = append(messages[:1], append([]conversation.Turn{m}, messages[1:]...)...)
	check(t, `user: go
model: {"functionCall":{"name":"get_weather","args":{"city":"Rome"}},"thoughtSignature":"Zmlyc3Q="} | {"functionCall":{"name":"get_weather","args":{"city":"Oslo"}}} | {"functionCall":{"name":"_2nd-tool","args":{},"id":"fx81k2"}}
user: {"functionResponse":{"name":"get_weather","response":{"output":"ok"}}} | {"functionResponse":{"name":"get_weather","response":{"output":"ok"}}} | {"functionResponse":{"name":"_2nd-tool","id":"fx81k2","response":{"output":"ok"}}}`,
		turns(t, "level", messages...))
}

// TestEdge30And31Config: temperature is free, and tools can be forced.
func TestEdge30And31Config(t *testing.T) {
	t.Parallel()
	r := request(false)
	zero := 0.0
	r.Temperature = &zero
	check(t, `{"maxOutputTokens":100,"temperature":0}`, member(t, r, "generationConfig"))
	for mode, want := range map[string]string{"": "", "auto": "AUTO", "none": "NONE", "required": "ANY"} {
		r.Tools, r.ToolChoice.Mode = []provider.Tool{{Name: "f"}}, mode
		if want != "" {
			want = `{"functionCallingConfig":{"mode":"` + want + `"}}`
		}
		check(t, want, member(t, r, "toolConfig"))
	}
}

// TestEdge32And33Schemas: as they stand, but for $schema; the arguments are an object.
func TestEdge32And33Schemas(t *testing.T) {
	t.Parallel()
	hard := `"type":"object","additionalProperties":false,"$defs":{"d":{"$schema":"x"}},"properties":{"a":{"exclusiveMinimum":0,"const":1.50},"b":{"$ref":"#/$defs/d"},"c":{"type":["string","null"]},"d":{"enum":[1,2]}},"propertyNames":{"pattern":"^a"}}`
	r := request(false)
	for parameters, want := range map[string]string{
		`{"$schema":"https://json-schema.org/draft/2020-12/schema", ` + hard: `{` + hard,
		`{"properties":{"a":{}},"\u0024schema":1}`:                           `{"type":"object","properties":{"a":{}}}`,
		`{}`:                                    `{"type":"object"}`,
		`{"anyOf":[{"type":"object"}]}`:         `{"anyOf":[{"type":"object"}]}`,
		`{"$ref":"#/$defs/a","$defs":{"a":{}}}`: `{"$ref":"#/$defs/a","$defs":{"a":{}}}`,
	} {
		r.Tools = []provider.Tool{{Name: "f", Parameters: json.RawMessage(parameters)}}
		check(t, `[{"functionDeclarations":[{"name":"f","parametersJsonSchema":`+want+`}]}]`, member(t, r, "tools"))
	}
	r.Tools = []provider.Tool{{Name: "f"}, {Name: "g", Parameters: json.RawMessage(`[]`)}}
	refused(t, r, "tools[1].function.parameters: must be a JSON Schema object")
}

func TestResponseFormat(t *testing.T) {
	t.Parallel()
	r := request(false)
	for format, want := range map[string]string{
		`{"type":"text"}`: ``,
		`{"type":"json_object","json_schema":{"schema":{}}}`: `,"responseMimeType":"application/json"`,
		`{"type":"json_schema","json_schema":{"name":"n"}}`:  `,"responseMimeType":"application/json"`,
		`{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"$schema":"x","type":"array","items":{"type":"string"}}}}`: `,"responseMimeType":"application/json","responseJsonSchema":{"type":"array","items":{"type":"string"}}`,
	} {
		r.ResponseFormat = json.RawMessage(format)
		check(t, `{"maxOutputTokens":100`+want+`}`, member(t, r, "generationConfig"))
	}
	for format, want := range map[string]string{
		`{"type":"grammar"}`: "response_format.type: must be one of text, json_object, json_schema",
		`[]`:                 "response_format.type: must be one of text, json_object, json_schema",
		`{"type":"json_schema","json_schema":{"schema":[]}}`: "response_format.json_schema.schema: must be a JSON Schema object",
	} {
		r.ResponseFormat = json.RawMessage(format)
		refused(t, r, want)
	}
}

func TestReasoningEffort(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"level", "minimal", `"thinkingLevel":"MINIMAL"`}, {"level", "low", `"thinkingLevel":"LOW"`},
		{"level", "medium", `"thinkingLevel":"MEDIUM"`}, {"level", "high", `"thinkingLevel":"HIGH"`},
		{"level", "max", `"thinkingLevel":"HIGH"`},
		{"budget", "none", `"thinkingBudget":0`}, {"budget", "minimal", `"thinkingBudget":1024`},
		{"budget", "medium", `"thinkingBudget":8192`}, {"budget", "xhigh", `"thinkingBudget":24576`},
		{"level", "", ""}, {"budget", "", ""}, {"", "none", ""},
	} {
		r := request(false)
		r.Facts.Thinking, r.ReasoningEffort = c[0], c[1]
		want := `{"maxOutputTokens":100}`
		if c[2] != "" {
			want = `{"maxOutputTokens":100,"thinkingConfig":{` + c[2] + `}}`
		}
		check(t, want, member(t, r, "generationConfig"))
	}
	r := request(false)
	r.ReasoningEffort = "none"
	refused(t, r, "reasoning_effort: gemini-3.8-flash always thinks; the least is minimal or low")
	r.ReasoningEffort, r.Facts.Thinking = "high", ""
	refused(t, r, `reasoning_effort: gemini-3.8-flash does not take "high"`)
}

// TestEdge44Images: what Gemini does not take is refused before it costs a hold.
func TestEdge44Images(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"data:image/gif;base64,R0lG":      "gemini-3.8-flash takes no GIF; send PNG, JPEG or WEBP",
		"data:image/svg+xml;base64,PHN2":  `gemini-3.8-flash takes no "image/svg+xml"; send PNG, JPEG or WEBP`,
		"https://pictures.test/a.png":     "must be a data: URL in base64 here",
		"data:image/png,raw":              "must be a data: URL in base64 here",
		"data:image/png;base64\",\"x\":1": "must be a data: URL in base64 here",
	} {
		refusedMessages(t, "messages[1].content[1].image_url.url: "+want, said("system", "s"), conversation.Turn{
			Role:   "user",
			Blocks: []conversation.Block{text("a"), image(url)},
		})
	}
	big := conversation.Turn{Role: "user"}
	for range 3 {
		big.Blocks = append(big.Blocks, image("data:image/jpeg;base64,"+strings.Repeat("/9j/", maxRequest/12)))
	}
	refusedMessages(t, "messages: gemini-3.8-flash takes at most 20 MB in one request, images in base64 included", big)
}
