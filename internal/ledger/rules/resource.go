package rules

import (
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
)

// ConnectionResource is a connection as the API shows it (contract §2, Connection).
type ConnectionResource struct {
	ID                         string          `json:"id"`
	AppID                      string          `json:"app_id"`
	UserAccountID              string          `json:"user_account_id"`
	ReservedAllocationMC       money.MC        `json:"reserved_allocation_mc"`
	ReservedAllocationDisplay  string          `json:"reserved_allocation_display"`
	AllocationMC               money.MC        `json:"allocation_mc"`
	AllocationDisplay          string          `json:"allocation_display"`
	ConsumedMC                 money.MC        `json:"consumed_mc"`
	ConsumedDisplay            string          `json:"consumed_display"`
	HeldMC                     money.MC        `json:"held_mc"`
	HeldDisplay                string          `json:"held_display"`
	DelegatedMC                money.MC        `json:"delegated_mc,omitzero"` // of HeldMC: left to children
	AllocationRemainingMC      money.MC        `json:"allocation_remaining_mc"`
	AllocationRemainingDisplay string          `json:"allocation_remaining_display"`
	VelocityLimitMC            *money.MC       `json:"velocity_limit_mc"`
	VelocityLimitDisplay       *string         `json:"velocity_limit_display"`
	Status                     string          `json:"status"`
	Freeze                     *FreezeResource `json:"freeze"`
	CreatedAt                  string          `json:"created_at"`
	ChildID                    *string         `json:"child_id,omitempty"` // to a child's token: whose budget it shows
	RecentLedger               []EntryResource `json:"recent_ledger,omitempty"`
}

// FreezeResource says why a connection is frozen (decision 025).
type FreezeResource struct {
	Cause  FreezeCause `json:"cause"`
	Reason *string     `json:"reason"` // the operator's, in words
}

// Resource returns the connection in the contract's shape, without recent_ledger.
func (c Connection) Resource() ConnectionResource {
	held := c.SetAsideMC()
	r := ConnectionResource{
		ID: c.ID, AppID: c.AppID, UserAccountID: c.AccountID,
		ReservedAllocationMC: c.AllocationMC, ReservedAllocationDisplay: c.AllocationMC.Display(),
		AllocationMC: c.AllocationMC, AllocationDisplay: c.AllocationMC.Display(),
		ConsumedMC: c.ConsumedMC, ConsumedDisplay: c.ConsumedMC.Display(),
		HeldMC: held, HeldDisplay: held.Display(), DelegatedMC: c.UnheldDelegatedMC(),
		AllocationRemainingMC: c.RemainingMC(), AllocationRemainingDisplay: c.RemainingMC().Display(),
		VelocityLimitMC: c.VelocityLimitMC, Status: c.EffectiveStatus(), CreatedAt: timestamp.Format(c.CreatedUS),
	}
	if c.VelocityLimitMC != nil {
		d := c.VelocityLimitMC.Display()
		r.VelocityLimitDisplay = &d
	}
	if c.FrozenBy != "" {
		r.Freeze = &FreezeResource{c.FrozenBy, TextOrNull(c.FrozenReason)}
	}
	return r
}

// ChildResource is a child as the API shows it (decision 107).
type ChildResource struct {
	ID               string   `json:"id"`
	Object           string   `json:"object"`
	ConnectionID     string   `json:"connection_id"`
	ParentID         *string  `json:"parent_id"` // null: the connection itself
	Depth            int64    `json:"depth"`
	Label            string   `json:"label"`
	Status           string   `json:"status"` // active, ended
	AmountMC         money.MC `json:"amount_mc"`
	AmountDisplay    string   `json:"amount_display"`
	HeldMC           money.MC `json:"held_mc"`
	RemainingMC      money.MC `json:"remaining_mc"`
	RemainingDisplay string   `json:"remaining_display"`
	Features         []string `json:"features"`
	Models           []string `json:"models"`
	CreatedAt        string   `json:"created_at"`
	ExpiresAt        string   `json:"expires_at"`
	EndedAt          *string  `json:"ended_at"`
	EndedBy          *string  `json:"ended_by"`
	ReturnedMC       money.MC `json:"returned_mc"`
	Token            string   `json:"token,omitempty"` // of the answer to the request that made it, alone
}

