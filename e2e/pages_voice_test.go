package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// microphone stands in for what a person says: the page gets a real microphone's
// permission, and then a tone that the test turns on and off. It also listens to
// what the page plays, by WebRTC or piece by piece.
const microphone = `(() => {
	const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices)
	navigator.mediaDevices.getUserMedia = async wanted => {
		for (const track of (await real(wanted)).getTracks()) track.stop()
		const audio = new AudioContext(), tone = new OscillatorNode(audio), gain = new GainNode(audio, {gain: 0}), out = new MediaStreamAudioDestinationNode(audio)
		tone.connect(gain).connect(out)
		tone.start()
		await audio.resume()
		window.speak = on => { gain.gain.value = on ? 0.5 : 0 }
		return out.stream
	}
	const pcs = [], channels = []
	let played = 0
	window.RTCPeerConnection = class extends RTCPeerConnection {
		constructor(...args) { super(...args); pcs.push(this) }
		createDataChannel(...args) { const c = super.createDataChannel(...args); channels.push(c); return c }
	}
	const start = AudioBufferSourceNode.prototype.start
	AudioBufferSourceNode.prototype.start = function (...args) {
		played += this.buffer.getChannelData(0).reduce((sum, v) => sum + v * v, 0)
		return start.apply(this, args)
	}
	window.channel = () => channels.map(c => c.label + ' ' + c.readyState).join()
	window.leave = () => pcs.forEach(pc => pc.close())
	window.energy = async () => {
		let sum = played
		for (const pc of pcs) for (const s of (await pc.getStats()).values()) if (s.type === 'inbound-rtp') sum += s.totalAudioEnergy
		return sum
	}
	window.shows = async (id, part) => {
		const late = Date.now() + 60000
		while (!document.getElementById(id).innerText.includes(part)) { // looked up each time: a list is replaced as a whole
			if (Date.now() > late) throw new Error('not shown: ' + id + ' ' + part + ': ' + document.body.innerText)
			await new Promise(resolve => setTimeout(resolve, 50))
		}
	}
	return true
})()`

// A talker is a developer at the voice page.
type talker struct {
	*tab
	p    *servertest.Process
	page string
}

func newTalker(t *testing.T, p *servertest.Process) *talker {
	t.Helper()
	b := newTab(t, p.BaseURL)
	v := &talker{b, p, p.DashboardURL + "/developer/apps/" + p.App.ID + "/playground/voice"}
	b.open(v.page)
	b.signIn(p.Developer.Email, p.Developer.Password)
	return v
}

// start begins a call with these instructions, and waits until it is live.
func (v *talker) start(instructions string) {
	v.t.Helper()
	v.ready(instructions)
	v.shows("state", "Live")
}

// ready presses the button.
func (v *talker) ready(instructions string) {
	v.t.Helper()
	inPage[bool](v.tab, microphone)
	v.write("Instructions", instructions)
	run(v.tab, chromedp.Click("Start talking", as("button", "Start talking")))
}

// shows waits until an element shows a text.
func (v *talker) shows(element, text string) {
	v.t.Helper()
	inPage[any](v.tab, "shows('"+element+"', '"+text+"')")
}

// says speaks, and waits for the price of reply n.
func (v *talker) says(n string) {
	v.t.Helper()
	inPage[any](v.tab, "speak(true)")
	// as long as a word takes
	inPage[any](v.tab, "new Promise(resolve => setTimeout(resolve, 600)).then(() => speak(false))")
	v.shows("count", n)
}

// ended returns the newest session of the app, which must be over, for this reason,
// and checks that its receipts are what the ledger has.
func (v *talker) ended(reason string, replies int) {
	v.t.Helper()
	d, err := db.OpenReadOnly(v.t.Context(), v.p.DB)
	if err != nil {
		v.t.Fatal(err)
	}
	defer d.Close()
	var id, status, got, account string
	var charged, count int64
	err = d.QueryRowContext(v.t.Context(),
		`SELECT id, status, end_reason, charged_mc, response_count, account_id FROM realtime_sessions ORDER BY id DESC LIMIT 1`).Scan(&id, &status, &got, &charged, &count, &account)
	if err != nil || status != "ended" || got != reason || count < int64(replies) {
		v.t.Errorf("%s: %s, %s after %d replies, %v; want %s", id, status, got, count, err, reason)
	}
	rows, err := d.QueryContext(v.t.Context(),
		`SELECT l.user_charge_mc, l.usage FROM realtime_replies r JOIN ledger l ON l.id = 'led_' || SUBSTR(r.request_id, 5) WHERE r.session_id = $1`, id)
	if err != nil {
		v.t.Fatal(err)
	}
	defer rows.Close()
	var sum, n int64
	for rows.Next() {
		var mc int64
		var usage string
		if err := rows.Scan(&mc, &usage); err != nil {
			v.t.Fatal(err)
		}
		sum, n = sum+mc, n+1
	}
	if rows.Err() != nil || sum != charged || n != count {
		v.t.Errorf("%s: %d rows of %d mc, the session says %d of %d, %v", id, n, sum, count, charged, rows.Err())
	}
}

// TestVoicePage talks through the developer console, with the mock voice and, by
// WebRTC, with the emulated model.
func TestVoicePage(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"mock", "emulator"} {
		if from == "emulator" && !testkit.IsLong() {
			continue // TestTypeScriptVoice talks by WebRTC
		}
		var flags []string
		if from != "mock" { // which is what dev has
			flags = append(flags, "--providers="+from)
		}
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			onNode(t, func(t *testing.T, p *servertest.Process) {
				v := newTalker(t, p)
				v.start("You are brief.\n!emu words=5")
				for _, n := range []string{"1", "2", "3"} {
					v.says(n)
				}
				if energy := inPage[float64](v.tab, "energy()"); energy == 0 {
					t.Error("nothing was to be heard")
				}
				run(v.tab, chromedp.Click("End", as("button", "End")))
				v.shows("state", "Ended. Ended by the app.")
				v.ended("app_ended", 3)
				v.shows("sessions", "Ended by the app")
				if p.DB[:6] == "sqlite" {
					v.look("voice-" + from)
				}
			}, flags...)
		})
	}
}
