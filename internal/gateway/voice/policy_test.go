package voice

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/pricing"
)

// policyPrices has a text model and a realtime model.
const policyPrices = `
date: 2026-11-21
models:
  - {id: m, provider: openai, family: gpt-mini, context_tokens: 100000, max_output_tokens: 1000, vision: false,
     tools: false, forced_tool_choice: false, temperature: free, reasoning: false, source: this test,
     prices: [{input: "1.00", cached: "1.00", output: "10.00"}]}
  - {id: v, provider: openai, family: gpt-mini, context_tokens: 100000, max_output_tokens: 1000, vision: true,
     tools: true, forced_tool_choice: true, temperature: fixed, reasoning: true, realtime: true, source: this test,
     prices: [{input: "1.00", cached: "1.00", output: "10.00", audio_input: "2.00", audio_cached: "1.00",
       audio_output: "20.00", image_input: "1.00", image_cached: "1.00"}]}
...
`

// TestTextAndVoiceDemandTheSame plans each case as a text call and as a voice reply of a
// stored session, and expects the same limits of both holds. Only a feature's rate limit
// is the text call's alone (contract §4.4).
func TestTextAndVoiceDemandTheSame(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(file, []byte(policyPrices), 0o600); err != nil {
		t.Fatal(err)
	}
	prices, err := catalog.Open(file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	rate, maxCost := int64(7), money.MC(123)
	registered := map[string]*features.Feature{
		"f": {Slug: "f", RateLimit: &rate, MaxCostPerCallMC: &maxCost},
		"g": {Slug: "g"},
	}
	checkAllGuardrailsSet(t, registered["f"])
	last := time.Date(2026, 11, 30, 23, 59, 59, 999_999_000, time.UTC)
	const limited = "daily_limit_reached spend/app/wac 500000000 in 24h0m0s; " +
		"app_spend_limited spend/app 25000000000 in 24h0m0s; risk; cap 2500000000; "
	const free = "free free/app/2026-11 5000000000, free/app/wac 200000000, free/wac 1000000000, "
	promoted := fmt.Sprintf("cap %d; ", money.Max)
	for _, tt := range []struct {
		name, tier, mode, feature string
		noPool, noRisk            bool
		at                        time.Time
		want                      string
	}{
		{name: "mock sandbox", tier: tiers.Sandbox, mode: apps.Mock, at: last},
		{
			name:    "mock sandbox, feature",
			tier:    tiers.Sandbox,
			mode:    apps.Mock,
			feature: "f",
			at:      last,
			want:    "most 123; ",
		},
		{name: "live sandbox", tier: tiers.Sandbox, mode: "live", at: last,
			want: "sandbox_live_cost_limited live/wac_dev 100000000 in 24h0m0s; " +
				"sandbox_live_cost_limited live/* 10000000000 in 24h0m0s; risk; "},
		{name: "limited-live", tier: tiers.LimitedLive, mode: "live", at: last, want: limited + free},
		{name: "limited-live, feature", tier: tiers.LimitedLive, mode: "live", feature: "f", at: last,
			want: limited + "most 123; " + free},
		{name: "no guardrails", tier: tiers.LimitedLive, mode: "live", feature: "g", at: last, want: limited + free},
		{name: "unregistered", tier: tiers.LimitedLive, mode: "live", feature: "h", at: last, want: limited + free},
		{name: "limited-live mock", tier: tiers.LimitedLive, mode: apps.Mock, at: last, want: limited + free},
		{name: "full-live", tier: tiers.FullLive, mode: "live", at: last, want: "risk; " + promoted + free},
		{name: "next month", tier: tiers.FullLive, mode: "live", at: last.Add(time.Microsecond),
			want: "risk; " + promoted + strings.Replace(free, "11", "12", 1)},
		{name: "no free credit", tier: tiers.FullLive, mode: "live", noPool: true, at: last, want: "risk; " + promoted},
		{name: "no risk", tier: tiers.FullLive, mode: "live", noRisk: true, noPool: true, at: last, want: promoted},
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
			who := &callers.Caller{
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
			}
			wantText := tt.want
			if tt.feature == "f" {
				wantText = "rate_limited rate/app/wac/f 7 in 1m0s; " + tt.want
			}
			text := demandText(t, who, set, prices, tt.feature, tt.at)
			voice := demandVoice(t, who, set, prices, tt.feature, tt.at)
			checkDemand(t, "text", text, wantText)
			checkDemand(t, "voice", voice, tt.want)
			if got, want := limitsOf(voice), limitsOf(text); !reflect.DeepEqual(got, want) {
				t.Errorf("voice: %+v\ntext:  %+v", got, want)
			}
		})
	}
}