// Resource returns the child in the API's shape. Its calls hold one amount and can still hold another.
func (c *Child) Resource(held, remaining money.MC) ChildResource {
	r := ChildResource{
		ID:               c.ID,
		Object:           "child",
		ConnectionID:     c.ConnectionID,
		ParentID:         TextOrNull(c.ParentID),
		Depth:            c.Depth,
		Label:            c.Label,
		Status:           "active",
		AmountMC:         c.AmountMC,
		AmountDisplay:    c.AmountMC.Display(),
		HeldMC:           held,
		RemainingMC:      remaining,
		RemainingDisplay: remaining.Display(),
		Features:         append([]string{}, c.Features...),
		Models:           append([]string{}, c.Models...),
		CreatedAt:        timestamp.Format(c.CreatedUS),
		ExpiresAt:        timestamp.Format(c.ExpiresUS),
		EndedBy:          TextOrNull(string(c.EndedBy)),
		ReturnedMC:       c.ReturnedMC,
	}
	if c.EndedUS != nil {
		r.Status, r.EndedAt = "ended", TextOrNull(timestamp.Format(*c.EndedUS))
	}
	return r
}

// An EndedChild is a child in the event of its end.
type EndedChild struct {
	ChildResource
	// SpentMC is the amount less what came back and what calls still hold, all with the children below it.
	SpentMC      money.MC `json:"spent_mc"`
	SpentDisplay string   `json:"spent_display"`
}

// Ended returns the child as the event of its end shows it. Its own calls hold one amount, those of the children that
// ended with it another.
func (c *Child) Ended(held, heldBelow money.MC) EndedChild {
	spent := c.AmountMC - c.ReturnedMC - held - heldBelow
	return EndedChild{c.Resource(held, 0), spent, spent.Display()}
}

// EntryResource is a ledger row as the API shows it (contract §2, Ledger entry).
type EntryResource struct {
	ID                  string    `json:"id"`
	Type                EntryType `json:"type"`
	AccountID           string    `json:"account_id"`
	CreatedAt           string    `json:"created_at"`
	Status              string    `json:"status"`
	ReversalOf          *string   `json:"reversal_of"`
	Reason              *string   `json:"reason"`
	ConnectionID        *string   `json:"connection_id"`
	AppID               *string   `json:"app_id"`
	Feature             *string   `json:"feature"`
	Model               *string   `json:"model"`
	HoldAmountMC        *money.MC `json:"hold_amount_mc"`
	ProviderCostMC      *money.MC `json:"provider_cost_mc"`
	SvcFeeMC            *money.MC `json:"svc_fee_mc"`
	DevMarginMC         *money.MC `json:"dev_margin_mc"`
	UserChargeMC        *money.MC `json:"user_charge_mc"`
	UserChargeDisplay   *string   `json:"user_charge_display"`
	RequestID           *string   `json:"request_id"`
	PaidBy              *string   `json:"paid_by"`
	Settlement          *string   `json:"settlement"`
	AmountMC            *money.MC `json:"amount_mc"`
	AmountDisplay       *string   `json:"amount_display"`
	RefundedMC          *money.MC `json:"refunded_mc"` // of a spend: how much of it was refunded
	ReversedBy          *string   `json:"reversed_by"` // of a refunded spend: the row that refunded it
	StripePaymentIntent *string   `json:"stripe_payment_intent"`
	HoldUntil           *string   `json:"hold_until"`
}

// Resource returns the row in the contract's shape.
func (e Entry) Resource() EntryResource {
	r := EntryResource{
		ID:           e.ID,
		Type:         e.Type,
		AccountID:    e.AccountID,
		CreatedAt:    timestamp.Format(e.CreatedUS),
		Status:       e.Status,
		ReversalOf:   TextOrNull(e.ReversalOf),
		Reason:       TextOrNull(e.Reason),
		ConnectionID: TextOrNull(e.ConnectionID),
		AppID:        TextOrNull(e.AppID),
		Feature:      TextOrNull(e.Feature),
		Model:        TextOrNull(e.Model),
		PaidBy:       TextOrNull(e.PaidBy),
		Settlement:   TextOrNull(string(e.Settlement)),
	}
	switch e.Type {
	case EntrySpend:
		r.HoldAmountMC, r.ProviderCostMC, r.SvcFeeMC = &e.HoldMC, &e.ProviderCostMC, &e.SvcFeeMC
		r.DevMarginMC, r.UserChargeMC = &e.DevMarginMC, &e.UserChargeMC
		r.UserChargeDisplay = TextOrNull(e.UserChargeMC.Display())
		r.RequestID = TextOrNull(e.RequestID())
		if e.ReversalOf == "" {
			refunded := e.RefundedMC()
			r.RefundedMC, r.ReversedBy = &refunded, TextOrNull(e.ReversedBy)
		}
	case EntryTopUp:
		r.AmountMC, r.AmountDisplay = &e.AmountMC, TextOrNull(e.AmountMC.Display())
		if r.StripePaymentIntent = TextOrNull(e.PaymentIntent); e.HoldUntilUS > 0 {
			r.HoldUntil = TextOrNull(timestamp.Format(e.HoldUntilUS))
		}
	}
	return r
}

// TextOrNull returns nil for an empty text, which the API shows as null.
func TextOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
