package apps

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

// Limits of an app's lists and counts.
const (
	maxAllowedModels = 200
	maxTokens        = 1_000_000_000 // above every model ceiling
)

// A Change is the body of PATCH. An absent member keeps its value, null clears an optional one, and a list replaces the
// whole list (decision 005).
type Change struct {
	Name             web.Field[string]         `json:"name"`
	ClientType       web.Field[string]         `json:"client_type"`
	RedirectURIs     web.Field[[]string]       `json:"redirect_uris"`
	AllowedModels    web.Field[[]string]       `json:"allowed_models"`
	DefaultMaxTokens web.Field[int64]          `json:"default_max_tokens"`
	Fit              web.Field[bool]           `json:"fit"`
	FitMinTokens     web.Field[int64]          `json:"fit_min_tokens"`
	DevMarginRate    web.Field[jsontext.Value] `json:"dev_margin_rate"`
	PromptCache      web.Field[bool]           `json:"prompt_cache"`
	OwnWork          web.Field[bool]           `json:"own_work"`
	Transcripts      web.Field[bool]           `json:"transcripts"`
	ProviderMode     web.Field[string]         `json:"provider_mode"`
	TestAllowlist    web.Field[[]string]       `json:"test_allowlist"`
	Suspended        web.Field[bool]           `json:"suspended"`
	ProfileChange
}

// rules are the conditions of a change.
type rules struct {
	dev     bool                    // allow loopback redirect URIs
	offered func(model string) bool // reports whether a model can be called now
	nowUS   int64
}

// applyTo returns a with the change. An error is 400 invalid_request with the member and the rule, or 403 app_suspended
// if the developer tries to lift a suspension by the service.
func (c *Change) applyTo(a App, r rules) (App, error) {
	for member, null := range map[string]bool{
		"name":            c.Name.Null,
		"client_type":     c.ClientType.Null,
		"redirect_uris":   c.RedirectURIs.Null,
		"fit":             c.Fit.Null,
		"dev_margin_rate": c.DevMarginRate.Null,
		"prompt_cache":    c.PromptCache.Null,
		"own_work":        c.OwnWork.Null,
		"transcripts":     c.Transcripts.Null,
		"provider_mode":   c.ProviderMode.Null,
		"suspended":       c.Suspended.Null,
	} {
		if null {
			return a, apierr.InvalidRequest.Errorf("%s: must not be null", member)
		}
	}
	if c.Name.Set {
		a.Name = c.Name.Value
		if err := checkName("name", a.Name); err != nil {
			return a, err
		}
	}
	if err := c.setClient(&a, r.dev); err != nil {
		return a, err
	}
	if c.DefaultMaxTokens.Set {
		a.DefaultMaxTokens = nil
		if n := c.DefaultMaxTokens.Value; !c.DefaultMaxTokens.Null {
			if n < 1 || n > maxTokens {
				return a, apierr.InvalidRequest.Errorf("default_max_tokens: must be an integer from 1 to %d, or null",
					maxTokens)
			}
			a.DefaultMaxTokens = &n
		}
	}
	if c.Fit.Set {
		a.Fit = c.Fit.Value
	}
	if c.FitMinTokens.Set {
		a.FitMinTokens = DefaultFitMinTokens
		if !c.FitMinTokens.Null {
			a.FitMinTokens = c.FitMinTokens.Value
		}
		if a.FitMinTokens < 1 || a.FitMinTokens > maxTokens {
			return a, apierr.InvalidRequest.Errorf("fit_min_tokens: must be an integer from 1 to %d, or null",
				maxTokens)
		}
	}
	if c.DevMarginRate.Set {
		rate, ok := ParseRate(c.DevMarginRate.Value)
		if !ok {
			return a, apierr.InvalidRequest.Errorf(
				"dev_margin_rate: must be a number from 0 to %s with at most six decimals", MaxDevMargin)
		}
		a.DevMargin = rate
	}
	if c.PromptCache.Set {
		a.PromptCache = c.PromptCache.Value
	}
	if c.OwnWork.Set {
		a.OwnWork = c.OwnWork.Value
	}
	if c.Transcripts.Set {
		a.Transcripts = c.Transcripts.Value
	}
	profile, err := c.ProfileChange.applyTo(a.Profile)
	if err != nil {
		return a, err
	}
	a.Profile = profile
	if err := c.setModels(&a, r.offered); err != nil {
		return a, err
	}
	if c.TestAllowlist.Set {
		list, err := NormalizeAllowlist(c.TestAllowlist.Value)
		if err != nil {
			return a, err
		}
		a.TestAllowlist = list
	}
	return a, c.setModes(&a, r.nowUS)
}

