package ui

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

//go:embed templates
var templates embed.FS

// pages maps the name of a page, such as "dashboard/overview", to its template within the layout. A template is parsed
// when its page is first shown: all of them are more than a hundred thousand objects, which the garbage collector would
// mark in every cycle.
var pages = pageParsers()

// A Page is a value of this package that has a template: SignIn, Consent, Home ….
type Page interface {
	// name is the template of the page.
	name() string
	// title is the title in the browser's tab.
	title() string
	// formAction lists the hosts besides ours that its forms may redirect to, as sources of a Content-Security-Policy;
	// "" = none.
	formAction() string
}

// pageParsers returns a parser for each template file. The files in the folder layout are parts of every page.
func pageParsers() map[string]func() *template.Template {
	files, err := fs.Glob(templates, "templates/*/*.html")
	if err != nil {
		panic("ui: the pattern is valid: " + err.Error())
	}
	list := make(map[string]func() *template.Template, len(files))
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "templates/"), ".html")
		if !strings.HasPrefix(name, "layout/") && !strings.HasPrefix(name, "mail/") {
			list[name] = sync.OnceValue(func() *template.Template { return parseTemplate(file) })
		}
	}
	return list
}

// parseTemplate reads the layout again for each page, because each fills in its "main".
func parseTemplate(file string) *template.Template {
	t := template.New("page.html").Funcs(template.FuncMap{
		"css":          sheet.Path,
		"favicon":      icon.Path,
		"icon":         iconOf,
		"avatar":       avatarOf,
		"inter":        inter.Path,
		"passkeys":     passkeys.Path,
		"passkeysHash": passkeys.Integrity,
		"docscss":      docsSheet.Path,
	})
	return template.Must(t.ParseFS(templates, "templates/layout/*.html", file))
}

// Render writes the page with its status. It adds to the headers that the router sets for every page.
func Render(w http.ResponseWriter, status int, p Page) error {
	body, err := buildPage(w, p)
	if err != nil {
		return err
	}
	w.WriteHeader(status)
	_, err = w.Write(body)
	return err
}

// buildPage returns the page, and sets its headers.
func buildPage(w http.ResponseWriter, p Page) ([]byte, error) {
	var b bytes.Buffer
	data := struct {
		Title string
		Page  Page
		Party string // relying party of passkeys, a domain; "" = the page has no script
		Shell *Shell // nil = no navigation: not signed in, or a page with a single task
		Docs  *Docs  // nil = no page of the documentation
		Live  bool   // some of its parts refresh themselves
		// Scripts are what it runs besides that of passkeys.
		Scripts []asset
		Site    Site
		// Layered puts our styles into a layer, so that those of a script of others win over them.
		Layered bool
	}{Title: p.title(), Page: p, Site: Site{web.SiteOf(w)}}
	if l, ok := p.(interface{ live() bool }); ok {
		data.Live = l.live()
	}
	var names []string
	if data.Live {
		names = append(names, "htmx")
	}
	if s, ok := p.(interface{ scripts() []string }); ok {
		names = append(names, s.scripts()...)
	}
	for _, name := range names {
		script, ok := scripts[name]
		if !ok {
			return nil, fmt.Errorf("ui: page %s: no script %s", p.name(), name)
		}
		data.Scripts = append(data.Scripts, script)
	}
	if s, ok := p.(interface{ shell() Shell }); ok && s.shell().Email != "" {
		shell := s.shell()
		data.Shell = &shell
		data.Scripts = append(data.Scripts, scripts["app"])
	}
	if k, ok := p.(interface{ passkeys() Passkeys }); ok {
		data.Party = k.passkeys().Party
	}
	if d, ok := p.(interface{ docs() Docs }); ok {
		frame := d.docs()
		data.Docs = &frame
	}
	if s, ok := p.(interface{ inlineStyles() bool }); ok {
		data.Layered = s.inlineStyles()
	}
	if err := pages[p.name()]().Execute(&b, data); err != nil {
		return nil, fmt.Errorf("ui: page %s: %w", p.name(), err)
	}
	h := w.Header()
	setPageHeaders(h)
	if data.Party != "" && len(data.Scripts) == 0 {
		h.Set("Content-Security-Policy", "script-src 'self'; "+h.Get("Content-Security-Policy"))
	}
	// These pages run scripts, and only ours. The page for voice has its own policy: it also connects to a provider.
	if len(data.Scripts) > 0 && !strings.Contains(h.Get("Content-Security-Policy"), "connect-src") {
		h.Set("Content-Security-Policy", "script-src 'self'; connect-src 'self'; "+h.Get("Content-Security-Policy"))
	}
	if data.Layered {
		// Scalar adds style elements and attributes as it runs. Scripts stay as strict as elsewhere: ours alone, and no
		// code from text. What may be fetched stays too, so a style can send nothing away.
		h.Set("Content-Security-Policy", strings.Replace(h.Get("Content-Security-Policy"),
			"style-src 'self'", "style-src 'self' 'unsafe-inline'", 1))
	}
	if f, ok := p.(interface{ frames() bool }); ok && f.frames() {
		h.Set("Content-Security-Policy", "frame-src 'self'; "+h.Get("Content-Security-Policy"))
	}
	if extra := p.formAction(); extra != "" {
		h.Set("Content-Security-Policy", h.Get("Content-Security-Policy")+" "+extra) // form-action stands last in it
	}
	return b.Bytes(), nil
}

// setPageHeaders sets the headers of pages and their parts that the router does not set.
func setPageHeaders(h http.Header) {
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Frame-Options", "DENY") // for browsers older than frame-ancestors
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// RenderPart writes one live part of a page: the template of that name, without the layout.
func RenderPart(w http.ResponseWriter, p Page, part string) error {
	var b bytes.Buffer
	if err := pages[p.name()]().ExecuteTemplate(&b, part, p); err != nil {
		return fmt.Errorf("ui: part %s of page %s: %w", part, p.name(), err)
	}
	setPageHeaders(w.Header())
	_, err := w.Write(b.Bytes())
	return err
}

// Reload has htmx reload the page if r is for a live part of one, as when its session has ended. It reports whether
// it did.
func Reload(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("HX-Request") == "" {
		return false
	}
	w.Header().Set("HX-Refresh", "true")
	w.WriteHeader(http.StatusOK)
	return true
}

// NotFound is the error for a page that does not exist, and for one that belongs to another account: the two must look
// alike.
func NotFound() error {
	return apierr.NotFound.Errorf("This page doesn’t exist, or it belongs to another account.")
}

// RenderError is the renderer of error pages to give to web.Router.SetPageError.
func RenderError(w http.ResponseWriter, r *http.Request, e *apierr.Error) {
	m := Message{
		Heading: http.StatusText(e.Code.Status),
		Text:    e.Message,
		Detail:  "Request " + web.RequestID(r.Context()),
	}
	switch {
	case e.Code.Status == http.StatusNotFound:
		m.Heading, m.Link = "Page not found", &Link{Href: "/", Text: "Go to the front page"}
		if web.HasSessionCookie(r) {
			m.Link = &Link{Href: "/dashboard", Text: "Go to your dashboard"}
		}
	case e.Code.Status >= 500:
		m.Heading, m.Text = "Something went wrong on our side", "You weren’t charged. Please try again in a minute."
		m.Link = &Link{Href: "/", Text: "Go to the front page"}
	}
	if err := Render(w, e.Code.Status, m); err != nil {
		web.Log(r.Context(), slog.String("page_error", err.Error()))
	}
}
