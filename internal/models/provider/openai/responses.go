package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// Some models take tools only through the Responses API, and only it returns reasoning (provider notes A.10). Its
// responses are translated. They are always requested as a stream, so that one decoder reads the
// text and the usage of whole and streamed calls.

const responsesPath = "/responses"

// maxResponseEvent bounds an event, in bytes. The last event repeats the whole response.
const maxResponseEvent = 32 << 20

// event has the members of a stream's event that are read, as they stand: an event of an unknown type may have any.
type event struct {
	Type                                           string
	Delta, Summary, ItemID, Item, Response, Failed jsontext.Value
}

// readEvent reads an event; false if the payload is none.
func readEvent(payload []byte) (v event, ok bool) {
	ok = provider.Members(payload, func(name, value []byte) bool {
		switch string(name) {
		case "type":
			return json.Unmarshal(value, &v.Type) == nil
		case "delta":
			v.Delta = value
		case "summary_index":
			v.Summary = value
		case "item_id":
			v.ItemID = value
		case "item":
			v.Item = value
		case "response":
			v.Response = value
		case "error": // of an error event; some have its members flat
			v.Failed = value
		}
		return true
	})
	return v, ok
}

// readMember reads a member of an event whose type says what it is. An absent one leaves to as it is.
func readMember(raw jsontext.Value, to any) error {
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return upstream.NewFailure(http.StatusOK, fmt.Errorf("an event with odd members: %s", upstream.Describe(raw)))
	}
	return nil
}

// piece returns the id of the item and the text of an event that brings a part of an item.
func (v *event) piece() (itemID, text string, err error) {
	if err = readMember(v.ItemID, &itemID); err == nil {
		err = readMember(v.Delta, &text)
	}
	return itemID, text, err
}

// lastResponse is the response in the last event.
type lastResponse struct {
	Output     []jsontext.Value `json:"output"`
	Error      jsontext.Value   `json:"error"`
	Usage      jsontext.Value   `json:"usage"`
	Incomplete *struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
}

// item is one item of the output: reasoning, a message or a function_call.
type item struct {
	ID        string         `json:"id"`
	Type      string         `json:"type"`
	CallID    string         `json:"call_id"`
	Name      string         `json:"name"`
	Summary   jsontext.Value `json:"summary,omitzero"`
	Encrypted *string        `json:"encrypted_content,omitzero"`
	Arguments string         `json:"arguments,omitzero"`
	Content   []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	} `json:"content,omitzero"`
}

// reply reads the events of one response and writes them as chunks of Chat Completions.
type reply struct {
	client  *Client
	b       []byte // chunks that Next has still to return
	head    []byte // the start of each chunk, up to its delta
	top     int    // length of the part of head before the first choice
	begun   bool   // a part of the response has arrived; before that, a retry costs nothing
	calls   []string
	spoken  map[string]bool  // messages of which a part has arrived, by id
	closed  map[string]bool  // items that have ended, by id
	shows   bool             // reasoning is returned as it arrives, not with the call that follows it
	thought []jsontext.Value // reasoning since the last call; if it is shown, of the whole response
	summary strings.Builder  // readable reasoning of the whole response, for Complete
	usage   *provider.Usage
	text    strings.Builder // of the whole response, for Complete
	refusal strings.Builder
	tools   []provider.ToolCall
	reason  string
	size    int
}

func newReply(c *Client, r *provider.Request, now time.Time) *reply {
	b := provider.AppendQuote([]byte(`data: {"id":`), "chatcmpl-"+strings.TrimPrefix(r.ID, "req_"))
	b = strconv.AppendInt(append(b, `,"object":"chat.completion.chunk","created":`...), now.Unix(), 10)
	b = append(provider.AppendQuote(append(b, `,"model":`...), r.Model), `,"choices":[`...)
	return &reply{client: c, top: len(b), head: append(b, `{"index":0,"delta":{`...), shows: r.WantReasoning}
}

