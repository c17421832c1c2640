package purser_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/purserhq/purser/internal/base/apierr"
)

// readText returns a file of the repository.
func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	errorRow     = regexp.MustCompile("(?m)^\\| \\[`(\\w+)`\\]\\(#(\\w+)\\) \\| (\\d{3}) \\|")
	errorSection = regexp.MustCompile(`(?m)^## ([a-z]\w*)\n\n\*\*(\d{3})\b`)
	contractCode = regexp.MustCompile(`(?m)^\| (\d{3}) ([a-z_]+) \|`)
	apiCode      = regexp.MustCompile(`code: \{enum: \[([^\]]*)\]`)
)

// TestErrorGuideIsComplete holds the guide to errors, the contract, the API description and the table of the SDKs
// against the codes of package apierr: a new code needs a row and a section that doc_url can lead to.
func TestErrorGuideIsComplete(t *testing.T) {
	t.Parallel()
	want := map[string]string{} // status by code
	for _, c := range apierr.All {
		want[c.Name] = strconv.Itoa(c.Status)
	}
	guide := readText(t, "docs/guide/errors.md")
	rows, sections := map[string]string{}, map[string]string{}
	for _, m := range errorRow.FindAllStringSubmatch(guide, -1) {
		if m[1] != m[2] || rows[m[1]] != "" {
			t.Errorf("errors.md: the row of %s links to %s, or is there twice", m[1], m[2])
		}
		rows[m[1]] = m[3]
	}
	for _, m := range errorSection.FindAllStringSubmatch(guide, -1) {
		sections[m[1]] = m[2]
	}
	requireEqual(t, "rows of errors.md", rows, want)
	requireEqual(t, "sections of errors.md", sections, want)

	for _, m := range contractCode.FindAllStringSubmatch(readText(t, "docs/contract.md"), -1) {
		if want[m[2]] != m[1] {
			t.Errorf("contract §7 has %s %s, which package apierr does not", m[1], m[2])
		}
	}
	described := map[string]string{}
	for _, m := range apiCode.FindAllStringSubmatch(readText(t, "api/openapi.yaml"), -1) {
		for code := range strings.SplitSeq(m[1], ",") {
			code = strings.TrimSpace(code)
			described[code] = want[code]
		}
	}
	delete(want, "method_not_allowed") // of no operation that is described
	requireEqual(t, "codes of openapi.yaml", described, want)
}

// TestSDKsKnowEveryError holds the table by which SDKs say what to do about an error against package apierr.
func TestSDKsKnowEveryError(t *testing.T) {
	t.Parallel()
	var table struct {
		Codes map[string]struct{ Status int } `json:"codes"`
	}
	if err := json.Unmarshal([]byte(readText(t, "sdk/conformance/errors.json")), &table); err != nil {
		t.Fatal(err)
	}
	got, want := map[string]string{}, map[string]string{}
	for name, c := range table.Codes {
		got[name] = strconv.Itoa(c.Status)
	}
	for _, c := range apierr.All {
		want[c.Name] = strconv.Itoa(c.Status)
	}
	requireEqual(t, "codes of sdk/conformance/errors.json", got, want)
}

// requireEqual reports each difference of two maps.
func requireEqual(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if value, ok := got[name]; !ok || value != want[name] {
			t.Errorf("%s: %s is %q, want %q", what, name, value, want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is not known to the code", what, name)
		}
	}
}

// A guideLimit is a row of a table of docs/guide/limits.md that has no refusal of spend. Its value must be in the row,
// and source in the file that applies it: whoever changes the one finds the other.
type guideLimit struct{ row, value, file, source string }

