package ui

import "strings"

// TopUpForm is the page on which a person puts money in (contract §2, semantics 8).
type TopUpForm struct {
	Shell
	Off           bool // payments are not set up on this server
	Available     string
	Below         bool     // a payment went back, and the balance is below zero
	Tokens        []string // of its two forms: each is one attempt, however often it is sent
	Amounts       []string // of the buttons, in dollars
	Amount        string   // as typed
	Least, Most   string
	List          []Payment // the newest few
	Errors        []Problem
	Auto          string // what is topped up automatically; "" = nothing is set up
	WaitsForClear string // how long a payment waits before it can be used; "" = not at all
}

func (TopUpForm) name() string       { return "topups/top-up" }
func (TopUpForm) title() string      { return "Top up" }
func (TopUpForm) formAction() string { return "" } // the handler adds where people pay

// CardRefund is the page by which a person takes unspent money back.
type CardRefund struct {
	Shell
	Off        bool   // payments are not set up on this server
	Done       bool   // a refund was just asked for
	Available  string // in the balance
	Refundable string // of it, to the cards that brought it
	Nothing    bool   // Refundable is zero
	Token      string // of the form: one attempt, however often it is sent
	Amount     string // as typed
	Password   bool   // ask for the account's password
	Errors     []Problem
	List       []CardRefundRow
}

func (CardRefund) name() string       { return "topups/refund" }
func (CardRefund) title() string      { return "Return money to your card" }
func (CardRefund) formAction() string { return "" }

// ErrorOf returns the problem of a field, or "".
func (p CardRefund) ErrorOf(field string) string { return errorOf(p.Errors, field) }

// CardRefundRow is a refund that a person has asked for.
type CardRefundRow struct {
	Amount string
	When   string
	State  string // open, done, refused
	TopUp  string // the id of the top-up that it goes back to
}

// TopUpList lists what a person paid.
type TopUpList struct {
	Shell
	List []Payment
	More bool // there are older ones
}

func (TopUpList) name() string       { return "topups/list" }
func (TopUpList) title() string      { return "Your top-ups" }
func (TopUpList) formAction() string { return "" }

// Payment is one top-up, as people read it.
type Payment struct {
	ID     string
	Amount string
	When   string // it was begun
	State  string // open, clearing, settled, part, back, failed
}

// A TopUpReceipt is the page of one top-up.
type TopUpReceipt struct {
	Shell
	Payment
	Back      string // from Stripe: paid, cancelled, no-invoice or no-stripe; or ""
	Pay       string // where it can still be paid; "" = nowhere
	Settled   string // when it was credited; "" = not yet
	Clears    string // when it will be, if it is paid
	Reason    string // why it failed
	Returned  string // what went back
	Disputed  bool
	Automatic bool   // charged to the saved card
	SavesCard bool   // it was paid to save a card
	Invoice   bool   // Stripe may have one
	Reference string // stripe_payment_intent
	Entries   []LedgerLine
}

// LedgerLine is one ledger row of a TopUpReceipt.
type LedgerLine struct{ ID, When, What, Amount string }

func (TopUpReceipt) name() string       { return "topups/receipt" }
func (r TopUpReceipt) title() string    { return "Top-up of " + strings.TrimSuffix(r.Amount, ".00") }
func (TopUpReceipt) formAction() string { return "" }