// handleEvent processes one event. It has the signature that provider.SSE.Run needs and always returns false, because
// no event is relayed unchanged.
func (y *reply) handleEvent(e provider.Event) (bool, error) {
	if y.size += len(e.Payload); y.size > maxResponseEvent {
		return false, provider.ErrEventTooLong
	}
	v, ok := readEvent(e.Payload)
	if !ok {
		return false, upstream.NewFailure(http.StatusOK,
			fmt.Errorf("the stream carries something else than events: %s", upstream.Describe(e.Payload)))
	}
	switch v.Type {
	case "response.output_item.added":
		return false, y.openItem(v.Item)
	case "response.output_item.done":
		return false, y.closeItem(v.Item)
	case "response.output_text.delta":
		return false, v.pass(y.appendText)
	case "response.refusal.delta":
		return false, v.pass(y.appendRefusal)
	case "response.reasoning_summary_part.added":
		var index int
		if err := readMember(v.Summary, &index); err != nil {
			return false, err
		}
		if index > 0 {
			y.appendSummary("\n\n") // between two parts of a summary
		}
	case "response.reasoning_summary_text.delta":
		return false, v.pass(func(_, text string) { y.appendSummary(text) })
	case "response.function_call_arguments.delta":
		itemID, text, err := v.piece()
		if err != nil {
			return false, err
		}
		return false, y.handleArguments(itemID, text)
	case "response.completed", "response.incomplete":
		return false, y.finish(v.Response)
	case "response.failed", "error":
		return false, y.client.makeInBandError(findEventError(e.Payload, &v), y.begun)
	}
	return false, nil // unknown events, and events that repeat earlier ones
}

// pass passes the part of an item to a function.
func (v *event) pass(to func(itemID, text string)) error {
	itemID, text, err := v.piece()
	if err == nil {
		to(itemID, text)
	}
	return err
}

// finish ends the reply with the response in the last event. It returns errDone.
func (y *reply) finish(response jsontext.Value) error {
	if len(response) == 0 || response.Kind() == 'n' {
		return upstream.NewFailure(http.StatusOK, errors.New("the last event has no response"))
	}
	var last lastResponse
	if err := readMember(response, &last); err != nil {
		return err
	}
	for _, raw := range last.Output { // what no event before has brought
		if err := y.closeItem(raw); err != nil {
			return err
		}
	}
	y.usage, y.reason = readUsage(last.Usage), "stop"
	if last.Incomplete != nil {
		y.reason = map[string]string{
			"max_output_tokens": "length",
			"content_filter":    "content_filter",
		}[last.Incomplete.Reason]
	}
	y.appendFinish()
	return errDone
}

// findEventError returns the error object of an error event: its member error, that of its response, or the event
// itself.
func findEventError(payload []byte, v *event) []byte {
	var last lastResponse
	if readMember(v.Response, &last) == nil && last.Error.Kind() == '{' { // else the event says what is to be said
		return last.Error
	}
	if v.Failed.Kind() == '{' {
		return v.Failed
	}
	return payload
}

func (y *reply) appendFirstChunk() {
	if !y.begun {
		y.begun = true
		y.appendChunk(func(b []byte) []byte {
			return append(b, `"role":"assistant","content":"","refusal":null`...)
		}, "")
	}
}

// appendChunk appends one chunk. The function write appends the members of its delta.
func (y *reply) appendChunk(write func([]byte) []byte, finish string) {
	y.b = write(append(y.b, y.head...))
	y.b = append(y.b, `},"finish_reason":`...)
	if finish == "" {
		y.b = append(y.b, "null"...)
	} else {
		y.b = provider.AppendQuote(y.b, finish)
	}
	y.b = append(y.b, "}]}\n\n"...)
}

func (y *reply) appendDelta(member, text string) {
	if text == "" {
		return
	}
	y.appendFirstChunk()
	y.appendChunk(func(b []byte) []byte { return provider.AppendQuote(append(b, member...), text) }, "")
}

