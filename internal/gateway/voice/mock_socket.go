package voice

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/voice/mock"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// maxMockBytes bounds an event of the browser of a mock session. An event of two seconds of audio has half of that.
const maxMockBytes = 256 << 10

// serveMock serves GET /v1/realtime/sessions/{id}/mock, the mock voice (decision 046).
func (h *Handler) serveMock(w http.ResponseWriter, r *http.Request) error {
	if err := checkUpgrade(r); err != nil {
		return err
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("query: must be well-formed")
	}
	// A page of any origin may connect if it has a ticket.
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return web.AlreadyReported(err)
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(maxMockBytes)
	sessionID, ticket := r.PathValue("id"), query.Get("ticket")
	saved, err := h.checkTicket(r.Context(), sessionID, ticket)
	if err == nil && !saved.Mock {
		closeSocket(ws, closeInvalidTicket, "this session is not a mock session")
		return nil
	}
	var run *runner
	if err == nil {
		run, err = h.Supervisor.startByTicket(r.Context(), saved.ID, ticket)
	}
	if err != nil {
		h.closeUnserved(r.Context(), ws, sessionID, err)
		return nil
	}
	run.serveMock(ws)
	return nil
}

// closeUnserved closes a mock socket that cannot be served because of err, with the code that says
// why.
func (h *Handler) closeUnserved(ctx context.Context, ws *websocket.Conn, sessionID string, err error) {
	if e, ok := errors.AsType[*apierr.Error](err); !ok || e.Code != apierr.InvalidTicket {
		closeSocket(ws, websocket.StatusTryAgainLater, "try again")
		return
	}
	saved, err := getRow(ctx, h.Supervisor.DB, sessionID)
	switch {
	case err != nil:
		closeSocket(ws, closeNotFound, "session not found")
	case saved.Status != session.Pending:
		closeSocket(ws, closeNotLive, "session is "+string(saved.Status))
	default:
		closeSocket(ws, closeInvalidTicket, "invalid ticket")
	}
}

// serveMock runs the mock voice of a session until the browser or the session ends it.
func (r *runner) serveMock(ws *websocket.Conn) {
	memory := &socketMemory{memory: r.node.memory, developerID: r.terms.OwnerID}
	defer memory.close()
	call := mock.NewCall(ws, mock.Options{
		Config:   r.config,
		Sideband: r.postProviderEvent,
		Read: func(ctx context.Context) (websocket.MessageType, []byte, error) {
			return memory.read(ctx, ws)
		},
		MayReply: func() bool { return r.node.freeRate.Check(r.terms.OwnerID) == nil },
	})
	defer call.Close()
	r.postEvent(session.CallAnswered{}) // live as soon as the socket is accepted
	r.connectProvider(&providerLink{
		send:  call.Send,
		close: func() { go func() { _ = ws.Close(websocket.StatusNormalClosure, "the session has ended") }() },
	})
	r.postEvent(session.SidebandUp{})
	call.Serve()
	r.postEvent(session.SidebandDown{Gone: true})
}
