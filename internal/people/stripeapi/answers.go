package stripeapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/base/stripe"
)

// An Outcome says what an answer of Stripe means for what was asked.
type Outcome string

const (
	// Done says that Stripe has done it.
	Done Outcome = "done"
	// Refused says that the bank refuses it, or that there is nothing left that it could be done with: Stripe would
	// answer the same again. Nothing was done.
	Refused Outcome = "refused"
	// Ours says that Stripe refuses us: our key, its permissions, our pace, our account or its balance, our request.
	// Nothing was done. It says nothing about what was asked, and ends nothing; the operator mends it.
	Ours Outcome = "ours"
	// NotNow says that nothing was done because a bank has to decide about the charge first.
	NotNow Outcome = "not now"
	// Unknown says that Stripe may have done it, now or later.
	Unknown Outcome = "unknown"
	// Gone says that something which the request names is no longer there. Nothing was done.
	Gone Outcome = "gone"
)

// What an Answer with the outcome Gone may say is missing.
const (
	MissingCustomer = "customer"
	MissingCard     = "card"
	MissingPayee    = "payee"
)

// An Answer is what Stripe's answer to a request means.
type Answer struct {
	Outcome  Outcome
	Missing  string // Gone: what is missing; "" = something else
	Replayed bool   // Stripe has a stored answer to an earlier request with the same key: it repeats it, or refuses
	Text     string // Stripe's words, for the operator
}

// A type and a code of errors.
const (
	idempotencyError = "idempotency_error"
	accountInvalid   = "account_invalid"
)

// refusals are the codes of errors that say what a bank decided, or that what was asked can never be done. Errors of
// cards say it by their type.
var refusals = []string{
	"account_closed",
	"authentication_required",
	"bank_account_declined",
	"card_declined",
	"charge_already_refunded",
	"charge_not_refundable",
	"debit_not_authorized",
	"expired_card",
	"india_recurring_payment_mandate_canceled",
	"insufficient_funds",
	"payment_intent_authentication_failure",
	"payment_intent_mandate_invalid",
	"payment_method_customer_decline",
	"payment_method_provider_decline",
	"insufficient_capabilities_for_transfer", // of a payee
}

// Sort sorts the answer to a request. It is the one place that knows how Stripe refuses:
//
//   - What is no error of Stripe's API was cut, or answered by something in between. Statuses of 500 and more,
//     conflicts with a request that is still carried out, and a key that was used with other parameters do not say
//     what was done either.
//   - 401, 403 and 429 refuse us. So does every 400 that no code marks as a bank's or as a missing object: an account
//     that is not activated, a balance that is too small, a mode that differs, a request that is wrong.
//   - 403 account_invalid names the connected account that our key has no access to, or that does not exist.
func Sort(err error) Answer {
	if err == nil {
		return Answer{Outcome: Done}
	}
	e, ok := errors.AsType[*stripe.Error](err)
	if !ok {
		return Answer{Outcome: Unknown, Text: err.Error()}
	}
	a := Answer{Text: e.Error()}
	a.Replayed = e.Replayed || e.Type == idempotencyError && e.Status != http.StatusConflict
	if a.Outcome = sortError(e); a.Outcome == Gone {
		a.Missing = findMissing(e)
	}
	return a
}

func sortError(e *stripe.Error) Outcome {
	switch {
	case e.Status < 400 || e.Status >= 500, e.Type == "api_error", e.Type == idempotencyError,
		e.Code == "idempotency_key_in_use":
		return Unknown
	case e.Code == accountInvalid:
		return Gone
	}
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return Ours
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusFailedDependency:
		return Unknown
	}
	switch {
	case e.Code == "resource_missing" && !isOfOtherMode(e):
		return Gone
	case e.Code == "charge_disputed", e.Code == "refund_disputed_payment":
		return NotNow
	case e.Type == "card_error", slices.Contains(refusals, e.Code):
		return Refused
	}
	return Ours
}

// isOfOtherMode reports whether the object exists in the other mode, live or test: then our key is the wrong one.
func isOfOtherMode(e *stripe.Error) bool {
	return strings.Contains(e.Message, "a similar object exists in")
}

// findMissing returns what is missing, by the parameter that names it, or by Stripe's words where the path does.
func findMissing(e *stripe.Error) string {
	what := e.Param
	if rest, ok := strings.CutPrefix(e.Message, "No such "); ok && (what == "" || what == "id") {
		what, _, _ = strings.Cut(rest, ":")
	}
	switch strings.ToLower(what) {
	case "customer":
		return MissingCustomer
	case "payment_method", "paymentmethod":
		return MissingCard
	case "account", "destination":
		return MissingPayee
	}
	if e.Code == accountInvalid {
		return MissingPayee
	}
	return ""
}

// DeclinedPayment returns the payment that an answer which declines its card names, or nil.
func DeclinedPayment(err error) *stripe.PaymentIntent {
	if e, ok := errors.AsType[*stripe.Error](err); ok && e.Status < http.StatusInternalServerError {
		return e.Payment
	}
	return nil
}

// WasBankAsked reports whether a payment has reached the bank of its card.
func WasBankAsked(p *stripe.PaymentIntent) bool {
	return p.LatestCharge != nil || p.LastPaymentError != nil
}

// NameDecline names why a bank declined the card of a payment. The charge keeps the reason after the payment is
// canceled.
func NameDecline(p *stripe.PaymentIntent) string {
	code, reason := "", ""
	if c := p.LatestCharge; c != nil {
		code = c.FailureCode
		if c.Outcome != nil {
			reason = c.Outcome.Reason
		}
	}
	if e := p.LastPaymentError; e != nil && code == "" {
		code, reason = e.Code, e.DeclineCode
	}
	switch {
	case code == "authentication_required" || reason == "authentication_required":
		return "needs_authentication"
	case code == "expired_card":
		return "card_expired"
	case reason == stripe.InsufficientFunds:
		return "insufficient_funds"
	case code == "card_declined":
		return "card_declined"
	}
	return "payment_failed"
}
