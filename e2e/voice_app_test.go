package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// appPage is an app's page: it talks with a session by what the app's server was
// given for the browser, and notes what it hears of it.
const appPage = `window.talk = async client => {
	const mic = await navigator.mediaDevices.getUserMedia({audio: true}), events = []
	let ring = () => {}, over
	const take = m => { const e = JSON.parse(m.data); events.push(e); ring(); return e }
	const call = window.call = {closed: new Promise(resolve => { over = resolve })}
	call.closed.then(() => { call.isOver = true; ring() })
	call.until = async type => {
		const late = Date.now() + 60000
		for (const seen = [];;) {
			while (events.length) {
				const e = events.shift()
				if (e.type === type) return type
				if (e.type !== 'response.output_audio.delta') seen.push(e.type)
			}
			if (call.isOver || Date.now() > late) throw new Error((call.isOver ? 'closed' : 'open') + ', without ' + type + ', after ' + seen)
			await new Promise(resolve => { ring = resolve; setTimeout(resolve, 1000) })
		}
	}
	return await (client.mode === 'live' ? peer : socket)()

	async function peer() {
		const pc = new RTCPeerConnection(), channel = pc.createDataChannel('oai-events')
		channel.onmessage = take
		channel.onclose = over
		pc.onconnectionstatechange = () => { if (pc.connectionState === 'failed' || pc.connectionState === 'closed') over() }
		pc.addTrack(mic.getTracks()[0], mic)
		pc.ontrack = e => {
			const sound = new Audio() // a track that nobody listens to is not decoded
			sound.srcObject = e.streams[0]
			sound.play()
		}
		call.send = event => channel.send(JSON.stringify(event))
		call.leave = () => { pc.close(); over() }
		await pc.setLocalDescription(await pc.createOffer())
		const answer = await fetch(client.offer_url, {
			method: 'POST', body: pc.localDescription.sdp, headers: {'Authorization': 'Bearer ' + client.ticket, 'Content-Type': 'application/sdp'},
		})
		if (!answer.ok) {
			call.leave()
			return answer.status + ' ' + (await answer.json()).error.code
		}
		await pc.setRemoteDescription({type: 'answer', sdp: await answer.text()})
		return await call.until('session.created')
	}

	async function socket() {
		const ws = new WebSocket(client.mock_url + '?ticket=' + encodeURIComponent(client.ticket)), audio = new AudioContext({sampleRate: 24000})
		ws.onmessage = m => {
			const e = take(m)
			if (e.type !== 'response.output_audio.delta') return
			const pcm = new Int16Array(Uint8Array.from(atob(e.delta), c => c.charCodeAt(0)).buffer), buffer = audio.createBuffer(1, pcm.length, 24000)
			buffer.copyToChannel(Float32Array.from(pcm, v => v / 32768), 0)
			new AudioBufferSourceNode(audio, {buffer}).start()
		}
		ws.onclose = e => { call.code = e.code; over() }
		call.send = event => ws.send(JSON.stringify(event))
		call.leave = () => ws.close()
		const ears = audio.createScriptProcessor(2048, 1, 1)
		ears.onaudioprocess = e => {
			const pcm = Int16Array.from(e.inputBuffer.getChannelData(0), v => v * 32767)
			if (ws.readyState === WebSocket.OPEN) call.send({type: 'input_audio_buffer.append', audio: btoa(String.fromCharCode(...new Uint8Array(pcm.buffer)))})
		}
		audio.createMediaStreamSource(mic).connect(ears).connect(audio.destination)
		return await call.until('session.created').catch(() => String(call.code))
	}
}`

// A caller is a user whose browser talks on an app's page, by a connection and a
// session of their own.
type caller struct {
	*tab
	p           *servertest.Process
	emulator    string // its address; "" = the mock speaks
	token, conn string
	id          string
	browser     json.RawMessage // what the app gives to it
	controlURL  string
	control     *websocket.Conn
}

