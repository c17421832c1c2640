package operator

import (
	"context"
	"net/http"

	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// FindAccount returns the account that AI providers know by a safety identifier, or sql.ErrNoRows.
func (s *Service) FindAccount(ctx context.Context, identifier string) (accounts.Account, error) {
	return s.Accounts.FindBySafetyIdentifier(ctx, s.Identifiers, identifier)
}

// identifiedResource is the account of a safety identifier with its connections, each of which can be frozen.
type identifiedResource struct {
	AccountID   string                 `json:"account_id"`
	Email       string                 `json:"email"`
	Sandbox     bool                   `json:"sandbox"`
	Connections []identifiedConnection `json:"connections"`
}

type identifiedConnection struct {
	ID     string `json:"id"`
	AppID  string `json:"app_id"`
	Status string `json:"status"`
}

// maxConnections is how many connections of an account are listed, the newest.
const maxConnections = 100

// identified answers GET /v1/operator/safety-identifiers/{identifier}.
func (h *Handler) identified(w http.ResponseWriter, r *http.Request) error {
	a, err := h.Service.FindAccount(r.Context(), r.PathValue("identifier"))
	if err != nil {
		return missing(err, "account")
	}
	list, err := store.ConnectionsOfAccount(r.Context(), h.Service.DB, a.ID, maxConnections)
	if err != nil {
		return err
	}
	out := identifiedResource{
		AccountID:   a.ID,
		Email:       a.Email,
		Sandbox:     a.Sandbox,
		Connections: []identifiedConnection{},
	}
	for _, c := range list {
		out.Connections = append(out.Connections, newIdentifiedConnection(c))
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

func newIdentifiedConnection(c rules.Connection) identifiedConnection {
	return identifiedConnection{ID: c.ID, AppID: c.AppID, Status: string(c.Status)}
}
