package responses

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// A stream writes an answer as events, or as one response. Strings are kept as raw JSON without the quotes, so that
// they are copied and never decoded.
type stream struct {
	head         shapes.Head
	echo         []byte // the members of the request that a response repeats
	declared     map[string]declaration
	showsSummary bool

	b     []byte // the events since the last Take
	taken bool
	next  int64 // sequence number
	begun bool
	id    []byte // of the response, without its prefix
	made  []byte // created_at, a number
	model []byte // a JSON string

	items     []item
	message   int    // index of the open message, -1 = none
	reasoning int    // index of the open reasoning item, -1 = none
	calls     []int  // index of the item of each tool call
	blocks    []int  // the numbers of the blocks of the items, as far as they are calls, as in calls
	block     int    // the number of the block of the open message
	extra     []byte // reasoning to be sent back, whose item is not written yet

	ended   bool
	reason  conversation.Reason
	failure []byte // the error envelope's error
}

// An item of the output.
type item struct {
	kind      itemKind
	closed    bool
	cut       bool // the response ended inside it
	parts     []part
	summary   []byte // of reasoning
	encrypted []byte // of reasoning
	phase     []byte // of a message
	done      []byte // an item that was read from a stream, as it stands there
	callID    []byte
	name      []byte
	namespace string
	arguments []byte
}

type itemKind int

const (
	messageItem itemKind = iota
	reasoningItem
	callItem
	customItem // a call of a custom tool
)

// A part is one of a message's content.
type part struct {
	refusal bool
	text    []byte
	closed  bool
}

// NewWriter returns a writer of one answer (see shapes.Call).
func (c *Call) NewWriter(h shapes.Head) shapes.Writer {
	return &stream{
		head:         h,
		echo:         c.echo,
		declared:     c.declared,
		showsSummary: c.showsSummary,
		message:      -1,
		reasoning:    -1,
	}
}

// Write takes a delta (see shapes.Writer).
func (s *stream) Write(d *conversation.Delta) {
	if s.taken {
		s.b, s.taken = s.b[:0], false
	}
	if s.ended && d.Kind != conversation.Begin {
		return
	}
	switch d.Kind {
	case conversation.Begin:
		s.begin(d)
	case conversation.Text:
		s.addText(false, d)
		if d.Opaque != nil { // its signature
			s.keepExtra(d)
		}
	case conversation.Refusal:
		s.addText(true, d)
	case conversation.Reasoning:
		s.addReasoning(d.Text)
	case conversation.Thought:
		s.keepExtra(d)
	case conversation.Call:
		if d.Opaque != nil {
			s.keepExtra(d)
		}
		s.openCall(d)
		s.addArguments(s.calls[len(s.calls)-1], d.Text)
	case conversation.Arguments:
		if n := slices.Index(s.blocks, d.Block); n >= 0 {
			s.addArguments(s.calls[n], d.Text)
		}
	case conversation.End:
		s.ended, s.reason = true, d.Reason
		s.closeItems()
	}
}

// keepExtra keeps what the client returns, until its item is written.
func (s *stream) keepExtra(d *conversation.Delta) {
	s.extra = mergeExtra(s.extra, d.Origin.AppendExtra(nil, d.Opaque))
}

// Take returns the events that were written (see shapes.Writer).
func (s *stream) Take() []byte {
	if s.taken {
		return nil
	}
	s.taken = true
	return s.b
}

// begin takes what names the response, and writes the first events.
func (s *stream) begin(d *conversation.Delta) {
	*s = stream{
		head: s.head, echo: s.echo, declared: s.declared, showsSummary: s.showsSummary, b: s.b[:0],
		message: -1, reasoning: -1, begun: true,
	}
	s.id = []byte(strings.TrimPrefix(s.head.RequestID, "req_")) // an item names its request, see RequestOf
	s.made = strconv.AppendInt(nil, s.head.CreatedUnix, 10)
	if len(d.Name) > 0 {
		s.model = append(append([]byte{'"'}, d.Name...), '"')
	} else {
		s.model = provider.AppendQuote(nil, s.head.Model)
	}
	s.writeBegin()
}

func (s *stream) writeBegin() {
	if !s.head.Stream {
		return
	}
	for _, event := range []string{"response.created", "response.in_progress"} {
		s.openEvent(event)
		s.b = append(s.b, `,"response":`...)
		s.b = s.appendResponse(s.b, "in_progress")
		s.closeEvent()
	}
}

// openEvent begins an event. Its further members follow, each with a comma before it.
func (s *stream) openEvent(name string) {
	s.b = append(append(append(s.b, "event: "...), name...), "\ndata: {\"type\":\""...)
	s.b = append(append(s.b, name...), `","sequence_number":`...)
	s.b = strconv.AppendInt(s.b, s.next, 10)
	s.next++
}

// closeEvent ends an event. Nobody reads those of a response that comes whole.
func (s *stream) closeEvent() {
	if s.b = append(s.b, "}\n\n"...); !s.head.Stream {
		s.b = s.b[:0]
	}
}

