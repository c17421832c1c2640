package topups

import (
	"testing"

	"github.com/purserhq/purser/internal/base/stripe"
)

// TestSessionDifferences: a session of Checkout pays for an order only if each of its amounts, names and modes is the
// order's (F-65).
func TestSessionDifferences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*stripe.CheckoutSession)
		differs bool
	}{
		"as ordered":                  {func(*stripe.CheckoutSession) {}, false},
		"without its payment":         {func(s *stripe.CheckoutSession) { s.PaymentIntent = nil }, false},
		"a payment that is a name":    {func(s *stripe.CheckoutSession) { s.PaymentIntent.Amount = 0 }, false},
		"another amount":              {func(s *stripe.CheckoutSession) { s.AmountTotal = 501 }, true},
		"another currency":            {func(s *stripe.CheckoutSession) { s.Currency = "eur" }, true},
		"another top-up":              {func(s *stripe.CheckoutSession) { s.ClientReferenceID = "top_2" }, true},
		"another top-up in metadata":  {func(s *stripe.CheckoutSession) { s.Metadata["topup_id"] = "top_2" }, true},
		"another account":             {func(s *stripe.CheckoutSession) { s.Metadata["account_id"] = "B" }, true},
		"another mode":                {func(s *stripe.CheckoutSession) { s.Livemode = false }, true},
		"a payment of another amount": {func(s *stripe.CheckoutSession) { s.PaymentIntent.Amount = 499 }, true},
		"a payment of another money":  {func(s *stripe.CheckoutSession) { s.PaymentIntent.Currency = "eur" }, true},
	} {
		s := &stripe.CheckoutSession{
			AmountTotal: 500, Currency: "usd", ClientReferenceID: "top_1", Livemode: true,
			Metadata:      map[string]string{"topup_id": "top_1", "account_id": "A"},
			PaymentIntent: &stripe.PaymentIntent{ID: "pi", Amount: 500, Currency: "usd"},
		}
		c.change(s)
		got := findSessionDifference(s, order{ID: "top_1", AccountID: "A", Cents: 500}, true)
		if (got != "") != c.differs {
			t.Errorf("%s: %q", name, got)
		}
	}
}
