package features

import (
	"encoding/json"
	"net/http"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
)

// A Handler serves /v1/apps/{id}/features (contract §4.7).
type Handler struct {
	Store *Store
	Apps  *apps.Store
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.Handle("GET /v1/apps/{id}/features", h.listFeatures)
	rt.Handle("POST /v1/apps/{id}/features", h.createFeature)
	rt.Handle("PATCH /v1/apps/{id}/features/{slug}", h.patchFeature)
}

// resource is a feature as the API shows it: exactly the members that POST and PATCH accept, so that a response can be
// sent back.
type resource struct {
	Slug             string       `json:"slug"`
	DisplayName      string       `json:"display_name"`
	Description      string       `json:"description"`
	MaxCostPerCallMC *money.MC    `json:"max_cost_per_call_mc"`
	MaxTokens        *int64       `json:"max_tokens"`
	Fit              *bool        `json:"fit"`
	FitMinTokens     *int64       `json:"fit_min_tokens"`
	RateLimit        *int64       `json:"rate_limit"`
	DefaultModel     *string      `json:"default_model"`
	DevMarginRate    *json.Number `json:"dev_margin_rate"`
}

func (f *Feature) resource() resource {
	r := resource{
		Slug:             f.Slug,
		DisplayName:      f.DisplayName,
		Description:      f.Description,
		MaxCostPerCallMC: f.MaxCostPerCallMC,
		MaxTokens:        f.MaxTokens,
		Fit:              f.Fit,
		FitMinTokens:     f.FitMinTokens,
		RateLimit:        f.RateLimit,
		DefaultModel:     f.DefaultModel,
	}
	if f.DevMargin != nil {
		rate := json.Number(f.DevMargin.String())
		r.DevMarginRate = &rate
	}
	return r
}

func (h *Handler) listFeatures(w http.ResponseWriter, r *http.Request) error {
	appID, err := h.requireApp(r)
	if err != nil {
		return err
	}
	page, err := web.ReadPage(r, "")
	if err != nil {
		return err
	}
	list, more, err := h.Store.List(r.Context(), appID, page)
	if err != nil {
		return err
	}
	out := make([]resource, len(list))
	for i := range list {
		out[i] = list[i].resource()
	}
	if more {
		web.LinkNext(w, r, list[len(list)-1].Slug)
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

func (h *Handler) createFeature(w http.ResponseWriter, r *http.Request) error {
	appID, err := h.requireApp(r)
	if err != nil {
		return err
	}
	var c Change
	if err := web.ReadJSON(r, &c); err != nil {
		return err
	}
	f, err := h.Store.Create(r.Context(), appID, c)
	if err != nil {
		return err
	}
	h.Apps.NotifyChange(appID)
	return web.WriteJSON(w, http.StatusOK, f.resource())
}

func (h *Handler) patchFeature(w http.ResponseWriter, r *http.Request) error {
	appID, err := h.requireApp(r)
	if err != nil {
		return err
	}
	slug := r.PathValue("slug")
	if _, err := h.Store.Get(r.Context(), appID, slug); err != nil {
		return notFoundError(err) // before the body is read: 404 comes before 400
	}
	var c Change
	if err := web.ReadJSON(r, &c); err != nil {
		return err
	}
	f, err := h.Store.Patch(r.Context(), appID, slug, c)
	if err != nil {
		return notFoundError(err)
	}
	h.Apps.NotifyChange(appID)
	return web.WriteJSON(w, http.StatusOK, f.resource())
}

// notFoundError returns 404 in place of sql.ErrNoRows.
func notFoundError(err error) error { return db.NotFound(err, "no such feature") }

// requireApp returns the id of the app of the path, which must be the authenticated app.
func (h *Handler) requireApp(r *http.Request) (appID string, err error) {
	app, err := h.Apps.RequireOwn(r)
	return app.ID, err
}
