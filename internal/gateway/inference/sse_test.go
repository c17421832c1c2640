package inference

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/provider"
)

// A deadlineRecorder records the write deadlines that are set.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (w *deadlineRecorder) SetWriteDeadline(t time.Time) error {
	w.deadlines = append(w.deadlines, t)
	return nil
}

// A client gets its charge and [DONE] before the upstream connection is closed, which may
// wait for the provider.
func TestTheEndOfAStreamWaitsForNoProvider(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{
		chunks:  []provider.Chunk{{Frames: []byte(delta("Hello")), Usage: &provider.Usage{Input: 9, Output: 1}}},
		ended:   io.EOF,
		closing: make(chan struct{}),
	}
	b := newBundle(t, db.SQLite, f)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", id.NewUUID())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in, got := bufio.NewReader(resp.Body), ""
	for !strings.HasSuffix(got, "data: [DONE]\n") {
		line, err := in.ReadString('\n')
		if got += line; err != nil {
			t.Fatalf("%v after\n%s", err, got)
		}
	}
	close(f.closing)
	if rest, err := io.ReadAll(in); err != nil || string(rest) != "\n" || !strings.Contains(got, `"svc_final":`) {
		t.Errorf("%v, %q after\n%s", err, rest, got)
	}
}

// Every response has a write deadline, so that no call waits for ever for a client that
// does not read (F-32).
func TestEveryAnswerIsWrittenWithinATime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write func(http.ResponseWriter)
		limit time.Duration
	}{
		"stream": {func(w http.ResponseWriter) {
			out := newSSE(w, time.Minute)
			out.writeFrames([]byte("data: 1\n\n"))
		}, frameTimeout},
		"whole": {func(w http.ResponseWriter) {
			if err := writeResponse(w, nil, []byte("{}\n"), &rules.Entry{}); err != nil {
				t.Error(err)
			}
		}, responseTimeout},
	} {
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		before := time.Now()
		c.write(w)
		if len(w.deadlines) != 1 || w.deadlines[0].Before(before.Add(c.limit)) ||
			w.deadlines[0].After(time.Now().Add(c.limit)) {
			t.Errorf("%s: deadlines %v, want one in %v", name, w.deadlines, c.limit)
		}
	}
}
