package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

func page(w http.ResponseWriter, _ *http.Request) error {
	_, err := io.WriteString(w, "<p>page</p>")
	return err
}

func TestPagesCarryTheirProtection(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.HandlePage("GET /page", page)
	h := s.do(t, "GET", "/page", nil).Header
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
		"X-Content-Type-Options":  "nosniff",
		"Referrer-Policy":         "same-origin",
		"Cache-Control":           "no-store",
		"Permissions-Policy":      "camera=(), geolocation=(), payment=(), microphone=()",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// The page that speaks runs our script, which hears the user and speaks with us.
func TestOnePageMaySpeak(t *testing.T) {
	t.Parallel()
	for api, speaks := range map[string]string{
		"https://api.example:8443": "https://api.example:8443 wss://api.example:8443",
		"http://127.0.0.1:8080":    "http://127.0.0.1:8080 ws://127.0.0.1:8080",
		"javascript:alert(1)":      "",
	} {
		s := newSite(t)
		s.HandlePage("GET /page", func(w http.ResponseWriter, r *http.Request) error {
			if err := web.AllowVoice(w, api); (err == nil) != (speaks != "") {
				t.Errorf("%s: %v", api, err)
			}
			return page(w, r)
		})
		h := s.do(t, "GET", "/page", nil).Header
		policy, permissions := h.Get("Content-Security-Policy"), h.Get("Permissions-Policy")
		if speaks == "" {
			if strings.Contains(policy, "script") || !strings.HasSuffix(permissions, "microphone=()") {
				t.Errorf("%s: %s, %s", api, policy, permissions)
			}
			continue
		}
		if !strings.HasPrefix(policy, "script-src 'self'; connect-src 'self' "+speaks+"; default-src 'none'; ") ||
			permissions != "camera=(), geolocation=(), payment=(), microphone=(self)" {
			t.Errorf("%s: %s, %s", api, policy, permissions)
		}
	}
}

// Answers that are no pages stay out of frames too, whoever writes them.
func TestNoAnswerIsFramed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	routes(s)
	s.HandlePage("POST /page", page)
	s.Handle("GET /refused", fail(apierr.NotFound.Errorf("none")))
	s.Handle("GET /panic", func(http.ResponseWriter, *http.Request) error { panic("secret") })
	for _, line := range []string{
		"GET /v1/models", "OPTIONS /v1/models", "DELETE /v1/models", "GET /no-such-page", "GET //", "GET *",
		"GET /refused", "GET /panic", "POST /page", "GET /page",
	} {
		resp := s.raw(t, line+" HTTP/1.1\r\nHost: a\r\nSec-Fetch-Site: cross-site\r\nConnection: close\r\n\r\n")
		if policy := resp.Header.Values("Content-Security-Policy"); len(policy) != 1 ||
			!strings.Contains(policy[0], "default-src 'none'") ||
			!strings.Contains(policy[0], "frame-ancestors 'none'") {
			t.Errorf("%s: %s with the policy %q", line, resp.Status, policy)
		}
	}
}

func TestAFormOfAnotherSiteIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.HandlePage("POST /page", page)
	for _, c := range []struct {
		name, value string
		status      int
	}{
		{"Sec-Fetch-Site", "same-origin", 200},
		{"Sec-Fetch-Site", "none", 200},
		{"Sec-Fetch-Site", "cross-site", 403},
		{"Sec-Fetch-Site", "same-site", 403},
		{"Origin", s.srv.URL, 200},
		{"Origin", "https://evil.example", 403},
		{"Origin", "null", 403},
		{"X-None", "", 200}, // no browser
	} {
		resp := s.do(t, "POST", "/page", func(r *http.Request) { r.Header.Set(c.name, c.value) })
		if resp.StatusCode != c.status {
			t.Errorf("%s: %s: %s, want %d", c.name, c.value, resp.Status, c.status)
		}
		if ct := resp.Header.Get("Content-Type"); !strings.HasPrefix(ct, "text/html") {
			t.Errorf("%s: %s: %s", c.name, c.value, ct)
		}
	}
}

func TestErrorsOfPagesArePages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.HandlePage("GET /refused", fail(apierr.NotFound.Errorf("no <such> page")))
	s.HandlePage("GET /panic", func(http.ResponseWriter, *http.Request) error { panic("secret") })
	s.Handle("GET /api", fail(apierr.NotFound.Errorf("none")))
	resp := s.do(t, "GET", "/refused", nil)
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 404 || !strings.Contains(string(body), "no &lt;such&gt; page") ||
		!strings.Contains(string(body), resp.Header.Get("X-Request-Id")) {
		t.Errorf("%s %s %v", resp.Status, body, err)
	}
	resp = s.do(t, "GET", "/panic", nil)
	body, err = io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 500 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") ||
		strings.Contains(string(body), "secret") {
		t.Errorf("%s %s %v", resp.Status, body, err)
	}
	wantEnvelope(t, s.do(t, "GET", "/api", nil), 404, "not_found")
}

func TestErrorPagesCanBeReplaced(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.SetPageError(func(w http.ResponseWriter, r *http.Request, e *apierr.Error) {
		if e.Code == apierr.Internal {
			panic("the renderer is broken too")
		}
		w.WriteHeader(e.Code.Status)
		_, _ = io.WriteString(w, "nicer: "+e.Message)
	})
	s.HandlePage("GET /refused", fail(apierr.NotFound.Errorf("none")))
	s.HandlePage("GET /panic", func(http.ResponseWriter, *http.Request) error { panic("handler") })
	resp := s.do(t, "GET", "/refused", nil)
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "nicer: none" || resp.StatusCode != 404 {
		t.Errorf("%s %s %v", resp.Status, body, err)
	}
	if resp, err := s.srv.Client().Get(s.srv.URL + "/panic"); err == nil {
		resp.Body.Close()
		t.Errorf("answered %s", resp.Status)
	}
	s.stop()
	lines := s.log.records(t, "request")
	if last := lines[len(lines)-1]; last["status"] != 500.0 || last["cut"] != true {
		t.Errorf("log: %v", lines)
	}
}

func TestAllowFormAction(t *testing.T) {
	t.Parallel()
	const policy = "default-src 'none'; form-action 'self'"
	for uri, want := range map[string]string{
		"https://app.example/callback?x=1": policy + " https://app.example",
		"https://app.example:8443/cb":      policy + " https://app.example:8443",
		"http://127.0.0.1:3000/cb":         policy + " http://127.0.0.1:3000",
		"http://[::1]:3000/cb":             policy + " http:",
		"https://a.example;script-src *":   "",
		"https://a.example'/":              "",
		"https://*/":                       "",
		"https://café.example/":            "",
		"javascript:alert(1)":              "",
		"data:text/html,x":                 "",
		"/relative":                        "",
		"https:///none":                    "",
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Security-Policy", policy)
		err := web.AllowFormAction(w, uri)
		got := w.Header().Get("Content-Security-Policy")
		if want == "" && (err == nil || got != policy) || want != "" && (err != nil || got != want) {
			t.Errorf("%s: %s, %v", uri, got, err)
		}
	}
	if err := web.AllowFormAction(httptest.NewRecorder(), "https://app.example/"); err == nil {
		t.Error("an origin was allowed on a page that has no policy")
	}
}
