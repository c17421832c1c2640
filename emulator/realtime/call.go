package realtime

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/openai"
)

// A call is one realtime call. The lock guards the fields below it.
type call struct {
	api     *API
	id, key string
	number  int
	model   realtimeModel
	script  steering // of the instructions at creation
	created time.Time

	mu           sync.Mutex
	end          string // "" while it is live
	endedAt      time.Time
	session      sessionObject
	conversation string
	sockets      map[*socket]bool
	peer         *peer // nil without media
	left         bool  // the browser has disconnected
	spoken       bool  // audio was sent, so the voice is fixed
	timers       []*callTimer

	items      []*conversationItem
	reply      *reply        // the active one
	replies    int           // replies begun
	made       []madeReply   // replies ended
	lastTokens tokenCounts   // input and output of the last reply: the part that is cached
	queue      []*playback   // the present playback and those after it
	played     time.Duration // length of the earlier playbacks
	speech     userSpeech    // the present speech of the user
	heard      time.Duration // length of the earlier speech
	buffer     time.Duration // length of the speech that is not committed
	turnsMade  int           // turns that the script has made

	transcripts int // of the user's speech

	dials, refusedDials, drops, hangups int
	attached                            bool // it has been
	unwatchedSince                      time.Time
	unwatched                           []unwatchedGap
	seen                                map[string]int // events by type
	idleTimer                           *callTimer     // lets the model speak after idle_timeout_ms
	log                                 []loggedEvent
}

// A loggedEvent is an event that was sent or received.
type loggedEvent struct {
	Time time.Time `json:"time"`
	From string    `json:"from"` // provider, sideband or browser
	Type string    `json:"type"`
}

// maxLoggedEvents is the number of events of a call that are kept by their types.
const maxLoggedEvents = 200

// answerOffer answers the offer, and starts the scripted events.
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

// A callTimer calls a function later, with the lock of the call held.
type callTimer struct {
	timer *time.Timer
	off   bool
}

// scheduleAfter calls f after d, unless the call has ended or the timer was stopped.
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

// stopTimer stops a timer. It has no effect on one that has fired.
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

// sendEvent sends bytes, which need not be a valid event.
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

// hasEnded reports whether the call has ended.
func (c *call) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end != ""
}

// finishCall ends the call: hangup, expired, browser, closed. It closes the sidebands with
// code; 0 leaves them open without further events.
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
		go c.peer.closePeer() // it waits for its callbacks, which may wait for the lock
	}
}

// expireCall ends a call that has reached its maximum duration.
func (c *call) expireCall() {
	c.emitEvent("error", object{"error": eventError{
		Type:    "invalid_request_error",
		Code:    "session_expired",
		Message: "Your session hit the maximum duration of 60 minutes.",
	}})
	c.finishCall("expired", 1000)
}

// loseBrowser handles the disconnect of the browser. What the provider does then is not
// documented: unless the script says otherwise, the call goes on and no event is sent.
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

// An eventError is the member error of an error event.
type eventError struct {
	Type    string  `json:"type"`
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	EventID *string `json:"event_id"`
}

// encodeErrorEvent returns an error event about an event of a client.
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

// object is a JSON object to encode.
type object = map[string]any
