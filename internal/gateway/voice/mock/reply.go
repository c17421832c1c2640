package mock

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/models/tokens"
)

const (
	placeholder   = "This is a placeholder voice. "
	maxWords      = 60
	piecesPerWord = 2
	tokensPerWord = 2                     // of text, as the output cap counts them
	piecePause    = 20 * time.Millisecond // words are sent faster than they are heard
)

// reply is one reply. It repeats what the user wrote, or calls a tool.
type reply struct {
	call     *Call
	id       string
	itemID   string
	maxTotal int64 // output tokens
	tool     string
	words    []string
	said     int   // words
	audioMS  int64 // that were sent
	reason   string
}

// startReply begins a reply, which goes on in a goroutine. c.mu is held.
func (c *Call) startReply(maxOutputTokens int64, eventID string) {
	if c.cutReply != nil {
		c.emitError(codeHasActiveReply, "a reply is active", eventID)
		return
	}
	if !c.MayReply() {
		c.emitError(codeRateLimited, "the mock replies more often than it allows; slow down", eventID)
		return
	}
	ctx, cut := context.WithCancel(c.ctx)
	c.cutReply = cut
	r := &reply{call: c, id: c.newID("resp"), itemID: c.newID("item"), maxTotal: maxOutputTokens}
	if c.results == 0 && string(c.config.ToolChoice) != `"none"` {
		r.tool = chooseTool(c.config.Tools, c.config.ToolChoice)
	}
	r.words = append(strings.Fields(placeholder), c.userWords...)
	r.words = r.words[:min(len(r.words), maxWords)]
	c.userWords, c.results = nil, 0
	c.emitEvent("response.created", map[string]any{"response": r.object("in_progress", nil)})
	go r.speakWords(ctx)
}

