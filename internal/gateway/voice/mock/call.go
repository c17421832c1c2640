package mock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/models/tokens"
)

const (
	writeTimeout = 5 * time.Second
	maxQueued    = 256 // events of the sideband that wait for the call
	audioDelta   = "response.output_audio.delta"

	// The provider's codes of refused events.
	codeInvalidEvent   = "invalid_event"
	codeNoActiveReply  = "response_cancel_not_active"
	codeHasActiveReply = "conversation_already_has_active_response"
	codeRateLimited    = "rate_limit_exceeded"
	codeMissing        = "missing_required_parameter"
	codeInvalidValue   = "invalid_value"
	codeNoSuchItem     = "item_truncate_invalid_item_id"
	codeNotRetrieved   = "item_retrieve_invalid_item_id"
)

// errQueueFull says that the call does not read its sideband's events fast enough.
var errQueueFull = errors.New("voice: the mock does not keep up")

// Options are what a Call uses.
type Options struct {
	Config   session.Config
	Sideband func(event []byte) bool // gets what the real provider's sideband would get
	Read     func(context.Context) (websocket.MessageType, []byte, error)
	MayReply func() bool // reports whether another reply or transcript may begin: it costs the node, and nobody money
}

// Call is one call of the mock voice: a conversation with a browser over its WebSocket.
type Call struct {
	Options
	ws     *websocket.Conn
	queue  chan []byte // what the sideband sends
	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex
	config    session.Config
	lastID    int
	speech    speech
	userWords []string // since the last reply, those that it says
	results   int      // of tools, since the last reply
	context   contextTokens
	cached    contextTokens      // the part of context that the last reply has read
	cutReply  context.CancelFunc // nil if no reply is in progress
	spoken    map[string]int64   // the milliseconds of audio of the items that can be truncated and retrieved
}

// contextTokens are the tokens of the conversation.
type contextTokens struct{ text, audio int64 }

// NewCall returns a call over ws. Each event but audio also goes to the sideband.
func NewCall(ws *websocket.Conn, o Options) *Call {
	ctx, cancel := context.WithCancel(context.Background())
	return &Call{
		Options: o,
		ws:      ws,
		queue:   make(chan []byte, maxQueued),
		ctx:     ctx,
		cancel:  cancel,
		config:  o.Config,
		spoken:  map[string]int64{},
	}
}

// Send takes an event of the sideband.
func (c *Call) Send(event []byte) error {
	select {
	case c.queue <- event:
		return nil
	default:
		return errQueueFull
	}
}

// Close stops what still runs. It does not close the WebSocket.
func (c *Call) Close() { c.cancel() }

