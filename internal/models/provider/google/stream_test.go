package google

import (
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

var update = flag.Bool("update", false, "write testdata/*.txt anew")

// fixture reads a stream of testdata.
func fixture(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".sse"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// relayFixture is what an app gets of a stream of testdata.
func relayFixture(t *testing.T, name string) relayed { return relay(servedText(fixture(t, name))) }

// TestEdge08And09Fixtures: each stream of testdata becomes the chunks beside it,
// whole, one byte at a time and in every two parts. That splits characters,
// names of fields, and CR from LF; spellings.sse has every spelling of an event.
func TestEdge08And09Fixtures(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.sse")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".sse")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := fixture(t, name)
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(relay(servedText(text)).String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			check := func(how string, body io.Reader) {
				out := relay(served(func(context.Context) io.Reader { return body }))
				if d := cmp.Diff(string(want), out.String()); d != "" {
					t.Fatalf("%s: %s", how, d)
				}
			}
			check("whole", strings.NewReader(text))
			check("byte by byte", iotest.OneByteReader(strings.NewReader(text)))
			for i := range len(text) {
				check("in two parts", io.MultiReader(strings.NewReader(text[:i]), strings.NewReader(text[i:])))
			}
		})
	}
}

// event is one event of Gemini's stream.
func event(payload string) string { return "data: " + payload + "\r\n\r\n" }

func says(text string) string {
	return event(`{"candidates":[{"content":{"parts":[{"text":"` + text + `"}]}}]}`)
}

const (
	stopped     = `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"totalTokenCount":5}}`
	overloaded  = `{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}`
	invalid     = `{"error":{"code":400,"message":"Invalid value at 'contents' for key aKeyThatLooksLikeNone","status":"INVALID_ARGUMENT"}}`
	unknownKind = `{"error":{"code":"odd"}}`
)

