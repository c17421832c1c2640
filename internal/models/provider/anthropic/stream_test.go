package anthropic

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/conversation/completions"
	"github.com/purserhq/purser/internal/models/provider"
)

// TestFixtures: what each recorded answer becomes, as chunks and whole, is
// written beside it. Both say and cost the same.
func TestFixtures(t *testing.T) {
	t.Parallel()
	for _, name := range fixtures(t) {
		text := load(t, name)
		base := strings.TrimSuffix(name, ".sse")
		out := relay(says(text))
		if !errors.Is(out.err, io.EOF) || !out.started {
			t.Fatalf("%s: %v", name, out.err)
		}
		answer, err := complete(says(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		expect(t, base+".chunks", out.frames+out.usageFrame)
		expect(t, base+".json", string(answer.Body)+"\n")
		if d := cmp.Diff(out.usage, answer.Usage); d != "" || out.usage == nil {
			t.Errorf("%s: usage %s", name, d)
		}
		streamed, reason := joined(t, out.frames)
		whole, reason2 := read(t, answer.Body)
		if d := cmp.Diff(streamed, whole); d != "" || reason != reason2 {
			t.Errorf("%s: the stream says otherwise: %s; %s, %s", name, d, reason, reason2)
		}
	}
}

// spell writes a stream otherwise: it means the same.
var spell = map[string]func(string) string{
	"plain":    func(s string) string { return s },
	"CRLF":     func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
	"CR":       func(s string) string { return strings.ReplaceAll(s, "\n", "\r") },
	"no space": func(s string) string { return strings.ReplaceAll(s, "data: ", "data:") },
	"no names": func(s string) string { return strings.ReplaceAll(s, "event: ", ": ") },
	"comments and mark": func(s string) string {
		return "\xef\xbb\xbf" + strings.ReplaceAll(s, "event: ", ": keep-alive\n\nevent: ")
	},
	"several lines":   func(s string) string { return strings.ReplaceAll(s, `,"`, ",\ndata: \"") },
	"last not closed": func(s string) string { return strings.TrimSuffix(s, "\n\n") },
	"more behind":     func(s string) string { return s + "event: error\ndata: {}\n\n" },
}

// TestEdge08SplitsEverywhere and TestEdge09Spellings: the same answer, however
// its bytes come.
func TestEdge08SplitsEverywhere(t *testing.T) {
	t.Parallel()
	for _, name := range fixtures(t) {
		text := load(t, name)
		inEverySplit(t, name, text, relay(says(text)))
	}
}

func TestEdge09Spellings(t *testing.T) {
	t.Parallel()
	text := load(t, "testdata/parallel.sse")
	want := relay(says(text))
	for how, f := range spell {
		inEverySplit(t, how, f(text), want)
	}
}

func inEverySplit(t *testing.T, what, text string, want relayed) {
	t.Helper()
	check := func(how string, body func() io.Reader) {
		got := relay(served(body))
		if got.frames != want.frames || got.usageFrame != want.usageFrame || !errors.Is(got.err, io.EOF) ||
			*got.usage != *want.usage {
			t.Fatalf("%s %s: %+v", what, how, got)
		}
	}
	check("byte by byte", func() io.Reader { return iotest.OneByteReader(strings.NewReader(text)) })
	for i := range len(text) {
		check("in two parts", func() io.Reader {
			return io.MultiReader(strings.NewReader(text[:i]), strings.NewReader(text[i:]))
		})
	}
}

// event writes one event.
func event(data string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(data, `{"type":"`), `"`)
	return "event: " + kind + "\ndata: " + data + "\n\n"
}

var (
	startEvent = event(
		`{"type":"message_start","message":{"id":"msg_1","content":[],"usage":{"input_tokens":10,"output_tokens":1}}}`)
	textStart = event(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
	toolStart = event(
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":{}}}`)
	blockStop = event(`{"type":"content_block_stop","index":0}`)
	endTurn   = event(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`)
	stopEvent = event(`{"type":"message_stop"}`)
	ended     = blockStop + endTurn + stopEvent
)

func textDelta(raw string) string {
	return event(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + raw + `"}}`)
}

func jsonDelta(raw string) string {
	return event(`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"` + raw +
		`"}}`)
}

func TestEdge01ParallelToolIndexes(t *testing.T) {
	t.Parallel()
	m, reason := joined(t, relay(says(load(t, "testdata/parallel.sse"))).frames) // joined checks the indexes
	if len(m.ToolCalls) != 2 || m.ToolCalls[0].ID != "toolu_01A" || m.ToolCalls[1].ID != "toolu_01B" ||
		*m.Content != "I look at both." || reason != "tool_calls" {
		t.Errorf("%+v, %s", m, reason)
	}
}

// TestEdge03NoGhostCalls: one choice, and no calls but those made.
func TestEdge03NoGhostCalls(t *testing.T) {
	t.Parallel()
	out := relay(says(load(t, "testdata/parallel.sse")))
	for _, frame := range strings.SplitAfter(out.frames, "\n\n") {
		if strings.Count(frame, `"index":0,"delta"`) > 1 || strings.Contains(frame, `"tool_calls":[]`) ||
			strings.Contains(frame, `"function":{"arguments":""}`) {
			t.Errorf("ghost in %s", frame)
		}
	}
	if n := strings.Count(out.frames, `"id":"toolu_`); n != 2 {
		t.Errorf("%d calls begin", n)
	}
}

func TestEdge04ToolWithoutArguments(t *testing.T) {
	t.Parallel()
	m, _ := joined(t, relay(says(load(t, "testdata/empty.sse"))).frames)
	if len(m.ToolCalls) != 2 || m.ToolCalls[0].Function.Arguments != "{}" ||
		m.ToolCalls[1].Function.Arguments != "{}" || m.Content != nil {
		t.Errorf("%+v", m)
	}
}

// TestWholeInput: arguments that stand in the start of a call count if no piece follows.
func TestWholeInput(t *testing.T) {
	t.Parallel()
	start := strings.Replace(toolStart, `"input":{}`, `"input":{ "city": "Oslo", "say": "a\"b" }`, 1)
	for text, want := range map[string]string{
		startEvent + start + ended:                                `{"city":"Oslo","say":"a\"b"}`,
		startEvent + start + jsonDelta(`{\"city\":1}`) + ended:    `{"city":1}`,
		startEvent + toolStart + jsonDelta(`{\"a\":2}`) + ended:   `{"a":2}`,
		startEvent + toolStart + ended:                            `{}`,
		startEvent + startEvent + start + jsonDelta("{}") + ended: `{}`, // a start that comes twice is no fault
	} {
		m, _ := joined(t, relay(says(text)).frames)
		if len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Arguments != want {
			t.Errorf("%s: %+v", want, m.ToolCalls)
		}
	}
}

func TestEdge10LineOverOneMegabyte(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 300_000)
	text := startEvent + textStart + textDelta(long) + ended
	if m, _ := joined(t, relay(says(text)).frames); *m.Content != long {
		t.Errorf("%d bytes", len(*m.Content))
	}
	answer, err := complete(says(text))
	if err != nil {
		t.Fatal(err)
	}
	if m, _ := read(t, answer.Body); *m.Content != long {
		t.Errorf("%d bytes whole", len(*m.Content))
	}
}

// TestEdge11PiecesOfArguments: pieces end within escapes and within characters.
func TestEdge11PiecesOfArguments(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		pieces []string // as they stand in the JSON of the events
		want   string
	}{
		"escapes of the arguments": {[]string{`{\"a\":\"\\`, `u00e9\\n\\`, `\\ud83`, `d\\ude00\"}`},
			`{"a":"\u00e9\n\\ud83d\ude00"}`},
		"surrogates of the event":      {[]string{`{\"a\":\"\ud83d`, `\ude00\"}`}, `{"a":"😀"}`},
		"surrogates, an empty between": {[]string{`{\"a\":\"\uD83D`, ``, `\uDE00\"}`}, `{"a":"😀"}`},
		"a backslash before":           {[]string{`{\"a\":\"\\\\`, `\\ud83d`, `\"}`}, `{"a":"\\\ud83d"}`},
		"not JSON at all":              {[]string{`{\"a`}, `{"a`},
	} {
		text := startEvent + toolStart
		for _, p := range c.pieces {
			text += jsonDelta(p)
		}
		text += ended
		if m, _ := joined(t, relay(says(text)).frames); m.ToolCalls[0].Function.Arguments != c.want {
			t.Errorf("%s: %q", what, m.ToolCalls[0].Function.Arguments)
		}
		answer, err := complete(says(text))
		if err != nil {
			t.Fatal(err)
		}
		if m, _ := read(t, answer.Body); m.ToolCalls[0].Function.Arguments != c.want {
			t.Errorf("%s: whole %q", what, m.ToolCalls[0].Function.Arguments)
		}
	}
}

func TestEdge12UsageChunkHasNoChoices(t *testing.T) {
	t.Parallel()
	out := relay(says(load(t, "testdata/thinking.sse")))
	kind, usage := provider.Classify([]byte(strings.TrimSuffix(strings.TrimPrefix(out.usageFrame, "data: "), "\n\n")))
	want := provider.Usage{Input: 50, Cached: 1000, CacheWrite: 200, Output: 120, Reasoning: 90}
	if kind != provider.UsageOnly || usage == nil || *usage != want || *out.usage != want {
		t.Errorf("%v %+v in %s; %+v", kind, usage, out.usageFrame, out.usage)
	}
	if provider.LastUsageFrame([]byte(out.frames+out.usageFrame)) == nil {
		t.Error("a replay does not find it")
	}
}

// TestEdge26ThinkingFirst: thoughts are no answer; they ride on the call that
// they led to.
func TestEdge26ThinkingFirst(t *testing.T) {
	t.Parallel()
	out := relay(says(load(t, "testdata/thinking.sse")))
	m, _ := joined(t, out.frames)
	want := `{"anthropic":{"thinking":[{"type":"thinking","thinking":"Which \"tool\"?\n 天気","signature":"EqQB/+signatureA=="},` +
		`{"type":"redacted_thinking","data":"EmwKAhgB/+=="},{"type":"thinking","thinking":"","signature":"only=="}]}}`
	if *m.Content != "Let me see." || string(m.ToolCalls[0].ExtraContent) != want ||
		m.ToolCalls[1].ExtraContent != nil {
		t.Errorf("%s; %+v", m.ToolCalls[0].ExtraContent, m)
	}
	if first := strings.SplitAfter(out.frames, "\n\n")[2]; !strings.Contains(first, `"toolu_01A"`) ||
		!strings.Contains(first, "extra_content") {
		t.Errorf("the call's first chunk: %s", first)
	}
}

// TestEdge29OnlyThinking: the whole budget was thought away, and is billed.
func TestEdge29OnlyThinking(t *testing.T) {
	t.Parallel()
	answer, err := complete(says(load(t, "testdata/length.sse")))
	if err != nil {
		t.Fatal(err)
	}
	if m, reason := read(t, answer.Body); *m.Content != "" || reason != "length" || answer.Usage.Output != 64 ||
		answer.Usage.Reasoning != 64 {
		t.Errorf("%+v %s %+v", m, reason, answer.Usage)
	}
}

func TestEdge34StopReasons(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string][2]string{ // after text, and after a call
		`"end_turn"`:                      {"stop", "stop"},
		`"stop_sequence"`:                 {"stop", "stop"},
		`"tool_use"`:                      {"tool_calls", "tool_calls"},
		`"max_tokens"`:                    {"length", "length"},
		`"model_context_window_exceeded"`: {"length", "length"},
		`"refusal"`:                       {"content_filter", "content_filter"},
		`"never heard of"`:                {"stop", "tool_calls"},
		`null`:                            {"stop", "tool_calls"},
	} {
		for i, begin := range []string{textStart + textDelta("a"), toolStart + jsonDelta("{}")} {
			text := startEvent + begin + strings.Replace(ended, `"end_turn"`, reason, 1)
			if _, got := joined(t, relay(says(text)).frames); got != want[i] {
				t.Errorf("%s: %s, want %s", reason, got, want[i])
			}
		}
	}
	paused := startEvent + textStart + textDelta("a") + strings.Replace(ended, "end_turn", "pause_turn", 1)
	if _, err := complete(says(paused)); fault(t, err).Kind != provider.Failed {
		t.Error(err)
	}
	out := relay(says(paused))
	if e := fault(t, out.err); !out.started || e.Kind != provider.Failed || e.Retry || out.usage != nil {
		t.Errorf("%+v", out)
	}
}

// TestUnknownDelta: a piece of a kind that nobody knows is left out, whatever its members are.
func TestUnknownDelta(t *testing.T) {
	t.Parallel()
	unknown := event(`{"type":"content_block_delta","index":0,"delta":{"type":"new_delta","text":7,"thinking":"x"}}`)
	out := relay(says(startEvent + textStart + unknown + textDelta("a") + unknown + ended))
	if m, reason := joined(t, out.frames); out.err != io.EOF || *m.Content != "a" || reason != "stop" {
		t.Errorf("%+v %s %v", m, reason, out.err)
	}
}

// TestStopSequence: the choice says which stop sequence ended the message, streamed and whole.
func TestStopSequence(t *testing.T) {
	t.Parallel()
	text := startEvent + textStart + textDelta("a") + blockStop +
		event(`{"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"\n#"},`+
			`"usage":{"output_tokens":1}}`) + stopEvent
	const want = `"finish_reason":"stop","stop_sequence":"\n#"}]`
	if out := relay(says(text)); !strings.Contains(out.frames, want) {
		t.Errorf("streamed: %s", out.frames)
	}
	if answer, err := complete(says(text)); err != nil || !strings.Contains(string(answer.Body), want) {
		t.Errorf("whole: %v, %s", err, answer.Body)
	}
}

// TestReportedInput: an answer that breaks off has said what was read.
func TestReportedInput(t *testing.T) {
	t.Parallel()
	for usage, want := range map[string]int64{
		`{"input_tokens":40,"cache_read_input_tokens":5,"cache_creation_input_tokens":2,"output_tokens":1}`: 47,
		`{"output_tokens":1}`: 0, `{"input_tokens":-4}`: 0,
	} {
		s, err := says(event(`{"type":"message_start","message":{"id":"m","usage":`+usage+`}}`)+textStart+
			textDelta("Hi")).Stream(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = s.Next()
		}
		if got := s.(interface{ ReportedInput() int64 }).ReportedInput(); got != want || errors.Is(err, io.EOF) {
			t.Errorf("%s: %d, want %d; %v", usage, got, want, err)
		}
		s.Close()
	}
}

// TestEdge36Errors: an error before the answer is its status; within it, the
// answer is cut.
func TestEdge36Errors(t *testing.T) {
	t.Parallel()
	overloaded := event(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
	for what, text := range map[string]string{
		"first":                   overloaded,
		"after a ping":            event(`{"type":"ping"}`) + overloaded,
		"after the message began": startEvent + event(`{"type":"ping"}`) + overloaded,
		"after an empty text":     startEvent + textStart + event(`{"type":"ping"}`) + overloaded,
		"by name alone": "event: error\n" +
			strings.TrimPrefix(strings.Replace(overloaded, `"type":"error",`, "", 1), "event: error\n"),
	} {
		out := relay(says(text))
		if e := fault(t, out.err); out.started || !e.Retry || e.Status != 529 || e.Kind != provider.Failed {
			t.Errorf("%s: %+v", what, e)
		}
		_, err := complete(says(text))
		if e := fault(t, err); !e.Retry || e.Status != 529 {
			t.Errorf("%s: whole: %+v", what, e)
		}
	}
	for kind, c := range map[string]struct {
		kind   provider.Kind
		status int
		retry  bool
		alarm  bool
	}{
		"invalid_request_error": {provider.Rejected, 400, false, false},
		"request_too_large":     {provider.Rejected, 413, false, false},
		"authentication_error":  {provider.Failed, 401, false, true},
		"billing_error":         {provider.Failed, 402, false, true},
		"permission_error":      {provider.Failed, 403, false, true},
		"not_found_error":       {provider.Failed, 404, false, true},
		"rate_limit_error":      {provider.Failed, 429, true, false},
		"api_error":             {provider.Failed, 500, true, false},
		"timeout_error":         {provider.Failed, 504, true, false},
		"new_error":             {provider.Failed, 500, true, false},
	} {
		e := fault(t, relay(says(strings.Replace(overloaded, "overloaded_error", kind, 1))).err)
		if e.Kind != c.kind || e.Status != c.status || e.Retry != c.retry || (e.Alarm != "") != c.alarm ||
			strings.Contains(e.Message, "Overloaded") != (c.kind == provider.Rejected) {
			t.Errorf("%s: %+v", kind, e)
		}
	}
	for _, bad := range []string{overloaded,
		strings.Replace(overloaded, "overloaded_error", "invalid_request_error", 1)} {
		text := startEvent + textStart + textDelta("some") + bad
		out := relay(says(text))
		if e := fault(t, out.err); !out.started || e.Retry || e.Kind != provider.Failed ||
			provider.GeneratedText([]byte(out.frames)) != "some" || out.usage != nil {
			t.Errorf("after text: %+v", out)
		}
		_, err := complete(says(text))
		if e := fault(t, err); e.Retry || e.Kind != provider.Failed {
			t.Errorf("after text, whole: %+v", e)
		}
	}
}

// TestFinishReasonWithoutUsage: a finish reason ends the answer, also where the usage is missing.
func TestFinishReasonWithoutUsage(t *testing.T) {
	t.Parallel()
	text := startEvent + textStart + textDelta("a") + strings.Replace(endTurn, `"output_tokens":5`, "", 1)
	if out := relay(says(text)); !errors.Is(out.err, io.EOF) || out.usage != nil {
		t.Errorf("streamed: %+v", out)
	}
	if answer, err := complete(says(text)); err != nil || answer.Usage != nil {
		t.Errorf("whole: %+v, %v", answer, err)
	}
}

// TestEdge36Cuts: a body that ends at any byte is no answer, until nothing is
// missing but the last event.
func TestEdge36Cuts(t *testing.T) {
	t.Parallel()
	text := load(t, "testdata/parallel.sse")
	begun := strings.Index(text, "event: ping") // what comes before is not yet an answer
	begun += strings.Index(text[begun:], "content_block_start\ndata")
	whole := strings.Index(text, "event: message_stop")
	for i := range len(text) {
		for how, end := range map[string]error{"ends": io.EOF, "reset": errors.New("connection reset by peer")} {
			out := relay(served(func() io.Reader {
				return io.MultiReader(strings.NewReader(text[:i]), iotest.ErrReader(end))
			}))
			switch {
			case i < begun:
				if e := fault(t, out.err); out.started || e.Retry != (how == "ends") {
					t.Fatalf("%s at %d: %+v", how, i, e)
				}
			case i >= whole-2: // the last line of message_delta is here
			case out.err == nil || errors.Is(out.err, io.EOF) || out.usage != nil:
				t.Fatalf("%s at %d: %+v", how, i, out)
			}
			if i >= whole && (!errors.Is(out.err, io.EOF) || out.usage == nil) {
				t.Fatalf("%s at %d, whole: %+v", how, i, out)
			}
		}
	}
}

// TestGarbage: what is no message ends in an error, and is never relayed.
func TestGarbage(t *testing.T) {
	t.Parallel()
	for what, text := range map[string]string{
		"a page":                "<html>\n\n",
		"nothing":               "",
		"only pings":            event(`{"type":"ping"}`),
		"not JSON":              "data: {\"type\":\n\n",
		"no UTF-8":              startEvent + textStart + textDelta("\xff") + ended,
		"a list":                "data: []\n\n",
		"text before the start": textStart + textDelta("a") + ended,
		"two messages": startEvent + strings.Replace(startEvent, "msg_1", "msg_2", 1) + textStart + textDelta("a") +
			ended,
		"a delta without block": startEvent + textDelta("a") + ended,
		"a delta of another one": startEvent + textStart + strings.Replace(textDelta("a"), `"index":0`, `"index":1`,
			1) + ended,
		"a stop of another one": startEvent + textStart + textDelta("a") + strings.Replace(ended, `"index":0`,
			`"index":1`, 1),
		"a number as text": startEvent + textStart + strings.Replace(textDelta("a"), `"text":"a"`, `"text":1`,
			1) + ended,
		"a call without an id": startEvent + strings.Replace(toolStart, `"id":"toolu_1",`, "", 1) + ended,
		"a type twice": startEvent + textStart + strings.Replace(textDelta("a"), `"index":0`,
			`"index":0,"index":0`, 1) + ended,
		"a reason that is none": startEvent + textStart + strings.Replace(ended, `"end_turn"`, `7`, 1),
	} {
		if out := relay(says(text)); out.err == nil || errors.Is(out.err, io.EOF) {
			t.Errorf("%s: %+v", what, out)
		}
		if answer, err := complete(says(text)); err == nil {
			t.Errorf("%s: %s", what, answer.Body)
		}
	}
}

// TestEdge41ReadsToTheEnd: the exact bill is there for a caller that reads on
// after its own client has gone; Close in the middle is an end too.
func TestEdge41ReadsToTheEnd(t *testing.T) {
	t.Parallel()
	c := serve(t, answers(200, load(t, "testdata/text.sse")))
	if out := relay(c); out.usage == nil || *out.usage != (provider.Usage{Input: 25, Output: 15}) {
		t.Errorf("%+v", out)
	}
	s, err := c.Stream(context.Background(), request())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestChunksAreCheap: a piece of text costs no memory.
func TestChunksAreCheap(t *testing.T) {
	payload := []byte(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello, wor"}}`)
	out := completions.NewStream(nil, request(), time.Unix(1, 0))
	d := New("", sampleKey).newDecoder(out.Write)
	out.Write(&conversation.Delta{Kind: conversation.Begin})
	d.started, d.open = true, block{kind: "text"}
	if n := testing.AllocsPerRun(100, func() {
		out.Reset()
		if _, err := d.handleEvent(provider.Event{Payload: payload}); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzStream: no bytes upset the decoder; what goes out is whole chunks, the
// same however it came in, and a whole answer says the same.
func FuzzStream(f *testing.F) {
	for _, name := range fixtures(f) {
		f.Add(load(f, name), uint16(300))
	}
	f.Add(startEvent+toolStart+jsonDelta(`\ud83d`)+jsonDelta(`\ude00`)+ended, uint16(1))
	f.Add(startEvent+textStart+textDelta(`\ud83d`)+ended, uint16(9))
	f.Fuzz(func(t *testing.T, text string, split uint16) {
		out := relay(says(text))
		i := min(int(split), len(text))
		parts := relay(served(func() io.Reader {
			return io.MultiReader(strings.NewReader(text[:i]), strings.NewReader(text[i:]))
		}))
		if parts.frames != out.frames || parts.usageFrame != out.usageFrame ||
			errors.Is(parts.err, io.EOF) != errors.Is(out.err, io.EOF) {
			t.Fatalf("split at %d: %+v, else %+v", i, parts, out)
		}
		if out.frames == "" {
			return
		}
		streamed, reason := joined(t, out.frames)
		answer, err := complete(says(text))
		if (err == nil) != errors.Is(out.err, io.EOF) {
			t.Fatalf("streamed %v, whole %v", out.err, err)
		}
		if err != nil {
			return
		}
		whole, reason2 := read(t, answer.Body)
		if d := cmp.Diff(streamed, whole); d != "" || reason != reason2 || !cmp.Equal(out.usage, answer.Usage) {
			t.Errorf("%s; %s, %s", d, reason, reason2)
		}
	})
}
