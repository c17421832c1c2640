package voice

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/base/retry"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/models/catalog"
)

// serveControl serves GET /v1/realtime/sessions/{id}/control, the app's control channel (contract
// §4.4). It may come before the browser does. A new channel replaces an old one.
func (h *Handler) serveControl(w http.ResponseWriter, r *http.Request) error {
	who, err := h.resolveCaller(r)
	if err != nil {
		return err
	}
	if err := checkUpgrade(r); err != nil {
		return err
	}
	memory, err := h.Supervisor.node.openSocketMemory(who.App.OwnerID)
	if err != nil {
		return err
	}
	defer memory.close()
	saved, err := getRow(r.Context(), h.Supervisor.DB, r.PathValue("id"))
	isOwn := err == nil && holderOf(who).owns(saved.ConnectionID, saved.ChildID)
	if isOwn && h.mustForward(&saved, r) {
		return h.Supervisor.forwardToNode(w, r, &saved, memory)
	}
	ws, acceptErr := websocket.Accept(w, r, nil)
	if acceptErr != nil {
		return web.AlreadyReported(acceptErr)
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(maxControlBytes + 1)
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && !isOwn:
		closeSocket(ws, closeNotFound, "session not found")
	case err != nil:
		closeSocket(ws, websocket.StatusTryAgainLater, "try again")
	case saved.Status == session.Ended:
		closeSocket(ws, closeNotLive, "session not live")
	case saved.NodeID != "" && saved.NodeID != h.Supervisor.NodeID:
		closeSocket(ws, websocket.StatusServiceRestart, "another node has the session; connect again")
	default:
		c := &controlChannel{ws: ws, memory: memory, model: h.findModel(saved.Model)}
		h.Supervisor.readControl(saved.ID, holderOf(who), c, h.newTokenCheck(r, who))
	}
	return nil
}

// findModel returns the model of a session, of which only its name is known if it is no longer offered.
func (h *Handler) findModel(name string) catalog.Model {
	if m, _, ok := h.Catalog.Current().Find(name, h.Now()); ok {
		return m
	}
	return catalog.Model{ID: name}
}

// connectAgain is the reason of every close with which an app shall connect again.
const connectAgain = "connect again"

// forwardedHeader marks a request that another node has forwarded: it is not forwarded again.
const forwardedHeader = "Purser-Forwarded"

// mustForward reports whether another node runs the session and can be reached.
func (h *Handler) mustForward(saved *row, r *http.Request) bool {
	return saved.Status != session.Ended && saved.NodeID != "" && saved.NodeID != h.Supervisor.NodeID &&
		saved.NodeURL != "" && r.Header.Get(forwardedHeader) == ""
}

// forward is a control channel that this node relays to the node that runs its session.
type forward struct {
	sessionID string
	nodeID    string
	node      *websocket.Conn
}

// noteForward notes f until the relay ends.
func (s *Supervisor) noteForward(f *forward) (forget func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forwards[f] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.forwards, f)
	}
}

// nodePingInterval is how often a relay pings the node that runs the session, and how long that may take to answer. It
// exceeds controlWriteTimeout, as controlPingInterval does.
const nodePingInterval = 6 * time.Second

// forwardToNode relays the control channel between the app and the node that runs its session. If that
// node cannot be reached, dies, or loses the session, the app is told to connect again.
func (s *Supervisor) forwardToNode(w http.ResponseWriter, r *http.Request, saved *row, memory *socketMemory) error {
	dialing, cancel := context.WithTimeout(r.Context(), providerTimeout)
	defer cancel()
	node, _, dialErr := websocket.Dial(dialing, saved.NodeURL+r.URL.EscapedPath(),
		&websocket.DialOptions{HTTPHeader: http.Header{
			"Authorization": r.Header["Authorization"],
			forwardedHeader: {"1"},
		}})
	if dialErr == nil {
		defer func() { _ = node.CloseNow() }()
		node.SetReadLimit(maxEventBytes)
		defer s.noteForward(&forward{saved.ID, saved.NodeID, node})()
	}
	app, err := websocket.Accept(w, r, nil)
	if err != nil {
		return web.AlreadyReported(err)
	}
	defer func() { _ = app.CloseNow() }()
	app.SetReadLimit(maxControlBytes + 1)
	if dialErr != nil {
		closeSocket(app, websocket.StatusServiceRestart, connectAgain)
		return nil
	}
	pinging, stop := context.WithCancel(context.Background())
	defer stop()
	pingControl(pinging, app, controlPingInterval)
	pingControl(pinging, node, nodePingInterval)
	var fromApp sync.WaitGroup
	fromApp.Go(func() { // ends when one of the two sockets is closed
		relayMessages(node, app, func(ctx context.Context) (websocket.MessageType, []byte, error) {
			return memory.read(ctx, app)
		})
	})
	relayMessages(app, node, node.Read)
	_ = app.CloseNow()
	fromApp.Wait()
	return nil
}

// readMessage reads the next message of a socket.
type readMessage func(context.Context) (websocket.MessageType, []byte, error)

