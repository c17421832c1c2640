package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// parseError classifies an error body (provider notes A.6: type, code, message, param). A 400 or 429 may concern our
// account and not the request; then it raises an alarm for the operator.
func parseError(status int, _ http.Header, text []byte) *provider.Error {
	e := upstream.NewStatusError(status)
	var body struct {
		Error struct {
			Message string `json:"message"`
			Type    any    `json:"type"`
			Code    any    `json:"code"`
			Param   any    `json:"param"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &body) != nil {
		return e
	}
	if body.Error.Param == "reasoning.summary" && unverified.MatchString(body.Error.Message) {
		return upstream.NewAccountError(status, "the organization is not verified, so reasoning has no summary")
	}
	switch {
	case e.Kind == provider.Rejected:
		e.Message = body.Error.Message
	case status == http.StatusOK: // with a code that we do not know
		e.Refusal = body.Error.Message
	}
	for _, v := range []any{body.Error.Code, body.Error.Type} {
		s, _ := v.(string)
		switch {
		case status >= 500 || s == "":
		case strings.Contains(s, "billing"), strings.Contains(s, "quota"):
			e = upstream.NewAccountError(status, "the account is out of quota")
			e.OutOfQuota = true
		case s == "context_length_exceeded":
			e.TooLong = true
		case s == "model_not_found": // with 404 by Chat Completions, with 400 by Responses
			e = upstream.NewStatusError(http.StatusNotFound)
		case strings.Contains(s, "api_key"):
			e = upstream.NewAccountError(status, "the key is refused")
			e.KeyRefused = true
		case isDisabled(s):
			e = upstream.NewAccountError(status, "the account is disabled")
			e.KeyRefused = true
		}
	}
	return e
}

// MakeRefusal makes the error of an answer of OpenAI to a request of another interface by a key, as Client does of its
// own.
func MakeRefusal(key string, status int, h http.Header, body []byte) *provider.Error {
	return New("", key, Transport(http.DefaultTransport)).MakeRefusal(status, h, body)
}

// unverified matches what is said of an account whose owner has shown no identity: some members need one.
var unverified = regexp.MustCompile(`(?i)organization must be verified`)

// isDisabled reports whether a code or type of an error says that our account may not be used any more.
func isDisabled(s string) bool {
	return strings.Contains(s, "deactivated") || strings.Contains(s, "disabled") || strings.Contains(s, "suspended")
}

// mapErrorStatus returns the HTTP status for the code or type of an error that came with status 200. It returns 200 for
// unknown codes.
func mapErrorStatus(code, kind string) int {
	for _, s := range []string{code, kind} {
		switch {
		case s == "invalid_api_key", s == "authentication_error":
			return http.StatusUnauthorized
		case isDisabled(s), s == "permission_error", s == "insufficient_permissions":
			return http.StatusForbidden
		case s == "model_not_found":
			return http.StatusNotFound
		case strings.HasPrefix(s, "rate_limit_"), strings.Contains(s, "quota"), strings.Contains(s, "billing"):
			return http.StatusTooManyRequests
		case s == "server_error", strings.Contains(s, "overloaded"):
			return http.StatusServiceUnavailable
		case strings.HasPrefix(s, "invalid_"), strings.Contains(s, "image"), s == "context_length_exceeded",
			strings.HasPrefix(s, "unsupported_"):
			return http.StatusBadRequest
		}
	}
	return http.StatusOK
}

// makeInBandError classifies an error object that came with status 200. Before the first chunk of the response it means
// the same as its status. After it the call cannot be retried, and the request is not at fault.
func (c *Client) makeInBandError(object []byte, begun bool) error {
	var what struct {
		Type any `json:"type"`
		Code any `json:"code"`
	}
	_ = json.Unmarshal(object, &what) // a malformed object has no code
	code, _ := what.Code.(string)
	kind, _ := what.Type.(string)
	e := c.MakeRefusal(mapErrorStatus(code, kind), nil, append(append([]byte(`{"error":`), object...), '}'))
	if begun {
		e.Kind, e.Message, e.Retry = provider.Failed, upstream.NewFailure(0, nil).Message, false
	}
	e.Cause = fmt.Errorf("an error in place of the answer: %w", e.Cause) // without secrets
	return e
}

// makeFailure makes the error of a response that never began. A lost connection is retried; a time-out is not, because
// it has already taken long.
func makeFailure(status int, err error) error {
	var p *provider.Error
	if errors.As(err, &p) {
		return err
	}
	e := upstream.NewFailure(status, err)
	e.Retry = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	return e
}
