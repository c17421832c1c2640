package stripeapi

import (
	"context"

	"github.com/purserhq/purser/internal/base/stripe"
)

// A Permission is one that a restricted key needs, as Stripe's dashboard names it.
type Permission struct {
	Name  string
	probe func(context.Context, *stripe.Client) error
}

// nobody is the id of an object that does not exist: a request that would change it needs the permission, and changes
// nothing.
const nobody = "purser_doctor"

// Permissions returns what a restricted key needs, also to pay developers if payouts is set.
func Permissions(payouts bool) []Permission {
	list := []Permission{
		{"Checkout Sessions: write", change[stripe.CheckoutSession]("cs_", "expire")},
		{"Customers: write", change[stripe.Customer]("cus_", "")},
		{"PaymentIntents: write", change[stripe.PaymentIntent]("pi_", "cancel")},
		{"PaymentMethods: write", change[stripe.PaymentMethod]("pm_", "detach")},
		{"Charges and Refunds: write", change[stripe.Refund]("re_", "")},
		{"Disputes: read", func(ctx context.Context, c *stripe.Client) error {
			for _, err := range stripe.List[stripe.Dispute](ctx, c, stripe.Params{"limit": "1"}) {
				return err
			}
			return nil
		}},
	}
	if !payouts {
		return list
	}
	return append(list,
		Permission{"Accounts: write", change[stripe.Account]("acct_", "")},
		Permission{"Account Links: write", func(ctx context.Context, c *stripe.Client) error {
			_, err := stripe.Create[stripe.AccountLink](ctx, c, stripe.Params{
				"account": "acct_" + nobody,
				"type":    "account_onboarding",
			}, "")
			return err
		}},
		Permission{"Transfers: write", change[stripe.Transfer]("tr_", "")})
}

// change returns a probe that would change an object.
func change[T stripe.Object](prefix, action string) func(context.Context, *stripe.Client) error {
	return func(ctx context.Context, c *stripe.Client) error {
		_, err := stripe.Act[T](ctx, c, prefix+nobody, action, nil)
		return err
	}
}

// Probe asks Stripe whether a key has a permission, by a request that changes nothing.
func (p Permission) Probe(ctx context.Context, c *stripe.Client) Answer { return Sort(p.probe(ctx, c)) }
