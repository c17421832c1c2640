package plan

import (
	"fmt"
	"strings"
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

// TestDemand is which limits of contract §7 and §8 a call brings to its hold: by the
// app's present tier and provider mode, and by its feature.
func TestDemand(t *testing.T) {
	t.Parallel()
	book, err := catalog.Load([]byte(planBook))
	if err != nil {
		t.Fatal(err)
	}
	rate, most := int64(7), money.MC(123)
	registered := map[string]*features.Feature{"f": {
		Slug:             "f",
		RateLimit:        &rate,
		MaxCostPerCallMC: &most,
	}, "g": {Slug: "g"}}
	last := time.Date(2026, 11, 30, 23, 59, 59, 999_999_000, time.UTC)
	const rateLimit = "rate_limited rate/app/wac/f 7 in 1m0s; "
	const limited = "daily_limit_reached spend/app/wac 500000000 in 24h0m0s; " +
		"app_spend_limited spend/app 25000000000 in 24h0m0s " +
		"tells app.spend_limit_reached; risk; cap 2500000000; "
	const free = "free free/app/2026-11 5000000000, free/app/wac 200000000, free/wac 1000000000"
	for _, tt := range []struct {
		name, tier, mode, feature string
		noPool, noRisk            bool
		at                        time.Time
		want                      string
	}{
		{name: "mock sandbox", tier: tiers.Sandbox, mode: apps.Mock, at: last, want: ""},
		{
			name:    "mock sandbox with a feature",
			tier:    tiers.Sandbox,
			mode:    apps.Mock,
			feature: "f",
			at:      last,
			want:    rateLimit + "most 123; ",
		},
		{
			name: "live sandbox",
			tier: tiers.Sandbox,
			mode: "live",
			at:   last,
			want: "sandbox_live_cost_limited live/wac_dev 100000000 in 24h0m0s; " +
				"sandbox_live_cost_limited live/* 10000000000 in 24h0m0s; risk; ",
		},
		{name: "limited-live", tier: tiers.LimitedLive, mode: "live", at: last, want: limited + free},
		{
			name:    "limited-live with a feature",
			tier:    tiers.LimitedLive,
			mode:    "live",
			feature: "f",
			at:      last,
			want:    rateLimit + limited + "most 123; " + free,
		},
		{
			name:    "a feature without guardrails",
			tier:    tiers.LimitedLive,
			mode:    "live",
			feature: "g",
			at:      last,
			want:    limited + free,
		},
		{
			name:    "a feature that is not registered",
			tier:    tiers.LimitedLive,
			mode:    "live",
			feature: "h",
			at:      last,
			want:    limited + free,
		},
		{name: "limited-live, a mock", tier: tiers.LimitedLive, mode: apps.Mock, at: last, want: limited + free},
		{
			name: "promoted",
			tier: tiers.FullLive,
			mode: "live",
			at:   last,
			want: fmt.Sprintf("risk; cap %d; ", money.Max) + free,
		},
		{
			name: "a micro-second later the pool is another",
			tier: tiers.FullLive,
			mode: "live",
			at:   last.Add(time.Microsecond),
			want: fmt.Sprintf("risk; cap %d; ", money.Max) + strings.Replace(free, "11", "12", 1),
		},
		{
			name: "the month is that of UTC",
			tier: tiers.FullLive,
			mode: "live",
			at:   last.In(time.FixedZone("", 3600)),
			want: fmt.Sprintf("risk; cap %d; ", money.Max) + free,
		},
		{
			name:   "no free credit",
			tier:   tiers.FullLive,
			mode:   "live",
			noPool: true,
			at:     last,
			want:   fmt.Sprintf("risk; cap %d; ", money.Max),
		},
		{
			name:   "no risk set",
			tier:   tiers.FullLive,
			mode:   "live",
			noRisk: true,
			noPool: true,
			at:     last,
			want:   fmt.Sprintf("cap %d; ", money.Max),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := &policy.Policy{
				Fee:          money.One / 20,
				Free:         tiers.DefaultFreeCredit,
				Risk:         limits.DefaultRiskThresholds,
				SandboxDayMC: tiers.DefaultSandboxDayMC,

				SandboxTotalDayMC: tiers.DefaultSandboxTotalDayMC,
			}
			if tt.noPool {
				set.Free = tiers.FreeCredit{}
			}
			if tt.noRisk {
				set.Risk = limits.RiskThresholds{}
			}
			request, err := Parse([]byte(`{"messages":[{"role":"user","content":"Hello"}],"max_tokens":100}`))
			if err != nil {
				t.Fatal(err)
			}
			p, err := New(&Input{
				Request: request,
				Route:   Route{Path: "ai/m", Model: "m"},
				Feature: tt.feature,
				Caller: &callers.Caller{
					ConnectionID: "conn",
					AccountID:    "wac",
					App: apps.App{
						ID:           "app",
						OwnerID:      "wac_dev",
						Tier:         tt.tier,
						ProviderMode: tt.mode,
						DevMargin:    money.One / 5,
					},
					Features: registered,
				},
				Catalog: book,
				Policy:  set,
				Now:     tt.at,
			})
			if err != nil {
				t.Fatal(err)
			}
			d := p.Demand
			if got := demanded(d); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if mock := strings.Contains(d.Terms, `"mock":true`); mock != (tt.mode == apps.Mock) {
				t.Errorf("in mode %s the price terms are %s", tt.mode, d.Terms)
			}
			// 8 tokens of input, 100 of output: 100,800, and 5 %; the user's price is 25 % more.
			const cost = 105_840
			if d.HoldMC != cost*125/100 || d.CostMC != 0 && d.CostMC != cost ||
				d.FreeCredit != nil && (d.FreeCredit.HoldMC != cost ||
					!strings.Contains(d.FreeCredit.Terms, `"margin_ppm":0,"fee_ppm":0,`)) {
				t.Errorf("held %d, cost %d, free %+v", d.HoldMC, d.CostMC, d.FreeCredit)
			}
		})
	}
}

// demanded writes a hold's limits.
func demanded(d rules.Hold) (text string) {
	for _, l := range d.Limits {
		text += fmt.Sprintf("%s %s %d in %s", l.Code.Name, l.Subject, l.Max, l.Window)
		if l.Event != "" {
			text += " tells " + l.Event
		}
		text += "; "
	}
	if d.Risk != nil {
		text += "risk; "
	}
	if d.MaxCapMC > 0 {
		text += fmt.Sprintf("cap %d; ", d.MaxCapMC)
	}
	if d.MaxHoldMC != nil {
		text += fmt.Sprintf("most %d; ", *d.MaxHoldMC)
	}
	if d.FreeCredit != nil {
		var list []string
		for _, l := range d.FreeCredit.Limits {
			list = append(list, fmt.Sprintf("%s %d", l.Subject, l.Max))
		}
		text += "free " + strings.Join(list, ", ")
	}
	return text
}
