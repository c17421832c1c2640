package e2e

import (
	"testing"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestBePaidAsADeveloper sets payouts up at the emulator's onboarding, and is paid what two weeks of calls have
// earned.
func TestBePaidAsADeveloper(t *testing.T) {
	testkit.Long(t, "axe and pictures of its pages; package payouts proves payouts with the emulated Stripe")
	t.Parallel()
	p := servertest.Start(t, "", "--empty=false")
	b := newTab(t, p.BaseURL)
	b.withoutScripts()
	page := p.DashboardURL + "/developer/payouts"
	b.open(page)
	b.signIn(p.Developer.Email, p.Developer.Password)
	b.says("Tell Stripe whom to pay and where.", "Payable", "No payouts yet.")
	b.look("payouts-empty")
	b.expect("401")
	b.fill("Your password", "wrong")
	b.press("button", "Set up payouts")
	b.look("payouts-slip")
	b.fill("Your password", p.Developer.Password)
	b.expect("/connect/acct_") // the one foreign page that a developer goes to
	b.press("button", "Set up payouts")
	b.says("Emulated onboarding")
	b.press("button", "Answer, but Stripe still has to check it")
	b.says("Stripe is checking your details.")
	b.look("payouts-submitted")
	b.fill("Your password", p.Developer.Password)
	b.expect("/connect/acct_")
	b.press("button", "Continue at Stripe")
	b.press("button", "Answer everything")
	b.says("You can be paid.")
	b.waitFor("/developer/payouts", "po_")
	b.open(page)
	b.says("Revenue statements")
	b.look("payouts-paid")
	b.open(p.BaseURL + "/dev/mail")
	b.says("We paid you $")
	p.Verify()
}
