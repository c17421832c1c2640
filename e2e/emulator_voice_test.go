package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/testkit"
)

// voicePage is a page's side of a realtime call: a microphone that is a tone
// which can be turned on, the data channel, and the sound of the model.
const voicePage = `(async () => {
	const audio = new AudioContext(), tone = new OscillatorNode(audio), gain = new GainNode(audio, {gain: 0}), out = new MediaStreamAudioDestinationNode(audio)
	tone.connect(gain).connect(out)
	tone.start()
	await audio.resume()
	const pc = new RTCPeerConnection(), channel = pc.createDataChannel('oai-events'), events = []
	let ring = () => {}
	channel.onmessage = m => { events.push(JSON.parse(m.data)); ring() }
	pc.addTrack(out.stream.getTracks()[0], out.stream)
	pc.ontrack = e => {
		const sound = new Audio() // a track that nobody listens to is not decoded
		sound.srcObject = e.streams[0]
		sound.play()
	}
	await pc.setLocalDescription(await pc.createOffer())
	window.call = {
		answer: sdp => pc.setRemoteDescription({type: 'answer', sdp}),
		speak: on => { gain.gain.value = on ? 0.5 : 0 },
		send: event => channel.send(JSON.stringify(event)),
		leave: () => pc.close(),
		until: async type => {
			for (;;) {
				while (events.length) if (events.shift().type === type) return type
				await new Promise(resolve => { ring = resolve })
			}
		},
		energy: async () => {
			for (const s of (await pc.getStats()).values()) if (s.type === 'inbound-rtp') return s.totalAudioEnergy
			return 0
		},
	}
	return pc.localDescription.sdp
})()`

// inPage waits for what a script of the page comes to.
func inPage[T any](b *tab, script string) T {
	b.t.Helper()
	clicked := func(p *runtime.EvaluateParams) { yes := true; p.UserGesture = &yes } // sound wants it
	return run(b, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise, clicked))
}

// offerTo posts a browser's offer to the provider, and returns the call and the answer.
func offerTo(t *testing.T, base, sdp, session string) (id, answer string) {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for name, text := range map[string]string{"sdp": sdp, "session": session} {
		part, err := form.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="` + name + `"`}})
		if err == nil {
			_, err = io.WriteString(part, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", base+"/realtime/calls", &body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer k"}, "Content-Type": {form.FormDataContentType()}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%d %v %s", resp.StatusCode, err, text)
	}
	return path.Base(resp.Header.Get("Location")), string(text)
}

// TestEmulatorTalksWithChromium: a page speaks, is heard, hears, and sees on its
// data channel what the sideband sees.
func TestEmulatorTalksWithChromium(t *testing.T) {
	testkit.Long(t, "TestTypeScriptVoice talks with it in the browser")
	t.Parallel()
	base := emulated(t).OpenAI
	b := newTab(t)
	sdp := inPage[string](b, voicePage)
	id, answer := offerTo(t, base, sdp, `{"type":"realtime","model":"gpt-realtime-2.1","instructions":"!emu words=5"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	sideband, _, err := websocket.Dial(ctx, strings.Replace(base, "http", "ws", 1)+"/realtime?call_id="+id,
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer k"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sideband.CloseNow() }() // the emulator has said all
	inPage[any](b, "call.answer("+strconv.Quote(answer)+")")
	inPage[string](b, "call.until('session.created')")
	for _, step := range []string{"call.speak(true)", "call.until('input_audio_buffer.speech_started')",
		"call.speak(false)", "call.until('response.done')", "call.until('output_audio_buffer.stopped')"} {
		inPage[any](b, step)
	}
	if energy := inPage[float64](b, "call.energy()"); energy == 0 {
		t.Error("nothing was to be heard")
	}
	inPage[any](b, `call.send({type: 'response.create'})`)
	inPage[string](b, "call.until('output_audio_buffer.stopped')")
	for replies := 0; replies < 2; {
		_, text, err := sideband.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var event struct{ Type string }
		if err := json.Unmarshal(text, &event); err != nil {
			t.Fatal(err)
		}
		if event.Type == "response.done" {
			replies++
		}
	}
	inPage[any](b, "call.leave()")
}
