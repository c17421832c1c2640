package dashboard

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// appNames caches the apps of one page.
type appNames struct {
	apps *apps.Store
	db   *db.DB
	list map[string]apps.App
}

func (h *Handler) newAppNames() appNames { return appNames{h.Apps, h.DB, map[string]apps.App{}} }

// get returns an app. An app that does not exist has its id as its name; no app is a zero App.
func (n appNames) get(ctx context.Context, appID string) (apps.App, error) {
	if app, ok := n.list[appID]; ok || appID == "" {
		return app, nil
	}
	app, err := n.apps.Get(ctx, appID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return apps.App{}, fmt.Errorf("dashboard: app: %w", err)
	}
	app.ID, app.Name = appID, cmp.Or(app.Name, appID)
	n.list[appID] = app
	return app, nil
}

// nameOf returns the name of an app; "" for no app.
func (n appNames) nameOf(ctx context.Context, appID string) (string, error) {
	app, err := n.get(ctx, appID)
	return app.Name, err
}

// entryName returns the name of a ledger row on pages. Only a reversed top-up needs a look at the database: the row of
// a payment and that of a goodwill credit that was withdrawn have the same members.
func (n appNames) entryName(ctx context.Context, e *rules.Entry) (string, error) {
	if e.Type != rules.EntryTopUp || e.Status != "reversed" {
		return entryName(e), nil
	}
	_, err := store.GoodwillOfEntry(ctx, n.db, e.ID)
	switch {
	case err == nil:
		return withdrawnName, nil
	case !errors.Is(err, sql.ErrNoRows):
		return "", fmt.Errorf("dashboard: goodwill credit: %w", err)
	case e.AvailableDeltaMC > 0: // a refund that the bank did not carry out
		return "Refund came back", nil
	case e.Reason == "returned_to_card":
		return "Returned to your card", nil
	case e.AvailableDeltaMC == 0: // it was pending
		return "Top-up failed", nil
	}
	return "Top-up reversed", nil
}
