// Package mock is the provider of mock mode (spec §4.3): it answers every model
// with canned text, the same for the same conversation, with real token counts,
// so that its calls cost what live ones would.
//
// With tools it calls the first one, or the forced one, with an empty arguments
// object, and answers in text once the last message is a tool result.
//
// A line of the last user message that begins with "!mock " asks for a fault or
// a shape. Its words:
//
//	status=502    fail with this status before the first byte (400, 429, 500…)
//	cut=3         break a stream off after three chunks
//	usage=none    report no usage; also wrong (negative), fraction, huge
//	delay=200ms   wait before the answer
//	pace=50ms     wait between chunks
//	words=40      answer in so many words
//
// Waiting is bounded to a minute in all, and ends with the call.
package mock

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"strings"
	"time"

	"purser/internal/provider"
)

// maxWait bounds what a script may wait in all.
const maxWait = time.Minute

// Provider answers in mock mode.
type Provider struct {
	count func(string) int
	input func(*provider.Request) int64
	now   func() time.Time
}

// New returns a provider that counts output with count, and input the way the
// hold's estimate does.
func New(count func(string) int, input func(*provider.Request) int64, now func() time.Time) *Provider {
	return &Provider{count, input, now}
}

// Name is mock: it stands for all providers.
func (p *Provider) Name() string { return "mock" }

// answer is what one request gets.
type answer struct {
	script
	id      string
	created int64
	model   string
	text    string
	call    string // name of the tool that is called, "" = none
	callID  string
	finish  string
	input   int64
	output  int64
}

// script is what the last user message asks for.
type script struct {
	status int
	cut    int // -1 = never
	usage  string
	delay  time.Duration
	pace   time.Duration
	words  int
}

// Complete answers a whole request.
func (p *Provider) Complete(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	a, err := p.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	if a.cut >= 0 {
		return nil, cutOff()
	}
	message := map[string]any{"role": "assistant", "content": a.text, "refusal": nil}
	if a.call != "" {
		message["content"], message["tool_calls"] = nil, []any{map[string]any{"id": a.callID, "type": "function", "function": map[string]any{"name": a.call, "arguments": "{}"}}}
	}
	body := map[string]any{
		"id": a.id, "object": "chat.completion", "created": a.created, "model": a.model,
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": a.finish, "logprobs": nil}},
	}
	var usage *provider.Usage
	if raw := a.usageJSON(); raw != nil {
		body["usage"], usage = raw, provider.ParseUsage(raw)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &provider.Response{Body: text, Usage: usage}, nil
}

// Stream answers a streamed request.
func (p *Provider) Stream(ctx context.Context, r *provider.Request) (provider.Stream, error) {
	a, err := p.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	if a.cut == 0 {
		return nil, cutOff()
	}
	return &stream{ctx: ctx, a: a, chunks: a.chunks()}, nil
}

func cutOff() error {
	return &provider.Error{Message: "the provider failed", Cause: io.ErrUnexpectedEOF}
}

// begin composes the answer, waits and fails as the script says.
func (p *Provider) begin(ctx context.Context, r *provider.Request) (*answer, error) {
	a := p.compose(r)
	if err := wait(ctx, a.delay); err != nil {
		return nil, err
	}
	switch {
	case a.status == 0 || a.status == 200:
		return a, nil
	case a.status == 400:
		return nil, &provider.Error{Kind: provider.Rejected, Status: 400, Message: "the provider refused the request: as the script asked"}
	}
	return nil, &provider.Error{Status: a.status, Message: "the provider failed", Cause: fmt.Errorf("scripted status %d", a.status)}
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &provider.Error{Message: "the provider failed", Cause: ctx.Err()}
	}
}

func (p *Provider) compose(r *provider.Request) *answer {
	h := fnv.New64a()
	for _, m := range r.Messages {
		fmt.Fprint(h, m.Role, "\x00", textOf(&m), "\x00", m.ToolCallID, "\x00")
	}
	seed := h.Sum64()
	a := &answer{
		script: readScript(r.Messages), id: fmt.Sprintf("chatcmpl-mock%016x", seed), created: p.now().Unix(), model: r.Model,
		finish: "stop", input: p.input(r),
	}
	if a.call = calls(r); a.call != "" {
		a.callID, a.finish = fmt.Sprintf("call_mock%016x", seed), "tool_calls"
		a.output = int64(p.count(a.call) + p.count("{}"))
		return a
	}
	a.text, a.output = p.limit(speak(r, seed, a.words), r, a)
	return a
}

// calls returns the tool that the model calls: the forced one, or the first,
// unless the last message already is a tool's result.
func calls(r *provider.Request) string {
	switch {
	case len(r.Tools) == 0, r.ToolChoice.Mode == "none":
		return ""
	case len(r.Messages) > 0 && r.Messages[len(r.Messages)-1].Role == "tool":
		return ""
	case r.ToolChoice.Mode == "function":
		return r.ToolChoice.Name
	}
	return r.Tools[0].Name
}

