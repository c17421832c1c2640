package realtime

import (
	"maps"
	"sort"
	"strings"
	"time"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/script"
	"github.com/purserhq/purser/internal/models/tokens"
)

// tokenCounts are the token counts of one direction.
type tokenCounts struct{ text, audio int }

// A reply is one reply that the model is making.
type reply struct {
	id        string
	number    int
	began     time.Time
	outOfBand bool
	script    replySteering
	conf      sessionSettings
	metadata  raw

	text     string
	lengthMS int // of all its audio
	calls    []exchange.ToolCall
	status   string // how it will end
	reason   string

	input, cached tokenCounts
	output        tokenCounts // so far
	reasoning     int

	steps []func()
	timer *callTimer
	items []*conversationItem
	open  *conversationItem // the message that is being spoken
	said  string
	play  *playback
}

// audioTokenMS is how long a token of the model's voice is; the user's is twice that.
const audioTokenMS = 50

// wordMS is how long the model speaks a word.
const wordMS = 300

// beginReply makes a reply to what is in context.
func (c *call) beginReply(conf sessionSettings, context []*conversationItem, outOfBand bool, metadata raw) {
	c.idleTimer.stopTimer()
	c.replies++
	r := &reply{
		id:        "resp_" + exchange.RandomID(21),
		number:    c.replies,
		began:     time.Now(),
		outOfBand: outOfBand,
		conf:      conf,
		metadata:  metadata,
		status:    "completed",
	}
	if len(metadata) == 0 {
		r.metadata = raw("null")
	}
	c.composeReply(r, context)
	c.reply = r
	c.emitEvent("response.created", object{"response": c.replyObject(r, "in_progress", nil, raw("null"))})
	c.planSteps(r)
	if r.script.hang == 0 {
		return
	}
	r.timer = c.scheduleAfter(r.script.delay, func() { c.stepReply(r, 1) })
}

// stepReply makes the next step of a reply, and schedules the one after it.
func (c *call) stepReply(r *reply, made int) {
	if len(r.steps) == 0 {
		c.endReply(r)
		return
	}
	r.steps[0]()
	r.steps = r.steps[1:]
	if made >= r.script.hang || c.end != "" || c.reply != r {
		return
	}
	r.timer = c.scheduleAfter(r.script.pace, func() { c.stepReply(r, made+1) })
}

// composeReply composes the text and the calls of a reply.
func (c *call) composeReply(r *reply, context []*conversationItem) {
	s := newSteering()
	steps, instructions, err := s.readText(r.conf.Instructions)
	p, f := readTools(r.conf.Tools, r.conf.ToolChoice, "")
	if err != nil || f != nil {
		panic("settings that were checked") // they were checked when they were set
	}
	p.Parallel = r.conf.Parallel == nil || *r.conf.Parallel
	said := followConversation(p, context, &s, &steps)
	r.script = s.replySteering
	r.script.applyOnly(r.number)
	r.input = c.countInput(context, instructions, p)
	if !r.outOfBand {
		r.cached = tokenCounts{min(r.input.text, c.lastTokens.text) / 64 * 64,
			min(r.input.audio, c.lastTokens.audio) / 64 * 64}
	}
	words := script.Script{
		Words:         r.script.words,
		Calls:         r.script.calls,
		Say:           r.script.say,
		EmptyArgs:     r.script.emptyArgs,
		MalformedCall: r.script.malformedCall,
	}
	if r.calls = p.ChooseCalls(&words, steps); len(r.calls) == 0 || r.script.say {
		r.text = exchange.ComposeText(said, p.Results, r.script.words)
	}
	switch {
	case r.script.fail != "":
		r.status, r.text, r.calls = "failed", "", nil
	case r.script.incomplete != "":
		r.status, r.reason, r.text = "incomplete", r.script.incomplete, exchange.FirstHalf(r.text)
	}
	c.fitReply(r)
}

// followConversation reads the conversation that a reply answers to, and returns the last
// text of the user. Its steering has precedence over that of the instructions.
func followConversation(p *exchange.Prompt, context []*conversationItem, s *steering,
	steps *[][]script.Call) (said string) {
	last := 0
	for _, item := range context {
		switch item.Type {
		case "function_call":
			if item.reply != last || item.reply == 0 {
				p.Rounds++
			}
			last = item.reply
		case "function_call_output":
			p.Results = append(p.Results, *item.Output)
		case "message":
			if item.Role != "user" {
				continue
			}
			p.Rounds, p.Results, said, last = 0, nil, item.joinText(), 0
		}
	}
	own, rest, err := s.readText(said)
	if err != nil { // spoken text is not checked earlier
		return err.Error()
	}
	if own != nil {
		*steps = own
	}
	return rest
}

