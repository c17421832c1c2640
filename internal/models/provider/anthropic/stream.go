package anthropic

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

const (
	bufferSize = 8 << 10
	finishWait = 5 * time.Second // time limit for the last event after the finish reason
)

// Stream starts a streamed request and waits for the first content. The headers alone are not enough: an overloaded
// provider accepts the request and then sends only an error event.
func (c *Client) Stream(ctx context.Context, r *provider.Request) (provider.Stream, error) {
	x, err := c.post(ctx, r)
	if err != nil {
		return nil, err
	}
	s := &stream{x: x, buf: buffers.Get().(*buffer), out: newChunks(r, c.now().Unix())}
	s.events, s.out.b = newEvents(x), s.buf.out
	s.decoder = newDecoder(&s.out)
	s.decoder.shows = r.WantReasoning
	for !s.decoder.begun && s.ended == nil {
		s.readEvents()
	}
	if !s.decoder.begun {
		_ = s.Close() // the first error counts
		return nil, makeCutError(s.ended, false)
	}
	s.unread = true
	return s, nil
}

// buffers pools what streams write into, after they were read to their end, unless it grew.
var buffers = sync.Pool{New: func() any { return &buffer{make([]byte, 0, bufferSize)} }}

type buffer struct{ out []byte }

func (b *buffer) release(out []byte) {
	if cap(out) == bufferSize {
		b.out = out[:0]
		buffers.Put(b)
	}
}

// maxEvent bounds one event, in bytes. The arguments of a call may come in one event.
const maxEvent = 16 << 20

func newEvents(x *upstream.Exchange) *provider.SSE {
	e := provider.NewSSE(x)
	e.LimitEvent(maxEvent)
	e.OmitFrames()
	return e
}

type stream struct {
	x       *upstream.Exchange
	buf     *buffer // nil after it has returned to the pool
	events  *provider.SSE
	decoder decoder
	out     chunks
	unread  bool // the first chunk is still to be returned
	ended   error
	usage   *provider.Usage // set when the response is complete
	done    atomic.Bool     // the last event has arrived
}

// Next returns the chunks that have arrived (see provider.Stream).
func (s *stream) Next() (provider.Chunk, error) {
	switch {
	case s.unread:
		s.unread = false
	case s.ended != nil:
		// The caller has no use any more for what it got last.
		if s.buf != nil {
			s.events.Release()
			s.buf.release(s.out.b)
			s.buf, s.out.b = nil, nil
		}
		return provider.Chunk{}, s.ended
	default:
		s.out.b = s.out.b[:0]
	}
	for len(s.out.b) == 0 && s.ended == nil {
		s.readEvents()
	}
	c := provider.Chunk{Frames: s.out.b}
	if s.usage != nil {
		s.out.tail = s.out.appendUsage(s.out.tail[:0], s.usage)
		c.UsageFrame, c.Usage, s.usage = s.out.tail, s.usage, nil
	}
	if len(c.Frames) == 0 && c.Usage == nil {
		return c, s.ended
	}
	return c, nil
}

// readEvents processes the events of one network read.
func (s *stream) readEvents() {
	_, err := s.events.Run(s.decoder.handleEvent)
	if s.decoder.finished {
		s.x.Hurry(finishWait)
	}
	if err == nil {
		return
	}
	if errors.Is(err, errDone) {
		s.done.Store(true)
	}
	s.ended = s.decoder.classifyEnd(err)
	if errors.Is(s.ended, io.EOF) {
		s.usage = s.decoder.usage.makeUsage()
	}
}