// limit cuts the text at a stop sequence and at max_tokens.
func (p *Provider) limit(text string, r *provider.Request, a *answer) (string, int64) {
	for _, stop := range r.Stop {
		text, _, _ = strings.Cut(text, stop)
	}
	if n := int64(p.count(text)); n <= r.MaxTokens {
		return text, n
	}
	a.finish = "length"
	words := strings.SplitAfter(text, " ")
	low, high := 0, len(words) // the most words that fit
	for low < high {
		mid := (low + high + 1) / 2
		if int64(p.count(strings.Join(words[:mid], ""))) <= r.MaxTokens {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return strings.Join(words[:low], ""), r.MaxTokens // a provider bills the cut token too
}

var openings = []string{
	"This is a canned answer from the mock provider.", "Here is a deterministic reply, made without any model.",
	"The mock provider read your message and answers the same every time.", "No model was called for this answer, and no real money was spent.",
}

var phrases = []string{
	"It counts tokens exactly as a live call would", "the ledger now holds one immutable row for it", "your app's margin is credited in the same step",
	"the user keeps control of the cap", "a retry with the same key replays this very text", "the price comes from the current price book",
	"the hold was released down to the real cost", "everything here can be checked with one command",
}

// speak makes readable text that depends on the conversation only.
func speak(r *provider.Request, seed uint64, words int) string {
	if r.ResponseFormat != nil {
		return fmt.Sprintf(`{"answer":"mock","seed":%d}`, seed%1_000_000)
	}
	var b strings.Builder
	b.WriteString(openings[seed%uint64(len(openings))])
	if words > 0 {
		for n := len(strings.Fields(b.String())); n < words; n++ {
			fmt.Fprintf(&b, " word%d", n)
		}
		return b.String()
	}
	for i := range uint64(3) {
		seed = seed*6364136223846793005 + 1442695040888963407 + i
		b.WriteString([]string{" ", "; ", ", and "}[i])
		b.WriteString(phrases[(seed>>33)%uint64(len(phrases))])
	}
	b.WriteString(".")
	return b.String()
}

func textOf(m *provider.Message) string {
	if m.Parts == nil {
		return m.Text
	}
	var b strings.Builder
	for _, p := range m.Parts {
		b.WriteString(p.Text)
		b.WriteString(p.ImageURL)
	}
	return b.String()
}

// readScript reads the "!mock" lines of the last user message. Words that it
// does not know are ignored: they are only text.
func readScript(messages []provider.Message) script {
	s := script{cut: -1}
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role != "user" {
			continue
		}
		for line := range strings.Lines(textOf(&messages[i])) {
			if words, ok := strings.CutPrefix(line, "!mock "); ok {
				for _, w := range strings.Fields(words) {
					s.set(w)
				}
			}
		}
		break
	}
	s.delay, s.pace = min(s.delay, maxWait), min(s.pace, maxWait/16)
	return s
}

func (s *script) set(word string) {
	name, value, _ := strings.Cut(word, "=")
	n, _ := strconv.Atoi(value)       // 0 for what is no number
	d, _ := time.ParseDuration(value) // likewise
	switch name {
	case "status":
		s.status = n
	case "cut":
		s.cut = n
	case "usage":
		s.usage = value
	case "delay":
		s.delay = d
	case "pace":
		s.pace = d
	case "words":
		s.words = min(n, 20_000)
	}
}

// usageJSON is the usage that is reported; nil for none.
func (a *answer) usageJSON() json.RawMessage {
	output := strconv.FormatInt(a.output, 10)
	switch a.usage {
	case "none":
		return nil
	case "wrong":
		output = "-5"
	case "fraction":
		output = "12.5"
	case "huge":
		return json.RawMessage(fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":900000000,"total_tokens":%d}`, a.input, a.input+900_000_000))
	}
	return json.RawMessage(fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%s,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}`,
		a.input, output, a.input+a.output))
}

// chunks are the payloads of the stream, without usage.
func (a *answer) chunks() [][]byte {
	deltas := []string{`{"role":"assistant","content":""}`}
	if a.call != "" {
		name, _ := json.Marshal(a.call) // a string is always JSON
		deltas = []string{
			fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":%q,"type":"function","function":{"name":%s,"arguments":""}}]}`, a.callID, name),
			`{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`,
		}
	} else {
		words := strings.SplitAfter(a.text, " ")
		for i := 0; i < len(words); i += 2 {
			text, _ := json.Marshal(strings.Join(words[i:min(i+2, len(words))], ""))
			deltas = append(deltas, `{"content":`+string(text)+`}`)
		}
	}
	var out [][]byte
	for _, d := range deltas {
		out = append(out, a.chunk(d, "null"))
	}
	return append(out, a.chunk("{}", strconv.Quote(a.finish)))
}

func (a *answer) chunk(delta, finish string) []byte {
	return fmt.Appendf(nil, `{"id":%q,"object":"chat.completion.chunk","created":%d,"model":%q,"choices":[{"index":0,"delta":%s,"finish_reason":%s,"logprobs":null}],"usage":null}`,
		a.id, a.created, a.model, delta, finish)
}

type stream struct {
	ctx    context.Context
	a      *answer
	chunks [][]byte
	n      int
}

// Next returns one chunk, and at the end the usage.
func (s *stream) Next() (provider.Chunk, error) {
	if s.n == s.a.cut {
		return provider.Chunk{}, io.ErrUnexpectedEOF
	}
	if s.n > 0 {
		if err := wait(s.ctx, s.a.pace); err != nil {
			return provider.Chunk{}, err
		}
	}
	n := s.n
	s.n++
	switch {
	case n < len(s.chunks):
		return provider.Chunk{Frames: provider.AppendFrame(nil, s.chunks[n])}, nil
	case n == len(s.chunks):
		usage := s.a.usageJSON()
		if usage == nil {
			return provider.Chunk{}, io.EOF
		}
		frame := provider.AppendFrame(nil, fmt.Appendf(nil, `{"id":%q,"object":"chat.completion.chunk","created":%d,"model":%q,"choices":[],"usage":%s}`, s.a.id, s.a.created, s.a.model, usage))
		return provider.Chunk{UsageFrame: frame, Usage: provider.ParseUsage(usage)}, nil
	}
	return provider.Chunk{}, io.EOF
}

// Close ends the stream.
func (s *stream) Close() error { return nil }
