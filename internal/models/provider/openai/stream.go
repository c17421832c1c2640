package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// finishWait is how long [DONE] is waited for when the usage is here.
const finishWait = 5 * time.Second

// Stream starts a streamed request and waits for its first chunk.
func (c *Client) Stream(ctx context.Context, r *provider.Request) (provider.Stream, error) {
	if r.Facts.Responses {
		s, err := c.respond(ctx, r)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	x, err := c.Post(ctx, path, c.encode(r), r.ID)
	if err != nil {
		return nil, err
	}
	buf := buffers.Get().(*[]byte)
	s := &stream{Exchange: x, client: c, buf: buf, tools: len(r.Tools) > 0}
	s.events = provider.NewSSE(x, *buf)
	s.events.LimitEvent(maxChunk)
	s.keep = s.sort
	if s.first, err = s.read(); err != nil {
		_ = s.Close() // the first error counts
		return nil, started(x.StatusCode, err)
	}
	s.unread = true
	return s, nil
}

// started makes the failure of a stream that never began.
func started(status int, err error) error {
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the stream ended before it began: %w", err)
	}
	return failed(status, err)
}

// buffers for reading streams are used again once a stream was read to its end.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferSize); return &b }}

const bufferSize = 8 << 10

// maxChunk bounds one event, in bytes.
const maxChunk = 16 << 20

type stream struct {
	*upstream.Exchange
	client *Client
	events *provider.SSE
	keep   func(provider.Event) (bool, error)
	buf    *[]byte // nil once it was given back
	first  provider.Chunk
	unread bool           // first is still to be returned
	usage  provider.Chunk // what sort found beside the frames
	billed bool           // the usage chunk came: the answer is whole, [DONE] or not
	ended  error
	done   atomic.Bool // [DONE] came
	tools  bool        // there may be tool calls
	called bool        // there were
	begun  bool        // something of the answer came
	mended []byte      // a chunk that goes out otherwise than it came
	id     string      // of the completion, from the first chunk
}

// Next returns what has arrived (see provider.Stream).
func (s *stream) Next() (provider.Chunk, error) {
	if s.unread {
		s.unread = false
		return s.first, nil
	}
	if s.ended != nil && s.buf != nil {
		// The caller has no use any more for what it got last.
		if b := s.events.Buffer(); cap(b) == bufferSize {
			*s.buf = b[:0]
			buffers.Put(s.buf)
		}
		s.buf = nil
	}
	return s.read()
}

// read returns the events that one read brought, so that they go out in one write.
func (s *stream) read() (provider.Chunk, error) {
	if s.ended != nil {
		return provider.Chunk{}, s.ended
	}
	s.usage = provider.Chunk{}
	frames, err := s.events.Run(s.keep)
	c := s.usage
	c.Frames = frames
	if err == nil {
		return c, nil
	}
	switch {
	case errors.Is(err, errMended):
		c.Frames = append(frames, s.mended...) // the run has no room: this copies
		return c, nil
	case errors.Is(err, errDone):
		s.done.Store(true)
		err = io.EOF
	case s.billed:
		err = io.EOF // nothing is missing but [DONE]
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("the stream was cut: %w", io.ErrUnexpectedEOF)
	}
	s.ended = err
	if len(c.Frames) == 0 && c.UsageFrame == nil {
		return provider.Chunk{}, err
	}
	return c, nil
}

// These end a run: [DONE] came, or mended holds the chunk that is next.
var (
	errDone   = errors.New("done")
	errMended = errors.New("mended")
)

// sort looks at one event and says whether it is relayed as it is.
func (s *stream) sort(e provider.Event) (bool, error) {
	kind, usage := provider.Classify(e.Payload)
	if s.id == "" {
		s.id = completionID(e.Payload)
	}
	switch {
	case kind == provider.Finish:
		return false, errDone
	case kind == provider.Failure, e.Failed:
		return false, s.client.interrupted(errorObject(e.Payload), s.begun)
	case kind == provider.Garbage:
		return false, upstream.Failed(http.StatusOK,
			fmt.Errorf("the stream carries something else than JSON: %.200q", e.Payload))
	case kind == provider.UsageOnly:
		s.billed = true
		s.Hurry(finishWait)
		s.usage.UsageFrame = append([]byte(nil), e.Frame...)
		s.usage.Usage = usage // the last one counts
		return false, nil
	case kind == provider.WithUsage:
		s.usage.Usage = usage
	}
	s.begun = true
	if s.tools {
		return s.mend(e.Payload)
	}
	return true, nil
}

// mend changes the chunk that ends an answer with calls, if it must be.
func (s *stream) mend(payload []byte) (bool, error) {
	o, _ := provider.ReadOutline(payload)
	end := readEnding(o.Choices)
	s.called = s.called || end.calls
	if !s.called || string(end.reason) != plainStop {
		return true, nil
	}
	s.mended = provider.AppendFrame(nil, replaced(payload, end.reason, callsStop))
	return false, errMended
}

// errorObject takes the error out of an event that carries one, or is one.
func errorObject(payload []byte) []byte {
	if o, ok := provider.ReadOutline(payload); ok && o.Error != nil {
		return o.Error
	}
	return payload
}

// Close ends the call at the provider. After a whole answer it waits a moment
// for the end of the body, so that the connection can be used again.
func (s *stream) Close() error {
	s.End(s.done.Load())
	return nil
}

// ID is the provider's id of the answer, by which its record is found.
func (s *stream) ID() string { return s.id }

// completionID reads a chunk's id; "" if it has none.
func completionID(payload []byte) (id string) {
	provider.Members(payload, func(name, value []byte) bool {
		if string(name) == "id" && len(value) > 2 && value[0] == '"' {
			id = string(value[1 : len(value)-1])
		}
		return id == ""
	})
	return id
}
