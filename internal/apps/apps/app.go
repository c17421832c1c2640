// Package apps holds the OAuth clients: what an app is, who owns it, where its
// users may be sent, and how its server proves who it is (contract §2, App; §5,
// Client credentials; decisions 032, 038).
package apps

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/tiers"
)

// The tiers of contract §3, App tier.
const (
	Sandbox     = tiers.Sandbox
	LimitedLive = tiers.LimitedLive
	FullLive    = tiers.FullLive
)

// The provider modes of contract §2, App.
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
	DevMargin        money.PPM
	TestAllowlist    []string    // e-mails of people who may test it while it is in sandbox
	Suspended        bool        // switched off by its developer or suspended by the service
	SwitchedOff      bool        // by its developer
	SwitchedOffUS    int64       // when that changed last; 0 = never
	Suspension       *Suspension // by the service; nil = none
	LiftedUS         int64       // when the operator last lifted one; 0 = never
	CreatedUS        int64
	LogoHash         string // "" = it has none; see LogoPath
}

// A Suspension is how the service switched an app off (contract §3, App tier). Only
// the operator lifts it; the developer's own switch is apart from it.
type Suspension struct {
	By      string // ByOperator or ByRisk
	Reason  string
	SinceUS int64
}

// Who suspends an app besides its developer.
const (
	ByDeveloper = "developer"
	ByOperator  = "operator"
	ByRisk      = "risk"
)

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

// maxName is how many characters an app's name has at most.
const maxName = 80

// validate completes n and refuses what an app must not be. Errors are 400
// invalid_request.
func (n *New) validate(dev bool) error {
	if n.Tier == "" {
		n.Tier = Sandbox
	}
	if n.ProviderMode == "" {
		n.ProviderMode = Mock
	}
	if err := CheckText("name", n.Name, maxName); err != nil {
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
	return validateRedirectURIs(n.RedirectURIs, dev)
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

// ParseRate reads a margin rate from a JSON number, exactly: no float stands between what the
// developer wrote and what users pay.
func ParseRate(literal jsontext.Value) (money.PPM, bool) {
	text := string(literal)
	if literal.Kind() != '0' || len(text) > 40 {
		return 0, false
	}
	if _, exponent, ok := strings.Cut(strings.ToLower(text), "e"); ok {
		// Some languages write 0.00001 as 1e-05; a huge exponent is not worth computing.
		if n, err := strconv.Atoi(exponent); err != nil || n < -30 || n > 30 {
			return 0, false
		}
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, false
	}
	r.Mul(r, big.NewRat(int64(money.One), 1))
	if !r.IsInt() || !r.Num().IsInt64() {
		return 0, false
	}
	rate := money.PPM(r.Num().Int64())
	return rate, rate >= 0 && rate <= MaxDevMargin
}
