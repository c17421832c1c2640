package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/purserhq/purser/docs/guide"
	"github.com/purserhq/purser/internal/pages/docs"
)

// render returns the body of a guide with this text below its title.
func render(t *testing.T, text string) string {
	t.Helper()
	g, err := renderGuide("# Title\n\n" + text)
	if err != nil {
		t.Fatal(err)
	}
	return g.Body
}

func block(language, code string) string { return "```" + language + "\n" + code + "\n```\n" }

// Blocks of different languages that follow each other are one group of tabs.
func TestTabs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text           string
		groups, blocks int
	}{
		"four":            {block("sh", "a") + "\n" + block("ts", "a") + block("python", "a") + block("go", "a"), 1, 4},
		"one":             {block("sh", "a"), 0, 1},
		"text between":    {block("sh", "a") + "\nThen:\n\n" + block("ts", "a"), 0, 2},
		"same twice":      {block("sh", "a") + block("sh", "b"), 0, 2},
		"again":           {block("sh", "a") + block("ts", "a") + block("sh", "b") + block("go", "b"), 2, 4},
		"other languages": {block("json", "{}") + block("text", "a"), 0, 2},
		"with info":       {block(`ts skip="why"`, "a") + block("go", "a"), 1, 2},
	} {
		html := render(t, test.text)
		if groups, blocks := strings.Count(html, `class="code-tabs"`),
			strings.Count(html, "<figure"); groups != test.groups ||
			blocks != test.blocks {
			t.Errorf("%s: %d groups and %d blocks, want %d and %d\n%s", name, groups, blocks, test.groups, test.blocks,
				html)
		}
		if strings.Contains(html, "why") {
			t.Errorf("%s: shows the info string", name)
		}
	}
}

func TestCodeIsLabelled(t *testing.T) {
	t.Parallel()
	for text, label := range map[string]string{
		block("sh", "a"):                       "Shell",
		block("sh", "a") + block("go", "a"):    "curl",
		block("json", "{}"):                    "JSON",
		block("text", "a"):                     "",
		block("", "a"):                         "",
		block("nonsense", "<script></script>"): "NONSENSE",
	} {
		html := render(t, text)
		if got := strings.Contains(html, "<figcaption>"+label+"</figcaption>"); got != (label != "") {
			t.Errorf("%q has not the label %q:\n%s", text, label, html)
		}
		if !strings.Contains(html, `<pre tabindex="0">`) || strings.Contains(html, "<script") {
			t.Errorf("%q: %s", text, html)
		}
	}
}

// Guides are ours. If one held markup all the same, no page would run it.
func TestMarkupIsEscaped(t *testing.T) {
	t.Parallel()
	const evil = `<script>alert(1)</script>`
	for name, text := range map[string]string{
		"HTML":         evil,
		"block":        "<div onclick=\"alert(1)\">\n\n" + evil + "\n\n</div>",
		"inline":       "Text " + evil + " <img src=x onerror=alert(1)>",
		"link":         "[here](javascript:alert(1))",
		"heading":      "## " + evil + "\n",
		"code":         block("sh", evil+"</code></pre>"),
		"info":         block(`"><script>alert(1)</script>`, "a"),
		"table":        "| a |\n|---|\n| " + evil + " |\n",
		"code span":    "`" + evil + "`",
		"image":        `![x](javascript:alert(1) "\" onerror=alert(1)")`,
		"autolink":     "<javascript:alert(1)>",
		"tokens of sh": block("sh", `echo "$BASE_URL<script>" '`+evil+`'`),
	} {
		html := strings.ToLower(render(t, text))
		for _, part := range []string{"<script", "<img src=x", "<div onclick", `="javascript:`} {
			if strings.Contains(html, part) {
				t.Errorf("%s: holds %s:\n%s", name, part, html)
			}
		}
	}
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	g, err := renderGuide(
		"# Title\n\n## `allocation_exhausted`\n\n## What to do at 402, 403\n\n### Same\n\n### Same\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"allocation_exhausted", "what-to-do-at-402-403", "same", "same-1"}
	for i, h := range g.Sections[1:] {
		if i >= len(want) || h.Anchor != want[i] || !strings.Contains(g.Body, `id="`+h.Anchor+`"`) {
			t.Errorf("heading %d: %+v", i, h)
		}
	}
	if len(g.Sections) != len(want)+1 {
		t.Errorf("%d headings", len(g.Sections)-1)
	}
}

func TestLinksLeadToPages(t *testing.T) {
	t.Parallel()
	for link, want := range map[string]string{
		"limits.md":         "/docs/limits",
		"errors.md#a_b":     "/docs/errors#a_b",
		"#here":             "#here",
		"https://a.example": "https://a.example",
		"../x.md":           "../x.md",
		"/reference":        "/reference",
	} {
		if got := pagePath(link); got != want {
			t.Errorf("%s leads to %s, want %s", link, got, want)
		}
	}
}

// Only variables of the shell are marked, and not where the shell would not take them.
func TestVariablesAreMarked(t *testing.T) {
	t.Parallel()
	html := render(t, block("sh", `curl "$BASE_URL/v1/models" -u "$CLIENT_ID:$CLIENT_SECRET" -d '$BASE_URL' \`+
		"\n"+`-H "Bearer $ACCESS_TOKEN" # $BASE_URL`)+"\nText $BASE_URL\n\n"+block("go", `fmt.Println("$BASE_URL")`))
	for part, want := range map[string]int{
		docs.VariableStart:     3,
		"$BASE_URL":            5,
		">$BASE_URL</var>":     1,
		">$CLIENT_ID</var>":    1,
		">$ACCESS_TOKEN</var>": 1,
	} {
		if got := strings.Count(html, part); got != want {
			t.Errorf("%d times %s, want %d:\n%s", got, part, want, html)
		}
	}
}

// A guide has a title, and its addresses stay whole.
func TestNoGuide(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"", "No title.\n", "## Second level\n", "# A\n\n[here]({base_url}/x)\n"} {
		if _, err := renderGuide(source); err == nil {
			t.Errorf("%q is a guide", source)
		}
	}
}

// TestRenderedGuides compares the folder rendered with the guides.
func TestRenderedGuides(t *testing.T) {
	t.Parallel()
	files, err := renderAll(guide.Files)
	if err != nil {
		t.Fatal(err)
	}
	const folder = "../rendered"
	stored, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	const how = "run make guides"
	if len(stored) != len(files) {
		t.Errorf("%s has %d files, want %d: %s", folder, len(stored), len(files), how)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(folder, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from its guide (%v): %s", name, err, how)
		}
	}
}
