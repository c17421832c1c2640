// Package receipts explains a call in words and numbers that a person can read: what
// was charged and by which prices, or why nothing was (contract §2, Receipt; decision
// 013). The API, the dashboard, the console and event request.settled show the same
// receipt.
package receipts

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// Receipt is the account of one call.
type Receipt struct {
	ID           string          `json:"id"`
	Object       string          `json:"object"`
	Status       string          `json:"status"` // settled, estimated, pending, refused, in_flight, failed
	ConnectionID string          `json:"connection_id"`
	ChildID      *string         `json:"child_id,omitempty"` // the child whose budget paid
	CreatedAt    string          `json:"created_at"`
	Model        *string         `json:"model"`
	OwnWork      *string         `json:"own_work"` // what the app did itself; null = it is a call
	Feature      *string         `json:"feature"`
	Billed       bool            `json:"billed"`
	Charge       *Charge         `json:"charge"`
	RefundedMC   money.MC        `json:"refunded_mc"`
	ReversedBy   *string         `json:"reversed_by"`        // the ledger row of the refund
	MaxTokens    *int64          `json:"max_tokens_applied"` // the output cap that the provider got
	Usage        json.RawMessage `json:"usage"`
	PriceVersion *string         `json:"price_version"` // of the price list that the unit prices are from
	Lines        []Line          `json:"lines"`
	Error        *Refusal        `json:"error"`
	Delivery
	Explanation string `json:"explanation"`
}

// Delivery is how long a response took and how it ended. Members that are not known are null.
type Delivery struct {
	FirstByteMS  *int64  `json:"first_byte_ms"` // of a streamed response, from the hold
	DurationMS   *int64  `json:"duration_ms"`   // from the hold; of a refused call, from its arrival
	FinishReason *string `json:"finish_reason"`
}

func newDelivery(d *rules.Delivery) Delivery {
	return Delivery{
		FirstByteMS:  knownMS(d.FirstByteMS),
		DurationMS:   knownMS(d.DurationMS),
		FinishReason: rules.TextOrNull(d.FinishReason),
	}
}

// knownMS returns nil for 0.
func knownMS(ms int64) *int64 {
	if ms == 0 {
		return nil
	}
	return &ms
}

// Charge has the amounts of a call.
type Charge struct {
	HoldAmountMC      money.MC `json:"hold_amount_mc"`
	HoldAmountDisplay string   `json:"hold_amount_display"`
	ProviderCostMC    money.MC `json:"provider_cost_mc"`
	SvcFeeMC          money.MC `json:"svc_fee_mc"`
	DevMarginMC       money.MC `json:"dev_margin_mc"`
	UserChargeMC      money.MC `json:"user_charge_mc"`
	UserChargeDisplay string   `json:"user_charge_display"`
	RemainingMC       money.MC `json:"allocation_remaining_mc"`
	RemainingDisplay  string   `json:"allocation_remaining_display"`
	PaidBy            string   `json:"paid_by"`

	// Of text calls that used the provider's cache.
	CacheSavedMC      *money.MC `json:"cache_saved_mc,omitempty"`
	CacheSavedDisplay string    `json:"cache_saved_display,omitempty"`

	Waived string `json:"waived,omitempty"` // why the call was free: empty_answer
}

// Refusal has the reason why a call was refused.
type Refusal struct {
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Status  int             `json:"status"`
	Details json.RawMessage `json:"details"`
}

// Find returns the receipt of a request and the id of its app, or sql.ErrNoRows. It
// checks no credentials: its caller decides who may see the receipt.
func Find(ctx context.Context, d db.Queryer, requestID string) (*Receipt, string, error) {
	entry, err := store.GetEntry(ctx, d, id.Ledger+strings.TrimPrefix(requestID, id.Request))
	if err == nil && entry.Type == rules.EntrySpend && entry.Status == "settled" {
		out, err := newEntryReceipt(&entry)
		return out, entry.AppID, err
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, "", err
	}
	hold, err := store.HoldOfRequest(ctx, d, requestID)
	if err == nil {
		return newHoldReceipt(&hold), hold.AppID, nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return nil, "", err
	}
	refusal, err := store.GetRefusal(ctx, d, requestID)
	if err != nil {
		return nil, "", err
	}
	return newRefusalReceipt(&refusal), refusal.AppID, nil
}

