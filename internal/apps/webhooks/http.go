package webhooks

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
)

// A Handler serves /v1/apps/{id}/webhooks (contract §4.8) and /v1/apps/{id}/events.
type Handler struct {
	Store *Store
	Apps  *apps.Store
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.Handle("GET /v1/apps/{id}/webhooks", h.listEndpoints)
	rt.Handle("POST /v1/apps/{id}/webhooks", h.createEndpoint)
	rt.Handle("GET /v1/apps/{id}/webhooks/{webhookId}", h.getEndpoint)
	rt.Handle("PATCH /v1/apps/{id}/webhooks/{webhookId}", h.patchEndpoint)
	rt.Handle("DELETE /v1/apps/{id}/webhooks/{webhookId}", h.deleteEndpoint)
	rt.Handle("POST /v1/apps/{id}/webhooks/{webhookId}/rotate-secret", h.rotateSecret)
	rt.Handle("POST /v1/apps/{id}/webhooks/{webhookId}/test", h.sendTest)
	rt.Handle("POST /v1/apps/{id}/webhooks/{webhookId}/recover", h.recover)
	rt.Handle("GET /v1/apps/{id}/webhooks/{webhookId}/deliveries", h.listDeliveries)
	rt.Handle("POST /v1/apps/{id}/webhooks/{webhookId}/deliveries/{deliveryId}/redeliver", h.redeliver)
	rt.Handle("GET /v1/apps/{id}/events", h.listEvents)
	rt.Handle("POST /v1/apps/{id}/events", h.triggerEvent)
}

// endpointResource is an endpoint as the API shows it. Only creation and rotation show the
// secret.
type endpointResource struct {
	ID        string   `json:"id"`
	AppID     string   `json:"app_id"`
	URL       string   `json:"url"`
	Events    []string `json:"events"`
	Status    string   `json:"status"`
	CreatedAt string   `json:"created_at"`
	Secret    string   `json:"secret,omitempty"`
}

func (e Endpoint) resource(secret string) endpointResource {
	events := e.Events
	if events == nil {
		events = []string{}
	}
	return endpointResource{e.ID, e.AppID, e.URL, events, e.Status, timestamp.Format(e.CreatedUS), secret}
}

// deliveryResource is a delivery as the API shows it.
type deliveryResource struct {
	ID             string  `json:"id"`
	EventID        string  `json:"event_id"`
	EventType      string  `json:"event_type"`
	Status         string  `json:"status"`
	Attempts       int     `json:"attempts"`
	NextAttemptAt  *string `json:"next_attempt_at"`
	LastError      *string `json:"last_error"`
	ResponseStatus *int64  `json:"response_status"`
	DeliveredAt    *string `json:"delivered_at"`
	CreatedAt      string  `json:"created_at"`
}

func (d Delivery) resource() deliveryResource {
	return deliveryResource{
		ID:             d.ID,
		EventID:        d.EventID,
		EventType:      d.EventType,
		Status:         d.Status,
		Attempts:       d.Attempts,
		NextAttemptAt:  orNullTime(d.NextUS),
		LastError:      d.LastError,
		ResponseStatus: d.ResponseStatus,
		DeliveredAt:    orNullTime(d.DeliveredUS),
		CreatedAt:      timestamp.Format(d.CreatedUS),
	}
}

func orNullTime(us *int64) *string {
	if us == nil {
		return nil
	}
	text := timestamp.Format(*us)
	return &text
}

