package voice

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
)

// TestPreflight: a page of any origin may send the headers that it asks for, bounded in number and form. The ones that
// every offer has are always allowed.
func TestPreflight(t *testing.T) {
	t.Parallel()
	var many []string
	for n := range 40 {
		many = append(many, fmt.Sprintf("x-%d", n))
	}
	long := strings.Repeat("y", 64)
	for asked, want := range map[string][]string{
		"": nil,
		"authorization,content-type,x-openai-agents-sdk": {"authorization", "content-type", "x-openai-agents-sdk"},
		"traceparent , openai-safety-identifier":         {"traceparent", "openai-safety-identifier"},
		"x-ok,x<script>,,two words,*/*":                  {"x-ok"},
		long + "x," + long:                               {long},
		strings.Join(many, ","):                          many[:32],
	} {
		r := httptest.NewRequest(http.MethodOptions, "/v1/realtime/sessions/rts_1/offer", nil)
		r.Header.Set("Access-Control-Request-Headers", asked)
		w := httptest.NewRecorder()
		if err := preflightOffer(w, r); err != nil {
			t.Fatal(err)
		}
		got := strings.Split(w.Header().Get("Access-Control-Allow-Headers"), ", ")
		if !slices.Equal(got, append([]string{"Authorization", "Content-Type"}, want...)) || w.Code != 204 ||
			w.Header().Get("Access-Control-Allow-Origin") != "*" ||
			w.Header().Get("Access-Control-Allow-Credentials") != "" ||
			w.Header().Get("Vary") != "Access-Control-Request-Headers" {
			t.Errorf("%q: %d %v", asked, w.Code, w.Header())
		}
	}
}

// TestAnswerIsReadable: a page of another origin may read the answer's headers, and the reason of a refusal.
func TestAnswerIsReadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(mini)
	post := func() *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.Client.OfferURL,
			strings.NewReader(sdpOffer))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Authorization": {"Bearer " + o.Client.Ticket}, "Content-Type": {"application/sdp"},
			"Origin": {"https://app.example"}, "X-Openai-Agents-Sdk": {"0.20.0"}}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // its headers count
		return resp
	}
	made := post()
	w.sideband()
	if got := made.Header.Get("Location"); made.StatusCode != 201 || got != "/v1/realtime/sessions/"+o.ID {
		t.Errorf("%d, Location %q", made.StatusCode, got)
	}
	for what, resp := range map[string]*http.Response{"201": made, "401": post()} {
		if resp.Header.Get("Access-Control-Allow-Origin") != "*" ||
			!strings.HasPrefix(resp.Header.Get("Access-Control-Expose-Headers"), "Location, ") {
			t.Errorf("%s: %d %v", what, resp.StatusCode, resp.Header)
		}
	}
}
