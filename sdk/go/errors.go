package purser

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// An Action is what an app does about an error.
type Action string

// The actions.
const (
	// ActionConnectAgain means that the tokens no longer work: delete them, and let the user connect again.
	ActionConnectAgain Action = "connect_again"
	// ActionRaiseCap means that the user's spend cap is too low: send the user to Error.IncreaseURL.
	ActionRaiseCap Action = "raise_cap"
	// ActionAskUser means that the user has to decide, at Error.ReviewURL where it is set. Keep the tokens.
	ActionAskUser Action = "ask_user"
	// ActionWait means that the same request may succeed after Error.RetryAfter.
	ActionWait Action = "wait"
	// ActionRetry means that the same request may succeed now, with the same Idempotency-Key.
	ActionRetry Action = "retry"
	// ActionFixRequest means that the request can't succeed as it is.
	ActionFixRequest Action = "fix_request"
	// ActionContactDeveloper means that only the developer or the operator can help.
	ActionContactDeveloper Action = "contact_developer"
)

// Codes of errors that this SDK makes itself. The service's codes are in the guide of errors.
const (
	// CodeConnectionError is the code of a request that got no answer: the network failed, or a try took too long.
	CodeConnectionError = "connection_error"
	// CodeInvalidResponse is the code of an answer that is not what the service sends, such as one of a proxy.
	CodeInvalidResponse = "invalid_response"
	// CodeStreamBroken is the code of a stream that ended before its end, after its first chunk.
	CodeStreamBroken = "stream_broken"
	// CodeNotConnected is the code of a connection without tokens in the store.
	CodeNotConnected = "not_connected"
	// CodeStateMismatch is the code of a callback whose state is not that of the attempt.
	CodeStateMismatch = "state_mismatch"
	// CodeIssuerMismatch is the code of a callback that another server sent.
	CodeIssuerMismatch = "issuer_mismatch"
	// CodeInvalidSignature is the code of a webhook delivery that is not from the service, or too old.
	CodeInvalidSignature = "invalid_signature"
)

// An Error is a refusal of the service, or a request that got no answer. Decide by Action, or by Code.
type Error struct {
	Status       int            // HTTP status; 0 if there was no answer
	Code         string         // error.code of the contract, or one of the codes of this package
	Type         string         // the category, such as insufficient_funds
	Message      string         // for the developer; may change
	RequestID    string         // quote it when you report a problem
	DocURL       string         // the page about this error
	ConnectionID string         // the connection that the error is about
	IncreaseURL  string         // where the user raises the spend cap; set when that would help
	ReviewURL    string         // where the user resumes a frozen connection
	Details      map[string]any // facts for programs; numbers are json.Number
	RetryAfter   time.Duration  // how long to wait; 0 if the service does not say
	ShouldRetry  bool           // whether this SDK repeats such a request, up to Options.MaxRetries times
	Action       Action         // what to do

	cause error
}

// Error returns the code and the message.
func (e *Error) Error() string {
	text := "purser: " + e.Code
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.RequestID != "" {
		text += " (" + e.RequestID + ")"
	}
	return text
}

// Unwrap returns the error of the network, if any.
func (e *Error) Unwrap() error { return e.cause }

// Detail returns a text or a number of Details as text, or "".
func (e *Error) Detail(name string) string {
	switch value := e.Details[name].(type) {
	case string:
		return value
	case json.Number:
		return value.String()
	}
	return ""
}

// newConnectionError returns the error of a request that got no complete answer.
func newConnectionError(err error) *Error {
	return &Error{
		Code:        CodeConnectionError,
		Message:     err.Error(),
		ShouldRetry: true,
		Action:      ActionRetry,
		cause:       err,
	}
}

// An envelope is the body of every answer that is not 2xx. The token endpoint answers devices with a text in error.
type envelope struct {
	Error            json.RawMessage `json:"error"`
	ErrorDescription string          `json:"error_description"`
	Details          json.RawMessage `json:"details"`
}

