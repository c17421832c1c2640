package inference

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/gateway/shapes/contents"
	"github.com/purserhq/purser/internal/gateway/shapes/messages"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/pricing"
	"github.com/purserhq/purser/internal/models/provider"
)

// An estimate says what a call would be held for, what it may cost, and whether it would be
// admitted now (decision 069).
type estimate struct {
	Object             string  `json:"object"`
	Model              string  `json:"model"`
	Feature            *string `json:"feature"`
	CountedInputTokens int64   `json:"counted_input_tokens"` // by our own count
	InputTokens        int64   `json:"input_tokens"`         // the same, calibrated: the hold is made for them
	MaxTokens          int64   `json:"max_tokens"`           // the call's output cap
	CappedBy           string  `json:"capped_by"`
	FitMinTokens       *int64  `json:"fit_min_tokens"` // null = the cap is not lowered

	Fits             bool              `json:"fits"` // with max_tokens, now
	MaxTokensThatFit int64             `json:"max_tokens_that_fit"`
	MaxTokensApplied *int64            `json:"max_tokens_applied"` // null = the call would be refused now
	PaidBy           *string           `json:"paid_by"`            // the same
	Refusal          *receipts.Refusal `json:"refusal"`            // null = it would be admitted now

	HoldAmountMC      money.MC `json:"hold_amount_mc"`
	HoldAmountDisplay string   `json:"hold_amount_display"`
	Expected          costs    `json:"expected"`
	Largest           costs    `json:"largest"`
	PriceVersion      string   `json:"price_version"`
}

// costs are the amounts of one outcome of a call.
type costs struct {
	OutputTokens      int64           `json:"output_tokens"`
	OutputBasis       string          `json:"output_basis"` // where OutputTokens comes from
	ProviderCostMC    money.MC        `json:"provider_cost_mc"`
	SvcFeeMC          money.MC        `json:"svc_fee_mc"`
	DevMarginMC       money.MC        `json:"dev_margin_mc"`
	UserChargeMC      money.MC        `json:"user_charge_mc"`
	UserChargeDisplay string          `json:"user_charge_display"`
	Lines             []receipts.Line `json:"lines"` // every token class, also those without tokens
}

// The values of output_basis.
const (
	basisRecentCalls = "recent_calls"
	basisMaxTokens   = "max_tokens"
)

// estimate answers POST /v1/estimate. It plans and prepares the call as a call is, and lets the ledger decide about
// its hold without making it.
func (h *Handler) estimate(w http.ResponseWriter, r *http.Request) error {
	_, err := h.withCall(r, func(c *call) error {
		if err := c.who.CheckAllowed(); err != nil {
			return err
		}
		parse, err := readShape(r)
		if err != nil {
			return err
		}
		if err := h.readPlan(w, r, plan.Route{Path: "estimate", Chat: true}, parse, c); err != nil {
			return err
		}
		out, err := h.estimateCall(r.Context(), c)
		if err != nil {
			return err
		}
		return web.WriteJSON(w, http.StatusOK, out)
	})
	return err
}

// readShape returns the parser of the body that an estimate is asked for, by the query parameter shape.
func readShape(r *http.Request) (parser, error) {
	switch shape := r.URL.Query().Get("shape"); shape {
	case "", "chat":
		return nil, nil
	case "responses":
		return parseResponses, nil
	case "messages":
		return alone(messages.Parse), nil
	case "contents":
		return alone(func(body []byte) (shapes.Call, error) {
			return contents.Parse(body, r.URL.Query().Get("model"), false)
		}), nil
	}
	return nil, apierr.InvalidRequest.Errorf("shape: must be one of chat, responses, messages, contents")
}

