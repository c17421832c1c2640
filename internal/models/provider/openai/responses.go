package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/conversation/completions"
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
	Phase     string         `json:"phase,omitzero"`
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

// reply reads the events of one response and passes them as deltas.
type reply struct {
	client *Client
	emit   func(*conversation.Delta)
	delta  conversation.Delta // that is being passed
	begun  bool               // a part of the response has arrived; before that, a retry costs nothing
	blocks int                // that have begun
	open   conversation.DeltaKind
	openID string          // of the item of the open block
	phased string          // the last message, by id,
	phase  []byte          // and its phase; nil = none
	calls  []toolCall      // in the order in which they began
	spoken map[string]bool // messages of which a part has arrived, by id
	closed map[string]bool // items that have ended, by id
	usage  *provider.Usage
	size   int
}

// A toolCall is a call that has begun.
type toolCall struct {
	itemID string
	block  int
	argued bool // a part of its arguments has arrived
}

func newReply(c *Client, emit func(*conversation.Delta)) *reply { return &reply{client: c, emit: emit} }

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
			y.passText(conversation.Reasoning, "", "\n\n") // between two parts of a summary
		}
	case "response.reasoning_summary_text.delta":
		return false, v.pass(func(_, text string) { y.passText(conversation.Reasoning, "", text) })
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
	y.usage = readUsage(last.Usage)
	for i := range y.calls {
		if !y.calls[i].argued { // clients parse the arguments, so they must be JSON
			y.passArguments(&y.calls[i], "{}")
		}
	}
	end := conversation.Delta{Kind: conversation.End, Reason: conversation.Stopped}
	switch {
	case last.Incomplete != nil && last.Incomplete.Reason == "max_output_tokens":
		end.Reason = conversation.Cut
	case last.Incomplete != nil && last.Incomplete.Reason == "content_filter":
		end.Reason = conversation.Filtered
	case len(y.calls) > 0:
		end.Reason = conversation.Called
	}
	y.pass(end)
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

// begin passes the begin of the answer, at most one time.
func (y *reply) begin() {
	if !y.begun {
		y.begun = true
		y.delta = conversation.Delta{Kind: conversation.Begin}
		y.emit(&y.delta)
	}
}

// pass passes a delta of the last block.
func (y *reply) pass(d conversation.Delta) {
	y.begin()
	y.open, y.delta = d.Kind, d
	y.delta.Block = y.blocks - 1
	y.emit(&y.delta)
}

// passText passes a piece of text of an item, which is a block. Some servers do not name the item.
func (y *reply) passText(kind conversation.DeltaKind, itemID, text string) {
	if text == "" {
		return
	}
	d := conversation.Delta{Kind: kind, Text: quote(text)}
	if kind == conversation.Text && itemID == y.phased {
		d.Phase = y.phase
	}
	sameItem := itemID == y.openID && (itemID != "" || y.open == kind)
	if said := y.open == conversation.Text || y.open == conversation.Refusal; y.blocks == 0 || !sameItem ||
		said != (kind != conversation.Reasoning) {
		y.blocks++
		y.openID = itemID
	}
	y.pass(d)
}

// quote returns a text as a raw JSON string without its quotes.
func quote(text string) []byte {
	quoted := provider.AppendQuote(make([]byte, 0, len(text)+len(text)/8+2), text)
	return quoted[1 : len(quoted)-1]
}

// readItem reads an item. One of an unknown type may have any members, and is read as one that says nothing.
func readItem(raw jsontext.Value) (i item, err error) {
	if err = json.Unmarshal(raw, &i); err == nil {
		return i, nil
	}
	var kind string
	if provider.Members(raw, func(name, value []byte) bool {
		if string(name) == "type" {
			_ = json.Unmarshal(value, &kind) // no text: it is unknown
		}
		return true
	}) && kind != "message" && kind != "function_call" && kind != "reasoning" {
		return item{}, nil
	}
	return i, upstream.NewFailure(http.StatusOK, fmt.Errorf("an item that is none: %s", upstream.Describe(raw)))
}

// openItem starts an item. Tool calls have their own index, because reasoning and messages are items too.
func (y *reply) openItem(raw jsontext.Value) error {
	i, err := readItem(raw)
	if err != nil {
		return err
	}
	y.begin()
	if i.Type == "message" {
		y.notePhase(&i)
	}
	if i.Type != "function_call" {
		return nil
	}
	if i.CallID == "" || i.Name == "" {
		return upstream.NewFailure(http.StatusOK, errors.New("a call without an id or a name"))
	}
	y.blocks++
	y.calls = append(y.calls, toolCall{itemID: i.ID, block: y.blocks - 1})
	y.pass(conversation.Delta{Kind: conversation.Call, ID: quote(i.CallID), Name: quote(i.Name)})
	return nil
}

