// Package apps holds the OAuth clients: what an app is, who owns it, where its
// users may be sent, and how its server proves who it is (spec §2, App; §5,
// Client credentials; decisions, OAuth).
package apps

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"purser/internal/apierr"
	"purser/internal/money"
	"purser/internal/tiers"
)

// The tiers of spec §3, App tier.
const (
	Sandbox     = tiers.Sandbox
	LimitedLive = tiers.LimitedLive
	FullLive    = tiers.FullLive
)

// The provider modes of spec §2, App.
const (
	Mock = "mock"
	Live = "live"
)

// An App is an OAuth client.
type App struct {
	ID               string
	OwnerID          string // the developer's account
	Name             string
	ClientID         string
	RedirectURIs     []string
	AllowedModels    []string // empty = every offered model
	DefaultMaxTokens *int64   // nil = none
	Tier             string   // Sandbox, LimitedLive or FullLive
	ProviderMode     string   // Mock or Live
	TestAllowlist    []string // e-mails of people who may test it while it is in sandbox
	DevMargin        money.PPM
	Suspended        bool
	CreatedUS        int64
}

// New is what Create needs. An empty Tier is Sandbox, an empty ProviderMode Mock.
type New struct {
	OwnerID          string
	Name             string
	RedirectURIs     []string
	AllowedModels    []string
	DefaultMaxTokens *int64
	Tier             string
	ProviderMode     string
	DevMargin        money.PPM
}

// MaxDevMargin is the highest margin rate of an app or feature: ten times the
// provider's cost.
const MaxDevMargin = 10 * money.One

// check completes n and refuses what an app must not be. Errors are 400
// invalid_request.
func (n *New) check(dev bool) error {
	if n.Tier == "" {
		n.Tier = Sandbox
	}
	if n.ProviderMode == "" {
		n.ProviderMode = Mock
	}
	if err := CheckText("name", n.Name, 80); err != nil {
		return err
	}
	switch {
	case !slices.Contains(tiers.Names, n.Tier):
		return apierr.InvalidRequest.Errorf("tier: must be sandbox, limited-live or full-live")
	case !slices.Contains([]string{Mock, Live}, n.ProviderMode):
		return apierr.InvalidRequest.Errorf("provider_mode: must be mock or live")
	case n.DefaultMaxTokens != nil && *n.DefaultMaxTokens < 1:
		return apierr.InvalidRequest.Errorf("default_max_tokens: must be at least 1")
	case n.DevMargin < 0 || n.DevMargin > MaxDevMargin:
		return apierr.InvalidRequest.Errorf("dev_margin_rate: must be from 0 to %s", MaxDevMargin)
	}
	return checkRedirectURIs(n.RedirectURIs, dev)
}

// CheckText refuses text that users will read on the consent screen if it is
// empty, longer than maxRunes, or holds characters that hide, break or turn it
// round. The error is 400 invalid_request and names member.
func CheckText(member, text string, maxRunes int) error {
	blank := true
	for _, c := range text {
		switch {
		case unicode.IsControl(c) || c == '\u2028' || c == '\u2029':
			return apierr.InvalidRequest.Errorf("%s: must not hold control characters", member)
		case unicode.Is(unicode.Bidi_Control, c):
			return apierr.InvalidRequest.Errorf("%s: must not hold characters that turn the direction of text", member)
		case !unicode.IsSpace(c) && !unicode.Is(unicode.Cf, c):
			blank = false
		}
	}
	if n := utf8.RuneCountInString(text); blank || n > maxRunes || !utf8.ValidString(text) {
		return apierr.InvalidRequest.Errorf("%s: must have 1 to %d characters", member, maxRunes)
	}
	return nil
}
