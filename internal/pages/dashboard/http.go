package dashboard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/usage"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/ledger/proofs"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/topups"
)

// Handler serves the pages.
type Handler struct {
	DB       *db.DB
	Ledger   *store.Writer
	Log      *proofs.Log
	Apps     *apps.Store
	Accounts *accounts.Store
	Sessions *accounts.Sessions
	Voice    *voice.Supervisor
	Calls    *inference.Handler
	TopUps   *topups.Store
	Policies *policies.Book  // say which spend is unusual, to explain a pause
	Catalog  *catalog.Source // weighs tokens, to explain the month's spend
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.HandlePage("GET /dashboard", h.Sessions.Require(h.showOverview))
	rt.HandlePage("GET /dashboard/running", h.Sessions.Require(h.showRunning))
	rt.HandlePage("GET /dashboard/pause", h.Sessions.Require(h.showPause))
	rt.HandlePage("POST /dashboard/pause", h.Sessions.Require(h.pauseEverything))
	rt.HandlePage("GET /activity", h.Sessions.Require(h.showActivity))
	rt.HandlePage("GET /statements/{file}", h.Sessions.Require(h.serveStatement))
	rt.HandlePage("GET /activity.csv", h.Sessions.Require(h.Sessions.InTurn(h.exportActivity)))
	rt.HandlePage("GET /activity/history.json", h.Sessions.Require(h.Sessions.InTurn(h.downloadHistory)))
	rt.HandlePage("GET /activity/{id}", h.Sessions.Require(h.showEntry))
	rt.HandlePage("GET /activity/{id}/proof", h.Sessions.Require(h.showProof))
	rt.HandlePage("GET /activity/{id}/proof.json", h.Sessions.Require(h.Sessions.InTurn(h.downloadProof)))
	rt.HandlePage("GET /requests/{id}", h.Sessions.Require(h.showCallReceipt))
	rt.HandlePage("GET /connections", h.Sessions.Require(h.showConnections))
	rt.HandlePage("GET /connections/{id}", h.Sessions.Require(h.showConnection))
	rt.HandlePage("GET /connections/{id}/live", h.Sessions.Require(h.showLive))
	rt.HandlePage("POST /connections/{id}/children/{child}/end", h.Sessions.Require(h.endChild))
	rt.HandlePage("POST /connections/{id}/freeze", h.Sessions.Require(h.freezeConnection))
	rt.HandlePage("POST /connections/{id}/resume", h.Sessions.Require(h.resumeConnection))
	rt.HandlePage("POST /connections/{id}/calls/{call}/stop", h.Sessions.Require(h.stopCall))
	rt.HandlePage("GET /connections/{id}/revoke", h.Sessions.Require(h.showRevoke))
	rt.HandlePage("POST /connections/{id}/revoke", h.Sessions.Require(h.revokeConnection))
	rt.HandlePage("GET /connections/{id}/increase", h.Sessions.Require(h.showIncrease))
	rt.HandlePage("POST /connections/{id}/increase", h.Sessions.Require(h.saveLimits))
	rt.HandlePage("GET /connections/{id}/review", h.Sessions.Require(h.showReview))
	rt.HandlePage("POST /connections/{id}/review", h.Sessions.Require(h.decideReview))
	rt.HandlePage("GET /allocation-requests/{id}", h.Sessions.Require(h.showRequest))
	rt.HandlePage("POST /allocation-requests/{id}", h.Sessions.Require(h.decideRequest))
}

// A visit is a user's request for a page of a connection, with the data that each of these pages shows.
type visit struct {
	ui.Person
	conn    rules.Connection
	app     apps.App
	balance rules.Balance
	freeze  freeze
	work    []rules.HoldRow // held for the app's own work
	size    usage.CallSize  // of the app's calls; only on pages that change the spend cap
}

// loadVisit loads a connection. It is 404 unless the connection belongs to a, or to a test account of a: developers
// decide for their test accounts (contract §5, Sandbox).
func (h *Handler) loadVisit(ctx context.Context, a accounts.Account, connectionID, path string) (v visit, err error) {
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
	if v.freeze, err = h.explainFreeze(ctx, &v.conn); err != nil {
		return visit{}, err
	}
	if v.conn.HeldMC > 0 {
		v.work, err = h.listWork(ctx, v.conn.AccountID, v.conn.ID)
	}
	return v, err
}

// loadCapVisit is loadVisit for a page that changes the spend cap and says what it pays for.
func (h *Handler) loadCapVisit(ctx context.Context, a accounts.Account, connectionID, path string) (visit, error) {
	v, err := h.loadVisit(ctx, a, connectionID, path)
	if err != nil {
		return visit{}, err
	}
	v.size, err = usage.LoadCallSize(ctx, h.DB, v.app.ID, h.DB.Now())
	return v, err
}

// policy returns what the app's current tier allows.
func (v visit) policy() tiers.Policy { return tiers.PolicyOf(v.app.Tier) }

func (v visit) funds() ui.Funds {
	funds := describeFunds(v.conn, v.app, v.freeze)
	if funds.Work = sumWork(v.work); funds.Work != "" {
		funds.WorkUntil = workUntil(&v.work[len(v.work)-1])
	}
	return funds
}

func describeFunds(c rules.Connection, app apps.App, f freeze) ui.Funds {
	funds := ui.Funds{
		AppID:       app.ID,
		App:         app.Name,
		Logo:        app.LogoPath(),
		Sandbox:     app.Tier == apps.Sandbox,
		Status:      c.EffectiveStatus(),
		Why:         f.why,
		PausedSince: f.since,
		Cap:         ui.Dollars(c.AllocationMC),
	}
	parts := splitCap(c)
	funds.Remaining, funds.Used = parts.remaining.Text, parts.used.Text
	if c.SetAsideMC() > 0 {
		funds.Held = parts.held.Text
	}
	return funds
}

// capParts are the parts of a connection's spend cap.
type capParts struct{ remaining, held, used ui.Amount }

// splitCap writes the parts of a connection's spend cap so that they add up to it. What remains is rounded down.
func splitCap(c rules.Connection) capParts {
	parts := ui.SplitDollars(c.RemainingMC(), c.SetAsideMC(), c.ConsumedMC)
	return capParts{parts[0], parts[1], parts[2]}
}

// refusalText returns the message of a refused command, or "" for an error that the user can do nothing about.
func refusalText(err error) string {
	if e, ok := errors.AsType[*apierr.Error](err); ok && (e.Code == apierr.InvalidRequest ||
		e.Code == apierr.ConnectionRevoked || e.Code == apierr.ConnectionFrozen) {
		return e.Message
	}
	return ""
}
