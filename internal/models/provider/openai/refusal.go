package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// refuse reads an error body (provider notes A.6: type, code, message, param). A 400 or 429
// may speak of our account and not of the request: that is the operator's.
func refuse(status int, _ http.Header, text []byte) *provider.Error {
	e := upstream.ByStatus(status)
	var body struct {
		Error struct {
			Message string `json:"message"`
			Type    any    `json:"type"`
			Code    any    `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &body) != nil {
		return e
	}
	if e.Kind == provider.Rejected {
		e.Message = body.Error.Message
	}
	for _, v := range []any{body.Error.Code, body.Error.Type} {
		if s, _ := v.(string); status < 500 && (strings.Contains(s, "billing") || strings.Contains(s, "quota")) {
			e.Kind, e.Message, e.Retry, e.Alarm = provider.Failed, upstream.Failed(status, nil).Message, false,
				"the account is out of quota"
		} else if status < 500 && strings.Contains(s, "api_key") {
			e.Kind, e.Message, e.Retry, e.Alarm = provider.Failed, upstream.Failed(status, nil).Message, false,
				"the key is refused"
		}
	}
	return e
}

// statusOf is the status that an error's code or type stands for, where it came
// within a 200; 200 if it stands for none that we know.
func statusOf(code, kind string) int {
	for _, s := range []string{code, kind} {
		switch {
		case s == "invalid_api_key":
			return http.StatusUnauthorized
		case s == "model_not_found":
			return http.StatusNotFound
		case s == "rate_limit_exceeded", strings.Contains(s, "quota"), strings.Contains(s, "billing"):
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

// interrupted is what an error object within a 200 means: what its status would
// mean, as long as nothing of the answer came. Afterwards there is no other try,
// and no fault of the request.
func (c *Client) interrupted(object []byte, begun bool) error {
	var what struct {
		Type any `json:"type"`
		Code any `json:"code"`
	}
	_ = json.Unmarshal(object, &what) // an odd one says nothing
	code, _ := what.Code.(string)
	kind, _ := what.Type.(string)
	e := c.Refused(statusOf(code, kind), nil, append(append([]byte(`{"error":`), object...), '}'))
	if begun {
		e.Kind, e.Message, e.Retry = provider.Failed, upstream.Failed(0, nil).Message, false
	}
	e.Cause = fmt.Errorf("an error in place of the answer: %w", e.Cause) // without secrets
	return e
}

// failed makes an error of what kept an answer from coming at all: lost
// connections are worth another try, silence took its time already.
func failed(status int, err error) error {
	var p *provider.Error
	if errors.As(err, &p) {
		return err
	}
	e := upstream.Failed(status, err)
	e.Retry = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	return e
}
