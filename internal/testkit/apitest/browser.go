package apitest

import (
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/alexedwards/argon2id"
)

// Password is the password of every account in tests.
const Password = "correct horse battery"

// PasswordHash returns the hash of Password with weak parameters, so that tests are fast.
func PasswordHash(t testing.TB) string {
	t.Helper()
	hash, err := passwordHash()
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

var passwordHash = sync.OnceValues(func() (string, error) {
	return argon2id.CreateHash(Password, &argon2id.Params{
		Memory:      8,
		Iterations:  1,
		Parallelism: 1,
		SaltLength:  16,
		KeyLength:   32,
	})
})

// A Browser reads pages. It keeps cookies, does not follow redirects, and checks every
// answer against the contract.
type Browser struct {
	t      testing.TB
	base   string
	client http.Client
}

// NewBrowser returns a signed-out browser for the pages at base.
func NewBrowser(t testing.TB, base string) *Browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Browser{t, base, http.Client{
		Jar: jar, Transport: Transport(t, nil),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// SignIn signs an account in with Password, and returns the browser.
func (b *Browser) SignIn(email string) *Browser {
	b.t.Helper()
	if p := b.Post("/sign-in", url.Values{"email": {email}, "password": {Password}}); p.Status != http.StatusSeeOther {
		b.t.Fatalf("sign in as %s: %d %s", email, p.Status, p.Body)
	}
	return b
}

// Get asks for a page.
func (b *Browser) Get(path string) Page {
	b.t.Helper()
	return b.Do(http.NewRequest("GET", b.base+path, nil))
}

// Post sends a form. Headers are pairs of a name and a value.
func (b *Browser) Post(path string, form url.Values, headers ...string) Page {
	b.t.Helper()
	req, err := http.NewRequest("POST", b.base+path, strings.NewReader(form.Encode()))
	if err == nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	return b.Do(req, err)
}

// Do sends the request that http.NewRequest has returned.
func (b *Browser) Do(req *http.Request, err error) Page {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := b.client.Do(req.WithContext(b.t.Context()))
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return Page{resp.StatusCode, string(body), resp.Header.Get("Location"), resp.Header}
}

// A Page is an answer to a browser: a page, or a redirect.
type Page struct {
	Status   int
	Body, To string
	Header   http.Header
}

// Want checks the status, and that the page contains each of says.
func (p Page) Want(t testing.TB, status int, says ...string) Page {
	t.Helper()
	if p.Status != status {
		t.Errorf("got %d to %q, want %d\n%s", p.Status, p.To, status, p.Body)
	}
	for _, s := range says {
		if !strings.Contains(p.Body, s) {
			t.Errorf("the page lacks %q:\n%s", s, p.Body)
		}
	}
	return p
}

// Lacks checks that the page contains none of says.
func (p Page) Lacks(t testing.TB, says ...string) Page {
	t.Helper()
	for _, s := range says {
		if strings.Contains(p.Body, s) {
			t.Errorf("the page says %q:\n%s", s, p.Body)
		}
	}
	return p
}

// Leads checks that the answer redirects to an address.
func (p Page) Leads(t testing.TB, to string) Page {
	t.Helper()
	if p.Status != http.StatusSeeOther || p.To != to {
		t.Errorf("got %d to %q, want 303 to %q\n%s", p.Status, p.To, to, p.Body)
	}
	return p
}

// Found returns the match of a pattern's group in the page.
func (p Page) Found(t testing.TB, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(p.Body)
	if m == nil {
		t.Fatalf("the page lacks %s:\n%s", pattern, p.Body)
	}
	return m[1]
}

// Shown returns the hidden field of the form on the page that says what the form shows, as a browser sends it.
func (p Page) Shown(t testing.TB, form string) string {
	t.Helper()
	_, rest, _ := strings.Cut(p.Body, `action="`+form+`"`)
	p.Body = rest
	return html.UnescapeString(p.Found(t, `name="shown" value="([^"]*)"`))
}

// WantSecurityHeaders checks that the page must not be framed or cached, and runs no script.
func (p Page) WantSecurityHeaders(t testing.TB) Page {
	t.Helper()
	policy := p.Header.Get("Content-Security-Policy")
	for _, rule := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'",
		"form-action 'self'"} {
		if !strings.Contains(policy, rule) {
			t.Errorf("the policy lacks %s: %s", rule, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || p.Header.Get("X-Frame-Options") != "DENY" ||
		p.Header.Get("X-Content-Type-Options") != "nosniff" || p.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", p.Header)
	}
	return p
}

// WantLocalRedirect checks that the answer redirects to no other host.
func (p Page) WantLocalRedirect(t testing.TB) Page {
	t.Helper()
	to, err := url.Parse(p.To)
	if err != nil || to.Host != "" || to.Scheme != "" || strings.HasPrefix(p.To, "//") ||
		strings.ContainsRune(p.To, '\\') {
		t.Errorf("%d leads to %q", p.Status, p.To)
	}
	if next, err := url.Parse(to.Query().Get("next")); err != nil || next.Host != "" ||
		strings.HasPrefix(next.Path, "//") {
		t.Errorf("%d leads to %q, and from there away", p.Status, p.To)
	}
	return p
}
