package realtime

import (
	"bytes"
	_ "embed"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
	"github.com/pion/webrtc/v4/pkg/media/oggreader"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/openai"
)

// cannedAnswer answers the offers of calls without media. It has the form of a
// real one, and leads nowhere.
var cannedAnswer = strings.ReplaceAll(`v=0
o=- 4611731400430051336 2 IN IP4 127.0.0.1
s=-
t=0 0
a=group:BUNDLE 0 1
a=ice-lite
a=msid-semantic:WMS *
a=fingerprint:sha-256 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF
m=audio 9 UDP/TLS/RTP/SAVPF 111
c=IN IP4 0.0.0.0
a=setup:active
a=mid:0
a=ice-ufrag:emulated
a=ice-pwd:emulatedemulatedemulated
a=rtcp-mux
a=sendrecv
a=rtpmap:111 opus/48000/2
a=fmtp:111 minptime=10;useinbandfec=1
a=ssrc:1 cname:realtimeapi
m=application 9 UDP/DTLS/SCTP webrtc-datachannel
c=IN IP4 0.0.0.0
a=setup:active
a=mid:1
a=ice-ufrag:emulated
a=ice-pwd:emulatedemulatedemulated
a=sctp-port:5000
a=max-message-size:1073741823
`, "\n", "\r\n")

// A peer is the provider's side of a browser's connection.
type peer struct {
	pc         *webrtc.PeerConnection
	track      *webrtc.TrackLocalStaticSample
	speaking   atomic.Bool
	connected  atomic.Bool
	packetsOut atomic.Int64
	packetsIn  atomic.Int64
	closed     chan struct{}
	closing    sync.Once

	mu      sync.Mutex
	channel *webrtc.DataChannel // oai-events, when it is open
}

const (
	packetLength  = 20 * time.Millisecond // of audio, in a packet
	levelHeader   = "urn:ietf:params:rtp-hdrext:ssrc-audio-level"
	eventsChannel = "oai-events"
)

// webrtcAPI is one for all calls. It needs no network but this machine's: it
// gathers its addresses at once, and lets the browser find it.
var webrtcAPI = sync.OnceValues(func() (*webrtc.API, error) {
	engine := &webrtc.MediaEngine{}
	opus := webrtc.RTPCodecParameters{RTPCodecCapability: webrtc.RTPCodecCapability{
		MimeType:    webrtc.MimeTypeOpus,
		ClockRate:   48_000,
		Channels:    2,
		SDPFmtpLine: "minptime=10;useinbandfec=1",
	}, PayloadType: 111}
	if err := engine.RegisterCodec(opus, webrtc.RTPCodecTypeAudio); err != nil {
		return nil, err
	}
	if err := engine.RegisterHeaderExtension(webrtc.RTPHeaderExtensionCapability{URI: levelHeader},
		webrtc.RTPCodecTypeAudio); err != nil {
		return nil, err
	}
	interceptors := &interceptor.Registry{}
	if err := webrtc.ConfigureRTCPReports(interceptors); err != nil {
		return nil, err
	}
	settings := webrtc.SettingEngine{}
	settings.SetLite(true)
	settings.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	// The browser's candidates are not needed: the browser connects to the emulator.
	settings.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	settings.SetIncludeLoopbackCandidate(true)
	settings.SetICETimeouts(10*time.Second, 30*time.Second, 2*time.Second)
	return webrtc.NewAPI(webrtc.WithMediaEngine(engine), webrtc.WithInterceptorRegistry(interceptors),
		webrtc.WithSettingEngine(settings)), nil
})

// connect answers an offer with a real connection.
func (c *call) connect(offer string) (answer string, f *exchange.Refusal) {
	p := &peer{closed: make(chan struct{})}
	answer, err := p.answerOffer(c, offer)
	if err != nil {
		if p.pc != nil {
			p.closePeer()
		}
		return "", openai.BadParam("invalid_offer", "sdp", "The SDP offer was not understood: %v", err)
	}
	c.peer = p
	return answer, nil
}

func (p *peer) answerOffer(c *call, offer string) (string, error) {
	api, err := webrtcAPI()
	if err != nil {
		return "", err
	}
	if p.pc, err = api.NewPeerConnection(webrtc.Configuration{}); err != nil {
		return "", err
	}
	if p.track, err = webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{
		MimeType:  webrtc.MimeTypeOpus,
		ClockRate: 48_000,
		Channels:  2,
	}, "audio", "realtimeapi"); err != nil {
		return "", err
	}
	p.pc.OnDataChannel(func(d *webrtc.DataChannel) { p.openChannel(c, d) })
	p.pc.OnTrack(func(t *webrtc.TrackRemote, receiver *webrtc.RTPReceiver) { p.listen(c, t, levelID(receiver)) })
	p.pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) { p.connectionChanged(c, s) })
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer}); err != nil {
		return "", err
	}
	sender, err := p.pc.AddTrack(p.track)
	if err != nil {
		return "", err
	}
	go discardReports(sender)
	made, err := p.pc.CreateAnswer(nil)
	if err != nil {
		return "", err
	}
	gathered := webrtc.GatheringCompletePromise(p.pc)
	if err := p.pc.SetLocalDescription(made); err != nil {
		return "", err
	}
	<-gathered
	tune, err := loadVoicePackets()
	if err != nil {
		return "", err
	}
	go p.sendAudio(tune)
	return p.pc.LocalDescription().SDP, nil
}

