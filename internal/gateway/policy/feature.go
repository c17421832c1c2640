package policy

import (
	"cmp"

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

// ResolveFeature looks a slug up among the features of an app. An unregistered slug is
// no error: it has no guardrails.
func ResolveFeature(registered map[string]*features.Feature, slug string) Feature {
	switch f := registered[slug]; {
	case f != nil:
		return Feature{Slug: slug, Label: f.Slug, Registered: f}
	case slug != "":
		return Feature{Slug: slug, Label: features.Unregistered}
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

// Fit reports whether the output cap of a call is lowered where the call does not fit, and
// the lowest cap: the feature's, or else the app's.
func (f *Feature) Fit(app *apps.App) (fit bool, minTokens int64) {
	fit, minTokens = app.Fit, cmp.Or(app.FitMinTokens, apps.DefaultFitMinTokens)
	if r := f.Registered; r != nil {
		if r.Fit != nil {
			fit = *r.Fit
		}
		if r.FitMinTokens != nil {
			minTokens = *r.FitMinTokens
		}
	}
	return fit, minTokens
}

// Guardrails are the bounds that a feature puts on calls; the zero value has none. This
// is the only copy of them: a text call makes it when it is planned, a voice session when
// it is created. A session stores it as JSON, flat among its billing terms, so a JSON name
// never changes.
type Guardrails struct {
	RateLimit        *int64    // admitted calls in any 60 seconds, per connection; nil = no limit
	MaxCostPerCallMC *money.MC `json:"MaxCostMC"` // the largest hold; nil = no limit
}

// Guardrails returns the guardrails of the feature.
func (f *Feature) Guardrails() Guardrails {
	if f.Registered == nil {
		return Guardrails{}
	}
	return Guardrails{
		RateLimit:        f.Registered.RateLimit,
		MaxCostPerCallMC: f.Registered.MaxCostPerCallMC,
	}
}
