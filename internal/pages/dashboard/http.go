package dashboard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Handler serves the pages.
type Handler struct {
	DB       *db.DB
	Ledger   *store.Writer
	Apps     *apps.Store
	Accounts *accounts.Store
	Sessions *accounts.Sessions
	Voice    *voice.Store
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.HandlePage("GET /dashboard", h.Sessions.Require(h.overview))
	rt.HandlePage("GET /activity", h.Sessions.Require(h.activity))
	rt.HandlePage("GET /activity.csv", h.Sessions.Require(h.export))
	rt.HandlePage("GET /activity/{id}", h.Sessions.Require(h.entry))
	rt.HandlePage("GET /requests/{id}", h.Sessions.Require(h.requestReceipt))
	rt.HandlePage("GET /connections", h.Sessions.Require(h.list))
	rt.HandlePage("GET /connections/{id}", h.Sessions.Require(h.connection))
	rt.HandlePage("GET /connections/{id}/live", h.Sessions.Require(h.live))
	rt.HandlePage("POST /connections/{id}/freeze", h.Sessions.Require(h.freeze))
	rt.HandlePage("GET /connections/{id}/revoke", h.Sessions.Require(h.revokePage))
	rt.HandlePage("POST /connections/{id}/revoke", h.Sessions.Require(h.revoke))
	rt.HandlePage("GET /connections/{id}/increase", h.Sessions.Require(h.increase))
	rt.HandlePage("POST /connections/{id}/increase", h.Sessions.Require(h.change))
	rt.HandlePage("GET /connections/{id}/review", h.Sessions.Require(h.review))
	rt.HandlePage("POST /connections/{id}/review", h.Sessions.Require(h.answer))
	rt.HandlePage("GET /allocation-requests/{id}", h.Sessions.Require(h.request))
	rt.HandlePage("POST /allocation-requests/{id}", h.Sessions.Require(h.decide))
}

// A visit is somebody at the page of a connection that is theirs.
type visit struct {
	ui.Person
	conn    rules.Connection
	app     apps.App
	balance rules.Balance
}

// visit returns the connection if it is a's, or that of a test account of a's,
// which nobody else can speak for (contract §5, Sandbox).
func (h *Handler) visit(ctx context.Context, a accounts.Account, connectionID, path string) (v visit, err error) {
	v.Person = ui.Person{Shell: a.Shell(ui.Connected), Path: path}
	v.conn, err = store.GetConnection(ctx, h.DB, connectionID)
	if errors.Is(err, sql.ErrNoRows) {
		return visit{}, ui.NotFound()
	} else if err != nil {
		return visit{}, fmt.Errorf("dashboard: connection: %w", err)
	}
	if v.conn.AccountID != a.ID {
		owner, err := h.Accounts.Get(ctx, v.conn.AccountID)
		if err != nil {
			return visit{}, fmt.Errorf("dashboard: account: %w", err)
		}
		if owner.OwnerID != a.ID { // only test accounts have an owner
			return visit{}, ui.NotFound()
		}
		v.For = owner.Email
	}
	if v.app, err = h.Apps.Get(ctx, v.conn.AppID); err != nil {
		return visit{}, fmt.Errorf("dashboard: app: %w", err)
	}
	if v.balance, err = store.GetBalance(ctx, h.DB, v.conn.AccountID); err != nil {
		return visit{}, fmt.Errorf("dashboard: balance: %w", err)
	}
	return v, nil
}

// terms are what the app's present tier allows.
func (v visit) terms() tiers.Policy { return tiers.PolicyOf(v.app.Tier) }

func funds(c rules.Connection, app apps.App) ui.Funds {
	f := ui.Funds{
		App: app.Name, Logo: app.LogoPath(), Sandbox: app.Tier == apps.Sandbox, Status: c.EffectiveStatus(),
		Cap: ui.Dollars(c.AllocationMC), Used: ui.Dollars(c.ConsumedMC), Remaining: ui.Dollars(c.RemainingMC()),
	}
	if c.HeldMC > 0 {
		f.Held = ui.Dollars(c.HeldMC)
	}
	return f
}

// told returns what to tell a person of a refused command, or "" if the error is
// none that they could do something about.
func told(err error) string {
	if e, ok := errors.AsType[*apierr.Error](err); ok && (e.Code == apierr.InvalidRequest ||
		e.Code == apierr.ConnectionRevoked) {
		return e.Message
	}
	return ""
}
