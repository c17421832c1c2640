package realtime

import (
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
)

// A browser is the other side of a call.
type browser struct {
	*voice
	id      string
	pc      *webrtc.PeerConnection
	channel *webrtc.DataChannel
	events  chan string // types, with the id of a reply
	loud    atomic.Bool // whether the user speaks
	heard   atomic.Int64
}

// browse connects as a browser does: the data channel and the microphone first,
// then the offer.
func (v *voice) browse(session string) *browser {
	v.Helper()
	settings := webrtc.SettingEngine{}
	settings.SetIncludeLoopbackCandidate(true)
	pc, err := webrtc.NewAPI(webrtc.WithSettingEngine(settings)).NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		v.Fatal(err)
	}
	v.Cleanup(func() { _ = pc.Close() })
	b := &browser{voice: v, pc: pc, events: make(chan string, 1000)}
	if b.channel, err = pc.CreateDataChannel("oai-events", nil); err != nil {
		v.Fatal(err)
	}
	b.channel.OnMessage(func(m webrtc.DataChannelMessage) {
		var ev anyEvent
		if json.Unmarshal(m.Data, &ev) == nil {
			b.events <- ev.Type
		}
	})
	microphone, err := webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus},
		"audio", "microphone")
	if err == nil {
		_, err = pc.AddTrack(microphone)
	}
	if err != nil {
		v.Fatal(err)
	}
	pc.OnTrack(func(t *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		for {
			packet, _, err := t.ReadRTP()
			if err != nil {
				return
			}
			if len(packet.Payload) > len(silence) {
				b.heard.Add(1)
			}
		}
	})
	offer, err := pc.CreateOffer(nil)
	if err != nil {
		v.Fatal(err)
	}
	gathered := webrtc.GatheringCompletePromise(pc)
	if err := pc.SetLocalDescription(offer); err != nil {
		v.Fatal(err)
	}
	<-gathered
	_, header, answer := v.offer(pc.LocalDescription().SDP, session)
	if b.id = path.Base(header.Get("Location")); !strings.HasPrefix(answer, "v=0") ||
		!strings.Contains(answer, "a=ice-lite") {
		v.Fatalf("no answer: %s", answer)
	}
	if err := pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer}); err != nil {
		v.Fatal(err)
	}
	go b.speak(microphone)
	return b
}

// speak sends what the microphone takes up.
func (b *browser) speak(microphone *webrtc.TrackLocalStaticSample) {
	tune, err := loadVoicePackets()
	if err != nil {
		b.Error(err)
		return
	}
	tick := time.NewTicker(packetLength)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-b.Context().Done():
			return
		case <-tick.C:
		}
		packet := silence
		if b.loud.Load() {
			packet = tune[n%len(tune)]
		}
		// until it is connected, and when it is no more
		_ = microphone.WriteSample(media.Sample{Data: packet, Duration: packetLength})
	}
}

// until waits for an event on the data channel.
func (b *browser) until(kind string) {
	b.Helper()
	var before []string
	for {
		select {
		case got := <-b.events:
			if before = append(before, got); got == kind {
				return
			}
		case <-time.After(30 * time.Second):
			b.Fatalf("waiting for %s after %s", kind, before)
		}
	}
}

func (v *voice) getReport(id string) (r callReport) {
	v.Helper()
	_, _, text := v.sendRequest("GET", "/emulator/realtime/"+id, "", "")
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		v.Fatalf("%v: %s", err, text)
	}
	return r
}

func TestBrowserTalksAndHears(t *testing.T) {
	t.Parallel()
	v := startVoice(t, false)
	b := v.browse(config("!emu words=3", ""))
	b.until("session.created")
	w, _ := v.dialSideband(b.id)
	b.loud.Store(true)
	w.until("input_audio_buffer.speech_started")
	b.loud.Store(false)
	b.until("response.done")
	done, _ := w.until("response.done")
	if u := done.Response.Usage; u == nil || u.In.Audio == 0 || u.Out.Audio != 18 || u.Total != u.Input+u.Output ||
		u.Input != u.In.Text+u.In.Audio {
		t.Errorf("usage %+v", u)
	}
	w.until("output_audio_buffer.stopped")
	b.until("output_audio_buffer.stopped")
	if r := v.getReport(b.id); b.heard.Load() == 0 || r.PacketsIn == 0 || r.AudioOutMS != 900 || r.AudioInMS < 60 ||
		r.Browser != "connected" {
		t.Errorf("heard %d packets, %+v", b.heard.Load(), r)
	}
	if err := b.channel.SendText(
		`{"type":"session.update","session":{"type":"realtime","instructions":"Sing."}}`); err != nil {
		t.Fatal(err)
	}
	b.until("session.updated")
	if updated, _ := w.until("session.updated"); updated.Session.Instructions != "Sing." {
		t.Errorf("%+v", updated.Session)
	}
	if err := b.pc.Close(); err != nil {
		t.Fatal(err)
	}
	for v.getReport(b.id).Browser != "gone" {
	}
	if r := v.getReport(b.id); r.State != "live" || r.Sidebands != 1 {
		t.Errorf("nobody is told that the browser has gone, but: %+v", r)
	}
}
