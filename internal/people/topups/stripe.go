package topups

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/people/stripeapi"
)

// Config is the configuration of Stripe.
type Config struct {
	Key           string        // API key; "" = top-ups are unavailable
	WebhookSecret string        // verifies the signatures of events
	BaseURL       string        // API of an emulator; "" = Stripe's
	Clearance     time.Duration // clearance hold of each payment
	Invoices      Invoices
}

// Invoices says whether Stripe makes an invoice of each top-up (decision 114).
type Invoices string

// NoInvoices is the default. PlainInvoices have the customer's tax id; TaxedInvoices have the tax that Stripe Tax
// computes, too, which is a part of the amount.
const (
	NoInvoices    Invoices = ""
	PlainInvoices Invoices = "on"
	TaxedInvoices Invoices = "taxed"
)

// isLive reports whether the key is for live mode, which moves real money.
func (c Config) isLive() bool {
	return len(c.Key) > 8 && (c.Key[:8] == "sk_live_" || c.Key[:8] == "rk_live_")
}

// order has the values of a checkout that Stripe must confirm.
type order struct {
	ID, AccountID string
	Cents         int64
	NamedID       string // the top-up that Stripe's objects name, because they paid for it a second time; "" = ID
}

// name returns the id by which Stripe's objects name the order.
func (o order) name() string { return cmp.Or(o.NamedID, o.ID) }

const currency = stripe.USD

// makeSession makes the Checkout session of a checkout. A repeated request returns the same session. A customer that
// Stripe no longer has is replaced.
func (s *Store) makeSession(ctx context.Context, c *checkout) (session *stripe.CheckoutSession, err error) {
	open := func(key string) (err error) {
		session, err = s.createSession(ctx, *c, key)
		return err
	}
	err = s.requests().Make(ctx, stripeapi.Session, c.ID, "", open)
	if stripeapi.Sort(err).Missing == stripeapi.MissingCustomer {
		if err := s.replaceCustomer(ctx, c); err != nil {
			return nil, err
		}
		err = s.requests().Make(ctx, stripeapi.Session, c.ID, "", open)
	}
	return session, err
}

func (s *Store) createSession(ctx context.Context, c checkout, key string) (*stripe.CheckoutSession, error) {
	p := stripe.Params{
		"mode":                                          "payment",
		"client_reference_id":                           c.ID,
		"success_url":                                   s.receiptURL(c.ID) + "?back=paid",
		"cancel_url":                                    s.receiptURL(c.ID) + "?back=cancelled",
		"adaptive_pricing[enabled]":                     "false",
		"line_items[0][quantity]":                       "1",
		"line_items[0][price_data][currency]":           currency,
		"line_items[0][price_data][unit_amount]":        strconv.FormatInt(c.Cents, 10),
		"line_items[0][price_data][product_data][name]": "Top-up of your Purser balance",
	}
	p.SetMetadata("", c.metadata())
	p.SetMetadata("payment_intent_data", c.metadata())
	if c.SaveCard { // only cards, and Stripe shows the terms of saving them
		p["customer"] = c.Customer
		p["payment_method_types[0]"] = "card"
		p["payment_intent_data[setup_future_usage]"] = "off_session"
		p["consent_collection[payment_method_reuse_agreement][position]"] = "auto"
	}
	s.addInvoice(p, c)
	return stripe.Create[stripe.CheckoutSession](ctx, s.client, p, key)
}

// addInvoice asks for an invoice, if there shall be one. The tax is included in the amount, so that what is paid stays
// what is credited.
func (s *Store) addInvoice(p stripe.Params, c checkout) {
	if s.Config.Invoices == NoInvoices {
		return
	}
	p["invoice_creation[enabled]"] = "true"
	p.SetMetadata("invoice_creation[invoice_data]", c.metadata())
	p["tax_id_collection[enabled]"] = "true"
	if c.SaveCard {
		p["customer_update[name]"] = "auto"
		p["customer_update[address]"] = "auto"
	}
	if s.Config.Invoices == TaxedInvoices {
		p["automatic_tax[enabled]"] = "true"
		p["line_items[0][price_data][tax_behavior]"] = "inclusive"
	}
}

// invoiceURL returns the page of the invoice that Stripe has made of a checkout; "" = there is none.
func (s *Store) invoiceURL(ctx context.Context, c checkout) (string, error) {
	p := stripe.Params{}
	p.Expand("invoice")
	session, err := stripe.Get[stripe.CheckoutSession](ctx, s.client, c.SessionID, p)
	switch {
	case stripeapi.Sort(err).Outcome == stripeapi.Gone || err == nil && session.Invoice == nil:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("topups: invoice: %w", err)
	}
	return session.Invoice.HostedInvoiceURL, nil
}

// metadata returns the ids by which Stripe's objects name the order.
func (o order) metadata() map[string]string {
	return map[string]string{"topup_id": o.ID, "account_id": o.AccountID}
}

// facts are the present state of a checkout at Stripe.
type facts struct {
	session  *stripe.CheckoutSession // nil for automatic payments
	intent   *stripe.PaymentIntent   // nil = not paid yet
	refunds  []*stripe.Refund
	disputes []*stripe.Dispute
}

