package messages

import (
	"encoding/json"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/provider"
)

// ErrorBody encodes an error as Anthropic's clients read it. Our members follow the two of Anthropic.
func ErrorBody(e *apierr.Error, l web.Links, requestID string) ([]byte, error) {
	envelope, err := web.Envelope(e, l)
	if err != nil {
		return nil, err
	}
	var members struct {
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(envelope, &members); err != nil {
		return nil, err
	}
	return append(appendError(nil, members.Error, requestID, nil), '\n'), nil
}

// appendError appends an error response for the error object of an envelope. final is the member with the bill of
// a stream that was cut; nil = none.
func appendError(b, failure []byte, requestID string, final []byte) []byte {
	f := shapes.ReadFailure(failure)
	if f.TooLong { // what Anthropic says, for which agents look
		f.Message = "prompt is too long: " + f.Message
	}
	b = append(append(append(b, `{"type":"error","error":{"type":"`...), errorType(f.Code)...), '"')
	b = provider.AppendQuote(append(b, `,"message":`...), f.Message)
	provider.Members(failure, func(name, value []byte) bool {
		if n := string(name); n != "type" && n != "message" {
			b = append(append(provider.AppendQuote(append(b, ','), n), ':'), value...)
		}
		return true
	})
	b = append(b, `},"request_id":`...)
	if requestID == "" {
		b = append(b, "null"...)
	} else {
		b = provider.AppendQuote(b, requestID)
	}
	if final != nil {
		b = append(b, final...)
	}
	return append(b, '}')
}

// errorType returns Anthropic's type of an error code.
func errorType(code string) string {
	c, ok := apierr.ByName(code)
	if !ok {
		return "api_error"
	}
	switch c.Status {
	case 401:
		return "authentication_error"
	case 402:
		return "billing_error"
	case 403:
		return "permission_error"
	case 404:
		return "not_found_error"
	case 413:
		return "request_too_large"
	case 429:
		return "rate_limit_error"
	case 503:
		return "overloaded_error"
	}
	if c.Status < 500 {
		return "invalid_request_error"
	}
	return "api_error"
}