// newCaller connects a user with this much to spend, and creates a session with
// these options and steering of the emulator.
func newCaller(t *testing.T, p *servertest.Process, emulator, spendCap, options, steering string) *caller {
	t.Helper()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>An app</title>")) // the tab says if it did not come
	}))
	t.Cleanup(page.Close)
	c := &caller{
		tab:      newTab(t, page.URL, p.BaseURL),
		p:        p,
		emulator: emulator,
		token:    grant(t, p, spendCap, "").AccessToken,
	}
	c.open(page.URL)
	inPage[bool](c.tab, microphone)
	inPage[any](c.tab, appPage+"; null")
	var mine struct{ ID string }
	if status := send(t, p, "GET", "/v1/connection", "", "Bearer "+c.token, &mine); status != http.StatusOK {
		t.Fatalf("GET /v1/connection: %d", status)
	}
	c.conn = mine.ID
	c.create(options, steering)
	return c
}

// create makes the session, as the app's server does.
func (c *caller) create(options, steering string) {
	c.t.Helper()
	text, err := json.Marshal("You are brief.\n!emu " + steering)
	if err != nil {
		c.t.Fatal(err)
	}
	if options != "" {
		options = "," + options
	}
	var made struct {
		ID         string
		Client     json.RawMessage
		ControlURL string `json:"control_url"`
	}
	body := fmt.Sprintf(`{"model":"gpt-realtime-2.1-mini","instructions":%s%s}`, text, options)
	if status := send(c.t, c.p, "POST", "/v1/realtime/sessions", body, "Bearer "+c.token,
		&made); status != http.StatusCreated {
		c.t.Fatalf("a session with %s: %d", body, status)
	}
	c.id, c.browser, c.controlURL = made.ID, made.Client, made.ControlURL
}

// talk connects the browser, and returns what comes of it.
func (c *caller) talk() string {
	c.t.Helper()
	return inPage[string](c.tab, "talk("+string(c.browser)+")")
}

// begin connects the browser, which must succeed.
func (c *caller) begin() {
	c.t.Helper()
	if came := c.talk(); came != "session.created" {
		c.t.Fatalf("the call did not begin: %s", came)
	}
}

// again uses the ticket another time, and returns what comes of it.
func (c *caller) again() string {
	c.t.Helper()
	return inPage[string](c.tab, `(async client => {
		if (client.mode === 'live') return String((await fetch(client.offer_url, {
			method: 'POST', body: 'v=0\r\nm=audio 9\r\nm=application 9\r\n',
			headers: {'Authorization': 'Bearer ' + client.ticket, 'Content-Type': 'application/sdp'},
		})).status)
		const ws = new WebSocket(client.mock_url + '?ticket=' + encodeURIComponent(client.ticket))
		return await new Promise(resolve => { ws.onclose = e => resolve(String(e.code)) })
	})(`+string(c.browser)+")")
}

// word says something, as long as a word takes.
func (c *caller) word() {
	c.t.Helper()
	inPage[any](c.tab, "speak(true)")
	inPage[any](c.tab, "new Promise(resolve => setTimeout(resolve, 600)).then(() => speak(false))")
}

// hears waits until the browser is told something.
func (c *caller) hears(kind string) { c.t.Helper(); inPage[string](c.tab, "call.until('"+kind+"')") }

// converses says something and hears the whole answer, which is sound.
func (c *caller) converses() {
	c.t.Helper()
	c.word()
	c.hears("output_audio_buffer.started")
	c.hears("output_audio_buffer.stopped")
	if energy := inPage[float64](c.tab, "energy()"); energy == 0 {
		c.t.Error("nothing was to be heard")
	}
}

// answered says something, and returns while the answer is heard.
func (c *caller) answered() { c.t.Helper(); c.word(); c.hears("output_audio_buffer.started") }

