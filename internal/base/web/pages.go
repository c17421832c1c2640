package web

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/purserhq/purser/internal/base/apierr"
)

// answerPolicy is the Content-Security-Policy of responses that are not pages: a browser that opens or frames one runs
// and loads nothing.
const answerPolicy = "default-src 'none'; frame-ancestors 'none'"

// contentPolicy lets a page load our styles, images and fonts and post to us, and nothing else. It
// needs no nonce, because it allows no script.
const contentPolicy = "default-src 'none'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; " + formAction

// formAction is the end of the policy, so that AllowFormAction can append to it.
const formAction = "form-action 'self'"

// setPageHeaders sets the security headers of a page. A handler may change them.
func (rt *Router) setPageHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy+rt.formHosts)
	// Not "no-referrer": browsers would send "Origin: null" with our own forms.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Permissions-Policy", permissions+"microphone=()")
}

// permissions denies all pages the browser features that need the user's permission.
const permissions = "camera=(), geolocation=(), payment=(), "

// AllowFormAction adds the origin of redirectURI to form-action, because Chromium also checks the
// redirect after a form's POST. Call it before the page is written.
func AllowFormAction(w http.ResponseWriter, redirectURI string) error {
	u, err := url.Parse(redirectURI)
	if err != nil {
		return fmt.Errorf("form action: %w", err)
	}
	source, err := policySource(u)
	if err != nil {
		return err
	}
	h := w.Header()
	policy := h.Get("Content-Security-Policy")
	if !strings.Contains(policy, formAction) {
		return fmt.Errorf("form action: the page has no %s to add to", formAction)
	}
	h.Set("Content-Security-Policy", policy+" "+source)
	return nil
}

// AllowVoice lets the page run our script, use the microphone and connect to the API at baseURL,
// also with WebSockets. It is for the one page that needs it.
func AllowVoice(w http.ResponseWriter, baseURL string) error {
	u, err := url.Parse(baseURL)
	if err != nil {
		return fmt.Errorf("voice: %w", err)
	}
	source, err := policySource(u)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Security-Policy",
		"script-src 'self'; connect-src 'self' "+source+" ws"+strings.TrimPrefix(source, "http")+"; "+
			h.Get("Content-Security-Policy"))
	h.Set("Permissions-Policy", permissions+"microphone=(self)")
	return nil
}

// policySource returns the origin of u as a source of a content security policy. The grammar has no IPv6 addresses; for
// one it returns only the scheme.
func policySource(u *url.URL) (string, error) {
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return "", fmt.Errorf("form action: %q is no web address", u.Redacted())
	}
	if strings.HasPrefix(u.Host, "[") {
		return u.Scheme + ":", nil
	}
	for _, c := range []byte(u.Host) {
		if !isAlphaNum(c) && !strings.ContainsRune("-._:", rune(c)) {
			return "", fmt.Errorf("form action: host %q is not plain", u.Host)
		}
	}
	return u.Scheme + "://" + u.Host, nil
}

func isAlphaNum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// crossOrigin refuses a form that another site sent with the user's cookies.
var crossOrigin = apierr.Code{
	Name:   "cross_origin_request",
	Status: http.StatusForbidden,
	Type:   "forbidden",
	Final:  true,
}

var originCheck = http.NewCrossOriginProtection()

func checkOrigin(r *http.Request) error {
	if err := originCheck.Check(r); err != nil {
		return crossOrigin.Errorf(
			"This form was sent from another site. Open the page here and submit it again.").WithCause(err)
	}
	return nil
}

// A PageError renders e as a page: it writes the status e.Code.Status and the body. The headers of e are already set.
type PageError func(w http.ResponseWriter, r *http.Request, e *apierr.Error)

var plainPage = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("error").Parse(plainPageText))
})

const plainPageText = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Title}}</title></head>
<body><h1>{{.Title}}</h1><p>{{.Message}}</p><p>Request <code>{{.RequestID}}</code></p></body></html>
`

// plainPageError is the default renderer of error pages.
func plainPageError(w http.ResponseWriter, r *http.Request, e *apierr.Error) {
	var b strings.Builder
	err := plainPage().Execute(&b, struct{ Title, Message, RequestID string }{
		http.StatusText(e.Code.Status), e.Message, RequestID(r.Context())})
	if err != nil {
		panic(err) // the template is a constant
	}
	_ = writeBody(w, e.Code.Status, "text/html; charset=utf-8", []byte(b.String()))
}

// SeeOther answers 303: the browser gets location.
func SeeOther(w http.ResponseWriter, location string) error {
	w.Header().Set("Location", location)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}
