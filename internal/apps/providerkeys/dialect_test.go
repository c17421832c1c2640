package providerkeys

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
)

// A provider that says nothing, or begins a refusal and never ends it, is not
// waited for.
func TestASilentProviderIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(w http.ResponseWriter) error{
		"nothing": func(http.ResponseWriter) error { return nil },
		"half a refusal": func(w http.ResponseWriter) error {
			w.WriteHeader(http.StatusServiceUnavailable)
			return http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := begin(w); err != nil && r.Context().Err() == nil { // the caller may have given up already
					t.Error(err)
				}
				<-r.Context().Done()
			}))
			defer s.Close()
			begun := time.Now()
			err := testKey(t.Context(), 50*time.Millisecond, "openai", s.URL, NewSecret("sk-0123456789"))
			if e, ok := errors.AsType[*apierr.Error](err); !ok || e.Code != apierr.ProviderError ||
				strings.Contains(err.Error(), "0123456789") {
				t.Errorf("got %v", err)
			}
			if took := time.Since(begun); took > testTimeout/2 {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// Without an address of the operator's, a key goes to the provider's public one.
func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"openai": "https://api.openai.com/v1/models", "anthropic": "https://api.anthropic.com/v1/models?limit=1",
		"google": "https://generativelanguage.googleapis.com/v1beta/models?pageSize=1",
	} {
		if d := keyTests[name]; d.baseURL+d.path != want {
			t.Errorf("%s: %s", name, d.baseURL+d.path)
		}
	}
}
