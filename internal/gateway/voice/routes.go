package voice

import "github.com/purserhq/purser/internal/base/web"

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.Handle("POST /v1/realtime/sessions", h.createSession)
	rt.Handle("GET /v1/realtime/sessions", h.listSessions)
	rt.Handle("GET /v1/realtime/sessions/{id}", h.getSession)
	rt.Handle("POST /v1/realtime/sessions/{id}/end", h.endSession)
	rt.Handle("POST /v1/realtime/sessions/{id}/offer", h.exchangeOffer)
	rt.Handle("OPTIONS /v1/realtime/sessions/{id}/offer", preflightOffer)
	rt.Handle("GET /v1/realtime/sessions/{id}/control", h.serveControl)
	rt.Handle("GET /v1/realtime/sessions/{id}/mock", h.serveMock)
}
