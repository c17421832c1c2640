package topups

import (
	"context"
	"fmt"
	"strconv"

	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/people/stripeapi"
)

// createCustomer creates the Stripe customer of an account, which holds its card.
func (s *Store) createCustomer(ctx context.Context, accountID, key string) (string, error) {
	p := stripe.Params{"metadata[account_id]": accountID}
	c, err := stripe.Create[stripe.Customer](ctx, s.client, p, key)
	if err != nil {
		return "", err
	}
	return c.ID, nil
}

// deleteCustomer deletes a customer at Stripe. One that Stripe does not have is no error.
func (s *Store) deleteCustomer(ctx context.Context, customer string) error {
	err := stripe.Delete[stripe.Customer](ctx, s.client, customer)
	if err != nil && stripeapi.Sort(err).Missing != stripeapi.MissingCustomer {
		return fmt.Errorf("topups: delete customer: %w", err)
	}
	return nil
}

// createIntent charges the saved card without the user (off session). It returns the payment of a card that was
// declined, too.
func (s *Store) createIntent(ctx context.Context, c checkout, key string) (*stripe.PaymentIntent, error) {
	p := stripe.Params{
		"amount":                  strconv.FormatInt(c.Cents, 10),
		"currency":                currency,
		"customer":                c.Customer,
		"payment_method":          c.PaymentMethod,
		"payment_method_types[0]": "card",
		"confirm":                 "true",
		"off_session":             "true",
		"description":             "Automatic top-up of your Purser balance",
	}
	p.SetMetadata("", c.metadata())
	intent, err := stripe.Create[stripe.PaymentIntent](ctx, s.once, p, key)
	if declined := stripeapi.DeclinedPayment(err); declined != nil {
		return declined, nil
	}
	return intent, err
}

// getIntent finds the payment of an attempt whose response was lost; nil if there is none.
func (s *Store) getIntent(ctx context.Context, c checkout) (*stripe.PaymentIntent, error) {
	p := stripe.Params{"customer": c.Customer}
	p["created[gte]"] = strconv.FormatInt(c.CreatedUS/1e6-3600, 10) // clocks differ
	for i, err := range stripe.List[stripe.PaymentIntent](ctx, s.client, p) {
		if err != nil {
			return nil, fmt.Errorf("topups: payments of a customer: %w", err)
		} else if i.Metadata["topup_id"] == c.ID {
			return i, nil
		}
	}
	return nil, nil
}

// cancelIntent cancels a payment that is not paid. It returns no error for a payment that has already ended; the caller
// fetches its state. Stripe keeps that it was abandoned by the user, if it waits for the user to confirm it.
func (s *Store) cancelIntent(ctx context.Context, i *stripe.PaymentIntent) error {
	p, intentID := stripe.Params{}, i.ID
	if i.Status == stripe.RequiresAction {
		p["cancellation_reason"] = stripe.Abandoned
	}
	_, err := stripe.Act[stripe.PaymentIntent](ctx, s.client, intentID, "cancel", p)
	if err == nil {
		return nil
	}
	intent, failed := stripe.Get[stripe.PaymentIntent](ctx, s.client, intentID, nil)
	if failed == nil && !(facts{intent: intent}).isStuck() {
		return nil
	}
	return fmt.Errorf("topups: cancel %s: %w", intentID, err)
}

// detachCard deletes a card at Stripe. A card that Stripe does not know, or that belongs to no customer any more, is no
// error.
func (s *Store) detachCard(ctx context.Context, paymentMethod string) error {
	_, err := stripe.Act[stripe.PaymentMethod](ctx, s.client, paymentMethod, "detach", nil)
	if err == nil {
		return nil
	}
	kept, failed := s.isCardKept(ctx, paymentMethod)
	if failed == nil && !kept {
		return nil
	}
	return fmt.Errorf("topups: detach: %w", err)
}

// isCardKept reports whether Stripe keeps a card for a customer. A key of another account than ours is an error.
func (s *Store) isCardKept(ctx context.Context, paymentMethod string) (bool, error) {
	m, err := stripe.Get[stripe.PaymentMethod](ctx, s.client, paymentMethod, nil)
	if answer := stripeapi.Sort(err); answer.Outcome == stripeapi.Gone && answer.Missing == stripeapi.MissingCard {
		return false, s.account.Check(ctx)
	} else if err != nil {
		return false, fmt.Errorf("topups: card: %w", err)
	}
	return m.Customer != nil, nil
}

// isStuck reports whether an automatic payment waits for an action of the user.
func (f facts) isStuck() bool {
	switch f.intent.Status {
	case stripe.RequiresPaymentMethod, stripe.RequiresAction,
		stripe.RequiresConfirmation:
		return true
	}
	return false
}

// findIntentDifference describes how an automatic payment differs from the order, "" if it does not.
func findIntentDifference(i *stripe.PaymentIntent, c checkout, live bool) string {
	switch {
	case i.Amount != c.Cents:
		return fmt.Sprintf("the payment is of %d cents, ordered were %d", i.Amount, c.Cents)
	case i.Currency != currency:
		return fmt.Sprintf("currency is %q", i.Currency)
	case i.Metadata["topup_id"] != c.name():
		return "it is for another top-up"
	case i.Metadata["account_id"] != c.AccountID:
		return "it is for another account"
	case i.Customer == nil || i.Customer.ID != c.Customer:
		return "another customer pays"
	case i.Livemode != live:
		return fmt.Sprintf("livemode is %t", i.Livemode)
	case c.IntentID != "" && c.IntentID != i.ID:
		return "another payment is known for it"
	}
	return ""
}

// brandName returns the display name of a card brand.
func brandName(name string) string {
	names := map[string]string{
		"visa":       "Visa",
		"mastercard": "Mastercard",
		"amex":       "American Express",
		"discover":   "Discover",
		"diners":     "Diners Club",
		"jcb":        "JCB",
		"unionpay":   "UnionPay",
	}
	if s, ok := names[name]; ok {
		return s
	}
	return "Card"
}
