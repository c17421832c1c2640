package mock_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/mock"
	"github.com/purserhq/purser/internal/models/tokens"
)

var clock = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newMock() *mock.Provider {
	return mock.New(tokens.Count, func(r *provider.Request) int64 {
		return tokens.CountRequest(r, "gpt-6")
	}, func() time.Time {
		return clock
	}, 10*mock.MaxWords)
}

func ask(texts ...string) *provider.Request {
	r := &provider.Request{Model: "gpt-6-luna", MaxTokens: 1000}
	for i, t := range texts {
		r.Turns = append(r.Turns, conversation.Say([]string{"user", "assistant"}[i%2], t))
	}
	return r
}

// completion is OpenAI's shape, whole or as a chunk.
type completion struct {
	ID, Object, Model string
	Created           int64
	Choices           []struct {
		Index          int
		Message, Delta struct {
			Role      string
			Content   *string
			ToolCalls []struct {
				Index    int
				ID, Type string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		FinishReason *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     json.Number `json:"prompt_tokens"`
		Completion json.Number `json:"completion_tokens"`
	}
}

func decode(t *testing.T, text []byte) completion {
	t.Helper()
	var c completion
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return c
}

func complete(t *testing.T, r *provider.Request) (completion, *provider.Response) {
	t.Helper()
	got, err := newMock().Complete(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, got.Body), got
}

// streamed is a stream as an app sees it.
type streamed struct {
	chunks     []completion
	text       string
	finish     string
	usage      *provider.Usage
	usageFrame []byte
	err        error
}

func stream(t *testing.T, ctx context.Context, r *provider.Request) (out streamed) {
	t.Helper()
	s, err := newMock().Stream(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var all []byte
	for {
		c, err := s.Next()
		if err != nil {
			out.err, out.text = err, provider.GeneratedText(all)
			return out
		}
		all = append(all, c.Frames...)
		for _, f := range [][]byte{c.Frames, c.UsageFrame} {
			if f != nil {
				payload, _ := strings.CutPrefix(strings.TrimSpace(string(f)), "data: ")
				out.chunks = append(out.chunks, decode(t, []byte(payload)))
			}
		}
		if c.UsageFrame != nil {
			out.usage, out.usageFrame = c.Usage, c.UsageFrame
		} else if f := out.chunks[len(out.chunks)-1].Choices[0].FinishReason; f != nil {
			out.finish = *f
		}
	}
}

func TestAnswersAreCannedAndCounted(t *testing.T) {
	t.Parallel()
	r := ask("What is the capital of France, and how many people live there?")
	c, got := complete(t, r)
	text := *c.Choices[0].Message.Content
	if c.Object != "chat.completion" || c.Model != "gpt-6-luna" || c.Created != clock.Unix() ||
		!strings.HasPrefix(c.ID, "chatcmpl-") || *c.Choices[0].FinishReason != "stop" {
		t.Errorf("%s", got.Body)
	}
	if !strings.Contains(text, "You said “What is the capital of France, …”.") {
		t.Errorf("text %q", text)
	}
	want := provider.Usage{Input: tokens.CountRequest(r, "gpt-6"), Output: int64(tokens.Count(text))}
	if got.Usage == nil || *got.Usage != want || c.Usage.Prompt.String() != itoa(want.Input) ||
		c.Usage.Completion.String() != itoa(want.Output) {
		t.Errorf("usage %+v, want %+v", got.Usage, want)
	}
	if _, again := complete(t, r); string(again.Body) != string(got.Body) {
		t.Errorf("then %s", again.Body)
	}
	seen := map[string]bool{}
	for _, other := range []*provider.Request{r, ask("What?"), ask("What"), ask("What?", "That.", "What?"), ask("")} {
		c, _ := complete(t, other)
		if text := *c.Choices[0].Message.Content; seen[text] {
			t.Errorf("twice: %q", text)
		} else {
			seen[text] = true
		}
	}
}

func TestStreamIsTheSameAnswer(t *testing.T) {
	t.Parallel()
	r := ask("Hello there")
	whole, got := complete(t, r)
	s := stream(t, t.Context(), r)
	if s.text != *whole.Choices[0].Message.Content || s.finish != "stop" || !errors.Is(s.err, io.EOF) {
		t.Errorf("%+v", s)
	}
	if d := cmp.Diff(got.Usage, s.usage); d != "" {
		t.Error(d)
	}
	first, last := s.chunks[0], s.chunks[len(s.chunks)-1]
	if d := first.Choices[0].Delta; d.Role != "assistant" || d.Content == nil || *d.Content != "" ||
		first.Usage != nil {
		t.Errorf("first %+v", first)
	}
	if len(last.Choices) != 0 || last.Usage == nil {
		t.Errorf("last %+v", last)
	}
	for _, c := range s.chunks {
		if c.ID != whole.ID || c.Object != "chat.completion.chunk" || c.Created != whole.Created ||
			c.Model != whole.Model {
			t.Errorf("%+v", c)
		}
	}
	if n := len(s.chunks); n < 10 {
		t.Errorf("%d chunks only", n)
	}
	if kind, _ := provider.Classify(s.usageFrame[len("data: "):]); kind != provider.UsageOnly {
		t.Errorf("usage in %s", s.usageFrame)
	}
}

func TestMaxTokensAndStop(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{1, 2, 3, 7, 20, 41} {
		r := ask("Tell me something long about 日本語")
		r.MaxTokens = limit
		c, got := complete(t, r)
		if got.Usage.Output != limit || *c.Choices[0].FinishReason != "length" ||
			int64(tokens.Count(*c.Choices[0].Message.Content)) != limit {
			t.Errorf("max_tokens %d: %s", limit, got.Body)
		}
	}
	r := ask("Hello")
	r.Stop = []string{"", "answer", "no such text", " You"}
	c, got := complete(t, r)
	if text := *c.Choices[0].Message.Content; strings.Contains(text, "answer") || strings.Contains(text, " You") ||
		*c.Choices[0].FinishReason != "stop" || got.Usage.Output != int64(tokens.Count(text)) {
		t.Errorf("%s", got.Body)
	}
}

func TestTools(t *testing.T) {
	t.Parallel()
	r := ask("What time is it?")
	r.Tools = []provider.Tool{{Name: "first"}, {Name: "second"}}
	asked := append(r.Turns,
		conversation.Turn{Role: "assistant", Blocks: []conversation.Block{
			{Kind: conversation.CallBlock, ID: "call_1", Name: "first", Arguments: "{}"},
		}},
		conversation.Turn{Role: "tool", Blocks: []conversation.Block{
			{Kind: conversation.ResultBlock, ID: "call_1", Blocks: []conversation.Block{{Text: "noon"}}},
		}})
	for _, c := range []struct {
		choice   provider.ToolChoice
		messages []conversation.Turn
		want     string
	}{
		{provider.ToolChoice{}, r.Turns, "first"},
		{provider.ToolChoice{Mode: "auto"}, r.Turns, "first"},
		{provider.ToolChoice{Mode: "required"}, r.Turns, "first"},
		{provider.ToolChoice{Mode: "function", Name: "second"}, r.Turns, "second"},
		{provider.ToolChoice{Mode: "none"}, r.Turns, ""},
		{provider.ToolChoice{}, asked, ""},
		{provider.ToolChoice{Mode: "function", Name: "second"}, asked, ""},
	} {
		r.ToolChoice, r.Turns = c.choice, c.messages
		whole, got := complete(t, r)
		s := stream(t, t.Context(), r)
		m := whole.Choices[0].Message
		if c.want == "" {
			if m.Content == nil || *m.Content == "" || m.ToolCalls != nil || *whole.Choices[0].FinishReason != "stop" ||
				s.text != *m.Content || s.finish != "stop" {
				t.Errorf("%+v: %s", c.choice, got.Body)
			}
			continue
		}
		if m.Content != nil || len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Name != c.want ||
			m.ToolCalls[0].Function.Arguments != "{}" || m.ToolCalls[0].Type != "function" ||
			*whole.Choices[0].FinishReason != "tool_calls" || got.Usage.Output != int64(tokens.Count(c.want)+1) {
			t.Errorf("%+v: %s", c.choice, got.Body)
		}
		first := s.chunks[0].Choices[0].Delta
		if s.text != c.want+"{}" || s.finish != "tool_calls" || first.Role != "assistant" ||
			first.ToolCalls[0].ID != m.ToolCalls[0].ID || first.ToolCalls[0].Function.Arguments != "" {
			t.Errorf("%+v: %+v", c.choice, s)
		}
	}
}

func TestResponseFormats(t *testing.T) {
	t.Parallel()
	schema := `{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object","properties":{
		"name":{"type":"string"},"age":{"type":"integer","minimum":18},"kind":{"enum":["big","small"]},"tags":{"type":"array","items":{"type":"boolean"},"minItems":2},
		"note":{"type":["null","string"]},"more":{"anyOf":[{"type":"number"}]},"one":{"const":1},"sub":{"type":"object","properties":{"a":{"type":"array"}}}}}}}`
	deep := `{"type":"json_schema","json_schema":{"schema":` +
		strings.Repeat(`{"type":"array","minItems":1000000,"items":`, 20) + `{}` + strings.Repeat("}", 20) + `}}`
	for format, want := range map[string]string{
		schema:                   `{"age":18,"kind":"big","more":0,"name":"mock","note":null,"one":1,"sub":{"a":[]},"tags":[true,true]}`,
		deep:                     "",
		`{"type":"json_object"}`: "",
		`{"type":"json_schema","json_schema":{"name":"a"}}`:             "",
		`{"type":"json_schema","json_schema":{"name":"a","schema":{}}}`: "{}",
	} {
		r := ask("Give me JSON")
		r.MaxTokens, r.ResponseFormat = 100_000, json.RawMessage(format)
		c, _ := complete(t, r)
		if text := *c.Choices[0].Message.Content; !json.Valid([]byte(text)) || want != "" && text != want ||
			len(text) > 20_000 {
			t.Errorf("%.200s: %.200s", format, text)
		}
	}
	r := ask("Give me text")
	r.ResponseFormat = json.RawMessage(`{"type":"text"}`)
	if c, _ := complete(t, r); !strings.Contains(*c.Choices[0].Message.Content, "You said") {
		t.Errorf("%+v", c)
	}
}

func TestScriptedStatus(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]provider.Error{
		"status=502": {Kind: provider.Failed, Status: 502},
		"status=500": {Kind: provider.Failed, Status: 500},
		"status=401": {Kind: provider.Failed, Status: 401},
		"status=429": {Kind: provider.Failed, Status: 429, RetryAfter: time.Second},
		"status=400": {Kind: provider.Rejected, Status: 400},
		"cut=0":      {Kind: provider.Failed},
	} {
		r := ask("Hello\n!mock " + word + "\nplease")
		_, err := newMock().Complete(t.Context(), r)
		_, err2 := newMock().Stream(t.Context(), r)
		for _, err := range []error{err, err2} {
			var e *provider.Error
			if !errors.As(err, &e) || e.Kind != want.Kind || e.Status != want.Status ||
				e.RetryAfter != want.RetryAfter {
				t.Errorf("%s: %v", word, err)
			}
		}
	}
}

// TestOnlyTheLastUserMessageIsAScript, and only its lines that begin so.
func TestOnlyTheLastUserMessageIsAScript(t *testing.T) {
	t.Parallel()
	for _, r := range []*provider.Request{
		ask("!mock status=502", "no", "Hello"), ask("Hello", "!mock status=502"), ask("say !mock status=502"),
		ask("!mockstatus=502"),
		ask("!mock status=200 status=abc status=-1 status=9999 cut=-1 pace=-5s hello words= =5"),
	} {
		if _, err := newMock().Complete(t.Context(), r); err != nil {
			t.Errorf("%+v: %v", r.Turns, err)
		}
	}
	if c, _ := complete(t, ask("Hello\n!mock words=20\nyou")); !strings.Contains(*c.Choices[0].Message.Content,
		"“Hello you”") {
		t.Errorf("a script is no part of the conversation: %+v", c)
	}
	r := ask("")
	r.Turns[0].Blocks = []conversation.Block{{Text: "Hello"}, {Text: "!mock status=502"}}
	r.Turns = append(r.Turns, conversation.Say("assistant", "Hi"))
	if _, err := newMock().Complete(t.Context(), r); err == nil {
		t.Error("a script in a part is not heard")
	}
}

func TestScriptedUsage(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"none":     "",
		"wrong":    `"completion_tokens":-5`,
		"fraction": `.5,"total_tokens"`,
	} {
		r := ask("!mock usage=" + word)
		_, got := complete(t, r)
		s := stream(t, t.Context(), r)
		if got.Usage != nil || s.usage != nil || !strings.Contains(string(got.Body), want) ||
			!strings.Contains(string(s.usageFrame), want) {
			t.Errorf("%s: %+v, %+v, %s", word, got.Usage, s.usage, got.Body)
		}
		if word == "none" && (strings.Contains(string(got.Body), `"usage"`) || s.usageFrame != nil) {
			t.Errorf("usage all the same: %s", got.Body)
		}
	}
	r := ask("!mock usage=huge")
	if _, got := complete(t, r); got.Usage == nil || got.Usage.Output < 100*r.MaxTokens {
		t.Errorf("huge: %+v", got.Usage)
	}
}

func TestScriptedShape(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 5, 40, 900} {
		r := ask("!mock words=" + itoa(n))
		r.MaxTokens = 5000
		c, _ := complete(t, r)
		if got := len(strings.Fields(*c.Choices[0].Message.Content)); got != n {
			t.Errorf("words=%d: %d", n, got)
		}
	}
	r := ask("!mock words=100 chunks=7")
	s := stream(t, t.Context(), r)
	if got := len(s.chunks) - 3; got != 7 { // role, finish, usage
		t.Errorf("%d chunks of text", got)
	}
	whole, _ := complete(t, r)
	if s.text != *whole.Choices[0].Message.Content {
		t.Errorf("%q", s.text)
	}
	for n, want := range map[int]bool{1: true, 3: true, 9: true, 10: false, 11: false} {
		s := stream(t, t.Context(), ask("!mock words=100 chunks=7 cut="+itoa(n)))
		if cut := !errors.Is(s.err, io.EOF); cut != want ||
			cut && (len(s.chunks) != n || s.usage != nil || !errors.Is(s.err, io.ErrUnexpectedEOF)) {
			t.Errorf("cut=%d: %d chunks, %v", n, len(s.chunks), s.err)
		}
	}
}

