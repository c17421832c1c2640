package e2e

import (
	"archive/zip"
	"bytes"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestLeaving goes from a new account to a closed one, without JavaScript on both
// databases: look at what there is, download it, slip, close, find nothing, and
// sign up with the same address again.
func TestLeaving(t *testing.T) {
	testkit.Long(t, "axe and pictures of its pages; package privacy proves the export and the closing of an account")
	t.Parallel()
	eachNode(t, func(t *testing.T, p *servertest.Process) {
		b := newTab(t, p.BaseURL)
		b.withoutScripts()
		look := func(page string) {
			if p.DB[:6] == "sqlite" {
				b.look(page)
			}
		}
		const email, password = "leaver@example.org", "a long enough password"
		join := func() {
			b.open(p.BaseURL + "/sign-up?next=/settings")
			b.fill("Email", email)
			b.fill("Password", password)
			b.press("button", "Create account")
			b.open(p.BaseURL + "/dev/mail")
			b.press("link", "Confirm your email")
			b.open(run(b, chromedp.Evaluate[string](`document.querySelector('a[href*="/sign-up/confirm/"]').href`)))
			b.fill("Password", password)
			b.press("button", "Confirm")
		}
		join()
		b.press("link", "Your data")
		b.says("All your data in one file", "Download my data")
		look("your-data")
		text := download(t, p, email, password)
		if !strings.Contains(text, email) || strings.Contains(text, p.Developer.Email) {
			t.Errorf("the download: %s", text)
		}
		b.press("link", "Close my account…")
		b.says("This can’t be undone", "No apps are connected", "Your ledger entries")
		look("close-account")
		b.fill("To confirm, type your address: "+email, "somebody@example.org")
		b.fill("Your password", "not the password")
		b.press("button", "Close my account")
		b.says("This is not your account’s email address.")
		look("close-account-slip")
		b.fill("To confirm, type your address: "+email, email)
		b.fill("Your password", "not the password")
		b.press("button", "Close my account")
		b.says("Incorrect password.")
		b.fill("Your password", password)
		b.press("button", "Close my account")
		b.says("Your account is closed")
		look("account-closed")
		b.open(p.DashboardURL + "/settings")
		if b.at().Path != "/sign-in" {
			t.Errorf("after closing, %s", b.at())
		}
		b.signIn(email, password)
		b.says("Incorrect email or password.")
		b.open(p.BaseURL + "/dev/mail")
		b.says("Your account is closed")
		join()
		if b.at().Path != "/settings" {
			t.Errorf("signed up again, and at %s", b.at())
		}
		developer := newTab(t, p.BaseURL)
		developer.open(p.DashboardURL + "/settings/data/close")
		developer.signIn(p.Developer.Email, p.Developer.Password)
		developer.open(p.DashboardURL + "/settings/data/close")
		developer.says("and your provider keys", "2 apps of yours, with their webhooks")
		if p.DB[:6] == "sqlite" {
			developer.look("close-account-developer")
		}
		p.Verify()
	})
}

// download signs in beside the browser and returns all that is in the archive.
func download(t *testing.T, p *servertest.Process, email, password string) string {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	person := http.Client{Jar: jar}
	resp, err := person.PostForm(p.DashboardURL+"/sign-in", url.Values{"email": {email}, "password": {password}})
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp, err = person.PostForm(p.DashboardURL+"/settings/data/export", nil); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		t.Fatalf("%s: no archive: %v", resp.Status, err)
	}
	var all strings.Builder
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&all, r); err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
