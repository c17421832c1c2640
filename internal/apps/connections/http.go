// Package connections serves an app's connections, their allocation requests, and the account of the app's owner
// (contract §4.5, §4.6). The ledger packages change the money.
package connections

import (
	"database/sql"
	"errors"
	"net/http"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// recentEntries is the number of ledger entries of a single connection.
const recentEntries = 20

// A Handler serves /v1/connections and /v1/account.
type Handler struct {
	DB     *db.DB
	Apps   *apps.Store
	Ledger *store.Writer
	Links  web.Links // where users decide allocation requests
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.Handle("GET /v1/connections", h.listConnections)
	rt.Handle("GET /v1/connections/{id}", h.getConnection)
	rt.Handle("POST /v1/connections/{id}/revoke", h.revokeConnection)
	rt.Handle("GET /v1/connections/{id}/allocation-requests", h.listAllocationRequests)
	rt.Handle("POST /v1/connections/{id}/allocation-requests", h.createAllocationRequest)
	rt.Handle("GET /v1/connections/{id}/allocation-requests/{requestId}", h.getAllocationRequest)
	rt.Handle("GET /v1/account", h.getAccount)
}

func (h *Handler) listConnections(w http.ResponseWriter, r *http.Request) error {
	app, err := h.Apps.Authenticate(r.Context(), r)
	if err != nil {
		return err
	}
	page, err := web.ReadPage(r, id.Connection)
	if err != nil {
		return err
	}
	list, err := store.ConnectionsOfApp(r.Context(), h.DB, app.ID, page.StartingAfter, page.Limit+1)
	if err != nil {
		return err
	}
	if len(list) > page.Limit {
		list = list[:page.Limit]
		web.LinkNext(w, r, list[len(list)-1].ID)
	}
	out := make([]rules.ConnectionResource, len(list))
	for i, c := range list {
		out[i] = c.Resource()
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// single is a connection with recent_ledger, which may be empty but is always present.
type single struct {
	rules.ConnectionResource
	RecentLedger []rules.EntryResource `json:"recent_ledger"`
}

func (h *Handler) getConnection(w http.ResponseWriter, r *http.Request) error {
	c, err := h.requireConnection(r)
	if err != nil {
		return err
	}
	entries, err := store.RecentEntries(r.Context(), h.DB, c.AccountID, c.ID, recentEntries)
	if err != nil {
		return err
	}
	out := single{c.Resource(), make([]rules.EntryResource, len(entries))}
	for i, e := range entries {
		out.RecentLedger[i] = e.Resource()
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// revocation is the response of contract §4.5.
type revocation struct {
	ID              string                 `json:"id"`
	Status          rules.ConnectionStatus `json:"status"`
	RevokedAt       string                 `json:"revoked_at"`
	ReleasedMC      money.MC               `json:"released_mc"`
	ReleasedDisplay string                 `json:"released_display"`
}

func (h *Handler) revokeConnection(w http.ResponseWriter, r *http.Request) error {
	c, err := h.requireConnection(r)
	if err != nil {
		return err
	}
	done, err := h.Ledger.Do(r.Context(), rules.Revoke{ConnectionID: c.ID})
	if err != nil {
		return err
	}
	if done.Connection.RevokedUS == nil {
		return errors.New("connections: a revoked connection has no time of revocation")
	}
	return web.WriteJSON(w, http.StatusOK, revocation{
		ID:              done.Connection.ID,
		Status:          done.Connection.Status,
		RevokedAt:       timestamp.Format(*done.Connection.RevokedUS),
		ReleasedMC:      done.ReleasedMC,
		ReleasedDisplay: done.ReleasedMC.Display(),
	})
}

// requireConnection returns the connection of the path. A connection of another app gives the same
// 404 as an unknown one.
func (h *Handler) requireConnection(r *http.Request) (rules.Connection, error) {
	_, c, err := h.requireAppAndConnection(r)
	return c, err
}

// requireAppAndConnection is requireConnection with the authenticated app.
func (h *Handler) requireAppAndConnection(r *http.Request) (apps.App, rules.Connection, error) {
	app, err := h.Apps.Authenticate(r.Context(), r)
	if err != nil {
		return apps.App{}, rules.Connection{}, err
	}
	c, err := store.GetConnection(r.Context(), h.DB, r.PathValue("id"))
	if errors.Is(err, sql.ErrNoRows) || err == nil && c.AppID != app.ID {
		return apps.App{}, rules.Connection{}, apierr.NotFound.Errorf("no such connection")
	}
	return app, c, err
}

// account is the Account of contract §2.
type account struct {
	ID               string   `json:"wac_id"`
	Email            string   `json:"email"`
	Sandbox          bool     `json:"sandbox"`
	AvailableMC      money.MC `json:"balance_available_mc"`
	AvailableDisplay string   `json:"balance_available_display"`
	ReservedMC       money.MC `json:"balance_reserved_mc"`
	ReservedDisplay  string   `json:"balance_reserved_display"`
}

// getAccount is GET /v1/account: the account of the app's owner. Apps never see the balances of their users.
func (h *Handler) getAccount(w http.ResponseWriter, r *http.Request) error {
	app, err := h.Apps.Authenticate(r.Context(), r)
	if err != nil {
		return err
	}
	owner, err := accounts.GetAccount(r.Context(), h.DB, app.OwnerID)
	if err != nil {
		return err
	}
	b, err := store.GetBalance(r.Context(), h.DB, owner.ID)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, account{
		ID:               owner.ID,
		Email:            owner.Email,
		Sandbox:          owner.Sandbox,
		AvailableMC:      b.AvailableMC,
		AvailableDisplay: b.AvailableMC.Display(),
		ReservedMC:       b.ReservedMC,
		ReservedDisplay:  b.ReservedMC.Display(),
	})
}
