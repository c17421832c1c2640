package voice

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/people/accounts"
)

// TestVoiceCarriesTheSafetyIdentifier: every request for a session names its account for the provider's abuse control.
func TestVoiceCarriesTheSafetyIdentifier(t *testing.T) {
	t.Parallel()
	ids, err := accounts.NewSafetyIdentifiers(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if got := r.Header.Get("OpenAI-Safety-Identifier"); got != ids.Identify("wac_1") {
			t.Errorf("%s: %q", r.URL, got)
		}
		w.Header().Set("Location", "/v1/realtime/calls/rtc_1")
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(srv.Close)
	p := &Provider{BaseURL: srv.URL, PlatformKeys: []string{"k"}, Identifiers: ids}
	terms := &billingTerms{AccountID: "wac_1"}
	if _, _, err := p.createCall(t.Context(), terms, []byte("v=0"), session.Config{}); err != nil {
		t.Error(err)
	}
	if err := p.hangUp(t.Context(), terms, "rtc_1"); err != nil {
		t.Error(err)
	}
	if _, _, err := p.attachSideband(t.Context(), terms, "rtc_1"); err == nil {
		t.Error("no sideband was served")
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("%d requests", n)
	}
}