// appendSummary returns a piece of readable reasoning, if the app asked for it.
func (y *reply) appendSummary(text string) {
	if y.shows {
		y.summary.WriteString(text)
		y.appendDelta(`"reasoning_content":`, text)
	}
}

// openItem starts an item. Tool calls have their own index, because reasoning and messages are items too.
func (y *reply) openItem(raw jsontext.Value) error {
	var i item
	if err := json.Unmarshal(raw, &i); err != nil {
		return upstream.NewFailure(http.StatusOK, fmt.Errorf("an item that is none: %s", upstream.Describe(raw)))
	}
	y.appendFirstChunk()
	if i.Type != "function_call" {
		return nil
	}
	if i.CallID == "" || i.Name == "" {
		return upstream.NewFailure(http.StatusOK, errors.New("a call without an id or a name"))
	}
	n := len(y.calls)
	y.calls = append(y.calls, i.ID)
	var extra []byte
	if !y.shows {
		extra = makeReasoningExtra(y.thought)
		y.thought = nil
	}
	y.tools = append(y.tools, provider.ToolCall{ID: i.CallID, Name: i.Name, ExtraContent: extra})
	y.appendChunk(func(b []byte) []byte {
		b = strconv.AppendInt(append(b, `"tool_calls":[{"index":`...), int64(n), 10)
		b = provider.AppendQuote(append(b, `,"id":`...), i.CallID)
		b = provider.AppendQuote(append(b, `,"type":"function","function":{"name":`...), i.Name)
		return append(appendExtra(append(b, `,"arguments":""}`...), extra), "}]"...)
	}, "")
	return nil
}

// closeItem ends an item, once. It returns complete reasoning if the app asked for it, or keeps it for the next tool
// call. Of messages and tool calls it returns what did not come in parts.
func (y *reply) closeItem(raw jsontext.Value) error {
	var i item
	if err := json.Unmarshal(raw, &i); err != nil {
		return upstream.NewFailure(http.StatusOK, fmt.Errorf("an item that is none: %s", upstream.Describe(raw)))
	}
	if y.closed[i.ID] {
		return nil
	}
	if y.closed == nil {
		y.closed = map[string]bool{}
	}
	y.closed[i.ID] = true
	switch {
	case i.Type == "message" && !y.spoken[i.ID] && !y.spoken[""]: // "": some servers do not name the item of a part
		for _, c := range i.Content {
			y.appendText(i.ID, c.Text)
			y.appendRefusal(i.ID, c.Refusal)
		}
		return nil
	case i.Type == "function_call":
		return y.closeCall(raw, &i)
	case i.Type != "reasoning" || i.Encrypted == nil:
		return nil
	}
	y.thought = append(y.thought, raw.Clone())
	if y.shows {
		y.appendFirstChunk()
		y.appendChunk(func(b []byte) []byte {
			return append(append(b, `"extra_content":`...), makeReasoningExtra(y.thought[len(y.thought)-1:])...)
		}, "")
	}
	return nil
}

// closeCall ends a tool call.
func (y *reply) closeCall(raw jsontext.Value, i *item) error {
	if !slices.Contains(y.calls, i.ID) {
		if err := y.openItem(raw); err != nil {
			return err
		}
	}
	if n := slices.Index(y.calls, i.ID); y.tools[n].Arguments == "" && i.Arguments != "" {
		y.appendArguments(n, i.Arguments)
	}
	return nil
}

func (y *reply) appendText(itemID, piece string) {
	y.noteSpoken(itemID, piece)
	y.text.WriteString(piece)
	y.appendDelta(`"content":`, piece)
}

func (y *reply) appendRefusal(itemID, piece string) {
	y.noteSpoken(itemID, piece)
	y.refusal.WriteString(piece)
	y.appendDelta(`"refusal":`, piece)
}

