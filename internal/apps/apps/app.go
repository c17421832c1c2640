// Package apps stores apps: their owners, redirect URIs, tiers and suspensions, and the client credentials of their
// servers (contract §2, App; §5, Client credentials; decisions 032, 038).
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

// The client types of RFC 6749 §2.1 (decision 065). A public client runs on its users' devices, where it can keep no
// secret: the token endpoint knows it by its client_id alone.
const (
	Confidential = "confidential"
	Public       = "public"
)

// An App is an OAuth client.
type App struct {
	ID               string
	OwnerID          string // the developer's account
	Name             string
	ClientID         string
	ClientType       string // Confidential or Public
	RedirectURIs     []string
	AllowedModels    []string // empty = every offered model
	DefaultMaxTokens *int64   // nil = none
	Fit              bool     // lower the output cap of a call that does not fit
	FitMinTokens     int64    // the lowest cap
	Tier             string   // Sandbox, LimitedLive or FullLive
	ProviderMode     string   // Mock or Live
	DevMargin        money.PPM
	PromptCache      bool        // mark long prefixes for the provider's cache (decision 071)
	Transcripts      bool        // its voice sessions may write down what users say (decision 196)
	OwnWork          bool        // it charges for work of its own, at its own prices (decision 109)
	TestAllowlist    []string    // emails of its testers in the sandbox
	Suspended        bool        // by its developer or by the service
	SwitchedOff      bool        // suspended by its developer
	SwitchedOffUS    int64       // time of the last change of SwitchedOff; 0 = never
	Suspension       *Suspension // by the service; nil = none
	LiftedUS         int64       // when the operator last lifted one; 0 = never
	CreatedUS        int64
	LogoHash         string // "" = it has none; see LogoPath
	Profile          Profile
	Proposed         Proposal // of a live app: what waits for review
	OldSecretUntilUS int64    // when the client secret before the present one stops working; 0 = there is none
}

// A Suspension is a suspension by the service (contract §3, App tier). Only the operator lifts it. The developer's own
// suspension is separate.
type Suspension struct {
	By      string // ByOperator or ByRisk
	Reason  string
	SinceUS int64
}

// The values of Suspension.By.
const (
	ByDeveloper = "developer"
	ByOperator  = "operator"
	ByRisk      = "risk"
)

// New has the values of a new app. An empty Tier means Sandbox, an empty ProviderMode Mock, an empty ClientType
// Confidential.
type New struct {
	OwnerID          string
	Name             string
	ClientType       string
	RedirectURIs     []string
	AllowedModels    []string
	DefaultMaxTokens *int64
	Tier             string
	ProviderMode     string
	DevMargin        money.PPM
}

// DefaultFitMinTokens is the lowest output cap to which a call is lowered, unless the app says
// otherwise.
const DefaultFitMinTokens = 256

// SuggestedMaxTokens is the default_max_tokens of a new app that a person creates: without one,
// a call that sends no max_tokens is held for all that its model can produce.
const SuggestedMaxTokens = 4096

// MaxDevMargin is the highest margin rate of an app or feature: ten times the
// provider's cost.
const MaxDevMargin = 10 * money.One

// maxName is the largest number of characters of an app's name.
const maxName = 80

// validate sets the defaults of n and checks its values. Errors are 400 invalid_request.
func (n *New) validate(dev bool) error {
	if n.Tier == "" {
		n.Tier = Sandbox
	}
	if n.ProviderMode == "" {
		n.ProviderMode = Mock
	}
	if n.ClientType == "" {
		n.ClientType = Confidential
	}
	if err := checkName("name", n.Name); err != nil {
		return err
	}
	if err := checkClientType(n.ClientType); err != nil {
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
	return validateRedirectURIs(n.RedirectURIs, redirectRules{dev: dev, public: n.ClientType == Public})
}

// checkClientType returns 400 invalid_request for a value that is no client type.
func checkClientType(v string) error {
	if v != Confidential && v != Public {
		return apierr.InvalidRequest.Errorf("client_type: must be confidential or public")
	}
	return nil
}

// CheckText checks text that users will read on the consent screen. It refuses empty text, text
// longer than maxRunes, and control and direction characters. The error is 400 invalid_request and names member.
func CheckText(member, text string, maxRunes int) error {
	blank := true
	for _, c := range text {
		switch {
		case unicode.IsControl(c) || c == '\u2028' || c == '\u2029':
			return apierr.InvalidRequest.Errorf("%s: must not hold control characters", member)
		case unicode.Is(unicode.Bidi_Control, c):
			return apierr.InvalidRequest.Errorf("%s: must not hold characters that turn the direction of text", member)
		case isVisible(c):
			blank = false
		}
	}
	if n := utf8.RuneCountInString(text); blank || n > maxRunes || !utf8.ValidString(text) {
		return apierr.InvalidRequest.Errorf("%s: must have 1 to %d characters", member, maxRunes)
	}
	return nil
}

// ParseRate parses a margin rate from a JSON number exactly, without floating point, because users pay by it.
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
