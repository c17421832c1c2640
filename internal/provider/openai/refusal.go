package openai

import (
	"encoding/json"
	"net/http"
	"strings"

	"purser/internal/provider"
	"purser/internal/provider/upstream"
)

// refuse reads an error body (wire: type, code, message, param). A 400 or 429
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
			e.Kind, e.Message, e.Retry, e.Alarm = provider.Failed, upstream.Failed(status, nil).Message, false, "the account is out of quota"
		} else if status < 500 && strings.Contains(s, "api_key") {
			e.Kind, e.Message, e.Retry, e.Alarm = provider.Failed, upstream.Failed(status, nil).Message, false, "the key is refused"
		}
	}
	return e
}
