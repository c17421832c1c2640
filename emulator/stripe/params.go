package stripe

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// apiVersion is the one version of the API that is emulated. A request that names none gets it, too.
const apiVersion = "2026-03-25.dahlia"

// listed are the parameters of all lists.
const listed = " limit starting_after created[gte] expand[]"

// parameters are those of each route. Stripe refuses all others. An index is [], and so is a key of metadata.
var parameters = map[string]string{
	"POST /v1/checkout/sessions": "adaptive_pricing[enabled] automatic_tax[enabled] cancel_url client_reference_id " +
		"consent_collection[payment_method_reuse_agreement][position] customer customer_update[address] " +
		"customer_update[name] invoice_creation[enabled] invoice_creation[invoice_data][metadata][] " +
		"line_items[][price_data][currency] line_items[][price_data][product_data][name] " +
		"line_items[][price_data][tax_behavior] line_items[][price_data][unit_amount] line_items[][quantity] " +
		"metadata[] mode payment_intent_data[metadata][] payment_intent_data[setup_future_usage] " +
		"payment_method_types[] success_url tax_id_collection[enabled]",
	"GET /v1/checkout/sessions/{id}": "expand[]",
	"GET /v1/checkout/sessions":      "payment_intent" + listed,
	"POST /v1/refunds":               "amount metadata[] payment_intent",
	"GET /v1/refunds":                "payment_intent" + listed,
	"GET /v1/charges":                "payment_intent customer" + listed,
	"GET /v1/disputes":               "payment_intent" + listed,
	"POST /v1/customers":             "metadata[]",
	"POST /v1/payment_intents": "amount confirm currency customer description metadata[] off_session " +
		"payment_method payment_method_types[]",
	"GET /v1/payment_intents":              "customer" + listed,
	"GET /v1/payment_intents/{id}":         "expand[]",
	"POST /v1/payment_intents/{id}/cancel": "cancellation_reason",
	"POST /v1/accounts":                    "capabilities[transfers][requested] email metadata[] type",
	"POST /v1/account_links":               "account refresh_url return_url type",
	"POST /v1/transfers":                   "amount currency destination metadata[] transfer_group",
	"GET /v1/transfers":                    "destination transfer_group" + listed,
}

var (
	indexes      = regexp.MustCompile(`\[[0-9]+\]`)
	metadataKeys = regexp.MustCompile(`metadata(\]?)\[[^]]+\]`)
)

// findStrange returns the 400 for a request in another version of the API, or with a parameter that its route does not
// have, or nil.
func findStrange(r *http.Request) *apiError {
	if v := r.Header.Get("Stripe-Version"); v != "" && v != apiVersion {
		return badRequest("Invalid Stripe API version: " + v)
	}
	if err := r.ParseForm(); err != nil {
		return badRequest(err.Error())
	}
	known := strings.Fields(parameters[r.Pattern])
	for name := range r.Form {
		plain := metadataKeys.ReplaceAllString(indexes.ReplaceAllString(name, "[]"), "metadata$1[]")
		if !slices.Contains(known, plain) {
			failed := badRequest("Received unknown parameter: " + name)
			failed.code, failed.param = "parameter_unknown", name
			return failed
		}
	}
	return nil
}
