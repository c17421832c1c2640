package realtime

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/openai"
)

// A userSpeech is the present speech of the user.
type userSpeech struct {
	since time.Time // zero = nothing
	item  string
	text  string // of an emulated user, with its steering
	fast  int    // times as fast as it is counted
}

func (t userSpeech) length(now time.Time) time.Duration {
	if t.since.IsZero() {
		return 0
	}
	return now.Sub(t.since) * time.Duration(t.fast)
}

// heardUntil returns the length of the user's speech in the whole call.
func (c *call) heardUntil(now time.Time) time.Duration { return c.heard + c.speech.length(now) }

// startTalking starts the user's speech. It interrupts the model, unless the session
// forbids that.
func (c *call) startTalking(text string, fast int) {
	if c.left || !c.speech.since.IsZero() {
		return
	}
	now := time.Now()
	c.idleTimer.stopTimer()
	c.speech = userSpeech{since: now, item: "item_" + exchange.RandomID(21), text: text, fast: fast}
	t := c.turnDetection()
	if t == nil {
		return
	}
	c.emitEvent("input_audio_buffer.speech_started",
		object{"audio_start_ms": now.Sub(c.created).Milliseconds(), "item_id": c.speech.item})
	if *t.Interrupt {
		if c.reply != nil && !c.reply.script.deaf {
			c.cutReply("turn_detected")
		}
		c.clearPlayback(now)
	}
}

// stopTalking ends the user's speech, and starts the model's turn.
func (c *call) stopTalking() {
	if c.speech.since.IsZero() {
		return
	}
	now, said := time.Now(), c.speech
	length := said.length(now)
	c.heard += length
	c.speech = userSpeech{}
	t := c.turnDetection()
	if t == nil {
		c.buffer += length
		return
	}
	c.emitEvent("input_audio_buffer.speech_stopped",
		object{"audio_end_ms": now.Sub(c.created).Milliseconds(), "item_id": said.item})
	c.addHeardItem(said.item, said.text, length)
	if *t.Create && c.end == "" && c.reply == nil {
		c.beginReply(c.session.sessionSettings, c.items, false, nil)
	}
}

// addHeardItem adds the user's speech to the conversation.
func (c *call) addHeardItem(id, text string, length time.Duration) {
	item := &conversationItem{
		ID:      id,
		Object:  "realtime.item",
		Type:    "message",
		Status:  "completed",
		Role:    "user",
		audioMS: int(length.Milliseconds()),
	}
	item.Content = []contentPart{{Type: "input_audio", Transcript: &transcript{}, spoken: text}}
	added := c.insertItem(item, "")
	c.emitEvent("input_audio_buffer.committed", object{"previous_item_id": added["previous_item_id"], "item_id": id})
	c.emitEvent("conversation.item.added", added)
	c.emitEvent("conversation.item.done", added)
	if c.session.Audio.Input.Transcription.Kind() == '{' {
		said := item.joinText()
		if c.script.lateTranscript == 0 {
			c.writeDown(id, said, length)
			return
		}
		c.scheduleAfter(c.script.lateTranscript, func() { c.writeDown(id, said, length) })
	}
}

// writeDown reports the transcript of a speech, with a usage of tokens or of seconds, as the model has it.
func (c *call) writeDown(id, said string, length time.Duration) {
	c.transcripts++
	members := object{"item_id": id, "content_index": 0}
	if c.script.failTranscript {
		members["error"] = object{"type": "transcription_error", "code": "audio_unintelligible",
			"message": "The audio could not be transcribed.", "param": nil}
		c.emitEvent("conversation.item.input_audio_transcription.failed", members)
		return
	}
	var settings struct {
		Model string `json:"model"`
	}
	_ = json.Unmarshal(c.session.Audio.Input.Transcription, &settings)
	usage := object{"type": "duration", "seconds": int64((length + time.Second - 1) / time.Second)}
	if strings.Contains(settings.Model, "-transcribe") {
		heard := int64(length / (100 * time.Millisecond))
		written := int64(len(said)/4 + c.transcripts) // no two of a call are equal
		usage = object{
			"type":                "tokens",
			"total_tokens":        heard + written,
			"input_tokens":        heard,
			"input_token_details": object{"text_tokens": 0, "audio_tokens": heard},
			"output_tokens":       written,
		}
	}
	members["transcript"] = said
	if !c.script.unmeasuredTranscript {
		members["usage"] = usage
	}
	c.emitEvent("conversation.item.input_audio_transcription.completed", members)
	if c.script.twiceTranscript {
		c.emitEvent("conversation.item.input_audio_transcription.completed", members)
	}
}

