package docs

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"strings"
	"sync"

	"github.com/purserhq/purser/docs/guide"
)

// rendered holds the guides as HTML, and their outlines.
//
//go:generate go run ./render rendered
//go:embed rendered
var rendered embed.FS

// A Rendered guide is its HTML and its outline. Addresses of the contract stand in it in braces.
type Rendered struct {
	Title    string    `json:"title"`
	Summary  string    `json:"summary"` // the first paragraph as text
	Sections []Section `json:"sections"`
	Body     string    `json:"-"` // HTML
}

// A Section is what a search result leads to: a heading with the text below it. The first is that of the title.
type Section struct {
	Level  int    `json:"level"`
	Anchor string `json:"anchor,omitempty"`
	Text   string `json:"text"`
	Body   string `json:"body,omitempty"`
}

// VariableStart begins a variable in a shell example that Your values fills in.
const VariableStart = `<var data-name="`

// Encode adds the files of a guide.
func (g Rendered) Encode(name string, files map[string][]byte) error {
	outline, err := json.MarshalIndent(g, "", "  ")
	if err != nil {
		return err
	}
	files[name+".json"], files[name+".html"] = append(outline, '\n'), []byte(g.Body)
	return nil
}

// readRendered reads the files of a guide, with addresses in the place of their names.
func readRendered(name string, fill func(string) string) (g Rendered, err error) {
	outline, err := rendered.ReadFile("rendered/" + name + ".json")
	if err != nil {
		return g, err
	}
	if err := json.Unmarshal(outline, &g); err != nil {
		return g, err
	}
	body, err := rendered.ReadFile("rendered/" + name + ".html")
	g.Body, g.Summary = fill(string(body)), fill(g.Summary)
	for i := range g.Sections {
		g.Sections[i].Body = fill(g.Sections[i].Body)
	}
	return g, err
}

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
	sections []Section
	usesVars bool // an example has a variable that Your values fills in
}

// path returns the address of the page.
func (p *page) path() string { return "/docs/" + p.name }

// An address is a base address of the contract, which guides write in braces.
type addresses struct{ base, auth, dashboard string }

// fill replaces the placeholders of addresses in Markdown.
func (a addresses) fill(source string) string {
	return strings.NewReplacer("{base_url}", a.base, "{auth_url}", a.auth, "{dashboard_url}",
		a.dashboard).Replace(source)
}

// newLibrary returns a function that reads all guides when it is first called, and keeps them.
func newLibrary(a addresses) func() (*library, error) {
	return sync.OnceValues(func() (*library, error) { return readLibrary(a) })
}

// readLibrary reads the guides. They are a part of the binary, so one that is missing is a bug that the tests find.
func readLibrary(a addresses) (*library, error) {
	l := &library{byName: map[string]*page{}}
	for _, g := range guide.Groups() {
		shown := group{title: g.Title}
		for _, name := range g.Pages {
			source, err := guide.Files.ReadFile(name + ".md")
			if err != nil {
				return nil, fmt.Errorf("docs: guide %s: %w", name, err)
			}
			g, err := readRendered(name, a.fill)
			if err != nil {
				return nil, fmt.Errorf("docs: guide %s: %w", name, err)
			}
			p := &page{
				name:     name,
				title:    g.Title,
				summary:  g.Summary,
				source:   a.fill(string(source)),
				body:     template.HTML(g.Body), // render escapes all text
				sections: g.Sections,
				usesVars: strings.Contains(g.Body, VariableStart),
			}
			shown.pages = append(shown.pages, p)
			l.pages = append(l.pages, p)
			l.byName[name] = p
		}
		l.groups = append(l.groups, shown)
	}
	return l, nil
}
