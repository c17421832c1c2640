package plan

import (
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/catalog"
)

// demand keeps the compiler from leaving out what is measured.
var demand rules.Hold

// BenchmarkPlan is what a call pays for being parsed and planned, up to its hold.
func BenchmarkPlan(b *testing.B) {
	book, err := catalog.Load([]byte(planBook))
	if err != nil {
		b.Fatal(err)
	}
	rate, maxCost := int64(7), money.MC(123)
	body := []byte(`{"messages":[{"role":"system","content":"You are brief."},` +
		`{"role":"user","content":"Hello there, how are you?"}],"max_tokens":100,"stream":true}`)
	set := &policy.Policy{
		Fee:          money.One / 20,
		Free:         tiers.DefaultFreeCredit,
		Risk:         limits.DefaultRiskThresholds,
		SandboxDayMC: tiers.DefaultSandboxDayMC,

		SandboxTotalDayMC: tiers.DefaultSandboxTotalDayMC,
	}
	for tier, mode := range map[string]string{
		tiers.Sandbox:     apps.Mock,
		tiers.LimitedLive: "live",
		tiers.FullLive:    "live",
	} {
		caller := &callers.Caller{
			ConnectionID: "conn",
			AccountID:    "wac",
			App: apps.App{
				ID:           "app",
				OwnerID:      "wac_dev",
				Tier:         tier,
				ProviderMode: mode,
				DevMargin:    money.One / 5,
			},
			Features: map[string]*features.Feature{"f": {Slug: "f", RateLimit: &rate, MaxCostPerCallMC: &maxCost}},
		}
		for name, slug := range map[string]string{"plain": "", "feature": "f"} {
			b.Run(tier+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					request, err := Parse(body)
					if err != nil {
						b.Fatal(err)
					}
					p, err := New(&Input{
						Request: request,
						Route:   Route{Path: "ai/m", Model: "m"},
						Feature: slug,
						Caller:  caller,
						Catalog: book,
						Policy:  set,
						Now:     time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC),
					})
					if err != nil {
						b.Fatal(err)
					}
					demand = p.Demand
				}
			})
		}
	}
}