var guideLimits = []guideLimit{
	{"Authorization code", "60 s", "internal/apps/oauth/verdict/verdict.go", "CodeTTL         = 60 * time.Second"},
	{"Access token", "15 minutes", "internal/apps/oauth/verdict/verdict.go", "AccessTokenTTL  = 15 * time.Minute"},
	{"Refresh token", "90 days", "internal/apps/oauth/verdict/verdict.go", "RefreshTokenTTL = 90 * 24 * time.Hour"},
	{"Repeat of an authorization code with its `Idempotency-Key`", "60 s", "internal/apps/oauth/verdict/verdict.go",
		"ReplayTTL       = 60 * time.Second"},
	{"Repeat of a refresh with its `Idempotency-Key`", "90 days", "internal/apps/oauth/store.go",
		"req.RefreshToken != \"\":\n\t\treturn verdict.RefreshTokenTTL"},
	{"Repeat of a device's poll with its `Idempotency-Key`", "10 minutes", "internal/apps/oauth/store.go",
		"return verdict.DeviceCodeTTL"},
	{"Device code", "10 minutes, polled every 5 s", "internal/apps/oauth/verdict/device.go",
		"DeviceCodeTTL   = 10 * time.Minute\n\tPollInterval    = 5 * time.Second"},
	{"Old client secret after a replacement", "24 hours", "internal/apps/apps/store.go",
		"SecretOverlap = 24 * time.Hour"},
	{"Voice ticket", "60 s", "internal/gateway/voice/create.go", "ticketTTL = time.Minute"},

	{"Charges of all users in the last hour", "more than $50, and more than 20 times",
		"internal/apps/watch/rules/rules.go", "SpendFloor  = 50 * money.Dollar"},
	{"The same, while there are fewer than 24 such hours", "more than $250", "internal/apps/watch/rules/rules.go",
		"newAppFloor = 250 * money.Dollar\n\tminHours    = 24\n\tspendFactor = 20"},
	{"Users who revoked within 24 hours", "at least 10, and a fifth", "internal/apps/watch/rules/rules.go",
		"MinRevocations   = 10\n\tRevocationsShare = 5"},
	{"Charges taken back by banks within 30 days", "3", "internal/apps/watch/rules/rules.go", "MinChargebacks   = 3"},

	{"Hold margin", "5 %", "internal/models/pricing/pricing.go", "holdRate = money.One + money.One/20"},
	{"Hold of a call whose node died", "5 minutes", "docs/contract.md", "| Authorization hold expiry | about 5 min |"},
	{"Call", "10 minutes", "internal/gateway/inference/attempt.go", "maxCallDuration   = 10 * time.Minute"},
	{"Request body", "32 MiB", "internal/gateway/inference/plan/request.go", "MaxBody = 32 << 20"},
	{"Arrival of a request body", "64 KiB in each 15 s, all of it in 2 minutes", "internal/gateway/inference/body.go",
		"bodyPace    = 64 << 10\n\tbodyWait    = 15 * time.Second\n\tbodyTimeout = 2 * time.Minute"},
	{"Memory of requests and answers on a node, which developers share", "set by the operator",
		"internal/config/config.go", "call_memory"},
	{"Memory of requests and answers on a node, which developers share", "at most half of a developer's share",
		"internal/gateway/inference/load.go", "c.bytes.CheckPart(s.developer, &c.large"},
	{"Calls in flight on a node, which apps share", "at most half of an app's share",
		"internal/gateway/inference/load.go", "c.node.CheckPart(app, &c.users"},
	{"Calls of a user on your app that end before their answers: what they may have cost at the provider",
		"$10 at once, and $10 in 24 hours", "internal/gateway/inference/unbilled.go",
		"unbilledTokenMC = 10 * money.Dollar / unbilledBurst"},
	{"Remote images of a user on your app, of estimates and of calls that are refused",
		"100 at once, and one a second", "internal/gateway/inference/load.go",
		"imageInterval = time.Second // of one, over time\n\timageBurst    = 100"},
	{"Downloads in the dashboard and the console", "one at a time for an account, an hour",
		"internal/base/web/turns.go", "pageTimeout = time.Hour"},
	{"Concurrent deliveries of a developer", "455", "internal/apps/webhooks/dispatch.go", "maxAttempts = 512"},
	{"Stored response of an idempotency key", "a fifth of each for one user", "internal/gateway/inference/stored.go",
		"userStoringShare = 5"},
	{"What the sandbox apps of a developer make for nothing", "10 a second over time, 2,000 at once",
		"internal/server/wire.go", "freeRate  = 10 // a second\n\tfreeBurst = 2000"},
	{"JSON of a mock answer", "16 KiB", "internal/models/provider/mock/speak.go", "maxJSONBytes = 16 << 10"},
	{"Refused calls that have a receipt", "one a second over time, 1,000 at once", "internal/gateway/inference/http.go",
		"refusalInterval  = time.Second // between refusals that are stored, over time\n\trefusalBurst     = 1000"},
	{"New children of a connection", "one a second over time, 200 at once", "internal/gateway/children/http.go",
		"createBurst   = 200\n\tcreatePause   = time.Second"},
	{"[Holds](own-work.md) of a connection", "two a second over time, 2,000 at once", "internal/gateway/holds/http.go",
		"createPause = time.Second / 2\n\tcreateBurst = 2000"},
	{"Sample events of a developer's apps", "10 a minute over time, 300 at once", "internal/apps/webhooks/store.go",
		"samplesPerMinute = 10\n\tsamplesBurst     = 300"},
	{"Deliveries that a developer sends again one by one", "one a second over time, 1,000 at once",
		"internal/apps/webhooks/store.go", "againBurst       = 1000 // one a second"},
	{"Mock calls of a developer", "200 at the same time", "internal/server/wire.go", "maxMockCalls = 200"},
	{"Stored response of an idempotency key", "10 GB of an app", "internal/config/load.go",
		"StoredBytes:      10_000_000_000"},
	{"Stored response of an idempotency key", "1 GB of all mock calls of a developer, a seventh",
		"internal/gateway/inference/stored.go", "mockStoringShare = 10"},
	{"Messages", "4,096", "internal/gateway/inference/plan/check.go", "maxMessages = 4096"},
	{"Content parts and tool calls of all messages", "32,768", "internal/gateway/inference/plan/check.go",
		"maxParts    = 1 << 15"},
	{"Members of the objects around one place of a JSON body", "65,536", "internal/base/web/json.go",
		"maxOpenNames    = 1 << 16"},
	{"Tools", "128", "internal/gateway/inference/plan/check.go", "maxTools    = 128"},
	{"Tool name", "`^[a-zA-Z0-9_-]{1,64}$`", "internal/gateway/inference/plan/check.go", "`^[a-zA-Z0-9_-]{1,64}$`"},
	{"Images", "20 in a request", "internal/gateway/inference/plan/check.go", "maxImages   = 20"},
	{"Images", "5 MiB", "internal/models/images/image.go", "MaxBytes  = 5 << 20"},
	{"Stored response of an idempotency key", "7 days", "internal/ledger/store/node.go",
		"Responses: 7 * 24 * time.Hour"},
	{"Stored response of an idempotency key", "8 MiB", "internal/gateway/inference/call.go",
		"maxStoredResponse = 8 << 20"},
	{"Comment in a silent stream", "15 s", "internal/gateway/inference/sse.go", "keepAliveInterval = 15 * time.Second"},
	{"Charge of a stream that is `pending`", "10 minutes", "internal/gateway/inference/pending.go",
		"recordAwaited  = 10 * time.Minute"},
	{"Event streams of a connection", "5", "internal/gateway/feed/hub.go", "maxStreamsPerConnection = 5"},
	{"Inputs of an embedding call", "2,048, and 300,000 tokens", "internal/gateway/shapes/embeddings/embeddings.go",
		"maxInputs = 2048\n\tmaxTokens = 300_000"},

	{"Sessions of a connection that have not ended", "2", "internal/gateway/voice/sql.go", "maxSessions = 2"},
	{"`max_duration_s`", "30 to 3,540", "internal/gateway/voice/request.go",
		"minDurationS    = 30\n\tmaxDurationS    = 3540"},
	{"`max_duration_s`", "default 900", "internal/gateway/voice/plan.go", "defaultDuration        = 15 * time.Minute"},
	{"`max_output_tokens` of a reply", "1,024", "internal/gateway/voice/plan.go", "defaultMaxOutputTokens = 1024"},
	{"`instructions`", "64 KiB", "internal/gateway/voice/session/tampering.go", "MaxInstructions = 64 << 10"},
	{"Message on the control channel, or of a browser of the mock", "256 KiB",
		"internal/gateway/voice/control_event.go", "maxControlBytes = 256 << 10"},
	{"Message on the control channel, or of a browser of the mock", "256 KiB", "internal/gateway/voice/mock_socket.go",
		"maxMockBytes = 256 << 10"},
	{"An id that an app names in an event", "512", "internal/gateway/voice/session/control.go", "MaxName = 512"},
	{"Events that wait for an app to read them", "256, and 1 MiB", "internal/gateway/voice/control_channel.go",
		"maxUnsentBytes      = 1 << 20"},
	{"Replies of a session, those counted that were only held for", "3,000",
		"internal/gateway/voice/session/billing.go", "MaxReplies = 3000"},
	{"Memory of sessions and control channels on a node, which developers share with calls", "set by the operator",
		"internal/gateway/voice/memory.go", "TakeMemory(developerID, sessionBytes)"},
	{"End after the control channel was lost, with `on_control_lost: end`", "10 s",
		"internal/gateway/voice/session/progress.go", "ControlGrace  = 10 * time.Second"},
	{"Approval of a budget block", "30 s", "internal/gateway/voice/session/billing.go",
		"ApprovalWindow = 30 * time.Second"},
	{"Silence", "2 minutes", "internal/config/load.go", "VoiceIdleTimeout: 2 * time.Minute"},

	{"Redirect URIs of an app", "50", "internal/apps/apps/redirect.go", "maxRedirectURIs     = 50"},
	{"Live children of a connection", "100, to depth 4", "internal/ledger/rules/children.go",
		"MaxChildDepth   = 4\n\tMaxLiveChildren = 100"},
	{"Allowed models of an app", "200", "internal/apps/apps/change.go", "maxAllowedModels = 200"},
	{"Feature slug", "`^[a-z0-9-]{1,40}$`", "internal/apps/features/feature.go", "`^[a-z0-9-]{1,40}$`"},
	{"Features named in one authorize request", "20", "internal/apps/oauth/verdict/authorize.go", "maxFeatures   = 20"},
	{"Margin rate", "0 to 10", "internal/apps/apps/app.go", "MaxDevMargin = 10 * money.One"},

	{"Endpoints of an app", "20", "internal/apps/webhooks/endpoint.go", "MaxPerApp = 20"},
	{"Your answer to a delivery", "15 s", "internal/apps/webhooks/send.go", "attemptTimeout = 15 * time.Second"},
	{"Retries", "1 min, 5 min, 30 min, 2 h, 6 h and 15 h", "internal/apps/webhooks/dispatch.go",
		"time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour,\n\t15 * time.Hour"},
	{"Concurrent deliveries of an endpoint", "16", "internal/apps/webhooks/dispatch.go", "maxConcurrent = 16"},
	{"Concurrent deliveries of an endpoint", "100 a second", "internal/apps/webhooks/dispatch.go",
		"maxPerSecond    = 100"},
	{"Deliveries listed", "50", "internal/apps/webhooks/store.go", "maxListedDeliveries = 50"},
	{"Events kept", "90 days", "internal/apps/webhooks/store.go", "Events:     90 * 24 * time.Hour"},
	{"Deliveries to a disabled endpoint", "30 days", "internal/apps/webhooks/store.go",
		"Deliveries: 30 * 24 * time.Hour"},
	{"`connection.risk_warning`", "10 minutes", "internal/ledger/rules/settle.go",
		"warningInterval = 10 * time.Minute"},

	{"Test accounts", "25", "internal/people/accounts/account.go", "MaxTestAccounts = 25"},
	{"Testers of an app", "100", "internal/apps/apps/testers.go", "MaxTesters = 100"},
	{"Live models", "$1", "internal/ledger/tiers/tiers.go", "DefaultSandboxDayMC = money.Dollar"},

	{"Requests with a `client_id`", "100 a second, 500 at once", "internal/apps/apps/store.go",
		"web.NewLimiter(time.Second/100, 500, now)"},
	{"Requests to `/oauth/token` with a `client_id`", "20 a second, 100 at once", "internal/apps/apps/store.go",
		"web.NewLimiter(time.Second/20, 100, now)"},
	{"Wrong credentials, per client and address", "10 a minute", "internal/apps/apps/store.go",
		"web.NewLimiter(time.Minute/10, 10, now)"},
	{"Rows of one page", "100 with `limit`; 1,000 without", "internal/base/web/paging.go", "Page{Limit: 1000}"},
}

