package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// emulatedCalls is an emulator of realtime calls without media.
type emulatedCalls struct {
	t   *testing.T
	url string
}

func newEmulatedCalls(t *testing.T) *emulatedCalls {
	emu := emulator.New(emulator.Options{NoMedia: true})
	server := httptest.NewServer(emu)
	t.Cleanup(func() {
		emu.Close()
		server.CloseClientConnections()
		server.Close()
	})
	return &emulatedCalls{t, server.URL}
}

// emulatedCall is what the emulator tells of a call.
type emulatedCall struct {
	ID, State   string
	Replies     int
	Sidebands   int
	Dials       int   `json:"sideband_dials"`
	UnwatchedMS int64 `json:"unwatched_ms"`
	Playing     bool
	Active      bool `json:"reply_active"`
}

// onlyCall returns the only call.
func (e *emulatedCalls) onlyCall() emulatedCall {
	e.t.Helper()
	var all struct{ Data []emulatedCall }
	resp, err := http.Get(e.url + "/emulator/realtime")
	if err == nil {
		err = json.NewDecoder(resp.Body).Decode(&all)
		_ = resp.Body.Close() // it was read
	}
	if err != nil || len(all.Data) != 1 {
		e.t.Fatalf("calls: %v, %v", all.Data, err)
	}
	return all.Data[0]
}

// speak lets the user say something.
func (e *emulatedCalls) speak() {
	e.t.Helper()
	resp, err := http.Post(e.url+"/emulator/realtime/"+e.onlyCall().ID, "application/json",
		strings.NewReader(`{"do":"speak","fast":20}`))
	if err != nil || resp.StatusCode != http.StatusOK {
		e.t.Fatal(resp, err)
	}
	_ = resp.Body.Close() // nobody reads it
}

// called decodes the answer of a call of a node, which must have this status.
func called(t *testing.T, resp *http.Response, status int, into any) {
	t.Helper()
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil || resp.StatusCode != status {
		t.Fatalf("%s %s: %d, %v", resp.Request.Method, resp.Request.URL, resp.StatusCode, err)
	}
}

// TestKilledNodeOfAVoiceSession kills the process that runs a session, without a
// word, while a reply is spoken: another takes it over, goes on and ends it. Every
// reply is billed once, and at most 15 s went unwatched (F-86).
func TestKilledNodeOfAVoiceSession(t *testing.T) {
	t.Parallel()
	calls := newEmulatedCalls(t)
	start := func(url string) *servertest.Process {
		return servertest.Start(t, url, "--providers=live", "PURSER_PROVIDERS_OPENAI_BASE_URL="+calls.url+"/v1",
			"PURSER_PROVIDERS_OPENAI_KEY=sk-emulated")
	}
	url := dbtest.URL(t, db.Postgres)
	a, b := start(url), start(url)
	var o struct {
		ID     string
		Client struct {
			Ticket   string
			OfferURL string `json:"offer_url"`
		}
	}
	body := `{"model":"gpt-realtime-2.1-mini","instructions":"Be kind.\n!emu fast=20 pace=1ms audio=1s only=2 hang=3"}`
	called(t, a.Call("POST", "/v1/realtime/sessions", body), http.StatusCreated, &o)
	sdp := "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\nm=application 9 UDP/DTLS/SCTP " +
		"webrtc-datachannel\r\n"
	if r := whole(t,
		a.Call("POST", strings.TrimPrefix(o.Client.OfferURL, a.BaseURL), sdp, "Authorization: Bearer "+o.Client.Ticket,
			"Content-Type: application/sdp")); r.status != http.StatusCreated {
		t.Fatal(r)
	}
	readSession := func(p *servertest.Process) (s voice.Session) {
		called(t, p.Call("GET", "/v1/realtime/sessions/"+o.ID, ""), http.StatusOK, &s)
		return s
	}
	await := func(what string, ok func() bool) { t.Helper(); eventually(t, time.Minute, what, ok) }
	await("the call is watched", func() bool { return calls.onlyCall().Sidebands == 1 })
	calls.speak()
	await("the first reply is billed", func() bool { return readSession(a).ResponseCount == 1 })
	await("it was heard", func() bool { return !calls.onlyCall().Playing })
	calls.speak()
	await("the second reply is spoken", func() bool { return calls.onlyCall().Playing })

	a.Kill()
	await("the other node watches", func() bool { c := calls.onlyCall(); return c.Sidebands == 1 && c.Dials == 2 })
	calls.speak() // over the second reply, which ends so
	await("all replies are billed", func() bool { return readSession(b).ResponseCount == 3 })
	called(t, b.Call("POST", "/v1/realtime/sessions/"+o.ID+"/end", `{}`), http.StatusAccepted, &struct{}{})
	await("the session ends", func() bool { return readSession(b).Status == session.Ended })
	await("the call is hung up", func() bool { return calls.onlyCall().State == "ended" })
	s, c := readSession(b), calls.onlyCall()
	if *s.EndReason != session.AppEnded || s.ResponseCount != 3 || c.Replies != 3 {
		t.Errorf("ended by %s with %d receipts of %d replies", *s.EndReason, s.ResponseCount, c.Replies)
	}
	if t.Logf("unwatched: %d ms", c.UnwatchedMS); c.UnwatchedMS > 15_000 {
		t.Errorf("%d ms were unwatched", c.UnwatchedMS)
	}
	b.Verify()
	d := openDatabase(t, b.DB)
	defer d.Close()
	var held int64
	if err := d.QueryRowContext(t.Context(), `SELECT SUM(held_mc) FROM connections`).Scan(&held); err != nil ||
		held != 0 {
		t.Errorf("%d micro-cents are held, %v", held, err)
	}
}
