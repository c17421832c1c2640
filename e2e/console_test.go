package e2e

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"purser/internal/db"
	"purser/internal/db/dbtest"
	"purser/internal/server/servertest"
)

// tick ticks, or unticks, a box.
func (b *tab) tick(label string) {
	b.t.Helper()
	run(b, chromedp.Click(label, as("checkbox", label)))
}

// pick chooses in a list by the value of the choice.
func (b *tab) pick(label, value string) {
	b.t.Helper()
	run(b, chromedp.SetValue(label, value, as("combobox", label)))
}

// write puts text into a field of several lines.
func (b *tab) write(label, text string) {
	b.t.Helper()
	run(b, chromedp.SetValue(label, text, as("textbox", label)))
}

// TestDeveloperFromNothing goes the way of a developer who has just signed in: the
// capability, an app, a feature, a test account, a first billed call, its receipt,
// a webhook, and the request to go live.
func TestDeveloperFromNothing(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, dbtest.URL(t, db.Postgres))
	b := newTab(t, p.BaseURL)
	b.open(p.DashboardURL + "/developer")
	b.signIn(p.Operator.Email, p.Operator.Password)
	b.press("button", "Switch on the developer console")
	b.press("link", "Create your first app")
	b.fill("Name", "Night <b>Reader</b>")
	b.write("Redirect addresses", "http://reader.example.com/callback")
	b.press("button", "Create the app")
	b.says("Redirect addresses, line 1: must begin with https://")
	b.write("Redirect addresses", "https://reader.example.com/callback")
	b.press("button", "Create the app")
	b.says("Client secret", "shown this once")
	b.press("link", "Go on to the app")
	app := b.at().String()
	b.press("link", "test accounts") // there is none to play with yet
	b.press("button", "Create a test account")
	b.says("Password", "$1,000.00")
	b.open(app + "/features")
	b.fill("Slug", "Summaries!")
	b.fill("Name", "Summaries")
	b.fill("Description", "Shortens what you read at night.")
	b.fill("Most that a call may cost (USD, optional)", "0.25")
	b.fill("Your margin (%, optional)", "25")
	b.press("button", "Add the feature")
	b.says("Slug: ")
	b.fill("Slug", "summaries")
	b.press("button", "Add the feature")
	b.says("The feature was added.", "at most $0.25 a call", "margin 25 %")
	b.press("link", "Summaries")

	b.press("link", "Playground")
	b.pick("Feature", "summaries")
	b.pick("Model", model)
	b.write("Prompt", "It's \"late\". <Say> hello.")
	b.press("button", "Make the call")
	b.says("Answer", "The user’s charge", "HTTP 200", "X-Svc-Feature: summaries")
	b.press("link", "Receipt")
	b.says("The user was charged", "summaries", model)
	b.open(app + "/playground")
	b.pick("Feature", "summaries")
	b.pick("Model", "gpt-5.6-sol")
	b.fill("Output limit (tokens)", "4000")
	b.write("Prompt", strings.Repeat("Much to read. ", 100))
	b.press("button", "Make the call")

	b.open(app)
	b.says("Your margin", "A first call")
	b.press("link", "Analytics")
	b.says("Summaries"[1:], model)
	b.press("link", "Requests")
	b.says(model)
	b.press("link", "Refused")

	b.press("link", "Webhooks")
	b.fill("Address", "http://127.0.0.1:9/hook")
	b.press("button", "Add the endpoint")
	b.says("Signing secret")
	b.press("link", "Go on to the endpoint")
	b.press("button", "Send a test event")
	b.says("connection.created", "pending")
	b.press("link", "connection.created")
	b.says(`"type": "connection.created"`)
	b.open(app + "/webhooks")

	b.press("link", "Go live")
	b.press("link", "Settings")
	b.tick(model)
	b.fill("Your margin (%)", "1001")
	b.press("button", "Save")
	b.says("must be a percentage")
	b.fill("Your margin (%)", "12.5")
	b.press("button", "Save")
	b.says("Saved.")
	b.press("link", "Go live")
	b.press("button", "Ask for a review")
	b.says("waits for its review")
	b.press("link", "Apps")
	b.says("Night <b>Reader</b>")
	b.press("link", "Test accounts")
	b.press("link", "Provider keys")
	p.Verify()
}

// TestConsoleLooks keeps pictures of the console's pages.
func TestConsoleLooks(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, dbtest.URL(t, db.Postgres))
	refused(t, p) // which is billed, so that there is something to see
	b := newTab(t, p.BaseURL)
	b.open(p.DashboardURL + "/developer")
	b.signIn(p.Developer.Email, p.Developer.Password)
	b.look("console-apps")
	for _, page := range []string{"", "/analytics", "/requests", "/features", "/webhooks", "/playground", "/settings", "/go-live"} {
		b.open(p.DashboardURL + "/developer/apps/" + p.App.ID + page)
		b.look("console" + strings.ReplaceAll(page+"/", "/", "-") + "page")
	}
	b.open(p.DashboardURL + "/developer/test-accounts")
	b.look("console-testers")
}