// contractLimits says which row of the guide has a row of contract §8. The rows of the table of spend are named by
// their beginning.
var contractLimits = map[string]string{
	"Authorization code TTL":    "Authorization code",
	"Access token TTL":          "Access token",
	"Refresh token lifetime":    "Refresh token",
	"Voice ticket TTL":          "Voice ticket",
	"Authorization hold expiry": "Hold of a call whose node died",
	"Hold estimate margin":      "Hold margin",
	"tools per request":         "Tools",
	"Tool name":                 "Tool name",
	"Images":                    "Images",
	"Feature slug":              "Feature slug",
	"Pending or live voice sessions per connection": "Sessions of a connection that have not ended",
	"max_duration_s":                             "`max_duration_s`",
	"max_output_tokens":                          "`max_output_tokens` of a reply",
	"Control-lost end delay":                     "End after the control channel was lost, with `on_control_lost: end`",
	"Block approval window":                      "Approval of a budget block",
	"Risk warning frequency":                     "`connection.risk_warning`",
	"Faster-spend allowance":                     "The user allows faster spend",
	"Webhook retries":                            "Retries",
	"Deliveries listed":                          "Deliveries listed",
	"Test accounts":                              "Test accounts",
	"Sandbox live-model allowance":               "Live models",
	"Limited-live spend cap per connection":      "Limited-live app: of one allocation",
	"Limited-live spend per connection per 24 h": "Limited-live app: one connection in 24 hours",
	"Limited-live spend across the app per 24 h": "Limited-live app: all connections in 24 hours",
	"Free-credit pool per live app":              "Free credit: pool of a live app",
	"Free usage per user":                        "Free credit: a user on all apps",
}