// TestEdge03And06Shape: no ghost calls, one choice, the role once and first,
// indexes without gaps, a finish reason only in the last chunk with choices.
func TestEdge03And06Shape(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"text":                "role text text text stop",
		"parallel_calls":      "role text call0 call1 call2 tool_calls",
		"call_and_stop_apart": "role call0 tool_calls",
		"thoughts":            "role text stop",
		"blocked":             "role content_filter",
		"safety":              "role text content_filter",
		"length_without_text": "role length",
		"trailing_signature":  "role text signature stop",
		"spellings":           "role text text stop",
	} {
		if got := strings.Join(shape(t, relayFixture(t, name).frames), " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestEdge05CallAndStopApart: the finish reason remembers the call.
func TestEdge05CallAndStopApart(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"call_and_stop_apart", "parallel_calls"} {
		if out := relayFixture(t, name); !strings.Contains(out.frames, `"finish_reason":"tool_calls"`) ||
			strings.Contains(out.frames, `"stop"`) {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// TestEdge04And11Arguments: whole, in one line, every digit and escape as it came.
func TestEdge04And11Arguments(t *testing.T) {
	t.Parallel()
	args := `{"n": 1.50, "big": 12345678901234567890, "e":"\ud83e\uddfe \u003c",` + "\t" + `"a" : [ 1 , {} ]}`
	want := `{"n":1.50,"big":12345678901234567890,"e":"\ud83e\uddfe \u003c","a":[1,{}]}`
	calls := toolCalls(t,
		relay(servedText(event(`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":`+args+
			`}},{"functionCall":{"name":"g"}},{"functionCall":{"name":"h","args":null}}]},"finishReason":"STOP"}]}`))).frames)
	if len(calls) != 3 || calls[0].Function.Arguments != want || calls[1].Function.Arguments != "{}" ||
		calls[2].Function.Arguments != "{}" {
		t.Errorf("%+v", calls)
	}
}

// TestEdge10HugeEvent: a call comes whole, however long it is, up to 16 MB.
func TestEdge10HugeEvent(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3<<20)
	out := relay(servedText(says(long) + event(stopped)))
	if !strings.Contains(out.frames, long) || !errors.Is(out.err, io.EOF) {
		t.Errorf("%d bytes, %v", len(out.frames), out.err)
	}
	out = relay(servedText(says("a") + says(strings.Repeat("x", maxEvent)) + event(stopped)))
	if provider.GeneratedText([]byte(out.frames)) != "a" || !errors.Is(out.err, provider.ErrEventTooLong) {
		t.Errorf("%d bytes, %v", len(out.frames), out.err)
	}
}

// TestEdge12UsageChunk: the usage comes apart, without choices, and reads back.
func TestEdge12UsageChunk(t *testing.T) {
	t.Parallel()
	out := relayFixture(t, "text")
	payload := strings.TrimSuffix(strings.TrimPrefix(out.usageFrame, "data: "), "\n\n")
	kind, usage := provider.Classify([]byte(payload))
	if kind != provider.UsageOnly || usage == nil || *usage != *out.usage {
		t.Errorf("%v %+v of %s", kind, usage, payload)
	}
}

// TestEdge25Signatures: on the delta of the call, and on a trailing empty text.
func TestEdge25Signatures(t *testing.T) {
	t.Parallel()
	calls := toolCalls(t, relayFixture(t, "parallel_calls").frames)
	if len(calls) != 3 || string(calls[0].ExtraContent) != `{"google":{"thought_signature":"Zmlyc3Q="}}` ||
		calls[1].ExtraContent != nil || calls[2].ExtraContent != nil {
		t.Errorf("%+v", calls)
	}
	if calls[0].ID == calls[1].ID || calls[2].ID != "fx81k2" || calls[2].Function.Name != "2nd-tool" {
		t.Errorf("%+v", calls)
	}
	out := relayFixture(t, "trailing_signature")
	if want := `"delta":{"content":"","extra_content":{"google":{"thought_signature":"dHJhaWxpbmc="}}},"finish_reason":null`; !strings.Contains(out.frames, want) {
		t.Error(out)
	}
}

// TestEdge35Stops: blocked prompts, filters, and answers of no use.
func TestEdge35Stops(t *testing.T) {
	t.Parallel()
	out := relayFixture(t, "blocked")
	if out.usage == nil || *out.usage != (provider.Usage{Input: 12}) || !errors.Is(out.err, io.EOF) {
		t.Errorf("blocked: %+v", out)
	}
	for what, c := range map[string]struct {
		parts, reason, finish string
		retry                 bool
	}{
		"stop":               {`{"text":"a"}`, "STOP", "stop", false},
		"stop, nothing said": {``, "STOP", "stop", false},
		"length":             {`{"text":"a"}`, "MAX_TOKENS", "length", false},
		"a call cut short":   {`{"functionCall":{"name":"f"}}`, "MAX_TOKENS", "length", false},
		"continuation":       {`{"text":"a"}`, "CONTINUATION", "length", false},
		"recitation":         {``, "RECITATION", "content_filter", false},
		"image safety":       {``, "IMAGE_SAFETY", "content_filter", false},
		"filter after calls": {`{"functionCall":{"name":"f"}}`, "SPII", "content_filter", false},
		"malformed call":     {``, "MALFORMED_FUNCTION_CALL", "", false},
		"malformed, text":    {`{"text":"a"}`, "MALFORMED_FUNCTION_CALL", "", false},
		"too many calls":     {``, "TOO_MANY_TOOL_CALLS", "", false},
		"other, text":        {`{"text":"a"}`, "OTHER", "stop", false},
		"other, a call":      {`{"functionCall":{"name":"f"}}`, "OTHER", "tool_calls", false},
		"other, nothing":     {``, "OTHER", "", true},
		"new, text":          {`{"text":"a"}`, "NEVER_HEARD_OF", "stop", false},
		"new, nothing":       {``, "NEVER_HEARD_OF", "", true},
	} {
		whole := `{"candidates":[{"content":{"parts":[` + c.parts + `]},"finishReason":"` + c.reason + `"}]}`
		out := relay(servedText(event(whole)))
		_, err := servedText(whole).Complete(t.Context(), request(false))
		if c.finish != "" {
			if finish := last(shape(t, out.frames)); finish != c.finish || !errors.Is(out.err, io.EOF) || err != nil {
				t.Errorf("%s: %s, %v, %v", what, finish, out.err, err)
			}
			continue
		}
		if e := fault(t, out.err); e.Retry != c.retry || !errors.Is(e, errNoUse) {
			t.Errorf("%s: %+v", what, e)
		}
		if e := fault(t, err); e.Retry != (e.Unusable == "") || !errors.Is(e, errNoUse) { // nothing was sent of it
			t.Errorf("%s: %+v", what, e)
		}
	}
}

// TestEdge36FailuresWithin: what came before goes out, then an error; and it is
// too late for another try.
func TestEdge36FailuresWithin(t *testing.T) {
	t.Parallel()
	reset := errors.New("connection reset by peer")
	for what, rest := range map[string]io.Reader{
		"silent end":            strings.NewReader(""),
		"half an event":         strings.NewReader(says("b")[:30]),
		"reset":                 iotest.ErrReader(reset),
		"an error":              strings.NewReader(event(overloaded) + says("b") + event(stopped)),
		"an error in an array":  strings.NewReader(event("[" + overloaded + "]")),
		"an error of the app's": strings.NewReader(event(invalid)),
		"an odd error":          strings.NewReader(event(unknownKind)),
		"an error event":        strings.NewReader("event: error\n" + says("b") + event(stopped)),
		"not JSON":              strings.NewReader(event("<html>") + event(stopped)),
		"OpenAI's end":          strings.NewReader(event("[DONE]")),
		"not UTF-8":             strings.NewReader(says("\xe9") + event(stopped)),
		"odd parts": strings.NewReader(event(`{"candidates":[{"content":{"parts":[{"text":1}]}}]}`) +
			event(stopped)),
		"an odd call": strings.NewReader(
			event(`{"candidates":[{"content":{"parts":[{"functionCall":{"args":[]}}]}}]}`) + event(stopped)),
	} {
		out := relay(served(func(context.Context) io.Reader {
			return io.MultiReader(strings.NewReader(says("a")), rest)
		}))
		if got := strings.Join(shape(t, out.frames), " "); got != "role text" || out.usage != nil || out.err == nil ||
			errors.Is(out.err, io.EOF) {
			t.Errorf("%s: %s", what, out)
		}
		var e *provider.Error
		if errors.As(out.err, &e) && (fault(t, out.err).Retry || e.RetryAfter != 0) {
			t.Errorf("%s: %+v", what, e)
		}
	}
}

// TestEdge36FailuresAtOnce: nothing was sent, so the failure keeps its meaning.
func TestEdge36FailuresAtOnce(t *testing.T) {
	t.Parallel()
	usageOnly := event(`{"usageMetadata":{"promptTokenCount":3}}`)
	for what, c := range map[string]struct {
		text  string
		retry bool
	}{
		"an error":                {event(overloaded), true},
		"an error in an array":    {event("[" + overloaded + "]"), true},
		"an error after silence":  {usageOnly + event(overloaded) + says("a"), true},
		"nothing":                 {"", true},
		"nothing but usage":       {usageOnly, true},
		"a page":                  {"<!doctype html>", true},
		"not JSON":                {event("hello"), false},
		"an error without a code": {event(`{"error":{"message":"odd"}}`), true},
	} {
		s, err := servedText(c.text).Stream(t.Context(), request(true))
		if e := fault(t, err); s != nil || e.Retry != c.retry {
			t.Errorf("%s: %+v", what, e)
		}
	}
	_, err := servedText(event(invalid)).Stream(t.Context(), request(true))
	var e *provider.Error
	if !errors.As(err, &e) || e.Kind != provider.Rejected || e.Retry ||
		e.Message != "the provider refused the request: Invalid value at 'contents' for key [removed]" {
		t.Errorf("%+v", err)
	}
}

// TestEdge38UsageOnEveryChunk: cumulative, not summed; thoughts are output.
func TestEdge38UsageOnEveryChunk(t *testing.T) {
	t.Parallel()
	want := provider.Usage{Input: 3, Cached: 4, Output: 29, Reasoning: 20}
	if out := relayFixture(t, "text"); out.usage == nil || *out.usage != want {
		t.Errorf("%+v", out.usage)
	}
	// What a later chunk leaves out, or says is 0, still counts.
	out := relay(servedText(event(
		`{"usageMetadata":{"promptTokenCount":7,"cachedContentTokenCount":4,"thoughtsTokenCount":20}}`) +
		says("a") + event(
		`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":7,"cachedContentTokenCount":0,"candidatesTokenCount":9}}`)))
	if out.usage == nil || *out.usage != want {
		t.Errorf("%+v", out.usage)
	}
}

// TestUsageThatIsNotTrue: such a stream is whole, but its charge is estimated.
func TestUsageThatIsNotTrue(t *testing.T) {
	t.Parallel()
	for what, usage := range map[string]string{
		"negative":          `{"promptTokenCount":-3,"candidatesTokenCount":2}`,
		"nothing generated": `{"promptTokenCount":3}`,
		"no list":           `[]`,
		"no input":          `{"candidatesTokenCount":2}`,
		"only a total":      `{"promptTokenCount":3,"totalTokenCount":5}`,
	} {
		out := relay(servedText(says("a") +
			event(`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":`+usage+`}`)))
		if out.usage != nil || out.usageFrame != "" || !errors.Is(out.err, io.EOF) ||
			last(shape(t, out.frames)) != "stop" {
			t.Errorf("%s: %s", what, out)
		}
	}
}

// TestUsageWithAnotherSum: the parts of a usage count, whole and streamed, and its sum is noted.
func TestUsageWithAnotherSum(t *testing.T) {
	t.Parallel()
	body := `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}],` +
		`"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"totalTokenCount":6}}`
	want := &provider.Usage{Input: 3, Output: 2, SumDiffers: true}
	if d := cmp.Diff(want, relay(servedText(event(body))).usage); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(want, complete(t, body).Usage); d != "" {
		t.Error(d)
	}
}

// TestAfterTheFinishReason: the answer is whole, whatever becomes of the
// connection. A count from before it is not the last one if the end is missing.
func TestAfterTheFinishReason(t *testing.T) {
	t.Parallel()
	reset := iotest.ErrReader(errors.New("connection reset by peer"))
	early := event(`{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1}}`)
	bare := event(`{"candidates":[{"finishReason":"STOP"}]}`)
	for what, c := range map[string]struct {
		body io.Reader
		want *provider.Usage
	}{
		"an end": {strings.NewReader(says("a") + event(stopped)), &provider.Usage{Input: 3, Output: 2}},
		"a reset": {io.MultiReader(strings.NewReader(says("a")+event(stopped)), reset),
			&provider.Usage{Input: 3, Output: 2}},
		"usage behind": {strings.NewReader(says("a") + bare +
			event(`{"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2}}`)), &provider.Usage{
			Input:  3,
			Output: 2,
		}},
		"usage before, an end":  {strings.NewReader(early + bare), &provider.Usage{Input: 3, Output: 1}},
		"usage before, a reset": {io.MultiReader(strings.NewReader(early+bare), reset), nil},
		"no usage":              {strings.NewReader(says("a") + bare), nil},
	} {
		out := relay(served(func(context.Context) io.Reader { return c.body }))
		if got := strings.Join(shape(t, out.frames), " "); got != "role text stop" || !errors.Is(out.err, io.EOF) {
			t.Errorf("%s: %s", what, out)
		}
		if d := cmp.Diff(c.want, out.usage); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
}

// TestFinishReasonInEachChunk: from a server that sends a finish reason with every chunk, only the end of the body is
// the end of the answer, however long it pauses.
func TestFinishReasonInEachChunk(t *testing.T) {
	t.Parallel()
	part := func(text string) string {
		return event(`{"candidates":[{"content":{"parts":[{"text":"` + text + `"}]},"finishReason":"STOP"}],` +
			`"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2}}`)
	}
	synctest.Test(t, func(t *testing.T) {
		serve := func(last func(context.Context) io.Reader) relayed {
			return relay(served(func(ctx context.Context) io.Reader {
				return io.MultiReader(strings.NewReader(part("a")), strings.NewReader(part("b")), last(ctx))
			}))
		}
		out := serve(func(context.Context) io.Reader { return strings.NewReader(part("c")) })
		got := strings.Join(shape(t, out.frames), " ")
		if got != "role text text text stop" || !errors.Is(out.err, io.EOF) || out.usage == nil {
			t.Errorf("whole: %s", out)
		}
		out = serve(func(context.Context) io.Reader {
			return iotest.ErrReader(errors.New("connection reset by peer"))
		})
		if out.err == nil || errors.Is(out.err, io.EOF) || out.usage != nil {
			t.Errorf("reset: %s", out)
		}
		begun := time.Now()
		out = serve(func(ctx context.Context) io.Reader { return hangs{ctx} })
		if !errors.Is(out.err, upstream.ErrSilent) || time.Since(begun) != 5*time.Minute {
			t.Errorf("silence: %s after %v", out, time.Since(begun))
		}
	})
}

// TestWholeAnswerToAStream: what comes whole is relayed as one chunk, and an error in its place is that error.
func TestWholeAnswerToAStream(t *testing.T) {
	t.Parallel()
	whole := func(text string) relayed {
		c := servedText(text)
		c.http.Transport = withType{c.http.Transport}
		return relay(c)
	}
	out := whole(`{"candidates":[{"content":{"parts":[{"text":"Hé"}]},"finishReason":"STOP"}],` +
		`"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2}}`)
	if !strings.Contains(out.frames, `"content":"Hé"`) || !strings.Contains(out.frames, `"finish_reason":"stop"`) ||
		out.usage == nil || !errors.Is(out.err, io.EOF) {
		t.Errorf("%s", out)
	}
	out = whole(`{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}`)
	if e, ok := errors.AsType[*provider.Error](out.err); !ok || e.Kind != provider.Rejected || e.Retry {
		t.Errorf("%s", out)
	}
}

// withType makes responses JSON.
type withType struct{ http.RoundTripper }

func (w withType) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Header.Set("Content-Type", "application/json")
	}
	return resp, err
}

// hangs is a body that is silent until the request is canceled.
type hangs struct{ ctx context.Context }

func (h hangs) Read([]byte) (int, error) {
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}

// TestSilence: within an answer it is a fault, after the finish reason it is not
// waited for long.
func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			text string
			err  error
			wait time.Duration
		}{
			"within": {says("a"), upstream.ErrSilent, 5 * time.Minute},
			"after":  {says("a") + event(stopped), io.EOF, finishWait},
		} {
			begun := time.Now()
			out := relay(served(func(ctx context.Context) io.Reader {
				return io.MultiReader(strings.NewReader(c.text), hangs{ctx})
			}))
			if !errors.Is(out.err, c.err) || time.Since(begun) != c.wait {
				t.Errorf("%s: %v after %v", what, out.err, time.Since(begun))
			}
		}
	})
}

