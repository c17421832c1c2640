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
