package stripeapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/models/metrics"
)

// requestTimeout is the time limit for one request to Stripe.
const requestTimeout = 20 * time.Second

// DefaultRetries is how often a client repeats a request whose answer it did not get.
const DefaultRetries = 2

// NewClient returns a client with an API key. baseURL is that of an emulator; "" = Stripe's.
func NewClient(key, baseURL string, m *metrics.Metrics, retries int) *stripe.Client {
	return &stripe.Client{
		Key:     key,
		BaseURL: baseURL,
		Retries: retries,
		HTTP: &http.Client{
			Timeout:       requestTimeout,
			Transport:     countingTransport{m},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// maxErrorBytes bounds the part of an error's body that isOfPayee looks at.
const maxErrorBytes = 16 << 10

// isOfPayee reports whether an answer says that a connected account is gone, which is no fault of our key's. It leaves
// the body as it was.
func isOfPayee(r *http.Response) bool {
	if r.StatusCode != http.StatusForbidden {
		return false
	}
	head, err := io.ReadAll(io.LimitReader(r.Body, maxErrorBytes))
	if err != nil {
		return false // whoever reads on gets the error
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), r.Body), r.Body}
	return bytes.Contains(head, []byte(`"`+accountInvalid+`"`))
}

// countingTransport counts the requests to Stripe, from which the status of payments is known.
type countingTransport struct{ metrics *metrics.Metrics }

// RoundTrip sends a request. A request that we ended ourselves says nothing about Stripe. It raises an alarm when
// Stripe refuses our key, and when it refuses a look-up: the caller asks again, and only the operator can mend it.
func (t countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil || r.Context().Err() != context.Canceled {
		t.metrics.CountPayment(err != nil || answer.StatusCode >= http.StatusInternalServerError)
	}
	isOwn := r.URL.Path == stripe.OwnAccountPath && err == nil && answer.StatusCode == http.StatusForbidden
	switch {
	case isOwn || err != nil || answer.StatusCode < 400 || answer.StatusCode >= 500 || isOfPayee(answer):
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		t.metrics.RaiseAlarm("the key is refused", "stripe")
	case r.Method == http.MethodGet && answer.StatusCode != http.StatusTooManyRequests:
		t.metrics.RaiseAlarm("a look-up is refused", "stripe")
	}
	return answer, err
}