// TestCloseWhileNextWaits: from another goroutine.
func TestCloseWhileNextWaits(t *testing.T) {
	t.Parallel()
	s, err := served(func(ctx context.Context) io.Reader {
		return io.MultiReader(strings.NewReader(says("a")), hangs{ctx})
	}).Stream(t.Context(), request(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := s.Next()
		ended <- err
	}()
	_ = s.Close() // never fails
	if err := <-ended; err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Next says %v", err)
	}
	_ = s.Close()
}

// TestStreamsSideBySide: buffers that are used again never mix two answers.
func TestStreamsSideBySide(t *testing.T) {
	t.Parallel()
	errs := make(chan error)
	for _, name := range []string{"ann", "bob", "cid"} {
		go func() {
			for range 50 {
				text := strings.Repeat(says(name), 20) + event(stopped)
				out := relay(served(func(context.Context) io.Reader {
					return iotest.HalfReader(strings.NewReader(text))
				}))
				if provider.GeneratedText([]byte(out.frames)) != strings.Repeat(name, 20) {
					errs <- errors.New(out.frames)
					return
				}
			}
			errs <- nil
		}()
	}
	for range 3 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestChunksTakeNoMemory: a long stream takes no more than a short one.
func TestChunksTakeNoMemory(t *testing.T) {
	memory := func(chunks int) float64 {
		text := strings.Repeat(says("canned answer, "), chunks) + event(stopped)
		c := served(func(context.Context) io.Reader { return strings.NewReader(text) })
		return testing.AllocsPerRun(10, func() {
			s, err := c.Stream(context.Background(), request(true))
			for err == nil {
				_, err = s.Next()
			}
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		})
	}
	if short, long := memory(10), memory(1010); long-short > 10 {
		t.Errorf("%v allocations for 10 chunks, %v for 1,010", short, long)
	}
}
