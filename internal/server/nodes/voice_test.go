package nodes

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apitest"
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
	Active      bool        `json:"reply_active"`
	Made        []madeReply // only of one call
}

// list returns all calls.
func (e *emulatedCalls) list() []emulatedCall {
	e.t.Helper()
	var all struct{ Data []emulatedCall }
	e.request("GET", "", "", &all)
	return all.Data
}

// get returns one call.
func (e *emulatedCalls) get(callID string) (c emulatedCall) {
	e.t.Helper()
	e.request("GET", "/"+callID, "", &c)
	return c
}

// do makes something happen in a call.
func (e *emulatedCalls) do(callID, command string) {
	e.t.Helper()
	e.request("POST", "/"+callID, command, &emulatedCall{})
}

// forget deletes the calls that have ended.
func (e *emulatedCalls) forget() {
	e.t.Helper()
	e.request("DELETE", "", "", nil)
}

func (e *emulatedCalls) request(method, path, body string, into any) {
	e.t.Helper()
	req, err := http.NewRequest(method, e.url+"/emulator/realtime"+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		e.t.Fatalf("%s %s: %d", method, path, resp.StatusCode)
	}
	if into != nil {
		err = json.NewDecoder(resp.Body).Decode(into)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// onlyCall returns the only call.
func (e *emulatedCalls) onlyCall() emulatedCall {
	e.t.Helper()
	all := e.list()
	if len(all) != 1 {
		e.t.Fatalf("calls: %v", all)
	}
	return all[0]
}

// speak lets the user of the only call say something.
func (e *emulatedCalls) speak() {
	e.t.Helper()
	e.do(e.onlyCall().ID, `{"do":"speak","fast":20}`)
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
	url := servertest.URL(t, db.Postgres)
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
	offered := a.Call("POST", strings.TrimPrefix(o.Client.OfferURL, a.BaseURL), silentOffer,
		"Authorization: Bearer "+o.Client.Ticket, "Content-Type: application/sdp")
	if r := apitest.Read(t, offered); r.Status != http.StatusCreated {
		t.Fatal(r)
	}
	readSession := func(p *servertest.Process) (s voice.Session) {
		called(t, p.Call("GET", "/v1/realtime/sessions/"+o.ID, ""), http.StatusOK, &s)
		return s
	}
	await := func(what string, ok func() bool) { t.Helper(); testkit.Eventually(t, testkit.Patience, what, ok) }
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
	d := dbtest.OpenReadOnly(t, b.DB)
	defer d.Close()
	var held int64
	if err := d.QueryRowContext(t.Context(), `SELECT SUM(held_mc) FROM connections`).Scan(&held); err != nil ||
		held != 0 {
		t.Errorf("%d micro-cents are held, %v", held, err)
	}
}
