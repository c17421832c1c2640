package ui

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"html/template"
	"net/http"
	"strings"
)

// Docs is what every page of the documentation has: the navigation and the search.
type Docs struct {
	Shell
	SignIn string // where a visitor signs in who is not
	Groups []DocsGroup
	Query  string // as searched for
}

// A DocsGroup is a part of the navigation of the documentation.
type DocsGroup struct {
	Title string
	Pages []Tab
}

func (Docs) formAction() string { return "" }
func (Docs) live() bool         { return true }
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

// RenderDocs writes a page of the documentation. Browsers may keep one that shows nothing of an
// account, and ask whether it has changed.
func RenderDocs(w http.ResponseWriter, r *http.Request, p Page) error {
	if s, ok := p.(interface{ shell() Shell }); ok && s.shell().Email != "" {
		return Render(w, http.StatusOK, p)
	}
	h := w.Header()
	body, err := buildPage(w, p)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:12]) + `"`
	h.Set("ETag", tag)
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Vary", "Cookie")
	if strings.Contains(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	_, err = bytes.NewReader(body).WriteTo(w)
	return err
}
