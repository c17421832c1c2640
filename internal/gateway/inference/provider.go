package inference

import (
	"context"
	"errors"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/provider"
)

// platformProvider returns the provider that serves an app's calls of a model by the
// platform key: the mock in mock mode, or nil if the operator has no key.
func (h *Handler) platformProvider(app *apps.App, name string) provider.Provider {
	if app.ProviderMode == apps.Mock {
		return h.Mock
	}
	return h.Providers[name]
}

// developerProvider returns the provider that serves a sandbox app's calls by its
// developer's own provider key, or nil if there is none.
func (h *Handler) developerProvider(ctx context.Context, app *apps.App, name string) (provider.Provider, error) {
	if h.DeveloperProvider == nil || app.Tier != tiers.Sandbox || app.ProviderMode == apps.Mock {
		return nil, nil
	}
	return h.DeveloperProvider(ctx, app.OwnerID, name)
}

// liveEstimates returns what calibrates the token counts of an app's calls and learns
// from them: nil in mock mode, where the provider counts as we do.
func (h *Handler) liveEstimates(app *apps.App) *estimates.Calibration {
	if app.ProviderMode == apps.Mock {
		return nil
	}
	return h.Estimates
}

// calibration returns how the token counts of an app's calls are corrected.
func (h *Handler) calibration(app *apps.App) func(model string, counted int64) int64 {
	if app.ProviderMode == apps.Mock {
		return nil
	}
	return h.calibrate
}

// unconfigured stands for a provider whose key was removed after a call of the key had failed.
type unconfigured struct{ name string }

var errNotConfigured = errors.New("this service has no key for the provider")

// Name returns the provider's name.
func (u unconfigured) Name() string { return u.name }

// Complete fails.
func (unconfigured) Complete(context.Context, *provider.Request) (*provider.Response, error) {
	return nil, errNotConfigured
}

// Stream fails.
func (unconfigured) Stream(context.Context, *provider.Request) (provider.Stream, error) {
	return nil, errNotConfigured
}
