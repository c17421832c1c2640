package operator

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"slices"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// apps answers GET /v1/operator/apps: all, newest first, or the results of a search by name, id or client id.
func (h *Handler) apps(w http.ResponseWriter, r *http.Request) error {
	page, err := web.ReadPage(r, id.App, "search")
	if err != nil {
		return err
	}
	list, err := h.Service.Apps.Search(r.Context(), r.URL.Query().Get("search"), page.StartingAfter, page.Limit+1)
	if err != nil {
		return err
	}
	return writeList(w, r, page, list, func(a apps.App) string { return a.ID }, resource)
}

// connectionStatuses are the statuses that a list of connections can be filtered by.
var connectionStatuses = []rules.ConnectionStatus{rules.Active, rules.Frozen, rules.Revoked}

// connections answers GET /v1/operator/connections: all, newest first, or those of an account, of an app or in a
// status.
func (h *Handler) connections(w http.ResponseWriter, r *http.Request) error {
	page, err := web.ReadPage(r, id.Connection, "account", "app", "status")
	if err != nil {
		return err
	}
	q := r.URL.Query()
	f := store.ConnectionFilter{AppID: q.Get("app"), Status: rules.ConnectionStatus(q.Get("status"))}
	if f.Status != "" && !slices.Contains(connectionStatuses, f.Status) {
		return apierr.InvalidRequest.Errorf("status: must be active, frozen or revoked")
	}
	if text := q.Get("account"); text != "" {
		a, err := h.Service.searchAccount(r.Context(), text)
		if err != nil {
			return missing(err, "account")
		}
		f.AccountID = a.ID
	}
	list, err := store.BrowseConnections(r.Context(), h.Service.DB, f, page.StartingAfter, page.Limit+1)
	if err != nil {
		return err
	}
	return writeList(w, r, page, list, func(c rules.Connection) string { return c.ID }, rules.Connection.Resource)
}

// charges answers GET /v1/operator/charges: calls and refunds of an account or of an app, newest first.
func (h *Handler) charges(w http.ResponseWriter, r *http.Request) error {
	page, err := web.ReadPage(r, id.Ledger, "account", "app")
	if err != nil {
		return err
	}
	ctx, q := r.Context(), r.URL.Query()
	var list []rules.Entry
	var next string
	switch account, app := q.Get("account"), q.Get("app"); {
	case account != "" && app == "":
		a, err := h.Service.searchAccount(ctx, account)
		if err != nil {
			return missing(err, "account")
		}
		list, next, err = h.Service.chargesOfAccount(ctx, a.ID, page)
		if err != nil {
			return err
		}
	case app != "" && account == "":
		list, _, err = store.BrowseSpends(ctx, h.Service.DB, store.CallFilter{AppID: app},
			page.StartingAfter, page.Limit+1)
		if err != nil {
			return err
		}
		if len(list) > page.Limit {
			list = list[:page.Limit]
			next = list[page.Limit-1].ID
		}
	default:
		return apierr.InvalidRequest.Errorf("account: give an account or an app")
	}
	if next != "" {
		web.LinkNext(w, r, next)
	}
	out := make([]rules.EntryResource, len(list))
	for i, e := range list {
		out[i] = e.Resource()
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// chargesOfAccount returns a page of the spend rows of an account, and the row after which the next page starts; "" =
// there are no more.
func (d *Service) chargesOfAccount(ctx context.Context, accountID string,
	page web.Page) (list []rules.Entry, next string, err error) {
	before := int64(0)
	if page.StartingAfter != "" {
		e, err := store.GetEntry(ctx, d.DB, page.StartingAfter)
		if errors.Is(err, sql.ErrNoRows) || err == nil && e.AccountID != accountID {
			return nil, "", apierr.InvalidRequest.Errorf("starting_after: must be the id of a row of this list")
		} else if err != nil {
			return nil, "", err
		}
		before = e.Seq
	}
	list, err = store.SpendsOfAccount(ctx, d.DB, accountID, before, page.Limit+1)
	if err == nil && len(list) > page.Limit {
		list = list[:page.Limit]
		next = list[page.Limit-1].ID
	}
	return list, next, err
}

// entry answers GET /v1/operator/ledger/{id}: a ledger row, by its id or by the id of the request that it bills.
func (h *Handler) entry(w http.ResponseWriter, r *http.Request) error {
	e, err := store.GetEntry(r.Context(), h.Service.DB, entryID(r.PathValue("id")))
	if err != nil {
		return missing(err, "ledger row")
	}
	return web.WriteJSON(w, http.StatusOK, e.Resource())
}
