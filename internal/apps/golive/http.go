package golive

import (
	"net/http"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/web"
)

// A Handler serves /v1/apps/{id}/go-live, for the app's own server.
type Handler struct {
	Store *Store
	Apps  *apps.Store
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.Handle("GET /v1/apps/{id}/go-live", h.getStatus)
	rt.Handle("POST /v1/apps/{id}/go-live", h.createRequest)
}

// statusResource is a Status as the API shows it.
type statusResource struct {
	Tier      string     `json:"tier"`
	NextTier  *string    `json:"next_tier"` // null = none is open
	Ready     bool       `json:"ready"`     // all required items are met
	Checklist []Item     `json:"checklist"`
	Requests  []Resource `json:"requests"`
}

func (h *Handler) getStatus(w http.ResponseWriter, r *http.Request) error {
	app, err := h.Apps.RequireOwn(r)
	if err != nil {
		return err
	}
	s, err := h.Store.GetStatus(r.Context(), app)
	if err != nil {
		return err
	}
	out := statusResource{
		Tier:      app.Tier,
		Ready:     len(missingItems(s.Checklist)) == 0,
		Checklist: s.Checklist,
		Requests:  make([]Resource, len(s.Requests)),
	}
	if to, err := nextTier(app.Tier); err == nil {
		out.NextTier = &to
	}
	for i, req := range s.Requests {
		out.Requests[i] = req.Resource()
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// createRequest needs no body, because only the next tier can be requested.
func (h *Handler) createRequest(w http.ResponseWriter, r *http.Request) error {
	app, err := h.Apps.RequireOwn(r)
	if err != nil {
		return err
	}
	req, err := h.Store.CreateRequest(r.Context(), app.ID)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, req.Resource())
}
