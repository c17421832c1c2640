package responses

import (
	"bytes"
	"strconv"

	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/provider"
)

// A stream translates the chunks of one canonical response into events. Strings are kept as raw JSON without the
// quotes, so that they are copied and never decoded.
type stream struct {
	call *Call
	b    []byte // the events of one Translate
	next int64  // sequence number

	whole bool // the response is not streamed
	begun bool
	ended bool
	id    []byte // of the response, without its prefix
	made  []byte // created_at, a number
	model []byte

	items     []item
	message   int     // index of the open message, -1 = none
	reasoning int     // index of the open reasoning item, -1 = none
	calls     []int   // index of the item of each tool call
	indexes   []int64 // of the tool calls in the canonical chunks
	extra     []byte  // reasoning to be sent back, whose item is not written yet

	finish  string // finish_reason; "" = none yet
	usage   []byte // raw objects; nil = none
	svc     []byte
	failure []byte // the error envelope's error

	chunk chunk
}

// A chunk has the members of a canonical chunk that are read, as raw JSON; nil = absent or null.
type chunk struct {
	id, created, model       []byte
	content, refusal         []byte
	thought, extra, calls    []byte
	finish                   []byte
	usage, failure, svcFinal []byte
}

// An item of the output.
type item struct {
	kind      itemKind
	closed    bool
	cut       bool // the response ended inside it
	parts     []part
	summary   []byte // of reasoning
	encrypted []byte // of reasoning
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

func (c *Call) newStream() *stream { return &stream{call: c, message: -1, reasoning: -1} }

// Translate returns the events for canonical frames (see shapes.Stream).
func (s *stream) Translate(frames []byte) []byte {
	s.b = s.b[:0]
	for len(frames) > 0 {
		line := frames
		if i := bytes.IndexByte(frames, '\n'); i >= 0 {
			line, frames = frames[:i], frames[i+1:]
		} else {
			frames = nil
		}
		payload, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok || s.ended {
			continue
		}
		if payload = bytes.TrimSpace(payload); string(payload) == "[DONE]" {
			s.end()
		} else {
			s.readChunk(payload)
		}
	}
	return s.b
}

func (s *stream) readChunk(payload []byte) {
	c := &s.chunk
	*c = chunk{}
	w := provider.NewWalk(payload)
	w.Members(func(name []byte) bool {
		if w.Null() {
			return true
		}
		switch string(name) {
		case "id":
			c.id = w.Value()
		case "created":
			c.created = w.Value()
		case "model":
			c.model = w.Value()
		case "usage":
			c.usage = w.Value()
		case "error":
			if v := w.Value(); len(v) > 2 && v[0] == '{' {
				c.failure = v
			}
		case "svc_final":
			c.svcFinal = w.Value()
		case "choices":
			return w.Elements(func() bool { return c.readChoice(&w) })
		}
		return true
	})
	s.addChunk()
}

func (c *chunk) readChoice(w *provider.Walk) bool {
	return w.Members(func(name []byte) bool {
		switch string(name) {
		case "delta", "message":
			return w.Null() || w.Members(func(name []byte) bool { return c.readDelta(w, name) })
		case "finish_reason":
			if !w.Null() {
				c.finish = w.Value()
			}
		}
		return true
	})
}

func (c *chunk) readDelta(w *provider.Walk, name []byte) bool {
	if w.Null() {
		return true
	}
	switch string(name) {
	case "content":
		c.content = w.Value()
	case "refusal":
		c.refusal = w.Value()
	case "reasoning_content":
		c.thought = w.Value()
	case "extra_content":
		c.extra = w.Value()
	case "tool_calls":
		c.calls = w.Value()
	}
	return true
}

// unquote returns the text of a JSON string as it stands between the quotes; nil if it is none.
func unquote(raw []byte) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	return raw[1 : len(raw)-1]
}

// addChunk writes the events of the chunk that was read.
func (s *stream) addChunk() {
	c := &s.chunk
	if c.failure != nil && s.failure == nil {
		s.failure = bytes.Clone(c.failure)
	}
	if c.id != nil && !s.begun {
		s.begin(c)
	}
	s.addReasoning(unquote(c.thought))
	if c.extra != nil {
		s.extra = mergeExtra(s.extra, bytes.Clone(c.extra))
	}
	s.addText(false, unquote(c.content))
	s.addText(true, unquote(c.refusal))
	if c.calls != nil {
		at := int64(0)
		provider.Elements(c.calls, func(value []byte) bool {
			s.addCall(value, at)
			at++
			return true
		})
	}
	if c.finish != nil && s.finish == "" {
		s.finish = string(unquote(c.finish))
		s.closeItems()
	}
	if c.usage != nil {
		s.usage = bytes.Clone(c.usage)
	}
	if c.svcFinal != nil {
		s.readFinal(c.svcFinal)
	}
}

