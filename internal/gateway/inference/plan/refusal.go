package plan

import (
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/pricing"
)

// The values of details.capped_by: what has set the output cap of a call (decision 013).
const (
	CappedByRequest = "request"
	CappedByFeature = "feature"
	CappedByApp     = "app"
	CappedByModel   = "model_ceiling"
	CappedByFit     = "fit_min_tokens"
)

// ExplainRefusal completes a refusal for money: details.capped_by and the message say what has
// set the output cap that the hold was computed from. The ledger has added
// details.max_tokens_that_fit, the cap that would have been admitted; it is computed here for an
// exhausted allocation, which no cap fits. Any other error is returned as it is, and so is one of a
// call for embeddings, whose input is all that costs.
func (p *Plan) ExplainRefusal(err error) error {
	var e *apierr.Error
	if !errors.As(err, &e) || e.Details["required_mc"] == nil || p.Model.Embedding {
		return err
	}
	held, cappedBy := p.Request.MaxTokens, p.CappedBy
	if 0 < p.MinTokens && p.MinTokens < held { // the refusal is that of the lowest cap
		held, cappedBy = p.MinTokens, CappedByFit
	}
	e.Details["capped_by"] = cappedBy
	if allowed, ok := allowedMC(e); ok && e.Details["max_tokens_that_fit"] == nil {
		e.Details["max_tokens_that_fit"] = p.fittingTokens(allowed, e.Code == apierr.SandboxLiveCostLimited)
	}
	switch cappedBy {
	case CappedByFit:
		e.Message += fmt.Sprintf(". It needs room for %d output tokens at least, as fit_min_tokens says", held)
	case CappedByFeature:
		e.Message += fmt.Sprintf(". It is held for %d output tokens, as max_tokens of feature %q says", held,
			p.Feature.Slug)
	case CappedByApp:
		e.Message += fmt.Sprintf(". It is held for %d output tokens, as the app's default_max_tokens says", held)
	case CappedByModel:
		e.Message += fmt.Sprintf(". No max_tokens was sent, so it is held for %d output tokens, the most that %s "+
			"produces; send max_tokens, or set default_max_tokens of the app", held, p.Model.ID)
	}
	return e
}

// allowedMC returns what a call may cost at most, if a smaller call would be admitted now.
func allowedMC(e *apierr.Error) (money.MC, bool) {
	if !e.Final && !e.Code.Final {
		return 0, false
	}
	if n, ok := e.Details["allowed_mc"].(money.MC); ok {
		return n, true
	}
	n, ok := e.Details["remaining_mc"].(money.MC)
	return n, ok
}

// fittingTokens returns the largest output cap whose hold is at most allowed; 0 = the input
// alone costs more. atCost counts the provider cost alone.
func (p *Plan) fittingTokens(allowed money.MC, atCost bool) int64 {
	shares := p.Shares
	if atCost {
		shares.Margin, shares.Fee = 0, 0
	}
	low, high := int64(0), p.Request.MaxTokens
	for low < high {
		mid := low + (high-low+1)/2
		hold, err := pricing.EstimateHold(p.Rates, p.InputTokens, mid, shares.Margin, shares.Fee)
		if err == nil && hold <= allowed {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}
