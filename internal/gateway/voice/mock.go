package voice

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/models/tokens"
)

// The mock voice speaks OpenAI Realtime event JSON over one WebSocket, an event a
// text frame, audio as base64 of PCM16, 24 kHz, mono (decisions, Voice). What it
// says follows from what it was told alone. It is a provider like the real one: the
// session watches it through a line, as through a sideband, and it knows nothing of
// money.
const (
	sampleRate  = 24000
	pieceMS     = 100
	piecePause  = 20 * time.Millisecond // pieces come faster than they are heard
	silenceMS   = 500
	loudness    = 600 // of 32,767: below it is silence
	placeholder = "This is a placeholder voice. "
)

// mock is one call.
type mock struct {
	ws    *websocket.Conn
	watch func(event []byte) bool // the sideband
	ctx   context.Context

	mu      sync.Mutex
	config  Config
	n       int // of ids
	heardMS int64
	silent  int64 // milliseconds since the user was last loud
	talking bool
	text    []string // the user's, since the last reply
	results int      // of tools, since the last reply
	context int64    // tokens of text in the conversation
	audio   int64    // tokens of audio in it
	cached  [2]int64 // of them, what the last reply read
	cut     context.CancelFunc
	active  string
}

// say sends an event to the browser, and, but for audio, to the sideband.
func (k *mock) say(kind string, members map[string]any) {
	k.n++
	e := map[string]any{"type": kind, "event_id": fmt.Sprintf("event_mock%06d", k.n)}
	for name, v := range members {
		e[name] = v
	}
	data := mustJSON(e)
	ctx, cancel := context.WithTimeout(k.ctx, patience)
	defer cancel()
	if err := k.ws.Write(ctx, websocket.MessageText, data); err != nil {
		return // the reader sees it, too
	}
	if kind != "response.output_audio.delta" && kind != "session.created" {
		k.watch(data)
	}
}

// run serves a mock call until its socket ends.
func (k *mock) run() {
	k.mu.Lock()
	k.say("session.created", map[string]any{"session": k.session()})
	k.mu.Unlock()
	for {
		kind, data, err := k.ws.Read(k.ctx)
		if err != nil {
			return
		}
		k.mu.Lock()
		if kind == websocket.MessageText {
			k.take(data)
		}
		k.mu.Unlock()
	}
}

func (k *mock) session() map[string]any {
	s := k.config.session(true)
	s["object"], s["id"] = "realtime.session", "sess_mock"
	return s
}

// clientEvent is what a browser or the sideband may send.
type clientEvent struct {
	Type    string `json:"type"`
	EventID string `json:"event_id"`
	Audio   string `json:"audio"`
	Session *struct {
		Instructions *string         `json:"instructions"`
		MaxOutput    *int64          `json:"max_output_tokens"`
		Tools        json.RawMessage `json:"tools"`
		ToolChoice   json.RawMessage `json:"tool_choice"`
		Audio        *struct {
			Input *struct {
				Turn *struct {
					Create *bool `json:"create_response"`
				} `json:"turn_detection"`
			} `json:"input"`
			Output *struct {
				Voice *string `json:"voice"`
			} `json:"output"`
		} `json:"audio"`
	} `json:"session"`
	Item *struct {
		Type    string `json:"type"`
		Role    string `json:"role"`
		CallID  string `json:"call_id"`
		Output  string `json:"output"`
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	} `json:"item"`
	Response *struct {
		MaxOutput *int64 `json:"max_output_tokens"`
	} `json:"response"`
}

