package server

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/purserhq/purser/internal/config"
)

// publicPages are the pages for everybody, which are at each host; all below them, too.
var publicPages = []string{"/docs", "/reference", "/models", "/status", "/assets", "/llms"}

// pageHome returns where pages are, if the API has a host of its own: pages of users are not there, so that a sign-in
// there is none, and nobody signs in twice. Where hosts are the same, pages are at each.
func pageHome(c config.Config) func(*http.Request) string {
	api, auth, dashboard := hostOf(c.BaseURL), hostOf(c.AuthURL), hostOf(c.DashboardURL)
	if api == auth || api == dashboard {
		return nil
	}
	return func(r *http.Request) string {
		if !strings.EqualFold(r.Host, api) || r.URL.Path == "/" || isBelow(r.URL.Path, publicPages) {
			return ""
		}
		if isBelow(r.URL.Path, []string{"/oauth", "/device"}) {
			return c.AuthURL + r.URL.RequestURI()
		}
		return c.DashboardURL + r.URL.RequestURI()
	}
}

func isBelow(path string, roots []string) bool {
	for _, root := range roots {
		if path == root || strings.HasPrefix(path, root+"/") || strings.HasPrefix(path, root+".") {
			return true
		}
	}
	return false
}

func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Host
}
