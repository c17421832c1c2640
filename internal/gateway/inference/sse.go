package inference

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
)

// Write deadlines. A client that reads more slowly counts as disconnected; its call goes
// on without it (F-32).
const (
	frameTimeout    = 30 * time.Second // of one write of a stream
	responseTimeout = 5 * time.Minute  // of a whole response; followers wait for it too
)

// An sse writes a stream to its client as server-sent events. Once the client is gone it
// writes nothing. Frames that were not flushed go out when the handler returns.
type sse struct {
	w          http.ResponseWriter
	rc         *http.ResponseController
	begun      bool // status 200 was sent
	gone       bool // the client has disconnected
	deadlineAt time.Time
}

func newSSE(w http.ResponseWriter) *sse { return &sse{w: w, rc: http.NewResponseController(w)} }

// writeFrames sends frames. The status is sent with the first ones: until then, a failure can
// be answered with its own status.
func (s *sse) writeFrames(frames []byte) {
	if s.gone || len(frames) == 0 {
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
	if now := time.Now(); now.Sub(s.deadlineAt) > time.Second {
		s.deadlineAt = now
		// Not every writer has deadlines. net/http lifts them after the response.
		_ = s.rc.SetWriteDeadline(now.Add(frameTimeout))
	}
	if _, err := s.w.Write(frames); err != nil {
		s.gone = true
	}
}

func (s *sse) flush() {
	if s.begun && !s.gone && s.rc.Flush() != nil {
		s.gone = true
	}
}

// errorFrame returns an error inside a stream, in the form of the error envelope.
func errorFrame(e *apierr.Error) []byte {
	b, err := json.Marshal(map[string]any{"error": map[string]any{
		"code":          e.Code.Name,
		"message":       e.Message,
		"type":          e.Code.Type,
		"connection_id": nil,
		"increase_url":  nil,
		"review_url":    nil,
	}})
	if err != nil {
		panic("inference: encode an error: " + err.Error())
	}
	return append(append([]byte("data: "), b...), "\n\n"...)
}

// writeResponse sends a whole response.
func writeResponse(w http.ResponseWriter, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(responseTimeout)) // as in write
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // a client that has disconnected retries with its key
	return nil
}
