package openai

import (
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

	"purser/internal/provider"
)

// refusal maps a status that is not 200. Only a request that the provider calls
// wrong is the app's fault; the rest is between the provider and us, and its
// text goes to the log alone.
func refusal(x *exchange, key string) error {
	text, err := io.ReadAll(io.LimitReader(x, maxRefusal)) // an unfinished text says enough
	e := failed(x.StatusCode, errors.Join(fmt.Errorf("status %d: %.500q", x.StatusCode, hide(string(text), key)), err))
	e.RetryAfter = retryAfter(x.Header, time.Now())
	switch x.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		var body struct {
			Error struct {
				Message string          `json:"message"`
				Code    json.RawMessage `json:"code"`
			} `json:"error"`
		}
		if json.Unmarshal(text, &body) == nil && ours.Match(body.Error.Code) {
			return e
		}
		e.Kind, e.Message = provider.Rejected, "the provider refused the request: "+reason(hide(body.Error.Message, key))
	}
	return e
}

// ours are the codes of a 400 that speak of our account, not of the request.
var ours = regexp.MustCompile(`billing|quota|api_key`)

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

// hide takes our own key out, for the log too.
func hide(text, key string) string {
	if key == "" {
		return text
	}
	return strings.ReplaceAll(text, key, "[removed]")
}

// maxRetryAfter is the longest wait that is passed on.
const maxRetryAfter = time.Hour

// retryAfter reads Retry-After-Ms, then Retry-After in seconds or as a date; 0
// is none.
func retryAfter(h http.Header, now time.Time) time.Duration {
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
