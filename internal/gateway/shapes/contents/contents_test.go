package contents

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/conversation"
)

// onePixel is a PNG of one pixel.
const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

const user = `"contents":[{"role":"user","parts":[{"text":"a"}]}]`

// describe writes a canonical request in lines.
func describe(p *plan.Request) (lines []string) {
	for _, m := range p.Turns {
		line, blocks := m.Role, m.Blocks
		if r := m.Result(); r != nil {
			line += "(" + r.ID + ")"
			if r.Failed {
				line += " failed"
			}
			blocks = r.Blocks
		}
		for _, b := range blocks {
			switch b.Kind {
			case conversation.TextBlock:
				line += " " + b.Text + b.Phase
			case conversation.ImageBlock:
				line += fmt.Sprintf(" [%.22s]", b.Picture.URL)
			case conversation.ReasoningBlock:
				line += " " + string(b.Extra)
			case conversation.CallBlock:
				line += fmt.Sprintf(" %s=%s(%s)%s", b.ID, b.Name, b.Arguments, b.Extra)
			}
		}
		lines = append(lines, line)
	}
	for _, t := range p.Tools {
		lines = append(lines, fmt.Sprintf("tool %s %q %s", t.Name, t.Description, t.Parameters))
	}
	if p.ToolChoice.Mode != "" {
		lines = append(lines, fmt.Sprintf("choice %s %s", p.ToolChoice.Mode, p.ToolChoice.Name))
	}
	if p.ReasoningEffort != "" || p.Thinking != "" || p.WantReasoning {
		lines = append(lines, fmt.Sprintf("effort %q thinking %q reasoning %t summary %t", p.ReasoningEffort,
			p.Thinking, p.WantReasoning, p.WantSummary))
	}
	if p.ResponseFormat != nil {
		lines = append(lines, "format "+string(p.ResponseFormat))
	}
	if len(p.Ignored) > 0 {
		lines = append(lines, "ignored "+strings.Join(p.Ignored, ","))
	}
	return lines
}