// checkAllGuardrailsSet checks that the feature of the test has every guardrail, so that
// the test compares a new one too.
func checkAllGuardrailsSet(t *testing.T, registered *features.Feature) {
	t.Helper()
	feature := policy.Feature{Registered: registered}
	guardrails := reflect.ValueOf(feature.Guardrails())
	for i := range guardrails.NumField() {
		if guardrails.Field(i).IsZero() {
			t.Errorf("feature %q of this test does not set the guardrail %s", registered.Slug,
				guardrails.Type().Field(i).Name)
		}
	}
}

// limitsOf returns a hold without what differs between text and voice: the call, its
// amounts, its output cap, and the feature's rate limit.
func limitsOf(d rules.Hold) rules.Hold {
	d.Call, d.Claim, d.CostMC, d.Output = rules.Call{}, "", 0, nil
	d.Limits = slices.DeleteFunc(slices.Clone(d.Limits), func(l limits.Limit) bool {
		return l.Code == apierr.RateLimited
	})
	if len(d.Limits) == 0 {
		d.Limits = nil
	}
	if d.FreeCredit != nil {
		d.FreeCredit = &rules.FreeCreditHold{Limits: d.FreeCredit.Limits}
	}
	return d
}

// TestStoredGuardrails decodes a session as it was stored before its billing terms held
// the rate limit.
func TestStoredGuardrails(t *testing.T) {
	t.Parallel()
	var saved savedSession
	if err := json.Unmarshal([]byte(`{"Terms":{"Feature":"f","Margin":200000,"MaxCostMC":123}}`), &saved); err != nil {
		t.Fatal(err)
	}
	got := saved.Terms
	if got.MaxCostPerCallMC == nil || *got.MaxCostPerCallMC != 123 || got.RateLimit != nil {
		t.Errorf("guardrails %+v", got.Guardrails)
	}
}

func demandText(
	t *testing.T, who *callers.Caller, set *policy.Policy, prices *catalog.Source, feature string, at time.Time,
) rules.Hold {
	t.Helper()
	request, err := plan.Parse([]byte(`{"messages":[{"role":"user","content":"Hello"}],"max_tokens":100}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(&plan.Input{
		Request: request,
		Route:   plan.Route{Path: "ai/m", Model: "m"},
		Feature: feature,
		Caller:  who,
		Catalog: prices.Current(),
		Policy:  set,
		Now:     at,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p.Demand
}

func demandVoice(
	t *testing.T, who *callers.Caller, set *policy.Policy, prices *catalog.Source, feature string, at time.Time,
) rules.Hold {
	t.Helper()
	c, err := parseCreation([]byte(`{"model":"v","feature":"` + feature + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	h := &Handler{Catalog: prices, Policies: policies.Fixed(*set), Now: func() time.Time { return at }}
	planned, err := h.planSession(&c, who)
	if err != nil {
		t.Fatal(err)
	}
	var saved savedSession // as the node that runs the session loads it
	if err := json.Unmarshal(mustJSON(planned), &saved); err != nil {
		t.Fatal(err)
	}
	if err := saved.Terms.parseRates(); err != nil {
		t.Fatal(err)
	}
	reply := session.Hold{
		N:               1,
		VoiceInput:      pricing.VoiceInput{Text: 10, Audio: 20},
		MaxOutputTokens: saved.Terms.MaxOutputTokens,
	}
	call, err := saved.Terms.ledgerCall("rts_1", "req_1", reply)
	if err != nil {
		t.Fatal(err)
	}
	d, err := saved.Terms.demand(set, &who.App, call, reply, at)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// checkDemand compares the limits of a hold, and checks that free credit pays the
// provider cost alone: the wallet's hold is 25 % more.
func checkDemand(t *testing.T, kind string, d rules.Hold, want string) {
	t.Helper()
	got := ""
	for _, l := range d.Limits {
		got += fmt.Sprintf("%s %s %d in %s; ", l.Code.Name, l.Subject, l.Max, l.Window)
	}
	if d.Risk != nil {
		got += "risk; "
	}
	if d.MaxCapMC > 0 {
		got += fmt.Sprintf("cap %d; ", d.MaxCapMC)
	}
	if d.MaxHoldMC != nil {
		got += fmt.Sprintf("most %d; ", *d.MaxHoldMC)
	}
	if f := d.FreeCredit; f != nil {
		got += "free "
		for _, l := range f.Limits {
			got += fmt.Sprintf("%s %d, ", l.Subject, l.Max)
		}
		if f.HoldMC != d.CostMC || !strings.Contains(f.Terms, `"margin_ppm":0,"fee_ppm":0,`) {
			t.Errorf("%s: cost %d, free credit %+v", kind, d.CostMC, f)
		}
	}
	if got != want {
		t.Errorf("%s: got  %s\nwant %s", kind, got, want)
	}
	if d.CostMC != 0 && d.HoldMC != (d.CostMC*125+99)/100 { // rounded up
		t.Errorf("%s: held %d, cost %d", kind, d.HoldMC, d.CostMC)
	}
}
