package e2e

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// elsewhere serves a page of somebody else's at /, and an empty one anywhere else.
// It returns its origins: one of the same site as ours, to which cookies go along,
// and one of another site.
func elsewhere(t *testing.T, body string) []string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<!doctype html><html lang="en"><title>Elsewhere</title><link rel="icon" href="data:,">`)
		if r.URL.Path == "/" {
			fmt.Fprint(w, body)
		}
	}))
	t.Cleanup(s.Close)
	return []string{s.URL, strings.Replace(s.URL, "127.0.0.1", "localhost", 1)}
}

// TestFramed puts what we answer into frames on a page of another origin, for
// somebody who is signed in: the browser shows none of it. A page of that origin's
// own, which may be framed, is shown, so that the test would notice. Nor does its
// link sign anybody out.
func TestFramed(t *testing.T) {
	testkit.Long(t, "package web proves the headers that forbid frames")
	t.Parallel()
	p := servertest.Start(t, "")
	consent, _ := link(p, "s")
	var frames strings.Builder
	frame := func(name, address string) {
		fmt.Fprintf(&frames, `<iframe name="%s" src="%s"></iframe>`, name, html.EscapeString(address))
	}
	frame("their own", "/frame")
	ours := map[string]string{
		"consent":       consent,
		"sign-in":       p.AuthURL + "/sign-in",
		"home":          p.AuthURL + "/",
		"an error page": p.AuthURL + "/oauth/authorize",
		"no such page":  p.AuthURL + "/no-such-page",
		"the API":       p.BaseURL + "/v1/connection",
	}
	for name, address := range ours {
		frame(name, address)
	}
	origins := elsewhere(t, `<h1>Free coins</h1>`+frames.String()+`<a href="`+p.AuthURL+`/sign-out/here">Take them</a>`)
	b := newTab(t, append(origins, p.BaseURL)...)
	b.expect("frame-ancestors")
	b.open(p.AuthURL + "/sign-in")
	b.signIn(p.TestAccount.Email, p.TestAccount.Password)
	for _, origin := range origins {
		b.open(origin)
		shown := map[string]bool{}
		for _, f := range call(b, page.GetFrameTree, cdp.Empty{}).FrameTree.ChildFrames {
			// A refused one shows the browser's own page, at its own address.
			shown[f.Frame.Name] = f.Frame.UnreachableURL == ""
		}
		if len(shown) != 1+len(ours) || !shown["their own"] {
			t.Fatalf("the frames of %s are %v", origin, shown)
		}
		for name, address := range ours {
			if shown[name] {
				t.Errorf("%s, %s, is shown in a frame of %s", name, address, origin)
			}
		}
	}
	b.press("link", "Take them") // the last origin is another site
	b.says("Sign out here, too?")
	b.accessible("a foreign link that signs out")
}
