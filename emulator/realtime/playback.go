package realtime

import (
	"time"
)

// A playback is the audio of one reply while the user hears it.
type playback struct {
	response  string
	item      *conversationItem
	fast      int       // times as fast as it is spoken
	started   time.Time // zero while another plays
	lengthMS  int       // so far
	whole     bool      // no more audio will be added
	silentEnd bool      // its end sends no event
	timer     *callTimer
}

// heardMS returns how much of it the user has heard.
func (p *playback) heardMS(now time.Time) int {
	if p.started.IsZero() {
		return 0
	}
	return min(p.lengthMS, int(now.Sub(p.started).Milliseconds())*p.fast)
}

// currentPlayback returns what the user hears now, or nil.
func (c *call) currentPlayback() *playback {
	if len(c.queue) == 0 {
		return nil
	}
	return c.queue[0]
}

// enqueuePlayback plays audio after the playbacks before it.
func (c *call) enqueuePlayback(p *playback) {
	c.spoken = true
	c.queue = append(c.queue, p)
	if len(c.queue) == 1 {
		c.startPlayback(p)
	}
}

func (c *call) startPlayback(p *playback) {
	p.started = time.Now()
	c.updateSound()
	c.emitEvent("output_audio_buffer.started", object{"response_id": p.response})
	if p.whole {
		c.schedulePlaybackEnd(p)
	}
}

// schedulePlaybackEnd schedules the end of a playback that is whole.
func (c *call) schedulePlaybackEnd(p *playback) {
	p.whole = true
	if p != c.currentPlayback() || p.timer != nil {
		return
	}
	left := time.Duration(p.lengthMS)*time.Millisecond/time.Duration(p.fast) - time.Since(p.started)
	p.timer = c.scheduleAfter(max(left, 0), func() { c.endPlayback(p) })
}

// endPlayback ends a playback that the user has heard to its end.
func (c *call) endPlayback(p *playback) {
	c.removePlayback(time.Now(), p)
	if !p.silentEnd {
		c.emitEvent("output_audio_buffer.stopped", object{"response_id": p.response})
	}
	if next := c.currentPlayback(); next != nil {
		c.startPlayback(next)
	}
	c.scheduleNextTurn()
}

// removePlayback removes the first playback from the queue.
func (c *call) removePlayback(now time.Time, p *playback) {
	if !c.left {
		c.played += time.Duration(p.heardMS(now)) * time.Millisecond
	}
	p.timer.stopTimer()
	c.queue = c.queue[1:]
	c.updateSound()
}

// clearPlayback cuts the audio off, and removes from the conversation what the user has
// not heard.
func (c *call) clearPlayback(now time.Time) {
	p := c.currentPlayback()
	if p == nil {
		return
	}
	heard := p.heardMS(now)
	c.queue = c.queue[:1]
	c.removePlayback(now, p)
	c.emitEvent("output_audio_buffer.cleared", object{"response_id": p.response})
	if heard < p.item.audioMS && c.findItem(p.item.ID) != nil {
		c.truncateItem(p.item, heard)
	}
	c.scheduleNextTurn()
}

// playedUntil returns how much the user has heard in the whole call.
func (c *call) playedUntil(now time.Time) time.Duration {
	if p := c.currentPlayback(); p != nil && !c.left {
		return c.played + time.Duration(p.heardMS(now))*time.Millisecond
	}
	return c.played
}

// stopAudio adds the present playback and speech to the totals at the end of the call.
func (c *call) stopAudio(now time.Time) {
	c.played, c.heard = c.playedUntil(now), c.heardUntil(now)
	for _, p := range c.queue {
		p.timer.stopTimer()
	}
	c.queue, c.speech = nil, userSpeech{}
	c.updateSound()
}

// updateSound switches the media between voice and silence.
func (c *call) updateSound() {
	if c.peer != nil {
		c.peer.speaking.Store(c.currentPlayback() != nil && !c.left)
	}
}