// setClient changes the client type and the redirect URIs, which it checks against each other: only a public client may
// keep loopback URIs.
func (c *Change) setClient(a *App, dev bool) error {
	if c.ClientType.Set {
		a.ClientType = c.ClientType.Value
		if err := checkClientType(a.ClientType); err != nil {
			return err
		}
	}
	if c.RedirectURIs.Set {
		a.RedirectURIs = c.RedirectURIs.Value
	}
	if !c.ClientType.Set && !c.RedirectURIs.Set {
		return nil
	}
	return validateRedirectURIs(a.RedirectURIs, redirectRules{dev: dev, public: a.ClientType == Public})
}

// setModels accepts offered models, and retired models that are already in the list.
func (c *Change) setModels(a *App, offered func(string) bool) error {
	if !c.AllowedModels.Set {
		return nil
	}
	list := c.AllowedModels.Value
	if len(list) > maxAllowedModels {
		return apierr.InvalidRequest.Errorf("allowed_models: at most %d", maxAllowedModels)
	}
	for i, model := range list {
		switch {
		case !offered(model) && !slices.Contains(a.AllowedModels, model):
			return apierr.InvalidRequest.Errorf(
				"allowed_models[%d]: must be the id of an offered model; see GET /v1/models", i)
		case slices.Contains(list[:i], model):
			return apierr.InvalidRequest.Errorf("allowed_models[%d]: comes twice", i)
		}
	}
	a.AllowedModels = list
	return nil
}

// setModes changes the provider mode, which the developer may choose in the sandbox only, and the developer's own
// suspension.
func (c *Change) setModes(a *App, nowUS int64) error {
	if mode := c.ProviderMode; mode.Set && mode.Value != a.ProviderMode {
		switch {
		case mode.Value != Mock && mode.Value != Live:
			return apierr.InvalidRequest.Errorf("provider_mode: must be mock or live")
		case a.Tier != Sandbox:
			return apierr.InvalidRequest.Errorf("provider_mode: is always live in tier %s", a.Tier)
		}
		a.ProviderMode = mode.Value
	}
	if !c.Suspended.Set {
		return nil
	}
	if !c.Suspended.Value && a.Suspension != nil {
		return apierr.AppSuspended.Errorf(
			"suspended: the service suspended this app, and only the operator can lift that: %s", a.Suspension.Reason)
	}
	if a.SwitchedOff != c.Suspended.Value {
		a.SwitchedOff, a.SwitchedOffUS = c.Suspended.Value, nowUS
	}
	a.Suspended = a.SwitchedOff || a.Suspension != nil
	return nil
}

// HasLiveRedirect reports whether the app has a redirect URI that works for its users: an https one that is not on a
// loopback host or, for a public client, a loopback one.
func (a App) HasLiveRedirect() bool {
	return slices.ContainsFunc(a.RedirectURIs, func(uri string) bool {
		u, err := url.Parse(uri)
		if err == nil && a.ClientType == Public && isLoopbackAddress(u.Hostname()) {
			return true
		}
		return err == nil && u.Scheme == "https" && !isLoopback(strings.ToLower(u.Hostname()))
	})
}

// suspend records a suspension by the service. An existing one stays, so that the first reason is shown.
func (a App) suspend(by, reason string, nowUS int64) (App, error) {
	if a.Suspension != nil {
		return a, fmt.Errorf("apps: %s: %w", a.ID, ErrUnchanged)
	}
	a.Suspension, a.Suspended = &Suspension{By: by, Reason: reason, SinceUS: nowUS}, true
	return a, nil
}

// ClosedReason is the reason of the suspension of an app whose developer's account is closed.
const ClosedReason = "The developer closed their account."

// EndedWithAccount reports whether the app is suspended because its developer's account is closed, and for no other
// cause.
func (a App) EndedWithAccount() bool {
	return a.Suspension != nil && a.Suspension.By == ByOperator && a.Suspension.Reason == ClosedReason
}

// lift ends the suspension by the service. The developer's own suspension stays.
func (a App) lift(nowUS int64) (App, error) {
	if a.Suspension == nil {
		return a, fmt.Errorf("apps: %s: %w", a.ID, ErrUnchanged)
	}
	a.Suspension, a.Suspended, a.LiftedUS = nil, a.SwitchedOff, nowUS
	return a, nil
}
