package policy

import (
	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/money"
)

// A Feature is what the slug of a call stands for (contract §2, Feature).
type Feature struct {
	Slug       string            // as sent; "" = none
	Label      string            // what analytics count the call under
	Registered *features.Feature // nil = no slug, or an unregistered one
}

// unregisteredLabel is the feature label of all unregistered slugs.
const unregisteredLabel = "other"

// ResolveFeature looks a slug up among the features of an app. An unregistered slug is
// no error: it has no guardrails.
func ResolveFeature(registered map[string]*features.Feature, slug string) Feature {
	switch f := registered[slug]; {
	case f != nil:
		return Feature{Slug: slug, Label: f.Slug, Registered: f}
	case slug != "":
		return Feature{Slug: slug, Label: unregisteredLabel}
	}
	return Feature{}
}

// Margin returns the margin rate of a call: the feature's, or else the app's.
func (f *Feature) Margin(app *apps.App) money.PPM {
	if f.Registered != nil && f.Registered.DevMargin != nil {
		return *f.Registered.DevMargin
	}
	return app.DevMargin
}

// RateLimit returns how many calls per minute the feature allows; nil = no limit.
func (f *Feature) RateLimit() *int64 {
	if f.Registered == nil {
		return nil
	}
	return f.Registered.RateLimit
}

// MaxCostMC returns the largest hold that the feature allows; nil = no limit.
func (f *Feature) MaxCostMC() *money.MC {
	if f.Registered == nil {
		return nil
	}
	return f.Registered.MaxCostPerCallMC
}