// Serve runs the call until its WebSocket ends.
func (c *Call) Serve() {
	go c.handleSideband()
	c.mu.Lock()
	c.emitEvent("session.created", map[string]any{"session": c.session()})
	c.mu.Unlock()
	for {
		kind, data, err := c.Read(c.ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageText {
			c.lockedHandle(data)
		}
	}
}

// handleSideband handles what the sideband sends until the call ends.
func (c *Call) handleSideband() {
	for {
		select {
		case event := <-c.queue:
			c.lockedHandle(event)
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *Call) lockedHandle(data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handleEvent(data)
}

// emitEvent sends an event to the browser and, unless it is audio or the greeting, to the sideband.
func (c *Call) emitEvent(kind string, members map[string]any) {
	c.lastID++
	event := map[string]any{"type": kind, "event_id": fmt.Sprintf("event_mock%06d", c.lastID)}
	for name, v := range members {
		event[name] = v
	}
	data, _ := json.Marshal(event) // all members are of JSON types
	ctx, cancel := context.WithTimeout(c.ctx, writeTimeout)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, data); err != nil {
		return // Serve reads the same error
	}
	if kind != audioDelta && kind != "session.created" {
		c.Sideband(data)
	}
}

// emitError refuses an event.
func (c *Call) emitError(code, message, eventID string) {
	c.emitEvent("error", map[string]any{"error": map[string]any{
		"type":     "invalid_request_error",
		"code":     code,
		"message":  message,
		"param":    nil,
		"event_id": eventID,
	}})
}

// session renders the session object.
func (c *Call) session() map[string]any {
	s := c.config.RealtimeSession(true)
	s["object"], s["id"] = "realtime.session", "sess_mock"
	return s
}

// newID returns a new id of an item, a reply or a tool call.
func (c *Call) newID(kind string) string {
	c.lastID++
	return fmt.Sprintf("%s_mock%06d", kind, c.lastID)
}

// handleEvent carries out an event of the browser or of the sideband. c.mu is held.
func (c *Call) handleEvent(data []byte) {
	var e clientEvent
	if json.Unmarshal(data, &e) != nil || len(e.EventID) > session.MaxName {
		c.emitError(codeInvalidEvent, "this is not an event", "")
		return
	}
	switch e.Type {
	case "session.update":
		c.updateSession(&e)
	case "input_audio_buffer.append":
		c.appendAudio(&e)
	case "input_audio_buffer.commit":
		c.commitAudio()
	case "input_audio_buffer.clear":
		c.speech.stop()
		c.emitEvent("input_audio_buffer.cleared", nil)
	case "conversation.item.create":
		c.addItem(&e)
	case "response.create":
		c.startReply(e.maxOutputTokens(c.config.MaxOutputTokens), e.EventID)
	case "response.cancel":
		if c.cutReply == nil {
			c.emitError(codeNoActiveReply, "no reply is active", e.EventID)
			return
		}
		c.cutReply()
	case "conversation.item.delete":
		delete(c.spoken, e.ItemID)
		c.emitEvent("conversation.item.deleted", map[string]any{"item_id": e.ItemID})
	case "conversation.item.retrieve":
		c.retrieveItem(&e)
	case "conversation.item.truncate":
		c.truncateItem(&e)
	case "output_audio_buffer.clear":
	default:
		c.emitError(codeInvalidEvent, "unknown type", e.EventID)
	}
}

func (c *Call) updateSession(e *clientEvent) {
	e.Session.applyTo(&c.config)
	c.emitEvent("session.updated", map[string]any{"session": c.session()})
}

// appendAudio listens: loud audio begins the user's turn, and half a second of silence ends it.
func (c *Call) appendAudio(e *clientEvent) {
	pcm, err := decodeAudio(e.Audio)
	if err != nil {
		c.emitError(codeInvalidEvent, "audio is not base64", e.EventID)
		return
	}
	ms := durationMS(pcm)
	c.speech.heardMS += ms
	switch loud := isLoud(pcm); {
	case loud && !c.speech.active:
		c.speech.active, c.speech.silenceMS, c.speech.itemID = true, 0, c.newID("item")
		c.emitEvent("input_audio_buffer.speech_started", map[string]any{
			"audio_start_ms": c.speech.heardMS - ms,
			"item_id":        c.speech.itemID,
		})
		if c.cutReply != nil {
			c.cutReply() // the user interrupts
		}
		c.addSpeech(ms)
	case loud:
		c.speech.silenceMS = 0
		c.addSpeech(ms)
	case c.speech.active:
		if c.speech.silenceMS += ms; c.speech.silenceMS >= turnSilenceMS {
			c.emitEvent("input_audio_buffer.speech_stopped", map[string]any{
				"audio_end_ms": c.speech.heardMS,
				"item_id":      c.speech.itemID,
			})
			c.commitAudio()
			if c.config.AutoReply {
				c.startReply(c.config.MaxOutputTokens, "")
			}
		}
	}
}

// commitAudio ends the user's turn and makes an item of it.
func (c *Call) commitAudio() {
	itemID, spoken := cmp.Or(c.speech.itemID, c.newID("item")), c.speech.tokens
	c.speech.stop()
	c.emitEvent("input_audio_buffer.committed", map[string]any{"previous_item_id": nil, "item_id": itemID})
	c.emitItem(map[string]any{
		"id":      itemID,
		"type":    "message",
		"status":  "completed",
		"role":    "user",
		"content": []any{map[string]any{"type": "input_audio", "transcript": nil}},
	})
	if c.config.Transcription != nil {
		c.writeDown(itemID, min(spoken, maxWrittenTokens))
	}
}

// addSpeech counts audio of the user's turn.
func (c *Call) addSpeech(ms int64) {
	c.context.audio += ms / msPerInputToken
	c.speech.tokens += ms / msPerInputToken
}

// maxWrittenTokens are the tokens of a minute of speech, of which the mock writes down no more.
const maxWrittenTokens = 60 * session.AudioInputPerSecond

// writeDown reports the transcript of a turn: the mock does not know what was said. Each counts as a reply does, as it
// leaves as much.
func (c *Call) writeDown(itemID string, spoken int64) {
	if !c.MayReply() {
		c.emitEvent("conversation.item.input_audio_transcription.failed", map[string]any{
			"item_id":       itemID,
			"content_index": 0,
			"error": map[string]any{
				"type":    "transcription_error",
				"code":    codeRateLimited,
				"message": "the mock writes down more often than it allows; slow down",
				"param":   nil,
			},
		})
		return
	}
	const written = "(What you said.)"
	output := int64(tokens.Count(written))
	c.emitEvent("conversation.item.input_audio_transcription.completed", map[string]any{
		"item_id":       itemID,
		"content_index": 0,
		"transcript":    written,
		"usage": map[string]any{
			"type":                "tokens",
			"total_tokens":        spoken + output,
			"input_tokens":        spoken,
			"output_tokens":       output,
			"input_token_details": map[string]any{"text_tokens": 0, "audio_tokens": spoken},
		},
	})
}

// emitItem reports a new item of the conversation.
func (c *Call) emitItem(item map[string]any) {
	c.emitEvent("conversation.item.added", map[string]any{"previous_item_id": nil, "item": item})
}

// retrieveItem shows the item of a reply without its transcript: the mock keeps no texts. A client retrieves what was
// truncated, which has none.
func (c *Call) retrieveItem(e *clientEvent) {
	if _, ok := c.spoken[e.ItemID]; !ok {
		c.emitError(codeNotRetrieved, fmt.Sprintf("The item with id '%s' does not exist.", e.ItemID), e.EventID)
		return
	}
	c.emitEvent("conversation.item.retrieved", map[string]any{"item": spokenItem(e.ItemID, "completed", nil)})
}

// spokenItem renders the item of a spoken reply.
func spokenItem(itemID, status string, transcript any) map[string]any {
	return map[string]any{
		"id":      itemID,
		"object":  "realtime.item",
		"type":    "message",
		"status":  status,
		"role":    "assistant",
		"content": []any{map[string]any{"type": "output_audio", "transcript": transcript}},
	}
}

// truncateItem cuts the audio of a reply off, or refuses that as the provider does.
func (c *Call) truncateItem(e *clientEvent) {
	for _, m := range []struct {
		member string
		is     bool
	}{{"item_id", e.ItemID != ""}, {"content_index", e.Content != nil}, {"audio_end_ms", e.AudioEnd != nil}} {
		if !m.is {
			c.emitError(codeMissing, fmt.Sprintf("Missing required parameter: '%s'.", m.member), e.EventID)
			return
		}
	}
	lasts, ok := c.spoken[e.ItemID]
	switch {
	case !ok:
		c.emitError(codeNoSuchItem,
			fmt.Sprintf("Error truncating item: the item with id '%s' does not exist.", e.ItemID), e.EventID)
	case *e.Content != 0 || *e.AudioEnd < 0:
		c.emitError(codeInvalidValue, "Invalid 'audio_end_ms' or 'content_index'.", e.EventID)
	case *e.AudioEnd > lasts:
		c.emitError(codeInvalidValue,
			fmt.Sprintf("Audio content of %dms is already shorter than %dms", lasts, *e.AudioEnd), e.EventID)
	default:
		c.spoken[e.ItemID] = *e.AudioEnd
		c.emitEvent("conversation.item.truncated", map[string]any{
			"item_id":       e.ItemID,
			"content_index": 0,
			"audio_end_ms":  *e.AudioEnd,
		})
	}
}

// maxHeard is how many bytes of a text the mock may repeat.
const maxHeard = 2 << 10

// hear keeps what the next reply may repeat of a text.
func (c *Call) hear(text string) {
	words := strings.Fields(strings.ToValidUTF8(text[:min(len(text), maxHeard)], ""))
	c.userWords = append(c.userWords, words[:min(len(words), maxWords-len(c.userWords))]...)
}

// addItem adds a message or a tool result to the conversation.
func (c *Call) addItem(e *clientEvent) {
	if e.Item == nil {
		c.emitError(codeInvalidEvent, "item: required", e.EventID)
		return
	}
	item := map[string]any{"id": cmp.Or(e.Item.ID, c.newID("item")), "type": e.Item.Type}
	if e.Item.Type == "function_call_output" {
		item["call_id"], item["output"] = e.Item.CallID, e.Item.Output
		c.results++
		c.context.text += int64(tokens.Count(e.Item.Output))
	} else {
		item["role"], item["content"] = e.Item.Role, e.Item.Content
		for _, p := range e.Item.Content {
			c.hear(p.Text)
			c.context.text += int64(tokens.Count(p.Text))
		}
	}
	c.emitItem(item)
}
