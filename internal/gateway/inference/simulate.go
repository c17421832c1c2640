package inference

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/failures"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/provider"
)

// This file answers a sandbox app's call with the refusal that its message asks for (decision 081), so that an app's
// handling of each error can be tried. A refusal comes from the code that makes the real one: the call is planned
// again, or its hold decided again, in a made-up state that refuses it. Nothing is read or written.

// refuseWord begins the line of a message that asks for a refusal: "!refuse 402 allocation_exhausted", or without the
// status.
const refuseWord = "!refuse"

// simulations has the refusals that a call can meet, in the order of contract §7.
var simulations = []struct {
	code   apierr.Code
	refuse func(*simulation) error
}{
	{apierr.InvalidRequest, (*simulation).refuseModel},
	{apierr.FeatureModelNotConfigured, (*simulation).refuseFeatureRoute},
	{apierr.Unauthorized, func(*simulation) error { return web.NewBearerRefusal() }},
	{apierr.AllocationExhausted, (*simulation).refuseExhausted},
	{apierr.FeatureCostExceeded, (*simulation).refuseCost},
	{apierr.ConnectionRevoked, (*simulation).refuseRevoked},
	{apierr.ConnectionFrozen, (*simulation).refuseFrozen},
	{apierr.AppSuspended, (*simulation).refuseSuspended},
	{apierr.ModelNotAllowed, (*simulation).refuseAllowList},
	{apierr.CallStopped, (*simulation).refuseStopped},
	{apierr.IdempotencyKeyReused, (*simulation).refuseKey},
	{apierr.RateLimited, (*simulation).refuseRate},
	{apierr.RiskThrottled, (*simulation).refuseRisk},
	{apierr.DailyLimitReached, (*simulation).refuseDaily},
	{apierr.AppSpendLimited, (*simulation).refuseAppSpend},
	{apierr.SandboxLiveCostLimited, (*simulation).refuseSandboxCost},
	{apierr.ProviderError, (*simulation).refuseProvider},
	{apierr.Unavailable, func(*simulation) error { return errLater(tooManyCalls) }},
}

// simulateRefusal returns the refusal that the call's message asks for, which a header of the answer names; nil = none.
// Only a sandbox app's message can: its money is fake. A line that asks for none of them is 400.
func (c *call) simulateRefusal(h http.Header) error {
	if c.who.App.Tier != tiers.Sandbox {
		return nil
	}
	commands := c.plan.Request.Commands(refuseWord)
	if len(commands) == 0 {
		return nil
	}
	words := strings.Fields(commands[0])
	var list []string
	for _, s := range simulations {
		if s.code == apierr.FeatureModelNotConfigured && c.plan.Route.Slug == "" {
			continue // only the route of a feature needs its model
		}
		name, status := s.code.Name, strconv.Itoa(s.code.Status)
		if slices.Equal(words, []string{name}) || slices.Equal(words, []string{status, name}) {
			c.simulated = true
			h.Set(web.SimulatedHeader, "refusal")
			return s.refuse(&simulation{call: c, in: c.input, caller: *c.who})
		}
		list = append(list, status+" "+name)
	}
	member := "messages"
	if c.plan.Request.Embedding != nil {
		member = "input"
	}
	return apierr.InvalidRequest.Errorf("%s: %s takes one of these, with or without the status: %s", member, refuseWord,
		strings.Join(list, ", "))
}

// A simulation is a call in a made-up state. It changes its copies of the plan's input and of the caller.
type simulation struct {
	*call
	in     plan.Input
	caller callers.Caller
}

// replan plans the call in the made-up state. A lower output cap does not help against what is simulated.
func (s *simulation) replan() (*plan.Plan, error) {
	fit := false
	s.in.Fit, s.in.Caller = &fit, &s.caller
	return plan.New(&s.in)
}

// setFeature gives the call a registered feature: its own, or else one that is made up. It is a copy.
func (s *simulation) setFeature() *features.Feature {
	f := features.Feature{Slug: cmp.Or(s.in.Feature, "example")}
	if registered := s.plan.Feature.Registered; registered != nil {
		f = *registered
	}
	s.in.Feature = f.Slug
	s.caller.Features = maps.Clone(s.caller.Features)
	if s.caller.Features == nil {
		s.caller.Features = map[string]*features.Feature{}
	}
	s.caller.Features[f.Slug] = &f
	return &f
}

// refuseModel offers no models.
func (s *simulation) refuseModel() error {
	s.in.Catalog = &catalog.Catalog{}
	_, err := s.replan()
	return err
}

func (s *simulation) refuseFeatureRoute() error {
	s.setFeature().DefaultModel = nil
	_, err := s.replan()
	return err
}

func (s *simulation) refuseRevoked() error {
	s.caller.Status = rules.Revoked
	return s.caller.CheckAllowed()
}

func (s *simulation) refuseFrozen() error {
	s.caller.Status = rules.Frozen
	return s.caller.CheckAllowed()
}

func (s *simulation) refuseSuspended() error {
	s.caller.App.Suspended = true
	return s.caller.CheckAllowed()
}

func (s *simulation) refuseAllowList() error {
	s.caller.App.AllowedModels = []string{"another model"}
	_, err := s.replan()
	return err
}

func (s *simulation) refuseStopped() error {
	stopped := stoppedError{rules.StoppedByUser}
	return stopped.apiError(s.caller.ConnectionID, nothingBilled)
}

