package providerkeys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// testTimeout bounds the test of a key. A healthy provider answers within a second.
const testTimeout = 10 * time.Second

// A keyTest is the request that lists a provider's models, which needs a key and costs nothing.
type keyTest struct {
	baseURL string // the public one
	path    string
	header  func(key string) http.Header
}

var keyTests = map[string]keyTest{
	"openai": {"https://api.openai.com/v1", "/models", func(key string) http.Header {
		return http.Header{"Authorization": {"Bearer " + key}}
	}},
	"anthropic": {"https://api.anthropic.com", "/v1/models?limit=1", func(key string) http.Header {
		return http.Header{"X-Api-Key": {key}, "Anthropic-Version": {"2023-06-01"}}
	}},
	"google": {"https://generativelanguage.googleapis.com", "/v1beta/models?pageSize=1", func(key string) http.Header {
		return http.Header{"X-Goog-Api-Key": {key}}
	}},
}

// IsKnownProvider reports whether there is such a provider.
func IsKnownProvider(provider string) bool {
	_, ok := keyTests[provider]
	return ok
}

// testKey checks whether the provider at baseURL ("" = its public address) accepts the key, and waits at most wait. A
// refused key is 400 invalid_request, and a test without a result 502 provider_error. The response
// is not logged, because providers repeat parts of the key in it.
func testKey(ctx context.Context, wait time.Duration, name, baseURL string, s Secret) error {
	d := keyTests[name]
	if baseURL == "" {
		baseURL = d.baseURL
	}
	refused := false
	c := upstream.New(upstream.Config{
		BaseURL:    baseURL,
		Header:     d.header(s.Reveal()),
		Secret:     s.Reveal(),
		HeaderWait: wait,
		Idle:       wait,
		ParseError: func(status int, _ http.Header, body []byte) *provider.Error {
			refused = isRefusal(status, body)
			return nil
		},
	})
	defer c.CloseIdle()
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	x, err := c.Get(bounded, d.path)
	if err == nil {
		x.End(false)
		return nil
	}
	if refused {
		return apierr.InvalidRequest.Errorf("key: the provider refuses it; it must at least be allowed to list models")
	}
	if ctx.Err() != nil { // the client has disconnected
		return ctx.Err()
	}
	e := apierr.ProviderError.Errorf("the key could not be tested at the provider, try again")
	return e.WithCause(describeCause(name, err))
}

// isRefusal reports whether a provider refused the key. Google answers 400 with the reason API_KEY_INVALID (provider
// notes C.9).
func isRefusal(status int, body []byte) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden ||
		status == http.StatusBadRequest && bytes.Contains(body, []byte("API_KEY_INVALID"))
}

// describeCause returns an error without secrets for the log: a status, or the error of the connection.
func describeCause(name string, err error) error {
	if e, ok := errors.AsType[*provider.Error](err); ok && e.Status != 0 {
		return fmt.Errorf("test of a key at %s: status %d", name, e.Status)
	}
	return fmt.Errorf("test of a key at %s: %w", name, err)
}