// estimateCall returns the estimate of a planned call.
func (h *Handler) estimateCall(ctx context.Context, c *call) (*estimate, error) {
	developer, err := h.developerProvider(ctx, &c.who.App, c.plan.Model.Provider)
	if err != nil {
		return nil, err
	}
	if err := h.prepareNew(ctx, c, h.hasNoProvider(c, developer)); err != nil {
		return nil, err
	}
	hold := c.plan.Demand
	hold.DryRun, hold.HasProviderKey = true, developer != nil
	held, err := h.Ledger.Do(ctx, hold)
	refusal := asRefusal(c.plan.ExplainRefusal(err))
	if err != nil && refusal == nil {
		return nil, err
	}
	p := c.plan
	out := &estimate{
		Object:             "estimate",
		Model:              p.Model.ID,
		Feature:            rules.TextOrNull(p.Feature.Slug),
		CountedInputTokens: p.CountedTokens,
		InputTokens:        p.InputTokens,
		MaxTokens:          p.Request.MaxTokens,
		CappedBy:           p.CappedBy,
		PriceVersion:       p.Rates.PriceList,
	}
	if p.MinTokens > 0 {
		out.FitMinTokens = &p.MinTokens
	}
	shares, maxTokens := p.Shares, p.Request.MaxTokens
	if refusal == nil {
		maxTokens = held.MaxTokens
		out.Fits, out.MaxTokensThatFit = maxTokens == p.Request.MaxTokens, maxTokens
		out.MaxTokensApplied, out.PaidBy = &maxTokens, &held.Call.PaidBy
		out.HoldAmountMC, shares = held.Call.HoldMC, p.Shares.PaidBy(held.Call.PaidBy)
	} else {
		out.MaxTokensThatFit, _ = refusal.Details["max_tokens_that_fit"].(int64)
		out.HoldAmountMC = p.Demand.HoldMC
		out.Refusal = &receipts.Refusal{
			Code:    refusal.Code.Name,
			Message: refusal.Message,
			Status:  refusal.Code.Status,
			Details: json.RawMessage(encodeDetails(refusal)),
		}
	}
	out.HoldAmountDisplay = out.HoldAmountMC.Display()
	if out.Largest, err = largestCosts(p, maxTokens, shares); err != nil {
		return nil, err
	}
	out.Expected, err = h.expectedCosts(ctx, c, maxTokens, shares)
	return out, err
}

// asRefusal returns err if a call with enough money or after a wait would not get it, or nil.
func asRefusal(err error) *apierr.Error {
	var e *apierr.Error
	if !errors.As(err, &e) || e.Code.Status != http.StatusPaymentRequired &&
		e.Code.Status != http.StatusTooManyRequests {
		return nil
	}
	return e
}

// largestCosts returns what the call costs at most: what its hold is computed from, without the hold margin.
func largestCosts(p *plan.Plan, maxTokens int64, shares policy.Shares) (costs, error) {
	amounts, err := pricing.LargestCharge(p.Rates, p.InputTokens, maxTokens, shares.Margin, shares.Fee)
	if err != nil {
		return costs{}, err
	}
	step := pricing.DearestStep(p.Rates, p.InputTokens)
	usage := provider.Usage{Input: p.InputTokens, Output: maxTokens}
	if step.CacheWrite > step.Input {
		usage.Input, usage.CacheWrite = 0, p.InputTokens
	}
	return newCosts(basisMaxTokens, usage, amounts, step), nil
}

// expectedDays is the number of days whose calls say how much output to expect.
const expectedDays = 30

// expectedCosts returns what the call costs if its output is as long as that of the connection's recent calls with this
// feature and model, and none of its input is cached. Without such calls the output is as long as it may be.
func (h *Handler) expectedCosts(ctx context.Context, c *call, maxTokens int64, shares policy.Shares) (costs, error) {
	p, basis := c.plan, basisRecentCalls
	since := c.input.Now.UTC().AddDate(0, 0, -expectedDays).Format(time.DateOnly)
	output, ok, err := store.AverageOutput(ctx, h.DB, c.who.ConnectionID, p.Feature.Label, p.Model.ID, since)
	if err != nil {
		return costs{}, err
	}
	if !ok {
		output, basis = maxTokens, basisMaxTokens
	}
	usage := provider.Usage{Input: p.InputTokens, Output: min(output, maxTokens)}
	amounts, err := pricing.Charge(p.Rates, usage, shares.Margin, shares.Fee)
	if err != nil {
		return costs{}, err
	}
	return newCosts(basis, usage, amounts, p.Rates.At(usage.Input)), nil
}

func newCosts(basis string, u provider.Usage, a pricing.Amounts, step catalog.Step) costs {
	return costs{
		OutputTokens:      u.Output,
		OutputBasis:       basis,
		ProviderCostMC:    a.ProviderCostMC,
		SvcFeeMC:          a.SvcFeeMC,
		DevMarginMC:       a.DevMarginMC,
		UserChargeMC:      a.UserChargeMC,
		UserChargeDisplay: a.UserChargeMC.Display(),
		Lines: []receipts.Line{
			receipts.NewLine("input", u.Input, step.Input),
			receipts.NewLine("cached", u.Cached, step.Cached),
			receipts.NewLine("cache_write", u.CacheWrite, step.CacheWrite),
			receipts.NewLine("output", u.Output, step.Output),
		},
	}
}
