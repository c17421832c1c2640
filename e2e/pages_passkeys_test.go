package e2e

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// device plugs an authenticator into the tab: one that keeps passkeys and always
// finds its user.
func (b *tab) device() webauthn.AuthenticatorID {
	b.t.Helper()
	call(b, webauthn.Enable, webauthn.EnableParams{})
	return call(b, webauthn.AddVirtualAuthenticator,
		webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol:                    webauthn.AuthenticatorProtocolCtap2,
			Transport:                   webauthn.AuthenticatorTransportInternal,
			HasResidentKey:              true,
			HasUserVerification:         true,
			IsUserVerified:              true,
			AutomaticPresenceSimulation: true,
		}}).AuthenticatorID
}

// arrives waits until the page that a script leads to is there.
func (b *tab) arrives(path string) {
	b.t.Helper()
	for b.at().Path != path {
		if b.ctx.Err() != nil {
			b.t.Fatalf("at %s, not %s", b.at(), path)
		}
	}
	run(b, chromedp.WaitReady("#main"))
}

// TestPasskeys makes a passkey, signs in with it alone and as the second step, and
// removes it, in a browser on the real binary.
func TestPasskeys(t *testing.T) {
	testkit.Long(t, "axe and pictures of its pages; package identity proves passkeys with a software authenticator")
	t.Parallel()
	eachNode(t, func(t *testing.T, p *servertest.Process) {
		here := strings.Replace(p.BaseURL, "127.0.0.1", "localhost", 1)
		b := newTab(t, p.BaseURL, here)
		look := func(page string) {
			if strings.HasPrefix(p.DB, "sqlite") {
				b.look("passkey-" + page)
			}
		}
		run(b, chromedp.EmulateViewport(1440, 844)) // narrower, the way out is behind a button
		device := b.device()
		person := p.Developer

		b.open(p.BaseURL + "/sign-in?next=/settings/security")
		b.lacks("Use a passkey")
		b.signIn(person.Email, person.Password)
		b.says("Passkeys need a domain name", here)
		b.lacks("Add a passkey")
		look("elsewhere")

		b.open(here + "/sign-in?next=/settings/security")
		look("sign-in")
		b.signIn(person.Email, person.Password)
		b.press("link", "Add a passkey")
		look("new")
		b.fill("Name", "My laptop")
		b.fill("Password", "not the password")
		b.press("button", "Continue")
		b.says("Incorrect password")
		b.fill("Password", person.Password)
		b.press("button", "Continue")
		b.says("Create a passkey", "“My laptop”")
		look("make")
		b.press("button", "Create a passkey")
		b.says("Recovery codes")
		b.press("link", "I’ve saved these codes")
		b.says("My laptop", "Not used yet", "10 recovery codes are left", "Passkey added",
			"Two-step verification turned on")
		look("security")

		b.press("button", "Sign out")
		b.open(here + "/sign-in?next=/settings/security")
		b.press("button", "Use a passkey")
		b.arrives("/settings/security")
		b.says("My laptop", "Used ")

		b.press("button", "Sign out")
		b.open(here + "/sign-in?next=/settings/security")
		b.signIn(person.Email, person.Password)
		b.says("Two-step verification", "Use your passkey")
		look("second-step")
		b.press("button", "Use a passkey")
		b.arrives("/settings/security")

		// Whoever is not recognized by the device, or has none, can go on otherwise.
		b.press("button", "Sign out")
		b.open(here + "/sign-in")
		call(b, webauthn.SetUserVerified,
			webauthn.SetUserVerifiedParams{AuthenticatorID: device, IsUserVerified: false})
		b.press("button", "Use a passkey")
		run(b, chromedp.WaitVisible("[role=alert]"))
		b.says("No passkey was used")
		look("cancelled")
		call(b, webauthn.SetUserVerified, webauthn.SetUserVerifiedParams{AuthenticatorID: device, IsUserVerified: true})
		b.press("button", "Try again")
		b.arrives("/")

		b.open(here + "/settings/security")
		b.press("link", "Remove My laptop")
		b.says("This is your last second step")
		look("remove")
		b.fill("Password", person.Password)
		b.press("button", "Remove")
		b.says("Two-step verification is off", "Passkey removed")
		b.press("button", "Sign out")
		b.open(here + "/sign-in?next=/settings/security")
		b.press("button", "Use a passkey")
		b.arrives("/sign-in/passkey/answer")
		b.says("We couldn’t verify this passkey")
		b.signIn(person.Email, person.Password)
		b.arrives("/settings/security")

		b.withoutScripts()
		b.open(here + "/settings/security")
		b.lacks("Add a passkey")
		b.says("Allow it on this page")
	})
}

// lacks fails the test if the page offers a button or link of this name.
func (b *tab) lacks(name string) {
	b.t.Helper()
	for _, x := range b.things() {
		if x.name == name && (x.role == "button" || x.role == "link") {
			b.t.Errorf("the page offers %s %q", x.role, name)
		}
	}
}
