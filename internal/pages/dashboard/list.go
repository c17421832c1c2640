package dashboard

import (
	"fmt"
	"net/http"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// maxListed is the most connections that a page lists.
const maxListed = 100

// showConnections is GET /connections.
func (h *Handler) showConnections(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	list, err := store.ConnectionsOfAccount(r.Context(), h.DB, a.ID, maxListed+1)
	if err != nil {
		return fmt.Errorf("dashboard: connections: %w", err)
	}
	requests, err := store.PendingRequestsOfAccount(r.Context(), h.DB, a.ID)
	if err != nil {
		return fmt.Errorf("dashboard: allocation requests: %w", err)
	}
	page := ui.Connections{
		Person: ui.Person{Shell: a.Shell(ui.Connected), Path: "/connections"},
		More:   len(list) > maxListed,
	}
	appsByID := map[string]apps.App{}
	for _, c := range list[:min(len(list), maxListed)] {
		app, ok := appsByID[c.AppID]
		if !ok {
			if app, err = h.Apps.Get(r.Context(), c.AppID); err != nil {
				return fmt.Errorf("dashboard: app: %w", err)
			}
			appsByID[c.AppID] = app
		}
		line := ui.ConnectionRow{Funds: describeFunds(c, app), ID: c.ID}
		if c.Status != rules.Revoked {
			line.Request = requests[c.ID].ID
		}
		page.List = append(page.List, line)
	}
	return ui.Render(w, http.StatusOK, page)
}
