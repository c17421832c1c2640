package console_test

import (
	"maps"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A naming is a form with a text that other people will read, and its field.
type naming struct {
	path, field string
	form        url.Values
}

// with is the form with this text.
func (n naming) with(text string) url.Values {
	form := maps.Clone(n.form)
	form.Set(n.field, text)
	return form
}

func (w *world) namings() map[string]naming {
	feature := func(slug string) url.Values {
		return url.Values{"slug": {slug}, "display_name": {"Fresh"}, "description": {"New."}}
	}
	return map[string]naming{
		"a new app": {"/developer/apps", "name",
			url.Values{"redirect_uris": {"https://app.example.com/cb"}}},
		"an app's name": {w.mine("/settings"), "name", url.Values{
			"redirect_uris": {"https://app.example.com/cb"},
			"provider_mode": {"mock"},
			"dev_margin":    {"0"},
		}},
		"a feature's name":        {w.mine("/features"), "display_name", feature("named")},
		"a feature's description": {w.mine("/features"), "description", feature("described")},
	}
}

// What a developer calls things is read on the consent screen: text that hides
// itself, breaks the line or turns it round is refused.
func TestNamesThatDeceive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b := w.signedIn("developer")
	before := w.everything()
	for what, n := range w.namings() {
		for trick, text := range map[string]string{
			"an override of the direction": "Bank\u202etpircs",
			"an embedding":                 "Bank\u202b",
			"an isolate":                   "\u2066Bank\u2069",
			"a mark of the direction":      "Bank\u200f",
			"an escape":                    "Bank\x1b[2J",
			"a zero":                       "Bank\x00",
			"a line separator":             "Bank\u2028of somebody else",
			"a new line":                   "Bank\nof somebody else",
			"nothing that can be seen":     "\u200b\u2060",
			"nothing but space":            " \u00a0 ",
			"more than anybody reads":      strings.Repeat("Bank ", 500),
			"what is no text":              "Bank\xff",
			"tags, which nobody sees":      "\U000e0042\U000e0061",
			"an old control":               "Bank\u0085s",
		} {
			if p := b.Post(n.path, n.with(text)); p.Status != 400 && p.Status != 422 {
				t.Errorf("%s with %s: %d to %q", what, trick, p.Status, p.To)
			}
		}
	}
	if after := w.everything(); after != before {
		t.Errorf("%s has become %s", before, after)
	}
	for what, n := range w.namings() { // it was the text that was wrong
		if p := b.Post(n.path, n.with("Bank "+what)); p.Status >= 400 {
			t.Errorf("%s: %d\n%s", what, p.Status, p.Body)
		}
	}
}

// ownScript is what the one page that needs a script has.
var ownScript = regexp.MustCompile(`<script src="/assets/voice\.[0-9a-f]+\.js" defer></script>`)

// Markup in a name is a name like any other, and stays text on every page.
func TestNamesAreText(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b := w.signedIn("developer")
	for i, text := range []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`,
		`' autofocus onfocus='alert(1)`, `</title><h1>x`, `{{.Shell}} ${7*7}`, `javascript:alert(1)`} {
		b.Post(w.mine("/settings"), url.Values{
			"name":          {text},
			"redirect_uris": {"https://app.example.com/cb"},
			"provider_mode": {"mock"},
			"dev_margin":    {"0"},
		}).Want(t, 303)
		slug := "slug" + string(rune('a'+i))
		b.Post(w.mine("/features"), url.Values{
			"slug":         {slug},
			"display_name": {text},
			"description":  {text},
		}).Want(t, 303)
		for _, path := range w.every("GET", w.app.ID, "{slug}", slug) {
			if strings.Contains(path, "{") {
				continue // of something that is not there
			}
			p := b.Get(path).Want(t, 200)
			p.Body = ownScript.ReplaceAllString(p.Body, "")
			p.Lacks(t, "<script>", "<img", "<h1>x", "' autofocus onfocus='", `href="javascript:`)
			if strings.HasSuffix(path, "/live") || strings.HasSuffix(path, ".csv") {
				continue // figures only
			}
			if strings.Contains(path, w.app.ID) &&
				!strings.Contains(strings.NewReplacer("&lt;", "<", "&gt;", ">", "&#34;", `"`, "&#39;",
					"'").Replace(p.Body), text) {
				t.Errorf("%s does not show %s", path, text)
			}
		}
	}
}

// No page may be framed, kept or scripted, and none leads anybody elsewhere.
func TestPagesAreGuarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b, nobody := w.signedIn("developer"), w.browser()
	for _, path := range w.every("GET", w.app.ID) {
		if !strings.Contains(path, "{") {
			b.Get(path).Want(t, 200).WantSecurityHeaders(t)
		}
		b.Get(strings.ReplaceAll(path, "{", "none")).WantSecurityHeaders(t) // errors neither
		for _, elsewhere := range []string{"//evil.example.com" + path, path + "//evil.example.com",
			path + "?next=https://evil.example.com/", "/%2F%2Fevil.example.com" + path} {
			for _, who := range []*apitest.Browser{b, nobody} {
				who.Get(elsewhere).WantLocalRedirect(t)
			}
		}
	}
	for _, path := range w.every("POST", w.app.ID) {
		b.Post(path, url.Values{"to": {"off"}, "name": {"x"}}, "Origin", "null").Want(t, 403).WantSecurityHeaders(t)
	}
}
