package docs

import (
	"html/template"
	"strings"
	"testing"
)

// Variables of examples are filled in with what is known and plain.
func TestValuesAreFilledIn(t *testing.T) {
	t.Parallel()
	marked := func(name string) string { return VariableStart + name + `">$` + name + "</var>" }
	body := template.HTML("<p>$BASE_URL " + marked("BASE_URL") + marked("CLIENT_ID") + marked("ACCESS_TOKEN") + "</p>")
	var v values
	if v.fill(body) != body {
		t.Error("nothing is known, and something is filled in")
	}
	v.panel.BaseURL, v.panel.ClientID, v.panel.Token = "https://api.example.com", "cid_1", "tok_<en>"
	html := string(v.fill(body))
	for part, want := range map[string]int{
		"https://api.example.com</var>": 1,
		">cid_1</var>":                  1,
		"$BASE_URL":                     1,
		"tok_":                          0, // not plain
		`>$ACCESS_TOKEN</var>`:          1,
	} {
		if got := strings.Count(html, part); got != want {
			t.Errorf("%d times %s, want %d:\n%s", got, part, want, html)
		}
	}
}

// The names of addresses are nowhere in a page.
func TestAddressesAreFilledIn(t *testing.T) {
	t.Parallel()
	filled := 0
	for _, p := range guides(t).pages {
		text := p.title + p.summary + p.source + string(p.body)
		for _, s := range p.sections {
			text += s.Text + s.Body
		}
		if strings.Contains(text, "_url}") {
			t.Errorf("%s has the name of an address", p.name)
		}
		filled += strings.Count(string(p.body), testAddresses.base)
	}
	if filled == 0 {
		t.Error("no page has an address")
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
		if len(found) == 0 || found[0].page.path()+"#"+found[0].section.Anchor != want {
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
