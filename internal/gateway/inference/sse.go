package inference

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
)

// writePatience is how long one write to a client may take. A slower reader is
// treated as gone; its call goes on without it (F-32).
const writePatience = 30 * time.Second

// answerPatience is how long a client may take to read an answer that comes whole.
// Who sent the same key waits for that as well.
const answerPatience = 5 * time.Minute

// sse writes a stream to its client, and keeps quiet once the client is gone.
// What was not flushed goes out when the handler returns, with the end of the body.
type sse struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	begun bool // the 200 is out
	gone  bool
	timed time.Time // the deadline was set then
}

func newSSE(w http.ResponseWriter) *sse { return &sse{w: w, rc: http.NewResponseController(w)} }

// write sends frames; the first ones take the status with them, so that until
// then a failure can still have a status of its own.
func (s *sse) write(frames []byte) {
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
	if now := time.Now(); now.Sub(s.timed) > time.Second {
		s.timed = now
		_ = s.rc.SetWriteDeadline(now.Add(writePatience)) // not every writer has one; net/http lifts it behind the answer
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

// errorFrame is an error inside a stream, in the envelope's shape.
func errorFrame(e *apierr.Error) []byte {
	b, err := json.Marshal(map[string]any{"error": map[string]any{
		"code": e.Code.Name, "message": e.Message, "type": e.Code.Type, "connection_id": nil, "increase_url": nil, "review_url": nil,
	}})
	if err != nil {
		panic("inference: an envelope is always JSON: " + err.Error())
	}
	return append(append([]byte("data: "), b...), "\n\n"...)
}

// writeAnswer sends a whole answer.
func writeAnswer(w http.ResponseWriter, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerPatience)) // as in write
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // a client that has gone asks again with its key
	return nil
}
