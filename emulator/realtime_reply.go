package emulator

import (
	"maps"
	"sort"
	"strings"

	"github.com/purserhq/purser/internal/models/tokens"
)

// voiceTokens are those of one direction.
type voiceTokens struct{ text, audio int }

// A voiceReply is one reply that the model is making.
type voiceReply struct {
	id        string
	number    int
	outOfBand bool
	script    replyScript
	conf      voiceSettings
	metadata  raw

	text     string
	lengthMS int // of all its audio
	calls    []toolCall
	status   string // how it will end
	reason   string

	input, cached voiceTokens
	output        voiceTokens // so far
	reasoning     int

	steps []func()
	timer *alarm
	items []*voiceItem
	open  *voiceItem // the message that is being spoken
	said  string
	play  *playback
}

// audioTokenMS is how long a token of the model's voice is; the user's is twice that.
const audioTokenMS = 50

// wordMS is how long the model speaks a word.
const wordMS = 300

// begin makes a reply to what is in context.
func (c *voiceCall) begin(conf voiceSettings, context []*voiceItem, outOfBand bool, metadata raw) {
	c.idle.stop()
	c.replies++
	r := &voiceReply{id: "resp_" + random(21), number: c.replies, outOfBand: outOfBand, conf: conf, metadata: metadata, status: "completed"}
	if len(metadata) == 0 {
		r.metadata = raw("null")
	}
	c.compose(r, context)
	c.reply = r
	c.emit("response.created", object{"response": c.shown(r, "in_progress", nil, raw("null"))})
	c.plan(r)
	if r.script.hang == 0 {
		return
	}
	r.timer = c.after(r.script.delay, func() { c.step(r, 1) })
}

// step makes the next step of a reply, and sees to the one after it.
func (c *voiceCall) step(r *voiceReply, made int) {
	if len(r.steps) == 0 {
		c.done(r)
		return
	}
	r.steps[0]()
	r.steps = r.steps[1:]
	if made >= r.script.hang || c.end != "" || c.reply != r {
		return
	}
	r.timer = c.after(r.script.pace, func() { c.step(r, made+1) })
}

// compose decides what is said.
func (c *voiceCall) compose(r *voiceReply, context []*voiceItem) {
	s := newVoiceScript()
	steps, instructions, err := s.read(r.conf.Instructions)
	p, f := voicePrompt(r.conf.Tools, r.conf.ToolChoice, "")
	if err != nil || f != nil {
		panic("settings that were checked") // they were when they were set
	}
	p.parallel = r.conf.Parallel == nil || *r.conf.Parallel
	said := p.follow(context, &s, &steps)
	r.script = s.replyScript
	r.script.spares(r.number)
	r.input = c.reads(context, instructions, p)
	if !r.outOfBand {
		r.cached = voiceTokens{min(r.input.text, c.former.text) / 64 * 64, min(r.input.audio, c.former.audio) / 64 * 64}
	}
	words := script{words: r.script.words, calls: r.script.calls, say: r.script.say, emptyArgs: r.script.emptyArgs, malformedCall: r.script.malformedCall}
	if r.calls = p.choose(&words, steps); len(r.calls) == 0 || r.script.say {
		r.text = prose(said, p.seen, r.script.words)
	}
	switch {
	case r.script.fail != "":
		r.status, r.text, r.calls = "failed", "", nil
	case r.script.incomplete != "":
		r.status, r.reason, r.text = "incomplete", r.script.incomplete, half(r.text)
	}
	c.fit(r)
}