type envelopeError struct {
	Code         string          `json:"code"`
	Type         string          `json:"type"`
	Message      string          `json:"message"`
	DocURL       string          `json:"doc_url"`
	ConnectionID string          `json:"connection_id"`
	IncreaseURL  string          `json:"increase_url"`
	ReviewURL    string          `json:"review_url"`
	Details      json.RawMessage `json:"details"`
}

// newError returns the error of an answer. byClient says that the request had the app's credentials, not a token.
func newError(status int, header http.Header, body []byte, byClient bool) *Error {
	e := &Error{Status: status, RequestID: header.Get("X-Request-Id")}
	e.readEnvelope(body)
	if e.Code == "" { // not from the service: a proxy, for example
		e.Code, e.Message = "http_"+strconv.Itoa(status), http.StatusText(status)
	}
	e.RetryAfter = readRetryAfter(header.Get("Retry-After"), time.Now())
	e.ShouldRetry = shouldRetry(e, header.Get("X-Should-Retry"))
	e.Action = chooseAction(e, byClient)
	return e
}

// newStreamError returns the error of an event within a stream. Its status is the one that the code has elsewhere.
func newStreamError(body []byte, requestID string) *Error {
	e := &Error{RequestID: requestID}
	e.readEnvelope(body)
	e.Status = codes[e.Code].status
	e.Action = chooseAction(e, false)
	return e
}

func (e *Error) readEnvelope(body []byte) {
	var outer envelope
	if json.Unmarshal(body, &outer) != nil {
		return
	}
	if json.Unmarshal(outer.Error, &e.Code) == nil { // RFC 6749 §5.2
		e.Message, e.Details = outer.ErrorDescription, readDetails(outer.Details)
		return
	}
	var inner envelopeError
	if json.Unmarshal(outer.Error, &inner) != nil {
		return
	}
	e.Code, e.Type, e.Message, e.DocURL = inner.Code, inner.Type, inner.Message, inner.DocURL
	e.ConnectionID, e.IncreaseURL, e.ReviewURL = inner.ConnectionID, inner.IncreaseURL, inner.ReviewURL
	e.Details = readDetails(inner.Details)
}

// leastWait is how long a wait is that the service or a proxy calls over.
const leastWait = time.Second

// readRetryAfter reads the header Retry-After: seconds, or a date, as proxies send it. It returns 0 if it says nothing.
func readRetryAfter(text string, now time.Time) time.Duration {
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), leastWait)
	}
	seconds, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0
	}
	return max(time.Duration(seconds)*time.Second, leastWait)
}

// shouldRetry says whether the same request may succeed soon. The header X-Should-Retry wins where it says no.
func shouldRetry(e *Error, header string) bool {
	if header == "false" || e.RetryAfter > maxRetryWait {
		return false
	}
	switch {
	case e.Status == http.StatusTooManyRequests:
		return e.RetryAfter > 0
	case e.Status == http.StatusRequestTimeout, e.Status >= http.StatusInternalServerError:
		return true
	}
	return false
}

// A codeRule says what an app does about a code.
type codeRule struct {
	status       int // HTTP status; 0 for the codes of OAuth's own form
	action       Action
	reasons      map[string]Action // by details.reason
	noRetryAfter Action            // without Retry-After; "" is action
	notRetryable Action            // with details.retry false; "" is action
	byClient     Action            // of a request with the app's credentials; "" is action
}

