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
var pages = parsers()

// A Page is a value of this package that has a template: SignIn, Consent, Home ….
type Page interface {
	// name is the template of the page.
	name() string
	// title is what the browser's tab says.
	title() string
	// formAction is where its forms may lead besides our own host, as sources of a
	// content security policy; "" = nowhere.
	formAction() string
}

// parsers returns a parser for each template file. The files in the folder layout are parts of every page.
func parsers() map[string]func() *template.Template {
	files, err := fs.Glob(templates, "templates/*/*.html")
	if err != nil {
		panic("ui: the pattern is valid: " + err.Error())
	}
	list := make(map[string]func() *template.Template, len(files))
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "templates/"), ".html")
		if !strings.HasPrefix(name, "layout/") && !strings.HasPrefix(name, "mail/") {
			list[name] = sync.OnceValue(func() *template.Template { return parse(file) })
		}
	}
	return list
}

// parse reads the layout again for each page, because each fills in its "main".
func parse(file string) *template.Template {
	t := template.New("page.html").Funcs(template.FuncMap{
		"css":          func() string { return sheet.path },
		"icon":         func() string { return icon.path },
		"passkeys":     func() string { return passkeys.path },
		"passkeysHash": func() string { return passkeys.integrity },
		"voicejs":      func() string { return voice.path },
		"voiceHash":    func() string { return voice.integrity },
		"htmx":         func() string { return htmx.path },
		"htmxHash":     func() string { return htmx.integrity },
	})
	return template.Must(t.ParseFS(templates, "templates/layout/*.html", file))
}

// Render writes the page with its status. It adds what only our pages need to the
// headers that the router sets for every page.
func Render(w http.ResponseWriter, status int, p Page) error {
	var b bytes.Buffer
	data := struct {
		Title string
		Page  Page
		Party string // whom passkeys are for; "" = the page has no script
		Shell *Shell // nil = nobody is signed in, or the page is to be looked at by itself
		Live  bool   // parts of it fetch themselves anew
	}{Title: p.title(), Page: p}
	if l, ok := p.(interface{ live() bool }); ok {
		data.Live = l.live()
	}
	if s, ok := p.(interface{ shell() Shell }); ok && s.shell().Email != "" {
		shell := s.shell()
		data.Shell = &shell
	}
	if k, ok := p.(interface{ passkeys() Passkeys }); ok {
		data.Party = k.passkeys().Party
	}
	if err := pages[p.name()]().Execute(&b, data); err != nil {
		return fmt.Errorf("ui: page %s: %w", p.name(), err)
	}
	h := w.Header()
	guard(h)
	if data.Party != "" {
		h.Set("Content-Security-Policy", "script-src 'self'; "+h.Get("Content-Security-Policy"))
	}
	if data.Live { // these pages run a script, and only ours
		h.Set("Content-Security-Policy", "script-src 'self'; connect-src 'self'; "+h.Get("Content-Security-Policy"))
	}
	if extra := p.formAction(); extra != "" {
		h.Set("Content-Security-Policy", h.Get("Content-Security-Policy")+" "+extra) // form-action stands last in it
	}
	w.WriteHeader(status)
	_, err := w.Write(b.Bytes())
	return err
}

// guard sets what every page and part of one says besides what the router does.
func guard(h http.Header) {
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Frame-Options", "DENY") // for browsers older than frame-ancestors
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// RenderPart writes what a live part of a page fetches: the template of that name
// and nothing around it.
func RenderPart(w http.ResponseWriter, p Page, part string) error {
	var b bytes.Buffer
	if err := pages[p.name()]().ExecuteTemplate(&b, part, p); err != nil {
		return fmt.Errorf("ui: part %s of page %s: %w", part, p.name(), err)
	}
	guard(w.Header())
	_, err := w.Write(b.Bytes())
	return err
}

// Reload answers a live part that asks for what is only to be had by a new page, as
// when nobody is signed in any more. It reports whether a live part has asked.
func Reload(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("HX-Request") == "" {
		return false
	}
	w.Header().Set("HX-Refresh", "true")
	w.WriteHeader(http.StatusOK)
	return true
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
		m.Heading = "Page not found"
	case e.Code.Status >= 500:
		m.Heading, m.Text = "Something went wrong on our side", "You weren’t charged. Please try again in a minute."
	}
	if err := Render(w, e.Code.Status, m); err != nil {
		web.Log(r.Context(), slog.String("page_error", err.Error()))
	}
}