// JSON returns the receipt of a billed call as the events request.settled and request.refunded
// carry it.
func JSON(e *rules.Entry) (string, error) {
	r, err := newEntryReceipt(e)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(r)
	return string(b), err
}

// newEntryReceipt returns the receipt of a billed call.
func newEntryReceipt(e *rules.Entry) (*Receipt, error) {
	out := newSpendReceipt(e)
	if work, ok := policy.ParseWork(e.Terms); ok {
		out.Lines, out.OwnWork, out.Explanation = []Line{}, &work.Description, explainWork(e, &work)
		return out, nil
	}
	usage, err := AppendUsage(nil, e)
	if err != nil {
		return nil, err
	}
	rates, err := loadRates(e)
	if err != nil {
		return nil, err
	}
	if out.Lines, err = splitCost(e, rates); err != nil {
		return nil, err
	}
	out.MaxTokens, out.Usage, out.PriceVersion = maxTokensOf(e.Terms), usage, &rates.PriceList
	out.Explanation = explainCharge(e)
	if e.IsWaived() {
		out.Charge.Waived = emptyAnswer
	}
	if saved, ok := CacheSaved(e); ok {
		out.Charge.CacheSavedMC, out.Charge.CacheSavedDisplay = &saved, saved.Display()
	}
	return out, nil
}

// newSpendReceipt returns what the receipts of all charges have.
func newSpendReceipt(e *rules.Entry) *Receipt {
	return &Receipt{
		ID:           e.RequestID(),
		Object:       "request",
		Status:       string(e.Settlement),
		ConnectionID: e.ConnectionID,
		ChildID:      rules.TextOrNull(rules.ChildOfKey(e.Key)),
		CreatedAt:    timestamp.Format(e.CreatedUS),
		Model:        &e.Model,
		Feature:      rules.TextOrNull(e.Feature),
		Billed:       true,
		Charge: &Charge{
			HoldAmountMC:      e.HoldMC,
			HoldAmountDisplay: e.HoldMC.Display(),
			ProviderCostMC:    e.ProviderCostMC,
			SvcFeeMC:          e.SvcFeeMC,
			DevMarginMC:       e.DevMarginMC,
			UserChargeMC:      e.UserChargeMC,
			UserChargeDisplay: e.UserChargeMC.Display(),
			RemainingMC:       e.RemainingMC,
			RemainingDisplay:  e.RemainingMC.Display(),
			PaidBy:            e.PaidBy,
		},
		RefundedMC: e.RefundedMC(),
		ReversedBy: rules.TextOrNull(e.ReversedBy),
		Delivery:   newDelivery(&e.Delivery),
	}
}

// maxTokensOf returns the output cap of a call by its price terms, or nil.
func maxTokensOf(terms string) *int64 {
	n := policy.MaxTokens(terms)
	if n == 0 {
		return nil
	}
	return &n
}

// emptyAnswer says why a call was free (decision 112).
const emptyAnswer = "empty_answer"

func explainCharge(e *rules.Entry) string {
	if e.IsWaived() {
		return fmt.Sprintf("%s gave an empty answer, so the call was free: the service pays the %s of provider cost. "+
			"%s had been held.", e.Model, e.ProviderCostMC.Display(), e.HoldMC.Display())
	}
	how := "from the usage reported by the provider"
	if e.Settlement == rules.Estimated {
		how = "estimated, because the provider reported no usable usage; " +
			"estimates are rounded down and never exceed the hold"
	}
	return fmt.Sprintf(
		"%s was charged %s: %s of provider cost, %s of app margin and %s of service fee, %s. %s had been held.%s%s",
		e.Model, e.UserChargeMC.Display(), e.ProviderCostMC.Display(), e.DevMarginMC.Display(), e.SvcFeeMC.Display(),
		how, e.HoldMC.Display(), explainCache(e), explainRefund(e))
}