func (h *Handler) listEndpoints(w http.ResponseWriter, r *http.Request) error {
	app, err := h.requireApp(r)
	if err != nil {
		return err
	}
	page, err := web.ReadPage(r, id.Webhook)
	if err != nil {
		return err
	}
	list, more, err := h.Store.List(r.Context(), app.ID, page)
	if err != nil {
		return err
	}
	out := make([]endpointResource, len(list))
	for i, e := range list {
		out[i] = e.resource("")
	}
	if more {
		web.LinkNext(w, r, list[len(list)-1].ID)
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

func (h *Handler) createEndpoint(w http.ResponseWriter, r *http.Request) error {
	app, err := h.requireApp(r)
	if err != nil {
		return err
	}
	var c Change
	if err := web.ReadJSON(r, &c); err != nil {
		return err
	}
	e, secret, err := h.Store.Create(r.Context(), app.ID, c)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return web.WriteJSON(w, http.StatusOK, e.resource(secret))
}

func (h *Handler) getEndpoint(w http.ResponseWriter, r *http.Request) error {
	e, err := h.requireEndpoint(r)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, e.resource(""))
}

func (h *Handler) patchEndpoint(w http.ResponseWriter, r *http.Request) error {
	e, err := h.requireEndpoint(r)
	if err != nil {
		return err // before the body is read: 404 comes before 400
	}
	var c Change
	if err := web.ReadJSON(r, &c); err != nil {
		return err
	}
	if e, err = h.Store.Patch(r.Context(), e.AppID, e.ID, c); err != nil {
		return notFoundError(err)
	}
	return web.WriteJSON(w, http.StatusOK, e.resource(""))
}

func (h *Handler) deleteEndpoint(w http.ResponseWriter, r *http.Request) error {
	e, err := h.requireEndpoint(r)
	if err != nil {
		return err
	}
	if err := h.Store.Delete(r.Context(), e.AppID, e.ID); err != nil {
		return notFoundError(err)
	}
	return web.WriteJSON(w, http.StatusOK, map[string]bool{"ok": true})
}

func (h *Handler) rotateSecret(w http.ResponseWriter, r *http.Request) error {
	e, err := h.requireEndpoint(r)
	if err != nil {
		return err
	}
	e, secret, err := h.Store.RotateSecret(r.Context(), e.AppID, e.ID)
	if err != nil {
		return notFoundError(err)
	}
	w.Header().Set("Cache-Control", "no-store")
	return web.WriteJSON(w, http.StatusOK, e.resource(secret))
}

// eventTypeRequest is the body of the requests for a sample event.
type eventTypeRequest struct {
	Type web.Field[string] `json:"type"`
}

func (h *Handler) sendTest(w http.ResponseWriter, r *http.Request) error {
	e, err := h.requireEndpoint(r)
	if err != nil {
		return err
	}
	var body eventTypeRequest
	if err := web.ReadJSON(r, &body); err != nil {
		return err
	}
	d, err := h.Store.SendTest(r.Context(), e, body.Type.Value)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, d.resource())
}

func (h *Handler) listDeliveries(w http.ResponseWriter, r *http.Request) error {
	e, err := h.requireEndpoint(r)
	if err != nil {
		return err
	}
	f, limit, err := readDeliveryFilter(r)
	if err != nil {
		return err
	}
	list, more, err := h.Store.FilterDeliveries(r.Context(), e.ID, f, limit)
	if err != nil {
		return err
	}
	out := make([]deliveryResource, len(list))
	for i, d := range list {
		out[i] = d.resource()
	}
	if more {
		web.LinkNext(w, r, list[len(list)-1].ID)
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// readDeliveryFilter reads which deliveries are listed, and how many at most. Errors are 400 invalid_request.
func readDeliveryFilter(r *http.Request) (f Filter, limit int, err error) {
	page, err := web.ReadPage(r, id.Delivery, "status", "type", "since")
	if err != nil {
		return f, 0, err
	}
	q, err := web.ReadQuery(r)
	if err != nil {
		return f, 0, err
	}
	f = Filter{Status: q.Get("status"), Type: q.Get("type"), Before: page.StartingAfter}
	switch {
	case q.Has("status") && !IsStatus(f.Status):
		return f, 0, apierr.InvalidRequest.Errorf("status: must be pending, delivered or failed")
	case q.Has("type") && !slices.Contains(Types, f.Type):
		return f, 0, apierr.InvalidRequest.Errorf("type: must be one of %s", strings.Join(Types, ", "))
	}
	if q.Has("since") {
		if f.Since, err = readTime("since", q.Get("since")); err != nil {
			return f, 0, err
		}
	}
	if !q.Has("limit") && !q.Has("starting_after") {
		page.Limit = maxListedDeliveries // of the contract
	}
	return f, page.Limit, nil
}

func readTime(name, text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, apierr.InvalidRequest.Errorf("%s: must be a time such as 2026-11-21T10:15:00Z", name)
	}
	return at, nil
}

// recoverRequest is the body of the request to send again what has failed.
type recoverRequest struct {
	Since web.Field[string] `json:"since"`
}

// recoveredResource says how many deliveries were queued again, and whether there are others.
type recoveredResource struct {
	Queued  int  `json:"queued"`
	HasMore bool `json:"has_more"`
}

func (h *Handler) recover(w http.ResponseWriter, r *http.Request) error {
	e, err := h.requireEndpoint(r)
	if err != nil {
		return err
	}
	var body recoverRequest
	if err := web.ReadJSON(r, &body); err != nil {
		return err
	}
	since, err := readTime("since", body.Since.Value)
	if err != nil {
		return err
	}
	queued, more, err := h.Store.Recover(r.Context(), e, since)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, recoveredResource{queued, more})
}

