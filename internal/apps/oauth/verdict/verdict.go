package verdict

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// Lifetimes (contract §8).
const (
	CodeTTL         = 60 * time.Second
	AccessTokenTTL  = 15 * time.Minute
	RefreshTokenTTL = 90 * 24 * time.Hour
	ReplayTTL       = 60 * time.Second // of the answer to a code; that to a refresh token waits for its successor
)

// raceWindow is how long after an exchange a refresh with another key still counts as one that ran beside it: requests
// overtake each other on their way, and the clocks of two nodes differ.
const raceWindow = 2 * time.Second

// maxFailures is the number of failed exchanges after which a code is rejected. A wrong verifier,
// redirect URI or client does not consume the code, so that a client's mistake costs no consent.
const maxFailures = 5

// A Verdict is the decision on a presented code or refresh token.
type Verdict int

// The verdicts. All but Accept and Replay are answered with 400 invalid_grant and a Reason.
const (
	Accept         Verdict = iota
	Reject                 // change nothing
	RejectAndCount         // count a failed exchange of the code
	RevokeFamily           // reuse detected (RFC 9700 §4.14.2): revoke all tokens of the grant family
	Replay                 // a retry of the exchange whose answer was lost: the same answer again
)

// A Reason says why a code or refresh token is rejected: error.details.reason of invalid_grant (decision 033). It is ""
// for an accepted one. A code or token of another client is Unknown, so that nothing is revealed about it.
type Reason string

// The reasons.
const (
	Expired             Reason = "expired"
	Used                Reason = "used" // also: revoked with its family
	Unknown             Reason = "unknown"
	RedirectURIMismatch Reason = "redirect_uri_mismatch"
	VerifierMismatch    Reason = "verifier_mismatch"
	ConnectionRevoked   Reason = "connection_revoked"
	AppSuspended        Reason = "app_suspended"
)

// An Approval is what a user has approved, until the app exchanges the code of it, and what it stands on.
type Approval struct {
	AccountID    string    // who connects
	AllocationMC money.MC  // the spend cap
	VelocityMC   *money.MC // the daily limit
	KeepCap      bool      // the user left the cap of the live connection as it was shown: it stays as it is
	KeepVelocity bool      // the same of the daily limit
	ApprovedUS   int64     // when the user approved
	OwnWork      bool      // the screen said that the app charges for work of its own
	Transcripts  bool      // the screen said that the app has what the user says written down
	ApproverID   string    // who approved, for a test account its developer or tester
	// ApproverEpoch is that of the approver's credentials, and Revocations the number of revoked connections of the app
	// and account, when it was approved. nil = an older version stored it.
	ApproverEpoch, Revocations *int64
}

// Holds reports whether an approval still holds, given the epoch of the approver's credentials now and the number of
// revoked connections. A change of password, a sign-out of all sessions, a suspension and a revocation end it.
func (a Approval) Holds(epoch, revocations int64) bool {
	return (a.ApproverEpoch == nil || *a.ApproverEpoch == epoch) &&
		(a.Revocations == nil || *a.Revocations == revocations)
}

// A Code is a stored authorization code.
type Code struct {
	Approval
	AppID       string
	RedirectURI string
	Challenge   string
	ExpiresUS   int64
	Failures    int64
	UsedUS      *int64
	FamilyID    *string
}

// JudgeExchange decides on the exchange of a code by app at nowUS, in a request that arrived at
// arrivedUS (F-68, F-69). A request that arrived before the code was used lost a race, as after a
// double click; one that arrived later is a replay.
func (c Code) JudgeExchange(appID, redirectURI, verifier string, arrivedUS, nowUS int64) (Verdict, Reason) {
	spent := c.UsedUS != nil || c.Failures >= maxFailures || c.ExpiresUS <= nowUS
	switch {
	case c.AppID != appID && spent:
		return Reject, Unknown
	case c.AppID != appID:
		return RejectAndCount, Unknown
	case c.UsedUS != nil && arrivedUS <= *c.UsedUS:
		return Reject, Used
	case c.UsedUS != nil:
		return RevokeFamily, Used
	case c.Failures >= maxFailures:
		return Reject, Used
	case c.ExpiresUS <= nowUS:
		return Reject, Expired
	case c.RedirectURI != redirectURI:
		return RejectAndCount, RedirectURIMismatch
	case !VerifierMatches(verifier, c.Challenge):
		return RejectAndCount, VerifierMismatch
	}
	return Accept, ""
}

// A Token is a stored access or refresh token.
type Token struct {
	Hash, FamilyID, ConnectionID, AppID string
	ExpiresUS                           int64
	UsedUS, RevokedUS                   *int64
	SuccessorUsed                       bool   // the token that replaced it was used too
	AnswerKey                           string // Idempotency-Key of the exchange while its answer is kept; "" = none
}

// JudgeRefresh decides on the rotation of a refresh token (F-70 to F-73), in a request that arrived at arrivedUS with
// an Idempotency-Key; "" = none. A used token whose successor is unused is most likely a retry after a lost response:
// with the key of the exchange its answer comes again. Two parties have the tokens of the family once a used token
// comes with another key, or after its successor was used (decision 035). A request that arrived before the token was
// used lost a race, and so did one with another key within the raceWindow.
func (t Token) JudgeRefresh(appID, key string, connectionRevoked bool, arrivedUS, nowUS int64) (Verdict, Reason) {
	if t.AppID != appID {
		return Reject, Unknown
	}
	verdict := Accept
	switch {
	case t.RevokedUS != nil:
		verdict = Reject
	case t.isReuse(key, arrivedUS):
		verdict = RevokeFamily
	case t.UsedUS != nil && key != "" && key == t.AnswerKey && !t.SuccessorUsed && !connectionRevoked:
		return Replay, ""
	case t.UsedUS != nil, t.ExpiresUS <= nowUS, connectionRevoked:
		verdict = Reject
	}
	switch {
	case connectionRevoked: // it matters most: no token of this connection will work again
		return verdict, ConnectionRevoked
	case t.UsedUS != nil, t.RevokedUS != nil:
		return verdict, Used
	case t.ExpiresUS <= nowUS:
		return verdict, Expired
	}
	return verdict, ""
}

// isReuse reports whether a request shows that two parties have the token.
func (t Token) isReuse(key string, arrivedUS int64) bool {
	if t.UsedUS == nil || arrivedUS <= *t.UsedUS {
		return false
	}
	isOtherKey := key != "" && t.AnswerKey != "" && key != t.AnswerKey
	return t.SuccessorUsed || isOtherKey && arrivedUS > *t.UsedUS+raceWindow.Microseconds()
}

// VerifierMatches reports whether challenge was derived from verifier (RFC 7636 §4.6, S256).
func VerifierMatches(verifier, challenge string) bool {
	if len(verifier) < 43 || len(verifier) > 128 || !containsOnly(verifier, unreserved) {
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

// isBase64URL43 reports whether s is 32 bytes in base64url without padding.
func isBase64URL43(s string) bool { return len(s) == 43 && containsOnly(s, base64url) }

func containsOnly(s, alphabet string) bool { return strings.Trim(s, alphabet) == "" }
