package voice

import (
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/models/catalog"
)

// Handler serves the routes of voice sessions (contract §4.4).
type Handler struct {
	Supervisor  *Supervisor
	Callers     *callers.Resolver
	Tokens      *oauth.Store // knows who has allowed transcripts
	Catalog     *catalog.Source
	Policies    *policies.Book
	IdleTimeout time.Duration
	PublicURL   string // where browsers and apps reach the API
	Now         func() time.Time
}

// resolveCaller returns who makes a request, or 401, and adds it to the request's log line.
func (h *Handler) resolveCaller(r *http.Request) (*callers.Caller, error) {
	who, err := h.Callers.ResolveAny(r)
	if err != nil {
		return nil, err
	}
	who.Log(r.Context())
	return who, nil
}

// A Holder may see and end sessions: all of a connection, or those that one of its children has made.
type Holder struct{ ConnectionID, ChildID string }

// holderOf returns the holder of a request's token.
func holderOf(who *callers.Caller) Holder { return Holder{who.ConnectionID, who.ChildID()} }

// owns reports whether a session of a connection, made by a child of it or by itself, is the holder's.
func (h Holder) owns(connectionID, childID string) bool {
	return connectionID == h.ConnectionID && (h.ChildID == "" || childID == h.ChildID)
}

// The close codes of contract §4.4 and decision 046.
const (
	closeInvalidTicket websocket.StatusCode = 4001
	closeNotFound      websocket.StatusCode = 4004
	closeNotLive       websocket.StatusCode = 4009
)

// closeSocket closes a WebSocket that cannot be served. The error of the close is dropped: the socket
// is gone in any case.
func closeSocket(ws *websocket.Conn, code websocket.StatusCode, reason string) {
	_ = ws.Close(code, reason)
}

// checkUpgrade returns 400 for a request that does not ask for a WebSocket.
func checkUpgrade(r *http.Request) error {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return nil
	}
	return invalid("this address is a WebSocket, and the request has no header Upgrade: websocket; " +
		"a proxy in front must pass on Upgrade and Connection")
}
