package dashboard

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/apps/apps"
)

// appNames caches the apps of one page.
type appNames struct {
	apps *apps.Store
	list map[string]apps.App
}

func (h *Handler) newAppNames() appNames { return appNames{h.Apps, map[string]apps.App{}} }

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