func explainRefund(e *rules.Entry) string {
	if e.ReversedBy == "" {
		return ""
	}
	return fmt.Sprintf(" Later, %s was refunded.", e.RefundedMC().Display())
}

func explainWork(e *rules.Entry, work *policy.WorkTerms) string {
	return fmt.Sprintf("The app charged %s for its own work, “%s”: %s for the app and %s of service fee. "+
		"%s had been held.%s", e.UserChargeMC.Display(), work.Description, e.DevMarginMC.Display(),
		e.SvcFeeMC.Display(), e.HoldMC.Display(), explainRefund(e))
}

// newHoldReceipt returns the receipt of a call that is running, pending or failed.
func newHoldReceipt(h *rules.HoldRow) *Receipt {
	out := &Receipt{
		ID:           h.RequestID,
		Object:       "request",
		Status:       "in_flight",
		ConnectionID: h.ConnectionID,
		ChildID:      rules.TextOrNull(rules.ChildOfKey(h.Key)),
		CreatedAt:    timestamp.Format(h.CreatedUS),
		Model:        &h.Model,
		Feature:      rules.TextOrNull(h.Feature),
		MaxTokens:    maxTokensOf(h.Terms),
		Lines:        []Line{},
		Explanation:  fmt.Sprintf("The call is in progress. Up to %s is held for it.", h.HoldMC.Display()),
	}
	if work, ok := policy.ParseWork(h.Terms); ok {
		out.explainWorkHold(h, &work)
		return out
	}
	switch h.State {
	case rules.Pending:
		out.Status = "pending"
		out.Explanation = fmt.Sprintf("The call was delivered, but its usage is not known yet. "+
			"Up to %s stays held until the provider reports it. The event request.settled carries the charge.",
			h.HoldMC.Display())
	case rules.Failed:
		out.Status = "failed"
		out.Explanation = "The provider failed. Nothing was billed. You can retry with the same Idempotency-Key."
	}
	return out
}

// explainWorkHold says how the hold of an app's own work stands.
func (r *Receipt) explainWorkHold(h *rules.HoldRow, work *policy.WorkTerms) {
	r.Status, r.OwnWork = "pending", &work.Description
	r.Explanation = fmt.Sprintf("Up to %s is held for the app's own work, “%s”, until the app charges or releases it, "+
		"at most %d minutes.", h.HoldMC.Display(), work.Description, int(policy.WorkLifetime.Minutes()))
	if h.State == rules.Failed {
		r.Status = "failed"
		r.Explanation = fmt.Sprintf("%s was held for the app's own work, “%s”, and came back. Nothing was charged.",
			h.HoldMC.Display(), work.Description)
	}
}

// newRefusalReceipt returns the receipt of a call that was refused before it cost anything.
func newRefusalReceipt(r *rules.Refusal) *Receipt {
	return &Receipt{
		ID:           r.RequestID,
		Object:       "request",
		Status:       "refused",
		ConnectionID: r.ConnectionID,
		CreatedAt:    timestamp.Format(r.CreatedUS),
		Model:        rules.TextOrNull(r.Model),
		Feature:      rules.TextOrNull(r.Feature),
		Lines:        []Line{},
		Error: &Refusal{
			Code:    r.Code,
			Message: r.Message,
			Status:  r.Status,
			Details: json.RawMessage(r.Details),
		},
		Delivery: Delivery{DurationMS: knownMS(r.DurationMS)},
		Explanation: fmt.Sprintf("The call was refused with %d %s, and nothing was billed: %s.",
			r.Status, r.Code, strings.TrimSuffix(r.Message, ".")),
	}
}
