package topups

import (
	"errors"
	"net/http"

	"github.com/stripe/stripe-go/v85"
)

// A Refusal is Stripe's final answer that it does not do what was asked, such as a refund. Only requests that change
// something return it: a look-up that fails says nothing about what was looked for.
type Refusal struct{ Text string }

func (r *Refusal) Error() string { return "refused by stripe: " + r.Text }

// AsRefusal returns a *Refusal for an error of a request that changes something at Stripe, if Stripe would answer the
// same next time. It returns err as it is if the answer blames our key, our pace, our balance at Stripe or a repeated
// key, and if it is unknown what Stripe did.
func AsRefusal(err error) error {
	e, ok := errors.AsType[*stripe.Error](err)
	if !ok || e.HTTPStatusCode < 400 || e.HTTPStatusCode >= 500 || e.Type == stripe.ErrorTypeIdempotency ||
		e.Code == stripe.ErrorCodeBalanceInsufficient {
		return err
	}
	switch e.HTTPStatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusConflict,
		http.StatusTooManyRequests:
		return err
	}
	return &Refusal{e.Msg}
}
