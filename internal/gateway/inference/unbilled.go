package inference

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/pricing"
	"github.com/purserhq/purser/internal/models/provider"
)

// This file bounds what attempts cost the operator that bill nobody (decision 133).

// generatedPerSecond is how many tokens a model is taken to have generated in each second in which it sent nothing, up
// to the output cap.
const generatedPerSecond = 100

// What unbilled attempts of a user on an app may have cost on a node before the user's next calls are refused: $10 at
// once, and as much in each 24 hours over time. Tokens of the bucket are parts of a dollar. It is far above
// unbilled_calls_day, because what providers that hang may have cost counts, too.
const (
	unbilledBurst   = 100_000
	unbilledTokenMC = 10 * money.Dollar / unbilledBurst
)

func newUnbilledRate(now func() time.Time) *web.Limiter {
	return web.NewLimiter(24*time.Hour/unbilledBurst, unbilledBurst, now)
}

// checkUnbilled refuses a new call of a user whose unbilled attempts on the app have cost too much. A used key is
// answered all the same.
func (h *Handler) checkUnbilled(ctx context.Context, c *call) error {
	if c.who.App.ProviderMode == apps.Mock {
		return nil
	}
	wait, ok := h.unbilledRate.Peek(rules.UnbilledSubject(c.who.App.ID, c.who.AccountID))
	if ok {
		return nil
	}
	if used, err := store.IsKeyUsed(ctx, h.DB, c.key); used || err != nil {
		return err
	}
	c.unstored = true // a row for each refusal would be free
	e := apierr.RateLimited.On(c.who.ConnectionID, "too many calls of this user ended before their answers; wait, and "+
		"let calls end, or ask for shorter answers or for streams")
	e.RetryAfter = max(wait, time.Second)
	return e
}

// countUnbilled counts what an unbilled attempt may have cost that nobody was charged for.
func (h *Handler) countUnbilled(c *rules.Call, cost money.MC) {
	if cost > 0 {
		h.unbilledRate.Charge(rules.UnbilledSubject(c.AppID, c.AccountID),
			int(min((cost+unbilledTokenMC-1)/unbilledTokenMC, unbilledBurst)))
	}
}

// mayHaveGenerated returns how many tokens the attempt may have made its model generate.
func (a *attempt) mayHaveGenerated() int64 {
	return min(a.request.MaxTokens, int64(time.Since(a.started)/(time.Second/generatedPerSecond)))
}

// unbilled returns what an attempt that delivers nothing may have cost the operator; nil = nothing: its input, which a
// provider charges for in any case, and what it may have generated meanwhile. A user is charged for the input only.
// ended is what endedByUser returns.
func (a *attempt) unbilled(ctx context.Context, cause error, ended *apierr.Error) *rules.Unbilled {
	if a.developerPays || a.who.App.ProviderMode == apps.Mock || !a.asked || !a.accepted && !mayHaveCost(cause) {
		return nil
	}
	policy, usage := a.h.Policies.At(a.h.Now()), provider.Usage{Input: min(a.CountedTokens, a.InputTokens)}
	price := func(output int64) (pricing.Amounts, error) {
		return pricing.ChargeEstimate(a.Rates, usage.Input, output, a.shares.Margin, a.shares.Fee, a.held.HoldMC)
	}
	amounts, err := price(0)
	largest, err2 := price(a.mayHaveGenerated())
	if err = errors.Join(err, err2); err != nil {
		a.h.Log.ErrorContext(ctx, "unbilled attempt not priced", "request_id", a.held.RequestID, "error", err)
		return nil
	}
	u := &rules.Unbilled{CostMC: largest.ProviderCostMC, DayMC: policy.UnbilledCallsDayMC}
	if ended == nil || a.who.App.Tier == tiers.Sandbox { // the limit of the sandbox refuses its next calls
		return u
	}
	u.Estimate = &rules.Settle{
		Call:       a.held,
		Attempt:    a.number,
		Charge:     rules.Amounts(amounts),
		Settlement: rules.Estimated,
		Usage:      storedUsage(a.Rates, usage, a.shares.Margin, a.shares.Fee),
		Delivery:   a.delivery(nil),
		Risk:       policy.RiskOf(&a.who.App),
		Receipt:    receipts.JSON,
	}
	if a.out != nil { // its key replays the error
		u.Estimate.Response = a.h.storeResponse(ctx, &a.who.App, a.held.AccountID,
			failFrames(a.format(), nil, ended, a.h.Links))
	}
	return u
}

// endedByUser returns the error of an attempt that its user or its client has ended, which is charged for its input;
// nil = a provider, the operator or a restart has ended it.
func (a *attempt) endedByUser() *apierr.Error {
	stop := a.running.stopped.Load()
	switch {
	case !a.asked:
	case stop != nil && stop.cause != rules.StoppedBySuspension:
		return stop.apiError(a.held.ConnectionID, inputBilled)
	case stop == nil && errors.Is(context.Cause(a.upstream), errOrphanCut):
		return apierr.CallStopped.On(a.held.ConnectionID,
			"the client left before the response began, so that the call was ended; %s", inputBilled)
	}
	return nil
}

// mayHaveCost reports whether a provider may charge for a request that failed: it has accepted it, or it is not known
// whether it has.
func mayHaveCost(cause error) bool {
	if errors.Is(cause, errNotConfigured) {
		return false
	}
	e, ok := errors.AsType[*provider.Error](cause)
	return !ok || e.Kind == provider.Failed && !e.Unsent && e.Status < http.StatusMultipleChoices
}

// unbilledOf returns what the attempt of a hold has cost the operator that no call leads any more; nil = nothing.
// Whether its provider was asked, and for how long, is not known: its input counts.
func (h *Handler) unbilledOf(ctx context.Context, row *rules.HoldRow) *rules.Unbilled {
	app, err := h.Apps.Get(ctx, row.AppID)
	ofOperator := func(n rules.Reservation) bool { return n.Unit == limits.Cost }
	if err != nil || app.ProviderMode == apps.Mock ||
		app.Tier == tiers.Sandbox && !slices.ContainsFunc(row.Reservations, ofOperator) { // its developer's key
		return nil
	}
	c, err := settlementOf(row, nil, 0)
	if err != nil {
		h.Log.ErrorContext(ctx, "unbilled attempt not priced", "request_id", row.RequestID, "error", err)
		return nil
	}
	return &rules.Unbilled{CostMC: c.Charge.ProviderCostMC, DayMC: h.Policies.At(h.Now()).UnbilledCallsDayMC}
}