// chooseTool returns the tool that the mock calls: the one that choice names, else the first.
func chooseTool(tools, choice json.RawMessage) string {
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

// object renders the response.
func (r *reply) object(status string, usage any) map[string]any {
	o := map[string]any{
		"object":            "realtime.response",
		"id":                r.id,
		"status":            status,
		"status_details":    nil,
		"output":            []any{},
		"conversation_id":   "conv_mock",
		"output_modalities": []string{"audio"},
		"max_output_tokens": r.maxTotal,
		"usage":             usage,
		"metadata":          nil,
	}
	if voice := r.call.config.Voice; voice != "" {
		o["audio"] = map[string]any{"output": map[string]any{"voice": voice}}
	}
	if r.reason != "" {
		o["status_details"] = map[string]any{"type": status, "reason": r.reason}
	}
	return o
}

// speakWords says the reply word by word until its end, or until ctx ends.
func (r *reply) speakWords(ctx context.Context) {
	c := r.call
	c.mu.Lock()
	defer c.mu.Unlock()
	began := time.Now()
	status := "completed"
	if r.tool != "" {
		r.callTool()
	} else {
		r.beginSpeech()
		for status == "completed" && r.said < len(r.words) {
			if r.outputTokens() >= r.maxTotal {
				status, r.reason = "incomplete", "max_output_tokens"
				break
			}
			r.sayWord()
			c.mu.Unlock()
			select {
			case <-time.After(piecePause):
			case <-ctx.Done():
			}
			c.mu.Lock()
			if ctx.Err() != nil {
				status, r.reason = "cancelled", "client_cancelled"
				if c.speech.active {
					r.reason = "turn_detected"
				}
			}
		}
	}
	r.finishReply(status, began)
}

// emitPart sends an event about the reply's one item.
func (r *reply) emitPart(kind string, members map[string]any) {
	members["response_id"], members["item_id"], members["output_index"] = r.id, r.itemID, 0
	r.call.emitEvent(kind, members)
}

// emitContent sends an event about the reply's one audio part.
func (r *reply) emitContent(kind string, members map[string]any) {
	members["content_index"] = 0
	r.emitPart(kind, members)
}

// emitItem reports the reply's item.
func (r *reply) emitItem(item map[string]any) {
	r.call.emitEvent("response.output_item.added", map[string]any{"response_id": r.id, "output_index": 0, "item": item})
	r.call.emitItem(item)
}

func (r *reply) beginSpeech() {
	r.emitItem(map[string]any{"id": r.itemID, "type": "message", "role": "assistant", "content": []any{}})
	r.call.emitEvent("output_audio_buffer.started", map[string]any{"response_id": r.id})
}

// sayWord says the next word: its text, and a short tone.
func (r *reply) sayWord() {
	word := r.words[r.said]
	r.said++
	r.emitContent("response.output_audio_transcript.delta", map[string]any{"delta": word + " "})
	for range piecesPerWord {
		r.emitContent(audioDelta, map[string]any{"delta": encodeTone(r.audioMS, r.said)})
		r.audioMS += pieceMS
	}
	r.call.spoken[r.itemID] = r.audioMS
}

func (r *reply) transcript() string { return strings.Join(r.words[:r.said], " ") }

func (r *reply) audioTokens() int64 { return r.audioMS * session.AudioOutputPerSecond / 1000 }

func (r *reply) outputTokens() int64 { return r.audioTokens() + int64(r.said)*tokensPerWord }

func (r *reply) callTool() {
	callID := r.call.newID("call")
	item := map[string]any{
		"id":        r.itemID,
		"object":    "realtime.item",
		"type":      "function_call",
		"status":    "in_progress",
		"name":      r.tool,
		"call_id":   callID,
		"arguments": "{}",
	}
	r.emitItem(item)
	r.emitPart("response.function_call_arguments.delta", map[string]any{"call_id": callID, "delta": "{}"})
	r.emitPart("response.function_call_arguments.done", map[string]any{
		"call_id":   callID,
		"name":      r.tool,
		"arguments": "{}",
	})
	item["status"] = "completed"
	r.call.emitEvent("response.output_item.done", map[string]any{"response_id": r.id, "output_index": 0, "item": item})
}

// finishReply ends the reply with its usage, and reports when the user has heard it.
func (r *reply) finishReply(status string, began time.Time) {
	c := r.call
	outputText := int64(tokens.Count(r.transcript()))
	if r.tool != "" {
		outputText = int64(tokens.Count(r.tool)) + 1
	} else {
		r.emitContent("response.output_audio.done", map[string]any{})
		r.emitContent("response.output_audio_transcript.done", map[string]any{"transcript": r.transcript()})
		finished := "completed"
		if status != "completed" {
			finished = "incomplete"
		}
		c.emitEvent("response.output_item.done", map[string]any{
			"response_id":  r.id,
			"output_index": 0,
			"item":         spokenItem(r.itemID, finished, r.transcript()),
		})
	}
	usage := r.countUsage(outputText)
	c.cutReply = nil
	if status == "cancelled" && r.tool == "" {
		c.emitEvent("output_audio_buffer.cleared", map[string]any{"response_id": r.id})
	}
	c.emitEvent("response.done", map[string]any{"response": r.object(status, usage)})
	if r.tool != "" || status == "cancelled" {
		return
	}
	left := time.Duration(r.audioMS)*time.Millisecond - time.Since(began)
	time.AfterFunc(left, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ctx.Err() == nil {
			c.emitEvent("output_audio_buffer.stopped", map[string]any{"response_id": r.id})
		}
	})
}

// countUsage renders the usage of the reply and adds the reply to the context. What an earlier reply
// has read counts as cached.
func (r *reply) countUsage(outputText int64) map[string]any {
	c := r.call
	base := int64(tokens.Count(c.config.Instructions) + tokens.Count(string(c.config.Tools)))
	in := contextTokens{text: base + c.context.text, audio: c.context.audio}
	cached := contextTokens{text: min(c.cached.text, in.text), audio: min(c.cached.audio, in.audio)}
	output := outputText + r.audioTokens()
	c.cached = in
	c.context.text += outputText
	c.context.audio += r.audioTokens()
	return map[string]any{
		"total_tokens":  in.text + in.audio + output,
		"input_tokens":  in.text + in.audio,
		"output_tokens": output,
		"input_token_details": map[string]any{
			"text_tokens":   in.text,
			"audio_tokens":  in.audio,
			"image_tokens":  0,
			"cached_tokens": cached.text + cached.audio,
			"cached_tokens_details": map[string]any{
				"text_tokens":  cached.text,
				"audio_tokens": cached.audio,
				"image_tokens": 0,
			},
		},
		"output_token_details": map[string]any{"text_tokens": outputText, "audio_tokens": r.audioTokens()},
	}
}
