package inference

import (
	"context"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/provider"
)

// platformProvider returns the provider that serves an app's calls of a model by the
// platform key: the mock in mock mode.
func (h *Handler) platformProvider(app *apps.App, name string) provider.Provider {
	if app.ProviderMode == apps.Mock {
		return h.Mock
	}
	if p := h.Providers[name]; p != nil {
		return p
	}
	return unconfigured{name}
}

// developerProvider returns the provider that serves a sandbox app's calls by its
// developer's own provider key, or nil if there is none.
func (h *Handler) developerProvider(ctx context.Context, app *apps.App, name string) provider.Provider {
	if h.DeveloperProvider == nil || app.Tier != tiers.Sandbox || app.ProviderMode == apps.Mock {
		return nil
	}
	p, ok := h.DeveloperProvider(ctx, app.OwnerID, name)
	if !ok {
		return nil
	}
	return p
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

// unconfigured stands for a provider that the operator has no key for. Its calls fail.
type unconfigured struct{ name string }

// Name returns the provider's name.
func (u unconfigured) Name() string { return u.name }

// Complete fails.
func (u unconfigured) Complete(context.Context, *provider.Request) (*provider.Response, error) {
	return nil, u.failure()
}

// Stream fails.
func (u unconfigured) Stream(context.Context, *provider.Request) (provider.Stream, error) {
	return nil, u.failure()
}

func (u unconfigured) failure() error { return &provider.Error{Message: u.name + " is not configured"} }
