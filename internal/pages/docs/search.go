package docs

import (
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/base/ui"
)

const (
	// maxResults is how many results a search shows.
	maxResults = 12

	// maxQueryRunes and maxTerms bound the work of one search.
	maxQueryRunes = 100
	maxTerms      = 8

	// snippetRunes is how much text a result shows around the first term that it has.
	snippetRunes = 140
)

// A result is a section that has every term of a query.
type result struct {
	page    *page
	section *Section
	score   int
}

// search returns the sections that have all terms of a query in their page's title, heading or text, best first. A
// term may be a part of a word.
func (l *library) search(query string) (found []result) {
	terms := queryTerms(query)
	if len(terms) == 0 {
		return nil
	}
	for _, p := range l.pages {
		for i := range p.sections {
			s := &p.sections[i]
			if score := scoreSection(p, s, terms); score > 0 {
				found = append(found, result{p, s, score})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b result) int { return b.score - a.score })
	return found[:min(maxResults, len(found))]
}

// queryTerms returns the words of a query in lower case.
func queryTerms(query string) []string {
	if utf8.RuneCountInString(query) > maxQueryRunes {
		query = string([]rune(query)[:maxQueryRunes])
	}
	terms := strings.Fields(strings.ToLower(query))
	return terms[:min(maxTerms, len(terms))]
}

// scoreSection says how well a section matches; 0 = it lacks a term. A heading counts more than text, and a title of a
// page counts for the page's first section. A term that only the title has finds that section alone.
func scoreSection(p *page, s *Section, terms []string) int {
	title, head, body := strings.ToLower(p.title), strings.ToLower(s.Text), strings.ToLower(s.Body)
	sum := 0
	for _, term := range terms {
		score := min(strings.Count(body, term), 5)
		if strings.Contains(head, term) {
			score += 20
		}
		if head == term {
			score += 40
		}
		if score > 0 && strings.Contains(title, term) {
			score += 5
		}
		if score == 0 {
			return 0
		}
		sum += score
	}
	return sum
}

// snippet returns the text around the first place that has a term, cut at words, in parts: those at odd indices are
// what was searched for.
func snippet(text string, terms []string) (parts []string) {
	text = strings.Join(strings.Fields(text), " ")
	lower := strings.ToLower(text)
	if len(lower) != len(text) { // a letter changes its length: places would not fit
		lower = text
	}
	first := -1
	for _, term := range terms {
		if at := strings.Index(lower, term); at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	start := cutAt(text, max(0, first-snippetRunes/3))
	end := len(text)
	if start+snippetRunes < end {
		end = cutAt(text, start+snippetRunes)
	}
	for rest, low := text[start:end], lower[start:end]; ; {
		at, length := nextTerm(low, terms)
		if at < 0 {
			return append(parts, rest)
		}
		parts = append(parts, rest[:at], rest[at:at+length])
		rest, low = rest[at+length:], low[at+length:]
	}
}

// cutAt returns the place after the last space of text before at, or 0.
func cutAt(text string, at int) int { return strings.LastIndexByte(text[:at], ' ') + 1 }

// nextTerm returns where the first of terms begins in text, and its length; at is -1 if there is none.
func nextTerm(text string, terms []string) (at, length int) {
	at = -1
	for _, term := range terms {
		if i := strings.Index(text, term); i >= 0 && (at < 0 || i < at || i == at && len(term) > length) {
			at, length = i, len(term)
		}
	}
	return at, length
}

// showSearch is GET /docs/search?q=: a page, or for htmx the list of results alone.
func (h *Handler) showSearch(w http.ResponseWriter, r *http.Request) error {
	l, err := h.library()
	if err != nil {
		return err
	}
	query := strings.TrimSpace(r.URL.Query().Get("q"))
	page := ui.DocsSearch{Docs: newFrame(r, l, "/docs/search")}
	page.Query = query
	terms := queryTerms(query)
	for _, found := range l.search(query) {
		shown := ui.DocsResult{
			Href:  found.page.path(),
			Page:  found.page.title,
			Parts: snippet(found.section.Body, terms),
		}
		if found.section.Anchor != "" {
			shown.Href, shown.Heading = shown.Href+"#"+found.section.Anchor, found.section.Text
		}
		page.Results = append(page.Results, shown)
	}
	if r.Header.Get("HX-Request") != "" {
		return ui.RenderPart(w, page, "results")
	}
	return ui.RenderDocs(w, r, page)
}
