package anthropic

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/models/conversation/completions"
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
	s := &stream{x: x, events: newEvents(x), buf: buffers.Get().(*buffer)}
	s.out = completions.NewStream(s.buf.out, r, c.now())
	s.decoder = c.newDecoder(s.out.Write)
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
	out     *completions.Stream
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
			s.buf.release(s.out.Frames())
			s.buf = nil
		}
		return provider.Chunk{}, s.ended
	default:
		s.out.Reset()
	}
	for !s.out.HasNew() && s.ended == nil {
		s.readEvents()
	}
	c := provider.Chunk{Frames: s.out.Frames()}
	if s.usage != nil {
		c.UsageFrame, c.Usage, s.usage = s.out.AppendUsage(nil, s.usage), s.usage, nil
	}
	if !s.out.HasNew() && c.Usage == nil {
		return c, s.ended
	}
	return c, nil
}

// ReportedInput returns the input tokens that the provider has reported, also of an answer that breaks off; 0 = none.
func (s *stream) ReportedInput() int64 {
	u := &s.decoder.usage
	if u.absurd || u.input < 0 {
		return 0
	}
	return u.input + max(u.cached, 0) + max(u.written, 0)
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
