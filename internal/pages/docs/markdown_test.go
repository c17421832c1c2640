package docs

import (
	"strings"
	"testing"

	"github.com/purserhq/purser/docs/guide"
)

// render returns the body of a guide with this text below its title.
func render(t *testing.T, text string) string {
	t.Helper()
	p, err := renderPage("test", "# Title\n\n"+text)
	if err != nil {
		t.Fatal(err)
	}
	return string(p.body)
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
	p, err := renderPage("test",
		"# Title\n\n## `allocation_exhausted`\n\n## What to do at 402, 403\n\n### Same\n\n### Same\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"allocation_exhausted", "what-to-do-at-402-403", "same", "same-1"}
	for i, h := range p.headings {
		if i >= len(want) || h.anchor != want[i] || !strings.Contains(string(p.body), `id="`+h.anchor+`"`) {
			t.Errorf("heading %d: %+v", i, h)
		}
	}
	if len(p.headings) != len(want) {
		t.Errorf("%d headings", len(p.headings))
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

// Only variables of the shell are filled in, and not where the shell would not.
func TestValuesAreFilledIn(t *testing.T) {
	t.Parallel()
	p, err := renderPage("test", "# Title\n\n"+
		block("sh", `curl "$BASE_URL/v1/models" -u "$CLIENT_ID:$CLIENT_SECRET" -d '$BASE_URL' \`+
			"\n"+`-H "Bearer $ACCESS_TOKEN" # $BASE_URL`)+
		"\nText $BASE_URL\n\n"+block("go", `fmt.Println("$BASE_URL")`))
	if err != nil {
		t.Fatal(err)
	}
	var v values
	if v.fill(p.body) != p.body || !p.usesVars {
		t.Error("nothing is known, and something is filled in")
	}
	v.panel.BaseURL, v.panel.ClientID, v.panel.Token = "https://api.example.com", "cid_1", "tok_<en>"
	html := string(v.fill(p.body))
	for part, want := range map[string]int{
		"https://api.example.com</var>": 1,
		">cid_1</var>":                  1,
		"$CLIENT_SECRET":                1,
		"$BASE_URL":                     4, // quoted, comment, text and Go
		"tok_":                          0, // not plain
		`>$ACCESS_TOKEN</var>`:          1,
	} {
		if got := strings.Count(html, part); got != want {
			t.Errorf("%d times %s, want %d:\n%s", got, part, want, html)
		}
	}
}

func TestAddressesAreFilledIn(t *testing.T) {
	t.Parallel()
	l, err := renderLibrary([]guide.Group{{Title: "A", Pages: []string{"a"}}}, testAddresses,
		func(string) (string, error) {
			return "# A\n\nAt `{base_url}/v1`, {auth_url} and {dashboard_url}.\n", nil
		})
	if err != nil {
		t.Fatal(err)
	}
	const want = "At https://api.example.com/v1, https://id.example.com and https://my.example.com."
	if l.pages[0].summary != want {
		t.Errorf("%q, want %q", l.pages[0].summary, want)
	}
	for _, source := range []string{"", "No title.\n", "## Second level\n"} {
		_, err := renderLibrary([]guide.Group{{Title: "A", Pages: []string{"a"}}}, testAddresses,
			func(string) (string, error) { return source, nil })
		if err == nil {
			t.Errorf("%q is a guide", source)
		}
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	l := guides(t)
	for query, want := range map[string]string{
		"allocation_exhausted": "/docs/errors#allocation_exhausted",
		"Risk_Throttled":       "/docs/errors#risk_throttled",
		"":                     "",
		"  ":                   "",
		"xyzzy":                "",
	} {
		found := l.search(query)
		if want == "" {
			if len(found) > 0 {
				t.Errorf("%q finds %d sections", query, len(found))
			}
			continue
		}
		if len(found) == 0 || found[0].page.path()+"#"+found[0].section.anchor != want {
			t.Errorf("%q does not find %s first, of %d", query, want, len(found))
		}
		if len(found) > maxResults {
			t.Errorf("%q finds %d sections", query, len(found))
		}
	}
	if found := l.search(strings.Repeat("a ", 1000)); len(found) == 0 {
		t.Error("a long query finds nothing")
	}
}

func TestSnippetMarksTerms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Send an Idempotency-Key with it.": "Send an |Idempotency|-Key with it.",
		"Nothing":                          "Nothing",
		"":                                 "",
		strings.Repeat("word ", 60) + "idempotency " + strings.Repeat("word ", 60): "",
	} {
		got := strings.Join(snippet(text, []string{"idempotency"}), "|")
		if want != "" && got != want || len(got) > snippetRunes+20 {
			t.Errorf("%q, want %q", got, want)
		}
		if len(text) > 300 && !strings.Contains(got, "|idempotency|") {
			t.Errorf("%q lacks the term", got)
		}
	}
}
