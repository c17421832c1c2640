// Package providerkeys holds the keys that developers have at AI providers
// themselves, for live calls of their sandbox beyond its daily allowance (spec
// §7, sandbox_live_cost_limited). A key is tested at its provider when it comes,
// stored encrypted (decision 007), and never shown again.
package providerkeys

import "github.com/purserhq/purser/internal/base/apierr"

// A Key is what may be seen of a stored provider key.
type Key struct {
	AccountID string // the developer's
	Provider  string
	Last4     string // its last four characters; "" of a short one
	CreatedUS int64  // when the developer first stored one of this provider
	TestedUS  int64  // when the provider took the present one
}

// A Secret is a key in clear. It prints as [hidden]: it is a pointer so that even
// a struct that holds one in an unexported field prints an address at most.
type Secret struct{ plain *string }

const hidden = "[hidden]"

// NewSecret hides plain.
func NewSecret(plain string) Secret { return Secret{&plain} }

// Reveal returns the key in clear, for the header of a request.
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
	// showFrom is the length from which four characters give nothing away: keys of
	// the providers have 39 or more.
	showFrom = 21
)

// validate refuses what cannot be a key with 400 invalid_request: only visible ASCII
// goes into a header as it stands.
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

// last4 is what may be shown of it.
func (s Secret) last4() string {
	if key := s.Reveal(); len(key) >= showFrom {
		return key[len(key)-4:]
	}
	return ""
}
