package stripe

import "encoding/json"

// USD is the currency of all amounts here. Stripe counts it in cents.
const USD = "usd"

// Statuses of payments, charges and refunds.
const (
	Succeeded             = "succeeded"
	Processing            = "processing"
	Pending               = "pending"
	Failed                = "failed"
	Canceled              = "canceled"
	RequiresPaymentMethod = "requires_payment_method"
	RequiresConfirmation  = "requires_confirmation"
	RequiresAction        = "requires_action"
)

// Statuses of Checkout sessions, and that of the payment of one.
const (
	SessionOpen     = "open"
	SessionComplete = "complete"
	SessionExpired  = "expired"
	SessionPaid     = "paid"
)

// Statuses of disputes. A warning is an inquiry that may become one.
const (
	DisputeNeedsResponse        = "needs_response"
	DisputeUnderReview          = "under_review"
	DisputeLost                 = "lost"
	DisputeWarningNeedsResponse = "warning_needs_response"
	DisputeWarningUnderReview   = "warning_under_review"
)

// Other words of Stripe's.
const (
	Abandoned         = "abandoned"          // why a payment was canceled: its user did not confirm it
	InsufficientFunds = "insufficient_funds" // why a refund is pending: our balance; why a card is declined
	CapabilityActive  = "active"             // what a connected account may do
)

// A CheckoutSession is a page of Stripe's where a user pays.
type CheckoutSession struct {
	ID                string            `json:"id"`
	URL               string            `json:"url"`
	Status            string            `json:"status"`
	PaymentStatus     string            `json:"payment_status"`
	AmountTotal       int64             `json:"amount_total"`
	Currency          string            `json:"currency"`
	ClientReferenceID string            `json:"client_reference_id"`
	Metadata          map[string]string `json:"metadata"`
	Livemode          bool              `json:"livemode"`
	PaymentIntent     *PaymentIntent    `json:"payment_intent"`
	Invoice           *Invoice          `json:"invoice"`
}

// An Invoice is one that Stripe makes of a checkout.
type Invoice struct {
	ID               string `json:"id"`
	HostedInvoiceURL string `json:"hosted_invoice_url"`
}

// A PaymentIntent is a payment, with all tries to make it.
type PaymentIntent struct {
	ID                 string            `json:"id"`
	Status             string            `json:"status"`
	CancellationReason string            `json:"cancellation_reason"`
	Amount             int64             `json:"amount"`
	Currency           string            `json:"currency"`
	Created            int64             `json:"created"`
	Metadata           map[string]string `json:"metadata"`
	Livemode           bool              `json:"livemode"`
	Customer           *Customer         `json:"customer"`
	PaymentMethod      *PaymentMethod    `json:"payment_method"`
	LatestCharge       *Charge           `json:"latest_charge"`
	LastPaymentError   *Error            `json:"last_payment_error"`
}

// A Customer holds the saved card of an account.
type Customer struct {
	ID string `json:"id"`
}

// A PaymentMethod is a saved card.
type PaymentMethod struct {
	ID       string    `json:"id"`
	Customer *Customer `json:"customer"` // nil = it was forgotten
	Card     *struct {
		Brand    string `json:"brand"`
		Last4    string `json:"last4"`
		ExpMonth int64  `json:"exp_month"`
		ExpYear  int64  `json:"exp_year"`
	} `json:"card"`
}

// A Charge is one try to make a payment.
type Charge struct {
	ID          string `json:"id"`
	Status      string `json:"status"`
	FailureCode string `json:"failure_code"`
	Created     int64  `json:"created"`
	Disputed    bool   `json:"disputed"`
	Outcome     *struct {
		Reason string `json:"reason"`
	} `json:"outcome"`
	PaymentIntent *PaymentIntent  `json:"payment_intent"`
	Method        *PaymentDetails `json:"payment_method_details"`
}

// PaymentDetails say by what a charge was paid. Of the kinds of payment, one is set.
type PaymentDetails struct {
	Type          string         `json:"type"`
	Card          *PaymentSource `json:"card"`
	USBankAccount *PaymentSource `json:"us_bank_account"`
	SEPADebit     *PaymentSource `json:"sepa_debit"`
	BACSDebit     *PaymentSource `json:"bacs_debit"`
	AUBECSDebit   *PaymentSource `json:"au_becs_debit"`
	ACSSDebit     *PaymentSource `json:"acss_debit"`
	Paypal        *PaymentSource `json:"paypal"`
	CashApp       *PaymentSource `json:"cashapp"`
}