// joinText returns the text of a message.
func (i *conversationItem) joinText() string {
	var list []string
	for _, part := range i.Content {
		switch {
		case part.Text != nil:
			list = append(list, *part.Text)
		case part.spoken != "":
			list = append(list, part.spoken)
		case part.Type == "input_audio":
			list = append(list, "something aloud")
		}
	}
	return strings.Join(list, "\n")
}

// countTokens returns the reported tokens of a text.
func (c *call) countTokens(text string) int {
	return (tokens.Count(text)*c.api.server.TokenPPM() + 999_999) / 1_000_000
}

// countInput counts the input of a reply: the whole conversation.
func (c *call) countInput(context []*conversationItem, instructions string, p *exchange.Prompt) (in tokenCounts) {
	in.text = c.countTokens(instructions) + p.Input.ReportedCount(c.api.server.TokenPPM())
	for _, item := range context {
		t := c.countItem(item)
		in.text, in.audio = in.text+t.text, in.audio+t.audio
	}
	return in
}

// countItem counts an item.
func (c *call) countItem(item *conversationItem) (t tokenCounts) {
	t.text = 4 + c.countTokens(item.Name)
	for _, text := range []*string{item.Args, item.Output} {
		if text != nil {
			t.text += c.countTokens(*text)
		}
	}
	for _, part := range item.Content {
		for _, text := range []*string{part.Text, part.said()} {
			if text != nil {
				t.text += c.countTokens(*text)
			}
		}
	}
	if t.audio = item.audioMS / 100; item.Role == "assistant" {
		t.audio = item.audioMS / audioTokenMS
	}
	return t
}

// isAudio reports whether a reply is audio.
func (r *reply) isAudio() bool { return r.conf.OutputModalities[0] == "audio" }

// fitReply cuts a reply off at its limit.
func (c *call) fitReply(r *reply) {
	limit := c.model.maxReplyTokens(r.conf.MaxOutputTokens)
	if c.model.reasons && r.status != "failed" {
		r.reasoning = min(exchange.ReasoningTokens, limit/3)
	}
	words := strings.SplitAfter(r.text, " ")
	length := func(n int) int { // of so many words, in milliseconds
		switch {
		case !r.isAudio() || r.text == "":
			return 0
		case r.script.length > 0:
			return r.script.length * n / len(words)
		}
		return wordMS * n
	}
	left := limit - r.reasoning
	for i := range r.calls {
		left -= c.countTokens(r.calls[i].Name) + c.countTokens(r.calls[i].Args) + 8
		r.calls[i].ID = "call_" + exchange.RandomID(16)
	}
	over := func(n int) bool {
		return c.countTokens(strings.Join(words[:n], ""))+audioTokens(length(n)) > left
	}
	fits := sort.Search(len(words), func(n int) bool { return over(n + 1) })
	if left < 0 {
		last := &r.calls[len(r.calls)-1]
		last.Args, fits = exchange.FirstHalf(last.Args), 0
	}
	if left < 0 || fits < len(words) {
		r.status, r.reason = "incomplete", "max_output_tokens"
	}
	r.text, r.lengthMS = strings.Join(words[:fits], ""), length(fits)
}

// audioTokens returns the tokens of the model's voice of a length.
func audioTokens(ms int) int { return (ms + audioTokenMS - 1) / audioTokenMS }

// planSteps makes the steps of a reply.
func (c *call) planSteps(r *reply) {
	do := func(f func()) { r.steps = append(r.steps, f) }
	if r.text != "" {
		do(func() { c.openMessage(r) })
		parts := exchange.SplitWords(r.text, 3)
		for i, part := range parts {
			do(func() { c.speakPiece(r, part, r.lengthMS*(i+1)/len(parts)) })
		}
		do(func() { c.closeMessage(r, "completed") })
	}
	for _, call := range r.calls {
		do(func() { c.makeCall(r, call) })
	}
	if r.script.unknown {
		do(func() { c.emitEvent("response.weather_report.delta", object{"response_id": r.id, "delta": "cloudy"}) })
	}
	if r.script.garbage {
		do(func() { c.sendEvent("garbage", []byte(`{"type":"oops`), true) })
	}
}

