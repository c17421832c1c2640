package realtime

import (
	"bytes"
	"context"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/emulator/exchange"
)

// A voice is a realtime emulator with the means to ask it.
type voice struct {
	*testing.T
	url string
}

func startVoice(t *testing.T, noMedia bool) *voice {
	t.Helper()
	e, mux := New(exchange.New(nil, 0), noMedia), http.NewServeMux()
	e.Mount(mux)
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		e.Close()
		s.Close()
	})
	return &voice{t, s.URL}
}

const cannedOffer = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF " +
	"111\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n"

// sendRequest sends a request with the key.
func (v *voice) sendRequest(method, path, kind, body string) (status int, header http.Header, text string) {
	v.Helper()
	r, err := http.NewRequestWithContext(v.Context(), method, v.url+path, strings.NewReader(body))
	if err != nil {
		v.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer k"}}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	resp, err := http.DefaultTransport.RoundTrip(r) // which tries nothing twice
	if err != nil {
		return 0, nil, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		v.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(answer)
}

// offer posts an offer with a session, as the two parts of a form.
func (v *voice) offer(sdp, session string) (status int, header http.Header, text string) {
	v.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, part := range []struct{ name, kind, text string }{
		{"sdp", "application/sdp", sdp},
		{"session", "application/json", session},
	} {
		w, err := form.CreatePart(textproto.MIMEHeader{"Content-Disposition": {
			`form-data; name="` + part.name + `"`,
		}, "Content-Type": {
			part.kind,
		}})
		if err == nil {
			_, err = io.WriteString(w, part.text)
		}
		if err != nil {
			v.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		v.Fatal(err)
	}
	return v.sendRequest("POST", "/v1/realtime/calls", form.FormDataContentType(), body.String())
}

// config is a session with instructions; more goes before its end.
func config(instructions, more string) string {
	return `{"type":"realtime","model":"gpt-realtime-2.1","instructions":` + quoted(instructions) + more + `}`
}

// createCall makes a call without media and returns its id.
func (v *voice) createCall(instructions, more string) string {
	v.Helper()
	status, header, text := v.offer(cannedOffer, config(instructions, more))
	if status != http.StatusCreated {
		v.Fatalf("%d: %s", status, text)
	}
	return path.Base(header.Get("Location"))
}

// A wire is one sideband.
type wire struct {
	*testing.T
	conn *websocket.Conn
	ctx  context.Context
}

func (v *voice) dialSideband(id string) (*wire, int) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), 30*time.Second)
	v.Cleanup(cancel)
	conn, resp, err := websocket.Dial(ctx, v.url+"/v1/realtime?call_id="+id,
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer k"}}})
	if err != nil {
		if resp == nil {
			v.Fatal(err)
		}
		return nil, resp.StatusCode
	}
	v.Cleanup(func() { _ = conn.CloseNow() })
	return &wire{v.T, conn, ctx}, resp.StatusCode
}

func (w *wire) sendEvent(events ...string) {
	w.Helper()
	for _, e := range events {
		if err := w.conn.Write(w.ctx, websocket.MessageText, []byte(e)); err != nil {
			w.Fatal(err)
		}
	}
}

// An anyEvent is what the tests look at in events.
type anyEvent struct {
	Type     string `json:"type"`
	Delta    string `json:"delta"`
	Args     string `json:"arguments"`
	Response struct {
		ID             string  `json:"id"`
		Status         string  `json:"status"`
		ConversationID *string `json:"conversation_id"`
		MaxOutput      raw     `json:"max_output_tokens"`
		Details        struct {
			Reason string     `json:"reason"`
			Error  eventError `json:"error"`
		} `json:"status_details"`
		Usage *voiceUsage `json:"usage"`
	} `json:"response"`
	ResponseID string `json:"response_id"`
	Item       struct {
		ID     string `json:"id"`
		Type   string `json:"type"`
		Status string `json:"status"`
		CallID string `json:"call_id"`

		Content raw `json:"content"`
	} `json:"item"`
	ItemID     string `json:"item_id"`
	Transcript string `json:"transcript"`
	Usage      struct {
		Type    string `json:"type"`
		Seconds int    `json:"seconds"`
	} `json:"usage"`
	AudioEndMS int           `json:"audio_end_ms"`
	Session    sessionObject `json:"session"`
	Error      eventError    `json:"error"`
}

type voiceUsage struct {
	Total  int `json:"total_tokens"`
	Input  int `json:"input_tokens"`
	Output int `json:"output_tokens"`
	In     struct {
		Text   int `json:"text_tokens"`
		Audio  int `json:"audio_tokens"`
		Cached int `json:"cached_tokens"`
		Parts  struct {
			Text  int `json:"text_tokens"`
			Audio int `json:"audio_tokens"`
		} `json:"cached_tokens_details"`
	} `json:"input_token_details"`
	Out struct {
		Text      int `json:"text_tokens"`
		Audio     int `json:"audio_tokens"`
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_token_details"`
}

// readEvent reads one event.
func (w *wire) readEvent() (ev anyEvent, err error) {
	w.Helper()
	_, text, err := w.conn.Read(w.ctx)
	if err != nil {
		return ev, err
	}
	return ev, json.Unmarshal(text, &ev)
}

// until reads events up to one of a type, and returns it and the types of all.
func (w *wire) until(kind string) (ev anyEvent, kinds []string) {
	w.Helper()
	for {
		ev, err := w.readEvent()
		if err != nil {
			w.Fatalf("waiting for %s after %s: %v", kind, kinds, err)
		}
		if kinds = append(kinds, ev.Type); ev.Type == kind {
			return ev, kinds
		}
	}
}

const (
	respond = `{"type":"response.create"}`
	hello   = `{"type":"conversation.item.create","item":{"type":"message","role":"user",` +
		`"content":[{"type":"input_text","text":"Hello"}]}}`
)

func TestCallIsAnsweredListenedToAndHungUp(t *testing.T) {
	t.Parallel()
	v := startVoice(t, true)
	status, header, sdp := v.offer(cannedOffer, config("Be kind.\n!emu fast=100", ""))
	if status != http.StatusCreated || !strings.HasPrefix(sdp, "v=0\r\n") ||
		!strings.HasPrefix(header.Get("Location"), "/v1/realtime/calls/rtc_") {
		t.Fatalf("%d %v: %s", status, header, sdp)
	}
	id := path.Base(header.Get("Location"))
	w, _ := v.dialSideband(id)
	w.sendEvent(`{"type":"session.update","session":{"type":"realtime","max_output_tokens":1000}}`)
	updated, kinds := w.until("session.updated")
	if len(kinds) != 1 || string(updated.Session.MaxOutputTokens) != "1000" ||
		updated.Session.Instructions != "Be kind.\n!emu fast=100" {
		t.Fatalf("%s: %+v", kinds, updated.Session)
	}
	w.sendEvent(hello, respond)
	_, kinds = w.until("output_audio_buffer.stopped")
	kinds = slices.Compact(slices.DeleteFunc(kinds, func(k string) bool { return k == "output_audio_buffer.started" }))
	want := []string{
		"conversation.item.added", "conversation.item.done", "response.created", "response.output_item.added",
		"conversation.item.added", "response.content_part.added",
		"response.output_audio_transcript.delta", "response.output_audio.done", "response.output_audio_transcript.done",
		"response.content_part.done",
		"conversation.item.done", "response.output_item.done", "response.done", "rate_limits.updated",
		"output_audio_buffer.stopped",
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("got  %s\nwant %s", kinds, want)
	}
	if status, _, text := v.sendRequest("POST", "/v1/realtime/calls/"+id+"/hangup", "", ""); status != http.StatusOK ||
		text != "" {
		t.Errorf("hangup: %d %s", status, text)
	}
	if _, err := w.readEvent(); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("the sideband ends with %v", err)
	}
	if status, _, text := v.sendRequest("POST", "/v1/realtime/calls/"+id+"/hangup", "",
		""); status != http.StatusNotFound ||
		!strings.Contains(text, `"call_id_not_found"`) {
		t.Errorf("hangup again: %d %s", status, text)
	}
	if _, status := v.dialSideband(id); status != http.StatusNotFound {
		t.Errorf("dial again: %d", status)
	}
}

// quoted is a text as JSON.
func quoted(text string) string { return string(exchange.Encode(text)) }
