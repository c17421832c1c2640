package inference

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// timed is a client that tells how long it was given.
type timed struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (w *timed) SetWriteDeadline(t time.Time) error {
	w.deadlines = append(w.deadlines, t)
	return nil
}

// No answer waits for ever for a client that does not read it (F-32).
func TestEveryAnswerIsWrittenWithinATime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write func(http.ResponseWriter)
		most  time.Duration
	}{
		"stream": {func(w http.ResponseWriter) {
			out := newSSE(w)
			out.write([]byte("data: 1\n\n"))
		}, writePatience},
		"whole": {func(w http.ResponseWriter) {
			if err := writeAnswer(w, []byte("{}\n")); err != nil {
				t.Error(err)
			}
		}, answerPatience},
	} {
		w := &timed{ResponseRecorder: httptest.NewRecorder()}
		before := time.Now()
		c.write(w)
		if len(w.deadlines) != 1 || w.deadlines[0].Before(before.Add(c.most)) || w.deadlines[0].After(time.Now().Add(c.most)) {
			t.Errorf("%s: deadlines %v, want one in %v", name, w.deadlines, c.most)
		}
	}
}
