package inference

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
)

// readKey returns the request's idempotency key, a UUID in lower case. Only on the
// OpenAI-compatible route may it be missing: "".
func readKey(r *http.Request, route plan.Route) (string, error) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 && route.Chat {
		return "", nil
	}
	if len(values) == 1 {
		if key, ok := id.ParseUUID(values[0]); ok {
			return key, nil
		}
	}
	const form = "one UUID such as 3f2504e0-4f89-41d3-9a0c-0305e82c3301"
	switch {
	case len(values) == 0:
		return "", apierr.InvalidRequest.Errorf("Idempotency-Key: required, %s", form)
	case len(values) > 1:
		return "", apierr.InvalidRequest.Errorf("Idempotency-Key: sent %d times; send %s", len(values), form)
	}
	return "", apierr.InvalidRequest.Errorf("Idempotency-Key: must be %s", form)
}

// fingerprint hashes what makes two requests the same: route, feature header, the child that makes it, and body. The
// length of each but the body stands before it (decision 026).
func fingerprint(route plan.Route, feature, childID string, body []byte) string {
	h := sha256.New()
	parts := []string{route.Path, feature, childID}
	if childID == "" { // as before there were children
		parts = parts[:2]
	}
	for _, s := range parts {
		h.Write([]byte{byte(len(s) >> 8), byte(len(s))})
		h.Write([]byte(s))
	}
	h.Write(body)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// isRetry reports whether an OpenAI SDK marks this request as a retry.
func isRetry(r *http.Request) bool {
	n := r.Header.Get("X-Stainless-Retry-Count")
	return n != "" && n != "0"
}
