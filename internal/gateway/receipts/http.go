package receipts

import (
	"database/sql"
	"errors"
	"net/http"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/ledger/proofs"
	"github.com/purserhq/purser/internal/models/catalog"
)

// Handler serves receipts, summaries of a connection's spend, and the request log of an app, and refunds its calls.
type Handler struct {
	DB      *db.DB
	Apps    *apps.Store
	Callers *callers.Resolver
	Catalog *catalog.Source // weighs tokens in summaries
	Refunds *Refunder
	Log     *proofs.Log // has the order in which calls were settled
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.Handle("GET /v1/requests/{id}", h.getReceipt)
	rt.Handle("GET /v1/connection/summary", h.getSummary)
	rt.Handle("POST /v1/requests/{id}/refund", h.refundRequest)
	rt.Handle("GET /v1/apps/{id}/requests", h.listRequests)
}

// getReceipt answers GET /v1/requests/{id}, to the connection of the request or to its
// app. To others it does not exist.
func (h *Handler) getReceipt(w http.ResponseWriter, r *http.Request) error {
	maySee, err := h.authenticate(r)
	if err != nil {
		return err
	}
	requestID := r.PathValue("id")
	if !strings.HasPrefix(requestID, id.Request) {
		return apierr.NotFound.Errorf("no such request")
	}
	out, appID, err := Find(r.Context(), h.DB, requestID)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !maySee(out, appID) {
		return apierr.NotFound.Errorf("no such request")
	} else if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// authenticate returns which requests the credentials of r may see.
func (h *Handler) authenticate(r *http.Request) (maySee func(out *Receipt, appID string) bool, err error) {
	if scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Basic") {
		app, err := h.Apps.Authenticate(r.Context(), r)
		return func(_ *Receipt, appID string) bool { return appID == app.ID }, err
	}
	who, err := h.Callers.ResolveAny(r)
	if err != nil {
		return nil, err
	}
	who.Log(r.Context())
	return func(out *Receipt, _ string) bool {
		return out.ConnectionID == who.ConnectionID &&
			(who.Child == nil || out.ChildID != nil && *out.ChildID == who.Child.ID)
	}, nil
}
