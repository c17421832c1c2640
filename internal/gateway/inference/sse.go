package inference

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// Write deadlines. A client that reads more slowly counts as disconnected; its call goes
// on without it (F-32).
const (
	frameTimeout    = 30 * time.Second // of one write of a stream
	sharedTimeout   = 2 * time.Second  // the same, while other clients wait for the call (decision 211)
	responseTimeout = 5 * time.Minute  // of a whole response
)

// keepAliveInterval is after how much silence a stream gets a comment, and then the next one.
// Proxies close a connection that is silent for 60 s (decision 030).
const keepAliveInterval = 15 * time.Second

// An sse writes a stream to its client as server-sent events. Once the client is gone it
// writes nothing. Frames that were not flushed go out when the handler returns.
type sse struct {
	w        http.ResponseWriter
	rc       *http.ResponseController
	interval time.Duration // of comments in silence
	links    web.Links     // of errors
	connID   string        // of the call
	format   shapes.Format // of the frames; nil = that of Chat Completions
	sent     func() []byte // the frames so far, of which some may be on their way
	isShared func() bool   // whether other clients wait for what is written; nil = none do

	mu         sync.Mutex // the keep-alive writes too
	begun      bool       // status 200 was sent
	gone       bool       // the client has disconnected
	deadlineAt time.Time
	writtenAt  time.Time   // when the client got something, or the wait began
	keepAlive  *time.Timer // nil = it was not started, or has ended
}

func newSSE(w http.ResponseWriter, interval time.Duration) *sse {
	return &sse{w: w, rc: http.NewResponseController(w), interval: interval}
}

// startKeepAlive sends status 200 and a comment after interval without a frame, and a comment
// after each further one, until stop. The headers of the response must be set.
func (s *sse) startKeepAlive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keepAlive == nil {
		s.writtenAt = time.Now()
		s.keepAlive = time.AfterFunc(s.interval, s.writeComment)
	}
}

// stop ends the keep-alive. After it, the handler alone writes, and may set headers again.
func (s *sse) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keepAlive != nil {
		s.keepAlive.Stop()
		s.keepAlive = nil
	}
}

// writeComment writes a comment if the stream has been silent for interval, or what a shape has in its place.
func (s *sse) writeComment() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keepAlive == nil || s.gone {
		return
	}
	if rest := s.interval - time.Since(s.writtenAt); rest > 0 {
		s.keepAlive.Reset(rest)
		return
	}
	comment := []byte(shapes.Comment)
	if s.format != nil {
		comment = s.format.KeepAlive()
	}
	s.write(comment)
	s.flushLocked()
	s.keepAlive.Reset(s.interval)
}

// writeFrames sends frames. The status is sent with the first ones, or with a comment: until
// then, a failure can be answered with its own status.
func (s *sse) writeFrames(frames []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(frames)
}

// write sends bytes of the stream. s.mu is held.
func (s *sse) write(b []byte) {
	if s.gone || len(b) == 0 {
		return
	}
	if !s.begun {
		s.begun = true
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no")
		s.w.WriteHeader(http.StatusOK)
	}
	s.writtenAt = time.Now()
	timeout, pause := frameTimeout, time.Second
	if s.isShared != nil && s.isShared() {
		timeout, pause = sharedTimeout, sharedTimeout/10
	}
	if s.writtenAt.Sub(s.deadlineAt) > pause {
		s.deadlineAt = s.writtenAt
		// Not every writer has deadlines. net/http lifts them after the response.
		_ = s.rc.SetWriteDeadline(s.writtenAt.Add(timeout))
	}
	if _, err := s.w.Write(b); err != nil {
		s.gone = true
	}
}

// hurry gives the client sharedTimeout to take what is being written. s.mu is not taken: the write may hold it.
func (s *sse) hurry() { _ = s.rc.SetWriteDeadline(time.Now().Add(sharedTimeout)) }

func (s *sse) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushLocked()
}

func (s *sse) flushLocked() {
	if s.begun && !s.gone && s.rc.Flush() != nil {
		s.gone = true
	}
}

// hasBegun reports whether the status was sent.
func (s *sse) hasBegun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

// renewDeadline gives the next write a deadline of its own, whatever was set before.
func (s *sse) renewDeadline() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadlineAt = time.Time{}
}

// isGone reports whether the client has disconnected.
func (s *sse) isGone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// endWithError ends a stream that has begun with an error event. If it has not, err is
// returned as it is, to be answered with its own status. The keep-alive must have stopped.
func (s *sse) endWithError(err error) error {
	if !s.hasBegun() {
		return err
	}
	var e *apierr.Error
	if !errors.As(err, &e) {
		e = apierr.Internal.Errorf("internal error")
	}
	s.writeFailure(e)
	return web.AlreadyReported(err)
}

// writeFailure writes an error as the end of a stream of whose bill nothing is known.
func (s *sse) writeFailure(e *apierr.Error) {
	if s.format == nil {
		s.writeFrames(errorFrame(e, s.links))
		s.writeFrames(doneFrame)
		return
	}
	frames, err := fillBill(s.format, failFrames(s.format, s.sent(), e, s.links), nil)
	if err != nil {
		panic("inference: fill in no bill: " + err.Error()) // cannot happen: nothing is encoded
	}
	s.writeFrames(frames)
}

// errorFrame returns an error inside a stream, in the form of the error envelope.
func errorFrame(e *apierr.Error, l web.Links) []byte {
	b, err := web.Envelope(e, l)
	if err != nil {
		panic("inference: encode an error: " + err.Error())
	}
	return append(append([]byte("data: "), bytes.TrimSpace(b)...), "\n\n"...)
}

// writeResponse sends a whole response with the svc block of its ledger row, in the shape of the client; nil = the
// canonical one.
func writeResponse(w http.ResponseWriter, shape shapes.Call, body []byte, e *rules.Entry) error {
	body, err := fillBody(shape, body, e)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(responseTimeout)) // as in write
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // a client that has disconnected retries with its key
	return nil
}