// noteSpoken notes that a part of a message has arrived.
func (y *reply) noteSpoken(itemID, piece string) {
	if piece == "" || y.spoken[itemID] {
		return
	}
	if y.spoken == nil {
		y.spoken = map[string]bool{}
	}
	y.spoken[itemID] = true
}

func (y *reply) handleArguments(itemID, piece string) error {
	n := len(y.calls) - 1
	for n >= 0 && y.calls[n] != itemID {
		n--
	}
	if n < 0 {
		return upstream.NewFailure(http.StatusOK, errors.New("arguments of no call"))
	}
	if piece != "" {
		y.appendArguments(n, piece)
	}
	return nil
}

// appendArguments adds a fragment to the arguments of call n.
func (y *reply) appendArguments(n int, piece string) {
	y.tools[n].Arguments += piece
	y.appendChunk(func(b []byte) []byte {
		b = strconv.AppendInt(append(b, `"tool_calls":[{"index":`...), int64(n), 10)
		return append(provider.AppendQuote(append(b, `,"function":{"arguments":`...), piece), "}}]"...)
	}, "")
}

// appendFinish appends the chunk with the finish reason. An unknown reason becomes stop, or tool_calls if there are
// calls.
func (y *reply) appendFinish() {
	y.appendFirstChunk()
	for n := range y.tools {
		if y.tools[n].Arguments == "" { // clients parse the arguments, so they must be JSON
			y.appendArguments(n, "{}")
		}
	}
	switch {
	case len(y.tools) > 0 && (y.reason == "stop" || y.reason == ""):
		y.reason = "tool_calls"
	case y.reason == "":
		y.reason = "stop"
	}
	y.appendChunk(func(b []byte) []byte { return b }, y.reason)
}

func (y *reply) makeUsageFrame() []byte {
	b := append(append([]byte{}, y.head[:y.top]...), `],"usage":`...)
	return append(appendUsage(b, y.usage), "}\n\n"...)
}

