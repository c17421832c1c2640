package stripeapi

import (
	"context"

	"github.com/stripe/stripe-go/v85"
)

// A Permission is one that a restricted key needs, as Stripe's dashboard names it.
type Permission struct {
	Name  string
	probe func(context.Context, *stripe.Client) error
}

// nobody is the id of an object that does not exist: a request that would change it needs the permission, and changes
// nothing.
const nobody = "purser_doctor"

// limit bounds a list of which only the permission is of interest.
var limit = stripe.ListParams{Limit: stripe.Int64(1), Single: true}

// Permissions returns what a restricted key needs, also to pay developers if payouts is set.
func Permissions(payouts bool) []Permission {
	list := []Permission{
		{"Checkout Sessions: write", func(ctx context.Context, c *stripe.Client) error {
			_, err := c.V1CheckoutSessions.Expire(ctx, "cs_"+nobody, nil)
			return err
		}},
		{"Customers: write", func(ctx context.Context, c *stripe.Client) error {
			_, err := c.V1Customers.Update(ctx, "cus_"+nobody, nil)
			return err
		}},
		{"PaymentIntents: write", func(ctx context.Context, c *stripe.Client) error {
			_, err := c.V1PaymentIntents.Cancel(ctx, "pi_"+nobody, nil)
			return err
		}},
		{"PaymentMethods: write", func(ctx context.Context, c *stripe.Client) error {
			_, err := c.V1PaymentMethods.Detach(ctx, "pm_"+nobody, nil)
			return err
		}},
		{"Charges and Refunds: write", func(ctx context.Context, c *stripe.Client) error {
			_, err := c.V1Refunds.Update(ctx, "re_"+nobody, nil)
			return err
		}},
		{"Disputes: read", func(ctx context.Context, c *stripe.Client) error {
			return firstError(c.V1Disputes.List(ctx, &stripe.DisputeListParams{ListParams: limit}).All(ctx))
		}},
	}
	if !payouts {
		return list
	}
	return append(list,
		Permission{"Accounts: write", func(ctx context.Context, c *stripe.Client) error {
			_, err := c.V1Accounts.Update(ctx, "acct_"+nobody, nil)
			return err
		}},
		Permission{"Account Links: write", func(ctx context.Context, c *stripe.Client) error {
			_, err := c.V1AccountLinks.Create(ctx, &stripe.AccountLinkCreateParams{
				Account: stripe.String("acct_" + nobody),
				Type:    stripe.String("account_onboarding"),
			})
			return err
		}},
		Permission{"Transfers: write", func(ctx context.Context, c *stripe.Client) error {
			_, err := c.V1Transfers.Update(ctx, "tr_"+nobody, nil)
			return err
		}})
}

// firstError returns the error of the first object of a list.
func firstError[T any](list stripe.Seq2[T, error]) error {
	for _, err := range list {
		return err
	}
	return nil
}

// Probe asks Stripe whether a key has a permission, by a request that changes nothing.
func (p Permission) Probe(ctx context.Context, c *stripe.Client) Answer { return Sort(p.probe(ctx, c)) }
