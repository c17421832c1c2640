package oauth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// Lifetimes of spec §8.
const (
	codeLife    = 60 * time.Second
	accessLife  = 15 * time.Minute
	refreshLife = 90 * 24 * time.Hour
	replayLife  = 60 * time.Second
)

// maxFailures is how many wrong tries a code survives. A try with the wrong
// verifier, address or client does not use the code up at once, so that an
// honest client's slip costs no consent.
const maxFailures = 5

// A Verdict is what becomes of a presented code or refresh token.
type Verdict int

// Refused ones all look the same from outside: 400 invalid_grant.
const (
	Honour   Verdict = iota
	Refuse           // and nothing else
	Count            // refuse, and remember one more wrong try
	Betrayed         // refuse, and revoke every token of the family: somebody has a copy
)

// codeRow is a stored authorization code.
type codeRow struct {
	AppID, AccountID string
	RedirectURI      string
	Challenge        string
	AllocationMC     money.MC
	VelocityMC       *money.MC
	ExpiresUS        int64
	Failures         int64
	UsedUS           *int64
	FamilyID         *string
}

// verdict judges the exchange of a code by app at nowUS, in a request that arrived
// at arrivedUS (F-68, F-69). A request that was already on its way when the code
// was used lost a race, as a double click does; one that came later is a replay.
func (c codeRow) verdict(appID, redirectURI, verifier string, arrivedUS, nowUS int64) Verdict {
	switch {
	case c.UsedUS != nil && (c.AppID != appID || arrivedUS <= *c.UsedUS):
		return Refuse
	case c.UsedUS != nil:
		return Betrayed
	case c.Failures >= maxFailures, c.ExpiresUS <= nowUS:
		return Refuse
	case c.AppID != appID, c.RedirectURI != redirectURI, !VerifierMatches(verifier, c.Challenge):
		return Count
	}
	return Honour
}

// tokenRow is a stored access or refresh token.
type tokenRow struct {
	Hash, FamilyID, ConnectionID, AppID string
	ExpiresUS                           int64
	UsedUS, RevokedUS                   *int64
	SuccessorUsed                       bool // the token it was exchanged for was itself exchanged
}

// verdict judges a refresh (F-70 … F-73). A used token whose successor is still
// unused is most likely a retry after a lost answer; once the successor was used
// too, two parties hold the family.
func (t tokenRow) verdict(appID string, connection rules.ConnectionStatus, arrivedUS, nowUS int64) Verdict {
	switch {
	case t.AppID != appID, t.RevokedUS != nil:
		return Refuse
	case t.UsedUS != nil && t.SuccessorUsed && arrivedUS > *t.UsedUS:
		return Betrayed
	case t.UsedUS != nil, t.ExpiresUS <= nowUS, connection == rules.Revoked:
		return Refuse
	}
	return Honour
}

// VerifierMatches reports whether the verifier is the one that the challenge was
// made of (RFC 7636 §4.6, S256).
func VerifierMatches(verifier, challenge string) bool {
	if len(verifier) < 43 || len(verifier) > 128 || !only(verifier, unreserved) {
		return false
	}
	sum := sha256.Sum256([]byte(verifier))
	made := base64.RawURLEncoding.EncodeToString(sum[:])
	return subtle.ConstantTimeCompare([]byte(made), []byte(challenge)) == 1
}

const (
	base64url  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	unreserved = base64url + ".~"
)

// base64url43 reports whether s is 32 bytes in base64url without padding.
func base64url43(s string) bool { return len(s) == 43 && only(s, base64url) }

func only(s, alphabet string) bool { return strings.Trim(s, alphabet) == "" }