// A PaymentSource is a card, a bank account or a wallet, by the name that Stripe gives to the same one each time.
type PaymentSource struct {
	Fingerprint string `json:"fingerprint"` // cards and bank accounts
	PayerID     string `json:"payer_id"`    // PayPal
	BuyerID     string `json:"buyer_id"`    // Cash App
}

// A Refund returns some of a payment.
type Refund struct {
	ID            string            `json:"id"`
	Status        string            `json:"status"`
	PendingReason string            `json:"pending_reason"`
	Amount        int64             `json:"amount"`
	Created       int64             `json:"created"`
	Metadata      map[string]string `json:"metadata"`
	PaymentIntent *PaymentIntent    `json:"payment_intent"`
}

// A Dispute is a payment that its user's bank takes back.
type Dispute struct {
	ID            string         `json:"id"`
	Status        string         `json:"status"`
	Amount        int64          `json:"amount"`
	Created       int64          `json:"created"`
	PaymentIntent *PaymentIntent `json:"payment_intent"`
}

// An Account is ours, or one that a developer is paid to.
type Account struct {
	ID               string `json:"id"`
	DetailsSubmitted bool   `json:"details_submitted"`
	PayoutsEnabled   bool   `json:"payouts_enabled"`
	Capabilities     struct {
		Transfers string `json:"transfers"`
	} `json:"capabilities"`
}

// An AccountLink is a page of Stripe's where a developer says whom to pay and where.
type AccountLink struct {
	URL string `json:"url"`
}

// A Transfer pays a developer.
type Transfer struct {
	ID             string            `json:"id"`
	Amount         int64             `json:"amount"`
	AmountReversed int64             `json:"amount_reversed"`
	Reversed       bool              `json:"reversed"`
	Currency       string            `json:"currency"`
	Created        int64             `json:"created"`
	Metadata       map[string]string `json:"metadata"`
}

func (CheckoutSession) resource() string { return "checkout/sessions" }
func (PaymentIntent) resource() string   { return "payment_intents" }
func (Customer) resource() string        { return "customers" }
func (PaymentMethod) resource() string   { return "payment_methods" }
func (Charge) resource() string          { return "charges" }
func (Refund) resource() string          { return "refunds" }
func (Dispute) resource() string         { return "disputes" }
func (Account) resource() string         { return "accounts" }
func (AccountLink) resource() string     { return "account_links" }
func (Transfer) resource() string        { return "transfers" }

func (s CheckoutSession) objectID() string { return s.ID }
func (p PaymentIntent) objectID() string   { return p.ID }
func (c Customer) objectID() string        { return c.ID }
func (m PaymentMethod) objectID() string   { return m.ID }
func (c Charge) objectID() string          { return c.ID }
func (r Refund) objectID() string          { return r.ID }
func (d Dispute) objectID() string         { return d.ID }
func (a Account) objectID() string         { return a.ID }
func (l AccountLink) objectID() string     { return l.URL } // it has no other
func (t Transfer) objectID() string        { return t.ID }

// decode decodes an object, or its id, where an answer has only that.
func decode(text []byte, id *string, whole any) error {
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, id)
	}
	return json.Unmarshal(text, whole)
}

// UnmarshalJSON decodes a payment or its id.
func (p *PaymentIntent) UnmarshalJSON(text []byte) error {
	type plain PaymentIntent
	return decode(text, &p.ID, (*plain)(p))
}

// UnmarshalJSON decodes a customer or its id.
func (c *Customer) UnmarshalJSON(text []byte) error {
	type plain Customer
	return decode(text, &c.ID, (*plain)(c))
}

// UnmarshalJSON decodes a payment method or its id.
func (m *PaymentMethod) UnmarshalJSON(text []byte) error {
	type plain PaymentMethod
	return decode(text, &m.ID, (*plain)(m))
}

// UnmarshalJSON decodes a charge or its id.
func (c *Charge) UnmarshalJSON(text []byte) error {
	type plain Charge
	return decode(text, &c.ID, (*plain)(c))
}

// UnmarshalJSON decodes an invoice or its id.
func (i *Invoice) UnmarshalJSON(text []byte) error {
	type plain Invoice
	return decode(text, &i.ID, (*plain)(i))
}
