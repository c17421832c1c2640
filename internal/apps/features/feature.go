// Package features stores the features of apps: labels that users read on the consent screen, with optional guardrails
// and margin rates (contract §2, Feature; §4.7).
package features

import (
	"regexp"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
)

// A Feature is a registered label of an app. Nil means not set.
type Feature struct {
	AppID, Slug              string
	DisplayName, Description string
	MaxCostPerCallMC         *money.MC // guardrail of one call
	MaxTokens                *int64    // output cap of calls that send none
	Fit                      *bool     // overrides the app's
	FitMinTokens             *int64    // overrides the app's
	RateLimit                *int64    // admitted calls in any 60 seconds, per connection
	DefaultModel             *string
	DevMargin                *money.PPM // overrides the app's rate
}

// Limits of features.
const (
	MaxPerApp      = 200
	maxDisplayName = 80
	maxDescription = 500
	// maxCount bounds max_tokens, fit_min_tokens and rate_limit. It is above every model ceiling and every useful rate.
	maxCount = 1_000_000_000
)

// SlugPattern is what a slug consists of (contract §2).
var SlugPattern = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// A Change is the body of POST and PATCH. An absent member keeps its value, and null clears an optional one (decision
// 005).
type Change struct {
	Slug             web.Field[string]         `json:"slug"`
	DisplayName      web.Field[string]         `json:"display_name"`
	Description      web.Field[string]         `json:"description"`
	MaxCostPerCallMC web.Field[money.MC]       `json:"max_cost_per_call_mc"`
	MaxTokens        web.Field[int64]          `json:"max_tokens"`
	Fit              web.Field[bool]           `json:"fit"`
	FitMinTokens     web.Field[int64]          `json:"fit_min_tokens"`
	RateLimit        web.Field[int64]          `json:"rate_limit"`
	DefaultModel     web.Field[string]         `json:"default_model"`
	DevMarginRate    web.Field[jsontext.Value] `json:"dev_margin_rate"`
}

// applyTo returns f with the change, or 400 invalid_request with the member and the rule. It does not check unchanged
// members again, because a default model may have retired.
func (c *Change) applyTo(f Feature, offered func(model string) bool) (Feature, error) {
	if c.Slug.Set && (c.Slug.Null || c.Slug.Value != f.Slug) {
		return f, apierr.InvalidRequest.Errorf("slug: cannot be changed; it is %q", f.Slug)
	}
	if err := setText(&f.DisplayName, "display_name", c.DisplayName, maxDisplayName); err != nil {
		return f, err
	}
	if err := setText(&f.Description, "description", c.Description, maxDescription); err != nil {
		return f, err
	}
	if err := setBounded(&f.MaxCostPerCallMC, "max_cost_per_call_mc", c.MaxCostPerCallMC, 0, money.Max); err != nil {
		return f, err
	}
	if err := setBounded(&f.MaxTokens, "max_tokens", c.MaxTokens, 1, maxCount); err != nil {
		return f, err
	}
	if c.Fit.Set {
		if f.Fit = nil; !c.Fit.Null {
			f.Fit = &c.Fit.Value
		}
	}
	if err := setBounded(&f.FitMinTokens, "fit_min_tokens", c.FitMinTokens, 1, maxCount); err != nil {
		return f, err
	}
	if err := setBounded(&f.RateLimit, "rate_limit", c.RateLimit, 1, maxCount); err != nil {
		return f, err
	}
	if c.DefaultModel.Set {
		f.DefaultModel = nil
		if model := c.DefaultModel.Value; !c.DefaultModel.Null {
			if !offered(model) {
				return f, apierr.InvalidRequest.Errorf(
					"default_model: must be the id of an offered model; see GET /v1/models")
			}
			f.DefaultModel = &model
		}
	}
	return f, c.setMargin(&f)
}

// Unregistered is the label under which calls count whose slug is not registered. No feature has it as its slug.
const Unregistered = "other"

// makeFeature returns a new feature of an app.
func (c *Change) makeFeature(appID string, offered func(model string) bool) (Feature, error) {
	if !c.Slug.Set || c.Slug.Null || !SlugPattern.MatchString(c.Slug.Value) {
		return Feature{}, apierr.InvalidRequest.Errorf("slug: required, must match %s", SlugPattern)
	}
	if c.Slug.Value == Unregistered {
		return Feature{}, apierr.InvalidRequest.Errorf("slug: %q is what analytics call all slugs that are not "+
			"registered; choose another", Unregistered)
	}
	if !c.DisplayName.Set {
		return Feature{}, apierr.InvalidRequest.Errorf("display_name: required")
	}
	if !c.Description.Set {
		return Feature{}, apierr.InvalidRequest.Errorf("description: required")
	}
	return c.applyTo(Feature{AppID: appID, Slug: c.Slug.Value}, offered)
}

func setText(dst *string, member string, f web.Field[string], maxRunes int) error {
	if !f.Set {
		return nil
	}
	if f.Null {
		return apierr.InvalidRequest.Errorf("%s: must be a string", member)
	}
	*dst = f.Value
	return apps.CheckText(member, f.Value, maxRunes)
}

func setBounded[T ~int64](dst **T, member string, f web.Field[T], least, most T) error {
	if !f.Set {
		return nil
	}
	*dst = nil
	if f.Null {
		return nil
	}
	if f.Value < least || f.Value > most {
		return apierr.InvalidRequest.Errorf("%s: must be an integer from %d to %d, or null", member, int64(least),
			int64(most))
	}
	*dst = &f.Value
	return nil
}

func (c *Change) setMargin(f *Feature) error {
	if !c.DevMarginRate.Set {
		return nil
	}
	f.DevMargin = nil
	if c.DevMarginRate.Null {
		return nil
	}
	rate, ok := apps.ParseRate(c.DevMarginRate.Value)
	if !ok {
		return apierr.InvalidRequest.Errorf(
			"dev_margin_rate: must be a number from 0 to %s with at most six decimals, or null", apps.MaxDevMargin)
	}
	f.DevMargin = &rate
	return nil
}