// take carries out an event, whoever sent it. k.mu is held.
func (k *mock) take(data []byte) {
	var e clientEvent
	if json.Unmarshal(data, &e) != nil {
		k.fail("invalid_event", "this is not an event", "")
		return
	}
	switch e.Type {
	case "session.update":
		k.update(&e)
	case "input_audio_buffer.append":
		k.append(&e)
	case "input_audio_buffer.commit":
		k.commit()
	case "input_audio_buffer.clear":
		k.talking, k.silent = false, 0
		k.say("input_audio_buffer.cleared", nil)
	case "conversation.item.create":
		k.add(&e)
	case "response.create":
		limit := k.config.MaxOutput
		if e.Response != nil && e.Response.MaxOutput != nil {
			limit = *e.Response.MaxOutput
		}
		k.reply(limit, e.EventID)
	case "response.cancel":
		if k.cut == nil {
			k.fail("response_cancel_not_active", "no reply is active", e.EventID)
			return
		}
		k.cut()
	case "conversation.item.truncate":
		k.say("conversation.item.truncated", nil)
	case "output_audio_buffer.clear":
	default:
		k.fail("invalid_event", "unknown type", e.EventID)
	}
}

func (k *mock) fail(code, message, eventID string) {
	k.say("error", map[string]any{"error": map[string]any{"type": "invalid_request_error", "code": code, "message": message, "param": nil, "event_id": eventID}})
}

func (k *mock) update(e *clientEvent) {
	if s := e.Session; s != nil {
		if s.Instructions != nil {
			k.config.Instructions = *s.Instructions
		}
		if s.MaxOutput != nil {
			k.config.MaxOutput = *s.MaxOutput
		}
		if s.Tools != nil {
			k.config.Tools = s.Tools
		}
		if s.ToolChoice != nil {
			k.config.ToolChoice = s.ToolChoice
		}
		if a := s.Audio; a != nil && a.Output != nil && a.Output.Voice != nil {
			k.config.Voice = *a.Output.Voice
		}
		if a := s.Audio; a != nil && a.Input != nil && a.Input.Turn != nil && a.Input.Turn.Create != nil {
			k.config.Speaks = *a.Input.Turn.Create
		}
	}
	k.say("session.updated", map[string]any{"session": k.session()})
}

// append listens: loud audio begins a turn, and half a second of silence ends it.
func (k *mock) append(e *clientEvent) {
	pcm, err := base64.StdEncoding.DecodeString(e.Audio)
	if err != nil {
		k.fail("invalid_event", "audio is not base64", e.EventID)
		return
	}
	loud := false
	for i := 0; i+1 < len(pcm); i += 2 {
		if v := int16(binary.LittleEndian.Uint16(pcm[i:])); v > loudness || v < -loudness {
			loud = true
			break
		}
	}
	ms := int64(len(pcm)/2) * 1000 / sampleRate
	k.heardMS += ms
	switch {
	case loud && !k.talking:
		k.talking, k.silent = true, 0
		k.say("input_audio_buffer.speech_started", map[string]any{"audio_start_ms": k.heardMS - ms, "item_id": k.id("item")})
		if k.cut != nil {
			k.cut() // the user interrupts
		}
		k.audio += ms / 100
	case loud:
		k.silent = 0
		k.audio += ms / 100
	case k.talking:
		if k.silent += ms; k.silent >= silenceMS {
			k.say("input_audio_buffer.speech_stopped", map[string]any{"audio_end_ms": k.heardMS, "item_id": k.id("item")})
			k.commit()
			if k.config.Speaks {
				k.reply(k.config.MaxOutput, "")
			}
		}
	}
}

func (k *mock) commit() {
	k.talking, k.silent = false, 0
	item := k.id("item")
	k.say("input_audio_buffer.committed", map[string]any{"previous_item_id": nil, "item_id": item})
	k.say("conversation.item.added", map[string]any{"previous_item_id": nil, "item": map[string]any{"id": item, "type": "message", "role": "user", "content": []any{map[string]any{"type": "input_audio"}}}})
}

func (k *mock) add(e *clientEvent) {
	if e.Item == nil {
		k.fail("invalid_event", "item: required", e.EventID)
		return
	}
	item := map[string]any{"id": k.id("item"), "type": e.Item.Type}
	if e.Item.Type == "function_call_output" {
		item["call_id"], item["output"] = e.Item.CallID, e.Item.Output
		k.results++
		k.context += int64(tokens.Count(e.Item.Output))
	} else {
		item["role"], item["content"] = e.Item.Role, e.Item.Content
		for _, p := range e.Item.Content {
			k.text = append(k.text, p.Text)
			k.context += int64(tokens.Count(p.Text))
		}
	}
	k.say("conversation.item.added", map[string]any{"previous_item_id": nil, "item": item})
}

