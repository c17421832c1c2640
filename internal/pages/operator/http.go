package operator

import (
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
)

// appResource is an app as its operator sees it: with whose it is.
type appResource struct {
	apps.Resource
	OwnerID string `json:"owner_account_id"`
}

func resource(a apps.App) appResource { return appResource{a.Resource(), a.OwnerID} }

// decision is the answer to a review.
type decision struct {
	Request golive.Resource `json:"request"`
	App     *appResource    `json:"app,omitempty"` // after an approval
}

func (h *Handler) requests(w http.ResponseWriter, r *http.Request) error {
	page, err := web.ReadPage(r, golive.IDPrefix)
	if err != nil {
		return err
	}
	list, err := h.Service.GoLive.ListPending(r.Context(), page.StartingAfter, page.Limit+1)
	if err != nil {
		return err
	}
	if len(list) > page.Limit {
		list = list[:page.Limit]
		web.LinkNext(w, r, list[len(list)-1].ID)
	}
	out := make([]golive.Resource, len(list))
	for i, req := range list {
		out[i] = req.Resource()
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

func (h *Handler) approve(w http.ResponseWriter, r *http.Request) error {
	req, app, err := h.Service.Approve(r.Context(), actorOf(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	shown := resource(app)
	return web.WriteJSON(w, http.StatusOK, decision{req.Resource(), &shown})
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request) error {
	reason, err := readReason(r)
	if err != nil {
		return err
	}
	req, err := h.Service.Refuse(r.Context(), actorOf(r), r.PathValue("id"), reason)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, decision{Request: req.Resource()})
}

func (h *Handler) app(w http.ResponseWriter, r *http.Request) error {
	a, err := h.Service.Apps.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return missing(err, "app")
	}
	return web.WriteJSON(w, http.StatusOK, resource(a))
}

// missing is the 404 of what is not there.
func missing(err error, what string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return apierr.NotFound.Errorf("no such %s", what)
	}
	return err
}

func (h *Handler) suspended(w http.ResponseWriter, r *http.Request) error {
	page, err := web.ReadPage(r, id.App)
	if err != nil {
		return err
	}
	list, err := h.Service.Apps.ListSuspended(r.Context(), page.StartingAfter, page.Limit+1)
	if err != nil {
		return err
	}
	if len(list) > page.Limit {
		list = list[:page.Limit]
		web.LinkNext(w, r, list[len(list)-1].ID)
	}
	out := make([]appResource, len(list))
	for i, a := range list {
		out[i] = resource(a)
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

func (h *Handler) suspend(w http.ResponseWriter, r *http.Request) error {
	reason, err := readReason(r)
	if err != nil {
		return err
	}
	app, err := h.Service.Suspend(r.Context(), actorOf(r), r.PathValue("id"), reason)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, resource(app))
}

func (h *Handler) lift(w http.ResponseWriter, r *http.Request) error {
	app, err := h.Service.Lift(r.Context(), actorOf(r), r.PathValue("id"), "", 0)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, resource(app))
}

func (h *Handler) reverse(w http.ResponseWriter, r *http.Request) error {
	reason, err := readReason(r)
	if err != nil {
		return err
	}
	reversal, err := h.Service.Reverse(r.Context(), actorOf(r), r.PathValue("id"), reason)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, reversal.Resource())
}

func (h *Handler) freeze(w http.ResponseWriter, r *http.Request) error {
	reason, err := readReason(r)
	if err != nil {
		return err
	}
	c, err := h.Service.Freeze(r.Context(), actorOf(r), r.PathValue("id"), reason)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, c.Resource())
}

func (h *Handler) resume(w http.ResponseWriter, r *http.Request) error {
	reason, err := readOptionalReason(r)
	if err != nil {
		return err
	}
	c, err := h.Service.Resume(r.Context(), actorOf(r), r.PathValue("id"), reason, nil)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, c.Resource())
}

// logResource is an entry of the log as the API shows it.
type logResource struct {
	ID        string          `json:"id"`
	Actor     string          `json:"actor"`
	Action    string          `json:"action"`
	Subject   string          `json:"subject"`
	Reason    *string         `json:"reason"`
	Before    json.RawMessage `json:"before"`
	After     json.RawMessage `json:"after"`
	CreatedAt string          `json:"created_at"`
}

// log lists what the operator did, newest first, all of it or what the filter selects.
func (h *Handler) log(w http.ResponseWriter, r *http.Request) error {
	page, err := web.ReadPage(r, logPrefix, "actor", "action", "subject")
	if err != nil {
		return err
	}
	q := r.URL.Query()
	f := Filter{Actor: q.Get("actor"), Action: q.Get("action"), Subject: q.Get("subject")}
	list, err := h.Service.Log(r.Context(), f, page.StartingAfter, page.Limit+1)
	if err != nil {
		return err
	}
	if len(list) > page.Limit {
		list = list[:page.Limit]
		web.LinkNext(w, r, list[len(list)-1].ID)
	}
	out := make([]logResource, len(list))
	for i, e := range list {
		out[i] = logResource{
			ID:        e.ID,
			Actor:     e.Actor,
			Action:    e.Action,
			Subject:   e.Subject,
			Before:    e.Before,
			After:     e.After,
			CreatedAt: timestamp.Format(e.CreatedUS),
		}
		if e.Reason != "" {
			out[i].Reason = &list[i].Reason
		}
	}
	return web.WriteJSON(w, http.StatusOK, out)
}