// TestShortWords: !slow and !cut are pace= and cut=, and no part of the conversation.
func TestShortWords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		s := stream(t, t.Context(), ask("Hello\n!mock chunks=7 words=100\n!slow 200ms\n!cut 5\nyou"))
		if len(s.chunks) != 5 || !errors.Is(s.err, io.ErrUnexpectedEOF) || time.Since(begun) != 800*time.Millisecond {
			t.Errorf("%d chunks in %v, %v", len(s.chunks), time.Since(begun), s.err)
		}
		begun = time.Now()
		s = stream(t, t.Context(), ask("Hello\n!slow 10m\nyou"))
		if !errors.Is(s.err, io.EOF) || time.Since(begun) != time.Minute || !strings.Contains(s.text, "“Hello you”") {
			t.Errorf("after %v, %v: %s", time.Since(begun), s.err, s.text)
		}
		for _, text := range []string{"!slowly 5s", "!slow", "!slow down", "!cut", "!cut off", "!cutting 1",
			"so !cut 1"} {
			begun = time.Now()
			if s := stream(t, t.Context(), ask(text)); !errors.Is(s.err, io.EOF) || time.Since(begun) != 0 {
				t.Errorf("%q: %v after %v", text, s.err, time.Since(begun))
			}
		}
	})
}

