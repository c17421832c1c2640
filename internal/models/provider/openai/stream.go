package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// finishWait is the time limit for [DONE] after the usage has arrived.
const finishWait = 5 * time.Second

// Stream starts a streamed request and waits for its first chunk.
func (c *Client) Stream(ctx context.Context, r *provider.Request) (provider.Stream, error) {
	if r.Facts.Responses {
		return c.streamResponse(ctx, r)
	}
	x, err := c.PostStream(ctx, path, c.encodeRequest(r), r.ID)
	if err != nil {
		return nil, err
	}
	if x.IsJSON() { // it does not stream, or it answers with an error
		defer x.End(false)
		response, err := c.readCompletion(x, r)
		if err != nil {
			return nil, err
		}
		return provider.NewWholeStream(response)
	}
	s := &stream{Exchange: x, client: c, tools: len(r.Tools) > 0}
	s.events = provider.NewSSE(x)
	s.events.LimitEvent(maxChunk)
	s.handle = s.handleEvent
	if s.first, err = s.read(); err != nil {
		_ = s.Close() // the first error counts
		return nil, makeStartError(x.StatusCode, err)
	}
	s.unread = true
	return s, nil
}

// makeStartError makes the error of a stream that never began.
func makeStartError(status int, err error) error {
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the stream ended before it began: %w", err)
	}
	return makeFailure(status, err)
}

// maxChunk bounds one event, in bytes.
const maxChunk = 16 << 20

type stream struct {
	*upstream.Exchange
	client    *Client
	events    *provider.SSE
	handle    func(provider.Event) (bool, error)
	first     provider.Chunk
	unread    bool           // first is still to be returned
	usage     provider.Chunk // the usage that has arrived and was not returned
	finished  bool           // the last choice has a finish reason: the response is complete, even without [DONE]
	ended     error
	done      atomic.Bool // [DONE] has arrived
	tools     bool        // the request has tools
	sawCalls  bool        // the response has tool calls
	begun     bool        // a part of the response has arrived
	rewritten []byte      // a chunk that is relayed with changes
	id        string      // of the completion, from the first chunk
}

// Next returns the chunks that have arrived (see provider.Stream).
func (s *stream) Next() (provider.Chunk, error) {
	if s.unread {
		s.unread = false
		return s.first, nil
	}
	if s.ended != nil {
		s.events.Release() // the caller has no use any more for what it got last
	}
	return s.read()
}

// read returns the events of one network read, so that the relay writes them at one time.
func (s *stream) read() (provider.Chunk, error) {
	if s.ended != nil {
		return provider.Chunk{}, s.ended
	}
	frames, err := s.events.Run(s.handle)
	if errors.Is(err, errRewritten) {
		frames, err = append(frames, s.rewritten...), nil // the run has no room: this copies
	}
	c := provider.Chunk{Frames: frames}
	// Some servers send usage with every chunk, or first: it is that of the response only when this is complete.
	if s.finished || errors.Is(err, errDone) {
		c.UsageFrame, c.Usage = s.usage.UsageFrame, s.usage.Usage
		s.usage = provider.Chunk{}
	}
	_, isRefusal := errors.AsType[*provider.Error](err)
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, errDone):
		s.done.Store(true)
		err = io.EOF
	case s.finished && !isRefusal:
		err = io.EOF // only [DONE] is missing, or the usage too
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("the stream was cut: %w", io.ErrUnexpectedEOF)
	}
	s.ended = err
	if len(c.Frames) == 0 && c.UsageFrame == nil {
		return provider.Chunk{}, err
	}
	return c, nil
}

// These errors end a run of events: [DONE] has arrived, or stream.rewritten holds the next chunk.
var (
	errDone      = errors.New("done")
	errRewritten = errors.New("mended")
)

// handleEvent inspects one event and reports whether it is relayed unchanged.
func (s *stream) handleEvent(e provider.Event) (bool, error) {
	kind, usage := provider.Classify(e.Payload)
	if s.id == "" {
		s.id = readCompletionID(e.Payload)
	}
	switch {
	case kind == provider.Finish:
		return false, errDone
	case kind == provider.Failure, e.Failed:
		return false, s.client.makeInBandError(findErrorObject(e.Payload), s.begun)
	case kind == provider.Garbage:
		return false, upstream.NewFailure(http.StatusOK,
			fmt.Errorf("the stream carries something else than JSON: %s", upstream.Describe(e.Payload)))
	case kind == provider.UsageOnly:
		if s.finished {
			s.Hurry(finishWait)
		}
		s.usage.UsageFrame = append([]byte(nil), e.Frame...)
		s.usage.Usage = usage // the last one counts
		return false, nil
	case kind == provider.WithUsage:
		s.usage.Usage = usage
	}
	s.begun, s.finished = true, provider.HasFinishReason(e.Payload)
	if s.tools {
		return s.rewriteFinish(e.Payload)
	}
	return true, nil
}

// rewriteFinish replaces a wrong finish reason in the chunk that ends a response with tool calls.
// It reports whether the chunk is relayed unchanged.
func (s *stream) rewriteFinish(payload []byte) (bool, error) {
	o, _ := provider.ReadOutline(payload)
	end := readEnding(o.Choices)
	s.sawCalls = s.sawCalls || end.calls
	if !s.sawCalls || string(end.reason) != plainStop {
		return true, nil
	}
	s.rewritten = provider.AppendFrame(nil, replacePart(payload, end.reason, callsStop))
	return false, errRewritten
}

// findErrorObject returns the error object of an event: its member error, or the whole payload.
func findErrorObject(payload []byte) []byte {
	if o, ok := provider.ReadOutline(payload); ok && o.Error != nil {
		return o.Error
	}
	return payload
}

// Close ends the call at the provider. After a complete response it waits briefly for the end of the body, so that the
// connection can be reused.
func (s *stream) Close() error {
	s.End(s.done.Load())
	return nil
}

// ID returns the provider's id of the completion, by which GetStoredUsage finds its record.
func (s *stream) ID() string { return s.id }

// readCompletionID returns the id of a chunk, "" if it has none.
func readCompletionID(payload []byte) (id string) {
	provider.Members(payload, func(name, value []byte) bool {
		if string(name) == "id" && len(value) > 2 && value[0] == '"' {
			id = string(value[1 : len(value)-1])
		}
		return id == ""
	})
	return id
}
