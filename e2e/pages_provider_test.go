package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/oidctest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestProvider signs up by an OpenID Connect provider, out and in again, sets a
// password, unlinks the login and links it again, without JavaScript.
func TestProvider(t *testing.T) {
	testkit.Long(t, "axe and pictures of its pages; package identity proves logins at a provider over HTTP")
	const email, password = "newcomer@example.org", "a long enough password"
	login := oidctest.Start(t, time.Now, oidctest.Person{
		Subject:  "1",
		Email:    email,
		Verified: true,
	}, oidctest.Person{Subject: "2", Email: "unproved@example.org"})
	for name, value := range map[string]string{
		"NAME":          "Acme",
		"ISSUER":        login.URL,
		"CLIENT_ID":     oidctest.ClientID,
		"CLIENT_SECRET": oidctest.ClientSecret,
	} {
		t.Setenv("PURSER_OIDC_"+name, value)
	}
	p := servertest.Start(t, servertest.URL(t, db.SQLite))
	login.AllowRedirect(p.BaseURL + "/sign-in/provider/callback")
	b := newTab(t, p.BaseURL, login.URL)
	b.withoutScripts()
	// leave follows the page that goes on by itself.
	leave := func(button string) {
		t.Helper()
		b.press("button", button)
		run(b, chromedp.WaitVisible("the provider's page", as("heading", "Who are you?")))
	}
	b.open(p.BaseURL + "/sign-up?next=/settings/security")
	b.look("provider-sign-up")
	leave("Continue with Acme")
	b.press("button", "unproved@example.org")
	b.says("Acme hasn’t confirmed your address")
	b.look("provider-unverified")
	b.press("link", "Create account")
	leave("Continue with Acme")
	b.press("button", "Nobody")
	b.says("You’re not signed in")
	b.press("link", "Sign in")
	b.look("provider-sign-in")
	leave("Continue with Acme")
	b.press("button", email)
	b.open(p.BaseURL + "/settings/security")
	b.says("You sign in with Acme only", "Linked", "Provider login linked")
	b.look("provider-only")
	b.open(p.BaseURL + "/settings/two-step")
	b.look("provider-confirmed") // by the sign-in of a moment ago
	b.press("button", "Continue")
	b.says("Six-digit code")

	b.press("button", "Sign out")
	b.open(p.BaseURL + "/settings/provider")
	leave("Continue with Acme")
	b.press("button", email)
	if b.at().Path != "/settings/provider" {
		t.Fatalf("after the second sign-in, %s", b.at())
	}
	b.says("Set a password first")
	b.look("provider-no-password")
	b.press("button", "Send link")
	b.open(p.BaseURL + "/dev/mail")
	b.press("link", "Reset your password")
	b.open(run(b, chromedp.Evaluate[string](`document.querySelector('a[href*="/reset/"]').href`)))
	b.fill("New password", password)
	b.press("button", "Set password")
	b.open(p.BaseURL + "/settings/provider")
	b.signIn(email, password)
	b.look("provider-unlink")
	b.fill("Password", password)
	b.press("button", "Unlink")
	b.says("Login unlinked", "Not linked")
	b.look("provider-unlinked")

	b.press("button", "Sign out")
	b.open(p.BaseURL + "/sign-in")
	leave("Continue with Acme")
	b.press("button", email)
	b.says("You already have an account", "link it under Security")
	b.look("provider-taken")
	b.press("link", "Sign in")
	b.signIn(email, password)
	b.look("provider-link")
	b.fill("Password", password)
	leave("Continue to Acme")
	b.press("button", email)
	b.says("Login linked", email)
	b.look("provider-linked")
	if strings.Contains(b.at().RawQuery, "code") {
		t.Errorf("the code stays in the address: %s", b.at())
	}
}
