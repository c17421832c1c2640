package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// Some models take tools only through the Responses API (provider
// notes A.10). Their answers are translated, so they always come as a stream, and one
// decoder decides what was said and what it costs, whole or streamed.

const responsesPath = "/responses"

// maxResponseEvent bounds an event, in bytes: the last one repeats the whole answer.
const maxResponseEvent = 32 << 20

// event is what a stream's event may hold of what we read.
type event struct {
	Type     string         `json:"type"`
	Delta    string         `json:"delta"`
	ItemID   string         `json:"item_id"`
	Item     jsontext.Value `json:"item"`
	Response *struct {
		Error      jsontext.Value `json:"error"`
		Usage      jsontext.Value `json:"usage"`
		Incomplete *struct {
			Reason string `json:"reason"`
		} `json:"incomplete_details"`
	} `json:"response"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// item is a piece of the output: reasoning, a message or a function_call.
type item struct {
	ID        string         `json:"id"`
	Type      string         `json:"type"`
	CallID    string         `json:"call_id"`
	Name      string         `json:"name"`
	Summary   jsontext.Value `json:"summary,omitzero"`
	Encrypted *string        `json:"encrypted_content,omitzero"`
}

// reply reads the events of one answer and writes it as OpenAI's chunks.
type reply struct {
	b       []byte // chunks that are to go out
	head    []byte // of each chunk, up to its delta
	top     int    // how much of head comes before the first choice
	begun   bool   // something of the answer came: before that, another try is free
	calls   []string
	thought []jsontext.Value // reasoning since the last call
	usage   *provider.Usage
	text    strings.Builder // of the whole answer, for Complete
	refusal strings.Builder
	tools   []provider.ToolCall
	reason  string
	size    int
}

func newReply(r *provider.Request, now time.Time) *reply {
	b := provider.AppendQuote([]byte(`data: {"id":`), "chatcmpl-"+strings.TrimPrefix(r.ID, "req_"))
	b = strconv.AppendInt(append(b, `,"object":"chat.completion.chunk","created":`...), now.Unix(), 10)
	b = append(provider.AppendQuote(append(b, `,"model":`...), r.Model), `,"choices":[`...)
	return &reply{top: len(b), head: append(b, `{"index":0,"delta":{`...)}
}

// event takes in one event; its shape is that of provider.SSE's Run.
func (y *reply) event(e provider.Event) (bool, error) {
	var v event
	if err := json.Unmarshal(e.Payload, &v); err != nil {
		return false, upstream.Failed(http.StatusOK,
			fmt.Errorf("the stream carries something else than events: %.200q", e.Payload))
	}
	if y.size += len(e.Payload); y.size > maxResponseEvent {
		return false, provider.ErrEventTooLong
	}
	switch v.Type {
	case "response.output_item.added":
		return false, y.open(v.Item)
	case "response.output_item.done":
		return false, y.close(v.Item)
	case "response.output_text.delta":
		y.text.WriteString(v.Delta)
		y.delta(`"content":`, v.Delta)
	case "response.refusal.delta":
		y.refusal.WriteString(v.Delta)
		y.delta(`"refusal":`, v.Delta)
	case "response.function_call_arguments.delta":
		return false, y.arguments(v.ItemID, v.Delta)
	case "response.completed", "response.incomplete":
		if v.Response == nil {
			return false, upstream.Failed(http.StatusOK, errors.New("the last event has no response"))
		}
		y.usage, y.reason = responsesUsage(v.Response.Usage), "stop"
		if v.Response.Incomplete != nil {
			y.reason = map[string]string{
				"max_output_tokens": "length",
				"content_filter":    "content_filter",
			}[v.Response.Incomplete.Reason]
		}
		y.finish()
		return false, errDone
	case "response.failed", "error":
		return false, y.failure(e.Payload, &v)
	}
	return false, nil // what we do not know, and what repeats what came
}

// failure is an error in place of the rest of the answer. Before its first word
// an overloaded provider may be asked again.
func (y *reply) failure(payload []byte, v *event) error {
	var inner struct {
		Code string `json:"code"`
	}
	if v.Response != nil && len(v.Response.Error) > 0 {
		_ = json.Unmarshal(v.Response.Error, &inner) // an odd one says nothing
	}
	e := upstream.Failed(http.StatusOK, fmt.Errorf("the stream carries an error: %.200q", payload))
	for _, code := range []string{v.Code, inner.Code} {
		e.Retry = e.Retry ||
			!y.begun && (code == "server_error" || code == "rate_limit_exceeded" || code == "server_is_overloaded")
	}
	return e
}

func (y *reply) begin() {
	if !y.begun {
		y.begun = true
		y.chunk(func(b []byte) []byte { return append(b, `"role":"assistant","content":"","refusal":null`...) }, "")
	}
}

// chunk appends one chunk; write appends what its delta holds.
func (y *reply) chunk(write func([]byte) []byte, finish string) {
	y.b = write(append(y.b, y.head...))
	y.b = append(y.b, `},"finish_reason":`...)
	if finish == "" {
		y.b = append(y.b, "null"...)
	} else {
		y.b = provider.AppendQuote(y.b, finish)
	}
	y.b = append(y.b, "}]}\n\n"...)
}

func (y *reply) delta(member, text string) {
	if text == "" {
		return
	}
	y.begin()
	y.chunk(func(b []byte) []byte { return provider.AppendQuote(append(b, member...), text) }, "")
}

// open begins an item. Calls are numbered by themselves: reasoning and messages
// have places in the output too.
func (y *reply) open(raw jsontext.Value) error {
	var i item
	if err := json.Unmarshal(raw, &i); err != nil {
		return upstream.Failed(http.StatusOK, fmt.Errorf("an item that is none: %w", err))
	}
	y.begin()
	if i.Type != "function_call" {
		return nil
	}
	if i.CallID == "" || i.Name == "" {
		return upstream.Failed(http.StatusOK, errors.New("a call without an id or a name"))
	}
	n := len(y.calls)
	y.calls = append(y.calls, i.ID)
	extra := thoughts(y.thought)
	y.thought = nil
	y.tools = append(y.tools, provider.ToolCall{ID: i.CallID, Name: i.Name, ExtraContent: extra})
	y.chunk(func(b []byte) []byte {
		b = strconv.AppendInt(append(b, `"tool_calls":[{"index":`...), int64(n), 10)
		b = provider.AppendQuote(append(b, `,"id":`...), i.CallID)
		b = provider.AppendQuote(append(b, `,"type":"function","function":{"name":`...), i.Name)
		return append(appendExtra(append(b, `,"arguments":""}`...), extra), "}]"...)
	}, "")
	return nil
}

// close ends an item: reasoning is whole only now. It goes with the next call.
func (y *reply) close(raw jsontext.Value) error {
	var i item
	if err := json.Unmarshal(raw, &i); err != nil {
		return upstream.Failed(http.StatusOK, fmt.Errorf("an item that is none: %w", err))
	}
	if i.Type == "reasoning" && i.Encrypted != nil {
		y.thought = append(y.thought, raw.Clone())
	}
	return nil
}

func (y *reply) arguments(itemID, piece string) error {
	n := len(y.calls) - 1
	for n >= 0 && y.calls[n] != itemID {
		n--
	}
	if n < 0 {
		return upstream.Failed(http.StatusOK, errors.New("arguments of no call"))
	}
	if piece != "" {
		y.argument(n, piece)
	}
	return nil
}

// argument adds to the arguments of the nth call.
func (y *reply) argument(n int, piece string) {
	y.tools[n].Arguments += piece
	y.chunk(func(b []byte) []byte {
		b = strconv.AppendInt(append(b, `"tool_calls":[{"index":`...), int64(n), 10)
		return append(provider.AppendQuote(append(b, `,"function":{"arguments":`...), piece), "}}]"...)
	}, "")
}

// finish writes the reason for the end; a reason that we do not know is an ordinary one.
func (y *reply) finish() {
	y.begin()
	for n := range y.tools {
		if y.tools[n].Arguments == "" { // none are needed, but clients parse them
			y.argument(n, "{}")
		}
	}
	switch {
	case len(y.tools) > 0 && (y.reason == "stop" || y.reason == ""):
		y.reason = "tool_calls"
	case y.reason == "":
		y.reason = "stop"
	}
	y.chunk(func(b []byte) []byte { return b }, y.reason)
}

func (y *reply) usageFrame() []byte {
	b := append(append([]byte{}, y.head[:y.top]...), `],"usage":`...)
	return append(appendUsage(b, y.usage), "}\n\n"...)
}

// body is the whole answer as one object.
func (y *reply) body() []byte {
	b := append([]byte{}, y.head[len("data: "):y.top]...)
	b = []byte(strings.Replace(string(b), "chat.completion.chunk", "chat.completion", 1))
	b = append(b, `{"index":0,"message":{"role":"assistant","content":`...)
	if y.text.Len() == 0 && (len(y.tools) > 0 || y.refusal.Len() > 0) {
		b = append(b, "null"...)
	} else {
		b = provider.AppendQuote(b, y.text.String())
	}
	b = append(b, `,"refusal":`...)
	if y.refusal.Len() == 0 {
		b = append(b, "null"...)
	} else {
		b = provider.AppendQuote(b, y.refusal.String())
	}
	for n := range y.tools {
		c := &y.tools[n]
		if n == 0 {
			b = append(b, `,"tool_calls":[`...)
		}
		b = provider.AppendQuote(append(comma(b, n), `{"id":`...), c.ID)
		b = provider.AppendQuote(append(b, `,"type":"function","function":{"name":`...), c.Name)
		b = append(provider.AppendQuote(append(b, `,"arguments":`...), c.Arguments), '}')
		b = append(appendExtra(b, c.ExtraContent), '}')
	}
	if len(y.tools) > 0 {
		b = append(b, ']')
	}
	b = append(provider.AppendQuote(append(b, `},"logprobs":null,"finish_reason":`...), y.reason), "}]"...)
	if y.usage != nil {
		b = appendUsage(append(b, `,"usage":`...), y.usage)
	}
	return append(b, '}')
}

// thoughts is the extra_content in which an app brings reasoning back.
func thoughts(list []jsontext.Value) []byte {
	if len(list) == 0 {
		return nil
	}
	b := []byte(`{"openai":{"reasoning":[`)
	for i, v := range list {
		b = append(comma(b, i), v...)
	}
	return append(b, "]}}"...)
}

func appendExtra(b, extra []byte) []byte {
	if len(extra) == 0 {
		return b
	}
	return append(append(b, `,"extra_content":`...), extra...)
}

// responsesUsage reads the usage into disjoint classes; nil when it cannot be true.
func responsesUsage(raw []byte) *provider.Usage {
	var u *struct {
		Input    *int64 `json:"input_tokens"`
		Output   *int64 `json:"output_tokens"`
		InputWas struct {
			Cached  int64 `json:"cached_tokens"`
			Written int64 `json:"cache_write_tokens"`
		} `json:"input_tokens_details"`
		OutputWas struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	}
	const most = 1 << 53
	if len(raw) == 0 || json.Unmarshal(raw, &u) != nil || u == nil || u.Input == nil || u.Output == nil ||
		*u.Input < 0 || *u.Output < 0 || *u.Input > most || *u.Output > most || u.InputWas.Cached < 0 ||
		u.InputWas.Written < 0 || u.OutputWas.Reasoning < 0 {
		return nil
	}
	input := *u.Input - u.InputWas.Cached - u.InputWas.Written
	if input < 0 || u.OutputWas.Reasoning > *u.Output {
		return nil
	}
	return &provider.Usage{
		Input:      input,
		Cached:     u.InputWas.Cached,
		CacheWrite: u.InputWas.Written,
		Output:     *u.Output,
		Reasoning:  u.OutputWas.Reasoning,
	}
}

// appendUsage writes usage in the shape of Chat Completions.
func appendUsage(b []byte, u *provider.Usage) []byte {
	input := u.Input + u.Cached + u.CacheWrite
	return fmt.Appendf(b,
		`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d},"completion_tokens_details":{"reasoning_tokens":%d}}`,
		input, u.Output, input+u.Output, u.Cached, u.CacheWrite, u.Reasoning)
}

// translated is a stream of the Responses API.
type translated struct {
	x      *upstream.Exchange
	events *provider.SSE
	reply  *reply
	unread bool // what came first is still to be returned
	ended  error
	told   bool // the usage was returned
	done   atomic.Bool
}

// respond posts a request and waits until the model begins to answer.
func (c *Client) respond(ctx context.Context, r *provider.Request) (*translated, error) {
	body, err := encodeResponses(r)
	if err != nil {
		return nil, err
	}
	x, err := c.Post(ctx, responsesPath, body, r.ID)
	if err != nil {
		return nil, err
	}
	s := &translated{
		x:      x,
		events: provider.NewSSE(x, make([]byte, 0, bufferSize)),
		reply:  newReply(r, time.Now()),
		unread: true,
	}
	s.events.LimitEvent(maxResponseEvent)
	s.events.OmitFrames()
	for !s.reply.begun && s.ended == nil {
		s.read()
	}
	if !s.reply.begun {
		_ = s.Close() // the first error counts
		return nil, started(x.StatusCode, s.ended)
	}
	return s, nil
}

func (s *translated) read() {
	_, err := s.events.Run(s.reply.event)
	switch {
	case err == nil:
		return
	case errors.Is(err, errDone):
		s.done.Store(true)
		err = io.EOF
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("the stream was cut: %w", io.ErrUnexpectedEOF)
	}
	s.ended = err
}

// Next returns what has arrived (see provider.Stream).
func (s *translated) Next() (provider.Chunk, error) {
	if !s.unread {
		s.reply.b = s.reply.b[:0]
	}
	s.unread = false
	for len(s.reply.b) == 0 && s.ended == nil {
		s.read()
	}
	c := provider.Chunk{Frames: s.reply.b}
	if errors.Is(s.ended, io.EOF) && s.reply.usage != nil && !s.told {
		s.told = true
		c.UsageFrame, c.Usage = s.reply.usageFrame(), s.reply.usage
	}
	if len(c.Frames) == 0 && c.Usage == nil {
		return c, s.ended
	}
	return c, nil
}

// Over reports whether the body has ended (see provider.Stream).
func (s *translated) BodyEnded() bool { return s.x.BodyEnded() }

// Close ends the call at the provider.
func (s *translated) Close() error {
	s.x.End(s.done.Load())
	return nil
}

// completeResponse runs a request to its end.
func (c *Client) completeResponse(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	s, err := c.respond(ctx, r)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for s.ended == nil {
		s.reply.b = s.reply.b[:0]
		s.read()
	}
	if !errors.Is(s.ended, io.EOF) {
		return nil, upstream.Failed(s.x.StatusCode, s.ended)
	}
	return &provider.Response{Body: s.reply.body(), Usage: s.reply.usage}, nil
}
