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
	finishWait = 5 * time.Second // for the last event, when all that matters is here
)

// Stream starts a streamed request and waits until the model begins to answer.
// That the provider took the request is not enough: while it is overloaded it
// says so, and nothing more, right after that.
func (c *Client) Stream(ctx context.Context, r *provider.Request) (provider.Stream, error) {
	x, err := c.post(ctx, r)
	if err != nil {
		return nil, err
	}
	s := &stream{x: x, buf: buffers.Get().(*buffer), out: newChunks(r, c.now().Unix())}
	s.events, s.out.b = newEvents(x, s.buf.in), s.buf.out
	s.decoder = newDecoder(&s.out)
	for !s.decoder.begun && s.ended == nil {
		s.read()
	}
	if !s.decoder.begun {
		_ = s.Close() // the first error counts
		return nil, cut(s.ended, false)
	}
	s.unread = true
	return s, nil
}

// buffers for reading and writing are used again once an answer was read to its
// end, unless they grew.
var buffers = sync.Pool{New: func() any {
	return &buffer{make([]byte, 0, bufferSize), make([]byte, 0, bufferSize)}
}}

type buffer struct{ in, out []byte }

func (b *buffer) giveBack(in, out []byte) {
	if cap(in) == bufferSize && cap(out) == bufferSize {
		b.in, b.out = in[:0], out[:0]
		buffers.Put(b)
	}
}

// maxEvent bounds one event, in bytes: a call's arguments may come in one piece.
const maxEvent = 16 << 20

func newEvents(x *upstream.Exchange, buf []byte) *provider.SSE {
	e := provider.NewSSE(x, buf)
	e.LimitEvent(maxEvent)
	e.OmitFrames()
	return e
}

type stream struct {
	x       *upstream.Exchange
	buf     *buffer // nil once it was given back
	events  *provider.SSE
	decoder decoder
	out     chunks
	unread  bool // the first chunk is still to be returned
	ended   error
	usage   *provider.Usage // set once the answer is whole
	done    atomic.Bool     // the last event came
}

// Next returns what has arrived (see provider.Stream).
func (s *stream) Next() (provider.Chunk, error) {
	switch {
	case s.unread:
		s.unread = false
	case s.ended != nil:
		// The caller has no use any more for what it got last.
		if s.buf != nil {
			s.buf.giveBack(s.events.Buffer(), s.out.b)
			s.buf, s.out.b = nil, nil
		}
		return provider.Chunk{}, s.ended
	default:
		s.out.b = s.out.b[:0]
	}
	for len(s.out.b) == 0 && s.ended == nil {
		s.read()
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

// read takes in the events that one read brought.
func (s *stream) read() {
	_, err := s.events.Run(s.decoder.event)
	if s.decoder.finished {
		s.x.Hurry(finishWait)
	}
	if err == nil {
		return
	}
	if errors.Is(err, errDone) {
		s.done.Store(true)
	}
	s.ended = s.decoder.ending(err)
	if errors.Is(s.ended, io.EOF) {
		s.usage = s.decoder.usage.total()
	}
}

// ending is what the end of the events means: io.EOF if the answer is whole. For
// that only the last event may be missing, and whatever came in its place does
// not matter (F-21).
func (d *decoder) ending(err error) error {
	if errors.Is(err, errDone) || d.whole() {
		return io.EOF
	}
	var p *provider.Error
	if !errors.As(err, &p) && errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Over reports whether the body has ended (see provider.Stream).
func (s *stream) BodyEnded() bool { return s.x.BodyEnded() }

// Close ends the call at the provider.
func (s *stream) Close() error {
	s.x.End(s.done.Load())
	return nil
}

// chunks writes a message as OpenAI's chunks.
type chunks struct {
	b    []byte // what is to go out
	tail []byte // the usage chunk
	head []byte // of every chunk, up to its delta
	top  int    // how much of head comes before the first choice
}

func newChunks(r *provider.Request, created int64) chunks {
	b := appendHead([]byte("data: "), r, "chat.completion.chunk", created)
	return chunks{head: append(b, `{"index":0,"delta":{`...), top: len(b)}
}

// appendHead appends the beginning of an answer or a chunk, up to its choices.
// Its id is our request's.
func appendHead(b []byte, r *provider.Request, object string, created int64) []byte {
	b = provider.AppendQuote(append(b, `{"id":`...), "chatcmpl-"+strings.TrimPrefix(r.ID, "req_"))
	b = append(append(append(b, `,"object":"`...), object...), `","created":`...)
	b = strconv.AppendInt(b, created, 10)
	return append(provider.AppendQuote(append(b, `,"model":`...), r.Model), `,"choices":[`...)
}

const unfinished = `},"finish_reason":null}]}` + "\n\n"

func (c *chunks) begin() {
	c.b = append(append(append(c.b, c.head...), `"role":"assistant","content":"","refusal":null`...), unfinished...)
}

func (c *chunks) text(piece []byte) {
	c.b = append(append(append(append(append(c.b, c.head...), `"content":"`...), piece...), '"'), unfinished...)
}

func (c *chunks) call(i int, id, name, thinking []byte) {
	c.b = strconv.AppendInt(append(append(c.b, c.head...), `"tool_calls":[{"index":`...), int64(i), 10)
	c.b = append(append(append(c.b, `,"id":"`...), id...), `","type":"function","function":{"name":"`...)
	c.b = append(append(c.b, name...), `","arguments":""}`...)
	c.b = append(append(appendExtra(c.b, thinking), "}]"...), unfinished...)
}

// appendExtra appends extra_content, in which the app brings the thoughts back
// that led to a call.
func appendExtra(b, thinking []byte) []byte {
	if len(thinking) == 0 {
		return b
	}
	return append(append(append(b, `,"extra_content":{"anthropic":{"thinking":[`...), thinking...), "]}}"...)
}

func (c *chunks) arguments(i int, piece []byte) {
	c.b = strconv.AppendInt(append(append(c.b, c.head...), `"tool_calls":[{"index":`...), int64(i), 10)
	c.b = append(append(append(append(c.b, `,"function":{"arguments":"`...), piece...), `"}}]`...), unfinished...)
}

func (c *chunks) finish(reason string, refusal []byte) {
	c.b = append(c.b, c.head...)
	if refusal != nil {
		c.b = append(append(append(c.b, `"refusal":"`...), refusal...), '"')
	}
	c.b = append(append(append(c.b, `},"finish_reason":"`...), reason...), "\"}]}\n\n"...)
}

func (c *chunks) appendUsage(b []byte, u *provider.Usage) []byte {
	b = append(append(b, c.head[:c.top]...), `],"usage":`...)
	return append(appendUsage(b, u), "}\n\n"...)
}
