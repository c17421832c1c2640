// Package apierr is the one table of API errors (contract §7). A handler returns an *Error, which package web writes
// as the envelope. A new error code is one entry here.
package apierr

import (
	"fmt"
	"time"
)

// A Code is one row of the table of contract §7.
type Code struct {
	Name     string // error.code
	Status   int    // HTTP status
	Type     string // error.type, the category
	Increase bool   // the envelope has increase_url
	Review   bool   // the envelope has review_url
	Final    bool   // repeating the request cannot help: x-should-retry is false
}

// The codes of contract §7, in its order, then those of HTTP itself.
var (
	InvalidRequest            = Code{Name: "invalid_request", Status: 400, Type: "invalid_request", Final: true}
	FeatureModelNotConfigured = Code{
		Name:   "feature_model_not_configured",
		Status: 400,
		Type:   "invalid_request",
		Final:  true,
	}
	InvalidGrant           = Code{Name: "invalid_grant", Status: 400, Type: "invalid_request", Final: true}
	UnsupportedGrantType   = Code{Name: "unsupported_grant_type", Status: 400, Type: "invalid_request", Final: true}
	InvalidTicket          = Code{Name: "invalid_ticket", Status: 401, Type: "authentication", Final: true}
	Unauthorized           = Code{Name: "unauthorized", Status: 401, Type: "authentication"}
	AllocationExhausted    = Code{Name: "allocation_exhausted", Status: 402, Type: "insufficient_funds", Increase: true}
	FeatureCostExceeded    = Code{Name: "feature_cost_exceeded", Status: 402, Type: "insufficient_funds", Final: true}
	ConnectionRevoked      = Code{Name: "connection_revoked", Status: 403, Type: "forbidden", Final: true}
	ConnectionFrozen       = Code{Name: "connection_frozen", Status: 403, Type: "forbidden", Review: true, Final: true}
	AppSuspended           = Code{Name: "app_suspended", Status: 403, Type: "forbidden", Final: true}
	ModelNotAllowed        = Code{Name: "model_not_allowed", Status: 403, Type: "forbidden", Final: true}
	CallStopped            = Code{Name: "call_stopped", Status: 403, Type: "forbidden", Final: true}
	IdempotencyKeyReused   = Code{Name: "idempotency_key_reused", Status: 409, Type: "conflict", Final: true}
	RateLimited            = Code{Name: "rate_limited", Status: 429, Type: "rate_limit"}
	RiskThrottled          = Code{Name: "risk_throttled", Status: 429, Type: "rate_limit"}
	DailyLimitReached      = Code{Name: "daily_limit_reached", Status: 429, Type: "rate_limit"}
	AppSpendLimited        = Code{Name: "app_spend_limited", Status: 429, Type: "rate_limit"}
	TooManySessions        = Code{Name: "too_many_sessions", Status: 429, Type: "rate_limit"}
	SandboxLiveCostLimited = Code{Name: "sandbox_live_cost_limited", Status: 429, Type: "rate_limit"}
	ProviderError          = Code{Name: "provider_error", Status: 502, Type: "provider_error"}

	NotFound         = Code{Name: "not_found", Status: 404, Type: "invalid_request", Final: true}
	MethodNotAllowed = Code{Name: "method_not_allowed", Status: 405, Type: "invalid_request", Final: true}
	Internal         = Code{Name: "internal_error", Status: 500, Type: "internal"}
	Unavailable      = Code{Name: "unavailable", Status: 503, Type: "unavailable"}
)

// An Error is a Code with the details of one case. All of it is sent to the client, except Cause, which is only
// logged.
type Error struct {
	Code         Code
	Message      string
	ConnectionID string         // error.connection_id
	RetryAfter   time.Duration  // header Retry-After, rounded up to seconds; 0 = none
	Final        bool           // repeating this request cannot help, whatever its code says
	NoIncrease   bool           // raising the allocation would not help: error.increase_url is null
	Details      map[string]any // additive error.details
	Allow        string         // header Allow of a 405
	Challenge    string         // header WWW-Authenticate of a 401
	Cause        error
}

// Error returns code and message.
func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Code.Name + ": " + e.Message + ": " + e.Cause.Error()
	}
	return e.Code.Name + ": " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf makes an Error of code c.
func (c Code) Errorf(format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

// On makes an Error of code c with the id of the connection that it concerns.
func (c Code) On(connectionID, format string, args ...any) *Error {
	e := c.Errorf(format, args...)
	e.ConnectionID = connectionID
	return e
}

// WithCause returns e with a cause for the log.
func (e *Error) WithCause(err error) *Error {
	e.Cause = err
	return e
}

// ByName returns the code with a name, and whether there is one. Scripts and stored refusals name codes.
func ByName(name string) (Code, bool) {
	for _, c := range All {
		if c.Name == name {
			return c, true
		}
	}
	return Code{}, false
}

// All lists every code, in the order of contract §7.
var All = []Code{
	InvalidRequest, FeatureModelNotConfigured, InvalidGrant, UnsupportedGrantType, InvalidTicket, Unauthorized,
	AllocationExhausted, FeatureCostExceeded, ConnectionRevoked, ConnectionFrozen, AppSuspended, ModelNotAllowed,
	CallStopped, IdempotencyKeyReused, RateLimited, RiskThrottled, DailyLimitReached, AppSpendLimited, TooManySessions,
	SandboxLiveCostLimited,
	ProviderError, NotFound, MethodNotAllowed, Internal, Unavailable,
}
