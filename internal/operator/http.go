package operator

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"

	"purser/internal/apierr"
	"purser/internal/apps"
	"purser/internal/db"
	"purser/internal/golive"
	"purser/internal/ledger"
	"purser/internal/web"
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
	page, err := web.ReadPage(r)
	if err != nil {
		return err
	}
	list, err := h.GoLive.Pending(r.Context(), page.StartingAfter, page.Limit+1)
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
	a := action{what: "approve", subject: r.PathValue("id")}
	var out decision
	err := h.act(r, &a, func(ctx context.Context, tx *db.Tx) error {
		req, before, after, err := h.GoLive.Approve(ctx, tx, a.subject)
		if err != nil {
			return err
		}
		app := resource(after)
		out = decision{req.Resource(), &app}
		a.before, a.after = resource(before), app
		return nil
	})
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request) (err error) {
	a := action{what: "refuse", subject: r.PathValue("id")}
	if a.reason, err = readReason(r); err != nil {
		return err
	}
	var out decision
	err = h.act(r, &a, func(ctx context.Context, tx *db.Tx) error {
		req, err := h.GoLive.Refuse(ctx, tx, a.subject, a.reason)
		if err != nil {
			return err
		}
		before := req
		before.Status, before.Reason, before.DecidedUS = golive.Pending, "", 0
		out = decision{Request: req.Resource()}
		a.before, a.after = before.Resource(), out.Request
		return nil
	})
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

func (h *Handler) app(w http.ResponseWriter, r *http.Request) error {
	a, err := h.Apps.Get(r.Context(), r.PathValue("id"))
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
	page, err := web.ReadPage(r)
	if err != nil {
		return err
	}
	list, err := h.Apps.ListSuspended(r.Context(), page.StartingAfter, page.Limit+1)
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

func (h *Handler) suspend(w http.ResponseWriter, r *http.Request) (err error) {
	a := action{what: "suspend", subject: r.PathValue("id")}
	if a.reason, err = readReason(r); err != nil {
		return err
	}
	return h.changeApp(w, r, &a, "the app is suspended already", func(ctx context.Context, tx *db.Tx) (before, after apps.App, err error) {
		return h.Apps.Suspend(ctx, tx, a.subject, apps.ByOperator, a.reason)
	})
}

func (h *Handler) lift(w http.ResponseWriter, r *http.Request) error {
	a := action{what: "lift", subject: r.PathValue("id")}
	return h.changeApp(w, r, &a, "the service has not suspended this app", func(ctx context.Context, tx *db.Tx) (before, after apps.App, err error) {
		return h.Apps.Lift(ctx, tx, a.subject)
	})
}

func (h *Handler) changeApp(w http.ResponseWriter, r *http.Request, a *action, same string, f func(context.Context, *db.Tx) (before, after apps.App, err error)) error {
	err := h.act(r, a, func(ctx context.Context, tx *db.Tx) error {
		before, after, err := f(ctx, tx)
		if err != nil {
			return unchanged(missing(err, "app"), same)
		}
		a.before, a.after = resource(before), resource(after)
		return nil
	})
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, a.after)
}

// reverse refunds a charge by a new row: to the connection's reserved pool, or to
// available once it is revoked (spec §2, 7).
func (h *Handler) reverse(w http.ResponseWriter, r *http.Request) (err error) {
	a := action{what: "reverse", subject: r.PathValue("id")}
	if a.reason, err = readReason(r); err != nil {
		return err
	}
	err = h.act(r, &a, func(ctx context.Context, tx *db.Tx) error {
		original, err := ledger.GetEntry(ctx, tx, a.subject)
		if err != nil {
			return missing(err, "ledger row")
		}
		done, err := h.Ledger.DoTx(ctx, tx, ledger.Reverse{EntryID: original.ID, AccountID: original.AccountID, Reason: a.reason})
		if err != nil {
			return err
		}
		a.before, a.after = original.Resource(), done.Entry.Resource()
		return nil
	})
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, a.after)
}

func (h *Handler) freeze(w http.ResponseWriter, r *http.Request) (err error) {
	a := action{what: "freeze", subject: r.PathValue("id")}
	if a.reason, err = readReason(r); err != nil {
		return err
	}
	return h.turn(w, r, &a, ledger.Freeze{ConnectionID: a.subject}, ledger.Frozen)
}

func (h *Handler) resume(w http.ResponseWriter, r *http.Request) error {
	a := action{what: "resume", subject: r.PathValue("id")}
	return h.turn(w, r, &a, ledger.Resume{ConnectionID: a.subject}, ledger.Active)
}

// turn pauses a connection or lifts that.
func (h *Handler) turn(w http.ResponseWriter, r *http.Request, a *action, c ledger.Command, to ledger.Status) error {
	err := h.act(r, a, func(ctx context.Context, tx *db.Tx) error {
		before, err := ledger.GetConnection(ctx, tx, a.subject)
		if err != nil {
			return missing(err, "connection")
		}
		switch before.Status {
		case ledger.Revoked:
			return apierr.InvalidRequest.Errorf("the connection is revoked, for good")
		case to:
			return apierr.InvalidRequest.Errorf("the connection is %s already", to)
		}
		done, err := h.Ledger.DoTx(ctx, tx, c)
		if err != nil {
			return err
		}
		a.before, a.after = before.Resource(), done.Connection.Resource()
		return nil
	})
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, a.after)
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

// log lists what the operator did, newest first.
func (h *Handler) log(w http.ResponseWriter, r *http.Request) error {
	page, err := web.ReadPage(r)
	if err != nil {
		return err
	}
	list, err := newest(r.Context(), h.DB, page.StartingAfter, page.Limit+1)
	if err != nil {
		return err
	}
	if len(list) > page.Limit {
		list = list[:page.Limit]
		web.LinkNext(w, r, list[len(list)-1].ID)
	}
	out := make([]logResource, len(list))
	for i, e := range list {
		out[i] = logResource{ID: e.ID, Actor: e.Actor, Action: e.Action, Subject: e.Subject, Before: e.Before, After: e.After, CreatedAt: ledger.Timestamp(e.CreatedUS)}
		if e.Reason != "" {
			out[i].Reason = &list[i].Reason
		}
	}
	return web.WriteJSON(w, http.StatusOK, out)
}
