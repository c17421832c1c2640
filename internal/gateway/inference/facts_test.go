package inference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/emulator/facts"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/models/images"
)

// A watchedEmulator notes what the emulated providers have answered.
type watchedEmulator struct {
	http.Handler
	mu      sync.Mutex
	asked   int
	refusal string // the last one; "" = none
}

func (e *watchedEmulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := httptest.NewRecorder()
	e.Handler.ServeHTTP(answer, r)
	e.mu.Lock()
	e.asked++
	if answer.Code != http.StatusOK {
		e.refusal = fmt.Sprintf("%d %s", answer.Code, answer.Body.Bytes())
	}
	e.mu.Unlock()
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// take returns how often the providers were asked since the last time, and what they have refused.
func (e *watchedEmulator) take() (asked int, refusal string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	asked, refusal = e.asked, e.refusal
	e.asked, e.refusal = 0, ""
	return asked, refusal
}

// newEmulated returns a node whose providers are emulated.
func newEmulated(t *testing.T) (*matrix, *watchedEmulator) {
	t.Helper()
	watched := &watchedEmulator{Handler: emulator.New(emulator.Options{})}
	server := httptest.NewServer(watched)
	t.Cleanup(server.Close)
	m := newMatrix(t, db.SQLite)
	m.Images = images.New(images.Config{})
	m.stub = &providerStub{url: server.URL}
	m.Providers = m.newProviders(time.Hour, true)
	return m, watched
}

// TestCallsAreTaken makes, of each rule of the provider notes, the call that would naively break it: what Purser sends
// instead is taken, or Purser refuses the call itself and says why.
func TestCallsAreTaken(t *testing.T) {
	t.Parallel()
	list, err := facts.Load()
	if err != nil {
		t.Fatal(err)
	}
	m, watched := newEmulated(t)
	for i := range list {
		f := &list[i]
		switch {
		case f.Without != "" || f.NoCall != "" || f.Refused == nil && f.Call == nil && !f.SpeaksOurs():
			continue
		case f.Refused != nil && f.Call == nil && !f.SpeaksOurs():
			t.Errorf("%s: no call would lead to it, and the fact does not say why", f.Name())
			continue
		}
		status, body := m.callFact(f)
		asked, refusal := watched.take()
		want := map[string]int{facts.Taken: http.StatusOK, facts.Refused: 400, facts.Passed: 400}[f.Ours]
		if tooLong := status == http.StatusRequestEntityTooLarge; tooLong && f.Ours == facts.Refused {
			status = want
		}
		if status != want || (refusal != "") != (f.Ours == facts.Passed) || (asked > 0) == (f.Ours == facts.Refused) {
			t.Errorf("%s: %d, %.300s\nthe provider was asked %d times and has refused %s", f.Name(), status, body,
				asked, refusal)
		}
	}
}

// bases are where Purser serves the providers' APIs, by the routes of facts.
var bases = map[string]string{
	"chat": "/openai", "responses": "/openai", "embeddings": "/openai", "messages": "/anthropic", "generate": "/google",
}

// TestWhatProvidersTakePurserTakes sends what providers take to Purser's own version of the same API.
func TestWhatProvidersTakePurserTakes(t *testing.T) {
	t.Parallel()
	list, err := facts.Load()
	if err != nil {
		t.Fatal(err)
	}
	m, watched := newEmulated(t)
	for i := range list {
		f := &list[i]
		base := bases[f.To]
		if f.Without != "" || f.Refused != nil || base == "" || f.NoCall != "" && f.Own == "" {
			continue
		}
		status, body := m.postFact(base+f.Path, f.Body)
		asked, refusal := watched.take()
		isTaken := status == http.StatusOK && asked == 1 && refusal == ""
		if isRefused := status == http.StatusBadRequest && asked == 0; f.Own == "" && !isTaken ||
			f.Own != "" && !isRefused {
			t.Errorf("%s: %d, %.300s\nthe provider has refused %s", f.Name(), status, body, refusal)
		}
	}
}

// callFact makes the call of a fact.
func (m *matrix) callFact(f *facts.Fact) (status int, body []byte) {
	m.t.Helper()
	if f.IsEmbedding() {
		return m.postFact("/openai/v1/embeddings", f.CallBody())
	}
	return m.postFact("/v1/chat/completions", f.CallBody())
}

func (m *matrix) postFact(path string, members map[string]any) (status int, body []byte) {
	m.t.Helper()
	sent, err := json.Marshal(members)
	if err != nil {
		m.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(m.t.Context(), http.MethodPost, m.url+path, bytes.NewReader(sent))
	if err != nil {
		m.t.Fatal(err)
	}
	r.Header = http.Header{
		"Authorization":   {"Bearer " + m.token},
		"Content-Type":    {"application/json"},
		"Idempotency-Key": {id.NewUUID()},
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		m.t.Fatal(err)
	}
	return resp.StatusCode, body
}
