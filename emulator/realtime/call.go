package realtime

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/openai"
)

// A call is one call. All below the lock is guarded by it.
type call struct {
	api     *API
	id, key string
	number  int
	model   realtimeModel
	script  steering // of the instructions at creation
	created time.Time

	mu           sync.Mutex
	end          string // "" while it lives
	endedAt      time.Time
	session      sessionObject
	conversation string
	sockets      map[*socket]bool
	peer         *peer // nil without media
	left         bool  // the browser has gone
	spoken       bool  // there was audio out: the voice is fixed
	timers       []*callTimer

	items      []*conversationItem
	reply      *reply        // the active one
	replies    int           // so many were begun
	lastTokens tokenCounts   // what the last reply had read and said: the part that is cached
	queue      []*playback   // what is played now, and what comes after it
	played     time.Duration // what was played before, as it is heard
	speech     userSpeech    // what the user says now
	heard      time.Duration // what the user said before
	buffer     time.Duration // what the user said and nobody committed
	turnsMade  int           // by the script

	dials, refusedDials, drops, hangups int
	attached                            bool // it has been
	unwatchedSince                      time.Time
	unwatched                           []unwatchedGap
	seen                                map[string]int // events by type
	idleTimer                           *callTimer     // the model speaks by itself
	log                                 []loggedEvent
}

// A loggedEvent event is one that was sent or that came.
type loggedEvent struct {
	Time time.Time `json:"time"`
	From string    `json:"from"` // provider, sideband or browser
	Type string    `json:"type"`
}

// maxLoggedEvents is how many events of a call are remembered by their types.
const maxLoggedEvents = 200

// answerOffer answers the offer, and starts what happens by itself.
func (c *call) answerOffer(ctx context.Context, offer string) (answer string, f *exchange.Refusal) {
	if !exchange.WaitFor(ctx, c.script.slow) {
		return "", openai.BadParam("", "", "The client has gone.")
	}
	if c.script.noMedia {
		answer = cannedAnswer
	} else if answer, f = c.connect(offer); f != nil {
		return "", f
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	life := maxSessionTime
	if c.script.expire > 0 {
		life = c.script.expire
		c.session.ExpiresAt = c.created.Add(life).Unix()
	}
	c.scheduleAfter(life, c.expireCall)
	return answer, nil
}

// A callTimer is something that will happen with the lock of the call.
type callTimer struct {
	timer *time.Timer
	off   bool
}

// scheduleAfter does f later, unless the call has ended or the alarm was stopped.
func (c *call) scheduleAfter(d time.Duration, f func()) *callTimer {
	a := &callTimer{}
	a.timer = time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if a.off || c.end != "" {
			return
		}
		a.off = true
		f()
	})
	kept := c.timers[:0]
	for _, t := range c.timers {
		if !t.off {
			kept = append(kept, t)
		}
	}
	c.timers = append(kept, a)
	return a
}

// stopTimer is of no effect on an alarm that has rung.
func (a *callTimer) stopTimer() {
	if a != nil {
		a.off = true
		a.timer.Stop()
	}
}

// newEvent makes an event.
func newEvent(kind string, members object) object {
	ev := object{"type": kind, "event_id": "event_" + exchange.RandomID(21)}
	maps.Copy(ev, members)
	return ev
}

// emitEvent sends an event to the browser and to every sideband.
func (c *call) emitEvent(kind string, members object) {
	c.sendEvent(kind, exchange.Encode(newEvent(kind, members)), true)
}

// sendEvent sends what may be no event at all.
func (c *call) sendEvent(kind string, text []byte, sideband bool) {
	c.logEvent("provider", kind)
	c.sendToBrowser(text)
	if sideband {
		for s := range c.sockets {
			c.sendToSocket(s, kind, text)
		}
	}
	c.seen[kind]++
	for _, b := range c.script.browser {
		if b.at == kind && b.nth == c.seen[kind] {
			c.scheduleAfter(0, func() { c.receiveEvent([]byte(b.event), nil) })
		}
	}
}

func (c *call) logEvent(from, kind string) {
	c.log = append(c.log, loggedEvent{time.Now(), from, kind})
	if len(c.log) > maxLoggedEvents {
		c.log = append(c.log[:0], c.log[1:]...)
	}
}

// sendToBrowser sends on the data channel, if there is one.
func (c *call) sendToBrowser(text []byte) {
	if c.peer != nil && !c.left {
		c.peer.sendEvent(text)
	}
}

// hasEnded tells whether the call has ended.
func (c *call) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end != ""
}

// finishCall ends the call: hangup, expired, browser, closed. The sidebands are closed
// with a code; 0 lets them stand, without a word ever after.
func (c *call) finishCall(why string, code int) {
	if c.end != "" {
		return
	}
	c.stopAudio(time.Now())
	if len(c.sockets) == 0 && !c.unwatchedSince.IsZero() {
		c.closeGap(time.Now())
	}
	c.end, c.endedAt = why, time.Now()
	for s := range c.sockets {
		if code != 0 {
			s.closeSocket(code, why)
		}
	}
	clear(c.sockets)
	for _, t := range c.timers {
		t.stopTimer()
	}
	c.timers, c.reply = nil, nil
	if c.peer != nil {
		go c.peer.closePeer() // it waits for its own callbacks, which may wait for our lock
	}
}

// expireCall ends a session that has lasted too long.
func (c *call) expireCall() {
	c.emitEvent("error", object{"error": eventError{
		Type:    "invalid_request_error",
		Code:    "session_expired",
		Message: "Your session hit the maximum duration of 60 minutes.",
	}})
	c.finishCall("expired", 1000)
}

// loseBrowser is the browser's end. What the provider does then is not known for sure:
// unless the script says otherwise nobody is told, and the call is there.
func (c *call) loseBrowser() {
	if c.left || c.end != "" {
		return
	}
	c.stopAudio(time.Now())
	c.left = true
	switch {
	case c.script.closes:
		c.finishCall("browser", 1000)
	case c.script.gone:
		c.finishCall("browser", 0)
	}
}

// An eventError is the member error of an event.
type eventError struct {
	Type    string  `json:"type"`
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	EventID *string `json:"event_id"`
}

// encodeErrorEvent is an error event about an event of a client.
func encodeErrorEvent(f *exchange.Refusal, eventID string) []byte {
	e := eventError{Type: "invalid_request_error", Code: f.Code, Message: f.Message}
	if f.Param != "" {
		e.Param = &f.Param
	}
	if eventID != "" {
		e.EventID = &eventID
	}
	return exchange.Encode(newEvent("error", object{"error": e}))
}

// object is a JSON object that is made here.
type object = map[string]any
