package inference

import (
	"context"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/telemetry"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/pricing"
	"github.com/purserhq/purser/internal/models/provider"
)

// emptyAnswerTokens is the most that a provider counts for an answer without content: marks of its beginning and end.
const emptyAnswerTokens = 16

// isUsable reports whether the provider's usage can be billed.
func (a *attempt) isUsable(u *provider.Usage) bool {
	return u != nil && pricing.Usable(*u, a.request.MaxTokens,
		pricing.MaxInput(max(a.CountedTokens, a.InputTokens), a.InputBound()))
}

// settleCall charges the usage that the provider reported, or an estimate where it reported
// none that can be billed. The settlement is repeated while the database is unavailable:
// the provider has been paid. output counts what was delivered, for an estimate. body is stored for
// replays; nil = it is too long.
func (a *attempt) settleCall(
	ctx context.Context, usage *provider.Usage, output func() int64, body []byte, delivery rules.Delivery,
) (rules.Entry, rules.Outcome, error) {
	policy := a.h.Policies.At(a.h.Now())
	c := rules.Settle{
		Call:       a.held,
		Attempt:    a.number,
		Settlement: rules.Settled,
		Delivery:   delivery,
		Risk:       policy.RiskOf(&a.who.App),
		Response:   a.storeResponse(ctx, body),
		Receipt:    receipts.JSON,
	}
	var amounts pricing.Amounts
	var err error
	isUsable := a.isUsable(usage)
	if isUsable {
		a.h.noteUsageSum(ctx, a.held.RequestID, a.Model.ID, usage)
		amounts, err = pricing.Charge(a.Rates, *usage, a.shares.Margin, a.shares.Fee)
	} else {
		if usage != nil {
			a.h.Metrics.RaiseAlarm("absurd usage", a.Model.ID)
			a.h.Log.ErrorContext(ctx, "implausible usage", "request_id", a.held.RequestID, "model", a.Model.ID,
				"usage", fmt.Sprintf("%+v", *usage))
		}
		usage = &provider.Usage{Input: a.estimateInput(usage), Output: min(output(), a.request.MaxTokens)}
		c.Settlement = rules.Estimated
		amounts, err = pricing.ChargeEstimate(
			a.Rates, usage.Input, usage.Output, a.shares.Margin, a.shares.Fee, a.held.HoldMC)
	}
	if err != nil {
		return rules.Entry{}, rules.Applied, err
	}
	c.Charge, c.Usage = rules.Amounts(amounts), storedUsage(a.Rates, *usage, a.shares.Margin, a.shares.Fee)
	// Few answers are so short: no other is looked at.
	isEmpty := isUsable && usage.Output-usage.Reasoning <= emptyAnswerTokens && a.isEmpty(body)
	if isEmpty && len(a.request.Stop) == 0 && policy.EmptyAnswersDayMC > 0 { // a stop sequence is the app's own wish
		c.Waiver = &rules.Waiver{DayMC: policy.EmptyAnswersDayMC, Usage: waivedUsage(*usage)}
	}
	settled, err := a.h.commitSettlement(ctx, c)
	if settled.Unstored {
		a.dropResponse(ctx)
	}
	entry, outcome := settled.Entry, settled.Outcome
	if err == nil && outcome == rules.Applied {
		if isUsable && !a.CountIsExact() {
			a.estimates.Record(a.Model.ID, a.CountedTokens, a.InputTokens, c.Usage.InputTokens)
		}
		a.h.Metrics.CountCall(a.api.Name(), a.Model.ID, string(c.Settlement), time.Since(a.started))
		a.h.Metrics.CountTokens(a.api.Name(), a.Model.ID, c.Usage.InputTokens, c.Usage.OutputTokens)
		if isEmpty {
			a.h.Metrics.CountEmptyAnswer(a.api.Name(), a.Model.ID, int64(entry.UserChargeMC), waivedMC(&entry))
		}
		if a.firstByte > 0 {
			a.h.Metrics.CountFirstByte(a.api.Name(), a.Model.ID, a.firstByte)
		}
		a.trace.Charged(telemetry.Charge{
			InputTokens:  c.Usage.InputTokens,
			CachedTokens: c.Usage.CachedTokens,
			OutputTokens: c.Usage.OutputTokens,
			ChargedMC:    int64(entry.UserChargeMC),
			Settlement:   string(c.Settlement),
			FinishReason: delivery.FinishReason,
		})
	}
	return entry, outcome, err
}

