package stripe

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestStrangeRequests refuses, as Stripe does, a parameter that a route does not have, and another version of the API.
func TestStrangeRequests(t *testing.T) {
	t.Parallel()
	s := New(Options{Key: "sk_test_key"})
	for _, c := range []struct {
		method, path, form, version string
		status                      int
	}{
		{"POST", "/v1/customers", "metadata[account_id]=acc_1", apiVersion, 200},
		{"POST", "/v1/customers", "metadata[account_id]=acc_1", "", 200},
		{"POST", "/v1/customers", "metadata[account_id]=acc_1", "2020-08-27", 400},
		{"POST", "/v1/customers", "account_id=acc_1", apiVersion, 400},
		{"POST", "/v1/customers?limit=1", "", apiVersion, 400},
		{"POST", "/v1/checkout/sessions", "line_items[0][quantitiy]=1", apiVersion, 400},
		{"POST", "/v1/checkout/sessions", "mode=payment&success_url=http://a&line_items[0][quantity]=1&" +
			"line_items[0][price_data][currency]=usd&line_items[0][price_data][unit_amount]=500&" +
			"line_items[0][price_data][product_data][name]=a&payment_intent_data[metadata][topup_id]=top_1&" +
			"invoice_creation[invoice_data][metadata][topup_id]=top_1&metadata[topup_id]=top_1", apiVersion, 200},
		{"GET", "/v1/refunds?payment_intent=pi_1&limit=1&expand[0]=data.payment_intent", "", apiVersion, 200},
		{"GET", "/v1/refunds?created=5", "", apiVersion, 400},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.form))
		r.Header = http.Header{"Authorization": {"Bearer sk_test_key"}, "Stripe-Version": {c.version},
			"Content-Type": {"application/x-www-form-urlencoded"}}
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != c.status {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
	}
}
