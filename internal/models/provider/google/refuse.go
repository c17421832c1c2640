package google

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// refusal is Google's error object.
type refusal struct {
	Code    int               `json:"code"`
	Message string            `json:"message"`
	Status  string            `json:"status"`
	Details []json.RawMessage `json:"details"`
}

// detail has the members of a detail that are read. Details have many types.
type detail struct {
	Reason     string `json:"reason"`     // ErrorInfo
	RetryDelay string `json:"retryDelay"` // RetryInfo, like "34s"
	Violations []struct {
		QuotaID string `json:"quotaId"`
	} `json:"violations"` // QuotaFailure
}

// readRefusal reads an error body, which may be wrapped in an array. It returns false if there is no error object.
func readRefusal(body []byte) (refusal, bool) {
	body = bytes.TrimSpace(body)
	if bytes.HasPrefix(body, []byte("[")) {
		var list []json.RawMessage
		if json.Unmarshal(body, &list) != nil || len(list) == 0 {
			return refusal{}, false
		}
		body = list[0]
	}
	var whole struct {
		Error *refusal `json:"error"`
	}
	if json.Unmarshal(body, &whole) != nil || whole.Error == nil {
		return refusal{}, false
	}
	return *whole.Error, true
}

// tooLong matches the message of a request that has more tokens than the model takes.
var tooLong = regexp.MustCompile(`(?i)input token count\b.*\bexceeds`)

// parseError classifies an error body (see upstream.Config).
func parseError(status int, _ http.Header, body []byte) *provider.Error {
	r, ok := readRefusal(body)
	if !ok {
		return nil
	}
	e := upstream.NewStatusError(status)
	badKey, daily := false, false
	for _, raw := range r.Details {
		var d detail
		if json.Unmarshal(raw, &d) != nil {
			continue // a detail of another type
		}
		badKey = badKey || strings.HasPrefix(d.Reason, "API_KEY_")
		if wait, err := time.ParseDuration(d.RetryDelay); err == nil && wait > 0 {
			e.RetryAfter = min(wait, time.Hour)
		}
		for _, v := range d.Violations {
			daily = daily || strings.Contains(v.QuotaID, "PerDay")
		}
	}
	switch {
	case badKey: // Google answers 400, but the fault is our key and not the request
		e = upstream.NewAccountError(status, "the key is refused")
		e.KeyRefused = true
	case r.Status == "FAILED_PRECONDITION":
		e = upstream.NewAccountError(status, "the account may not be used: its billing or its region")
		e.KeyRefused = true
	case daily:
		e = upstream.NewAccountError(status, "the account is out of quota for today")
		e.OutOfQuota = true
	case e.Kind == provider.Rejected:
		e.Message, e.TooLong = r.Message, tooLong.MatchString(r.Message)
	}
	return e
}

// makeBodyError makes the error of a body that came with status 200 and is not a response. An error object in it means
// the same as its status.
func (c *Client) makeBodyError(h http.Header, body []byte) *provider.Error {
	r, ok := readRefusal(body)
	if !ok {
		return upstream.NewFailure(http.StatusOK,
			fmt.Errorf("that is no answer of Gemini's: %s", upstream.Describe(body)))
	}
	if r.Code < 400 || r.Code > 599 {
		r.Code = http.StatusInternalServerError
	}
	return c.http.MakeRefusal(r.Code, h, body)
}
