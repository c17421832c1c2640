package stripeapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/people/stripeapi"
)

// answers are answers of Stripe to a request that changes something, as its documentation and bug reports show them.
var answers = []struct {
	status                 int
	kind, code, param, msg string
	wants                  stripeapi.Outcome
	missing                string
	notOfStripe, replayed  bool
}{
	{status: 200, wants: stripeapi.Done},
	// Of the bank.
	{status: 402, kind: "card_error", code: "card_declined", wants: stripeapi.Refused},
	{status: 402, kind: "card_error", code: "expired_card", wants: stripeapi.Refused, replayed: true},
	{status: 402, kind: "card_error", code: "authentication_required", wants: stripeapi.Refused},
	{status: 402, kind: "card_error", code: "processing_error", wants: stripeapi.Refused},
	{status: 400, kind: "card_error", code: "incorrect_number", wants: stripeapi.Refused},
	{status: 400, kind: "invalid_request_error", code: "charge_already_refunded", wants: stripeapi.Refused},
	{status: 400, kind: "invalid_request_error", code: "insufficient_capabilities_for_transfer",
		wants: stripeapi.Refused},
	// Our own.
	{status: 401, kind: "invalid_request_error", msg: "Invalid API Key provided.", wants: stripeapi.Ours},
	{status: 401, kind: "invalid_request_error", code: "api_key_expired", wants: stripeapi.Ours},
	{status: 403, kind: "invalid_request_error", msg: "The provided key does not have the required permissions.",
		wants: stripeapi.Ours},
	{status: 403, kind: "card_error", code: "card_declined", wants: stripeapi.Ours},
	{status: 429, kind: "invalid_request_error", code: "rate_limit", wants: stripeapi.Ours},
	{status: 429, kind: "invalid_request_error", code: "lock_timeout", wants: stripeapi.Ours},
	{status: 400, kind: "invalid_request_error", code: "balance_insufficient", wants: stripeapi.Ours, replayed: true},
	{status: 400, kind: "invalid_request_error", msg: "Your account cannot currently make live charges.",
		wants: stripeapi.Ours},
	{status: 400, kind: "invalid_request_error", code: "testmode_charges_only", wants: stripeapi.Ours},
	{status: 400, kind: "invalid_request_error", code: "resource_missing", param: "customer",
		msg:   "No such customer: 'cus_1'; a similar object exists in test mode, but a live mode key was used.",
		wants: stripeapi.Ours},
	{status: 400, kind: "invalid_request_error", code: "parameter_unknown", wants: stripeapi.Ours},
	{status: 400, kind: "invalid_request_error", msg: "Refund amount ($25.00) is greater than unrefunded amount.",
		wants: stripeapi.Ours},
	{status: 400, kind: "invalid_request_error", code: "a_code_of_tomorrow", wants: stripeapi.Ours},
	{status: 404, kind: "invalid_request_error", msg: "Unrecognized request URL.", wants: stripeapi.Ours},
	// Not now.
	{status: 400, kind: "invalid_request_error", code: "charge_disputed", wants: stripeapi.NotNow},
	{status: 400, kind: "invalid_request_error", code: "refund_disputed_payment", wants: stripeapi.NotNow},
	// Unknown.
	{status: 500, kind: "api_error", wants: stripeapi.Unknown, replayed: true},
	{status: 500, kind: "card_error", code: "card_declined", wants: stripeapi.Unknown},
	{status: 502, notOfStripe: true, wants: stripeapi.Unknown},
	{status: 404, notOfStripe: true, wants: stripeapi.Unknown},
	{status: 403, notOfStripe: true, wants: stripeapi.Unknown},
	{status: 400, kind: "api_error", wants: stripeapi.Unknown},
	{status: 400, kind: "idempotency_error", wants: stripeapi.Unknown, replayed: true},
	{status: 409, kind: "invalid_request_error", wants: stripeapi.Unknown},
	{status: 409, kind: "idempotency_error", code: "idempotency_key_in_use", wants: stripeapi.Unknown},
	{status: 408, kind: "invalid_request_error", wants: stripeapi.Unknown},
	{status: 424, kind: "invalid_request_error", wants: stripeapi.Unknown},
	// Gone.
	{status: 400, kind: "invalid_request_error", code: "resource_missing", param: "customer", wants: stripeapi.Gone,
		missing: stripeapi.MissingCustomer},
	{status: 400, kind: "invalid_request_error", code: "resource_missing", msg: "No such customer: 'cus_1'",
		wants: stripeapi.Gone, missing: stripeapi.MissingCustomer},
	{status: 404, kind: "invalid_request_error", code: "resource_missing", param: "id",
		msg: "No such customer: 'cus_1'", wants: stripeapi.Gone, missing: stripeapi.MissingCustomer},
	{status: 404, kind: "invalid_request_error", code: "resource_missing", msg: "No such PaymentMethod: 'pm_1'",
		wants: stripeapi.Gone, missing: stripeapi.MissingCard},
	{status: 400, kind: "invalid_request_error", code: "resource_missing", param: "destination",
		msg: "No such destination: 'acct_1'", wants: stripeapi.Gone, missing: stripeapi.MissingPayee},
	{status: 403, kind: "invalid_request_error", code: "account_invalid",
		msg:   "The provided key does not have access to account 'acct_1' (or that account does not exist).",
		wants: stripeapi.Gone, missing: stripeapi.MissingPayee},
	{status: 404, kind: "invalid_request_error", code: "resource_missing", msg: "No such payment_intent: 'pi_1'",
		wants: stripeapi.Gone},
}

func TestSort(t *testing.T) {
	t.Parallel()
	for _, a := range answers {
		name := fmt.Sprint(a.status, a.kind, a.code, a.param, a.msg)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if w.Header().Set("Content-Type", "application/json"); a.replayed {
				w.Header().Set("Idempotent-Replayed", "true")
			}
			w.WriteHeader(a.status)
			switch {
			case a.notOfStripe:
				_, _ = io.WriteString(w, "<html>Bad Gateway</html>")
			case a.status == http.StatusOK:
				_, _ = io.WriteString(w, `{"id": "cus_1", "object": "customer"}`)
			default:
				_, _ = fmt.Fprintf(w, `{"error": {"type": %q, "code": %q, "param": %q, "message": %q}}`, a.kind, a.code,
					a.param, a.msg)
			}
		}))
		client := stripeapi.NewClient("sk_test_key", server.URL, nil, 0)
		_, err := stripe.Create[stripe.Customer](t.Context(), client, nil, "")
		got := stripeapi.Sort(fmt.Errorf("wrapped: %w", err))
		if err == nil {
			got = stripeapi.Sort(nil)
		}
		if got.Outcome != a.wants || got.Missing != a.missing || got.Replayed != a.replayed {
			t.Errorf("%s: %+v, want %q, missing %q, replayed %t", name, got, a.wants, a.missing, a.replayed)
		}
		server.Close()
	}
}

// TestSortCuts sorts what never came from Stripe.
func TestSortCuts(t *testing.T) {
	t.Parallel()
	for _, err := range []error{context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF, errors.New("cut")} {
		if got := stripeapi.Sort(err); got.Outcome != stripeapi.Unknown || got.Text == "" {
			t.Errorf("%v: %+v", err, got)
		}
	}
}
