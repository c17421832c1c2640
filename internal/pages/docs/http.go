package docs

import (
	"net/http"

	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Handler serves the documentation.
type Handler struct {
	Sessions     *accounts.Sessions
	BaseURL      string
	AuthURL      string
	DashboardURL string

	library func() (*library, error)
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	h.library = newLibrary(addresses{h.BaseURL, h.AuthURL, h.DashboardURL})
	rt.HandlePage("GET /docs", h.Sessions.With(h.showFirst))
	rt.HandlePage("GET /docs/{page}", h.Sessions.With(h.showPage))
}

// showFirst is GET /docs: the first guide.
func (h *Handler) showFirst(w http.ResponseWriter, r *http.Request) error {
	l, err := h.library()
	if err != nil {
		return err
	}
	return h.render(w, r, l, l.pages[0])
}

// showPage is GET /docs/{page}.
func (h *Handler) showPage(w http.ResponseWriter, r *http.Request) error {
	l, err := h.library()
	if err != nil {
		return err
	}
	p := l.byName[r.PathValue("page")]
	if p == nil {
		return ui.NotFound()
	}
	return h.render(w, r, l, p)
}

// render writes a guide.
func (h *Handler) render(w http.ResponseWriter, r *http.Request, l *library, p *page) error {
	shown := ui.Guide{Docs: newFrame(r, l, p.path()), Heading: p.title, Body: p.body}
	for _, head := range p.headings {
		if head.level <= 3 {
			shown.Contents = append(shown.Contents,
				ui.GuideHeading{Anchor: head.anchor, Text: head.text, Sub: head.level == 3})
		}
	}
	for i, other := range l.pages {
		if other == p && i > 0 {
			shown.Previous = &ui.Link{Href: l.pages[i-1].path(), Text: l.pages[i-1].title}
		}
		if other == p && i+1 < len(l.pages) {
			shown.Next = &ui.Link{Href: l.pages[i+1].path(), Text: l.pages[i+1].title}
		}
	}
	return ui.RenderDocs(w, r, shown)
}

// newFrame returns what all pages of the documentation have; path is the current one.
func newFrame(r *http.Request, l *library, path string) ui.Docs {
	f := ui.Docs{SignIn: accounts.SignInPath(path)}
	if a, ok := accounts.CurrentAccount(r.Context()); ok {
		f.Shell = a.Shell(ui.Documentation)
	}
	for _, g := range l.groups {
		shown := ui.DocsGroup{Title: g.title}
		for _, p := range g.pages {
			shown.Pages = append(shown.Pages, ui.Tab{Href: p.path(), Text: p.title, Current: p.path() == path})
		}
		f.Groups = append(f.Groups, shown)
	}
	return f
}
