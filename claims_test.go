package purser_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A claim is a sentence of a document that says "never", or a sentence of a page about what ends, by a part of it.
// tests are those that would fail if it were not so, as "file Test"; "–" begins why it promises nothing of ours.
type claim struct {
	file, part string
	tests      []string
}

const advice = "–advice to the reader"

var claims = []claim{
	{"README.md", "never sees a provider key, a payment detail or the user's balance",
		[]string{"internal/apps/connections/http_test.go TestAccountIsTheOwners"}},
	{"README.md", "joins it, replays it or tries again, and never pays twice",
		[]string{"internal/server/inference_test.go TestIdempotency",
			"internal/server/nodes/nodes_test.go TestNodesJoin"}},
	{"docs/guide/budgets.md", "so a cap is never a surprise on a bill",
		[]string{"internal/ledger/rules/model_test.go TestInvariants"}},
	{"docs/guide/budgets.md", "It never refills by itself",
		[]string{"internal/ledger/rules/model_test.go TestInvariants"}},
	{"docs/guide/budgets.md", "which is never rounded up", []string{"internal/base/money/money_test.go TestDisplay"}},
	{"docs/guide/budgets.md", "Never repeats", []string{"sdk/go/client_test.go TestActions"}},
	{"docs/guide/budgets.md", "The cap never falls below `fit_min_tokens`",
		[]string{"internal/gateway/inference/plan/fit_test.go TestFitLeastTokens"}},
	{"docs/guide/calls.md", "rounded down, and never above the hold",
		[]string{"internal/gateway/voice/session/billing_test.go TestEstimateIsBounded",
			"internal/models/pricing/pricing_test.go TestChargeFitsTheHold"}},
	{"docs/guide/children.md", "**Narrower, never wider**",
		[]string{"internal/gateway/children/children_test.go TestChildMayDoNoMore"}},
	{"docs/guide/children.md", "A child never outlives its parent",
		[]string{"internal/gateway/children/children_test.go TestChildExpires",
			"internal/gateway/children/standing_test.go TestWhatTokensStandOn"}},
	{"docs/guide/components.md", "never hold an access token",
		[]string{"internal/base/ui/components_test.go TestComponents"}},
	{"docs/guide/features.md", "It never changes, and a feature can't be deleted",
		[]string{"internal/apps/features/http_test.go TestFeatureLife"}},
	{"docs/guide/going-live.md", "are on your server, never in a page or an app", []string{advice}},
	{"docs/guide/limits.md", "Test accounts and the sandbox never count",
		[]string{"internal/apps/watch/watch_test.go TestRevocationSpike",
			"internal/apps/watch/watch_test.go TestSpendAnomaly"}},
	{"docs/guide/oauth.md", "never ship it", []string{advice}},
	{"docs/guide/proofs.md", "it never waits for a witness that does not answer",
		[]string{"internal/ledger/proofs/witness_test.go TestWitnessesCosign"}},
	{"docs/guide/retries.md", "Never send a used refresh token with another key", []string{advice}},
	{"docs/guide/retries.md", "its answer has been deleted, but the key never pays twice",
		[]string{"internal/server/inference_test.go TestIdempotency"}},
	{"docs/guide/retries.md", "always with the same key, and never after the first chunk",
		[]string{"sdk/go/stream_test.go TestBrokenStream"}},
	{"docs/guide/sandbox.md", "The clock never goes back", []string{"internal/dev/clock_test.go TestClock"}},
	{"docs/guide/sandbox.md", "checks that fake and real money never mix",
		[]string{"internal/ledger/audit/audit_test.go TestEachCorruptionTurnsItsCheckRed",
			"internal/apps/oauth/token_test.go TestSandboxWallHoldsAtTheExchange"}},
	{"docs/guide/tools.md", "Parse it, check it, and never trust it", []string{advice}},
	{"docs/guide/voice.md", "A session whose ticket is never used ends after 60 seconds and costs nothing",
		[]string{"internal/gateway/voice/mock_test.go TestPendingEnds"}},
	{"docs/guide/voice.md", "the session is never charged more",
		[]string{"internal/gateway/voice/session/replies_test.go TestMaxCostOfHolds"}},
	{"docs/guide/voice.md", "The browser never connected",
		[]string{"internal/gateway/voice/mock_test.go TestPendingEnds"}},
	{"docs/guide/webhooks.md", "The body never has tokens, prompts, email addresses or balances",
		[]string{"internal/apps/webhooks/dispatch_test.go TestDelivery"}},
	{"docs/guide/webhooks.md", "It never delays other endpoints",
		[]string{"internal/apps/webhooks/dispatch_test.go TestADeadEndpointDelaysNobody"}},
}