// openItemEvent begins an event that belongs to item i.
func (s *stream) openItemEvent(name string, i int) {
	s.openEvent(name)
	s.b = append(s.appendItemID(append(s.b, `,"item_id":"`...), i), `","output_index":`...)
	s.b = strconv.AppendInt(s.b, int64(i), 10)
}

// openPartEvent begins an event that belongs to part n of message i.
func (s *stream) openPartEvent(name string, i, n int) {
	s.openItemEvent(name, i)
	s.b = strconv.AppendInt(append(s.b, `,"content_index":`...), int64(n), 10)
}

func (s *stream) writeItem(name string, i int) {
	s.openEvent(name)
	s.b = strconv.AppendInt(append(s.b, `,"output_index":`...), int64(i), 10)
	s.b = s.appendItem(append(s.b, `,"item":`...), i)
	s.closeEvent()
}

func (s *stream) openItem(kind itemKind) int {
	s.items = append(s.items, item{kind: kind})
	return len(s.items) - 1
}

// addText adds a piece of text, or of a refusal. Each block is a message of its own.
func (s *stream) addText(refusal bool, d *conversation.Delta) {
	piece := d.Text
	if len(piece) == 0 {
		return
	}
	if s.message >= 0 && d.Block != s.block {
		s.closeMessage()
	}
	if s.message < 0 {
		s.flushReasoning()
		s.message, s.block = s.openItem(messageItem), d.Block
		s.items[s.message].phase = bytes.Clone(d.Phase)
		s.writeItem("response.output_item.added", s.message)
	}
	i := s.message
	it := &s.items[i]
	n := len(it.parts) - 1
	if n < 0 || it.parts[n].refusal != refusal {
		s.closePart(i)
		it.parts = append(it.parts, part{refusal: refusal})
		n++
		s.openPartEvent("response.content_part.added", i, n)
		s.b = appendPart(append(s.b, `,"part":`...), &it.parts[n])
		s.closeEvent()
	}
	it.parts[n].text = append(it.parts[n].text, piece...)
	if refusal {
		s.openPartEvent("response.refusal.delta", i, n)
		s.b = append(append(append(s.b, `,"delta":"`...), piece...), '"')
	} else {
		s.openPartEvent("response.output_text.delta", i, n)
		s.b = append(append(append(s.b, `,"delta":"`...), piece...), `","logprobs":[]`...)
	}
	s.closeEvent()
}

// closePart ends the last part of message i.
func (s *stream) closePart(i int) {
	n := len(s.items[i].parts) - 1
	if n < 0 || s.items[i].parts[n].closed {
		return
	}
	p := &s.items[i].parts[n]
	p.closed = true
	if p.refusal {
		s.openPartEvent("response.refusal.done", i, n)
		s.b = append(append(append(s.b, `,"refusal":"`...), p.text...), '"')
	} else {
		s.openPartEvent("response.output_text.done", i, n)
		s.b = append(append(append(s.b, `,"text":"`...), p.text...), `","logprobs":[]`...)
	}
	s.closeEvent()
	s.openPartEvent("response.content_part.done", i, n)
	s.b = appendPart(append(s.b, `,"part":`...), p)
	s.closeEvent()
}

// closeMessage ends the open message.
func (s *stream) closeMessage() {
	if i := s.message; i >= 0 {
		s.closePart(i)
		s.items[i].closed = true
		s.writeItem("response.output_item.done", i)
		s.message = -1
	}
}

// addReasoning adds a piece of readable reasoning, if the client asked for it. A piece after complete reasoning begins
// the next item.
func (s *stream) addReasoning(piece []byte) {
	if len(piece) == 0 || !s.showsSummary {
		return
	}
	if len(s.extra) > 0 {
		s.flushReasoning()
	}
	s.closeMessage()
	if s.reasoning < 0 {
		s.reasoning = s.openItem(reasoningItem)
		s.writeItem("response.output_item.added", s.reasoning)
		s.openSummaryEvent("response.reasoning_summary_part.added")
		s.b = append(s.b, `,"part":{"type":"summary_text","text":""}`...)
		s.closeEvent()
	}
	it := &s.items[s.reasoning]
	it.summary = append(it.summary, piece...)
	s.openSummaryEvent("response.reasoning_summary_text.delta")
	s.b = append(append(append(s.b, `,"delta":"`...), piece...), '"')
	s.closeEvent()
}

func (s *stream) openSummaryEvent(name string) {
	s.openItemEvent(name, s.reasoning)
	s.b = append(s.b, `,"summary_index":0`...)
}

