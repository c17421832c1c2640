package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestOperatorSupportsAnAccount walks an account from its invitation to its end: its owner pays $25, gets a goodwill
// credit, reads both by their names, and has the payment back when the operator closes the account.
func TestOperatorSupportsAnAccount(t *testing.T) {
	testkit.Long(t, "axe sees its pages; package operatorpages proves its forms")
	t.Parallel()
	p := servertest.Start(t, "")
	b, u := newTab(t, p.BaseURL), newTab(t, p.BaseURL)
	b.open(p.DashboardURL + "/operator/invitations")
	b.signIn(p.Operator.Email, p.Operator.Password)
	b.accessible("the form of an invitation")
	b.fill("Email", "ann@example.com")
	b.press("button", "Create link")
	b.says("Invitation for ann@example.com", "is not shown again")

	invitation := run(b, chromedp.Evaluate[string](`document.querySelector("main pre").innerText.trim()`))
	u.open(invitation)
	u.accessible("an invitation")
	u.withoutScripts()
	u.open(invitation)
	u.fill("Password", "correct horse battery")
	u.press("button", "Create account")
	u.topUp(p.BaseURL)

	b.open(p.DashboardURL + "/operator/accounts")
	b.press("link", b.named("link", "ann@example.com"))
	account := b.at().String()
	b.press("link", "Give a goodwill credit")
	b.fill("Amount in dollars", "1")
	b.write("Reason", "Sorry for the outage.")
	b.accessible("the form of a goodwill credit")
	b.press("button", "Give credit")
	b.says("Goodwill credit given.")
	u.open(p.DashboardURL + "/activity")
	u.says("Goodwill credit", "+$1.00", "Top-up", "+$25.00")

	for _, action := range []string{"sign-out", "reset-two-step", "suspend", "lift"} {
		b.open(account + "/" + action)
		b.accessible(action)
	}
	b.open(p.DashboardURL + "/operator/settings")
	b.accessible("settings")
	b.open(account)
	b.press("link", "Close")
	b.says("This can’t be undone")
	b.write("Reason", "Asked for by its user.")
	b.accessible("the form that closes an account")
	b.press("button", "Close account")
	b.says("Account closed.", "$0.00")
	b.open(account + "/return") // where no link leads while nothing came back
	b.says("newest first")
	b.accessible("the form that returns what came back to a closed account")
	b.open(account + "/settle")
	b.says("No money moves by this.")
	b.accessible("the form that records a payment made otherwise")
	u.open(p.DashboardURL + "/activity")
	u.says("Sign in")
	p.Verify()
}
