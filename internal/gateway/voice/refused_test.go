package voice

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// TestRefusedOffers: what the provider answers to an offer is told to the browser and to the app, as of any call
// (decision 014): who failed, how, and whether another session may succeed. What it says of our key is not told. The
// ticket is spent, and nothing is held.
func TestRefusedOffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	refuse := func(status int, header, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if name, value, ok := strings.Cut(header, ": "); ok {
				w.Header().Set(name, value)
			}
			http.Error(w, body, status)
		}
	}
	for name, tt := range map[string]struct {
		answer  http.HandlerFunc
		status  any
		kind    string
		retry   bool
		message string // a part of it
	}{
		"its rules": {refuse(400, "", `{"error":{"code":"invalid_value","message":"Invalid value: 'nova'."}}`),
			400.0, "refused", false, "the provider refused the request: Invalid value: 'nova'.; nothing was billed"},
		"our key": {refuse(401, "", `{"error":{"code":"invalid_api_key","message":"Incorrect key sk-test."}}`),
			nil, "refused", false, "openai does not serve this call"},
		"our quota": {refuse(429, "", `{"error":{"code":"insufficient_quota","message":"You exceeded it."}}`),
			429.0, "quota", false, "accepts no more calls"},
		"our rate": {refuse(429, "Retry-After: 7", `{"error":{"code":"rate_limit_exceeded","message":"Slow down."}}`),
			429.0, "quota", true, "create another session"},
		"busy":                      {refuse(503, "", `busy`), 503.0, "overloaded", true, "openai is overloaded"},
		"a call without an address": {refuse(200, "", "v=0\r\n"), nil, "cut", true, "broke off"},
		"no answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil, "cut", true,
			"broke off"},
	} {
		w.up.mu.Lock()
		w.up.refuse = tt.answer
		w.up.mu.Unlock()
		o := w.open(mini)
		control := w.dial(o.ControlURL, w.token)
		want := map[string]any{"provider": "openai", "upstream_status": tt.status, "kind": tt.kind, "retry": tt.retry}
		check := func(where string, e map[string]any) {
			message, _ := e["message"].(string)
			details, _ := e["details"].(map[string]any)
			if !maps.Equal(details, want) || e["code"] != "provider_error" || !strings.Contains(message, tt.message) ||
				strings.Contains(message, "sk-") {
				t.Errorf("%s, %s: %v", name, where, e)
			}
		}
		status, answer := w.call(w.nodes[0], "POST", strings.TrimPrefix(o.Client.OfferURL, w.nodes[0].url), sdpOffer,
			o.Client.Ticket)
		if status != 502 {
			t.Errorf("%s: %d", name, status)
		}
		check("to the browser", answer["error"].(map[string]any))
		check("to the app", control.wait("error")["error"].(map[string]any))
		if c := control.closed(); c != 1000 {
			t.Errorf("%s: the channel closed with %d", name, c)
		}
		w.ended(o.ID, session.ProviderError)
		w.free()
	}
}
