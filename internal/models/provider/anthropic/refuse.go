package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"syscall"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// statuses are what the types of errors stand for: in a stream there is no
// other status.
var statuses = map[string]int{
	"invalid_request_error": http.StatusBadRequest, "authentication_error": http.StatusUnauthorized,
	"billing_error": http.StatusPaymentRequired, "permission_error": http.StatusForbidden,
	"not_found_error": http.StatusNotFound, "request_too_large": http.StatusRequestEntityTooLarge,
	"rate_limit_error": http.StatusTooManyRequests, "api_error": http.StatusInternalServerError,
	"timeout_error": http.StatusGatewayTimeout, "overloaded_error": 529,
}

// account matches refusals that are called the request's fault, and are not.
var account = regexp.MustCompile(`(?i)credit balance|api usage limits`)

// refuse reads an error body.
func refuse(status int, _ http.Header, text []byte) *provider.Error {
	e := upstream.ByStatus(status)
	var body struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &body) != nil || e.Kind != provider.Rejected {
		return e
	}
	if body.Error.Type == "billing_error" || account.MatchString(body.Error.Message) {
		return upstream.ByStatus(http.StatusPaymentRequired)
	}
	e.Message = body.Error.Message
	return e
}

// interrupted is what an error event means. Once the model has begun, there is
// no other try, and no fault of the request.
func interrupted(payload []byte, begun bool) error {
	var body struct {
		Error struct {
			Type string `json:"type"`
		} `json:"error"`
	}
	status := 0
	if json.Unmarshal(payload, &body) == nil {
		status = statuses[body.Error.Type]
	}
	if status == 0 {
		status = http.StatusInternalServerError
	}
	e := refuse(status, nil, payload)
	switch {
	case begun:
		e.Kind, e.Retry, e.Message = provider.Failed, false, upstream.Failed(0, nil).Message
	case e.Kind == provider.Rejected: // its reason was not cleaned, as that of a status is
		e.Message = "the provider refused the request"
	}
	e.Status, e.Cause = status, fmt.Errorf("the stream carries an error: %.200q", payload)
	return e
}

// cut is what the failure of an answer means that never became whole.
func cut(err error, begun bool) error {
	var p *provider.Error
	if errors.As(err, &p) {
		return err
	}
	e := upstream.Failed(http.StatusOK, fmt.Errorf("the stream was cut: %w", err))
	lost := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	e.Retry = lost && !begun
	return e
}

// garbage is what is no event of a message, or one that was cut off.
func garbage(payload []byte, begun bool) error {
	e := upstream.Failed(http.StatusOK, fmt.Errorf("the stream carries what is no event of a message: %.200q", payload))
	e.Retry = !begun
	return e
}
