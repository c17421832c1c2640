package identity

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/purserhq/purser/internal/base/ui"
)

// challengeTTL is the lifetime of a WebAuthn challenge.
const challengeTTL = 5 * time.Minute

// A PasskeyParty is the WebAuthn relying party. Its passkeys are bound to its host name; it accepts
// responses from its own pages only.
type PasskeyParty struct {
	webauthn *webauthn.WebAuthn // nil = passkeys are not possible at these URLs
	home     string             // origin where passkeys work
}

// NewPasskeyParty returns the relying party of the pages at these URLs. WebAuthn needs a host name:
// a loopback address becomes localhost, which serves the same pages; at any other IP address there
// are no passkeys. For URLs of different hosts it is their common parent domain.
func NewPasskeyParty(authURL, dashboardURL string) (*PasskeyParty, error) {
	var origins []string
	name := ""
	for i, address := range []string{dashboardURL, authURL} {
		u, err := url.Parse(address)
		if err != nil {
			return nil, fmt.Errorf("identity: passkeys: %w", err)
		}
		host := strings.ToLower(u.Hostname())
		if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
			host = "localhost"
		} else if ip != nil {
			host = ""
		}
		if i == 0 {
			name = host
		}
		name = findCommonHost(name, host)
		if port := u.Port(); port != "" {
			host += ":" + port
		}
		origins = append(origins, u.Scheme+"://"+host)
	}
	if name == "" {
		return &PasskeyParty{}, nil
	}
	w, err := webauthn.New(&webauthn.Config{
		RPID:                  name,
		RPDisplayName:         "Purser",
		RPOrigins:             slices.Compact(origins),
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey:        protocol.ResidentKeyRequirementRequired,
			RequireResidentKey: protocol.ResidentKeyRequired(),
			UserVerification:   protocol.VerificationRequired,
		},
		Timeouts: webauthn.TimeoutsConfig{
			Login:        webauthn.TimeoutConfig{Timeout: challengeTTL},
			Registration: webauthn.TimeoutConfig{Timeout: challengeTTL},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("identity: passkeys: %w", err)
	}
	return &PasskeyParty{w, origins[0]}, nil
}

// findCommonHost returns the host name that two hosts share: the same name, or a common parent of
// at least two labels; "" = none. Browsers reject a parent that is a public suffix.
func findCommonHost(a, b string) string {
	if a == b {
		return a
	}
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	slices.Reverse(x)
	slices.Reverse(y)
	n := 0
	for n < min(len(x), len(y)) && x[n] == y[n] {
		n++
	}
	if n < 2 {
		return ""
	}
	common := x[:n]
	slices.Reverse(common)
	return strings.Join(common, ".")
}

// PageData returns what pages need to offer passkeys.
func (p *PasskeyParty) PageData() ui.Passkeys {
	if p.webauthn == nil {
		return ui.Passkeys{}
	}
	return ui.Passkeys{Party: p.webauthn.Config.RPID, Home: p.home}
}
