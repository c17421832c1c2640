package google

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/models/conversation/completions"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

const (
	// maxEvent bounds an event, in bytes. A tool call comes in one event.
	maxEvent = 16 << 20
	// finishWait is the time limit for the end of the body after the finish reason. It is shorter
	// than the idle time-out.
	finishWait = 5 * time.Second
)

// Stream starts a streamed request and waits for its first chunk.
func (c *Client) Stream(ctx context.Context, r *provider.Request) (provider.Stream, error) {
	x, err := c.post(ctx, r, streamMethod)
	if err != nil {
		return nil, err
	}
	if x.IsJSON() { // it does not stream, or it answers with an error
		defer x.End(false)
		body, err := x.ReadAll()
		if err != nil {
			return nil, upstream.NewFailure(x.StatusCode, err)
		}
		response, err := c.translateAnswer(r, x.Header, body)
		if err != nil {
			return nil, err
		}
		return provider.NewWholeStream(response)
	}
	s := &stream{client: c, x: x, buf: buffers.Get().(*[]byte), events: provider.NewSSE(x)}
	s.out = completions.NewStream(*s.buf, r, c.now())
	s.decoder = decoder{emit: s.out.Write, reasons: r.WantReasoning, newID: c.newID}
	s.events.LimitEvent(maxEvent)
	s.events.OmitFrames()
	s.handle = s.handleEvent
	if s.first, err = s.read(); err != nil {
		_ = s.Close() // the first error counts
		return nil, makeStartError(err)
	}
	s.unread = true
	return s, nil
}

// makeStartError makes the error of a stream that never began.
func makeStartError(err error) error {
	var p *provider.Error
	if errors.As(err, &p) {
		return err
	}
	e := upstream.NewFailure(http.StatusOK, err)
	e.Retry = errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, upstream.ErrSilent)
	return e
}

const bufferSize = 8 << 10

// buffers pools the write buffers of streams that were read to their end.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferSize); return &b }}

type stream struct {
	client *Client
	x      *upstream.Exchange
	events *provider.SSE
	buf    *[]byte // of out; nil after it has returned to the pool

	handle func(provider.Event) (bool, error) // handleEvent, bound one time
	parts  []part                             // of the current event; the slice is reused

	decoder decoder
	out     *completions.Stream

	counts  counts
	counted bool // a count arrived with the finish reason or after it
	goesOn  bool // content came after a finish reason: only the end of the body ends the answer

	first  provider.Chunk
	unread bool // first is still to be returned
	ended  error
}

// Next returns the chunks that have arrived (see provider.Stream).
func (s *stream) Next() (provider.Chunk, error) {
	if s.unread {
		s.unread = false
		return s.first, nil
	}
	if s.ended != nil && s.buf != nil {
		// The caller has no use any more for what it got last.
		s.events.Release()
		if frames := s.out.Frames(); cap(frames) == bufferSize {
			*s.buf = frames[:0]
			buffers.Put(s.buf)
		}
		s.buf = nil
	}
	return s.read()
}

// read returns the chunks of one network read, so that the relay writes them at one time. It reads on while the events
// have no content for the app.
func (s *stream) read() (provider.Chunk, error) {
	if s.ended != nil {
		return provider.Chunk{}, s.ended
	}
	s.out.Reset()
	for !s.out.HasNew() {
		if _, err := s.events.Run(s.handle); err != nil {
			return s.finish(err)
		}
	}
	return provider.Chunk{Frames: s.out.Frames()}, nil
}

// ReportedInput returns the input tokens that the provider has reported, also of an answer that breaks off; 0 = none.
func (s *stream) ReportedInput() int64 {
	if s.counts.absurd {
		return 0
	}
	return s.counts.prompt + s.counts.tools
}

// finish ends the stream after the read error err. A response with a finish reason is complete, even if the connection
// failed afterwards.
func (s *stream) finish(err error) (provider.Chunk, error) {
	var failure *provider.Error
	clean := errors.Is(err, io.EOF)
	switch {
	case errors.As(err, &failure):
		s.ended = err
	case s.decoder.end.hasEnded() && (clean || !s.goesOn):
		return s.conclude(clean)
	case clean:
		s.ended = fmt.Errorf("the stream was cut: %w", io.ErrUnexpectedEOF)
	default:
		s.ended = err
	}
	if !s.out.HasNew() {
		return provider.Chunk{}, s.ended
	}
	return provider.Chunk{Frames: s.out.Frames()}, nil
}

// conclude writes the end of the answer, and the usage.
func (s *stream) conclude(clean bool) (provider.Chunk, error) {
	d := &s.decoder
	if !d.finish() {
		s.ended = makeUnusableError(&d.end, !d.begun)
		if !s.out.HasNew() {
			return provider.Chunk{}, s.ended
		}
		return provider.Chunk{Frames: s.out.Frames()}, nil
	}
	s.ended = io.EOF
	chunk := provider.Chunk{Frames: s.out.Frames()}
	if clean || s.counted {
		chunk.Usage = d.end.makeUsage(&s.counts)
	}
	if chunk.Usage != nil {
		chunk.UsageFrame = s.out.AppendUsage(nil, chunk.Usage)
	}
	return chunk, nil
}

// handleEvent translates one event into chunks. It always returns false, because no event is relayed unchanged.
func (s *stream) handleEvent(e provider.Event) (bool, error) {
	in := response{parts: s.parts}
	if !in.read(e.Payload) || in.failure != nil || e.Failed {
		return false, s.makeFailure(s.client.makeBodyError(s.x.Header, e.Payload))
	}
	s.decoder.name(&in)
	s.goesOn = s.goesOn || s.decoder.end.hasEnded() && len(in.parts) > 0
	for _, p := range in.parts {
		s.decoder.handlePart(&p)
	}
	s.parts = in.parts[:0]
	s.decoder.end.readEnd(&in)
	s.counts.add(in.usage)
	if s.decoder.end.hasEnded() {
		s.counted = s.counted || in.usage != nil
		s.x.Hurry(finishWait)
	}
	if s.goesOn {
		s.x.Wait()
	}
	return false, nil
}

// makeFailure adapts an error within the stream. After a chunk was sent the call cannot be retried, and the request is
// not at fault.
func (s *stream) makeFailure(e *provider.Error) error {
	if s.decoder.begun {
		e.Kind, e.Message, e.Retry = provider.Failed, "the provider failed", false
	}
	return e
}

// BodyEnded reports whether the body has ended (see provider.Stream).
func (s *stream) BodyEnded() bool { return s.x.BodyEnded() }

// Close ends the call at the provider. It may be called at any time.
func (s *stream) Close() error {
	s.x.End(false) // do not wait for the end of the body
	return nil
}
