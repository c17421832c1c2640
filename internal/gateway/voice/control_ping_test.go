package voice

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// TestControlPings pings an app that reads, and closes the channel of one that does not answer.
func TestControlPings(t *testing.T) {
	t.Parallel()
	lost := make(chan error, 2)
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		pinging, stop := context.WithCancel(context.Background())
		defer stop()
		pingControl(pinging, ws, 300*time.Millisecond)
		_, _, err = ws.Read(context.Background())
		lost <- err
	}))
	t.Cleanup(node.Close)
	dial := func(onPing func()) *websocket.Conn {
		t.Helper()
		ws, _, err := websocket.Dial(t.Context(), node.URL, &websocket.DialOptions{
			OnPingReceived: func(context.Context, []byte) bool { onPing(); return true },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ws.CloseNow() })
		return ws
	}

	pings := make(chan struct{}, 1000)
	answering := dial(func() { pings <- struct{}{} })
	answering.CloseRead(t.Context()) // it reads, and so answers pings
	for range 3 {
		select {
		case <-pings:
		case err := <-lost:
			t.Fatalf("an app that answers was closed: %v", err)
		case <-time.After(20 * time.Second):
			t.Fatal("no ping came")
		}
	}
	_ = answering.CloseNow()
	<-lost

	dial(func() {}) // never reads
	select {
	case err := <-lost:
		if err == nil {
			t.Error("the channel had a message")
		}
	case <-time.After(20 * time.Second):
		t.Error("a channel that answers no ping stays open")
	}
}

// TestMissingUpgrade names the header that a proxy has dropped.
func TestMissingUpgrade(t *testing.T) {
	t.Parallel()
	err := checkUpgrade(httptest.NewRequest("GET", "/v1/realtime/sessions/x/control", nil))
	if err == nil || !strings.Contains(err.Error(), "Upgrade: websocket") {
		t.Errorf("the refusal is %v", err)
	}
}