// TestParse reads bodies as clients send them.
func TestParse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"a text": {`{` + user + `}`, []string{"user a"}},
		"a response that comes twice, as gemini-cli sends it": {`{"contents":[{"parts":[{"text":"a"}]},` +
			`{"role":"model","parts":[{"functionCall":{"id":"x","name":"f"}}]},{"parts":[` +
			strings.Repeat(`,{"functionResponse":{"id":"x","name":"f","response":{"output":"1"}}}`, 2)[1:] + `]}]}`,
			[]string{"user a", "assistant x=f({})", "tool(x) 1", "ignored contents.parts.functionResponse"}},
		"without brackets, in snake_case": {`{"contents":{"parts":{"text":"a"}},"system_instruction":{"parts":` +
			`{"text":"s"}},"generation_config":{"thinking_config":{"thinking_budget":0}}}`,
			[]string{"system s", "user a", `effort "none" thinking "off" reasoning false summary false`}},
		"images": {`{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"` + onePixel + `"}},` +
			`{"fileData":{"fileUri":"https://example.com/a.png"}},{"text":"b"}]}]}`,
			[]string{"user [data:image/png;base64,] [https://example.com/a.] b"}},
		"a loop of tools": {`{"contents":[{"parts":[{"text":"a"}]},` +
			`{"role":"model","parts":[{"text":"I "}]},{"role":"model","parts":[{"text":"call."},` +
			`{"functionCall":{"name":"f","args":{"x":1}}},{"functionCall":{"id":"g1","name":"f"}}]},` +
			`{"role":"function","parts":[{"functionResponse":{"name":"f","response":{"output":"yes"}}},` +
			`{"functionResponse":{"id":"g1","name":"f","response":{"error":{"code":5}}}},{"text":"go on"}]},` +
			`{"role":"model","parts":[{"functionCall":{"name":"f"}}]},` +
			`{"role":"user","parts":[{"functionResponse":{"name":"f","response":{ "a" : 1,"b":2}}}]}]}`,
			[]string{
				"user a", `assistant I call. call_1=f({"x":1}) g1=f({})`, "tool(call_1) yes",
				`tool(g1) failed {"code":5}`,
				"user go on", "assistant call_3=f({})", `tool(call_3) {"a":1,"b":2}`,
			}},
		"an image of a tool follows its result": {`{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[` +
			`{"functionCall":{"name":"f"}}]},{"parts":[{"text":"b"},{"functionResponse":{"name":"f","parts":[` +
			`{"inlineData":{"mimeType":"image/png","data":"` + onePixel + `"}}]}}]}]}`,
			[]string{"user a", "assistant call_1=f({})", "tool(call_1) ", "user [data:image/png;base64,] b"}},
		"what a model of Google has signed": {`{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[` +
			`{"text":"Hm.","thought":true},{"text":"b","thoughtSignature":"c2ln"},{"functionCall":{"name":"f"},` +
			`"thoughtSignature":"c2lo"}]},{"parts":[{"functionResponse":{"name":"f"}}]}]}`,
			[]string{
				"user a", `assistant b {"google":{"thought_signature":"c2ln"}} ` +
					`call_1=f({}){"google":{"thought_signature":"c2lo"}}`, "tool(call_1) ",
			}},
		"an id to a call without one": {`{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[` +
			`{"functionCall":{"name":"f"}},{"functionCall":{"id":"x","name":"f"}}]},{"parts":[` +
			`{"functionResponse":{"id":"x","name":"f","response":{"output":"2"}}},` +
			`{"functionResponse":{"id":"y","name":"f","response":{"output":"1"}}}]}]}`,
			[]string{"user a", "assistant call_1=f({}) x=f({})", "tool(x) 2", "tool(call_1) 1"}},
		"marks of ours, in either Base64": {`{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[` +
			`{"text":"b","thoughtSignature":"eyJ0aG91Z2h0cyI6W3siYSI6Mn1dLCJwaGFzZSI6ImNvbW1lbnRhcnkifQ=="},` +
			`{"text":"c","thoughtSignature":"eyJjYWxsIjp7ImIiOjF9fQ"},{"text":"d"}]},{"parts":[{"text":"e"}]}]}`,
			[]string{"user a", `assistant {"a":2} bcommentary c {"b":1} d`, "user e"}},
		"nullable schemas": {`{` + user + `,"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":` +
			`"OBJECT",` +
			`"properties":{"a":{"type":"STRING","enum":["x"],"nullable":true},"b":{"anyOf":[{"type":"STRING"}],` +
			`"nullable":true}}}}]}]}`,
			[]string{"user a", `tool f "" {"properties":{"a":{"anyOf":[{"enum":["x"],"type":"string"},{"type":` +
				`"null"}]},` +
				`"b":{"anyOf":[{"anyOf":[{"type":"string"}]},{"type":"null"}]}},"type":"object"}`}},
		"an empty turn of the model": {`{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[]},` +
			`{"parts":[{"text":"b"}]}]}`, []string{"user a", "user b"}},
		"functions": {`{` + user + `,"tools":[{"functionDeclarations":[{"name":"f","description":"d","parameters":` +
			`{"type":"OBJECT","properties":{"a":{"type":"STRING","nullable":true,"maxLength":"5"},"b":{` +
			`"type":"ARRAY","items":{"anyOf":[{"type":"NUMBER"},{"type":"BOOLEAN"}]},"min_items":1,"example":[1]}},` +
			`"propertyOrdering":["a","b"],"required":["a"]},"behavior":"BLOCKING"},` +
			`{"name":"g","parametersJsonSchema":{"type":"object"}}]},{"googleSearch":{}}],` +
			`"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["g"]}}}`,
			[]string{
				"user a",
				`tool f "d" {"properties":{"a":{"maxLength":5,"type":["string","null"]},"b":{"items":{"anyOf":` +
					`[{"type":"number"},{"type":"boolean"}]},"minItems":1,"type":"array"}},"required":["a"],` +
					`"type":"object"}`,
				`tool g "" {"type":"object"}`, "choice function g",
				"ignored tools.functionDeclarations.behavior,tools.googleSearch",
			}},
		"some functions": {`{` + user + `,"tools":[{"functionDeclarations":[{"name":"f"},{"name":"g"},{"name":"h"}]` +
			`}],"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f","h"]}}}`,
			[]string{
				"user a", `tool f "" `, `tool h "" `, "choice required ",
			}},
		"a level": {`{` + user + `,"generationConfig":{"thinkingConfig":{"thinkingLevel":"HIGH"}}}`,
			[]string{"user a", `effort "high" thinking "" reasoning false summary false`}},
		"thoughts": {`{` + user + `,"generationConfig":{"thinkingConfig":{"includeThoughts":true,` +
			`"thinkingBudget":5000}}}`,
			[]string{"user a", `effort "medium" thinking "on" reasoning true summary true`}},
		"any JSON": {`{` + user + `,"generationConfig":{"responseMimeType":"application/json"}}`,
			[]string{"user a", `format {"type":"json_object"}`}},
		"a schema": {`{` + user + `,"generationConfig":{"responseMimeType":"application/json","responseSchema":` +
			`{"type":"STRING"}}}`,
			[]string{"user a", `format {"type":"json_schema","json_schema":{"name":"response","schema":` +
				`{"type":"string"},"strict":true}}`}},
		"what is dropped": {`{` + user + `,"safetySettings":[{}],"labels":{"a":"b"},"store":true,` +
			`"generationConfig":{"topK":4,` +
			`"seed":1,"thinkingConfig":{"x":1}},"contents":[{"parts":[{"text":"a","videoMetadata":{"fps":1}},{` +
			`"text":"b",` +
			`"videoMetadata":{}}]}]}`, nil},
	} {
		call, err := Parse([]byte(c.body), "m", true)
		if name == "what is dropped" { // a member twice
			if err == nil {
				t.Errorf("%s: taken", name)
			}
			call, err = Parse([]byte(strings.Replace(c.body, user+",", "", 1)), "m", true)
			c.want = []string{"user a b", "ignored store,safetySettings,labels,generationConfig.topK," +
				"generationConfig.seed,generationConfig.thinkingConfig.x,contents.parts.videoMetadata"}
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := call.Request()
		if r.BodyModel != "m" || !r.Stream || !r.IncludeUsage {
			t.Errorf("%s: %+v", name, r)
		}
		if diff := cmp.Diff(c.want, describe(r)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	config := func(c string) string { return `{` + user + `,"generationConfig":{` + c + `}}` }
	parts := func(p string) string { return `{"contents":[{"parts":[` + p + `]}]}` }
	after := func(turn string) string {
		return `{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"name":"f"}}]},` +
			turn + `]}`
	}
	for _, c := range []struct{ body, want string }{
		{`[]`, "body: must be a JSON object"},
		{`{}`, "contents: required"},
		{`{"contents":[{"role":"system","parts":[{"text":"a"}]}]}`,
			"contents[0].role: must be"},
		{`{"contents":[{"role":"user"}]}`,
			"contents[0].parts: required"},
		{parts(`{}`),
			"contents[0].parts[0]: must have one of text,"},
		{parts(`{"text":"a"},{"text":5}`),
			"contents[0].parts[1].text: must be a string"},
		{parts(`{"inlineData":{"mimeType":"audio/wav","data":""}}`),
			"contents[0].parts[0].inlineData.mimeType: only images"},
		{parts(`{"inlineData":{"mimeType":"image/png","data":"?"}}`),
			"contents[0].parts[0].inlineData.data: "},
		{parts(`{"fileData":{"mimeType":"image/png","fileUri":"gs://b/a.png"}}`),
			"contents[0].parts[0].fileData.fileUri: Google's files"},
		{parts(`{"fileData":{"fileUri":"ftp://example.com/a"}}`),
			"contents[0].parts[0].fileData.fileUri: "},
		{parts(`{"executableCode":{"code":"1"}}`),
			"contents[0].parts[0].executableCode: a tool of Google's"},
		{parts(`{"functionCall":{"name":"f"}}`),
			"contents[0].parts[0].functionCall: stands only in"},
		{parts(`{"functionResponse":{"name":"f"}}`),
			`contents[0].parts[0].functionResponse: "f" answers no`},
		{after(`{"parts":[{"text":"b"}]}`),
			"contents[2]: the call of f has no functionResponse"},
		{after(`{"parts":[{"functionResponse":{"id":"x","name":"g"}}]}`),
			`contents[2].parts[0].functionResponse: "x" answers`},
		{after(`{"parts":[{"functionResponse":{"name":"f"}},{"functionResponse":{"name":"f"}}]}`),
			`contents[2].parts[1].functionResponse: "f" answers`},
		{`{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"id":"x","name":"f"}}]},` +
			`{"parts":[{"functionResponse":{"id":"x","name":"f","response":{"output":"1"}}},` +
			`{"functionResponse":{"id":"x","name":"f","response":{"output":"2"}}}]}]}`,
			`contents[2].parts[1].functionResponse: "x" answers`},
		{`{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"text":"b","thoughtSignature":"eyJ4"}]}]}`,
			"contents[1].parts[0].thoughtSignature: must be sent back as it came"},
		{`{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":5}}]}]}`,
			"contents[1].parts[0].functionCall.args: must be an object"},
		{`{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"name":"f"}}]}]}`,
			"contents: the call of f has no functionResponse"},
		{`{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"name":"f"}},{` +
			`"functionCall":` +
			`{"name":"g"}}]},{"parts":[{"functionResponse":{"name":"g"}}]}]}`,
			"contents[2]: the call of f has no functionResponse"},
		{`{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"text":"b","thoughtSignature":"` +
			base64.StdEncoding.EncodeToString([]byte(`{"thoughts":[{}`+strings.Repeat(",{}", 1<<15)+`]}`)) + `"}]}]}`,
			"contents: too many parts"},
		{config(`"responseMimeType":"application/json","responseSchema":{"minItems":1,"min_items":2}`),
			"generationConfig.responseSchema: must be a schema"},
		{`{` + user + `,"systemInstruction":{"parts":[{"inlineData":{}}]}}`,
			"systemInstruction.parts[0].text: required"},
		{`{` + user + `,"cachedContent":"cachedContents/1"}`,
			"cachedContent: caches are not kept here"},
		{`{` + user + `,"serviceTier":"flex"}`,
			"serviceTier: not offered here"},
		{`{` + user + `,"maxOutputTokens":5}`,
			"maxOutputTokens: is not a member of this request; send generationConfig."},
		{config(`"maxTokens":5`),
			"generationConfig.maxTokens: is not a member"},
		{config(`"maxOutputTokens":0`),
			"generationConfig.maxOutputTokens: must be at least 1"},
		{config(`"candidateCount":2`),
			"generationConfig.candidateCount: must be 1"},
		{config(`"temperature":3`),
			"generationConfig.temperature: must be"},
		{config(`"responseModalities":["IMAGE"]`),
			"generationConfig.responseModalities: only TEXT"},
		{config(`"speechConfig":{}`),
			"generationConfig.speechConfig: only text"},
		{config(`"responseSchema":{"type":"STRING"}`),
			"generationConfig.responseMimeType: must be application/json"},
		{config(`"responseMimeType":"application/json","responseSchema":{"minItems":"x"}`),
			"generationConfig.responseSchema: must be a schema"},
		{config(`"stopSequences":["a","b","c","d","e"]`),
			"generationConfig.stopSequences: at most 4"},
		{config(`"thinkingConfig":{"thinkingLevel":"EXTREME"}`),
			"generationConfig.thinkingConfig.thinkingLevel: must be"},
		{config(`"thinkingConfig":{"thinkingBudget":-2}`),
			"generationConfig.thinkingConfig.thinkingBudget: must be"},
		{`{` + user + `,"tools":[{"codeExecution":{}}]}`,
			"tools[0].codeExecution: a tool of Google's own"},
		{`{` + user + `,"tools":[{"googleSearch":{}}]}`,
			"tools: googleSearch is not offered here"},
		{`{` + user + `,"tools":[{"functionDeclarations":[{"name":"é"}]}]}`,
			"tools[0].functionDeclarations[0].name: required"},
		{`{` + user + `,"tools":[{"functionDeclarations":[{"name":"f","parameters":5}]}]}`,
			"tools[0].functionDeclarations[0].parameters: must be"},
		{`{` + user + `,"tools":[{"functionDeclarations":[{"name":"f"}]},{"functionDeclarations":[{"name":"f"}]}]}`,
			"tools[1].functionDeclarations[0].name: \"f\" stands twice"},
		{`{` + user + `,"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}}`,
			"toolConfig.functionCallingConfig.mode: requires tools"},
		{`{` + user + `,"toolConfig":{"functionCallingConfig":{"mode":"SOME"}}}`,
			"toolConfig.functionCallingConfig.mode: must be"},
		{`{` + user + `,"tools":[{"functionDeclarations":[{"name":"f"}]}],"toolConfig":{"functionCallingConfig":{` +
			`"mode":"ANY","allowedFunctionNames":["g"]}}}`,
			`toolConfig.functionCallingConfig.allowedFunctionNames: "g" is not`},
	} {
		_, err := Parse([]byte(c.body), "m", false)
		var e *apierr.Error
		if !errors.As(err, &e) || e.Code != apierr.InvalidRequest || !strings.HasPrefix(e.Message, c.want) {
			t.Errorf("%s:\n%v, want %s", c.body, err, c.want)
		}
	}
	for body, want := range map[string]string{
		`{` + user + `}`: "",
		`{"generateContentRequest":{"model":"models/m",` + user + `}}`: "",
		`{"generateContentRequest":{"model":"models/x",` + user + `}}`: `model: "x" differs from`,
		`{"generateContentRequest":{` + user + `},"tools":[{}]}`:       "generateContentRequest: has the whole",
		`{"generateContentRequest":{` + user + `},"contents":[{"parts":[{}]}]}`: "" +
			"generateContentRequest: has the whole",
		`{"generateContentRequest":{` + user + `,"cachedContent":"cachedContents/1"}}`: "cachedContent: ",
	} {
		if _, err := ParseCount([]byte(body), "m"); (err == nil) != (want == "") ||
			err != nil && !strings.HasPrefix(err.(*apierr.Error).Message, want) {
			t.Errorf("to count %s: %v, want %q", body, err, want)
		}
	}
}

// TestMemberName: what the plan or a provider refuses is named as the client has sent it.
func TestMemberName(t *testing.T) {
	t.Parallel()
	call, err := Parse([]byte(`{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"parts":[{"text":"a"},`+
		`{"fileData":{"fileUri":"https://example.com/a.png"}}]},{"role":"model","parts":[{"text":"b"},`+
		`{"functionCall":{"name":"f"}}]},{"parts":[{"functionResponse":{"name":"f"}},{"text":"c"}]}],`+
		`"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT"}},{"name":"g"}]}],"toolConfig":{`+
		`"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["g"]}},"generationConfig":{"responseMimeType":`+
		`"application/json","responseSchema":{},"thinkingConfig":{"thinkingLevel":"LOW"}}}`), "m", false)
	if err != nil {
		t.Fatal(err)
	}
	for canonical, want := range map[string]string{
		"model":                                "model",
		"stop[1]":                              "generationConfig.stopSequences[1]",
		"max_tokens":                           "generationConfig.maxOutputTokens",
		"reasoning_effort":                     "generationConfig.thinkingConfig.thinkingLevel",
		"response_format.json_schema.schema":   "generationConfig.responseSchema",
		"tools[1].function.parameters":         "tools[0].functionDeclarations[1].parametersJsonSchema",
		"tools[0].function.parameters":         "tools[0].functionDeclarations[0].parameters",
		"tool_choice.function.name":            "toolConfig.functionCallingConfig.allowedFunctionNames",
		"tool_choice":                          "toolConfig.functionCallingConfig.mode",
		"messages":                             "contents",
		"messages[0].content[0]":               "systemInstruction.parts[0]",
		"messages[1].content[1].image_url.url": "contents[0].parts[1].fileData",
		"messages[2].tool_calls[0].function.arguments": "contents[1].parts[1].functionCall.args",
		"messages[3].tool_call_id":                     "contents[2].parts[0].functionResponse.id",
		"messages[4]":                                  "contents[2]",
	} {
		if got := call.MemberName(canonical); got != want {
			t.Errorf("%s: %s, want %s", canonical, got, want)
		}
	}
}

// TestWriter writes an answer of each end, whole and streamed.
func TestWriter(t *testing.T) {
	t.Parallel()
	for reason, want := range map[conversation.Reason]string{
		conversation.Stopped: "STOP", conversation.Called: "STOP", conversation.Cut: "MAX_TOKENS",
		conversation.Filtered: "SAFETY",
	} {
		for _, stream := range []bool{false, true} {
			call, err := Parse([]byte(`{`+user+`}`), "m", stream)
			if err != nil {
				t.Fatal(err)
			}
			w := call.NewWriter(shapes.Head{RequestID: "req_1", Model: "m", Stream: stream})
			var out []byte
			for _, d := range []conversation.Delta{
				{Kind: conversation.Begin},
				{Kind: conversation.Reasoning, Text: []byte("not asked for")},
				{Kind: conversation.Text, Block: 1, Text: []byte("Hi")},
				{Kind: conversation.Call, Block: 2, ID: []byte("c0"), Name: []byte("g"), Text: []byte(`{\n\n\"y\":1}`)},
				{Kind: conversation.Call, Block: 3, ID: []byte("c1"), Name: []byte("f"), Text: []byte(`{\"x\":`)},
				{Kind: conversation.End, Reason: reason},
			} {
				w.Write(&d)
				out = append(out, w.Take()...)
			}
			out = append(out, w.End()...)
			filled := string(shapes.FillHoles(out, func(b []byte, hole string) []byte {
				switch hole {
				case shapes.UsageHole:
					return call.Format().AppendUsage(b, []byte(`{"prompt_tokens":10,"completion_tokens":7,`+
						`"prompt_tokens_details":{"cached_tokens":4},`+
						`"completion_tokens_details":{"reasoning_tokens":2}}`))
				case shapes.BlockHole:
					return append(b, `,"svc":{}`...)
				}
				return append(b, `,"svc_final":{}`...)
			}))
			end := `"finishReason":"` + want + `","index":0}],"modelVersion":"m","responseId":"1","usageMetadata":` +
				`{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":5,"thoughtsTokenCount":2,` +
				`"totalTokenCount":17},"svc`
			const cut = `{"functionCall":{"id":"c1","name":"f","args":{"invalid_json":"{\"x\":"}}}`
			if !strings.Contains(filled, end) || !strings.Contains(filled, cut) ||
				strings.Contains(filled, "not asked") {
				t.Errorf("%s", filled)
			}
			if got := call.Format().Text(out); got != `Hig{  "y":1}f{"invalid_json":"{\"x\":"}` {
				t.Errorf("counted of %s: %q", filled, got)
			}
			if stream != (FormatOf(out) != nil) {
				t.Errorf("the form of %s is known: %t", filled, !stream)
			}
		}
	}
}

// TestSignedPieces: a text that Google signs in its middle keeps its order.
func TestSignedPieces(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		call, err := Parse([]byte(`{`+user+`}`), "m", stream)
		if err != nil {
			t.Fatal(err)
		}
		w := call.NewWriter(shapes.Head{RequestID: "req_1", Model: "m", Stream: stream})
		var out []byte
		for _, d := range []conversation.Delta{
			{Kind: conversation.Begin},
			{Kind: conversation.Text, Text: []byte("a")},
			{Kind: conversation.Text, Text: []byte("b"), Opaque: []byte(`"c2ln"`), Origin: conversation.Google},
			{Kind: conversation.Text, Text: []byte("c")},
			{Kind: conversation.End},
		} {
			w.Write(&d)
			out = append(out, w.Take()...)
		}
		if got := call.Format().Text(append(out, w.End()...)); got != "abc" {
			t.Errorf("stream %t: %q", stream, got)
		}
	}
}

// TestErrors: the form is Google's, and ours is in it.
func TestErrors(t *testing.T) {
	t.Parallel()
	var statuses []string
	for _, code := range apierr.All {
		b, err := ErrorBody(code.Errorf("it is so"), web.Links{}, "req_1")
		if err != nil {
			t.Fatal(err)
		}
		var e struct {
			Error struct {
				Code            int
				Message, Status string
				Details         []struct{ Reason, Domain string }
				Svc             struct{ Code, Message string }
			}
		}
		if err := json.Unmarshal(b, &e); err != nil {
			t.Fatal(err)
		}
		if e.Error.Code != code.Status || e.Error.Message != "it is so" || e.Error.Svc.Code != code.Name ||
			e.Error.Details[0].Reason != strings.ToUpper(code.Name) {
			t.Errorf("%s", b)
		}
		statuses = append(statuses, e.Error.Status)
	}
	slices.Sort(statuses)
	want := []string{
		"ABORTED", "FAILED_PRECONDITION", "INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED",
		"RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "UNAVAILABLE",
	}
	if diff := cmp.Diff(want, slices.Compact(statuses)); diff != "" {
		t.Error(diff)
	}
	failed := string(shapes.WithoutBill(format{}.Fail(nil, []byte(`{"code":"provider_error","message":"m"}`))))
	if !strings.HasPrefix(failed, `data: {"error":{"code":502,"message":"m","status":"INTERNAL"`) {
		t.Errorf("%s", failed)
	}
}
