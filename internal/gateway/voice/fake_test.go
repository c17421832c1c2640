package voice

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// fakeProvider is a realtime provider without media: calls, sidebands, hang-ups. The test sends the
// events of a call.
type fakeProvider struct {
	t    *testing.T
	url  string
	mu   sync.Mutex
	n    int
	call map[string]*fakeCall
	come chan *socket // sidebands, as they attach

	refuse    http.HandlerFunc // answers calls instead; nil = they are made
	missing   int              // so many sidebands are not found at first
	stubborn  int              // so many hang-ups fail
	noDial    bool             // sidebands are refused
	late      bool             // no browser has connected: no call is found
	hangUps   int
	hanging   func(call string) // called by each hang-up first; nil = none
	lastOffer string
	session   string
}

type fakeCall struct{ gone bool }

func newFakeProvider(t *testing.T) *fakeProvider {
	f := &fakeProvider{t: t, call: map[string]*fakeCall{}, come: make(chan *socket, 16)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /realtime/calls", f.create)
	mux.HandleFunc("POST /realtime/calls/{id}/hangup", f.hangUp)
	mux.HandleFunc("GET /realtime", f.attach)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

func (f *fakeProvider) create(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		f.refuse(w, r)
		return
	}
	if r.Header.Get("Authorization") != "Bearer sk-test" {
		http.Error(w, `{"error":{"message":"no"}}`, 400)
		return
	}
	form, err := r.MultipartReader()
	for err == nil {
		part, partErr := form.NextPart()
		if partErr != nil {
			break
		}
		b, _ := io.ReadAll(part)
		if part.FormName() == "sdp" {
			f.lastOffer = string(b)
		} else {
			f.session = string(b)
		}
	}
	f.n++
	id := fmt.Sprintf("rtc_u1_%d", f.n)
	f.call[id] = &fakeCall{}
	w.Header().Set("Location", "/v1/realtime/calls/"+id)
	w.WriteHeader(201)
	_, _ = io.WriteString(w, "v=0\r\nanswer")
}

func (f *fakeProvider) hangUp(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	hanging := f.hanging
	f.mu.Unlock()
	if hanging != nil {
		hanging(r.PathValue("id"))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hangUps++
	c := f.call[r.PathValue("id")]
	switch {
	case f.stubborn > 0:
		f.stubborn--
		http.Error(w, "", 500)
	case c == nil || c.gone || f.late:
		http.Error(w, `{"error":{"code":"call_id_not_found"}}`, 404)
	default:
		c.gone = true
	}
}

func (f *fakeProvider) attach(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	c := f.call[r.URL.Query().Get("call_id")]
	missing := c == nil || c.gone || f.late
	if f.missing > 0 {
		f.missing--
		missing = true
	}
	noDial := f.noDial
	f.mu.Unlock()
	switch {
	case noDial:
		http.Error(w, "", http.StatusServiceUnavailable)
		return
	case missing:
		http.Error(w, `{"error":{"code":"call_id_not_found"}}`, 404)
		return
	}
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	s := listenTo(f.t, ws)
	f.come <- s
	<-s.over
}

// gone reports whether all calls are hung up.
func (f *fakeProvider) gone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.call {
		if !c.gone {
			return false
		}
	}
	return true
}

const sdpOffer = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n" +
	"m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n"

// connect makes the browser's offer, and returns the sideband of its call.
func (w *world) connect(o opened) *socket {
	w.t.Helper()
	status, answer := w.call(w.nodes[0], "POST", strings.TrimPrefix(o.Client.OfferURL, w.nodes[0].url), sdpOffer,
		o.Client.Ticket)
	if status != 201 || !strings.HasPrefix(answer["text"].(string), "v=0") {
		w.t.Fatalf("offer: %d %v", status, answer)
	}
	return w.sideband()
}

func (w *world) sideband() *socket {
	w.t.Helper()
	select {
	case s := <-w.up.come:
		s.wait("session.update")
		return s
	case <-time.After(waitTimeout):
		w.t.Fatal("no sideband is attached")
		return nil
	}
}
