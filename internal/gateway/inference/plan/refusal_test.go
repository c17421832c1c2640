package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/pricing"
)

// TestRefusalsSayWhenceTheCapCame: a refusal for money names what has set the output cap, and
// the largest one that fits: one token more does not. A refusal that waiting resolves, and any
// other error, names none.
func TestRefusalsSayWhenceTheCapCame(t *testing.T) {
	t.Parallel()
	book, err := catalog.Load([]byte(planBook))
	if err != nil {
		t.Fatal(err)
	}
	limit := int64(700)
	registered := map[string]*features.Feature{"f": {Slug: "f", MaxTokens: &limit}}
	for _, tt := range []struct {
		members, feature string
		app              apps.App
		cappedBy, says   string
	}{
		{`,"max_tokens":800`, "f", apps.App{}, CappedByRequest, ""},
		{"", "f", apps.App{}, CappedByFeature, `held for 700 output tokens, as max_tokens of feature "f" says`},
		{"", "", apps.App{DefaultMaxTokens: &limit}, CappedByApp,
			"held for 700 output tokens, as the app's default_max_tokens says"},
		{"", "", apps.App{}, CappedByModel, "No max_tokens was sent, so it is held for 1000 output tokens"},
	} {
		request, err := Parse([]byte(`{"messages":[{"role":"user","content":"Hello"}]` + tt.members + `}`))
		if err != nil {
			t.Fatal(err)
		}
		p, err := newTestPlan(request, Route{Path: "ai/m", Model: "m"}, tt.feature, &tt.app, registered, book, nil,
			money.One/20, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range []apierr.Code{apierr.AllocationExhausted, apierr.SandboxLiveCostLimited} {
			const allowed = money.MC(400_123)
			e := code.Errorf("refused")
			e.Final, e.Details = true, map[string]any{"required_mc": money.MC(1), "allowed_mc": allowed}
			if got := p.ExplainRefusal(e); got != error(e) {
				t.Fatalf("another error: %v", got)
			}
			fits, ok := e.Details["max_tokens_that_fit"].(int64)
			if !ok || e.Details["capped_by"] != tt.cappedBy || !strings.Contains(e.Message, tt.says) {
				t.Errorf("%s: %q %+v", tt.cappedBy, e.Message, e.Details)
			}
			shares := p.Shares
			if code == apierr.SandboxLiveCostLimited {
				shares.Margin, shares.Fee = 0, 0
			}
			for _, n := range []int64{fits, fits + 1} {
				hold, err := pricing.EstimateHold(p.Rates, p.InputTokens, n, shares.Margin, shares.Fee)
				if err != nil || (hold <= allowed) != (n == fits) {
					t.Errorf("%s: %d tokens cost %d of %d, %v", tt.cappedBy, n, hold, allowed, err)
				}
			}
		}
		waits := apierr.DailyLimitReached.Errorf("refused")
		waits.Details = map[string]any{"required_mc": money.MC(1), "allowed_mc": money.MC(5)}
		_ = p.ExplainRefusal(waits) // it is completed in place
		if _, has := waits.Details["max_tokens_that_fit"]; has || waits.Details["capped_by"] != tt.cappedBy {
			t.Errorf("where waiting helps: %+v", waits.Details)
		}
		if other := apierr.RateLimited.Errorf("calls"); p.ExplainRefusal(other) != error(other) ||
			other.Details != nil || other.Message != "calls" {
			t.Errorf("a limit of calls: %+v", other)
		}
	}
}
