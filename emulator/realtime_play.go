package emulator

import "time"

// A playback is the audio of one reply on its way to the user's ear.
type playback struct {
	response  string
	item      *voiceItem
	fast      int       // times as fast as it is spoken
	started   time.Time // zero while another plays
	lengthMS  int       // so far
	whole     bool      // there is no more to come
	silentEnd bool      // nobody is told when it stops
	timer     *alarm
}

// heardMS is how much of it the user has heard.
func (p *playback) heardMS(now time.Time) int {
	if p.started.IsZero() {
		return 0
	}
	return min(p.lengthMS, int(now.Sub(p.started).Milliseconds())*p.fast)
}

// playing is what the user hears now.
func (c *voiceCall) playing() *playback {
	if len(c.queue) == 0 {
		return nil
	}
	return c.queue[0]
}

// enqueue plays audio when what was before it has been played.
func (c *voiceCall) enqueue(p *playback) {
	c.spoken = true
	c.queue = append(c.queue, p)
	if len(c.queue) == 1 {
		c.play(p)
	}
}

func (c *voiceCall) play(p *playback) {
	p.started = time.Now()
	c.sound()
	c.emit("output_audio_buffer.started", object{"response_id": p.response})
	if p.whole {
		c.ends(p)
	}
}

// ends sees to the end of audio of which no more will come.
func (c *voiceCall) ends(p *playback) {
	p.whole = true
	if p != c.playing() || p.timer != nil {
		return
	}
	left := time.Duration(p.lengthMS)*time.Millisecond/time.Duration(p.fast) - time.Since(p.started)
	p.timer = c.after(max(left, 0), func() { c.stopped(p) })
}

// stopped is told when the user has heard all.
func (c *voiceCall) stopped(p *playback) {
	c.unplay(time.Now(), p)
	if !p.silentEnd {
		c.emit("output_audio_buffer.stopped", object{"response_id": p.response})
	}
	if next := c.playing(); next != nil {
		c.play(next)
	}
	c.quiet()
}

// unplay takes off what is played.
func (c *voiceCall) unplay(now time.Time, p *playback) {
	if !c.left {
		c.played += time.Duration(p.heardMS(now)) * time.Millisecond
	}
	p.timer.stop()
	c.queue = c.queue[1:]
	c.sound()
}

// clearPlayback cuts the audio off. What the user has not heard is taken out of
// the conversation.
func (c *voiceCall) clearPlayback(now time.Time) {
	p := c.playing()
	if p == nil {
		return
	}
	heard := p.heardMS(now)
	c.queue = c.queue[:1]
	c.unplay(now, p)
	c.emit("output_audio_buffer.cleared", object{"response_id": p.response})
	if heard < p.item.audioMS && c.item(p.item.ID) != nil {
		c.shorten(p.item, heard)
	}
	c.quiet()
}

// playedUntil is how much the user has heard in the whole call.
func (c *voiceCall) playedUntil(now time.Time) time.Duration {
	if p := c.playing(); p != nil && !c.left {
		return c.played + time.Duration(p.heardMS(now))*time.Millisecond
	}
	return c.played
}

// bank keeps the account of what was heard and said when there will be no more.
func (c *voiceCall) bank(now time.Time) {
	c.played, c.heard = c.playedUntil(now), c.heardUntil(now)
	for _, p := range c.queue {
		p.timer.stop()
	}
	c.queue, c.talk = nil, talk{}
	c.sound()
}

// sound tells the media whether to send a voice or silence.
func (c *voiceCall) sound() {
	if c.peer != nil {
		c.peer.speaking.Store(c.playing() != nil && !c.left)
	}
}
