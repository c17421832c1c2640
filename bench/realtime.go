package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// The fake realtime provider takes calls without media: it answers an offer, and sends the
// call's sideband the events of one spoken reply after another, in the recorded order of
// OpenAI's events.

const (
	replyEvery = 2 * time.Second        // of one call, from start to start
	wordEvery  = 100 * time.Millisecond // a piece of the transcript
	replyWords = 9
)

// realtime is the provider. All its calls start to speak after begin is closed, spread
// evenly over the time between two replies.
type realtime struct {
	calls int // expected
	begin chan struct{}
	from  time.Time // set before begin is closed, as is until
	until time.Time

	mu    sync.Mutex
	made  int
	said  map[string]time.Time // by reply: when its response.done was written
	fault error
	work  sync.WaitGroup // calls that speak; waited for after every call is attached
}

func newRealtime(calls int) *realtime {
	return &realtime{calls: calls, begin: make(chan struct{}), said: map[string]time.Time{}}
}

func (p *realtime) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/realtime/calls", p.createCall)
	mux.HandleFunc("GET /v1/realtime", p.serveSideband)
	mux.HandleFunc("POST /v1/realtime/calls/{id}/hangup", func(http.ResponseWriter, *http.Request) {})
	return mux
}

func (p *realtime) createCall(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	p.mu.Lock()
	call := p.made
	p.made++
	p.mu.Unlock()
	w.Header().Set("Location", fmt.Sprintf("/v1/realtime/calls/rtc_%d", call))
	w.Header().Set("Content-Type", "application/sdp")
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, sdp)
}

// sdp is both offer and answer. It has the length of a browser's, and is never connected.
var sdp = "v=0\r\no=- 4611731400430051336 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\nm=audio 9 " +
	"UDP/TLS/RTP/SAVPF 111 63 9 0 8 13 110 126\r\nc=IN IP4 0.0.0.0\r\n" +
	strings.Repeat("a=candidate:1 1 udp 2113937151 127.0.0.1 50000 typ host generation 0 network-cost 999\r\n", 8) +
	"a=rtpmap:111 opus/48000/2\r\na=sendrecv\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 " +
	"0.0.0.0\r\na=mid:1\r\na=sctp-port:5000\r\n"

// serveSideband serves the sideband of a call.
func (p *realtime) serveSideband(w http.ResponseWriter, r *http.Request) {
	var call int
	if _, err := fmt.Sscanf(r.URL.Query().Get("call_id"), "rtc_%d", &call); err != nil {
		http.NotFound(w, r)
		return
	}
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	defer ws.CloseNow()
	p.work.Go(func() { p.keepFault(p.speakReplies(ws, call)) })
	for {
		_, data, err := ws.Read(context.Background())
		if err != nil {
			return
		}
		var e struct {
			Type    string          `json:"type"`
			Session json.RawMessage `json:"session"`
		}
		if json.Unmarshal(data, &e) == nil && e.Type == "session.update" {
			p.keepFault(sendEvent(ws, `{"type":"session.updated","event_id":"event_0","session":%s}`, e.Session))
		}
	}
}

// keepFault keeps the first fault.
func (p *realtime) keepFault(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == nil && err != nil {
		p.fault = fmt.Errorf("the sideband: %w", err)
	}
}

// speakReplies speaks one reply after another until the time is over.
func (p *realtime) speakReplies(ws *websocket.Conn, call int) error {
	<-p.begin
	at := p.from.Add(replyEvery * time.Duration(call) / time.Duration(p.calls))
	for n := 0; at.Before(p.until); n++ {
		time.Sleep(time.Until(at))
		if err := p.sendReply(ws, fmt.Sprintf("resp_%d_%d", call, n)); err != nil {
			return err
		}
		at = at.Add(replyEvery)
	}
	return nil
}

