package docs

import (
	"fmt"
	"html/template"
	"strings"
	"sync"

	"github.com/purserhq/purser/docs/guide"
)

// A library is all guides, rendered.
type library struct {
	groups []group
	pages  []*page // in the order of the navigation
	byName map[string]*page
}

// A group is guides under a heading of the navigation.
type group struct {
	title string
	pages []*page
}

// A page is one rendered guide.
type page struct {
	name     string // in the path, and of the file
	title    string
	summary  string // the first paragraph as text
	source   string // Markdown
	body     template.HTML
	headings []heading
	sections []section
	usesVars bool // an example has a variable that Your values fills in
}

// path returns the address of the page.
func (p *page) path() string { return "/docs/" + p.name }

// A heading is one entry of a table of contents.
type heading struct {
	level  int
	anchor string
	text   string
}

// A section is what a search result leads to: a heading with the text below it.
type section struct {
	heading
	body string
}

// An address is a base address of the contract, which guides write in braces.
type addresses struct{ base, auth, dashboard string }

// fill replaces the placeholders of addresses in Markdown.
func (a addresses) fill(source string) string {
	return strings.NewReplacer("{base_url}", a.base, "{auth_url}", a.auth, "{dashboard_url}",
		a.dashboard).Replace(source)
}

// newLibrary returns a function that renders all guides when it is first called, and keeps them. The guides are part of
// the binary, so a guide that cannot be rendered is a bug that the tests find.
func newLibrary(a addresses) func() (*library, error) {
	return sync.OnceValues(func() (*library, error) { return renderLibrary(guide.Groups(), a, readGuide) })
}

// readGuide returns the Markdown of a guide.
func readGuide(name string) (string, error) {
	text, err := guide.Files.ReadFile(name + ".md")
	return string(text), err
}

// renderLibrary renders the guides of groups.
func renderLibrary(groups []guide.Group, a addresses, read func(name string) (string, error)) (*library, error) {
	l := &library{byName: map[string]*page{}}
	for _, g := range groups {
		shown := group{title: g.Title}
		for _, name := range g.Pages {
			source, err := read(name)
			if err != nil {
				return nil, fmt.Errorf("docs: guide %s: %w", name, err)
			}
			p, err := renderPage(name, a.fill(source))
			if err != nil {
				return nil, fmt.Errorf("docs: guide %s: %w", name, err)
			}
			shown.pages = append(shown.pages, p)
			l.pages = append(l.pages, p)
			l.byName[name] = p
		}
		l.groups = append(l.groups, shown)
	}
	return l, nil
}
