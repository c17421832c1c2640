package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/html"

	"github.com/purserhq/purser/internal/testkit/servertest"
)

// A guideUser is the person whom the programs of the guides ask to open a URL: the sample test account. It sends the
// forms of the pages as a browser without JavaScript would.
type guideUser struct {
	p    *servertest.Process
	http http.Client

	mu       sync.Mutex // a person does one thing at a time
	signedIn bool
}

func newGuideUser(t *testing.T, p *servertest.Process) *guideUser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &guideUser{p: p, http: http.Client{Jar: jar}}
}

// openLine matches a line by which a program asks a person to open a URL.
var openLine = regexp.MustCompile(`(?i)^\s*(?:or )?open:? (https?://\S+)`)

// findOpenURL returns the URL that a line of output asks a person to open; "" = none. The page on which a device's
// code is typed is left out where the code is not part of the URL: such programs print the whole URL too.
func findOpenURL(line string) string {
	m := openLine.FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	u, err := url.Parse(m[1])
	if err != nil || u.Path == "/device" && !u.Query().Has("user_code") {
		return ""
	}
	return m[1]
}

// maxPages bounds the pages from a URL to its decision.
const maxPages = 6

// open opens a URL, signs in if asked, and submits the main form of each page (Approve, Continue, Resume) until
// something is decided or the browser is back at the program.
func (u *guideUser) open(address string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	resp, err := u.http.Get(address)
	for range maxPages {
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		at := resp.Request.URL
		if "http://"+at.Host != u.p.DashboardURL { // back at the program
			return nil
		}
		if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusUnprocessableEntity {
			return fmt.Errorf("%s answers %s", at, resp.Status)
		}
		action, form := findMainForm(string(text))
		if action == nil {
			return fmt.Errorf("%s has no form with a main button", at)
		}
		if form.Has("password") {
			form.Set("email", u.p.TestAccount.Email)
			form.Set("password", u.p.TestAccount.Password)
		}
		next, err := at.Parse(*action)
		if err != nil {
			return err
		}
		if resp, err = u.http.PostForm(next.String(), form); err != nil {
			return err
		}
		if form.Has("decision") {
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil { // a program may stream its page
				return err
			}
			if resp.StatusCode >= http.StatusBadRequest {
				return fmt.Errorf("%s: the decision %q is answered with %s", next, form.Get("decision"), resp.Status)
			}
			return nil
		}
	}
	return fmt.Errorf("%s: not decided after %d pages", address, maxPages)
}

// findMainForm returns the action and the values of the form that has the page's primary button, with that of the
// button; nil = there is none.
func findMainForm(page string) (action *string, values url.Values) {
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return nil, nil
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode || n.Data != "form" {
			continue
		}
		values, found := url.Values{}, false
		for field := range n.Descendants() {
			name := attributeOf(field, "name")
			switch {
			case field.Type != html.ElementNode:
			case field.Data == "button" && slices.Contains(strings.Fields(attributeOf(field, "class")), "primary"):
				if found = true; name != "" {
					values.Set(name, attributeOf(field, "value"))
				}
			case field.Data != "input" || name == "":
			case slices.Contains([]string{"radio", "checkbox"}, attributeOf(field, "type")) &&
				!hasAttribute(field, "checked"):
			default:
				values.Add(name, attributeOf(field, "value"))
			}
		}
		if found {
			to := attributeOf(n, "action")
			return &to, values
		}
	}
	return nil, nil
}

func attributeOf(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func hasAttribute(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}
