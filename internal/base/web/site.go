package web

import (
	"net/http"
	"strings"
)

// A Site says who runs the service, so that users know whom to ask. Pages and emails show what is set.
type Site struct {
	Operator   string // name of the organization
	SupportURL string // where users ask for help, https: or mailto:
	TermsURL   string
	PrivacyURL string

	TestPayments bool // payments are made in Stripe's test mode: balances are not real money
	Drill        bool // the node serves a restored copy, beside the real service
}

// SetSite sets what the pages of the router say about who runs the service.
func (rt *Router) SetSite(s Site) { rt.site = s }

// SiteOf returns the site of the router that w belongs to, and the zero value outside of a Router.
func SiteOf(w http.ResponseWriter) Site {
	for {
		switch v := w.(type) {
		case *response:
			return v.rt.site
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return Site{}
		}
	}
}

// isBrowsing reports whether a browser asks for a page. Addresses of programs are never pages.
func isBrowsing(r *http.Request) bool {
	for _, prefix := range []string{"/v1/", "/oauth/token", "/oauth/revoke", "/.well-known/"} {
		if strings.HasPrefix(r.URL.Path, prefix) {
			return false
		}
	}
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		strings.Contains(r.Header.Get("Accept"), "text/html")
}