func (k *mock) id(kind string) string {
	k.n++
	return fmt.Sprintf("%s_mock%06d", kind, k.n)
}

// reply begins a reply, which goes on by itself.
func (k *mock) reply(limit int64, eventID string) {
	if k.cut != nil {
		k.fail("conversation_already_has_active_response", "a reply is active", eventID)
		return
	}
	ctx, cut := context.WithCancel(k.ctx)
	r := &mockReply{mock: k, id: k.id("resp"), item: k.id("item"), limit: limit}
	k.cut, k.active = cut, r.id
	if k.results == 0 && string(k.config.ToolChoice) != `"none"` {
		r.tool = firstTool(k.config.Tools, k.config.ToolChoice)
	}
	r.words = strings.Fields(placeholder + strings.Join(k.text, " "))
	r.words = r.words[:min(len(r.words), 60)]
	k.text, k.results = nil, 0
	k.say("response.created", map[string]any{"response": r.object("in_progress", nil)})
	go r.speak(ctx)
}

// firstTool is the tool that the mock calls: the one that is named, or the first.
func firstTool(tools, choice json.RawMessage) string {
	var list []struct{ Name string }
	var named struct{ Name string }
	if json.Unmarshal(tools, &list) != nil || len(list) == 0 {
		return ""
	}
	if json.Unmarshal(choice, &named) == nil && named.Name != "" {
		return named.Name
	}
	return list[0].Name
}

// mockReply is one reply.
type mockReply struct {
	*mock
	id, item string
	limit    int64
	tool     string
	words    []string
	said     int   // words
	audioMS  int64 // that were sent
	reason   string
}

func (r *mockReply) object(status string, usage any) map[string]any {
	o := map[string]any{
		"object": "realtime.response", "id": r.id, "status": status, "status_details": nil, "output": []any{}, "conversation_id": "conv_mock",
		"output_modalities": []string{"audio"}, "max_output_tokens": r.limit, "usage": usage, "metadata": nil,
	}
	if r.config.Voice != "" {
		o["audio"] = map[string]any{"output": map[string]any{"voice": r.config.Voice}}
	}
	if r.reason != "" {
		o["status_details"] = map[string]any{"type": status, "reason": r.reason}
	}
	return o
}

// speak says the reply, piece by piece, until it is cut.
func (r *mockReply) speak(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	began := time.Now()
	status := "completed"
	if r.tool != "" {
		r.call()
	} else {
		r.begin()
		for status == "completed" && r.said < len(r.words) {
			if r.tokens() >= r.limit {
				status, r.reason = "incomplete", "max_output_tokens"
				break
			}
			r.piece()
			r.mu.Unlock()
			select {
			case <-time.After(piecePause):
			case <-ctx.Done():
			}
			r.mu.Lock()
			if ctx.Err() != nil {
				status, r.reason = "cancelled", "client_cancelled"
				if r.talking {
					r.reason = "turn_detected"
				}
			}
		}
	}
	r.finish(ctx, status, began)
}

func (r *mockReply) begin() {
	r.say("response.output_item.added", map[string]any{"response_id": r.id, "output_index": 0, "item": map[string]any{"id": r.item, "type": "message", "role": "assistant", "content": []any{}}})
	r.say("conversation.item.added", map[string]any{"previous_item_id": nil, "item": map[string]any{"id": r.item, "type": "message", "role": "assistant", "content": []any{}}})
	r.say("output_audio_buffer.started", map[string]any{"response_id": r.id})
}

// piece says the next word: three tenths of a second of a tone.
func (r *mockReply) piece() {
	word := r.words[r.said]
	r.said++
	r.say("response.output_audio_transcript.delta", map[string]any{"response_id": r.id, "item_id": r.item, "output_index": 0, "content_index": 0, "delta": word + " "})
	for range 2 {
		r.say("response.output_audio.delta", map[string]any{"response_id": r.id, "item_id": r.item, "output_index": 0, "content_index": 0, "delta": tone(r.audioMS, r.said)})
		r.audioMS += pieceMS
	}
}