func (h *Handler) redeliver(w http.ResponseWriter, r *http.Request) error {
	e, err := h.requireEndpoint(r)
	if err != nil {
		return err
	}
	d, err := h.Store.Redeliver(r.Context(), e, r.PathValue("deliveryId"))
	if err != nil {
		return db.NotFound(err, "no such delivery")
	}
	return web.WriteJSON(w, http.StatusOK, d.resource())
}

func (h *Handler) listEvents(w http.ResponseWriter, r *http.Request) error {
	app, err := h.requireApp(r)
	if err != nil {
		return err
	}
	page, err := web.ReadPage(r, "", "after")
	if err != nil {
		return err
	}
	after := r.URL.Query().Get("after")
	if after != "" && page.StartingAfter != "" {
		return apierr.InvalidRequest.Errorf("starting_after: not accepted with after")
	}
	list, err := h.Store.ListEvents(r.Context(), app.ID, after, page.StartingAfter, min(page.Limit, maxEvents))
	if err != nil {
		return err
	}
	if list.More && after != "" {
		web.LinkTo(w, r, "after", list.Last)
	} else if list.More {
		web.LinkNext(w, r, list.Last)
	}
	if list.After != "" {
		web.SetAfter(w, list.After)
	}
	return web.WriteJSON(w, http.StatusOK, list.Events)
}

func (h *Handler) triggerEvent(w http.ResponseWriter, r *http.Request) error {
	app, err := h.requireApp(r)
	if err != nil {
		return err
	}
	var body eventTypeRequest
	if err := web.ReadJSON(r, &body); err != nil {
		return err
	}
	m, err := h.Store.TriggerSample(r.Context(), app.ID, body.Type.Value)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, m)
}

// requireApp authenticates the app and checks that it is the app of the path. Another app's id gives the same 404 as an
// unknown one.
func (h *Handler) requireApp(r *http.Request) (apps.App, error) {
	app, err := h.Apps.Authenticate(r.Context(), r)
	if err == nil && r.PathValue("id") != app.ID {
		err = apierr.NotFound.Errorf("no such app")
	}
	return app, err
}

// requireEndpoint returns the endpoint of the path, which must belong to the authenticated app.
func (h *Handler) requireEndpoint(r *http.Request) (Endpoint, error) {
	app, err := h.requireApp(r)
	if err != nil {
		return Endpoint{}, err
	}
	e, err := h.Store.Get(r.Context(), app.ID, r.PathValue("webhookId"))
	return e, notFoundError(err)
}

// notFoundError returns 404 in place of sql.ErrNoRows.
func notFoundError(err error) error { return db.NotFound(err, "no such webhook endpoint") }