// heardOut waits for the end of the call, which comes when the user has heard all.
// By WebRTC the browser may be cut off before it is told so; the model knows.
func (c *caller) heardOut() {
	c.t.Helper()
	if c.emulator == "" {
		c.hears("output_audio_buffer.stopped")
		return
	}
	c.cutOff()
	said, began, heard := c.call(c.callID()), 0, 0
	for _, e := range said.Events {
		switch e.Type {
		case "output_audio_buffer.started":
			began++
		case "output_audio_buffer.stopped", "output_audio_buffer.cleared": // the latter by the user's own speech
			heard++
		}
	}
	if began == 0 || heard != began {
		c.t.Errorf("of %d replies %d were heard out", began, heard)
	}
}

// cutOff waits until the browser's side is closed.
func (c *caller) cutOff() {
	c.t.Helper()
	inPage[any](c.tab,
		"Promise.race([call.closed.then(() => null), new Promise((_, late) => setTimeout(() => late(new Error('the browser is not cut off')), 60000))])")
}

// sends lets the browser send an event.
func (c *caller) sends(event string) { c.t.Helper(); inPage[any](c.tab, "call.send("+event+")") }

// leaves closes the browser's side.
func (c *caller) leaves() { c.t.Helper(); inPage[any](c.tab, "call.leave()") }

// end asks for the end, as the app's server does.
func (c *caller) end(p *servertest.Process, when string) {
	c.t.Helper()
	if status := send(c.t, p, "POST", "/v1/realtime/sessions/"+c.id+"/end", `{"when":"`+when+`"}`, "Bearer "+c.token,
		nil); status != http.StatusAccepted {
		c.t.Fatalf("POST end: %d", status)
	}
}

// listen opens the control channel at a node.
func (c *caller) listen(p *servertest.Process) {
	c.t.Helper()
	_, path, _ := strings.Cut(strings.TrimPrefix(c.controlURL, "ws://"), "/")
	ws, _, err := websocket.Dial(soon(c.t), "ws"+strings.TrimPrefix(p.BaseURL, "http")+"/"+path,
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + c.token}}})
	if err != nil {
		c.t.Fatal(err)
	}
	ws.SetReadLimit(1 << 20)
	c.t.Cleanup(func() { _ = ws.CloseNow() }) // it may be closed already
	c.control = ws
	c.told("svc.session.started")
}

// tells sends an event on the control channel.
func (c *caller) tells(event string) {
	c.t.Helper()
	if err := c.control.Write(soon(c.t), websocket.MessageText, []byte(event)); err != nil {
		c.t.Fatal(err)
	}
}

// told waits until the app is told something on its control channel.
func (c *caller) told(kind string) (event map[string]any) {
	c.t.Helper()
	var seen []string
	for ctx := soon(c.t); ; {
		_, text, err := c.control.Read(ctx)
		if err != nil {
			c.t.Fatalf("no %s after %s: %v", kind, seen, err)
		}
		event = read[map[string]any](c.t, string(text))
		if event["type"] == kind {
			return event
		}
		seen = append(seen, fmt.Sprint(event["type"]))
	}
}

// books looks into the database of the node.
func (c *caller) books(f func(ctx context.Context, d *db.DB) error) {
	c.t.Helper()
	d, err := db.OpenReadOnly(c.t.Context(), c.p.DB)
	if err != nil {
		c.t.Fatal(err)
	}
	defer d.Close()
	if err := f(c.t.Context(), d); err != nil {
		c.t.Fatal(err)
	}
}

// await polls until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for ctx := soon(t); !so(); {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// session is the session as its app sees it.
func (c *caller) session() (status int, s voice.Session) {
	c.t.Helper()
	status = send(c.t, c.p, "GET", "/v1/realtime/sessions/"+c.id, "", "Bearer "+c.token, &s)
	return status, s
}