// flushReasoning ends the open reasoning item with the reasoning to be sent back, or writes an item for it.
func (s *stream) flushReasoning() {
	i := s.reasoning
	switch {
	case i < 0 && len(s.extra) == 0:
		return
	case i < 0:
		i = s.openItem(reasoningItem)
		s.writeItem("response.output_item.added", i)
	default:
		summary := s.items[i].summary
		s.openSummaryEvent("response.reasoning_summary_text.done")
		s.b = append(append(append(s.b, `,"text":"`...), summary...), '"')
		s.closeEvent()
		s.openSummaryEvent("response.reasoning_summary_part.done")
		s.b = append(append(append(s.b, `,"part":{"type":"summary_text","text":"`...), summary...), `"}`...)
		s.closeEvent()
	}
	if len(s.extra) > 0 {
		s.items[i].encrypted = appendEncrypted(nil, s.extra)
	}
	s.items[i].closed = true
	s.writeItem("response.output_item.done", i)
	s.reasoning, s.extra = -1, nil
}

func (s *stream) openCall(call *conversation.Delta) {
	s.closeMessage()
	s.flushReasoning()
	d := s.declared[string(call.Name)]
	kind := callItem
	if d.custom {
		kind = customItem
	}
	i := s.openItem(kind)
	it := &s.items[i]
	it.callID, it.name, it.namespace = bytes.Clone(call.ID), bytes.Clone(call.Name), d.namespace
	it.name = it.name[len(joinNamespace(it.namespace, "")):]
	s.writeItem("response.output_item.added", i)
	s.calls, s.blocks = append(s.calls, i), append(s.blocks, call.Block)
}

// addArguments adds a piece of the arguments of a call. The input of a custom tool is written when the call has ended,
// because its text stands inside them.
func (s *stream) addArguments(i int, piece []byte) {
	if len(piece) == 0 || s.items[i].closed {
		return
	}
	s.items[i].arguments = append(s.items[i].arguments, piece...)
	if s.items[i].kind == customItem {
		return
	}
	s.openItemEvent("response.function_call_arguments.delta", i)
	s.b = append(append(append(s.b, `,"delta":"`...), piece...), '"')
	s.closeEvent()
}

func (s *stream) closeCall(i int) {
	it := &s.items[i]
	if it.closed {
		return
	}
	it.closed = true
	if it.kind == customItem {
		s.writeInput(i)
		s.writeItem("response.output_item.done", i)
		return
	}
	s.openItemEvent("response.function_call_arguments.done", i)
	s.b = append(append(append(s.b, `,"name":"`...), it.name...), `","arguments":"`...)
	s.b = append(append(s.b, it.arguments...), '"')
	s.closeEvent()
	s.writeItem("response.output_item.done", i)
}

// writeInput writes the input of a custom tool.
func (s *stream) writeInput(i int) {
	input := unwrapInput(s.items[i].arguments)
	if len(input) > 0 {
		s.openItemEvent("response.custom_tool_call_input.delta", i)
		s.b = append(append(append(s.b, `,"delta":"`...), input...), '"')
		s.closeEvent()
	}
	s.openItemEvent("response.custom_tool_call_input.done", i)
	s.b = append(append(append(s.b, `,"input":"`...), input...), '"')
	s.closeEvent()
}

// closeItems ends all items, as the response has ended. What it ended inside is incomplete.
func (s *stream) closeItems() {
	if s.reason == conversation.Cut || s.reason == conversation.Filtered {
		s.cutItems()
	}
	s.closeMessage()
	for _, i := range s.calls {
		s.closeCall(i)
	}
	s.flushReasoning()
}

// cutItems marks the open items as incomplete.
func (s *stream) cutItems() {
	for i := range s.items {
		s.items[i].cut = s.items[i].cut || !s.items[i].closed
	}
}

// End returns the end of the response, or all of it (see shapes.Writer).
func (s *stream) End() []byte {
	if s.taken {
		s.b = s.b[:0]
	}
	s.taken = true
	s.closeItems()
	status, _ := s.status()
	if !s.head.Stream {
		return append(s.appendResponse(s.b[:0], status), '\n')
	}
	s.openEvent("response." + status)
	s.b = s.appendResponse(append(s.b, `,"response":`...), status)
	s.closeEvent()
	return s.b
}

// fail writes the failure in both forms that OpenAI's clients read: an event of its own, and the failed response. Some
// end at the first, so both carry what was charged.
func (s *stream) fail() {
	s.cutItems()
	code, message := readFailure(s.failure)
	s.openEvent("error")
	s.b = append(append(append(append(s.b, `,"code":`...), code...), `,"message":`...), message...)
	s.b = append(append(s.b, `,"param":null,"error":{"param":null,`...), s.failure[1:]...)
	s.b = append(s.b, shapes.BlockHole...)
	s.closeEvent()
	s.openEvent("response.failed")
	s.b = s.appendResponse(append(s.b, `,"response":`...), "failed")
	s.closeEvent()
}

// readFailure returns code and message of the error of an envelope, as raw JSON.
func readFailure(failure []byte) (code, message []byte) {
	code, message = []byte("null"), []byte(`""`)
	provider.Members(failure, func(name, value []byte) bool {
		switch string(name) {
		case "code":
			code = value
		case "message":
			message = value
		}
		return true
	})
	if shapes.ReadFailure(failure).TooLong {
		code = []byte(`"` + shapes.TooLong + `"`)
	}
	return code, message
}
