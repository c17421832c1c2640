package messages

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/testkit/shapetest"
)

// event is one event of a streamed message.
type event struct {
	Type    string
	Index   int
	Message struct {
		ID, Model string
		Content   []any
	}
	Block struct {
		Type, ID, Name, Data string
	} `json:"content_block"`
	Delta struct {
		Type, Text, Thinking, Signature string
		Partial                         string `json:"partial_json"`
		StopReason                      string `json:"stop_reason"`
	}
	Usage struct {
		Input   int64 `json:"input_tokens"`
		Written int64 `json:"cache_creation_input_tokens"`
		Cached  int64 `json:"cache_read_input_tokens"`
		Output  int64 `json:"output_tokens"`
	}
	Error struct{ Type, Code, Message string }
	Final json.RawMessage `json:"svc_final"`
}

// readEvents parses the events of a stream and checks their order: blocks open and close in turn.
func readEvents(t *testing.T, stream []byte) (list []event) {
	t.Helper()
	open, next, begun, ended := false, 0, false, false
	for frame := range strings.SplitSeq(strings.TrimSuffix(string(stream), "\n\n"), "\n\n") {
		if frame == "" {
			continue
		}
		name, data, ok := strings.Cut(strings.TrimPrefix(frame, "event: "), "\ndata: ")
		var e event
		err := json.Unmarshal([]byte(data), &e)
		if !ok || err != nil || e.Type != name || strings.Contains(data, "\n") {
			t.Fatalf("%v in the event %q", err, frame)
		}
		good := !ended
		switch name {
		case "message_start":
			good, begun = good && !begun, true
		case "content_block_start":
			good, open = good && begun && !open && e.Index == next, true
		case "content_block_delta":
			good = good && open && e.Index == next
		case "content_block_stop":
			good, open = good && open && e.Index == next, false
			next++
		case "message_delta":
			good = good && begun && !open
		case "message_stop", "error":
			ended = true
		}
		if !good {
			t.Fatalf("%s is out of order in\n%s", frame, stream)
		}
		list = append(list, e)
	}
	return list
}

// describe writes events in one line each, without those that are always there.
func describe(list []event) (lines []string) {
	for _, e := range list {
		switch e.Type {
		case "message_start":
			lines = append(lines, fmt.Sprintf("start %s %s", e.Message.ID, e.Message.Model))
		case "content_block_start":
			lines = append(lines, strings.TrimSpace(
				fmt.Sprintf("%s %s %s%s", e.Block.Type, e.Block.ID, e.Block.Name, e.Block.Data)))
		case "content_block_delta":
			d := &e.Delta
			lines = append(lines, fmt.Sprintf("  %s %s%s%s%s", strings.TrimSuffix(d.Type, "_delta"), d.Text, d.Thinking,
				d.Partial, d.Signature))
		case "message_delta":
			lines = append(lines, fmt.Sprintf("%s %d+%d+%d>%d %s", e.Delta.StopReason, e.Usage.Input, e.Usage.Written,
				e.Usage.Cached, e.Usage.Output, e.Final))
		case "error":
			lines = append(lines, fmt.Sprintf("%s %s: %s %s", e.Error.Type, e.Error.Code, e.Error.Message, e.Final))
		}
	}
	return lines
}

// chunkOf returns a canonical chunk with a delta.
func chunkOf(delta string) string {
	return `data: {"id":"chatcmpl-1","model":"m","choices":[{"index":0,"delta":` + delta +
		`,"finish_reason":null}]}` + "\n\n"
}

// finish returns the end of a canonical stream.
func finish(reason string) string {
	return `data: {"id":"chatcmpl-1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"` + reason +
		`"}]}` + "\n\n" +
		`data: {"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":3,` +
		`"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":1}},"svc_final":{"settlement":"settled"}}` +
		"\n\ndata: [DONE]\n\n"
}

const (
	startLine = "start msg_1 m"
	endUsage  = ` 5+1+4>3 {"settlement":"settled"}`
	cutOff    = `data: {"error":{"code":"provider_error","message":"it broke off","type":"provider_error",` +
		`"connection_id":"conn_1","increase_url":null,"review_url":null}}` + "\n\n"
)