// What a page says about stopping is true of each thing that can spend: a call, a stream, a voice session, a child, and
// what is held for the app's own work.
var (
	stopsOfPause = []string{
		"internal/server/stopped_calls_test.go TestStopOnTheDashboard", // calls, streams and voice
		"internal/gateway/voice/live_test.go TestHalts",
		"internal/gateway/children/standing_test.go TestWhatTokensStandOn", // children and own work
		"internal/gateway/holds/holds_test.go TestRevokedMeanwhile",
	}
	stops = []claim{
		{"dashboard/pause.html", "can’t make calls until you resume", stopsOfPause},
		{"dashboard/pause.html", "at once", stopsOfPause},
		{"dashboard/proof.html", "at once", []string{advice}},
		{"dashboard/overview.html", "Stop ends the call at once", stopsOfPause[:1]},
		{"dashboard/overview.html", "Your apps can’t make calls until you resume them", stopsOfPause},
		{"dashboard/review.html", "It can’t make calls until it is resumed", stopsOfPause},
		{"dashboard/review.html", "It can’t make calls any more", stopsOfPause},
		{"dashboard/review.html", "The app stops immediately", stopsOfPause},
		{"dashboard/revoke.html", "The app stops immediately", stopsOfPause},
		{"dashboard/connection.html", "Stopping one stops all below it",
			[]string{"internal/gateway/children/children_test.go TestChildrenSeeTheirOwn"}},
		{"dashboard/connection.html", "The app can’t make calls any more", stopsOfPause},
		{"oauth/consent.html", "Money that is neither spent nor held returns at once", stopsOfPause},
		{"oauth/consent.html", "Calls stop immediately", stopsOfPause},
	}
)

var (
	sayNever = regexp.MustCompile(`(?i)\bnever\b`)
	sayStop  = regexp.MustCompile(`\b(immediately|at once|can’t make calls|stops all)\b`)
)

// TestUniversalsHaveTests: whoever writes "never" into a guide, or on a page that something stops, names the test that
// would fail if it were not so.
func TestUniversalsHaveTests(t *testing.T) {
	t.Parallel()
	guides, err := filepath.Glob("docs/guide/*.md")
	if err != nil || len(guides) < 20 {
		t.Fatalf("%d guides, %v", len(guides), err)
	}
	for _, name := range append(guides, "README.md") {
		text := fencedCode.ReplaceAllString(readText(t, name), "")
		checkClaims(t, filepath.ToSlash(name), text, sayNever, claims)
	}
	const templates = "internal/base/ui/templates/"
	for _, folder := range []string{"dashboard", "oauth"} {
		for _, name := range textFiles(t, templates+folder) {
			text := templateAction.ReplaceAllString(readText(t, name), "")
			checkClaims(t, strings.TrimPrefix(filepath.ToSlash(name), templates), text, sayStop, stops)
		}
	}
}

// checkClaims reports each place of a text that matches and is in no claim, and each claim of the file that the text
// lacks or whose tests are not there.
func checkClaims(t *testing.T, file, text string, says *regexp.Regexp, list []claim) {
	t.Helper()
	text = strings.Join(strings.Fields(text), " ")
	claimed := map[int]bool{}
	for _, c := range list {
		if c.file != file {
			continue
		}
		from := 0
		for {
			i := strings.Index(text[from:], c.part)
			if i < 0 {
				break
			}
			for _, at := range says.FindAllStringIndex(c.part, -1) {
				claimed[from+i+at[0]] = true
			}
			from += i + len(c.part)
		}
		if from == 0 {
			t.Errorf("%s does not say %q", file, c.part)
		}
		for _, test := range c.tests {
			checkTestExists(t, test)
		}
	}
	for _, at := range says.FindAllStringIndex(text, -1) {
		if !claimed[at[0]] {
			t.Errorf("%s says %q: name the test that shows it", file, text[max(0, at[0]-60):min(len(text), at[1]+60)])
		}
	}
}

// checkTestExists reports a test that is not there; "–" begins a reason in its place.
func checkTestExists(t *testing.T, test string) {
	t.Helper()
	if strings.HasPrefix(test, "–") {
		return
	}
	file, name, _ := strings.Cut(test, " ")
	code, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(code), "\nfunc "+name+"(t *testing.T)") {
		t.Errorf("there is no %s: %v", test, err)
	}
}
