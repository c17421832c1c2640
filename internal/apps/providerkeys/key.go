// Package providerkeys stores the provider keys of developers, for live sandbox calls beyond the daily allowance
// (contract §7, sandbox_live_cost_limited). A key is tested at its provider, stored sealed (decision 007), and never
// shown again.
package providerkeys

import "github.com/purserhq/purser/internal/base/apierr"

// A Key has the public properties of a stored provider key.
type Key struct {
	AccountID string // the developer's
	Provider  string
	Last4     string // its last four characters; "" of a short one
	CreatedUS int64  // when the developer first stored one of this provider
	TestedUS  int64  // when the provider took the present one
}

// A Secret is an unsealed key. It prints as [hidden]. It contains a pointer, so that even a struct with a Secret in an
// unexported field prints at most an address.
type Secret struct{ plain *string }

const hidden = "[hidden]"

// NewSecret hides plain.
func NewSecret(plain string) Secret { return Secret{&plain} }

// Reveal returns the key for the header of a request.
func (s Secret) Reveal() string {
	if s.plain == nil {
		return ""
	}
	return *s.plain
}

// String hides the key.
func (Secret) String() string { return hidden }

// MarshalText hides the key from JSON and logs.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// The bounds of a key, in characters.
const (
	maxKey = 512
	// showFrom is the length from which the last four characters may be shown. Keys of the providers have 39 or more.
	showFrom = 21
)

// validate returns 400 invalid_request unless the key is visible ASCII, which a header can contain.
func (s Secret) validate() error {
	key := s.Reveal()
	if key == "" || len(key) > maxKey {
		return apierr.InvalidRequest.Errorf("key: must have 1 to %d characters", maxKey)
	}
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' {
			return apierr.InvalidRequest.Errorf("key: must be visible ASCII characters, without white space")
		}
	}
	return nil
}

// last4 returns the last four characters, "" of a short key.
func (s Secret) last4() string {
	if key := s.Reveal(); len(key) >= showFrom {
		return key[len(key)-4:]
	}
	return ""
}