// readFinal reads usage and svc block of svc_final. While a charge is not known, it has neither.
func (s *stream) readFinal(final []byte) {
	var settlement []byte
	provider.Members(final, func(name, value []byte) bool {
		switch string(name) {
		case "usage":
			s.usage = nil
			if string(value) != "null" {
				s.usage = bytes.Clone(value)
			}
		case "svc":
			if string(value) != "null" {
				s.svc = bytes.Clone(value)
			}
		case "settlement":
			settlement = value
		}
		return true
	})
	if s.svc == nil && settlement != nil {
		s.svc = append(append([]byte(`{"settlement":`), settlement...), '}')
	}
}

// begin takes from the first chunk what names the response, and writes the first events.
func (s *stream) begin(c *chunk) {
	s.begun = true
	s.id = bytes.Clone(bytes.TrimPrefix(unquote(c.id), []byte("chatcmpl-")))
	s.made, s.model = bytes.Clone(c.created), bytes.Clone(c.model)
	if s.whole {
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

func (s *stream) closeEvent() { s.b = append(s.b, "}\n\n"...) }

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

// addText adds a piece of text, or of a refusal.
func (s *stream) addText(refusal bool, piece []byte) {
	if len(piece) == 0 {
		return
	}
	if s.message < 0 {
		s.flushReasoning()
		s.message = s.openItem(messageItem)
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
	if len(piece) == 0 || !s.call.showsSummary {
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

// addCall adds a fragment of a tool call. Whole calls have no index: theirs is their position.
func (s *stream) addCall(value []byte, position int64) {
	var id, name, arguments, extra []byte
	index := position
	w := provider.NewWalk(value)
	w.Members(func(member []byte) bool {
		if w.Null() {
			return true
		}
		switch string(member) {
		case "index":
			if n, err := strconv.ParseInt(string(w.Value()), 10, 64); err == nil {
				index = n
			}
		case "id":
			id = unquote(w.Value())
		case "extra_content":
			extra = w.Value()
		case "function":
			return w.Members(func(member []byte) bool {
				switch string(member) {
				case "name":
					name = unquote(w.Value())
				case "arguments":
					arguments = unquote(w.Value())
				}
				return true
			})
		}
		return true
	})
	if extra != nil {
		s.extra = mergeExtra(s.extra, bytes.Clone(extra))
	}
	n := len(s.indexes) - 1
	for n >= 0 && s.indexes[n] != index {
		n--
	}
	if n < 0 {
		n = s.openCall(index, id, name)
	}
	s.addArguments(s.calls[n], arguments)
}

func (s *stream) openCall(index int64, id, name []byte) int {
	s.closeMessage()
	s.flushReasoning()
	d := s.call.declared[string(name)]
	kind := callItem
	if d.custom {
		kind = customItem
	}
	i := s.openItem(kind)
	it := &s.items[i]
	it.callID, it.name, it.namespace = bytes.Clone(id), bytes.Clone(name), d.namespace
	it.name = it.name[len(joinNamespace(it.namespace, "")):]
	s.writeItem("response.output_item.added", i)
	s.calls, s.indexes = append(s.calls, i), append(s.indexes, index)
	return len(s.calls) - 1
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
	if s.finish == "length" || s.finish == "content_filter" {
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

// end writes the last events: the response, or why it failed.
func (s *stream) end() {
	s.ended = true
	switch {
	case s.failure != nil:
		s.fail()
	case s.begun:
		s.closeItems()
		status, _ := s.status()
		s.openEvent("response." + status)
		s.b = s.appendResponse(append(s.b, `,"response":`...), status)
		s.closeEvent()
	}
}

// fail writes the failure in both forms that OpenAI's clients read: an event of its own, and the failed response. Some
// end at the first, so both carry what was charged.
func (s *stream) fail() {
	if !s.begun { // nothing but the failure has come
		s.begin(&chunk{id: []byte(`"failed"`), model: provider.AppendQuote(nil, s.call.request.BodyModel)})
	}
	s.cutItems()
	code, message := readFailure(s.failure)
	s.openEvent("error")
	s.b = append(append(append(append(s.b, `,"code":`...), code...), `,"message":`...), message...)
	s.b = append(append(s.b, `,"param":null,"error":{"param":null,`...), s.failure[1:]...)
	if s.svc != nil {
		s.b = append(append(s.b, `,"svc":`...), s.svc...)
	}
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
	if shapes.IsTooLong(failure) {
		code = []byte(`"` + shapes.TooLong + `"`)
	}
	return code, message
}
