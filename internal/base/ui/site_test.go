package ui

import (
	"bytes"
	"compress/gzip"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

// newSiteRouter returns a router with our assets, one page and one failing page.
func newSiteRouter(site web.Site) http.Handler {
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.SetPageError(RenderError)
	rt.SetSite(site)
	Mount(rt)
	rt.HandlePage("GET /page", func(w http.ResponseWriter, _ *http.Request) error {
		return Render(w, http.StatusOK, Message{Heading: "Here"})
	})
	rt.HandlePage("GET /broken", func(http.ResponseWriter, *http.Request) error {
		return apierr.Internal.Errorf("no")
	})
	return rt
}

// In the test mode of Stripe every page of an account says so.
func TestTestPayments(t *testing.T) {
	t.Parallel()
	for _, test := range []bool{false, true} {
		rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
		rt.SetSite(web.Site{TestPayments: test})
		rt.HandlePage("GET /page", func(w http.ResponseWriter, _ *http.Request) error {
			return Render(w, http.StatusOK, Dashboard{Shell: Shell{Email: "a@example.com"}})
		})
		body := get(rt, "/page", "text/html").Body.String()
		if got := strings.Contains(body, "balances aren’t real money"); got != test {
			t.Errorf("test mode %t: says so %t", test, got)
		}
	}
}

// TestDrillIsNamed: in a drill every page and every email says so.
func TestDrillIsNamed(t *testing.T) {
	t.Parallel()
	for _, drill := range []bool{false, true} {
		site := web.Site{Drill: drill}
		h := newSiteRouter(site)
		for _, path := range []string{"/page", "/broken", "/nothing"} {
			body := get(h, path, "text/html").Body.String()
			if got := strings.Contains(body, "Drill: this is a restored copy"); got != drill {
				t.Errorf("drill %t: %s says so %t", drill, path, got)
			}
		}
		text, html, err := Email{Subject: "S", Paragraphs: []string{"P"}}.Render(site)
		if err != nil || strings.HasPrefix(text, "This is a drill") != drill ||
			strings.Contains(html, "This is a drill") != drill {
			t.Errorf("drill %t: %s %s %v", drill, text, html, err)
		}
	}
}

// get asks for a path with an Accept header.
func get(h http.Handler, path, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// U11: a browser gets a page at an unknown address, and a program the envelope. What browsers and crawlers ask for by
// themselves is there.
func TestUnknownAddresses(t *testing.T) {
	t.Parallel()
	h := newSiteRouter(web.Site{})
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, c := range []struct {
		path, accept string
		page         bool
	}{
		{"/nothing", browser, true},
		{"/oauth/nothing", browser, true},
		{"/nothing", "*/*", false},
		{"/nothing", "", false},
		{"/nothing", "application/json", false},
		{"/v1/nothing", browser, false},
		{"/oauth/token/nothing", browser, false},
	} {
		w := get(h, c.path, c.accept)
		body, policy := w.Body.String(), w.Header().Get("Content-Security-Policy")
		isPage := strings.Contains(body, "<h1>Page not found</h1>") &&
			strings.Contains(body, `href="/">Go to the front page</a>`) &&
			!strings.Contains(body, `href="/dashboard"`) &&
			strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") &&
			strings.Contains(policy, "style-src 'self'")
		isEnvelope := strings.Contains(body, `"code":"not_found"`) && !strings.Contains(policy, "style-src")
		if w.Code != 404 || isPage != c.page || isEnvelope == c.page {
			t.Errorf("%s, Accept %q: %d, page %t\n%s", c.path, c.accept, w.Code, isPage, body)
		}
	}
	for _, secure := range []bool{false, true} {
		r := httptest.NewRequest("GET", "/nothing", nil)
		r.Header.Set("Accept", browser)
		r.AddCookie(&http.Cookie{Name: web.SessionCookie(secure), Value: "session"})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), `href="/dashboard">Go to your dashboard</a>`) {
			t.Errorf("with a session, secure %t: %s", secure, w.Body)
		}
	}
	if w := get(h, "/favicon.ico", "image/*"); w.Code != 200 || w.Header().Get("Content-Type") != "image/svg+xml" {
		t.Errorf("/favicon.ico: %d %v", w.Code, w.Header())
	}
	if w := get(h, "/robots.txt", "*/*"); w.Code != 200 || !strings.Contains(w.Body.String(), "Disallow: /") {
		t.Errorf("/robots.txt: %d %s", w.Code, w.Body)
	}
}

