package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestOperator goes from a review to a refund, on both databases, and keeps a
// picture of every page: approve an app, find its user, refund a call, suspend the
// app and lift that, verify the books, and read in the log what was done.
func TestOperator(t *testing.T) {
	testkit.Long(t, "axe and pictures of its pages; package operatorpages proves what they do")
	t.Parallel()
	eachNode(t, func(t *testing.T, p *servertest.Process) {
		register(t, p, "https://app.example.com/callback")
		manage(t, p, "PATCH", "/v1/apps/"+p.App.ID, `{"allowed_models":["`+model+`"]}`, nil)
		for range 3 {
			if code, _ := refused(t, p); code != "" {
				t.Fatalf("the call was refused: %s", code)
			}
		}
		charged := spends(t, p, p.Connection.ID)[0]
		manage(t, p, "POST", "/v1/apps/"+p.App.ID+"/go-live", "", nil)
		b := newTab(t, p.BaseURL)
		look := func(page string) {
			if p.DB[:6] == "sqlite" {
				b.look("operator-" + page)
			}
		}
		b.open(p.DashboardURL + "/operator")
		b.signIn(p.Operator.Email, p.Operator.Password)
		b.says("Needs a decision", "Go-live requests", "Books ", "Nodes: 1")
		look("overview")
		b.open(p.DashboardURL + "/operator/connections/" + p.Connection.ID + "/revoke")
		b.says("Revoke this connection?", "The user reads it.")
		look("revoke")
		b.open(p.DashboardURL + "/operator")
		b.press("link", "Go-live requests")
		look("reviews")
		b.press("link", "Sample app")
		b.says("Requests to move from sandbox to limited-live", "At least one registered feature")
		look("review")
		b.press("button", "Reject")
		b.says("There’s a problem", "The reason must have 1 to 500 characters.")
		look("review-slip")
		b.press("button", "Approve")
		b.says("Approved. The app is in its new tier", "Approved")
		look("review-done")
		b.press("link", "Accounts")
		look("accounts")
		b.fill("Email, safety identifier, or the id of an account, connection, ledger entry or request",
			charged.RequestID())
		b.press("button", "Find")
		b.press("link", b.named("link", p.TestAccount.Email))
		b.says("Test account", "Sample app", "Revoked", "Connection revoked")
		look("account")
		account := b.at().String()
		b.open(account + "/timeline")
		b.says("Sample app", "Connection revoked")
		look("timeline")
		b.open(account)
		b.open(p.DashboardURL + "/operator/ledger/" + charged.ID)
		b.says("Price terms", "Refund this charge")
		look("entry")
		b.press("link", "Refund this charge")
		b.says("available balance, because the connection is revoked")
		b.write("Reason", "The answer was empty.")
		look("refund")
		b.press("button", "Refund "+charged.UserChargeMC.Display())
		b.says("Charge refunded. This entry is the refund.", "The answer was empty.")
		look("refunded")
		b.open(p.DashboardURL + "/operator/connections/" + p.Connection.ID)
		look("connection")
		b.press("link", "Apps")
		look("apps")
		b.press("link", b.named("link", "Sample app"))
		b.write("Reason", "Its secret has leaked.")
		look("app")
		b.press("button", "Suspend")
		b.says("Suspended by operator", "Its secret has leaked.")
		b.write("Reason", "It has a new one.")
		b.press("button", "Lift")
		b.says("Suspension lifted.")
		b.press("link", "Risk")
		look("risk")
		b.press("link", "Providers")
		b.says("Price list", "Free pools")
		look("providers")
		b.press("link", "Prices and changes")
		b.says(model, "Versions")
		look("prices")
		b.press("link", "Compare two versions")
		b.says("The prices of these versions are the same.")
		look("prices-compare")
		b.press("link", "Audit log")
		b.says(p.Operator.Email, "approve", "reverse", "suspend", "lift", "The answer was empty.")
		look("log")
		b.open(run(b, chromedp.Evaluate[string](`document.querySelector('a[href^="/operator/log/"]').href`)))
		b.says("Its secret has leaked.")
		look("log-entry")
		b.open(p.DashboardURL + "/operator/log?action=suspend")
		look("log-search")
		b.press("link", "Incidents")
		b.fill("Title", "Slow answers")
		b.pick("Impact", "degraded")
		b.write("Text", "We’re looking into it.")
		b.press("button", "Publish")
		b.says("Degraded", "We’re looking into it.")
		look("incident")
		verified(b, p)
		look("verify")
	})
}

// verified asks for an audit and waits until it is clean.
func verified(b *tab, p *servertest.Process) {
	b.t.Helper()
	b.open(p.DashboardURL + "/operator/verify")
	b.press("button", "Verify now")
	for ctx := soon(b.t); ; {
		for _, x := range b.things() {
			if x.name == "Results by check" { // of the latest, and only if it is clean; the daily one is below
				return
			}
		}
		if ctx.Err() != nil {
			b.t.Fatal("the books were not verified in time")
		}
		b.open(p.DashboardURL + "/operator/verify")
	}
}
