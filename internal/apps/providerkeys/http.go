package providerkeys

import (
	"database/sql"
	"errors"
	"net/http"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
)

// A Handler serves /v1/provider-keys. The keys are those of the developer of the authenticated app,
// so no path has an id of another developer.
type Handler struct {
	Store *Store
	Apps  *apps.Store
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.Handle("GET /v1/provider-keys", h.listKeys)
	rt.Handle("PUT /v1/provider-keys/{provider}", h.putKey)
	rt.Handle("DELETE /v1/provider-keys/{provider}", h.deleteKey)
}

// resource is a provider key as the API shows it.
type resource struct {
	Provider  string  `json:"provider"`
	Last4     *string `json:"last4"`
	CreatedAt string  `json:"created_at"`
	TestedAt  string  `json:"tested_at"`
}

func (k Key) resource() resource {
	r := resource{
		Provider:  k.Provider,
		CreatedAt: timestamp.Format(k.CreatedUS),
		TestedAt:  timestamp.Format(k.TestedUS),
	}
	if k.Last4 != "" {
		r.Last4 = &k.Last4
	}
	return r
}

func (h *Handler) listKeys(w http.ResponseWriter, r *http.Request) error {
	app, err := h.Apps.Authenticate(r.Context(), r)
	if err != nil {
		return err
	}
	list, err := h.Store.List(r.Context(), app.OwnerID)
	if err != nil {
		return err
	}
	out := make([]resource, len(list))
	for i, k := range list {
		out[i] = k.resource()
	}
	w.Header().Set("Cache-Control", "no-store")
	return web.WriteJSON(w, http.StatusOK, out)
}

func (h *Handler) putKey(w http.ResponseWriter, r *http.Request) error {
	app, err := h.Apps.Authenticate(r.Context(), r)
	if err != nil {
		return err
	}
	provider := r.PathValue("provider")
	if !IsKnownProvider(provider) {
		return errUnknownProvider() // before the body is read: 404 comes before 400
	}
	var body struct {
		Key web.Field[string] `json:"key"`
	}
	if err := web.ReadJSON(r, &body); err != nil {
		return err
	}
	if !body.Key.Set || body.Key.Null {
		return apierr.InvalidRequest.Errorf("key: required, must be a string")
	}
	k, err := h.Store.Put(r.Context(), app.OwnerID, provider, NewSecret(body.Key.Value))
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return web.WriteJSON(w, http.StatusOK, k.resource())
}

func (h *Handler) deleteKey(w http.ResponseWriter, r *http.Request) error {
	app, err := h.Apps.Authenticate(r.Context(), r)
	if err != nil {
		return err
	}
	provider := r.PathValue("provider")
	if !IsKnownProvider(provider) {
		return errUnknownProvider()
	}
	if err := h.Store.Delete(r.Context(), app.OwnerID, provider); errors.Is(err, sql.ErrNoRows) {
		return apierr.NotFound.Errorf("no such provider key")
	} else if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}
