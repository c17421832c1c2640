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

// statuses maps error types to HTTP statuses. An error event in a stream has only the type.
var statuses = map[string]int{
	"invalid_request_error": http.StatusBadRequest, "authentication_error": http.StatusUnauthorized,
	"billing_error": http.StatusPaymentRequired, "permission_error": http.StatusForbidden,
	"not_found_error": http.StatusNotFound, "request_too_large": http.StatusRequestEntityTooLarge,
	"rate_limit_error": http.StatusTooManyRequests, "api_error": http.StatusInternalServerError,
	"timeout_error": http.StatusGatewayTimeout, "overloaded_error": 529,
}

// These match messages of invalid_request_error: the first and the last concern our account and not the request.
var (
	outOfCredit = regexp.MustCompile(`(?i)credit balance|api usage limits`)
	tooLong     = regexp.MustCompile(`(?i)prompt is too long|exceeds? (?:the )?context (?:limit|window)`)
	disabled    = regexp.MustCompile(`(?i)^(?:this|your) (?:organization|account|workspace|api key) ` +
		`(?:has been|is|was) (?:currently |temporarily )?(?:disabled|suspended|blocked|deactivated|archived)`)
)

// parseError classifies an error body.
func parseError(status int, _ http.Header, text []byte) *provider.Error {
	e := upstream.NewStatusError(status)
	var body struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &body) != nil || e.Kind != provider.Rejected {
		return e
	}
	switch {
	case body.Error.Type == "billing_error" || outOfCredit.MatchString(body.Error.Message):
		return upstream.NewStatusError(http.StatusPaymentRequired)
	case disabled.MatchString(body.Error.Message):
		e = upstream.NewAccountError(status, "the account is disabled")
		e.KeyRefused = true
		return e
	}
	e.Message, e.TooLong = body.Error.Message, tooLong.MatchString(body.Error.Message)
	return e
}

// makeStreamError classifies an error event. After content has arrived the call cannot be retried, and the request is
// not at fault.
func (d *decoder) makeStreamError(payload []byte) error {
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
	e := d.refuser.MakeRefusal(status, nil, payload)
	if d.begun {
		e.Kind, e.Retry, e.Message = provider.Failed, false, upstream.NewFailure(0, nil).Message
	}
	e.Cause = fmt.Errorf("the stream carries an error: %s, %s", upstream.DescribeCode(body.Error.Type),
		upstream.Describe(payload))
	return e
}

// makeCutError makes the error of a response that broke off.
func makeCutError(err error, begun bool) error {
	var p *provider.Error
	if errors.As(err, &p) {
		return err
	}
	e := upstream.NewFailure(http.StatusOK, fmt.Errorf("the stream was cut: %w", err))
	lost := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	e.Retry = lost && !begun
	return e
}

// makeGarbageError makes the error of a malformed event.
func makeGarbageError(payload []byte, begun bool) error {
	e := upstream.NewFailure(http.StatusOK,
		fmt.Errorf("the stream carries what is no event of a message: %s", upstream.Describe(payload)))
	e.Retry = !begun
	return e
}