// classifyEnd returns io.EOF if the response is complete, and otherwise the error that ended the events. A response is
// complete with its finish reason, even if the last event is missing, or the usage; an error in their place does not
// matter (F-21).
func (d *decoder) classifyEnd(err error) error {
	if errors.Is(err, errDone) || d.finished {
		return io.EOF
	}
	var p *provider.Error
	if !errors.As(err, &p) && errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// BodyEnded reports whether the body has ended (see provider.Stream).
func (s *stream) BodyEnded() bool { return s.x.BodyEnded() }

// Close ends the call at the provider.
func (s *stream) Close() error {
	s.x.End(s.done.Load())
	return nil
}

// chunks writes a message as OpenAI's chunks.
type chunks struct {
	b    []byte // chunks that Next has still to return
	tail []byte // the usage chunk
	head []byte // the start of each chunk, up to its delta
	top  int    // length of the part of head before the first choice
}

func newChunks(r *provider.Request, created int64) chunks {
	b := appendHead([]byte("data: "), r, "chat.completion.chunk", created)
	return chunks{head: append(b, `{"index":0,"delta":{`...), top: len(b)}
}

// appendHead appends the start of a response or chunk, up to its choices. Its id is our request id.
func appendHead(b []byte, r *provider.Request, object string, created int64) []byte {
	b = provider.AppendQuote(append(b, `{"id":`...), "chatcmpl-"+strings.TrimPrefix(r.ID, "req_"))
	b = append(append(append(b, `,"object":"`...), object...), `","created":`...)
	b = strconv.AppendInt(b, created, 10)
	return append(provider.AppendQuote(append(b, `,"model":`...), r.Model), `,"choices":[`...)
}

const unfinished = `},"finish_reason":null}]}` + "\n\n"

func (c *chunks) beginMessage() {
	c.b = append(append(append(c.b, c.head...), `"role":"assistant","content":"","refusal":null`...), unfinished...)
}

func (c *chunks) appendText(piece []byte) {
	c.b = append(append(append(append(append(c.b, c.head...), `"content":"`...), piece...), '"'), unfinished...)
}

func (c *chunks) appendReasoning(piece []byte) {
	c.b = append(append(append(c.b, c.head...), `"reasoning_content":"`...), piece...)
	c.b = append(append(c.b, '"'), unfinished...)
}

func (c *chunks) appendThinking(block []byte) {
	c.b = append(appendExtraMember(append(c.b, c.head...), block), unfinished...)
}

func (c *chunks) appendCall(i int, id, name, thinking []byte) {
	c.b = strconv.AppendInt(append(append(c.b, c.head...), `"tool_calls":[{"index":`...), int64(i), 10)
	c.b = append(append(append(c.b, `,"id":"`...), id...), `","type":"function","function":{"name":"`...)
	c.b = append(append(c.b, name...), `","arguments":""}`...)
	c.b = append(append(appendExtra(c.b, thinking), "}]"...), unfinished...)
}

// appendExtra appends extra_content, in which the app sends back the thinking before a tool call.
func appendExtra(b, thinking []byte) []byte {
	if len(thinking) == 0 {
		return b
	}
	return appendExtraMember(append(b, ','), thinking)
}

// appendExtraMember appends the member extra_content with thinking blocks.
func appendExtraMember(b, thinking []byte) []byte {
	return append(append(append(b, `"extra_content":{"anthropic":{"thinking":[`...), thinking...), "]}}"...)
}

func (c *chunks) appendArguments(i int, piece []byte) {
	c.b = strconv.AppendInt(append(append(c.b, c.head...), `"tool_calls":[{"index":`...), int64(i), 10)
	c.b = append(append(append(append(c.b, `,"function":{"arguments":"`...), piece...), `"}}]`...), unfinished...)
}

func (c *chunks) finishMessage(f finish) {
	c.b = append(c.b, c.head...)
	if f.refusal != nil {
		c.b = append(append(append(c.b, `"refusal":"`...), f.refusal...), '"')
	}
	c.b = append(append(append(c.b, `},"finish_reason":"`...), f.reason...), '"')
	c.b = append(appendStop(c.b, f.stop), "}]}\n\n"...)
}

// appendStop appends the stop sequence that ended the message, if one did. It is an additive member of the choice.
func appendStop(b, stop []byte) []byte {
	if stop == nil {
		return b
	}
	return append(append(append(b, `,"stop_sequence":"`...), stop...), '"')
}

func (c *chunks) appendUsage(b []byte, u *provider.Usage) []byte {
	b = append(append(b, c.head[:c.top]...), `],"usage":`...)
	return append(appendUsage(b, u), "}\n\n"...)
}