// openItem adds an item of a reply.
func (c *call) openItem(r *reply, item *conversationItem) {
	item.ID, item.Object, item.Status, item.reply = "item_"+exchange.RandomID(21), "realtime.item", "in_progress",
		r.number
	r.items = append(r.items, item)
	c.emitEvent("response.output_item.added", object{
		"response_id":  r.id,
		"output_index": len(r.items) - 1,
		"item":         item,
	})
	if !r.outOfBand {
		c.emitEvent("conversation.item.added", c.insertItem(item, ""))
	}
}

// closeItem ends an item of a reply.
func (c *call) closeItem(r *reply, item *conversationItem, status string) {
	item.Status = status
	if !r.outOfBand {
		done := object{"previous_item_id": c.previousID(item), "item": item}
		c.emitEvent("conversation.item.done", done)
	}
	c.emitEvent("response.output_item.done", object{
		"response_id":  r.id,
		"output_index": len(r.items) - 1,
		"item":         item,
	})
}

// previousID is the id of the item that stands before another.
func (c *call) previousID(item *conversationItem) any {
	for i, other := range c.items {
		if other == item && i > 0 {
			return c.items[i-1].ID
		}
	}
	return nil
}

// partMembers are the members of an event about the part that is being spoken.
func (r *reply) partMembers(more object) object {
	o := object{"response_id": r.id, "item_id": r.open.ID, "output_index": len(r.items) - 1, "content_index": 0}
	maps.Copy(o, more)
	return o
}

func (c *call) openMessage(r *reply) {
	item := &conversationItem{Type: "message", Role: "assistant", Content: []contentPart{}}
	if c.model.reasons {
		item.Phase = "final_answer"
	}
	c.openItem(r, item)
	r.open = item
	part := object{"type": "text", "text": ""}
	if r.isAudio() {
		part = object{"type": "audio", "transcript": ""}
	}
	c.emitEvent("response.content_part.added", r.partMembers(object{"part": part}))
}

// speakPiece says one piece, up to so much of the audio.
func (c *call) speakPiece(r *reply, part string, untilMS int) {
	r.said += part
	r.output.text = c.countTokens(r.said)
	delta := r.partMembers(object{"delta": part, "obfuscation": exchange.RandomID(8)})
	if !r.isAudio() {
		c.emitEvent("response.output_text.delta", delta)
		return
	}
	r.output.audio, r.open.audioMS = audioTokens(untilMS), untilMS
	c.emitEvent("response.output_audio_transcript.delta", delta)
	if r.play == nil {
		r.play = &playback{response: r.id, item: r.open, fast: r.script.fast, silentEnd: r.script.noStopped}
		c.enqueuePlayback(r.play)
	}
	r.play.lengthMS = untilMS
}

func (c *call) closeMessage(r *reply, status string) {
	item, said := r.open, r.said
	part := object{"type": "text", "text": said}
	if r.isAudio() {
		part = object{"type": "audio", "transcript": said}
		c.emitEvent("response.output_audio.done", r.partMembers(nil))
		c.emitEvent("response.output_audio_transcript.done", r.partMembers(object{"transcript": said}))
		item.Content = []contentPart{{Type: "output_audio", Transcript: &transcript{&said}}}
	} else {
		c.emitEvent("response.output_text.done", r.partMembers(object{"text": said}))
		item.Content = []contentPart{{Type: "output_text", Text: &said}}
	}
	c.emitEvent("response.content_part.done", r.partMembers(object{"part": part}))
	c.closeItem(r, item, status)
	r.open = nil
}

// makeCall calls a tool.
func (c *call) makeCall(r *reply, call exchange.ToolCall) {
	args := ""
	item := &conversationItem{Type: "function_call", CallID: call.ID, Name: call.Name, Args: &args}
	c.openItem(r, item)
	where := func(more object) object {
		o := object{"response_id": r.id, "item_id": item.ID, "output_index": len(r.items) - 1, "call_id": call.ID}
		maps.Copy(o, more)
		return o
	}
	for _, crumb := range exchange.SplitArguments(call.Args) {
		c.emitEvent("response.function_call_arguments.delta",
			where(object{"delta": crumb, "obfuscation": exchange.RandomID(8)}))
	}
	r.output.text += c.countTokens(call.Name) + c.countTokens(call.Args) + 8
	item.Args = &call.Args
	c.emitEvent("response.function_call_arguments.done", where(object{"name": call.Name, "arguments": call.Args}))
	status := "completed"
	if r.reason == "max_output_tokens" {
		status = "incomplete"
	}
	c.closeItem(r, item, status)
}

