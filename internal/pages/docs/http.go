package docs

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Handler serves the documentation.
type Handler struct {
	DB           *db.DB
	Sessions     *accounts.Sessions
	Sandbox      *sandbox.Store
	Tokens       *oauth.Store
	Models       *catalog.Handler
	FeeRate      func() money.PPM // now
	BaseURL      string           // {base_url}, {auth_url} and {dashboard_url} in the guides
	AuthURL      string
	DashboardURL string

	library    func() (*library, error)
	contract   func() (*contract, error)
	scalarPath string
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	h.library = newLibrary(addresses{h.BaseURL, h.AuthURL, h.DashboardURL})
	h.contract = newContract(h.BaseURL)
	h.scalarPath = scalarPath()
	rt.HandlePage("GET /docs", h.Sessions.With(h.showFirst))
	rt.HandlePage("GET /docs/search", h.Sessions.With(h.showSearch))
	rt.HandlePage("GET /docs/{page}", h.Sessions.With(h.showGuide))
	rt.HandlePage("POST /docs/{page}", h.requireDeveloper(h.createGuideToken))
	rt.HandlePage("GET /models", h.Sessions.With(h.showModels))
	rt.HandlePage("GET /reference", h.Sessions.With(h.showReference))
	rt.HandlePage("POST /reference", h.requireDeveloper(h.createReferenceToken))
	rt.Handle("GET "+h.scalarPath, serveScalar)
	rt.Handle("GET /openapi.yaml", serveYAML)
	rt.Handle("GET /openapi.json", h.serveJSON)
	rt.Handle("GET /llms.txt", h.showIndex)
	rt.Handle("GET /llms-full.txt", h.showAll)
}

// showFirst is GET /docs: the first guide.
func (h *Handler) showFirst(w http.ResponseWriter, _ *http.Request) error {
	l, err := h.library()
	if err != nil {
		return err
	}
	return web.SeeOther(w, l.pages[0].path())
}

// showGuide is GET /docs/{page}: a guide as a page, or with .md its Markdown.
func (h *Handler) showGuide(w http.ResponseWriter, r *http.Request) error {
	l, err := h.library()
	if err != nil {
		return err
	}
	if name, ok := strings.CutSuffix(r.PathValue("page"), ".md"); ok && l.byName[name] != nil {
		return ui.WriteText(w, r, "text/markdown; charset=utf-8", []byte(l.byName[name].source))
	}
	p := l.byName[r.PathValue("page")]
	if p == nil {
		return ui.NotFound()
	}
	v, err := h.loadValues(r, r.URL.Query())
	if err != nil {
		return err
	}
	return renderGuide(w, r, l, p, v)
}

// createGuideToken is POST /docs/{page}: the guide with a new access token in its examples. The token is on this page
// alone, and not in an address, so that no log has it.
func (h *Handler) createGuideToken(w http.ResponseWriter, r *http.Request, form url.Values) error {
	l, err := h.library()
	if err != nil {
		return err
	}
	p := l.byName[r.PathValue("page")]
	if p == nil {
		return ui.NotFound()
	}
	v, err := h.loadValues(r, form)
	if err != nil {
		return err
	}
	if err := h.createToken(r, &v, form); err != nil {
		return err
	}
	return renderGuide(w, r, l, p, v)
}

// renderGuide writes a guide with the values of a developer.
func renderGuide(w http.ResponseWriter, r *http.Request, l *library, p *page, v values) error {
	shown := ui.Guide{Docs: newFrame(r, l, p.path()), Heading: p.title, Body: v.fill(p.body)}
	if p.usesVars {
		shown.Values = &v.panel
	}
	for _, head := range p.sections[1:] {
		if head.Level <= 3 {
			shown.Contents = append(shown.Contents,
				ui.GuideHeading{Anchor: head.Anchor, Text: head.Text, Sub: head.Level == 3})
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
	f := ui.Docs{Path: path, SignIn: accounts.SignInPath(path)}
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
	f.Groups = append(f.Groups, ui.DocsGroup{Title: "Reference", Pages: []ui.Tab{
		{Href: "/reference", Text: "API reference", Current: path == "/reference"},
		{Href: "/models", Text: "Models and prices", Current: path == "/models"},
		{Href: "/openapi.yaml", Text: "OpenAPI"},
		{Href: "/llms.txt", Text: "Text for language models"},
	}})
	return f
}

// describeRefusal returns the message of an error that the API would show; "" = it is another error, or none.
func describeRefusal(err error) string {
	if e, ok := errors.AsType[*apierr.Error](err); ok {
		return ui.Sentence(e.Message)
	}
	return ""
}
