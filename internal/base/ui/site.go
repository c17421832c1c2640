package ui

import (
	"net/http"

	"github.com/purserhq/purser/internal/base/web"
)

// A Site is what pages and emails say about who runs the service.
type Site struct{ web.Site }

// Links returns the links that the operator has set.
func (s Site) Links() (links []Link) {
	for _, l := range []Link{
		{s.SupportURL, "Support"}, {s.TermsURL, "Terms"}, {s.PrivacyURL, "Privacy"},
	} {
		if l.Href != "" {
			links = append(links, l)
		}
	}
	return links
}

// serveFavicon is GET /favicon.ico, which browsers ask for without being told.
func serveFavicon(w http.ResponseWriter, _ *http.Request) error {
	h := w.Header()
	h.Set("Content-Type", icon.kind)
	h.Set("Cache-Control", "public, max-age=86400")
	_, err := w.Write(icon.content().body)
	return err
}

// serveRobots is GET /robots.txt. Pages are for users who are signed in, and the API is for apps.
func serveRobots(w http.ResponseWriter, _ *http.Request) error {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "public, max-age=86400")
	_, err := w.Write([]byte("User-agent: *\nDisallow: /\n"))
	return err
}