// TestSignatureOfText: the signature of a text follows it as thinking where another block does. A message does not end
// with it, whole or streamed: Claude Code prints the last block, and printed nothing.
func TestSignatureOfText(t *testing.T) {
	t.Parallel()
	text := conversation.Delta{
		Kind: conversation.Text, Text: []byte("Hi"), Opaque: []byte(`"c2ln"`), Origin: conversation.Google,
	}
	call := conversation.Delta{
		Kind: conversation.Call, Block: 1, ID: []byte("c1"), Name: []byte("f"), Text: []byte("{}"),
	}
	for _, tt := range []struct {
		deltas []conversation.Delta
		want   []string
	}{
		{[]conversation.Delta{text}, []string{"text"}},
		{[]conversation.Delta{text, call}, []string{"text", "thinking", "tool_use"}},
		{[]conversation.Delta{text, {Kind: conversation.Text, Text: []byte("!")}}, []string{"text"}},
	} {
		for _, stream := range []bool{true, false} {
			w := writer{head: shapes.Head{RequestID: "req_1", Stream: stream}, reasons: true}
			var sent []byte
			for _, d := range append(append([]conversation.Delta{{}}, tt.deltas...),
				conversation.Delta{Kind: conversation.End}) {
				w.Write(&d)
				sent = append(sent, w.Take()...)
			}
			var got []string
			if stream {
				for _, e := range readEvents(t, shapes.WithoutBill(append(sent, w.End()...))) {
					if e.Type == "content_block_start" {
						got = append(got, e.Block.Type)
					}
				}
			} else {
				var whole struct{ Content []struct{ Type string } }
				if err := json.Unmarshal(shapes.WithoutBill(w.End()), &whole); err != nil {
					t.Fatal(err)
				}
				for _, b := range whole.Content {
					got = append(got, b.Type)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("stream %t: want (-) got (+):\n%s", stream, diff)
			}
		}
	}
}

var streams = []struct {
	name, in string
	want     []string
}{
	{"text", chunkOf(`{"role":"assistant","content":""}`) + chunkOf(`{"content":"Hel"}`) + chunkOf(`{"content":"lo"}`) +
		finish("stop"), []string{startLine, "text", "  text Hel", "  text lo", "end_turn" + endUsage}},
	{"length", chunkOf(`{"content":"a"}`) + finish("length"),
		[]string{startLine, "text", "  text a", "max_tokens" + endUsage}},
	{"a stop sequence", chunkOf(`{"content":"a"}`) + strings.Replace(finish("stop"), `"stop"`,
		`"stop","stop_sequence":"\n#"`, 1), []string{startLine, "text", "  text a", "stop_sequence" + endUsage}},
	{"nothing", chunkOf(`{"role":"assistant","content":""}`) + finish("length"),
		[]string{startLine, "max_tokens" + endUsage}},
	{"refusal", chunkOf(`{"refusal":"No."}`) + finish("stop"),
		[]string{startLine, "text", "  text No.", "refusal" + endUsage}},
	{"filter", chunkOf(`{"content":""}`) + finish("content_filter"), []string{startLine, "refusal" + endUsage}},
	{"a tool call after text", chunkOf(`{"content":"a"}`) +
		chunkOf(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]}`) +
		chunkOf(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}}]}`) +
		chunkOf(`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}`) + finish("tool_calls"),
		[]string{startLine, "text", "  text a", "tool_use c1 f", `  input_json {"x":`, "  input_json 1}",
			"tool_use" + endUsage}},
	{"parallel calls", chunkOf(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}}]}`) +
		chunkOf(`{"tool_calls":[{"index":1,"id":"c2","function":{"name":"g",`+
			`"arguments":"{}"}}]}`) + finish("tool_calls"),
		[]string{startLine, "tool_use c1 f", "  input_json {}", "tool_use c2 g", "  input_json " +
			"{}", "tool_use" + endUsage}},
	{"calls in turn", chunkOf(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}]}`) +
		chunkOf(`{"tool_calls":[{"index":1,"id":"c2","function":{"name":"g","arguments":"{\"y\""}}]}`) +
		chunkOf(`{"tool_calls":[{"index":0,"function":{"arguments":"}"}},{"index":1,`+
			`"function":{"arguments":":2}"}}]}`) +
		finish("tool_calls"),
		[]string{startLine, "tool_use c1 f", "  input_json {", "  input_json }", "tool_use c2 g", `  ` +
			`input_json {"y":2}`,
			"tool_use" + endUsage}},
	{"thinking of Claude", chunkOf(`{"reasoning_content":"I th"}`) + chunkOf(`{"reasoning_content":"ink"}`) +
		chunkOf(`{"extra_content":{"anthropic":{"thinking":[{"type":"thinking","thinking":"I think",`+
			`"signature":"s1"}]}}}`) +
		chunkOf(`{"extra_content":{"anthropic":{"thinking":[{"type":"redacted_thinking","data":"d1"}]}}}`) +
		chunkOf(`{"content":"a"}`) + finish("stop"),
		[]string{startLine, "thinking", "  thinking I th", "  thinking ink", "  signature s1", "redacted_thinking  d1",
			"text", "  text a", "end_turn" + endUsage}},
	{"thinking that was not shown",
		chunkOf(`{"extra_content":{"anthropic":{"thinking":[{"type":"thinking","thinking":"","signature":"s1"}]}}}`) +
			chunkOf(`{"content":"a"}`) + finish("stop"),
		[]string{startLine, "thinking", "  signature s1", "text", "  text a", "end_turn" + endUsage}},
	{"reasoning of another provider", chunkOf(`{"reasoning_content":"Hm"}`) +
		chunkOf(`{"extra_content":{"x":{"y":1}}}`) +
		chunkOf(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"},`+
			`"extra_content":{"x":{"z":2}}}]}`) +
		finish("tool_calls"),
		[]string{startLine, "thinking", "  thinking Hm", "  signature extra.message.eyJ4Ijp7InkiOjF9fQ", "thinking",
			"  signature extra.call.eyJ4Ijp7InoiOjJ9fQ", "tool_use c1 f", "  input_json {}", "tool_use" + endUsage}},
	{"broken off", chunkOf(`{"content":"a"}`) + cutOff +
		`data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1},` +
		`"svc_final":{"settlement":"estimated"}}` +
		"\n\ndata: [DONE]\n\n",
		[]string{startLine, "text", "  text a", `api_error provider_error: it broke off {"settlement":"estimated"}`}},
	{"failed before it began", ": waiting\n\n" + cutOff + "data: [DONE]\n\n",
		[]string{"api_error provider_error: it broke off "}},
	{"pending", chunkOf(`{"content":"a"}`) + `data: {"choices":[],"usage":null,"svc_final":{"usage":null,"svc":null}}` +
		"\n\ndata: [DONE]\n\n",
		[]string{startLine, "text", "  text a", `end_turn 0+0+0>0 {"usage":null,"svc":null}`}},
}