// follow reads what a reply answers to, and returns the last that the user said.
// Steering in it goes before that of the instructions.
func (p *prompt) follow(context []*voiceItem, s *voiceScript, steps *[][]wanted) (said string) {
	last := 0
	for _, item := range context {
		switch item.Type {
		case "function_call":
			if item.reply != last || item.reply == 0 {
				p.rounds++
			}
			last = item.reply
		case "function_call_output":
			p.seen = append(p.seen, *item.Output)
		case "message":
			if item.Role != "user" {
				continue
			}
			p.rounds, p.seen, said, last = 0, nil, item.said(), 0
		}
	}
	own, rest, err := s.read(said)
	if err != nil { // of a voice, which nobody has checked
		return err.Error()
	}
	if own != nil {
		*steps = own
	}
	return rest
}

// said is the text of a message.
func (i *voiceItem) said() string {
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

// count is the tokens of a text, as they are told.
func (c *voiceCall) count(text string) int {
	return (tokens.Count(text)*c.emulator.ppm + 999_999) / 1_000_000
}

// reads counts what a reply reads: everything, every time.
func (c *voiceCall) reads(context []*voiceItem, instructions string, p *prompt) (in voiceTokens) {
	in.text = c.count(instructions) + p.input.reported(c.emulator.ppm)
	for _, item := range context {
		t := c.weigh(item)
		in.text, in.audio = in.text+t.text, in.audio+t.audio
	}
	return in
}

// weigh counts an item.
func (c *voiceCall) weigh(item *voiceItem) (t voiceTokens) {
	t.text = 4 + c.count(item.Name)
	for _, text := range []*string{item.Args, item.Output} {
		if text != nil {
			t.text += c.count(*text)
		}
	}
	for _, part := range item.Content {
		for _, text := range []*string{part.Text, part.Transcript} {
			if text != nil {
				t.text += c.count(*text)
			}
		}
	}
	if t.audio = item.audioMS / 100; item.Role == "assistant" {
		t.audio = item.audioMS / audioTokenMS
	}
	return t
}

// speaks tells whether a reply is audio.
func (r *voiceReply) speaks() bool { return r.conf.OutputModalities[0] == "audio" }

// fit cuts a reply off at its limit.
func (c *voiceCall) fit(r *voiceReply) {
	limit := c.model.tokens(r.conf.MaxOutputTokens)
	if c.model.reasons && r.status != "failed" {
		r.reasoning = min(thinking, limit/3)
	}
	words := strings.SplitAfter(r.text, " ")
	length := func(n int) int { // of so many words, in milliseconds
		switch {
		case !r.speaks() || r.text == "":
			return 0
		case r.script.length > 0:
			return r.script.length * n / len(words)
		}
		return wordMS * n
	}
	left := limit - r.reasoning
	for i := range r.calls {
		left -= c.count(r.calls[i].name) + c.count(r.calls[i].args) + 8
		r.calls[i].id = "call_" + random(16)
	}
	over := func(n int) bool {
		return c.count(strings.Join(words[:n], ""))+voiceTokensOf(length(n)) > left
	}
	fits := sort.Search(len(words), func(n int) bool { return over(n + 1) })
	if left < 0 {
		last := &r.calls[len(r.calls)-1]
		last.args, fits = half(last.args), 0
	}
	if left < 0 || fits < len(words) {
		r.status, r.reason = "incomplete", "max_output_tokens"
	}
	r.text, r.lengthMS = strings.Join(words[:fits], ""), length(fits)
}

// voiceTokensOf is the tokens of the model's voice of a length.
func voiceTokensOf(ms int) int { return (ms + audioTokenMS - 1) / audioTokenMS }

// plan makes the steps of a reply.
func (c *voiceCall) plan(r *voiceReply) {
	do := func(f func()) { r.steps = append(r.steps, f) }
	if r.text != "" {
		do(func() { c.openMessage(r) })
		parts := pieces(r.text, 3)
		for i, part := range parts {
			do(func() { c.say(r, part, r.lengthMS*(i+1)/len(parts)) })
		}
		do(func() { c.closeMessage(r, "completed") })
	}
	for _, call := range r.calls {
		do(func() { c.makeCall(r, call) })
	}
	if r.script.unknown {
		do(func() { c.emit("response.weather_report.delta", object{"response_id": r.id, "delta": "cloudy"}) })
	}
	if r.script.garbage {
		do(func() { c.send("garbage", []byte(`{"type":"oops`), true) })
	}
}

// openItem adds an item of a reply.
func (c *voiceCall) openItem(r *voiceReply, item *voiceItem) {
	item.ID, item.Object, item.Status, item.reply = "item_"+random(21), "realtime.item", "in_progress", r.number
	r.items = append(r.items, item)
	c.emit("response.output_item.added", object{"response_id": r.id, "output_index": len(r.items) - 1, "item": item})
	if !r.outOfBand {
		c.emit("conversation.item.added", c.add(item, ""))
	}
}

// closeItem ends an item of a reply.
func (c *voiceCall) closeItem(r *voiceReply, item *voiceItem, status string) {
	item.Status = status
	if !r.outOfBand {
		done := object{"previous_item_id": c.before(item), "item": item}
		c.emit("conversation.item.done", done)
	}
	c.emit("response.output_item.done", object{"response_id": r.id, "output_index": len(r.items) - 1, "item": item})
}

// before is the id of the item that stands before another.
func (c *voiceCall) before(item *voiceItem) any {
	for i, other := range c.items {
		if other == item && i > 0 {
			return c.items[i-1].ID
		}
	}
	return nil
}

// at are the members of an event about the part that is being spoken.
func (r *voiceReply) at(more object) object {
	o := object{"response_id": r.id, "item_id": r.open.ID, "output_index": len(r.items) - 1, "content_index": 0}
	maps.Copy(o, more)
	return o
}

func (c *voiceCall) openMessage(r *voiceReply) {
	item := &voiceItem{Type: "message", Role: "assistant", Content: []voicePart{}}
	if c.model.reasons {
		item.Phase = "final_answer"
	}
	c.openItem(r, item)
	r.open = item
	part := object{"type": "text", "text": ""}
	if r.speaks() {
		part = object{"type": "audio", "transcript": ""}
	}
	c.emit("response.content_part.added", r.at(object{"part": part}))
}

// say says one piece, up to so much of the audio.
func (c *voiceCall) say(r *voiceReply, part string, untilMS int) {
	r.said += part
	r.output.text = c.count(r.said)
	delta := r.at(object{"delta": part, "obfuscation": random(8)})
	if !r.speaks() {
		c.emit("response.output_text.delta", delta)
		return
	}
	r.output.audio, r.open.audioMS = voiceTokensOf(untilMS), untilMS
	c.emit("response.output_audio_transcript.delta", delta)
	if r.play == nil {
		r.play = &playback{response: r.id, item: r.open, fast: r.script.fast, silentEnd: r.script.noStopped}
		c.enqueue(r.play)
	}
	r.play.lengthMS = untilMS
}

func (c *voiceCall) closeMessage(r *voiceReply, status string) {
	item, said := r.open, r.said
	part := object{"type": "text", "text": said}
	if r.speaks() {
		part = object{"type": "audio", "transcript": said}
		c.emit("response.output_audio.done", r.at(nil))
		c.emit("response.output_audio_transcript.done", r.at(object{"transcript": said}))
		item.Content = []voicePart{{Type: "output_audio", Transcript: &said}}
	} else {
		c.emit("response.output_text.done", r.at(object{"text": said}))
		item.Content = []voicePart{{Type: "output_text", Text: &said}}
	}
	c.emit("response.content_part.done", r.at(object{"part": part}))
	c.closeItem(r, item, status)
	r.open = nil
}

// makeCall calls a tool.
func (c *voiceCall) makeCall(r *voiceReply, call toolCall) {
	args := ""
	item := &voiceItem{Type: "function_call", CallID: call.id, Name: call.name, Args: &args}
	c.openItem(r, item)
	where := func(more object) object {
		o := object{"response_id": r.id, "item_id": item.ID, "output_index": len(r.items) - 1, "call_id": call.id}
		maps.Copy(o, more)
		return o
	}
	for _, crumb := range crumbs(call.args) {
		c.emit("response.function_call_arguments.delta", where(object{"delta": crumb, "obfuscation": random(8)}))
	}
	r.output.text += c.count(call.name) + c.count(call.args) + 8
	item.Args = &call.args
	c.emit("response.function_call_arguments.done", where(object{"name": call.name, "arguments": call.args}))
	status := "completed"
	if r.reason == "max_output_tokens" {
		status = "incomplete"
	}
	c.closeItem(r, item, status)
}

// done ends the reply as it was planned.
func (c *voiceCall) done(r *voiceReply) {
	var details any
	switch r.status {
	case "failed":
		details = object{"type": "failed", "error": object{"type": "server_error", "code": r.script.fail, "message": "The emulator was asked for this error."}}
	case "incomplete":
		details = object{"type": "incomplete", "reason": r.reason}
	}
	c.settle(r, r.status, details, r.usage())
}

// cut ends the active reply before its time.
func (c *voiceCall) cut(reason string) {
	r := c.reply
	r.timer.stop()
	if r.open != nil {
		c.closeMessage(r, "incomplete")
	}
	usage := r.usage()
	if r.script.cancelNoUsage {
		usage = raw("null")
	}
	c.settle(r, "cancelled", object{"type": "cancelled", "reason": reason}, usage)
}

// settle tells the end of a reply.
func (c *voiceCall) settle(r *voiceReply, status string, details any, usage raw) {
	c.reply = nil
	if !r.outOfBand {
		c.former = voiceTokens{r.input.text + r.output.text, r.input.audio + r.output.audio}
	}
	response := object{"response": c.shown(r, status, details, usage)}
	if r.script.omitUsage {
		delete(response["response"].(object), "usage")
	}
	if !r.script.noDone {
		c.emit("response.done", response)
	}
	if r.script.duplicate {
		c.emit("response.done", response)
	}
	if c.end != "" {
		return
	}
	c.emit("rate_limits.updated", object{"rate_limits": []object{{"name": "tokens", "limit": 4_000_000, "remaining": 3_999_000, "reset_seconds": 0.015}}})
	if r.play != nil {
		c.ends(r.play)
	}
	if c.replies >= c.script.vanish {
		c.leave()
	}
	c.quiet()
}

// shown is a reply as events show it.
func (c *voiceCall) shown(r *voiceReply, status string, details any, usage raw) object {
	output, conversation := []*voiceItem{}, any(c.conversation)
	if status != "in_progress" {
		output = append(output, r.items...)
	}
	if r.outOfBand {
		conversation = nil
	}
	audio := object{"output": object{"format": r.conf.Audio.Output.Format, "voice": r.conf.Audio.Output.Voice}}
	return object{
		"object": "realtime.response", "id": r.id, "status": status, "status_details": details, "output": output, "conversation_id": conversation,
		"output_modalities": r.conf.OutputModalities, "max_output_tokens": r.conf.MaxOutputTokens, "audio": audio, "usage": usage, "metadata": r.metadata,
	}
}

// usage is what the reply has used so far.
func (r *voiceReply) usage() raw {
	u := []int{r.input.text, r.input.audio, r.cached.text, r.cached.audio, r.output.text + r.reasoning, r.output.audio, r.reasoning}
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
	return encode(object{
		"total_tokens": u[0] + u[1] + u[4] + u[5], "input_tokens": u[0] + u[1], "output_tokens": u[4] + u[5],
		"input_token_details": object{
			"text_tokens": u[0], "audio_tokens": u[1], "image_tokens": 0, "cached_tokens": u[2] + u[3],
			"cached_tokens_details": object{"text_tokens": u[2], "audio_tokens": u[3], "image_tokens": 0},
		},
		"output_token_details": out,
	})
}