// codes has the rule of each code of the service.
var codes = map[string]codeRule{
	"invalid_request":              {status: 400, action: ActionFixRequest},
	"feature_model_not_configured": {status: 400, action: ActionFixRequest},
	"invalid_grant": {status: 400, action: ActionConnectAgain, reasons: map[string]Action{
		"redirect_uri_mismatch": ActionFixRequest,
		"verifier_mismatch":     ActionFixRequest,
		"app_suspended":         ActionContactDeveloper,
	}},
	"unsupported_grant_type": {status: 400, action: ActionFixRequest},
	"invalid_ticket":         {status: 401, action: ActionFixRequest},
	"unauthorized":           {status: 401, action: ActionConnectAgain, byClient: ActionFixRequest},
	"allocation_exhausted": {status: 402, action: ActionRaiseCap, reasons: map[string]Action{
		"held_by_in_flight": ActionWait,
	}},
	"feature_cost_exceeded":     {status: 402, action: ActionFixRequest},
	"connection_revoked":        {status: 403, action: ActionConnectAgain},
	"connection_frozen":         {status: 403, action: ActionAskUser},
	"app_suspended":             {status: 403, action: ActionContactDeveloper},
	"model_not_allowed":         {status: 403, action: ActionFixRequest},
	"call_stopped":              {status: 403, action: ActionAskUser},
	"not_found":                 {status: 404, action: ActionFixRequest},
	"method_not_allowed":        {status: 405, action: ActionFixRequest},
	"idempotency_key_reused":    {status: 409, action: ActionFixRequest},
	"rate_limited":              {status: 429, action: ActionWait},
	"risk_throttled":            {status: 429, action: ActionWait, noRetryAfter: ActionFixRequest},
	"daily_limit_reached":       {status: 429, action: ActionWait, noRetryAfter: ActionFixRequest},
	"app_spend_limited":         {status: 429, action: ActionWait, noRetryAfter: ActionFixRequest},
	"too_many_sessions":         {status: 429, action: ActionFixRequest},
	"sandbox_live_cost_limited": {status: 429, action: ActionWait, noRetryAfter: ActionFixRequest},
	"internal_error":            {status: 500, action: ActionRetry},
	"provider_error":            {status: 502, action: ActionRetry, notRetryable: ActionFixRequest},
	"unavailable":               {status: 503, action: ActionRetry},

	"access_denied":           {action: ActionAskUser},
	"authorization_pending":   {action: ActionWait},
	"slow_down":               {action: ActionWait},
	"expired_token":           {action: ActionConnectAgain},
	"invalid_client":          {action: ActionFixRequest},
	"temporarily_unavailable": {action: ActionRetry},
	"server_error":            {action: ActionRetry},

	CodeConnectionError:  {action: ActionRetry},
	CodeInvalidResponse:  {action: ActionRetry},
	CodeStreamBroken:     {action: ActionRetry},
	CodeNotConnected:     {action: ActionConnectAgain},
	CodeStateMismatch:    {action: ActionConnectAgain},
	CodeIssuerMismatch:   {action: ActionConnectAgain},
	CodeInvalidSignature: {action: ActionFixRequest},
}

// chooseAction returns what to do about an error: by its code, or for an unknown one by its status.
func chooseAction(e *Error, byClient bool) Action {
	rule, known := codes[e.Code]
	if !known {
		return chooseByStatus(e.Status)
	}
	if action, ok := rule.reasons[e.Detail("reason")]; ok {
		return action
	}
	retry, hasRetry := e.Details["retry"].(bool)
	switch {
	case rule.notRetryable != "" && hasRetry && !retry:
		return rule.notRetryable
	case rule.noRetryAfter != "" && e.RetryAfter == 0:
		return rule.noRetryAfter
	case rule.byClient != "" && byClient:
		return rule.byClient
	}
	return rule.action
}

func chooseByStatus(status int) Action {
	switch {
	case status == http.StatusUnauthorized:
		return ActionConnectAgain
	case status == http.StatusPaymentRequired:
		return ActionRaiseCap
	case status == http.StatusForbidden:
		return ActionContactDeveloper
	case status == http.StatusRequestTimeout, status >= http.StatusInternalServerError:
		return ActionRetry
	case status == http.StatusTooManyRequests:
		return ActionWait
	}
	return ActionFixRequest
}

// asError returns err as the error of the service, or nil.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// newOwnError returns an error of one of this package's codes. cause may be nil.
func newOwnError(code string, cause error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Action: codes[code].action, cause: cause}
}