// relayMessages sends to dst what src sends and read reads, until one of them is closed. It passes on how src was
// closed; a socket that broke means that the app must connect again.
func relayMessages(dst, src *websocket.Conn, read readMessage) {
	for {
		kind, data, err := read(context.Background())
		if err != nil {
			code, reason := websocket.StatusServiceRestart, connectAgain
			if closed, ok := errors.AsType[websocket.CloseError](err); ok && isSendable(closed.Code) {
				code, reason = closed.Code, closed.Reason
			}
			closeSocket(dst, code, reason)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), controlWriteTimeout)
		err = dst.Write(ctx, kind, data)
		cancel()
		if err != nil {
			_ = src.CloseNow() // dst is gone, which its reader notices
			return
		}
	}
}

// isSendable reports whether a close frame may have a code: some only say how a socket ended.
func isSendable(code websocket.StatusCode) bool {
	return code != websocket.StatusNoStatusRcvd && code != websocket.StatusAbnormalClosure &&
		code != websocket.StatusTLSHandshake
}

// readControl gives an app's events to its session until the channel is closed, or isRevoked says that the token was
// revoked that opened it.
func (s *Supervisor) readControl(sessionID string, h Holder, c *controlChannel, isRevoked tokenCheck) {
	s.attachControl(sessionID, c)
	pinging, stop := context.WithCancel(context.Background())
	defer stop()
	pingControl(pinging, c.ws, controlPingInterval)
	go closeRevoked(pinging, c, tokenCheckInterval, isRevoked)
	for {
		kind, data, err := c.memory.read(context.Background(), c.ws)
		if err != nil {
			break
		}
		if isRevoked(messageCheckTimeout) {
			c.closeRevoked() // the app's close ends the reading
			continue
		}
		event := parseControlEvent(data, &c.model)
		if kind != websocket.MessageText {
			event.Problem = "an event is a text message"
		}
		if s.keepUpdate(sessionID, c, &event) {
			continue
		}
		if r := s.findRunner(sessionID); r != nil {
			r.postEvent(session.FromApp{AppEvent: event})
		} else if refusal := session.RefusalBeforeLive(&event); refusal != nil {
			c.queueEvent(mustJSON(refusal))
		} else {
			s.endByControl(sessionID, h, c, &event)
		}
	}
	c.close(websocket.StatusNormalClosure, "")
	s.detachControl(sessionID, c)
}

// keepUpdate keeps a session.update until the session runs here: clients of OpenAI send it when they are connected.
// It reports false for any other event, if too many wait, and once the session runs.
func (s *Supervisor) keepUpdate(sessionID string, c *controlChannel, e *session.AppEvent) bool {
	if e.Type != "session.update" || e.Problem != "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[sessionID] != c || len(c.early) >= maxEarly {
		return false
	}
	c.early = append(c.early, *e)
	return true
}

// endByControl ends a session that does not run here, because its app asks for that on its control channel.
func (s *Supervisor) endByControl(sessionID string, h Holder, c *controlChannel, e *session.AppEvent) {
	when := session.AfterHeard
	if e.Immediate {
		when = session.Immediate
	}
	if err := s.End(context.Background(), h, sessionID, when); err != nil {
		s.node.log.Warn("voice session not ended by its app", "session_id", sessionID, "error", err)
		c.queueEvent(mustJSON(session.NewRefusal(e, "the session could not be ended; try again")))
	}
}

// tokenCheckInterval is how often the token of a control channel is checked that sends nothing, as that of an event
// stream is.
const tokenCheckInterval = 15 * time.Second

// messageCheckTimeout bounds the check of the token before an event is obeyed: cancelling and muting do not wait for a
// database that does not answer (F-98). The next event, or the check of the interval, closes the channel then.
const messageCheckTimeout = 300 * time.Millisecond

// A tokenCheck reports whether the token of a control channel was revoked. While the database can't say within limit,
// it was not.
type tokenCheck func(limit time.Duration) (revoked bool)

// closeRevoked closes a control channel when its token was revoked, until ctx ends.
func closeRevoked(ctx context.Context, c *controlChannel, interval time.Duration, isRevoked tokenCheck) {
	for retry.Sleep(ctx, interval) {
		if isRevoked(controlWriteTimeout) {
			c.closeRevoked()
			return
		}
	}
}

// newTokenCheck returns the check of the token of a request.
func (h *Handler) newTokenCheck(r *http.Request, who *callers.Caller) tokenCheck {
	return func(limit time.Duration) bool {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		revoked, err := h.Callers.IsRevoked(ctx, r, who)
		if err != nil {
			h.Supervisor.node.log.WarnContext(ctx, "control channel's token not checked", "error", err)
		}
		return err == nil && revoked
	}
}

// controlPingInterval is how often a control channel is pinged, and how long the app may take to answer. Proxies close
// a connection after 60 s of silence by default. It exceeds controlWriteTimeout, for which a relay reads no pong.
const controlPingInterval = 20 * time.Second

// pingControl pings a control channel until ctx ends. It closes a channel that does not answer, which its reader
// notices: otherwise a session would keep sending events to an app that has lost its network.
func pingControl(ctx context.Context, ws *websocket.Conn, interval time.Duration) {
	time.AfterFunc(interval, func() {
		if ctx.Err() != nil {
			return
		}
		waiting, cancel := context.WithTimeout(ctx, interval)
		defer cancel()
		if ws.Ping(waiting) != nil {
			_ = ws.CloseNow() // the reader reports the loss
			return
		}
		pingControl(ctx, ws, interval)
	})
}