// U5: pages, error pages and emails say who runs the service and where to ask, and nothing that is not set.
func TestPagesSayWhomToAsk(t *testing.T) {
	t.Parallel()
	site := web.Site{
		Operator:   "Example <Ltd>",
		SupportURL: "mailto:help@example.com",
		TermsURL:   "https://example.com/terms?a=1&b=2",
		PrivacyURL: "https://example.com/privacy",
	}
	h, bare := newSiteRouter(site), newSiteRouter(web.Site{})
	for _, path := range []string{"/page", "/broken", "/nothing"} {
		body := get(h, path, "text/html").Body.String()
		for _, want := range []string{"Operated by Example &lt;Ltd&gt;.",
			`<a href="mailto:help@example.com">Support</a>`,
			`<a href="https://example.com/terms?a=1&amp;b=2">Terms</a>`,
			`<a href="https://example.com/privacy">Privacy</a>`} {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %s\n%s", path, want, body)
			}
		}
		if body := get(bare, path, "text/html").Body.String(); strings.Contains(body, "Support") ||
			strings.Contains(body, "Operated by") {
			t.Errorf("%s names nobody's support\n%s", path, body)
		}
	}
	e := Email{Subject: "Hello", Paragraphs: []string{"Text."}, Footer: []Link{{"https://a.example.com/", "Settings"}}}
	text, html, err := e.Render(site)
	if err != nil || !strings.Contains(text, "-- \nExample <Ltd>\nSettings: https://a.example.com/\n"+
		"Support: mailto:help@example.com\nTerms: ") || !strings.Contains(html, "Example &lt;Ltd&gt;") ||
		!strings.Contains(html, `<a href="mailto:help@example.com"`) {
		t.Errorf("%v\n%s\n%s", err, text, html)
	}
	if text, _, err := e.Render(web.Site{}); err != nil || !strings.Contains(text, "-- \nPurser\nSettings: ") ||
		strings.Contains(text, "Support") {
		t.Errorf("without a site: %v\n%s", err, text)
	}
}

// TestCompressedAssets: a browser that takes gzip gets fewer bytes of the same content.
func TestCompressedAssets(t *testing.T) {
	t.Parallel()
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	Mount(rt)
	get := func(encoding string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", sheet.Path(), nil)
		r.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, r)
		return w
	}
	plain, packed := get(""), get("gzip, br")
	unpacked, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	size := packed.Body.Len()
	body, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	if packed.Header().Get("Content-Encoding") != "gzip" || plain.Header().Get("Content-Encoding") != "" ||
		plain.Header().Get("Vary") != "Accept-Encoding" || !bytes.Equal(body, plain.Body.Bytes()) ||
		size > len(body)/3 {
		t.Errorf("%d bytes as %q, and %d bytes as they are", size, packed.Header().Get("Content-Encoding"), len(body))
	}
}

// TestScriptOfSignedInPages: the script that shows local times and opens the search runs on every signed-in page.
func TestScriptOfSignedInPages(t *testing.T) {
	t.Parallel()
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.HandlePage("GET /page", func(w http.ResponseWriter, _ *http.Request) error {
		return Render(w, http.StatusOK, Search{Shell: Shell{Email: "user@example.com"}})
	})
	w := httptest.NewRecorder()
	rt.ServeHTTP(w, httptest.NewRequest("GET", "/page", nil))
	if !strings.Contains(w.Body.String(), `<script src="`+scripts["app"].Path()+`"`) ||
		!strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "script-src 'self'; connect-src 'self'; ") {
		t.Errorf("%v\n%s", w.Header(), w.Body)
	}
}
