package voice

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/apierr"
)

var (
	sentType    = regexp.MustCompile(`Type(?::| =) +"(svc\.[a-z_.]+)"|Type: "(error)"`)
	relayedType = regexp.MustCompile(
		`"((?:response|input_audio_buffer)\.[a-z_.]+(?:done|started|stopped)|response\.created|error)",`)
	takenType = regexp.MustCompile(`"((?:session|conversation|response|svc)\.[a-z_.]+)"`)
	endReason = regexp.MustCompile(`(?m)^\t[A-Z]\w+ += "([a-z_]+)"`)
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	closeCode = regexp.MustCompile(`\b(1\d{3}|4\d{3})\b`)
)

// TestVoiceGuideIsComplete holds docs/guide/voice.md against the events of the control channel and
// the end reasons. Each event has an example that parses.
func TestVoiceGuideIsComplete(t *testing.T) {
	t.Parallel()
	guide := readGuide(t)
	session := ""
	files, err := filepath.Glob("session/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			session += readSource(t, name)
		}
	}
	sent := collect(sentType, session)
	requireSame(t, "events of Purser", firstSpans(guidePart(t, guide, "| Event | What to do |", "\n\n")), sent)
	var examples []string
	for line := range strings.Lines(guide) {
		if !strings.HasPrefix(line, `{"type":"svc.`) && !strings.HasPrefix(line, `{"type":"error"`) {
			continue
		}
		var example struct{ Type string }
		if err := json.Unmarshal([]byte(line), &example); err != nil {
			t.Errorf("voice.md: %s: %v", line, err)
		}
		examples = append(examples, example.Type)
	}
	slices.Sort(examples)
	requireSame(t, "examples of events", slices.Compact(examples), sent)

	relayed := collect(relayedType, readSource(t, "session/provider.go"))
	requireSame(t, "events of the provider",
		collect(codeSpan,
			guidePart(t, guide, "You get these events of the provider as they are:", "And these of Purser")),
		relayed)

	_, parser, _ := strings.Cut(readSource(t, "control_event.go"), "switch c.Type {")
	parser, _, _ = strings.Cut(parser, "\n}\n")
	var taken []string
	for line := range strings.Lines(guidePart(t, guide, "You may send:", "You get these events")) {
		if m := takenType.FindStringSubmatch(line); m != nil {
			taken = append(taken, m[1])
		}
	}
	slices.Sort(taken)
	requireSame(t, "events that an app may send", slices.Compact(taken), collect(takenType, parser))

	_, reasons, _ := strings.Cut(readSource(t, "session/state.go"), "// The end reasons of contract §3.")
	reasons, _, _ = strings.Cut(reasons, "\n)\n")
	want := collect(endReason, reasons)
	for _, code := range refusalsOfHolds {
		if !slices.Contains(want, code.Name) {
			want = append(want, code.Name)
		}
	}
	slices.Sort(want)
	var got []string
	for line := range strings.Lines(guidePart(t, guide, "| Reason | What to tell the user |", "\n\n")) {
		got = append(got, collect(codeSpan, strings.Split(line, " | ")[0])...)
	}
	slices.Sort(got)
	requireSame(t, "end reasons", got, want)
}

// refusalsOfHolds are the codes with which the hold of a reply can be refused: each is an end reason.
var refusalsOfHolds = []apierr.Code{
	apierr.AllocationExhausted, apierr.FeatureCostExceeded, apierr.ConnectionRevoked, apierr.ConnectionFrozen,
	apierr.AppSuspended, apierr.RiskThrottled, apierr.DailyLimitReached, apierr.AppSpendLimited,
	apierr.SandboxLiveCostLimited, apierr.Unavailable,
}

// TestVoiceGuideHasTheCloseCodes holds the close codes of the guide against those of the handler.
func TestVoiceGuideHasTheCloseCodes(t *testing.T) {
	t.Parallel()
	guide := readGuide(t)
	want := []string{"4001", "4004", "4009"}
	handler := collect(regexp.MustCompile(`StatusCode = (\d+)`), readSource(t, "handler.go"))
	requireSame(t, "close codes of the handler", handler, want)
	documented := collect(closeCode, guide)
	for _, code := range want {
		if !slices.Contains(documented, code) {
			t.Errorf("voice.md does not explain the close code %s", code)
		}
	}
}

// guidePart returns the text between two texts of the guide.
func guidePart(t *testing.T, guide, from, to string) string {
	t.Helper()
	_, part, ok := strings.Cut(guide, from)
	part, _, ended := strings.Cut(part, to)
	if !ok || !ended {
		t.Fatalf("voice.md has no part from %q to %q", from, to)
	}
	return part
}

// firstSpans returns the first code span of each row of a table.
func firstSpans(table string) []string {
	var found []string
	for line := range strings.Lines(table) {
		if m := codeSpan.FindStringSubmatch(line); m != nil {
			found = append(found, m[1])
		}
	}
	slices.Sort(found)
	return found
}

// collect returns the first group that is set of each match, sorted and each once.
func collect(pattern *regexp.Regexp, text string) []string {
	found := map[string]bool{}
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		found[strings.Join(m[1:], "")] = true
	}
	return slices.Sorted(maps.Keys(found))
}

func requireSame(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func readGuide(t *testing.T) string {
	t.Helper()
	return readSource(t, "../../../docs/guide/voice.md")
}

func readSource(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
