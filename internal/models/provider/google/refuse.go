package google

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
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

// detail is what is read of the details, which are of many types.
type detail struct {
	Reason     string `json:"reason"`     // ErrorInfo
	RetryDelay string `json:"retryDelay"` // RetryInfo, like "34s"
	Violations []struct {
		QuotaID string `json:"quotaId"`
	} `json:"violations"` // QuotaFailure
}

// readRefusal reads an error body, which may be wrapped in an array; false if it
// is none.
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

// refuse says what an error body means (upstream.Config).
func refuse(status int, _ http.Header, body []byte) *provider.Error {
	r, ok := readRefusal(body)
	if !ok {
		return nil
	}
	e := upstream.ByStatus(status)
	badKey, daily := false, false
	for _, raw := range r.Details {
		var d detail
		if json.Unmarshal(raw, &d) != nil {
			continue // of a type that says nothing to us
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
	case badKey: // Google calls it a bad request; it is our key, not theirs
		return alarming(status, "the key is refused")
	case r.Status == "FAILED_PRECONDITION":
		return alarming(status, "the account may not be used: its billing or its region")
	case daily:
		return alarming(status, "the account is out of quota for today")
	case e.Kind == provider.Rejected:
		e.Message = r.Message
	}
	return e
}

// alarming is a failure that only the operator can mend.
func alarming(status int, alarm string) *provider.Error {
	e := upstream.Failed(status, nil)
	e.Alarm = alarm
	return e
}

// instead reads what came with status 200 in place of an answer: an error object,
// which means what it would mean as a status, or anything else.
func (c *Client) instead(h http.Header, body []byte) *provider.Error {
	r, ok := readRefusal(body)
	if !ok {
		return upstream.Failed(http.StatusOK, fmt.Errorf("that is no answer of Gemini's: %.200q", body))
	}
	if r.Code < 400 || r.Code > 599 {
		r.Code = http.StatusInternalServerError
	}
	return c.http.Refused(r.Code, h, body)
}
