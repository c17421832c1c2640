package topups

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/purserhq/purser/internal/base/money"
)

// Config is how Stripe is reached.
type Config struct {
	Key           string        // of Stripe's API; "" = nobody can top up
	WebhookSecret string        // signs its events
	BaseURL       string        // of its API, if not Stripe's own: an emulator
	Clearance     time.Duration // how long paid money waits before it can be used
}

// isLive says whether the key moves real money.
func (c Config) isLive() bool {
	return len(c.Key) > 8 && (c.Key[:8] == "sk_live_" || c.Key[:8] == "rk_live_")
}

// requestTimeout is how long one question to Stripe may take.
const requestTimeout = 20 * time.Second

func newClient(c Config) *stripe.Client {
	backend := &stripe.BackendConfig{
		HTTPClient:    &http.Client{Timeout: requestTimeout},
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}
	if c.BaseURL != "" {
		backend.URL = &c.BaseURL
	}
	return stripe.NewClient(c.Key, stripe.WithBackends(stripe.NewBackendsWithConfig(backend)))
}

// order is what a checkout asks of Stripe, and what Stripe must say it sells.
type order struct {
	ID, AccountID string
	Cents         int64
}

const currency = stripe.CurrencyUSD

// createSession opens Checkout, or returns the session that the same order opened before:
// its id is the idempotency key.
func (s *Store) createSession(ctx context.Context, c checkout) (*stripe.CheckoutSession, error) {
	text := stripe.String[string]
	p := &stripe.CheckoutSessionCreateParams{
		Mode:              text("payment"),
		ClientReferenceID: &c.ID,
		SuccessURL:        text(s.receiptURL(c.ID) + "?back=paid"),
		CancelURL:         text(s.receiptURL(c.ID) + "?back=cancelled"),
		AdaptivePricing:   &stripe.CheckoutSessionCreateAdaptivePricingParams{Enabled: stripe.Bool(false)},
		LineItems: []*stripe.CheckoutSessionCreateLineItemParams{
			{Quantity: stripe.Int64(1),
				PriceData: &stripe.CheckoutSessionCreateLineItemPriceDataParams{
					Currency:   text(string(currency)),
					UnitAmount: &c.Cents,
					ProductData: &stripe.CheckoutSessionCreateLineItemPriceDataProductDataParams{
						Name: text("Top-up of your Purser balance"),
					},
				}},
		},
		PaymentIntentData: &stripe.CheckoutSessionCreatePaymentIntentDataParams{Metadata: c.metadata()},
		Metadata:          c.metadata(),
	}
	if c.SaveCard { // a card, and Stripe shows what keeping it means
		p.Customer, p.PaymentMethodTypes, p.PaymentIntentData.SetupFutureUsage = &c.Customer, []*string{text("card")},
			text("off_session")
		p.ConsentCollection = &stripe.CheckoutSessionCreateConsentCollectionParams{
			PaymentMethodReuseAgreement: &stripe.CheckoutSessionCreateConsentCollectionPaymentMethodReuseAgreementParams{
				Position: text("auto"),
			},
		}
	}
	p.SetIdempotencyKey(c.ID)
	return s.client.V1CheckoutSessions.Create(ctx, p)
}

// metadata names the order in whatever Stripe makes of it.
func (o order) metadata() map[string]string {
	return map[string]string{"topup_id": o.ID, "account_id": o.AccountID}
}

// facts are what Stripe says of a checkout, as of now.
type facts struct {
	session  *stripe.CheckoutSession // nil: the payment is automatic
	intent   *stripe.PaymentIntent   // nil: nobody has paid yet
	disputes []*stripe.Dispute
}

// fetchFacts returns what Stripe says of a checkout.
func (s *Store) fetchFacts(ctx context.Context, c checkout) (f facts, err error) {
	if c.automatic() {
		p := &stripe.PaymentIntentRetrieveParams{}
		p.AddExpand("latest_charge")
		if f.intent, err = s.client.V1PaymentIntents.Retrieve(ctx, c.IntentID, p); err != nil {
			return f, fmt.Errorf("topups: payment: %w", err)
		}
	} else {
		p := &stripe.CheckoutSessionRetrieveParams{}
		p.AddExpand("payment_intent")
		p.AddExpand("payment_intent.latest_charge")
		if c.SaveCard {
			p.AddExpand("payment_intent.payment_method")
		}
		if f.session, err = s.client.V1CheckoutSessions.Retrieve(ctx, c.SessionID, p); err != nil {
			return f, fmt.Errorf("topups: session: %w", err)
		}
		f.intent = f.session.PaymentIntent
	}
	if charge := f.latestCharge(); charge != nil && charge.Disputed {
		for d, err := range s.client.V1Disputes.List(ctx,
			&stripe.DisputeListParams{PaymentIntent: &f.intent.ID}).All(ctx) {
			if err != nil {
				return f, fmt.Errorf("topups: disputes: %w", err)
			}
			f.disputes = append(f.disputes, d)
		}
	}
	return f, nil
}

