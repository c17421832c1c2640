package upstream

import (
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

// refusal maps a status that is not 200. Only a request that the provider calls
// wrong is the app's fault; the rest is between the provider and us, and its
// text goes to the log alone.
func (c *Client) refusal(x *Exchange) error {
	text, err := io.ReadAll(io.LimitReader(x, maxRefusal)) // an unfinished text says enough
	e := c.Refused(x.StatusCode, x.Header, text)
	e.Cause = errors.Join(e.Cause, err)
	return e
}

// Refused reads a refusal that is at hand: the body of a status, or an error
// object in place of an answer, which means what its status would mean.
func (c *Client) Refused(status int, h http.Header, text []byte) *provider.Error {
	e := (*provider.Error)(nil)
	if c.Refuse != nil {
		e = c.Refuse(status, h, text)
	}
	if e == nil {
		e = ByStatus(status)
	}
	if e.Kind == provider.Rejected {
		e.Message = "the provider refused the request: " + reason(c.hide(e.Message))
	}
	e.Status = status
	e.Cause = fmt.Errorf("status %d: %.500q", status, c.hide(string(text)))
	if e.RetryAfter == 0 {
		e.RetryAfter = RetryAfter(h, time.Now())
	}
	switch h.Get("X-Should-Retry") { // the provider knows best
	case "true":
		e.Retry = true
	case "false":
		e.Retry = false
	}
	return e
}

// ByStatus is what a status alone says (provider notes A.6: what the official clients do):
// busy and broken providers may be tried again, a refused credential or unknown
// model is the operator's to mend.
func ByStatus(status int) *provider.Error {
	e := Failed(status, nil)
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		e.Alarm = "the key is refused"
	case status == http.StatusPaymentRequired:
		e.Alarm = "the account is out of credit"
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

const maxReason = 500 // characters

// reason makes the provider's message fit for an app: one short line without
// anything that could be ours.
func reason(message string) string {
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

// hide takes our own credential out, for the log too.
func (c *Client) hide(text string) string {
	if c.Secret == "" {
		return text
	}
	return strings.ReplaceAll(text, c.Secret, "[removed]")
}

// maxRetryAfter is the longest wait that is passed on.
const maxRetryAfter = time.Hour

// RetryAfter reads Retry-After-Ms, then Retry-After in seconds or as a date; 0
// is none.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if d := positive(h.Get("Retry-After-Ms"), time.Millisecond); d > 0 {
		return d
	}
	v := h.Get("Retry-After")
	if d := positive(v, time.Second); d > 0 {
		return d
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return min(at.Sub(now), maxRetryAfter)
	}
	return 0
}

func positive(v string, unit time.Duration) time.Duration {
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n > 0) { // NaN is not above 0
		return 0
	}
	return time.Duration(min(n*float64(unit), float64(maxRetryAfter)))
}
