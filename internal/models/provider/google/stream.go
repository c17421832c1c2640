package google

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

const (
	// maxEvent bounds an event, in bytes: a call comes whole in one.
	maxEvent = 16 << 20
	// finishWait is how long the end of the body is waited for, once the answer
	// has a finish reason. It is not worth the idle time-out.
	finishWait = 5 * time.Second
)

// Stream starts a streamed request and waits for its first chunk.
func (c *Client) Stream(ctx context.Context, r *provider.Request) (provider.Stream, error) {
	x, err := c.post(ctx, r, ":streamGenerateContent?alt=sse")
	if err != nil {
		return nil, err
	}
	s := &stream{client: c, request: r, x: x, buf: buffers.Get().(*buffer)}
	s.out = s.buf.out
	s.events = provider.NewSSE(x, s.buf.in)
	s.events.LimitEvent(maxEvent)
	s.events.OmitFrames()
	s.take = s.takeEvent
	if s.first, err = s.read(); err != nil {
		_ = s.Close() // the first error counts
		return nil, started(err)
	}
	s.unread = true
	return s, nil
}

// started makes the failure of a stream that never began.
func started(err error) error {
	var p *provider.Error
	if errors.As(err, &p) {
		return err
	}
	e := upstream.Failed(http.StatusOK, err)
	e.Retry = errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, upstream.ErrSilent)
	return e
}

// buffer is what a stream reads into and writes out of. It is used again once a
// stream was read to its end.
type buffer struct{ in, out []byte }

const bufferSize = 8 << 10

var buffers = sync.Pool{New: func() any { return &buffer{make([]byte, 0, bufferSize), make([]byte, 0, bufferSize)} }}

type stream struct {
	client  *Client
	request *provider.Request
	x       *upstream.Exchange
	events  *provider.SSE
	buf     *buffer // nil once it was given back

	take  func(provider.Event) (bool, error) // takeEvent
	parts []part                             // of the event at hand; the list is used again

	head  []byte // every chunk up to its choices, from the first event on
	out   []byte // the chunks of this turn
	begun bool   // the first chunk was written

	end     outcome
	counts  counts
	counted bool // a count came with the finish reason, or after it

	first  provider.Chunk
	unread bool // first is still to be returned
	ended  error
}

// Next returns what has arrived (see provider.Stream).
func (s *stream) Next() (provider.Chunk, error) {
	if s.unread {
		s.unread = false
		return s.first, nil
	}
	if s.ended != nil && s.buf != nil {
		// The caller has no use any more for what it got last.
		if in := s.events.Buffer(); cap(in) == bufferSize && cap(s.out) == bufferSize {
			s.buf.in, s.buf.out = in[:0], s.out[:0]
			buffers.Put(s.buf)
		}
		s.buf, s.out = nil, nil
	}
	return s.read()
}

// read returns the chunks of the events that one read brought, so that they go
// out in one write. Events that say nothing to the app are not the end of it.
func (s *stream) read() (provider.Chunk, error) {
	if s.ended != nil {
		return provider.Chunk{}, s.ended
	}
	s.out = s.out[:0]
	for len(s.out) == 0 {
		if _, err := s.events.Run(s.take); err != nil {
			return s.finish(err)
		}
	}
	return provider.Chunk{Frames: s.out}, nil
}

// finish ends the stream: err is why nothing more can be read. An answer is
// whole when it had a finish reason, whatever became of the connection then.
func (s *stream) finish(err error) (provider.Chunk, error) {
	var failure *provider.Error
	clean := errors.Is(err, io.EOF)
	switch {
	case errors.As(err, &failure):
		s.ended = err
	case s.end.over():
		return s.conclude(clean)
	case clean:
		s.ended = fmt.Errorf("the stream was cut: %w", io.ErrUnexpectedEOF)
	default:
		s.ended = err
	}
	if len(s.out) == 0 {
		return provider.Chunk{}, s.ended
	}
	return provider.Chunk{Frames: s.out}, nil
}