// makeBody returns the whole response as one chat.completion object.
func (y *reply) makeBody() []byte {
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
	if y.summary.Len() > 0 {
		b = provider.AppendQuote(append(b, `,"reasoning_content":`...), y.summary.String())
	}
	if y.shows {
		b = appendExtra(b, makeReasoningExtra(y.thought))
	}
	for n := range y.tools {
		c := &y.tools[n]
		if n == 0 {
			b = append(b, `,"tool_calls":[`...)
		}
		b = provider.AppendQuote(append(appendComma(b, n), `{"id":`...), c.ID)
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

// makeReasoningExtra returns the extra_content in which an app sends reasoning back.
func makeReasoningExtra(list []jsontext.Value) []byte {
	if len(list) == 0 {
		return nil
	}
	b := []byte(`{"openai":{"reasoning":[`)
	for i, v := range list {
		b = append(appendComma(b, i), v...)
	}
	return append(b, "]}}"...)
}

func appendExtra(b, extra []byte) []byte {
	if len(extra) == 0 {
		return b
	}
	return append(append(b, `,"extra_content":`...), extra...)
}

// readUsage reads the usage into disjoint token classes. It returns nil if the counts cannot be true.
func readUsage(raw []byte) *provider.Usage {
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
		Total jsontext.Value `json:"total_tokens"`
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
		SumDiffers: u.Total != nil && u.Total.Kind() != 'n' &&
			string(u.Total) != strconv.FormatInt(*u.Input+*u.Output, 10),
	}
}

// appendUsage writes usage in the shape of Chat Completions.
func appendUsage(b []byte, u *provider.Usage) []byte {
	input := u.Input + u.Cached + u.CacheWrite
	return fmt.Appendf(b,
		`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d},"completion_tokens_details":{"reasoning_tokens":%d}}`,
		input, u.Output, input+u.Output, u.Cached, u.CacheWrite, u.Reasoning)
}

// responseStream is a streamed call of the Responses API.
type responseStream struct {
	x             *upstream.Exchange
	events        *provider.SSE
	reply         *reply
	unread        bool // the first chunks are still to be returned
	ended         error
	usageReturned bool
	done          atomic.Bool
}

// startResponse posts a request and waits for the first part of the response.
func (c *Client) startResponse(ctx context.Context, r *provider.Request) (*responseStream, error) {
	body, err := encodeResponses(r)
	if err != nil {
		return nil, err
	}
	x, err := c.PostStream(ctx, responsesPath, body, r.ID)
	if err != nil {
		return nil, err
	}
	s := &responseStream{
		x:      x,
		events: provider.NewSSE(x),
		reply:  newReply(c, r, time.Now()),
		unread: true,
	}
	s.events.LimitEvent(maxResponseEvent)
	s.events.OmitFrames()
	if x.IsJSON() {
		s.readWhole()
	}
	for !s.reply.begun && s.ended == nil {
		s.readEvents()
	}
	if !s.reply.begun {
		_ = s.Close() // the first error counts
		return nil, makeStartError(x.StatusCode, s.ended)
	}
	return s, nil
}

// readWhole reads a response that comes whole: it is what the last event of a stream repeats.
func (s *responseStream) readWhole() {
	defer s.x.End(false)
	body, err := s.x.ReadAll()
	if err != nil {
		s.ended = err
		return
	}
	var whole struct {
		Output *jsontext.Value `json:"output"`
	}
	o, ok := provider.ReadOutline(body)
	var event []byte
	switch {
	case ok && o.Error != nil:
		event = append(append([]byte(`{"type":"error","error":`), o.Error...), '}')
	case ok && json.Unmarshal(body, &whole) == nil && whole.Output != nil:
		event = append(append([]byte(`{"type":"response.completed","response":`), body...), '}')
	default:
		s.ended = upstream.NewFailure(http.StatusOK,
			fmt.Errorf("the answer is no response: %s", upstream.Describe(body)))
		return
	}
	if _, s.ended = s.reply.handleEvent(provider.Event{Payload: event}); errors.Is(s.ended, errDone) {
		s.ended = io.EOF
	}
}

func (s *responseStream) readEvents() {
	_, err := s.events.Run(s.reply.handleEvent)
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

// Next returns the chunks that have arrived (see provider.Stream).
func (s *responseStream) Next() (provider.Chunk, error) {
	if !s.unread {
		s.reply.b = s.reply.b[:0]
	}
	s.unread = false
	for len(s.reply.b) == 0 && s.ended == nil {
		s.readEvents()
	}
	c := provider.Chunk{Frames: s.reply.b}
	if errors.Is(s.ended, io.EOF) && s.reply.usage != nil && !s.usageReturned {
		s.usageReturned = true
		c.UsageFrame, c.Usage = s.reply.makeUsageFrame(), s.reply.usage
	}
	if len(c.Frames) == 0 && c.Usage == nil {
		return c, s.ended
	}
	return c, nil
}

// BodyEnded reports whether the body has ended (see provider.Stream).
func (s *responseStream) BodyEnded() bool { return s.x.BodyEnded() }

// Close ends the call at the provider.
func (s *responseStream) Close() error {
	s.x.End(s.done.Load())
	return nil
}

// completeResponse runs a request to its end.
func (c *Client) completeResponse(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	s, err := c.startResponse(ctx, r)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for s.ended == nil {
		s.reply.b = s.reply.b[:0]
		s.readEvents()
	}
	if e, ok := errors.AsType[*provider.Error](s.ended); ok { // such as an account that is out of quota
		return nil, e
	}
	if !errors.Is(s.ended, io.EOF) {
		return nil, upstream.NewFailure(s.x.StatusCode, s.ended)
	}
	return &provider.Response{Body: s.reply.makeBody(), Usage: s.reply.usage}, nil
}