func itoa[T int | int64](n T) string {
	text, _ := json.Marshal(n) // a number is always JSON
	return string(text)
}

func TestScriptedWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for script, want := range map[string]time.Duration{
			"delay=200ms chunks=3":        200 * time.Millisecond,
			"delay=1s pace=50ms chunks=3": 1250 * time.Millisecond, // five pauses between six chunks
			"delay=10m chunks=3":          time.Minute,
			"pace=25s chunks=40":          time.Minute,
		} {
			begun := time.Now()
			if s := stream(t, t.Context(), ask("!mock "+script)); !errors.Is(s.err, io.EOF) ||
				time.Since(begun) != want {
				t.Errorf("%s: after %v, %v", script, time.Since(begun), s.err)
			}
		}
		for _, script := range []string{"!mock delay=30s", "!mock pace=30s"} {
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
			s, err := newMock().Stream(ctx, ask(script))
			for err == nil {
				_, err = s.Next()
				if script == "!mock delay=30s" {
					cancel() // it began: now the app's server gives up
				}
			}
			var e *provider.Error
			if since := time.Since(begun); !errors.As(err, &e) || !errors.Is(err, ctx.Err()) || since > 45*time.Second {
				t.Errorf("%s: after %v, %v", script, since, err)
			}
			cancel()
		}
	})
}

// TestScriptsAreBounded: where strangers write scripts, a text has at most MaxWords words, and a
// stream holds its text and one chunk, however many chunks the script asks for.
func TestScriptsAreBounded(t *testing.T) {
	t.Parallel()
	p := mock.New(tokens.Count, func(*provider.Request) int64 { return 1 }, func() time.Time { return clock },
		mock.MaxWords)
	r := ask("!mock words=20000 chunks=20000")
	r.MaxTokens = 60_000
	got, err := p.Complete(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(*decode(t, got.Body).Choices[0].Message.Content)); n != mock.MaxWords {
		t.Errorf("%d words", n)
	}
	s, err := p.Stream(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	chunks := 0
	for ; err == nil; chunks++ {
		_, err = s.Next()
	}
	if chunks != mock.MaxWords+4 || !errors.Is(err, io.EOF) { // role, text, finish reason, usage, and the end
		t.Errorf("%d chunks, %v", chunks, err)
	}
}
