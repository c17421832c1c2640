package verdict

import (
	"net/url"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// Times of the device flow (RFC 8628 §3.2, §3.5; decision 068).
const (
	DeviceCodeTTL   = 10 * time.Minute
	PollInterval    = 5 * time.Second // between two polls of a device, at first
	pollPenalty     = 5 * time.Second // what a poll that comes too soon adds to the interval
	maxPollInterval = time.Minute
	pollTolerance   = time.Second // clocks and networks shorten an interval a little
)

// The verdicts on a poll that gets no tokens yet. Both are recorded with its time.
const (
	Wait     Verdict = iota + Replay + 1 // the user has not decided
	SlowDown                             // nor has the device waited for its interval, which grows
)

// AccessDenied is the reason of a device code that the user has denied.
const AccessDenied Reason = "access_denied"

// A DeviceCode is a stored request of a device to connect.
type DeviceCode struct {
	Approval    // AccountID "" = not approved
	AppID       string
	RequestedMC money.MC // pre-fills the spend cap; 0 = not given
	Features    []string // slugs, as requested
	ExpiresUS   int64
	IntervalUS  int64  // the least time between two polls
	PolledUS    *int64 // the last poll
	DecidedUS   *int64 // when the user approved or denied
	UsedUS      *int64 // when tokens were issued for it
	FamilyID    *string
}

// Approved reports whether the user has approved.
func (c DeviceCode) Approved() bool { return c.DecidedUS != nil && c.AccountID != "" }

// Open reports whether the user can still decide at nowUS.
func (c DeviceCode) Open(nowUS int64) bool { return c.DecidedUS == nil && nowUS < c.ExpiresUS }

// JudgePoll decides on a poll by app at nowUS that arrived at arrivedUS. As with authorization
// codes, a poll that arrived before the code was used has lost a race, and one that arrived later
// is a replay (decision 034).
func (c DeviceCode) JudgePoll(appID string, arrivedUS, nowUS int64) (Verdict, Reason) {
	switch {
	case c.AppID != appID:
		return Reject, Unknown
	case c.UsedUS != nil && arrivedUS <= *c.UsedUS:
		return Reject, Used
	case c.UsedUS != nil:
		return RevokeFamily, Used
	case c.DecidedUS != nil && !c.Approved():
		return Reject, AccessDenied
	case c.ExpiresUS <= nowUS:
		return Reject, Expired
	case c.Approved():
		return Accept, ""
	case c.PolledUS != nil && nowUS-*c.PolledUS < c.IntervalUS-pollTolerance.Microseconds():
		return SlowDown, ""
	}
	return Wait, ""
}

// NextInterval returns the interval after a poll with the verdict, in microseconds.
func (c DeviceCode) NextInterval(v Verdict) int64 {
	if v != SlowDown {
		return c.IntervalUS
	}
	return min(c.IntervalUS+pollPenalty.Microseconds(), maxPollInterval.Microseconds())
}

// UserCodeAlphabet are the letters of user codes: those that RFC 8628 §6.1 recommends. They make no
// words, and none looks like another or like a digit.
const UserCodeAlphabet = "BCDFGHJKLMNPQRSTVWXZ"

// UserCodeLength is the number of letters of a user code: 34 bits, against guesses that are limited.
const UserCodeLength = 8

// FormatUserCode writes the letters of a user code for people: WDJB-MJHT.
func FormatUserCode(letters string) string {
	return letters[:UserCodeLength/2] + "-" + letters[UserCodeLength/2:]
}

// ReadUserCode returns the letters of a user code as a person types it: in any case, and with any spaces and hyphens.
func ReadUserCode(typed string) (letters string, ok bool) {
	if len(typed) > 100 {
		return "", false
	}
	letters = strings.Map(func(c rune) rune {
		switch {
		case strings.ContainsRune("- \t\u00a0\u2010\u2011\u2013", c):
			return -1
		case 'a' <= c && c <= 'z':
			return c - 'a' + 'A'
		}
		return c
	}, typed)
	return letters, len(letters) == UserCodeLength && containsOnly(letters, UserCodeAlphabet)
}

// ReadProposal reads what a device proposes for the consent screen: requested_allocation_mc and features, as in an
// authorization request. problem says what is wrong; "" = nothing.
func ReadProposal(form url.Values) (requestedMC money.MC, features []string, problem string) {
	var req Request
	problem = req.readProposal(form)
	return req.RequestedMC, req.Features, problem
}
