// Package policy decides within which limits a call may be held, and who may pay for
// it: by what the operator has set, by the tier and the provider mode of the app, and by
// the guardrails of the feature (contract §2, §7, §8). Text calls and voice replies ask
// Policy.Demand with all Guardrails of the feature, so that a new limit is written once.
// It is pure: it does no I/O, and the time is an argument.
package policy

import (
	"slices"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/tiers"
)

// A Policy is what the operator has set for all calls.
type Policy struct {
	Fee          money.PPM             // the rate of the service fee
	Free         tiers.FreeCredit      // of users of live apps; a pool of 0 is none
	Risk         limits.RiskThresholds // of connections, except to the mock; a Warn of 0 is none
	SandboxDayMC money.MC              // provider cost of all sandbox apps of a developer in 24 hours

	SandboxTotalDayMC money.MC // provider cost of all sandbox apps of all developers in 24 hours
	EmptyAnswersDayMC money.MC // provider cost of a user's empty answers on an app that are free, in 24 hours

	// UnbilledCallsDayMC is the provider cost of a user's unbilled attempts on an app in 24 hours, beyond which those
	// that the user's side has ended are charged.
	UnbilledCallsDayMC money.MC
}

// A Call is a text call or a voice reply that is about to be held.
type Call struct {
	rules.Call          // by the wallet's terms, for the most that the wallet would pay
	PriceTerms Terms    // the same terms
	CostMC     money.MC // the most that the provider may cost

	// PriceCap returns HoldMC and CostMC for another output cap. Nil: the cap is not lowered and
	// no refusal names one that fits, as in voice.
	PriceCap  func(maxTokens int64) (holdMC, costMC money.MC, err error)
	MinTokens int64 // the lowest output cap to which the hold may lower it; 0 = it may not

	App        *apps.App // as it is now
	ChildID    string    // the child whose budget pays; "" = none
	Guardrails           // of the feature

	// DeveloperPays says that the developer's own provider key serves the call for
	// certain, so that no cost to the operator has to be limited.
	DeveloperPays bool
}

// Demand returns the hold of a call with every limit that applies to it now, and with
// free credit as the other way to pay for it. Neither is decided here: the ledger
// decides in the hold's transaction.
func (p *Policy) Demand(c *Call, now time.Time) rules.Hold {
	d := rules.Hold{Call: c.Call, MaxHoldMC: c.MaxCostPerCallMC, Output: outputCap(c, now), ChildID: c.ChildID}
	// Voice replies are exempt from the rate limit: contract §4.4 does not list rate_limited.
	if c.RateLimit != nil && !c.PriceTerms.Voice {
		d.Limits = append(d.Limits, limits.Limit{
			Subject: "rate/" + c.App.ID + "/" + c.AccountID + "/" + c.Feature,
			Unit:    limits.Calls,
			Window:  time.Minute,
			Max:     *c.RateLimit,
			Code:    apierr.RateLimited,
			Owner:   "feature " + c.Feature,
		})
	}
	if c.App.Tier == tiers.Sandbox && c.App.ProviderMode == apps.Mock {
		return d // fake money for canned responses
	}
	d.CostMC, d.Risk = c.CostMC, p.RiskOf(c.App)
	if c.App.Tier == tiers.Sandbox {
		if !c.DeveloperPays && c.CostMC > 0 {
			d.Limits = append(d.Limits, tiers.SandboxLimit(c.App.OwnerID, p.SandboxDayMC),
				tiers.SandboxTotalLimit(p.SandboxTotalDayMC))
		}
		return d
	}
	tier := tiers.PolicyOf(c.App.Tier)
	d.Limits = append(d.Limits, tier.Limits(c.App.ID, c.AccountID)...)
	d.MaxCapMC = tier.MaxCapMC
	if p.Free.PoolMC > 0 && c.CostMC > 0 { // it pays the provider alone
		d.FreeCredit = p.freeCredit(c, now)
	}
	return d
}

// freeCredit returns how free credit would pay for a call: the provider cost alone,
// within the month's pool of the app and the two bounds of the user.
func (p *Policy) freeCredit(c *Call, now time.Time) *rules.FreeCreditHold {
	pool, onApp, onAll := rules.FreeCreditSubjects(c.App.ID, c.AccountID, now)
	terms := c.PriceTerms.withPool(pool)
	return &rules.FreeCreditHold{
		Terms:  terms.JSON(),
		HoldMC: c.CostMC,
		Limits: []limits.Limit{
			{Subject: pool, Unit: limits.Spend, Max: int64(p.Free.PoolMC)},
			{Subject: onApp, Unit: limits.Spend, Max: int64(p.Free.OnAppMC)},
			{Subject: onAll, Unit: limits.Spend, Max: int64(p.Free.OnAllMC)},
		},
	}
}

// outputCap returns what the ledger needs to price the call again for a lower output cap.
func outputCap(c *Call, now time.Time) *rules.OutputCap {
	if c.PriceCap == nil {
		return nil
	}
	wallet, appID, accountID := c.PriceTerms, c.App.ID, c.AccountID
	return &rules.OutputCap{
		MaxTokens: wallet.MaxTokens,
		MinTokens: c.MinTokens,
		Price:     c.PriceCap,
		Terms: func(maxTokens int64, paidBy string) string {
			terms := wallet
			if paidBy == rules.PaidByFreeCredit {
				pool, _, _ := rules.FreeCreditSubjects(appID, accountID, now)
				terms = wallet.withPool(pool)
			}
			terms.MaxTokens = maxTokens
			return terms.JSON()
		},
	}
}

// RiskOf returns the risk thresholds of an app's connections, or nil where spend is
// never too fast: in the sandbox's mock mode, with an operator who has set none, or of an app
// that could not be read, which has no tier.
func (p *Policy) RiskOf(app *apps.App) *limits.RiskThresholds {
	if app.Tier == tiers.Sandbox && app.ProviderMode == apps.Mock || app.Tier == "" || p.Risk.Warn == 0 {
		return nil
	}
	return &p.Risk
}

// AllowsModel reports whether an app may call a model. An app without a list may call
// every model.
func AllowsModel(app *apps.App, model string) bool {
	return len(app.AllowedModels) == 0 || slices.Contains(app.AllowedModels, model)
}