// endReply ends the reply as it was planned.
func (c *call) endReply(r *reply) {
	var details any
	switch r.status {
	case "failed":
		details = object{"type": "failed", "error": object{
			"type":    "server_error",
			"code":    r.script.fail,
			"message": "The emulator was asked for this error.",
		}}
	case "incomplete":
		details = object{"type": "incomplete", "reason": r.reason}
	}
	c.finishReply(r, r.status, details, r.encodeUsage())
}

// cutReply ends the active reply before its time.
func (c *call) cutReply(reason string) {
	r := c.reply
	r.timer.stopTimer()
	if r.open != nil {
		c.closeMessage(r, "incomplete")
	}
	usage := r.encodeUsage()
	if r.script.cancelNoUsage {
		usage = raw("null")
	}
	c.finishReply(r, "cancelled", object{"type": "cancelled", "reason": reason}, usage)
}

// finishReply ends a reply and sends its last events.
func (c *call) finishReply(r *reply, status string, details any, usage raw) {
	c.reply = nil
	c.made = append(c.made, madeReply{
		Number:       r.number,
		Status:       status,
		InputTokens:  r.input.text + r.input.audio,
		OutputTokens: r.output.text + r.reasoning + r.output.audio,
		Began:        r.began,
		Ended:        time.Now(),
		Sidebands:    len(c.sockets),
	})
	if !r.outOfBand {
		c.lastTokens = tokenCounts{r.input.text + r.output.text, r.input.audio + r.output.audio}
	}
	response := object{"response": c.replyObject(r, status, details, usage)}
	if r.script.omitUsage {
		delete(response["response"].(object), "usage")
	}
	if !r.script.noDone {
		c.emitEvent("response.done", response)
	}
	if r.script.duplicate {
		c.emitEvent("response.done", response)
	}
	if c.end != "" {
		return
	}
	c.emitEvent("rate_limits.updated",
		object{"rate_limits": []object{{
			"name":          "tokens",
			"limit":         4_000_000,
			"remaining":     3_999_000,
			"reset_seconds": 0.015,
		}}})
	if r.play != nil {
		c.schedulePlaybackEnd(r.play)
	}
	if c.replies >= c.script.vanish {
		c.loseBrowser()
	}
	c.scheduleNextTurn()
}

// replyObject is a reply as events show it.
func (c *call) replyObject(r *reply, status string, details any, usage raw) object {
	output, conversation := []*conversationItem{}, any(c.conversation)
	if status != "in_progress" {
		output = append(output, r.items...)
	}
	if r.outOfBand {
		conversation = nil
	}
	audio := object{"output": object{"format": r.conf.Audio.Output.Format, "voice": r.conf.Audio.Output.Voice}}
	return object{
		"object":            "realtime.response",
		"id":                r.id,
		"status":            status,
		"status_details":    details,
		"output":            output,
		"conversation_id":   conversation,
		"output_modalities": r.conf.OutputModalities,
		"max_output_tokens": r.conf.MaxOutputTokens,
		"audio":             audio,
		"usage":             usage,
		"metadata":          r.metadata,
	}
}

// encodeUsage returns the usage of the reply so far.
func (r *reply) encodeUsage() raw {
	u := []int{r.input.text, r.input.audio, r.cached.text, r.cached.audio, r.output.text + r.reasoning, r.output.audio,
		r.reasoning}
	switch {
	case r.script.noUsage:
		return raw("null")
	case r.script.usageRaw != "":
		return raw(r.script.usageRaw)
	case r.script.usage != nil:
		u = append(append([]int(nil), r.script.usage...), 0)
	case r.status == "failed":
		u = make([]int, 7)
	}
	out := object{"text_tokens": u[4], "audio_tokens": u[5]}
	if r.reasoning > 0 || u[6] > 0 {
		out["reasoning_tokens"] = u[6]
	}
	return exchange.Encode(object{
		"total_tokens": u[0] + u[1] + u[4] + u[5], "input_tokens": u[0] + u[1], "output_tokens": u[4] + u[5],
		"input_token_details": object{
			"text_tokens": u[0], "audio_tokens": u[1], "image_tokens": 0, "cached_tokens": u[2] + u[3],
			"cached_tokens_details": object{"text_tokens": u[2], "audio_tokens": u[3], "image_tokens": 0},
		},
		"output_token_details": out,
	})
}