// findSessionOfIntent finds the session that an intent paid for; "" if it paid for none.
func (s *Store) findSessionOfIntent(ctx context.Context, intent string) (string, error) {
	for session, err := range s.client.V1CheckoutSessions.List(ctx,
		&stripe.CheckoutSessionListParams{PaymentIntent: &intent}).All(ctx) {
		if err != nil {
			return "", fmt.Errorf("topups: session of an intent: %w", err)
		}
		return session.ID, nil
	}
	return "", nil
}

// isUnknown says whether Stripe has never heard of what was asked for.
func isUnknown(err error) bool {
	e, ok := errors.AsType[*stripe.Error](err)
	return ok && e.Code == stripe.ErrorCodeResourceMissing
}

func (f facts) latestCharge() *stripe.Charge {
	if f.intent == nil {
		return nil
	}
	return f.intent.LatestCharge
}

func (f facts) isPaid() bool {
	if f.session == nil {
		return f.intent.Status == stripe.PaymentIntentStatusSucceeded
	}
	return f.session.PaymentStatus == stripe.CheckoutSessionPaymentStatusPaid && f.intent != nil
}

// failureReason says why nobody will pay, or "".
func (f facts) failureReason() string {
	switch {
	case f.isPaid():
		return ""
	case f.session == nil && f.intent.Status == stripe.PaymentIntentStatusCanceled:
		return f.declineReason()
	case f.session == nil:
		return ""
	case f.session.Status == stripe.CheckoutSessionStatusExpired:
		return "expired"
	case f.session.Status != stripe.CheckoutSessionStatusComplete || f.intent == nil:
		return ""
	case f.intent.Status == stripe.PaymentIntentStatusRequiresPaymentMethod ||
		f.intent.Status == stripe.PaymentIntentStatusCanceled:
		return "payment_failed" // an asynchronous method that came to nothing
	}
	return ""
}

// refundedMC is what was given back of the charge.
func (f facts) refundedMC() money.MC {
	if c := f.latestCharge(); c != nil {
		return money.MC(c.AmountRefunded) * money.Cent
	}
	return 0
}

// lostMC is what disputes took.
func (f facts) lostMC() (sum money.MC) {
	for _, d := range f.disputes {
		if d.Status == stripe.DisputeStatusLost {
			sum += money.MC(d.Amount) * money.Cent
		}
	}
	return sum
}

// isContested says whether a dispute may still take money, or has.
func isContested(d *stripe.Dispute) bool {
	switch d.Status {
	case stripe.DisputeStatusNeedsResponse, stripe.DisputeStatusUnderReview, stripe.DisputeStatusLost:
		return true
	}
	return false
}

// isOpen says whether a dispute is not decided yet.
func (f facts) isOpen() bool {
	for _, d := range f.disputes {
		if isContested(d) && d.Status != stripe.DisputeStatusLost {
			return true
		}
	}
	return false
}

// findDifference says in what the facts are not what was ordered, or "" (F-65).
func (f facts) findDifference(c checkout, live bool) string {
	if f.session != nil {
		return findSessionDifference(f.session, c.order, live)
	}
	return findIntentDifference(f.intent, c, live)
}

// findSessionDifference says in what a session is not what was ordered, or "" (F-65).
func findSessionDifference(s *stripe.CheckoutSession, o order, live bool) string {
	switch {
	case s.AmountTotal != o.Cents:
		return fmt.Sprintf("amount_total is %d cents, ordered were %d", s.AmountTotal, o.Cents)
	case s.Currency != currency:
		return fmt.Sprintf("currency is %q", s.Currency)
	case s.ClientReferenceID != o.ID || s.Metadata["topup_id"] != o.ID:
		return "it is for another top-up"
	case s.Metadata["account_id"] != o.AccountID:
		return "it is for another account"
	case s.Livemode != live:
		return fmt.Sprintf("livemode is %t", s.Livemode)
	}
	// it is expanded
	if i := s.PaymentIntent; i != nil && i.Amount != 0 && (i.Amount != o.Cents || i.Currency != currency) {
		return fmt.Sprintf("the payment is of %d %s", i.Amount, i.Currency)
	}
	return ""
}
