package ui

import (
	"crypto/sha256"
	"encoding/hex"
	"html/template"
	"net/http"
	"strings"
)

// Docs is what every page of the documentation has: the navigation and the search.
type Docs struct {
	Shell
	Path   string // of the page
	SignIn string // where a visitor signs in who is not
	Groups []DocsGroup
	Query  string // as searched for
	Values *Values
}

// A DocsGroup is a part of the navigation of the documentation.
type DocsGroup struct {
	Title string
	Pages []Tab
}

// Values are what examples are filled in with: those of a developer's sandbox app.
type Values struct {
	SignIn            string // not signed in: where to
	Why               string // why there are no values, with the way to get some; "" = there are
	Link              *Link
	App               string // its name
	BaseURL, ClientID string
	Apps, Accounts    []Option
	Token             string // a new access token; "" = none was asked for
	Minutes           int64  // how long it works
	Problem           string // why none was created
}

func (Docs) formAction() string { return "" }
func (Docs) live() bool         { return true }
func (Docs) scripts() []string  { return []string{"docs"} }
func (d Docs) docs() Docs       { return d }

// Guide is one guide.
type Guide struct {
	Docs
	Heading        string
	Body           template.HTML
	Contents       []GuideHeading
	Previous, Next *Link
}

// A GuideHeading is an entry of a guide's table of contents.
type GuideHeading struct {
	Anchor, Text string
	Sub          bool // below the entry before
}

func (Guide) name() string    { return "docs/guide" }
func (g Guide) title() string { return g.Heading }

// DocsSearch is the results of a search.
type DocsSearch struct {
	Docs
	Results []DocsResult
}

// A DocsResult is a section of a guide that was found.
type DocsResult struct {
	Href, Page, Heading string
	Parts               []string // text around what was searched for, which the parts at odd indices are
}

// Marked reports whether part i is what was searched for.
func (DocsResult) Marked(i int) bool { return i%2 == 1 }

func (DocsSearch) name() string  { return "docs/search" }
func (DocsSearch) title() string { return "Search" }

// ModelList is the models that can be called, with their prices.
type ModelList struct {
	Docs
	Fee     string // the service fee, such as "5%"
	BaseURL string
	Kinds   []PriceGroup
}

// A PriceGroup is the models of one kind.
type PriceGroup struct {
	Title  string
	Models []PriceRow
}

// A PriceRow is one model. Prices are the provider's, in dollars per million tokens; "" = it has none.
type PriceRow struct {
	ID, Provider            string
	Input, Cached, Output   string
	AudioInput, AudioOutput string
	Context, MaxOutput      string // tokens
	Can                     []string
	Retires                 string // the day
	Assumed                 bool   // a part of the price was not read at the provider
}

func (ModelList) name() string  { return "docs/models" }
func (ModelList) title() string { return "Models and prices" }

// Reference is the reference of the HTTP API. With JavaScript, the script at Script takes the place of the list.
type Reference struct {
	Docs
	Groups []OperationGroup
	Script string
}

// An OperationGroup is the operations of one tag of openapi.yaml.
type OperationGroup struct {
	Name, Description string
	Operations        []Operation
}

// An Operation is a route of the API.
type Operation struct{ Method, Path, Summary string }

func (Reference) name() string  { return "docs/reference" }
func (Reference) title() string { return "API reference" }

// inlineStyles reports that the page's script styles elements by itself.
func (Reference) inlineStyles() bool { return true }

// RenderDocs writes a page of the documentation. Browsers may keep one that shows nothing of an
// account, and ask whether it has changed.
func RenderDocs(w http.ResponseWriter, r *http.Request, p Page) error {
	if s, ok := p.(interface{ shell() Shell }); ok && s.shell().Email != "" {
		return Render(w, http.StatusOK, p)
	}
	body, err := buildPage(w, p)
	if err != nil {
		return err
	}
	w.Header().Set("Vary", "Cookie")
	return writeTagged(w, r, "private, no-cache", body)
}

// WriteText writes a text that is the same for everybody until the next version of the server.
func WriteText(w http.ResponseWriter, r *http.Request, contentType string, body []byte) error {
	w.Header().Set("Content-Type", contentType)
	return writeTagged(w, r, "public, no-cache", body)
}

// writeTagged writes body with a tag, or 304 if the client has what the tag says (RFC 9110 §13.1.2).
func writeTagged(w http.ResponseWriter, r *http.Request, caching string, body []byte) error {
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:12]) + `"`
	h := w.Header()
	h.Set("ETag", tag)
	h.Set("Cache-Control", caching)
	if strings.Contains(r.Header.Get("If-None-Match"), tag) {
		h.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	_, err := w.Write(body)
	return err
}
