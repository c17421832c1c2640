package upstream

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/purserhq/purser/internal/models/provider"
)

// readRefusal makes the error of a status other than 200. Only a request that the provider calls invalid is the app's
// fault. All other failures are between the provider and the operator.
func (c *Client) readRefusal(x *Exchange) error {
	text, err := io.ReadAll(io.LimitReader(x, maxRefusal)) // a truncated text is enough
	e := c.MakeRefusal(x.StatusCode, x.Header, text)
	e.Cause = errors.Join(e.Cause, err)
	return e
}

// rejectedPrefix begins the message of a request that the provider calls invalid.
const rejectedPrefix = "the provider refused the request: "

// MakeRefusal makes the error of an error body: of an error status, or of an error object that came with status 200.
func (c *Client) MakeRefusal(status int, h http.Header, text []byte) *provider.Error {
	e := (*provider.Error)(nil)
	if c.ParseError != nil {
		e = c.ParseError(status, h, text)
	}
	if e == nil {
		e = NewStatusError(status)
	}
	if e.Kind == provider.Rejected {
		e.Refusal = e.Message
	}
	if e.Refusal != "" || e.Kind == provider.Rejected {
		e.Refusal = CleanMessage(c.secrets.redact(e.Refusal))
	}
	if e.Kind == provider.Rejected {
		e.Message = rejectedPrefix + e.Refusal
	}
	e.Status = status
	e.Cause = fmt.Errorf("status %d, %s: %s", status, findErrorCode(text), Describe(text))
	if e.RetryAfter == 0 {
		e.RetryAfter = RetryAfter(h, time.Now())
	}
	switch h.Get("X-Should-Retry") { // the provider knows best
	case "true":
		e.Retry = true
	case "false":
		e.Retry, e.Final = false, true
	}
	return e
}

// NewStatusError classifies a status alone, as the official clients do (provider notes A.6). Calls to busy and failing
// providers may be retried; a refused credential or unknown model raises an alarm for the operator.
func NewStatusError(status int) *provider.Error {
	e := NewFailure(status, nil)
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		e.Alarm = "the key is refused"
	case status == http.StatusPaymentRequired:
		e.Alarm, e.OutOfQuota = "the account is out of credit", true
	case status == http.StatusNotFound:
		e.Alarm = "the model or address is unknown"
	case status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge ||
		status == http.StatusUnprocessableEntity:
		e.Kind, e.Message = provider.Rejected, ""
	case status == http.StatusRequestTimeout || status == http.StatusConflict || status == http.StatusTooManyRequests ||
		status >= 500:
		e.Retry = true
	}
	return e
}

// NewAccountError makes the error of a refusal that concerns our key or account, and not the request, whatever its
// status. The operator must fix it.
func NewAccountError(status int, alarm string) *provider.Error {
	e := NewFailure(status, nil)
	e.Alarm = alarm
	return e
}

const maxReason = 500 // characters

// CleanMessage prepares the provider's message for an app: one short line without keys, addresses and ids that may be
// the operator's.
func CleanMessage(message string) string {
	line := strings.Join(strings.FieldsFunc(private.ReplaceAllString(message, "[removed]"), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar
	}), " ")
	if line == "" {
		return "it gave no reason"
	}
	if r := []rune(line); len(r) > maxReason {
		return string(r[:maxReason]) + "…"
	}
	return line
}

// private matches addresses, keys and ids of accounts, projects and requests.
var private = regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s'"<>]+` +
	`|\b(?:[a-z0-9-]+\.)+(?:com|net|org|io|ai|dev|cloud|internal|local)\b[^\s'"<>]*` +
	`|[\w.+-]+@[\w.-]+` +
	`|\b(?:sk|org|proj)[-_][\w*.-]{6,}` +
	`|\b(?:pk|rk|key|org|proj|user|acct|account|req|team)[-_][\w*.-]*[0-9*][\w*.-]*` +
	`|\bbearer\s+\S+` +
	`|\b(?:organization|project|account)\s+\S*[0-9]\S*` +
	`|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b`)

// findErrorCode returns what the dialects call the code, the type or the status of an error, for the log.
func findErrorCode(text []byte) string {
	var body struct {
		Error struct {
			Code   any    `json:"code"`
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &body) != nil {
		return "no code"
	}
	code, _ := body.Error.Code.(string)
	if code = cmp.Or(code, body.Error.Type, body.Error.Status); code == "" {
		return "no code"
	}
	return "code " + DescribeCode(code)
}

// maxRetryAfter bounds the wait that is passed on to the app.
const maxRetryAfter = time.Hour

// RetryAfter reads Retry-After-Ms, then Retry-After in seconds or as a date. It returns 0 if there is neither.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if d := parseDelay(h.Get("Retry-After-Ms"), time.Millisecond); d > 0 {
		return d
	}
	v := h.Get("Retry-After")
	if d := parseDelay(v, time.Second); d > 0 {
		return d
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return min(at.Sub(now), maxRetryAfter)
	}
	return 0
}

func parseDelay(v string, unit time.Duration) time.Duration {
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n > 0) { // NaN is not above 0
		return 0
	}
	return time.Duration(min(n*float64(unit), float64(maxRetryAfter)))
}