// commitAudio handles input_audio_buffer.commit, for sessions without turn detection.
func (c *call) commitAudio() *exchange.Refusal {
	length := c.buffer + c.speech.length(time.Now())
	if length < 100*time.Millisecond {
		return openai.BadParam("input_audio_buffer_commit_empty", "",
			"Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, but buffer "+
				"only has %dms of audio.", length.Milliseconds())
	}
	c.heard, c.speech, c.buffer = c.heardUntil(time.Now()), userSpeech{}, 0
	c.addHeardItem("item_"+exchange.RandomID(21), "", length)
	return nil
}

// speakFor lets the user speak for a length of audio, fast times as fast as it counts.
func (c *call) speakFor(text string, length time.Duration, fast int) {
	c.startTalking(text, fast)
	c.scheduleAfter(length/time.Duration(fast), c.stopTalking)
}

// nextTurn starts the next turn of the emulated user.
func (c *call) nextTurn() {
	if c.left || c.reply != nil || c.currentPlayback() != nil || !c.speech.since.IsZero() ||
		c.turnsMade >= c.script.turns {
		return
	}
	c.turnsMade++
	c.speakFor("", c.script.speech, c.script.fast)
}

// scheduleNextTurn schedules the next turn of the emulated user if the model has finished
// and no tool call is open.
func (c *call) scheduleNextTurn() {
	if c.end != "" || c.left || c.reply != nil || c.currentPlayback() != nil || !c.speech.since.IsZero() {
		return
	}
	if t := c.turnDetection(); t != nil && t.IdleMS != nil {
		c.idleTimer.stopTimer()
		c.idleTimer = c.scheduleAfter(time.Duration(*t.IdleMS)*time.Millisecond, c.beginIdleReply)
	}
	if c.script.turns == 0 || len(c.items) == 0 {
		return
	}
	if last := c.items[len(c.items)-1]; last.Type == "function_call" || last.Type == "function_call_output" {
		return
	}
	if c.turnsMade >= c.script.turns && c.script.noMedia {
		c.hangUpLater()
		return
	}
	c.scheduleAfter(c.script.silent/time.Duration(c.script.fast), c.nextTurn)
}

// hangUpAfter is how long an emulated user without media stays when all is said.
const hangUpAfter = 5 * time.Second

// hangUpLater lets the emulated user leave, unless another reply has begun by then. No browser would end the call.
func (c *call) hangUpLater() {
	said := c.replies
	c.scheduleAfter(hangUpAfter/time.Duration(c.script.fast), func() {
		if c.replies == said {
			c.left = true
			c.finishCall("browser", 1000)
		}
	})
}

// beginIdleReply begins a reply of the model after idle_timeout_ms of silence.
func (c *call) beginIdleReply() {
	if c.reply != nil || !c.speech.since.IsZero() {
		return
	}
	id, at := "item_"+exchange.RandomID(21), time.Since(c.created).Milliseconds()
	c.emitEvent("input_audio_buffer.timeout_triggered", object{"audio_start_ms": at, "audio_end_ms": at, "item_id": id})
	c.addHeardItem(id, "nothing", 0)
	c.beginReply(c.session.sessionSettings, c.items, false, nil)
}