// estimateInput returns the input tokens of an estimate: our own count, or what the provider has reported if that is
// less, in a usage that cannot be billed or before its answer broke off. The user has the benefit of a doubt.
func (a *attempt) estimateInput(unusable *provider.Usage) int64 {
	n, reported := min(a.CountedTokens, a.InputTokens), int64(0)
	switch {
	case unusable != nil:
		reported = unusable.Input + unusable.Cached + unusable.CacheWrite
	case a.reportedInput != nil:
		reported = a.reportedInput()
	}
	if reported > 0 {
		n = min(n, reported)
	}
	return n
}

// noteUsageSum logs usage whose total is not the sum of its parts. The parts are charged: a usage is not dropped for a
// number that nothing is charged by.
func (h *Handler) noteUsageSum(ctx context.Context, requestID, model string, u *provider.Usage) {
	if u.SumDiffers {
		h.Log.WarnContext(ctx, "usage sum differs", "request_id", requestID, "model", model,
			"usage", receipts.EncodeUsage(*u))
	}
}

// waivedUsage is storedUsage of a call that is free.
func waivedUsage(u provider.Usage) rules.Usage {
	return rules.Usage{
		JSON:         receipts.EncodeWaivedUsage(u),
		InputTokens:  u.Input + u.Cached + u.CacheWrite,
		OutputTokens: u.Output,
	}
}

// waivedMC returns what a call that was free has cost the service, 0 of others.
func waivedMC(e *rules.Entry) int64 {
	if !e.IsWaived() {
		return 0
	}
	return int64(e.ProviderCostMC)
}

// delivery returns how a response was delivered that has just ended. output is its body, or the frames of a stream.
func (a *attempt) delivery(output []byte) rules.Delivery {
	d := rules.Delivery{
		DurationMS:   rules.Milliseconds(time.Since(a.started)),
		FinishReason: a.finishReason(output),
	}
	if a.firstByte > 0 {
		d.FirstByteMS = rules.Milliseconds(a.firstByte)
	}
	return d
}

// storedUsage is usage as a ledger row has it, with what the provider's cache saved if it was used. A saving that is
// out of range is left out, as in receipts: the call is settled all the same.
func storedUsage(rates catalog.Rates, u provider.Usage, margin, fee money.PPM) rules.Usage {
	out := rules.Usage{
		JSON:         receipts.EncodeUsage(u),
		InputTokens:  u.Input + u.Cached + u.CacheWrite,
		OutputTokens: u.Output,
	}
	if u.Cached > 0 || u.CacheWrite > 0 {
		if saved, err := pricing.CacheSaved(rates, u, margin, fee); err == nil {
			out.JSON = receipts.EncodeCachedUsage(u, saved)
			out.CachedTokens, out.CacheSavedMC = u.Cached, saved
		}
	}
	return out
}

// commitSettlement commits a settlement, and repeats it while the database is unavailable. Done
// means that the response of the key was stored before: by our own COMMIT whose answer was
// lost, by an attempt that has superseded ours, or when the call was left pending.
func (h *Handler) commitSettlement(ctx context.Context, c rules.Settle) (rules.Result, error) {
	step, end := h.Traces.Step(ctx, "settle")
	r, err := persist(step, func(ctx context.Context) (rules.Result, error) { return h.Ledger.Do(ctx, c) })
	end(err)
	switch {
	case err != nil:
		h.Log.ErrorContext(ctx, "settlement failed", "request_id", c.RequestID, "error", err)
		return r, err
	case r.Outcome == rules.Fenced:
		h.Log.WarnContext(ctx, "settlement fenced", "request_id", c.RequestID, "attempt", c.Attempt)
		return r, apierr.ProviderError.On(c.ConnectionID,
			"this attempt took too long and was superseded; retry with the same Idempotency-Key")
	case r.Outcome == rules.Done:
		r.Entry, err = store.GetEntry(ctx, h.DB, r.Entry.ID)
		return r, err
	case r.WasPending:
		r.Outcome = rules.Done
		return r, nil
	}
	if r.Shortfall > 0 { // the fee takes it (decision 018)
		h.Metrics.RaiseAlarm("a call cost more than its hold and the rest of the cap", c.Model)
		h.Log.ErrorContext(ctx, "charge exceeds hold and allocation", "request_id", c.RequestID, "model", c.Model,
			"shortfall_mc", r.Shortfall)
	}
	return r, nil
}
