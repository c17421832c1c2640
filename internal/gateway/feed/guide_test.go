package feed

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	eventKind  = regexp.MustCompile(`kind(?::| :?=) "(\w+)"`)
	endConst   = regexp.MustCompile(`(?m)^\tend\w+ += "(\w+)"`)
	guideEvent = regexp.MustCompile("(?m)^\\| `(\\w+)` \\|")
	guideEnd   = regexp.MustCompile("`(\\w+)`:")
	apiKinds   = regexp.MustCompile(`type: \{(?:const: (\w+)|enum: \[([^\]]*)\])\}`)
)

// TestLiveSpendGuideIsComplete holds the guide and the API description against the events of this package.
func TestLiveSpendGuideIsComplete(t *testing.T) {
	t.Parallel()
	source := readRepositoryFile(t, "internal/gateway/feed/event.go")
	kinds := findAll(eventKind, source)
	guide := readRepositoryFile(t, "docs/guide/live-spend.md")
	events, _, _ := strings.Cut(guide, "**Reconnecting.**")
	if got := findAll(guideEvent, events); !slices.Equal(got, kinds) {
		t.Errorf("live-spend.md has the events %q, and the code %q", got, kinds)
	}
	_, ends, _ := strings.Cut(guide, "**The end.**")
	ends, _, _ = strings.Cut(ends, "\n\n")
	if got, want := findAll(guideEnd, ends), findAll(endConst, source); !slices.Equal(got, want) {
		t.Errorf("live-spend.md has the reasons %q, and the code %q", got, want)
	}
	_, schema, _ := strings.Cut(readRepositoryFile(t, "api/openapi.yaml"), "    ConnectionStreamEvent:\n")
	schema, _, _ = strings.Cut(schema, "\n    Connection:\n")
	if got := findAll(apiKinds, schema); !slices.Equal(got, kinds) {
		t.Errorf("openapi.yaml has the events %q, and the code %q", got, kinds)
	}
}

// findAll returns the groups of all matches, sorted and each once. A group may be a list with commas.
func findAll(pattern *regexp.Regexp, text string) []string {
	found := map[string]bool{}
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		for word := range strings.SplitSeq(strings.Join(m[1:], ""), ", ") {
			found[word] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func readRepositoryFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
