// Package tiers has the policy of each app tier (contract §3, App tier; §8). The policy is
// looked up by the app's present tier on every call, so a promotion applies immediately.
package tiers

import (
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

// The tiers of contract §3.
const (
	Sandbox     = "sandbox"
	LimitedLive = "limited-live"
	FullLive    = "full-live"
)

// Names are all tiers, in the order of promotion.
var Names = []string{Sandbox, LimitedLive, FullLive}

// DailyWindow is the window of the daily limits.
const DailyWindow = 24 * time.Hour

// Policy are what a tier allows.
type Policy struct {
	DefaultCapMC    money.MC // what the consent screen proposes unless the app asks for a cap
	MaxCapMC        money.MC // of one connection
	ConnectionDayMC money.MC // spend of one user on the app in 24 hours; 0 = no limit
	AppDayMC        money.MC // spend across the app in 24 hours; 0 = no limit
}

// PolicyOf returns the terms of a tier. Only limited-live bounds what users may allocate.
func PolicyOf(tier string) Policy {
	if tier == LimitedLive {
		return Policy{
			DefaultCapMC:    10 * money.Dollar,
			MaxCapMC:        25 * money.Dollar,
			ConnectionDayMC: 5 * money.Dollar,
			AppDayMC:        250 * money.Dollar,
		}
	}
	return Policy{DefaultCapMC: 10 * money.Dollar, MaxCapMC: money.Max}
}

// Limits returns the tier's rolling limits for a call of an app for a user.
func (t Policy) Limits(appID, accountID string) []limits.Limit {
	if t.AppDayMC == 0 {
		return nil
	}
	return []limits.Limit{
		{
			Subject: UserSpendSubject(appID, accountID),
			Unit:    limits.Spend,
			Window:  DailyWindow,
			Max:     int64(t.ConnectionDayMC),
			Code:    apierr.DailyLimitReached,
			Owner:   "a limited-live app",
		},
		{
			Subject: AppSpendSubject(appID),
			Unit:    limits.Spend,
			Window:  DailyWindow,
			Max:     int64(t.AppDayMC),
			Code:    apierr.AppSpendLimited,
			Owner:   "a limited-live app",
			Event:   "app.spend_limit_reached",
		},
	}
}

// AppSpendSubject is the counter of what all users together spend on an app.
func AppSpendSubject(appID string) string { return "spend/" + appID }

// UserSpendSubject is the counter of what a user spends on an app, over all connections: a user who connects again has
// the same one.
func UserSpendSubject(appID, accountID string) string { return "spend/" + appID + "/" + accountID }

// SpendSubjects are the counters of a tier's limits in which a charge is counted.
func SpendSubjects(appID, accountID string) [2]string {
	return [2]string{AppSpendSubject(appID), UserSpendSubject(appID, accountID)}
}

// DefaultSandboxDayMC is how much of real provider cost a developer's sandbox apps
// may cause in 24 hours, all together (contract §8), unless the operator says otherwise.
const DefaultSandboxDayMC = money.Dollar

// SandboxLimit bounds calls of live models from the sandbox of a developer.
func SandboxLimit(developerID string, dayMC money.MC) limits.Limit {
	return limits.Limit{
		Subject: "live/" + developerID,
		Unit:    limits.Cost,
		Window:  DailyWindow,
		Max:     int64(dayMC),
		Code:    apierr.SandboxLiveCostLimited,
		Owner:   "the sandbox, over all apps of its developer,",
	}
}

// DefaultSandboxTotalDayMC is what all sandboxes together may cost the operator in 24 hours, unless the operator says
// otherwise: accounts are free, so that a bound for each developer is none for all of them.
const DefaultSandboxTotalDayMC = 100 * money.Dollar

// SandboxTotalLimit bounds calls of live models from all sandboxes together.
func SandboxTotalLimit(dayMC money.MC) limits.Limit {
	return limits.Limit{
		Subject: "live/*",
		Unit:    limits.Cost,
		Window:  DailyWindow,
		Max:     int64(dayMC),
		Code:    apierr.SandboxLiveCostLimited,
		Owner:   "this service, over all sandboxes together,",
	}
}

// FreeCredit is what new users may use before their own money (contract §8). The
// operator sets it; a pool of nothing is none.
type FreeCredit struct {
	PoolMC  money.MC // of a live app, per month (UTC)
	OnAppMC money.MC // of a user, on one app
	OnAllMC money.MC // of a user, on all apps
}

// DefaultFreeCredit applies unless the operator sets other amounts.
var DefaultFreeCredit = FreeCredit{PoolMC: 50 * money.Dollar, OnAppMC: 2 * money.Dollar, OnAllMC: 10 * money.Dollar}
