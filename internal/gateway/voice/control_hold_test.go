package voice

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// TestStartedAfterCommit: the app hears that its session is live when that is saved, so that GET says the same, and
// what comes after it comes after it. The close of the channel waits for no database.
func TestStartedAfterCommit(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(r *runner, c *controlChannel){
		"saved":  func(r *runner, _ *controlChannel) { r.saver.noteSaved(1) },
		"closed": func(_ *runner, c *controlChannel) { c.closeAfter(true) },
		"lost":   func(r *runner, _ *controlChannel) { close(r.stopped) },
	} {
		accepted := make(chan *websocket.Conn)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ws, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
			}
			accepted <- ws
			<-t.Context().Done()
		}))
		t.Cleanup(server.Close)
		app, _, err := websocket.Dial(t.Context(), server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &controlChannel{ws: <-accepted}
		r := &runner{node: &node{}, control: c, stopped: make(chan struct{})}
		r.saver = &saver{stopped: r.stopped, wanted: 1}
		r.carryOut(session.ToApp{Event: "started", Saved: true})
		r.carryOut(session.ToApp{Event: "created"})
		c.mu.Lock()
		if len(c.queue) != 2 || c.writing {
			t.Errorf("%s: it is sent before: %d wait", name, len(c.queue))
		}
		c.mu.Unlock()
		go ends(r, c)
		for _, want := range []string{`"started"`, `"created"`} {
			if _, got, err := app.Read(t.Context()); err != nil || string(got) != want {
				t.Errorf("%s: %s, %v", name, got, err)
			}
		}
	}
}
