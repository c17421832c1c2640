package docs

import (
	"html"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/docs/guide"
)

var testAddresses = addresses{"https://api.example.com", "https://id.example.com", "https://my.example.com"}

// guides returns the rendered guides.
func guides(t *testing.T) *library {
	t.Helper()
	l, err := newLibrary(testAddresses)()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Every guide stands in the navigation, once.
func TestEveryGuideIsListed(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(guide.Files, "*.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, g := range guide.Groups() {
		for _, name := range g.Pages {
			listed = append(listed, name+".md")
		}
	}
	slices.Sort(listed)
	if !slices.Equal(listed, files) {
		t.Errorf("guide.Groups lists %q, and docs/guide has %q", listed, files)
	}
}

var (
	links = regexp.MustCompile(`<a (?:class="anchor" )?href="([^"]*)"`)
	ids   = regexp.MustCompile(` id="([^"]*)"`)
)

// Every link of a guide to a guide leads to a page, and to a heading of it.
func TestLinksOfGuidesResolve(t *testing.T) {
	t.Parallel()
	l := guides(t)
	anchors := map[string][]string{} // by path
	for _, p := range l.pages {
		for _, m := range ids.FindAllStringSubmatch(string(p.body), -1) {
			if slices.Contains(anchors[p.path()], m[1]) || m[1] == "" {
				t.Errorf("%s has the anchor %q twice, or it is empty", p.name, m[1])
			}
			anchors[p.path()] = append(anchors[p.path()], m[1])
		}
	}
	for _, p := range l.pages {
		for _, m := range links.FindAllStringSubmatch(string(p.body), -1) {
			target := html.UnescapeString(m[1])
			path, anchor, hasAnchor := strings.Cut(target, "#")
			switch {
			case strings.HasPrefix(path, "https://"):
				continue
			case path == "":
				path = p.path()
			}
			if name, ok := strings.CutPrefix(path, "/docs/"); ok && l.byName[name] == nil ||
				!ok && path != "/reference" && path != "/openapi.yaml" && path != "/llms.txt" {
				t.Errorf("%s links to %s, which is no page", p.name, target)
			} else if hasAnchor && !slices.Contains(anchors[path], anchor) {
				t.Errorf("%s links to %s, where there is no such heading", p.name, target)
			}
		}
	}
}

// The title, the summary and the sections of each guide have text. A page starts with a title, and levels of headings
// follow each other.
func TestGuidesHaveAnOutline(t *testing.T) {
	t.Parallel()
	for _, p := range guides(t).pages {
		if p.title == "" || p.summary == "" {
			t.Errorf("%s: title %q, summary %q", p.name, p.title, p.summary)
		}
		level := 1
		for _, h := range p.sections[1:] {
			if h.Level > level+1 || h.Level < 2 {
				t.Errorf("%s: %q has level %d after level %d", p.name, h.Text, h.Level, level)
			}
			level = h.Level
		}
	}
}

// Prices per thousand tokens become exact prices per million.
func TestPerMillion(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"0.000000": "", "0.000150": "$0.15", "0.001250": "$1.25", "0.040000": "$40.00", "1.500000": "$1500.00",
		"0.000075": "$0.075", "0.000001": "$0.001",
	} {
		if got := perMillion(from); got != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
}