// sendReply sends the events of one reply.
func (p *realtime) sendReply(ws *websocket.Conn, id string) error {
	for _, text := range spokenFirst {
		if err := sendEvent(ws, text, id); err != nil {
			return err
		}
	}
	for i := range replyWords {
		if err := sendEvent(ws,
			`{"type":"response.output_audio_transcript.delta","event_id":"event_%[1]s_%[2]d","response_id":"%[1]s",`+
				`"item_id":"item_%[1]s","output_index":0,"content_index":0,"delta":"%[3]s","obfuscation":"Yk3vTz0"}`, id, i, pieces[i]); err != nil {
			return err
		}
		time.Sleep(wordEvery)
	}
	for _, text := range spokenLast {
		if err := sendEvent(ws, text, id); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.said[id] = time.Now()
	p.mu.Unlock()
	for _, text := range spokenDone {
		if err := sendEvent(ws, text, id); err != nil {
			return err
		}
	}
	return nil
}

func sendEvent(ws *websocket.Conn, format string, a ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return ws.Write(ctx, websocket.MessageText, fmt.Appendf(nil, format, a...))
}

// The events of a reply around the pieces of its transcript; each has its id.
var (
	spokenFirst = []string{
		`{"type":"input_audio_buffer.speech_started","event_id":"event_a%[1]s","audio_start_ms":1000,` +
			`"item_id":"user_%[1]s"}`,
		`{"type":"input_audio_buffer.speech_stopped","event_id":"event_b%[1]s","audio_end_ms":1600,` +
			`"item_id":"user_%[1]s"}`,
		`{"type":"conversation.item.added","event_id":"event_c%[1]s","previous_item_id":null,` +
			`"item":{"id":"user_%[1]s","type":"message","status":"completed","role":"user",` +
			`"content":[{"type":"input_audio","transcript":null}]}}`,
		`{"type":"response.created","event_id":"event_d%[1]s","response":{"object":"realtime.response","id":"%[1]s",` +
			`"status":"in_progress","status_details":null,"output":[],"conversation_id":"conv_bench",` +
			`"output_modalities":["audio"],"max_output_tokens":1024,"audio":{"output":{"format":{"type":"audio/pcm",` +
			`"rate":24000},"voice":"marin"}},"usage":null,"metadata":null}}`,
		`{"type":"response.output_item.added","event_id":"event_e%[1]s","response_id":"%[1]s","output_index":0,` +
			`"item":{"id":"item_%[1]s","type":"message","status":"in_progress","role":"assistant","content":[]}}`,
		`{"type":"response.content_part.added","event_id":"event_f%[1]s","response_id":"%[1]s",` +
			`"item_id":"item_%[1]s","output_index":0,"content_index":0,"part":{"type":"audio","transcript":""}}`,
		`{"type":"output_audio_buffer.started","event_id":"event_g%[1]s","response_id":"%[1]s"}`,
	}
	spokenLast = []string{
		`{"type":"response.output_audio.done","event_id":"event_h%[1]s","response_id":"%[1]s",` +
			`"item_id":"item_%[1]s","output_index":0,"content_index":0}`,
		`{"type":"response.output_audio_transcript.done","event_id":"event_i%[1]s","response_id":"%[1]s",` +
			`"item_id":"item_%[1]s","output_index":0,"content_index":0,"transcript":"Three threads need you today. ` +
			`First, the supplier asks whether the second pallet may arrive on"}`,
		`{"type":"response.content_part.done","event_id":"event_j%[1]s","response_id":"%[1]s",` +
			`"item_id":"item_%[1]s","output_index":0,"content_index":0,"part":{"type":"audio","transcript":"Three ` +
			`threads need you today. First, the supplier asks whether the second pallet may arrive on"}}`,
		`{"type":"response.output_item.done","event_id":"event_k%[1]s","response_id":"%[1]s","output_index":0,` +
			`"item":{"id":"item_%[1]s","type":"message","status":"completed","role":"assistant",` +
			`"content":[{"type":"output_audio","transcript":"Three threads need you today. First, the supplier asks ` +
			`whether the second pallet may arrive on"}]}}`,
	}
	spokenDone = []string{
		`{"type":"response.done","event_id":"event_l%[1]s","response":{"object":"realtime.response","id":"%[1]s",` +
			`"status":"completed","status_details":null,"output":[{"id":"item_%[1]s","object":"realtime.item",` +
			`"type":"message","status":"completed","role":"assistant","content":[{"type":"output_audio",` +
			`"transcript":"Three threads need you today. First, the supplier asks whether the second pallet may ` +
			`arrive on"}]}],"conversation_id":"conv_bench","output_modalities":["audio"],"max_output_tokens":1024,` +
			`"audio":{"output":{"format":{"type":"audio/pcm","rate":24000},"voice":"marin"}},` +
			`"usage":{"total_tokens":171,"input_tokens":126,"output_tokens":45,` +
			`"input_token_details":{"text_tokens":96,"audio_tokens":30,"image_tokens":0,"cached_tokens":64,` +
			`"cached_tokens_details":{"text_tokens":64,"audio_tokens":0,"image_tokens":0}},` +
			`"output_token_details":{"text_tokens":21,"audio_tokens":24}},"metadata":null}}`,
		`{"type":"rate_limits.updated","event_id":"event_m%[1]s","rate_limits":[{"name":"tokens","limit":800000,` +
			`"remaining":799104,"reset_seconds":0.067}]}`,
		`{"type":"output_audio_buffer.stopped","event_id":"event_n%[1]s","response_id":"%[1]s"}`,
	}
)