// over checks a session that has ended: the browser's side is closed, the provider's
// call is gone, the books agree, and the app was told once.
func (c *caller) over(reason string, replies int) {
	c.t.Helper()
	c.cutOff()
	c.books(func(ctx context.Context, d *db.DB) error {
		var status, got, call string
		var charged, count int64
		await(c.t, c.id+" ends", func() bool {
			err := d.QueryRowContext(ctx,
				`SELECT status, COALESCE(end_reason, ''), COALESCE(call_id, ''), COALESCE(charged_mc, 0), COALESCE(response_count, 0) FROM realtime_sessions WHERE id = $1`, c.id).Scan(&status, &got, &call, &charged, &count)
			return err == nil && status == "ended"
		})
		if got != reason || count < int64(replies) {
			c.t.Errorf("%s ended by %s after %d replies; want %s, %d", c.id, got, count, reason, replies)
		}
		var sum, n int64
		for _, e := range spends(c.t, c.p, c.conn) {
			sum, n = sum+int64(e.UserChargeMC), n+1
		}
		if sum != charged || n != count {
			c.t.Errorf("%s: %d rows of %d mc, the session says %d of %d", c.id, n, sum, count, charged)
		}
		if status, s := c.session(); status == http.StatusOK {
			c.receipts(&s, reason, charged, count)
		} else if status != http.StatusForbidden ||
			reason != session.ConnectionRevoked && reason != session.ConnectionFrozen {
			c.t.Errorf("GET: %d", status)
		}
		if c.emulator != "" && call != "" {
			await(c.t, call+" is gone", func() bool { return c.call(call).State == "ended" })
			if said := c.call(call); replies > 0 && (said.AudioInMS == 0 || said.PacketsIn == 0 ||
				said.PacketsOut == 0) {
				c.t.Errorf("no audio both ways: %+v", said)
			}
		}
		return c.settledUp(ctx, d, reason)
	})
}

// receipts checks what GET shows of an ended session.
func (c *caller) receipts(s *voice.Session, reason string, charged, count int64) {
	c.t.Helper()
	var sum int64
	for _, r := range s.Receipts {
		sum += int64(r.UserChargeMC)
	}
	if s.Status != session.Ended || s.EndReason == nil || *s.EndReason != reason || int64(s.ChargedMC) != charged ||
		sum != charged || s.ResponseCount != count || int64(len(s.Receipts)) != count || s.Live != nil {
		c.t.Errorf("GET shows %+v; want %s with %d mc in %d receipts", s, reason, charged, count)
	}
}

// settledUp checks that nothing is held, and that there is one event of the end.
func (c *caller) settledUp(ctx context.Context, d *db.DB, reason string) error {
	var held, events int64
	var data string
	if err := d.QueryRowContext(ctx, `SELECT held_mc FROM connections WHERE id = $1`, c.conn).Scan(&held); err != nil {
		return err
	}
	err := d.QueryRowContext(ctx,
		`SELECT COUNT(*), COALESCE(MIN(data), '') FROM events WHERE connection_id = $1 AND type = 'realtime_session.ended'`, c.conn).Scan(&events, &data)
	if held != 0 || events != 1 || !strings.Contains(data, `"end_reason":"`+reason+`"`) {
		c.t.Errorf("%s: %d mc are held, %d events tell the end: %s", c.id, held, events, data)
	}
	return err
}

// callID is the provider's name of the call.
func (c *caller) callID() (id string) {
	c.t.Helper()
	c.books(func(ctx context.Context, d *db.DB) error {
		return d.QueryRowContext(ctx, `SELECT call_id FROM realtime_sessions WHERE id = $1`, c.id).Scan(&id)
	})
	return id
}

// emulatedCall is what the emulator tells of a call.
type emulatedCall struct {
	State       string
	Replies     int
	Sidebands   int
	Dials       int   `json:"sideband_dials"`
	UnwatchedMS int64 `json:"unwatched_ms"`
	AudioInMS   int64 `json:"audio_in_ms"`
	PacketsIn   int64 `json:"packets_in"`
	PacketsOut  int64 `json:"packets_out"`
	Events      []struct{ Type string }
}

func (c *caller) call(id string) (e emulatedCall) {
	c.t.Helper()
	resp, err := http.Get(c.emulator + "/emulator/realtime/" + id)
	if err == nil {
		err = json.NewDecoder(resp.Body).Decode(&e)
		_ = resp.Body.Close() // it was read
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return e
}
