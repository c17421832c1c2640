package inference

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
)

// readKey returns the request's Idempotency-Key: one UUID, 8-4-4-4-12, case
// folded. It is required but on the drop-in route, where "" means none was sent.
func readKey(r *http.Request, rt route) (string, error) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 && rt.chat {
		return "", nil
	}
	if len(values) == 1 {
		if key, ok := id.ParseUUID(values[0]); ok {
			return key, nil
		}
	}
	return "", apierr.InvalidRequest.Errorf("Idempotency-Key: required, one UUID such as 3f2504e0-4f89-41d3-9a0c-0305e82c3301")
}

// fingerprint is what makes two requests the same: route, feature header and
// raw body, each with its length before it.
func fingerprint(rt route, feature string, body []byte) string {
	h := sha256.New()
	for _, s := range []string{rt.path, feature} {
		h.Write([]byte{byte(len(s) >> 8), byte(len(s))})
		h.Write([]byte(s))
	}
	h.Write(body)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// retried says whether an OpenAI SDK marks this request as a repetition.
func retried(r *http.Request) bool {
	n := r.Header.Get("X-Stainless-Retry-Count")
	return n != "" && n != "0"
}
