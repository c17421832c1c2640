package purser_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

const (
	boundaries = "internal/ledger/store/testdata/boundaries.txt"
	tokenRules = "internal/apps/oauth/verdict/verdict_test.go"
)

// limitTests is where each row of contract §8, and each code of contract §7 that is about a
// limit, is tested at its boundary: a file, and the Go test or the script in it. The
// scripts run on the bare rules, on SQLite and on PostgreSQL, by TestScripts of
// package ledger/store.
var limitTests = map[string][][2]string{
	"Authorization code TTL": {{tokenRules, "TestCodeVerdicts"}},
	"Access token TTL":       {{"internal/apps/oauth/token_test.go", "TestCodeBecomesTokens"}},
	"Refresh token lifetime": {{tokenRules, "TestRefreshVerdicts"}},
	"Hold estimate margin": {
		{"internal/gateway/inference/plan/plan_test.go", "TestHoldCap"},
		{"internal/models/pricing/pricing_test.go", "TestChargeFitsTheHold"},
	},
	"tools per request": {{"internal/server/testdata/refusals.json", "tools 129"}},
	"Tool name": {
		{"internal/server/testdata/refusals.json", "tools a bad name"},
		{"internal/server/testdata/refusals.json", "tools a long name"},
	},
	"Images":                 {{"internal/models/images/load_test.go", "TestLoadRefuses"}},
	"Feature slug":           {{"internal/apps/features/feature_test.go", "TestNewFeatures"}},
	"Test accounts":          {{"internal/people/accounts/accounts_test.go", "TestTestAccountsAreBounded"}},
	"Risk warning frequency": {{boundaries, "risk warning beyond 5 times, every 10 minutes"}},
	"Faster-spend allowance": {{boundaries, "faster spend up to 3 times"}},
	"Sandbox live-model allowance": {
		{boundaries, "sandbox live models per 24 h"},
		{"internal/ledger/store/race_test.go", "TestLimitsRaced"},
	},
	"Limited-live spend cap": {
		{boundaries, "limited-live spend cap"},
		{"internal/ledger/tiers/tiers_test.go", "TestTerms"},
		{"internal/ledger/store/race_test.go", "TestLimitsRaced"},
	},
	"Limited-live spend per connection": {
		{boundaries, "limited-live connection per 24 h"},
		{boundaries, "limited-live connection, two buckets"},
		{"internal/ledger/store/race_test.go", "TestLimitsRaced"},
	},
	"Limited-live spend across the app": {
		{boundaries, "limited-live app per 24 h"},
		{"internal/ledger/store/race_test.go", "TestLimitsRaced"},
		{"internal/server/nodes/limits_test.go", "TestNodesAppDay"},
	},
	"app.spend_limit_reached": {{boundaries, "app.spend_limit_reached once per crossing"}},
	"Free-credit pool per live app": {
		{boundaries, "free pool of a month"},
		{"internal/ledger/store/race_test.go", "TestLimitsRaced"},
	},
	"Free usage per user, on the app": {
		{boundaries, "free credit on the app"},
		{"internal/ledger/store/race_test.go", "TestLimitsRaced"},
	},
	"Free usage per user, on all apps": {
		{boundaries, "free credit on all apps"},
		{"internal/ledger/store/race_test.go", "TestLimitsRaced"},
	},
	"402 allocation_exhausted": {
		{boundaries, "allocation"},
		{"internal/ledger/store/writer_test.go", "TestLastMicroCent"},
		{"internal/server/nodes/nodes_test.go", "TestNodesLastMicroCent"},
	},
	"402 feature_cost_exceeded": {{boundaries, "feature max_cost_per_call_mc"}},
	"403 connection_frozen":     {{boundaries, "risk freeze beyond 20 times"}},
	"429 rate_limited": {
		{boundaries, "feature rate_limit"},
		{"internal/ledger/store/race_test.go", "TestLimitsRaced"},
	},
	"429 risk_throttled": {
		{boundaries, "risk throttle beyond 10 times"},
		{"internal/ledger/store/race_test.go", "TestLimitsRaced"},
	},
	"429 daily_limit_reached": {
		{boundaries, "the connection's own velocity limit"},
		{boundaries, "limited-live connection per 24 h"},
		{"internal/ledger/store/race_test.go", "TestLimitsRaced"},
	},
	"429 app_spend_limited":         {{boundaries, "limited-live app per 24 h"}},
	"429 sandbox_live_cost_limited": {{boundaries, "sandbox live models per 24 h"}},
	"429 too_many_sessions":         {{"internal/gateway/voice/mock_test.go", "TestPendingEnds"}},
	"which limits a call brings": {
		{"internal/gateway/inference/plan/demand_test.go", "TestDemand"},
		{"internal/gateway/voice/policy_test.go", "TestTextAndVoiceDemandTheSame"},
	},
	"windows: the end of a bucket": {
		{boundaries, "the end of a bucket counts as its beginning"},
		{"internal/ledger/limits/limits_test.go", "TestWait"},
	},
	"counters and rows agree afterwards": {
		{"internal/ledger/audit/audit_test.go", "TestEachCorruptionTurnsItsCheckRed"},
	},
}

func TestEveryLimitHasATest(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for row, places := range limitTests {
		for _, p := range places {
			file, name := p[0], p[1]
			text, err := os.ReadFile(file)
			if err != nil {
				t.Errorf("%s: %v", row, err)
				continue
			}
			want := `(?m)^func ` + regexp.QuoteMeta(name) + `\(`
			switch {
			case strings.HasSuffix(file, ".txt"):
				want = `(?m)^== ` + regexp.QuoteMeta(name) + `$`
				named[name] = true
			case strings.HasSuffix(file, ".json"):
				want = `"name":"` + regexp.QuoteMeta(name) + `"`
			}
			if !regexp.MustCompile(want).Match(text) {
				t.Errorf("%s: no test %q in %s", row, name, file)
			}
		}
	}
	text, err := os.ReadFile(boundaries)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^== (.*)$`).FindAllStringSubmatch(string(text), -1) {
		if !named[m[1]] {
			t.Errorf("%s: %q tests no limit of the list", boundaries, m[1])
		}
	}
	docs, err := os.ReadFile("docs/guide/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range regexp.MustCompile("(402|403|429) `([a-z_]+)`").FindAllStringSubmatch(string(docs), -1) {
		if row := code[1] + " " + code[2]; limitTests[row] == nil {
			t.Errorf("docs/guide/limits.md tells of %s, which has no test in the list", row)
		}
	}
}