// notePhase notes what a message is for, as its provider says.
func (y *reply) notePhase(i *item) {
	y.phased, y.phase = i.ID, nil
	if i.Phase != "" {
		y.phase = quote(i.Phase)
	}
}

// closeItem ends an item, once. It passes complete reasoning, and of messages and tool calls what did not come in
// parts.
func (y *reply) closeItem(raw jsontext.Value) error {
	i, err := readItem(raw)
	if err != nil {
		return err
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
		y.notePhase(&i)
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
	if y.blocks == 0 || y.open != conversation.Reasoning {
		y.blocks++
	}
	y.pass(conversation.Delta{Kind: conversation.Thought, Opaque: raw, Origin: conversation.OpenAI})
	return nil
}

// closeCall ends a tool call.
func (y *reply) closeCall(raw jsontext.Value, i *item) error {
	call := y.findCall(i.ID)
	if call == nil {
		if err := y.openItem(raw); err != nil {
			return err
		}
		call = &y.calls[len(y.calls)-1]
	}
	if !call.argued && i.Arguments != "" {
		y.passArguments(call, i.Arguments)
	}
	return nil
}

// findCall returns the call of an item, nil if there is none.
func (y *reply) findCall(itemID string) *toolCall {
	for n := range slices.Backward(y.calls) {
		if y.calls[n].itemID == itemID {
			return &y.calls[n]
		}
	}
	return nil
}

func (y *reply) appendText(itemID, piece string) {
	y.noteSpoken(itemID, piece)
	y.passText(conversation.Text, itemID, piece)
}

func (y *reply) appendRefusal(itemID, piece string) {
	y.noteSpoken(itemID, piece)
	y.passText(conversation.Refusal, itemID, piece)
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
	call := y.findCall(itemID)
	if call == nil {
		return upstream.NewFailure(http.StatusOK, errors.New("arguments of no call"))
	}
	if piece != "" {
		y.passArguments(call, piece)
	}
	return nil
}

// passArguments passes a piece of the arguments of a call.
func (y *reply) passArguments(call *toolCall, piece string) {
	call.argued = true
	y.open = conversation.Arguments
	y.delta = conversation.Delta{Kind: conversation.Arguments, Block: call.block, Text: quote(piece)}
	y.emit(&y.delta)
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

// responseStream is a streamed call of the Responses API.
type responseStream struct {
	x             *upstream.Exchange
	events        *provider.SSE
	reply         *reply
	out           *completions.Stream // nil if the answer is collected
	unread        bool                // the first chunks are still to be returned
	ended         error
	usageReturned bool
	done          atomic.Bool
}

// streamResponse starts a streamed call of the Responses API.
func (c *Client) streamResponse(ctx context.Context, r *provider.Request) (provider.Stream, error) {
	out := completions.NewStream(nil, r, time.Now())
	s, err := c.startResponse(ctx, r, out.Write)
	if err != nil {
		return nil, err
	}
	s.out = out
	return s, nil
}

// startResponse posts a request and waits for the first part of the response.
func (c *Client) startResponse(ctx context.Context, r *provider.Request, emit func(*conversation.Delta)) (
	*responseStream, error,
) {
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
		reply:  newReply(c, emit),
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
		s.out.Reset()
	}
	s.unread = false
	for !s.out.HasNew() && s.ended == nil {
		s.readEvents()
	}
	c := provider.Chunk{Frames: s.out.Frames()}
	if errors.Is(s.ended, io.EOF) && s.reply.usage != nil && !s.usageReturned {
		s.usageReturned = true
		c.UsageFrame, c.Usage = s.out.AppendUsage(nil, s.reply.usage), s.reply.usage
	}
	if !s.out.HasNew() && c.Usage == nil {
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
	whole := completions.NewWhole(nil, r, time.Now())
	s, err := c.startResponse(ctx, r, whole.Write)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for s.ended == nil {
		s.readEvents()
	}
	if e, ok := errors.AsType[*provider.Error](s.ended); ok { // such as an account that is out of quota
		return nil, e
	}
	if !errors.Is(s.ended, io.EOF) {
		return nil, upstream.NewFailure(s.x.StatusCode, s.ended)
	}
	return &provider.Response{Body: whole.AppendBody(nil, s.reply.usage), Usage: s.reply.usage}, nil
}
