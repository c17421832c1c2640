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

// challengeLasts is how long a browser may take to answer.
const challengeLasts = 5 * time.Minute

// A Party is who asks browsers for passkeys: the relying party of WebAuthn. It is
// known by a host name, to which every key is bound for good, and takes answers
// from its own pages only.
type Party struct {
	webauthn *webauthn.WebAuthn // nil = browsers make no passkeys for these addresses
	home     string             // origin of a page that passkeys work on
}

// NewParty returns the relying party of the pages at these URLs. Browsers know
// none at an IP address: at one of this machine it is localhost, on which the
// same pages are, and at any other there are no passkeys. Where the URLs have
// different hosts it is the name that both end in.
func NewParty(authURL, dashboardURL string) (*Party, error) {
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
		name = shared(name, host)
		if port := u.Port(); port != "" {
			host += ":" + port
		}
		origins = append(origins, u.Scheme+"://"+host)
	}
	if name == "" {
		return &Party{}, nil
	}
	w, err := webauthn.New(&webauthn.Config{
		RPID: name, RPDisplayName: "Purser", RPOrigins: slices.Compact(origins), AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementRequired, RequireResidentKey: protocol.ResidentKeyRequired(), UserVerification: protocol.VerificationRequired,
		},
		Timeouts: webauthn.TimeoutsConfig{Login: webauthn.TimeoutConfig{Timeout: challengeLasts}, Registration: webauthn.TimeoutConfig{Timeout: challengeLasts}},
	})
	if err != nil {
		return nil, fmt.Errorf("identity: passkeys: %w", err)
	}
	return &Party{w, origins[0]}, nil
}

// shared is the name that two hosts have in common: the same one, or the parent
// of both that has at least two labels; "" = none. Where the parent is one under
// which strangers have names, too, browsers refuse it.
func shared(a, b string) string {
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

// Offer is what pages say of passkeys.
func (p *Party) Offer() ui.Passkeys {
	if p.webauthn == nil {
		return ui.Passkeys{}
	}
	return ui.Passkeys{Party: p.webauthn.Config.RPID, Home: p.home}
}
