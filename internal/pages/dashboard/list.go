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

// maxListed is how many connections the list shows.
const maxListed = 100

// list is GET /connections.
func (h *Handler) list(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	list, err := store.ConnectionsOfAccount(r.Context(), h.DB, a.ID, maxListed+1)
	if err != nil {
		return fmt.Errorf("dashboard: connections: %w", err)
	}
	waiting, err := store.PendingRequestsOfAccount(r.Context(), h.DB, a.ID)
	if err != nil {
		return fmt.Errorf("dashboard: allocation requests: %w", err)
	}
	page := ui.Connections{
		Person: ui.Person{Shell: a.Shell(ui.Connected), Path: "/connections"},
		More:   len(list) > maxListed,
	}
	known := map[string]apps.App{}
	for _, c := range list[:min(len(list), maxListed)] {
		app, ok := known[c.AppID]
		if !ok {
			if app, err = h.Apps.Get(r.Context(), c.AppID); err != nil {
				return fmt.Errorf("dashboard: app: %w", err)
			}
			known[c.AppID] = app
		}
		line := ui.ConnectionRow{Funds: funds(c, app), ID: c.ID}
		if c.Status != rules.Revoked {
			line.Request = waiting[c.ID].ID
		}
		page.List = append(page.List, line)
	}
	return ui.Render(w, http.StatusOK, page)
}