func (s *simulation) refuseProvider() error {
	overloaded := &provider.Error{Status: http.StatusServiceUnavailable, Retry: true}
	f := failures.Classify(s.plan.Model.Provider, overloaded)
	return newFailureError(&f, s.caller.ConnectionID)
}

func (s *simulation) refuseExhausted() error {
	return s.decideHold(func(_ *rules.Hold, conn *rules.Connection, _ *rules.State) {
		conn.ConsumedMC = conn.AllocationMC
	})
}

// refuseCost bounds a call of the feature to half of what this one is held for.
func (s *simulation) refuseCost() error {
	half := s.plan.Demand.HoldMC / 2
	s.setFeature().MaxCostPerCallMC = &half
	return s.decideHold(nil)
}

func (s *simulation) refuseKey() error {
	return s.decideHold(func(hold *rules.Hold, _ *rules.Connection, state *rules.State) {
		hold.Key, hold.Fingerprint = s.key.Key, s.fingerprint
		state.Billed[s.key] = rules.BilledKey{Fingerprint: "of another request"}
	})
}

// refuseRate has the calls of the feature's limit, or one, half a minute ago.
func (s *simulation) refuseRate() error {
	f := s.setFeature()
	if f.RateLimit == nil {
		one := int64(1)
		f.RateLimit = &one
	}
	return s.decideHold(s.reach(apierr.RateLimited, 30*time.Second))
}

// refuseRisk has spent as much now as the risk thresholds allow at all.
func (s *simulation) refuseRisk() error {
	return s.decideHold(func(hold *rules.Hold, conn *rules.Connection, _ *rules.State) {
		thresholds := s.in.Policy.Risk
		if thresholds.Warn == 0 { // the operator has set none
			thresholds = limits.DefaultRiskThresholds
		}
		hold.Risk = &thresholds
		spent := int64(thresholds.FloorMC)*thresholds.Throttle + 1
		conn.Spent = conn.Spent.Add(s.in.Now, spent, limits.RiskWindow)
	})
}

// simulatedDayMC is the least daily limit of simulations. A call that alone is larger gets a limit of its size: then
// waiting helps.
const simulatedDayMC = 5 * money.Dollar

// spentAgo is how long ago a simulated limit of 24 hours was used up.
const spentAgo = 23 * time.Hour

// refuseDaily has spent the user's daily limit.
func (s *simulation) refuseDaily() error {
	return s.decideHold(func(hold *rules.Hold, conn *rules.Connection, _ *rules.State) {
		day := max(simulatedDayMC, hold.HoldMC)
		conn.VelocityLimitMC = &day
		conn.Spent = conn.Spent.Add(s.in.Now.Add(-spentAgo), int64(day), rules.VelocityWindow)
	})
}

// refuseAppSpend has spent what an app may spend in the limited-live tier.
func (s *simulation) refuseAppSpend() error {
	s.caller.App.Tier, s.caller.App.ProviderMode = tiers.LimitedLive, apps.Live
	return s.decideHold(s.reach(apierr.AppSpendLimited, spentAgo))
}

// refuseSandboxCost has spent what live models may cost in the sandbox.
func (s *simulation) refuseSandboxCost() error {
	s.caller.App.ProviderMode = apps.Live
	return s.decideHold(s.reach(apierr.SandboxLiveCostLimited, spentAgo))
}

// reach returns what leaves of the hold's limits only that with the code, and uses it up, a time ago.
func (s *simulation) reach(code apierr.Code, ago time.Duration) func(*rules.Hold, *rules.Connection, *rules.State) {
	return func(hold *rules.Hold, _ *rules.Connection, state *rules.State) {
		hold.Limits = slices.DeleteFunc(slices.Clone(hold.Limits), func(l limits.Limit) bool { return l.Code != code })
		for i := range hold.Limits {
			l := &hold.Limits[i]
			if l.Unit == limits.Cost && l.Max > int64(tiers.DefaultSandboxDayMC) {
				l.Max = int64(max(tiers.DefaultSandboxDayMC, hold.CostMC)) // the operator's may be without end
			}
			counter := state.Counters[l.Subject]
			counter.Spent = counter.Spent.Add(s.in.Now.Add(-ago), l.Max, l.Window)
		}
	}
}

// decideHold lets the ledger's rules decide the hold of the call in a made-up state, which change
// completes; nil = it is complete. It returns the refusal.
func (s *simulation) decideHold(change func(*rules.Hold, *rules.Connection, *rules.State)) error {
	p, err := s.replan()
	if err != nil {
		return err
	}
	hold := p.Demand
	hold.DryRun, hold.FreeCredit = true, nil
	conn := &rules.Connection{
		ID:           s.caller.ConnectionID,
		AppID:        s.caller.App.ID,
		AccountID:    s.caller.AccountID,
		AllocationMC: hold.HoldMC + simulatedDayMC,
		Status:       rules.Active,
		Spent:        limits.Series{Width: limits.SpendBucketWidth},
	}
	state := rules.NewState()
	state.Connections[conn.ID] = conn
	for i := range hold.Limits {
		l := &hold.Limits[i]
		state.Counters[l.Subject] = &rules.Counter{Spent: limits.Series{Width: l.Unit.BucketWidth(l.Window)}}
	}
	if change != nil {
		change(&hold, conn, state)
	}
	_, err = rules.Apply(state, hold, s.in.Now)
	return p.ExplainRefusal(err)
}