// discardReports reads what the browser reports of our audio; the connection wants that.
func discardReports(sender *webrtc.RTPSender) {
	buffer := make([]byte, 1500)
	for {
		if _, _, err := sender.Read(buffer); err != nil {
			return
		}
	}
}

// connectionChanged follows the state of the browser's connection.
func (p *peer) connectionChanged(c *call, s webrtc.PeerConnectionState) {
	switch s {
	case webrtc.PeerConnectionStateConnected:
		p.connected.Store(true)
	case webrtc.PeerConnectionStateFailed, webrtc.PeerConnectionStateClosed:
		p.connected.Store(false)
		c.mu.Lock()
		c.loseBrowser()
		c.mu.Unlock()
		p.closePeer()
	}
}

// openChannel stores the data channel.
func (p *peer) openChannel(c *call, d *webrtc.DataChannel) {
	if d.Label() != eventsChannel {
		return
	}
	d.OnOpen(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		p.mu.Lock()
		p.channel = d
		p.mu.Unlock()
		c.logEvent("provider", "session.created")
		c.sendToBrowser(exchange.Encode(newEvent("session.created", object{"session": c.session})))
	})
	d.OnMessage(func(m webrtc.DataChannelMessage) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.end == "" && !c.left {
			c.receiveEvent(m.Data, nil)
		}
	})
	d.OnClose(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.loseBrowser()
	})
}

// sendEvent sends an event if the data channel is open.
func (p *peer) sendEvent(text []byte) {
	p.mu.Lock()
	d := p.channel
	p.mu.Unlock()
	if d != nil {
		_ = d.SendText(string(text))
	}
}

// closePeer ends the connection.
func (p *peer) closePeer() {
	p.closing.Do(func() {
		close(p.closed)
		_ = p.pc.Close() // an error has no consequence
	})
}

// sendAudio sends a packet every 20 ms: the voice while the model speaks, and silence.
func (p *peer) sendAudio(tune [][]byte) {
	tick := time.NewTicker(packetLength)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-p.closed:
			return
		case <-tick.C:
		}
		packet := silence
		if p.speaking.Load() {
			packet = tune[n%len(tune)]
			n++
		}
		if err := p.track.WriteSample(media.Sample{Data: packet, Duration: packetLength}); err == nil &&
			p.connected.Load() {
			p.packetsOut.Add(1)
		}
	}
}

// silence is 20 ms of nothing in Opus.
var silence = []byte{0xf8, 0xff, 0xfe}

// voiceFile is the model's voice: four seconds of a tune, one packet per page.
//
//go:embed voice.ogg
var voiceFile []byte

var loadVoicePackets = sync.OnceValues(func() (packets [][]byte, err error) {
	r, err := oggreader.NewWithOptions(bytes.NewReader(voiceFile))
	for err == nil {
		var packet []byte
		if packet, _, err = r.ParseNextPage(); err == nil && !bytes.HasPrefix(packet, []byte("Opus")) {
			packets = append(packets, packet)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return packets, nil
})

// levelID returns the number of the header with a packet's audio level; 0 = none.
func levelID(receiver *webrtc.RTPReceiver) uint8 {
	for _, h := range receiver.GetParameters().HeaderExtensions {
		if h.URI == levelHeader {
			return uint8(h.ID)
		}
	}
	return 0
}

// Loudness, for finding the user's turns: a packet is loud by what the browser
// says of it, or else by its size, for silence needs few bytes.
const (
	loudLevel   = 50 // decibels below the loudest
	loudBytes   = 20
	loudPackets = 3 // in a row are speech
)

// listen counts what the browser sends, and finds the user's turns in it.
func (p *peer) listen(c *call, t *webrtc.TrackRemote, id uint8) {
	loud := 0
	var quiet *time.Timer
	for {
		packet, _, err := t.ReadRTP()
		if err != nil {
			return
		}
		p.packetsIn.Add(1)
		if !isLoud(packet, id) {
			loud = 0
			continue
		}
		if loud++; loud < loudPackets {
			continue
		}
		wait := c.beginTurn()
		if quiet != nil {
			quiet.Stop()
		}
		quiet = time.AfterFunc(wait, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.end == "" {
				c.stopTalking()
			}
		})
	}
}

// beginTurn begins a turn if there is none, and says after how much silence it ends.
func (c *call) beginTurn() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end == "" {
		c.startTalking("", 1)
	}
	if t := c.turnDetection(); t != nil && t.SilenceMS != nil {
		return time.Duration(*t.SilenceMS) * time.Millisecond
	}
	return 500 * time.Millisecond
}

func isLoud(packet *rtp.Packet, id uint8) bool {
	if id != 0 {
		if level := packet.GetExtension(id); len(level) == 1 {
			return level[0]&0x7f < loudLevel
		}
	}
	return len(packet.Payload) > loudBytes
}