var tableRow = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]*) \|`)

// TestLimitGuideIsComplete holds docs/guide/limits.md against the code and contract §8.
func TestLimitGuideIsComplete(t *testing.T) {
	t.Parallel()
	guide := readText(t, "docs/guide/limits.md")
	rows := map[string]string{} // value by name
	for _, m := range tableRow.FindAllStringSubmatch(guide, -1) {
		if m[1] != "Limit" {
			rows[m[1]] = m[2]
		}
	}
	known := map[string]bool{}
	for _, l := range guideLimits {
		known[l.row] = true
		value, ok := rows[l.row]
		if !ok || !strings.Contains(value, l.value) {
			t.Errorf("limits.md: the row %q has %q, which lacks %q", l.row, value, l.value)
		}
		if !strings.Contains(readText(t, l.file), l.source) {
			t.Errorf("%s does not have %q: is the row %q of limits.md still true?", l.file, l.source, l.row)
		}
	}
	_, measures, ok := strings.Cut(guide, "## Tokens, codes and tickets")
	if !ok {
		t.Fatal("limits.md has no part of tokens, codes and tickets")
	}
	for _, m := range tableRow.FindAllStringSubmatch(measures, -1) {
		if m[1] != "Limit" && !known[m[1]] {
			t.Errorf("limits.md: guideLimits does not say where the row %q is applied", m[1])
		}
	}
	_, section, _ := strings.Cut(readText(t, "docs/contract.md"), "\n## 8. ")
	section, _, _ = strings.Cut(section, "\n## ")
	found := 0
	for _, m := range tableRow.FindAllStringSubmatch(section, -1) {
		if m[1] == "Limit" {
			continue
		}
		found++
		if _, ok := rows[contractLimits[m[1]]]; !ok {
			t.Errorf("contract §8 has %q, and limits.md has no row %q", m[1], contractLimits[m[1]])
		}
	}
	if found != len(contractLimits) {
		t.Errorf("contract §8 has %d rows, and contractLimits %d", found, len(contractLimits))
	}
}

var (
	anchorLink = regexp.MustCompile(`\]\(([^)#\s]*)#([^)\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	fencedCode = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// TestAnchorsResolve follows every link of a document to a heading.
func TestAnchorsResolve(t *testing.T) {
	t.Parallel()
	anchors := map[string]map[string]bool{} // by file
	texts := repositoryTexts(t)
	for name, text := range texts {
		if path.Ext(name) == ".md" {
			texts[name] = fencedCode.ReplaceAllString(text, "")
			anchors[name] = headingAnchors(texts[name])
		}
	}
	links := 0
	for name, text := range texts {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range anchorLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			target := name
			if m[1] != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), m[1]))
			}
			if list, ok := anchors[target]; ok && !list[m[2]] {
				t.Errorf("%s links to %s#%s, and there is no such heading", name, target, m[2])
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links to headings were found", links)
	}
}