func TestStream(t *testing.T) {
	t.Parallel()
	for _, tt := range streams {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			whole := translate(tt.in, len(tt.in))
			if diff := cmp.Diff(tt.want, describe(readEvents(t, whole))); diff != "" {
				t.Errorf("want (-) got (+):\n%s", diff)
			}
			if single := translate(tt.in, 1); string(single) != string(whole) {
				t.Errorf("one event at a time:\n%s\nall at once:\n%s", single, whole)
			}
		})
	}
}

// translate returns the events for a canonical stream, which comes with this many events at a time.
func translate(in string, events int) []byte {
	c := &Call{}
	c.request.WantReasoning = true
	return shapetest.Stream(c, in, events)
}

// TestStreamBytes holds one stream to its bytes, as Anthropic's clients read them.
func TestStreamBytes(t *testing.T) {
	t.Parallel()
	const want = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m",` +
		`"content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,` +
		`"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0,` +
		`"output_tokens_details":{"thinking_tokens":0}}}}

event: ping
data: {"type":"ping"}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"A \"q\"\n"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":5,` +
		`"cache_creation_input_tokens":1,"cache_read_input_tokens":4,"output_tokens":3,` +
		`"output_tokens_details":{"thinking_tokens":0}},"svc_final":{"settlement":"settled"}}

event: message_stop
data: {"type":"message_stop"}

`
	got := translate(chunkOf(`{"content":"A \"q\"\n"}`)+finish("stop"), 9)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("want (-) got (+):\n%s", diff)
	}
}

// FuzzStream translates any events: the result is well nested, does not depend on how they come, and what is counted of
// it has all its text.
func FuzzStream(f *testing.F) {
	for _, tt := range streams {
		f.Add(tt.in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		in += "\n\n" + finish("stop")
		out := translate(in, 1)
		if all := translate(in, 1000); string(all) != string(out) {
			t.Errorf("one event at a time:\n%s\nall at once:\n%s", out, all)
		}
		var got strings.Builder
		for _, e := range readEvents(t, out) {
			for _, s := range []string{e.Block.Name, e.Delta.Thinking, e.Delta.Text, e.Delta.Partial} {
				got.WriteString(s)
			}
		}
		if counted := (format{}).Text(out); counted != got.String() {
			t.Errorf("%q is counted of %q", counted, got.String())
		}
	})
}

// BenchmarkStream is what one piece of text costs.
func BenchmarkStream(b *testing.B) {
	w := (&Call{}).NewWriter(shapes.Head{RequestID: "req_1", Stream: true})
	w.Write(&conversation.Delta{Kind: conversation.Begin})
	piece := &conversation.Delta{Kind: conversation.Text, Text: []byte("some words ")}
	b.ReportAllocs()
	for b.Loop() {
		w.Write(piece)
		w.Take()
	}
}