// fetchFacts fetches the state of a checkout from Stripe.
func (s *Store) fetchFacts(ctx context.Context, c checkout) (f facts, err error) {
	p := stripe.Params{}
	if c.automatic() {
		p.Expand("latest_charge")
		if f.intent, err = stripe.Get[stripe.PaymentIntent](ctx, s.client, c.IntentID, p); err != nil {
			return f, fmt.Errorf("topups: payment: %w", err)
		}
	} else {
		members := []string{"payment_intent", "payment_intent.latest_charge"}
		if c.SaveCard {
			members = append(members, "payment_intent.payment_method")
		}
		p.Expand(members...)
		if f.session, err = stripe.Get[stripe.CheckoutSession](ctx, s.client, c.SessionID, p); err != nil {
			return f, fmt.Errorf("topups: session: %w", err)
		}
		f.intent = f.session.PaymentIntent
	}
	charge := f.latestCharge()
	if charge == nil {
		return f, nil
	}
	if f.refunds, err = s.listRefunds(ctx, f.intent.ID); err != nil {
		return f, err
	}
	if charge.Disputed {
		for d, err := range stripe.List[stripe.Dispute](ctx, s.client, stripe.Params{"payment_intent": f.intent.ID}) {
			if err != nil {
				return f, fmt.Errorf("topups: disputes: %w", err)
			}
			f.disputes = append(f.disputes, d)
		}
	}
	return f, nil
}

// findSessionOfIntent returns the id of the session that an intent paid for; "" if there is none.
func (s *Store) findSessionOfIntent(ctx context.Context, intent string) (string, error) {
	p := stripe.Params{"payment_intent": intent}
	for session, err := range stripe.List[stripe.CheckoutSession](ctx, s.client, p) {
		if err != nil {
			return "", fmt.Errorf("topups: session of an intent: %w", err)
		}
		return session.ID, nil
	}
	return "", nil
}

// hasMoney reports whether an intent has brought money, or may still do without anybody's doing.
func hasMoney(i *stripe.PaymentIntent) bool {
	return i.Status == stripe.Succeeded || i.Status == stripe.Processing
}

func (f facts) latestCharge() *stripe.Charge {
	if f.intent == nil {
		return nil
	}
	return f.intent.LatestCharge
}

func (f facts) isPaid() bool {
	if f.session == nil {
		return f.intent.Status == stripe.Succeeded
	}
	return f.session.PaymentStatus == stripe.SessionPaid && f.intent != nil
}

// failureReason returns why a payment has failed, "" if it has not.
func (f facts) failureReason() string {
	switch {
	case f.isPaid():
		return ""
	case f.session == nil && f.intent.Status == stripe.Canceled:
		return f.intentFailure()
	case f.session == nil:
		return ""
	case f.session.Status == stripe.SessionExpired:
		return "expired"
	case f.session.Status != stripe.SessionComplete || f.intent == nil:
		return ""
	case f.intent.Status == stripe.RequiresPaymentMethod ||
		f.intent.Status == stripe.Canceled:
		return "payment_failed" // an asynchronous payment method failed
	}
	return ""
}

// intentFailure returns why an automatic payment was canceled. Without a charge no bank was asked: Stripe wanted the
// user to confirm the payment first, which cancelIntent leaves as the reason, or did not get that far.
func (f facts) intentFailure() string {
	switch i := f.intent; {
	case stripeapi.WasBankAsked(i):
		return stripeapi.NameDecline(i)
	case i.CancellationReason == stripe.Abandoned:
		return "needs_authentication"
	}
	return stopped
}

// isContested reports whether a dispute is open or lost.
func isContested(d *stripe.Dispute) bool {
	switch d.Status {
	case stripe.DisputeNeedsResponse, stripe.DisputeUnderReview, stripe.DisputeLost:
		return true
	}
	return false
}

// isUndecided reports whether a dispute may still end otherwise, or an inquiry may become a dispute.
func isUndecided(d *stripe.Dispute) bool {
	switch d.Status {
	case stripe.DisputeWarningNeedsResponse, stripe.DisputeWarningUnderReview:
		return true
	}
	return isContested(d) && d.Status != stripe.DisputeLost
}

// isOpen reports whether a dispute is not decided yet.
func (f facts) isOpen() bool {
	for _, d := range f.disputes {
		if isContested(d) && d.Status != stripe.DisputeLost {
			return true
		}
	}
	return false
}

// findDifference describes how the facts differ from the order, "" if they do not (F-65).
func (f facts) findDifference(c checkout, live bool) string {
	if f.session != nil {
		return findSessionDifference(f.session, c.order, live)
	}
	return findIntentDifference(f.intent, c, live)
}

// findSessionDifference describes how a session differs from the order, "" if it does not (F-65).
func findSessionDifference(s *stripe.CheckoutSession, o order, live bool) string {
	switch {
	case s.AmountTotal != o.Cents:
		return fmt.Sprintf("amount_total is %d cents, ordered were %d", s.AmountTotal, o.Cents)
	case s.Currency != currency:
		return fmt.Sprintf("currency is %q", s.Currency)
	case s.ClientReferenceID != o.name() || s.Metadata["topup_id"] != o.name():
		return "it is for another top-up"
	case s.Metadata["account_id"] != o.AccountID:
		return "it is for another account"
	case s.Livemode != live:
		return fmt.Sprintf("livemode is %t", s.Livemode)
	}
	// The amount is 0 if the intent is not expanded.
	if i := s.PaymentIntent; i != nil && i.Amount != 0 && (i.Amount != o.Cents || i.Currency != currency) {
		return fmt.Sprintf("the payment is of %d %s", i.Amount, i.Currency)
	}
	return ""
}
