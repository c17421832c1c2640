package voice

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/models/provider/openai"
	"github.com/purserhq/purser/internal/people/accounts"
)

// TestNoRedirectIsFollowed: a provider that redirects a call, a sideband or a hang-up gets neither our key nor what the
// user says sent elsewhere (F-25), and nothing of its answer is in the error.
func TestNoRedirectIsFollowed(t *testing.T) {
	t.Parallel()
	ids, err := accounts.NewSafetyIdentifiers(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	var followed atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		followed.Add(1)
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(elsewhere.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", elsewhere.URL+"/v1/realtime/calls/rtc_1?internal-address")
			w.WriteHeader(status)
			_, _ = w.Write([]byte("internal-address"))
		}))
		t.Cleanup(srv.Close)
		p := &Provider{BaseURL: srv.URL, PlatformKeys: []string{"k"}, Identifiers: ids, MakeRefusal: openai.MakeRefusal}
		terms := &billingTerms{AccountID: "wac_1"}
		_, _, created := p.createCall(t.Context(), terms, []byte("v=0"), session.Config{})
		_, gone, attached := p.attachSideband(t.Context(), terms, "rtc_1")
		hungUp := p.hangUp(t.Context(), terms, "rtc_1")
		for what, err := range map[string]error{"call": created, "sideband": attached, "hang-up": hungUp} {
			if err == nil || strings.Contains(err.Error(), "internal-address") {
				t.Errorf("%d, %s: %v", status, what, err)
			}
		}
		if gone {
			t.Errorf("%d: the call counts as ended", status)
		}
	}
	if n := followed.Load(); n > 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}