// headingAnchors returns the anchors of a document, as code hosts form them.
func headingAnchors(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		anchor := strings.Map(func(c rune) rune {
			switch {
			case c == ' ':
				return '-'
			case c == '-' || c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c):
				return unicode.ToLower(c)
			}
			return -1
		}, linkText.ReplaceAllString(m[1], "$1"))
		for n, base := 1, anchor; anchors[anchor]; n++ {
			anchor = fmt.Sprintf("%s-%d", base, n)
		}
		anchors[anchor] = true
	}
	return anchors
}

// TestQuickstartInAnEmptyFolder runs the commands by which a Go program gets the SDK in a folder that is empty but for
// the clone beside it, saves the program of the next step, and loads it: without the network, because the SDK needs
// nothing else.
func TestQuickstartInAnEmptyFolder(t *testing.T) {
	t.Parallel()
	guide := readText(t, "docs/guide/quickstart.md")
	_, commands, _ := strings.Cut(guide, "\n# Go ")
	_, commands, _ = strings.Cut(commands, "\n")
	commands, _, _ = strings.Cut(commands, "```")
	_, program, _ := strings.Cut(guide, "\n```go")
	_, program, _ = strings.Cut(program, "\n")
	program, _, _ = strings.Cut(program, "```")
	if !strings.Contains(commands, "go mod init") || !strings.Contains(program, "package main") {
		t.Fatalf("the guide has no commands and program for Go:\n%s\n%s", commands, program)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	app := filepath.Join(folder, "chat")
	err = errors.Join(os.Mkdir(app, 0o700), os.Symlink(here, filepath.Join(folder, "purser")),
		os.WriteFile(filepath.Join(app, "main.go"), []byte(program), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", commands+"\ngo list -deps . > deps")
	cmd.Dir, cmd.Env = app, append(os.Environ(), "GOPROXY=off", "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=local")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
