package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/config"
)

var (
	// publicPages are the pages for everybody, which are at each host; all below them, too.
	publicPages = []string{"/docs", "/reference", "/models", "/status", "/assets", "/llms"}
	// authPages are where users connect an app, at the host of auth_url.
	authPages = []string{"/oauth", "/device"}
	// signInPages are at both hosts that have users, because a session's cookie belongs to one host.
	signInPages = []string{"/sign-in", "/sign-out", "/signed-out", "/sign-up", "/forgot", "/reset"}
)

// pageHome returns where pages are, if the service has several hosts. Each page is at its own host alone, so that a
// session is worth something where it begins, and a visitor is not asked to sign in twice for one thing.
func pageHome(c config.Config) func(*http.Request) string {
	api, auth, dashboard := hostOf(c.BaseURL), hostOf(c.AuthURL), hostOf(c.DashboardURL)
	if api == auth && auth == dashboard {
		return nil
	}
	return func(r *http.Request) string {
		host, path := strings.ToLower(r.Host), r.URL.Path
		home := c.DashboardURL
		switch {
		case !slices.Contains([]string{api, auth, dashboard}, host): // a node's own address
			return ""
		case path == "/" || isBelow(path, publicPages), isBelow(path, signInPages) && host == auth:
			return ""
		case isBelow(path, authPages):
			home = c.AuthURL
		}
		if host == hostOf(home) {
			return ""
		}
		return home + r.URL.RequestURI()
	}
}

// signInOrigins returns the origins at which people sign in, if there are several. A sign-out at one leads on to the
// other, so that it ends all sessions of the browser.
func signInOrigins(c config.Config) []string {
	var list []string
	for _, text := range []string{c.AuthURL, c.DashboardURL} {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			return nil
		}
		list = append(list, u.Scheme+"://"+strings.ToLower(u.Host))
	}
	if list[0] == list[1] {
		return nil
	}
	return list
}

func isBelow(path string, roots []string) bool {
	for _, root := range roots {
		if path == root || strings.HasPrefix(path, root+"/") || strings.HasPrefix(path, root+".") {
			return true
		}
	}
	return false
}

// hostOf returns the host of a URL in lower case, as requests name it.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Host)
}