// tone is a tenth of a second of a sine, another one for each word.
func tone(fromMS int64, word int) string {
	hertz := 220 * float64(2+word%5) / 2
	pcm := make([]byte, 2*sampleRate*pieceMS/1000)
	for i := range len(pcm) / 2 {
		t := float64(fromMS)/1000 + float64(i)/sampleRate
		binary.LittleEndian.PutUint16(pcm[2*i:], uint16(int16(6000*math.Sin(2*math.Pi*hertz*t))))
	}
	return base64.StdEncoding.EncodeToString(pcm)
}

func (r *mockReply) transcript() string { return strings.Join(r.words[:r.said], " ") }

func (r *mockReply) audioTokens() int64 { return r.audioMS * audioOutPerS / 1000 }

func (r *mockReply) tokens() int64 { return r.audioTokens() + int64(r.said)*2 }

func (r *mockReply) call() {
	call := r.mock.id("call")
	item := map[string]any{"id": r.item, "type": "function_call", "name": r.tool, "call_id": call, "arguments": "{}"}
	r.say("response.output_item.added", map[string]any{"response_id": r.id, "output_index": 0, "item": item})
	r.say("conversation.item.added", map[string]any{"previous_item_id": nil, "item": item})
	r.say("response.function_call_arguments.delta", map[string]any{"response_id": r.id, "item_id": r.item, "output_index": 0, "call_id": call, "delta": "{}"})
	r.say("response.function_call_arguments.done", map[string]any{"response_id": r.id, "item_id": r.item, "output_index": 0, "call_id": call, "name": r.tool, "arguments": "{}"})
	r.say("response.output_item.done", map[string]any{"response_id": r.id, "output_index": 0, "item": item})
}

// finish ends the reply with its usage, and says when it is heard.
func (r *mockReply) finish(ctx context.Context, status string, began time.Time) {
	k := r.mock
	text := int64(tokens.Count(r.transcript()))
	if r.tool != "" {
		text = int64(tokens.Count(r.tool)) + 1
	} else {
		r.say("response.output_audio.done", map[string]any{"response_id": r.id, "item_id": r.item, "output_index": 0, "content_index": 0})
		r.say("response.output_audio_transcript.done", map[string]any{"response_id": r.id, "item_id": r.item, "output_index": 0, "content_index": 0, "transcript": r.transcript()})
	}
	base := int64(tokens.Count(k.config.Instructions) + tokens.Count(string(k.config.Tools)))
	inText, inAudio := base+k.context, k.audio
	cachedText, cachedAudio := min(k.cached[0], inText), min(k.cached[1], inAudio)
	usage := map[string]any{
		"total_tokens": inText + inAudio + text + r.audioTokens(), "input_tokens": inText + inAudio, "output_tokens": text + r.audioTokens(),
		"input_token_details": map[string]any{"text_tokens": inText, "audio_tokens": inAudio, "image_tokens": 0, "cached_tokens": cachedText + cachedAudio,
			"cached_tokens_details": map[string]any{"text_tokens": cachedText, "audio_tokens": cachedAudio, "image_tokens": 0}},
		"output_token_details": map[string]any{"text_tokens": text, "audio_tokens": r.audioTokens()},
	}
	k.cached = [2]int64{inText, inAudio}
	k.context += text
	k.audio += r.audioTokens()
	k.cut, k.active = nil, ""
	if status == "cancelled" && r.tool == "" {
		r.say("output_audio_buffer.cleared", map[string]any{"response_id": r.id})
	}
	r.say("response.done", map[string]any{"response": r.object(status, usage)})
	if r.tool != "" || status == "cancelled" {
		return
	}
	rest := time.Duration(r.audioMS)*time.Millisecond - time.Since(began)
	time.AfterFunc(rest, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.ctx.Err() == nil {
			k.say("output_audio_buffer.stopped", map[string]any{"response_id": r.id})
		}
	})
}
