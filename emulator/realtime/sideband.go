package realtime

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/openai"
)

// A socket is one sideband. It has a queue, so that a client that does not read blocks no
// other.
type socket struct {
	conn  *websocket.Conn
	queue chan []byte
	sent  int // events
	gone  context.CancelCauseFunc
	code  int // how to close; guarded by the call's lock
	why   string
}

// maxQueuedEvents is the number of events that may wait for a slow client. It is dropped
// at one more.
const maxQueuedEvents = 1024

// serveSideband serves the WebSocket of a sideband.
func (e *API) serveSideband(w http.ResponseWriter, r *http.Request) {
	rec := e.server.RecordRequest(r, nil)
	if f := openai.CheckKey(r); f != nil {
		e.refuseCall(w, rec, f)
		return
	}
	id := r.URL.Query().Get("call_id")
	if id == "" {
		e.refuseCall(w, rec,
			openai.BadParam("missing_required_parameter", "call_id",
				"The emulator knows only sidebands of calls: give a call_id."))
		return
	}
	c := e.calls.findCall(id)
	if c == nil || c.key != exchange.BearerToken(r) {
		e.refuseCall(w, rec, callNotFound())
		return
	}
	ctx, gone := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer gone(nil)
	s := &socket{queue: make(chan []byte, maxQueuedEvents), gone: gone}
	// It is attached before the WebSocket is accepted, so that it misses no event.
	if f := c.attachSideband(s, time.Now()); f != nil {
		e.refuseCall(w, rec, f)
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the Origin does not matter to an emulator
		OnPingReceived:     func(context.Context, []byte) bool { return !c.isMuted(s) },
	})
	e.server.FinishRecord(rec, http.StatusSwitchingProtocols, err)
	if err != nil {
		c.mu.Lock()
		c.detachSideband(s)
		c.mu.Unlock()
		return
	}
	conn.SetReadLimit(1 << 20)
	s.conn = conn
	go s.writeQueue(ctx)
	c.readEvents(ctx, s)
}

// attachSideband adds a sideband to the call, or returns why it is refused.
func (c *call) attachSideband(s *socket, now time.Time) *exchange.Refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dials++
	var f *exchange.Refusal
	switch {
	case c.end != "", c.dials <= c.script.notFound, now.Sub(c.created) < c.script.fresh:
		f = callNotFound()
	case c.drops > 0 && now.Sub(c.unwatchedSince) < c.script.down:
		f = &exchange.Refusal{Status: http.StatusServiceUnavailable, Message: "The emulator was asked for this error."}
	}
	if f != nil {
		c.refusedDials++
		return f
	}
	if len(c.sockets) == 0 {
		c.closeGap(now)
	}
	c.sockets[s] = true
	if !c.attached {
		c.attached = true
		c.startScript()
	}
	if c.drops < c.script.drops && c.script.dropAfter == 0 {
		c.dropSideband(s, c.script.dropCode)
	}
	return nil
}

// startScript starts the scripted events. It is called when the first sideband attaches.
func (c *call) startScript() {
	for _, b := range c.script.browser {
		if b.at == "" {
			c.scheduleAfter(0, func() { c.receiveEvent([]byte(b.event), nil) })
		}
	}
	if c.script.turns > 0 {
		c.scheduleAfter(c.script.silent/time.Duration(c.script.fast), c.nextTurn)
	}
	if c.script.vanish == 0 {
		c.loseBrowser()
	}
}

// isMuted reports whether a sideband gets no more events although it is connected.
func (c *call) isMuted(s *socket) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.sent >= c.script.mute
}

// readEvents reads events until the socket is closed.
func (c *call) readEvents(ctx context.Context, s *socket) {
	for {
		kind, text, err := s.conn.Read(ctx)
		if err != nil {
			break
		}
		c.mu.Lock()
		if c.end == "" && c.sockets[s] && s.sent < c.script.mute && kind == websocket.MessageText {
			c.receiveEvent(text, s)
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	c.detachSideband(s)
	c.mu.Unlock()
	s.gone(io.EOF)
	_ = s.conn.CloseNow() // it may be closed already
}

// detachSideband removes a sideband from the call.
func (c *call) detachSideband(s *socket) {
	if !c.sockets[s] {
		return
	}
	delete(c.sockets, s)
	if len(c.sockets) == 0 && c.end == "" {
		c.openGap(time.Now())
	}
}

// sendToSocket queues an event, and drops the socket where the script says so.
func (c *call) sendToSocket(s *socket, kind string, text []byte) {
	if s.sent >= c.script.mute {
		return
	}
	s.sent++
	select {
	case s.queue <- text:
	default: // it does not read
		s.gone(errors.New("it does not read"))
		c.detachSideband(s)
		return
	}
	if c.drops < c.script.drops && (s.sent >= c.script.dropAfter || kind == c.script.dropAt) {
		c.dropSideband(s, c.script.dropCode)
	}
}

// dropSideband closes a sideband of a call that goes on.
func (c *call) dropSideband(s *socket, code int) {
	c.drops++
	s.closeSocket(code, "the emulator drops the sideband")
	c.detachSideband(s)
}

// closeSocket closes the socket after its queue is written.
func (s *socket) closeSocket(code int, why string) {
	s.code, s.why = code, why
	close(s.queue)
}

// writeQueue writes the queue. The code 1006 breaks the connection.
func (s *socket) writeQueue(ctx context.Context) {
	for {
		select {
		case text, ok := <-s.queue:
			if !ok {
				s.finishClosing()
				return
			}
			if err := s.conn.Write(ctx, websocket.MessageText, text); err != nil {
				_ = s.conn.CloseNow() // listen sees it
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// finishClosing closes the socket as the script wants it.
func (s *socket) finishClosing() {
	if s.code == 1006 {
		_ = s.conn.CloseNow() // the script wants a broken connection
		return
	}
	_ = s.conn.Close(websocket.StatusCode(s.code), s.why) // the client may be gone
}

// An unwatchedGap is a time in which a live call had no sideband.
type unwatchedGap struct {
	From       time.Time `json:"from"`
	To         time.Time `json:"to"` // when a sideband attached or the call ended
	MS         int64     `json:"ms"`
	AudioOutMS int64     `json:"audio_out_ms"` // what the user heard meanwhile
	AudioInMS  int64     `json:"audio_in_ms"`  // what the user said

	out, in time.Duration // of the whole call at its begin
}

func (c *call) openGap(now time.Time) {
	c.unwatchedSince = now
	c.unwatched = append(c.unwatched, unwatchedGap{From: now, out: c.playedUntil(now), in: c.heardUntil(now)})
	if len(c.unwatched) > 100 {
		c.unwatched = c.unwatched[1:]
	}
}

func (c *call) closeGap(now time.Time) {
	if len(c.unwatched) == 0 { // from the beginning
		c.unwatched = []unwatchedGap{{From: c.created}}
	}
	last := &c.unwatched[len(c.unwatched)-1]
	*last = last.endingAt(now, c.playedUntil(now), c.heardUntil(now))
	last.To, c.unwatchedSince = now, time.Time{}
}

func (g unwatchedGap) endingAt(now time.Time, out, in time.Duration) unwatchedGap {
	g.MS, g.AudioOutMS, g.AudioInMS = now.Sub(g.From).Milliseconds(), (out - g.out).Milliseconds(),
		(in - g.in).Milliseconds()
	return g
}