// conclude writes the finish reason and the usage.
func (s *stream) conclude(clean bool) (provider.Chunk, error) {
	reason := s.end.reason()
	if reason == "" {
		s.ended = unusable(&s.end, !s.begun)
		if len(s.out) == 0 {
			return provider.Chunk{}, s.ended
		}
		return provider.Chunk{Frames: s.out}, nil
	}
	s.ended = io.EOF
	s.begin(`""`)
	s.out = append(append(append(s.open(), `},"finish_reason":"`...), reason...), "\"}]}\n\n"...)
	frames := len(s.out)
	chunk := provider.Chunk{}
	if clean || s.counted {
		chunk.Usage = s.end.usage(&s.counts)
	}
	if chunk.Usage != nil {
		s.out = append(append(s.out, s.head...), `[],"usage":`...)
		s.out = append(appendUsage(s.out, chunk.Usage), "}\n\n"...)
		chunk.UsageFrame = s.out[frames:]
	}
	chunk.Frames = s.out[:frames:frames]
	return chunk, nil
}

// takeEvent turns one event into chunks. It keeps nothing of it as it stands.
func (s *stream) takeEvent(e provider.Event) (bool, error) {
	in := response{parts: s.parts}
	if !in.read(e.Payload) || in.failure != nil || e.Failed {
		return false, s.failed(s.client.instead(s.x.Header, e.Payload))
	}
	if s.head == nil {
		s.head = s.client.appendHead(append(make([]byte, 0, 256), "data: "...), s.request, &in, "chat.completion.chunk")
	}
	for _, p := range in.parts {
		s.say(p)
	}
	s.parts = in.parts[:0]
	s.end.see(&in)
	s.counts.add(in.usage)
	if s.end.over() {
		s.counted = s.counted || in.usage != nil
		s.x.Hurry(finishWait)
	}
	return false, nil
}

// failed is a failure within the stream. Once something was sent, no other try
// can help, and it is no longer the request that was wrong.
func (s *stream) failed(e *provider.Error) error {
	if s.begun {
		e.Kind, e.Message, e.Retry = provider.Failed, "the provider failed", false
	}
	return e
}

// say writes the chunk of one part.
func (s *stream) say(p part) {
	switch {
	case p.call:
		s.begin("null")
		s.out = append(s.open(), `"tool_calls":[{"index":`...)
		s.out = append(strconv.AppendInt(s.out, int64(s.end.calls), 10), ',')
		s.out = append(appendCall(s.out, p, s.client.newID), "}]"...)
		s.end.calls++
	case p.thought || len(p.text) <= 2 && len(p.signature) <= 2:
		return
	default:
		text := p.text
		if text == nil {
			text = []byte(`""`)
		}
		s.begin(`""`)
		s.out = append(append(s.open(), `"content":`...), text...)
		s.out = appendSignature(s.out, p.signature)
		s.end.spoke = s.end.spoke || len(text) > 2
	}
	s.out = append(s.out, "},\"finish_reason\":null}]}\n\n"...)
}

// begin writes the first chunk, before anything else is said.
func (s *stream) begin(content string) {
	if s.begun {
		return
	}
	s.begun = true
	s.out = append(append(s.open(), `"role":"assistant","content":`...), content...)
	s.out = append(s.out, "},\"finish_reason\":null}]}\n\n"...)
}

// open writes a chunk up to the members of its delta.
func (s *stream) open() []byte {
	return append(append(s.out, s.head...), `[{"index":0,"delta":{`...)
}

// Over reports whether the body has ended (see provider.Stream).
func (s *stream) BodyEnded() bool { return s.x.BodyEnded() }

// Close ends the call at the provider. It may be called at any time.
func (s *stream) Close() error {
	s.x.End(false) // the end of the body was read, or else nobody waits for it
	return nil
}
