package voice

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/voice/session"
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
	saved, err := getRow(r.Context(), h.Supervisor.DB, r.PathValue("id"))
	isOwn := err == nil && saved.ConnectionID == who.ConnectionID
	if isOwn && h.mustForward(&saved, r) {
		return forwardToNode(w, r, saved.NodeURL)
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
		h.Supervisor.readControl(saved.ID, &controlChannel{ws: ws})
	}
	return nil
}

// forwardedHeader marks a request that another node has forwarded: it is not forwarded again.
const forwardedHeader = "Purser-Forwarded"

// mustForward reports whether another node runs the session and can be reached.
func (h *Handler) mustForward(saved *row, r *http.Request) bool {
	return saved.Status != session.Ended && saved.NodeID != "" && saved.NodeID != h.Supervisor.NodeID &&
		saved.NodeURL != "" && r.Header.Get(forwardedHeader) == ""
}

// forwardToNode forwards a request, with its WebSocket, to the node that runs its session.
func forwardToNode(w http.ResponseWriter, r *http.Request, nodeURL string) error {
	to, err := url.Parse(nodeURL)
	if err != nil {
		return err
	}
	r.Header.Set(forwardedHeader, "1")
	for name := range w.Header() { // the other node sets them
		w.Header().Del(name)
	}
	(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }}).ServeHTTP(w, r)
	return nil
}

// readControl gives an app's events to its session until the channel is closed.
func (s *Supervisor) readControl(sessionID string, c *controlChannel) {
	s.attachControl(sessionID, c)
	for {
		kind, data, err := c.ws.Read(context.Background())
		if err != nil {
			break
		}
		event := parseControlEvent(data)
		if kind != websocket.MessageText {
			event.Problem = "an event is a text message"
		}
		if r := s.findRunner(sessionID); r != nil {
			r.postEvent(session.FromApp{AppEvent: event})
		} else if refusal := session.RefusalBeforeLive(&event); refusal != nil {
			c.queueEvent(mustJSON(refusal))
		}
	}
	c.close(websocket.StatusNormalClosure, "")
	s.detachControl(sessionID, c)
}
