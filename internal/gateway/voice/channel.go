package voice

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// channel is an app's control channel. What the app does not read in time closes
// it.
type channel struct {
	ws *websocket.Conn

	mu      sync.Mutex
	queue   [][]byte
	writing bool // somebody sends the queue
	closed  bool // nothing more is taken
	code    websocket.StatusCode
	why     string
}

// unread is how many events may wait for an app to read them.
const unread = 256

func (c *channel) send(event []byte) {
	c.mu.Lock()
	full := len(c.queue) >= unread
	if !full && !c.closed {
		c.queue = append(c.queue, event)
		c.write()
	}
	c.mu.Unlock()
	if full {
		c.close(websocket.StatusPolicyViolation, "the events are not read")
	}
}

// end closes the channel after what is still to be sent; ended says that the
// session has ended, and is not another node's now.
func (c *channel) end(ended bool) {
	if ended {
		c.close(websocket.StatusNormalClosure, "the session has ended")
	} else {
		c.close(websocket.StatusServiceRestart, "connect again")
	}
}

func (c *channel) close(code websocket.StatusCode, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed, c.code, c.why = true, code, why
		c.write()
	}
}

// write begins to send what there is, unless that is being done; c is locked.
func (c *channel) write() {
	if !c.writing {
		c.writing = true
		go c.drain()
	}
}

// drain sends what is to be sent, and closes the socket at the end.
func (c *channel) drain() {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			closed := c.closed
			c.writing, c.queue = closed, nil // after the end nobody writes again
			c.mu.Unlock()
			if closed {
				_ = c.ws.Close(c.code, c.why) // it goes either way
			}
			return
		}
		event := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := c.ws.Write(ctx, websocket.MessageText, event)
		cancel()
		if err != nil {
			_ = c.ws.CloseNow() // its reader ends; writing stays true: nothing more can be sent
			return
		}
	}
}

// control serves the app's channel of a session (spec §4.4). It may come before the
// browser does. Of two, the last wins.
func (h *Handler) control(w http.ResponseWriter, r *http.Request) error {
	who, err := h.caller(r)
	if err != nil {
		return err
	}
	if !upgrade(r) {
		return invalid("this address is a WebSocket")
	}
	rw, err := getRow(r.Context(), h.DB, r.PathValue("id"))
	if err == nil && rw.ConnectionID == who.ConnectionID && h.elsewhere(&rw, r) {
		return forward(w, r, rw.NodeURL)
	}
	ws, acceptErr := websocket.Accept(w, r, nil)
	if acceptErr != nil {
		return web.AlreadyReported(acceptErr)
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(maxControlBytes + 1)
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && rw.ConnectionID != who.ConnectionID:
		return closing(ws, 4004, "session not found")
	case err != nil:
		return closing(ws, websocket.StatusTryAgainLater, "try again")
	case rw.Status == session.Ended:
		return closing(ws, 4009, "session not live")
	case rw.NodeID != "" && rw.NodeID != h.Node:
		return closing(ws, websocket.StatusServiceRestart, "another node has the session; connect again")
	}
	h.listen(rw.ID, &channel{ws: ws})
	return nil
}

// forwarded marks what another node has passed on, so that nothing goes round.
const forwarded = "Purser-Forwarded"

// elsewhere says whether a session is run by another node that can be reached.
func (h *Handler) elsewhere(rw *row, r *http.Request) bool {
	return rw.Status != session.Ended && rw.NodeID != "" && rw.NodeID != h.Node && rw.NodeURL != "" && r.Header.Get(forwarded) == ""
}

// forward passes a request on to the node that runs its session, socket and all.
func forward(w http.ResponseWriter, r *http.Request, nodeURL string) error {
	to, err := url.Parse(nodeURL)
	if err != nil {
		return err
	}
	r.Header.Set(forwarded, "1")
	for name := range w.Header() { // the other node says these
		w.Header().Del(name)
	}
	(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }}).ServeHTTP(w, r)
	return nil
}

// moved tells channels that wait here for a session which another node runs now to
// connect again: they will be passed on to it.
func (h *Handler) moved(ctx context.Context) error {
	h.mu.Lock()
	var ids []string
	for id := range h.waiting {
		ids = append(ids, id)
	}
	h.mu.Unlock()
	for _, id := range ids {
		rw, err := getRow(ctx, h.DB, id)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if err == nil && rw.Status != session.Ended && (rw.NodeID == "" || rw.NodeID == h.Node) {
			continue
		}
		h.mu.Lock()
		c := h.waiting[id]
		delete(h.waiting, id)
		h.mu.Unlock()
		if c != nil {
			c.end(err != nil || rw.Status == session.Ended)
		}
	}
	return nil
}

// attachControl makes c the channel of a session, here or when it comes to this node.
func (h *Handler) attachControl(sessionID string, c *channel) *running {
	h.mu.Lock()
	s := h.sessions[sessionID]
	if s == nil {
		if old := h.waiting[sessionID]; old != nil {
			old.close(websocket.StatusGoingAway, "another control channel was opened")
		}
		h.waiting[sessionID] = c
	}
	h.mu.Unlock()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	if old := s.control; old != nil {
		old.close(websocket.StatusGoingAway, "another control channel was opened")
	}
	s.control = c
	s.mu.Unlock()
	s.post(session.ControlUp{})
	return s
}

// listen reads a control channel to its end.
func (h *Handler) listen(sessionID string, c *channel) {
	h.attachControl(sessionID, c)
	for {
		kind, data, err := c.ws.Read(context.Background())
		if err != nil {
			break
		}
		event := session.FromApp{AppEvent: parseControlEvent(data)}
		if kind != websocket.MessageText {
			event.Problem = "an event is a text message"
		}
		h.mu.Lock()
		s := h.sessions[sessionID]
		h.mu.Unlock()
		if s == nil {
			_, todo := session.Step(session.State{Status: session.Pending, TicketExpiresUS: 1 << 62, LastN: 1, HoldN: 1, Hold: session.Held}, event, h.Now()) // it says so
			for _, a := range todo {
				if e, ok := a.(session.ToApp); ok {
					c.send(mustJSON(e.Event))
				}
			}
			continue
		}
		s.post(event)
	}
	c.close(websocket.StatusNormalClosure, "")
	h.mu.Lock()
	if h.waiting[sessionID] == c {
		delete(h.waiting, sessionID)
	}
	s := h.sessions[sessionID]
	h.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	mine := s.control == c
	if mine {
		s.control = nil
	}
	s.mu.Unlock()
	if mine {
		s.post(session.ControlDown{})
	}
}
