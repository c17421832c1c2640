package e2e

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
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

// TestDeveloperFromNothing goes a developer's way from signing up to a reviewed app:
// the capability, an app, a feature, a test account, a first billed call, its
// receipt, a webhook, the request to go live, and the operator's yes.
func TestDeveloperFromNothing(t *testing.T) {
	testkit.Long(t, "axe and pictures of its pages; package console proves its steps")
	t.Parallel()
	eachNode(t, developerFromNothing)
}

func developerFromNothing(t *testing.T, p *servertest.Process) {
	b := newTab(t, p.BaseURL)
	b.join(p)
	look := func(page string) { // once is enough
		if p.DB[:6] == "sqlite" {
			b.look("developer-" + page)
		}
	}
	b.open(p.DashboardURL + "/developer")
	look("enable")
	b.press("button", "Enable developer tools")
	look("none")
	b.press("link", "Create your first app")
	look("new-app")
	b.fill("Name", "Night <b>Reader</b>")
	b.write("Redirect URLs", "http://reader.example.com/callback")
	b.press("button", "Create app")
	b.says("Redirect URLs, line 1: must begin with https://")
	look("new-app-slip")
	b.write("Redirect URLs", "https://reader.example.com/callback")
	b.press("button", "Create app")
	b.says("Client secret", "You won’t see")
	look("secret")
	b.press("link", "Continue")
	app := b.at().String()
	b.press("link", "test accounts") // there is none to play with yet
	b.press("button", "Create test account")
	b.says("Password", "$1,000.00")
	b.open(app + "/features")
	b.fill("Slug", "Summaries!")
	b.fill("Name", "Summaries")
	b.fill("Description", "Shortens what you read at night.")
	b.fill("Max cost per call (USD, optional)", "0.01")
	b.fill("Your margin (%, optional)", "25")
	b.press("button", "Add feature")
	b.says("Slug: ")
	b.fill("Slug", "summaries")
	b.press("button", "Add feature")
	b.says("Feature added.", "at most $0.01 per call", "margin 25%")
	b.press("link", "Summaries")
	look("feature")

	b.press("link", "Playground")
	b.pick("Feature", "summaries")
	b.pick("Model", model)
	b.write("Prompt", "It's \"late\". <Say> hello.")
	run(b, chromedp.Click("Run", as("button", "Run")))
	b.await("the answer", `document.querySelectorAll(".figures a").length === 1`)
	b.says("tokens in", "first byte")
	look("playground-call")
	b.press("link", "Receipt")
	look("request")
	b.says("The user was charged", "summaries", model)
	b.open(app + "/playground")
	b.pick("Feature", "summaries")
	b.pick("Model", "gpt-5.6-sol")
	b.fill("Output limit (tokens)", "4000")
	b.write("Prompt", strings.Repeat("Much to read. ", 100))
	run(b, chromedp.Click("Run", as("button", "Run")))
	b.await("the refusal", `document.querySelectorAll(".turn.refused code").length === 1`)

	b.open(app)
	b.says("Your margin", "Make your first call")
	b.press("link", "Analytics")
	b.says("Summaries"[1:], model)
	b.press("link", "Requests")
	b.says(model)
	b.open(app + "/requests?status=refused")
	b.says("Refused")

	b.press("link", "Webhooks")
	b.fill("URL", "http://127.0.0.1:9/hook")
	b.press("button", "Add endpoint")
	b.says("Webhook secret")
	b.press("link", "Continue")
	b.press("link", "Send a sample…")
	b.says("The user approved the request.", "Schema of data.allocation_request")
	look("event-catalogue")
	b.press("button", "Send a sample of connection.created")
	b.says("connection.created", "Sample sent.")
	look("webhook")
	run(b, chromedp.Click("#list-rows th a")) // rows are replaced while the attempt is due
	b.await("the drawer", `document.querySelector("#drawer h2") !== null`)
	b.says(`"type": "connection.created"`)
	look("delivery-drawer")
	b.press("link", "Open delivery")
	b.says(`"type": "connection.created"`)
	look("delivery")
	b.open(app + "/webhooks")

	b.press("link", "Go live")
	b.open(app + "/settings")
	b.tick(model)
	b.fill("Your margin (%)", "1001")
	b.press("button", "Save")
	b.says("enter a percentage")
	b.fill("Your margin (%)", "12.5")
	b.press("button", "Save")
	b.says("Saved.")
	b.press("link", "Go live")
	b.press("button", "Request review")
	b.says("We’ll review your request soon")
	b.press("link", "Apps")
	b.says("Night <b>Reader</b>")
	b.press("link", "Test accounts")
	b.press("link", "Provider keys")
	look("keys")

	operator := newTab(t, p.BaseURL)
	operator.open(p.DashboardURL + "/operator/reviews")
	operator.signIn(p.Operator.Email, p.Operator.Password)
	operator.press("link", "Night <b>Reader</b>")
	operator.press("button", "Approve")
	operator.says("Approved. The app is in its new tier")
	b.open(app)
	b.says("limited-live")
	b.open(app + "/go-live")
	look("go-live-approved")
}

// confirmations keeps pictures of the pages that ask once more.
func (b *tab) confirmations(p *servertest.Process) {
	b.t.Helper()
	app := p.DashboardURL + "/developer/apps/" + p.App.ID
	b.open(app + "/webhooks")
	b.fill("URL", "http://127.0.0.1:9/hook")
	b.press("button", "Add endpoint")
	b.press("link", "Continue")
	endpoint := b.at().String()
	billed := p.Call("POST", "/v1/ai/gpt-6-luna", `{"messages":[{"role":"user","content":"hello"}]}`)
	_ = billed.Body.Close()
	pages := map[string]string{
		"refund":       app + "/requests/" + billed.Header.Get("X-Request-Id") + "/refund",
		"secret":       app + "/secret",
		"switch":       app + "/switch",
		"rotate":       endpoint + "/rotate",
		"endpoint":     endpoint + "/delete",
		"provider-key": p.DashboardURL + "/developer/keys/openai/delete",
	}
	for name, page := range pages {
		b.open(page)
		b.look("console-confirm-" + name)
	}
	b.open(p.DashboardURL + "/developer/test-accounts")
	b.press("link", "Delete "+p.TestAccount.Email)
	b.look("console-confirm-test-account")
}

// TestConsoleLooks keeps pictures of the console's pages.
func TestConsoleLooks(t *testing.T) {
	testkit.Long(t, "axe and pictures of every page of the console")
	t.Parallel()
	target := servertest.URL(t, db.Postgres)
	p := servertest.Start(t, target)
	refused(t, p) // which is billed, so that there is something to see
	busy(t, p, target)
	b := newTab(t, p.BaseURL)
	b.open(p.DashboardURL + "/developer")
	b.signIn(p.Developer.Email, p.Developer.Password)
	b.look("console-apps")
	for _, page := range []string{"", "/analytics", "/requests", "/features", "/webhooks", "/playground", "/settings",
		"/go-live"} {
		b.open(p.DashboardURL + "/developer/apps/" + p.App.ID + page)
		b.look("console" + strings.ReplaceAll(page+"/", "/", "-") + "page")
	}
	b.open(p.DashboardURL + "/developer/test-accounts")
	b.look("console-testers")
	b.confirmations(p)
	b.open(p.DashboardURL + "/developer/apps/" + p.App.ID + "/requests?status=settled")
	for _, x := range b.things() {
		if x.role == "link" && strings.Count(x.name, ":") == 2 { // the time of a call
			run(b, chromedp.Click(x.name, as("link", x.name)))
			break
		}
	}
	b.await("the drawer", `document.querySelector("#drawer h2") !== null`)
	b.says("Timeline", "How it adds up", "Per million")
	b.look("console-call-drawer")
	b.press("link", "Open receipt")
	b.says("How it adds up", "Per million")
	b.look("console-receipt")
	b.open(p.DashboardURL + "/developer/apps/" + p.App.ID + "/requests?status=refused&live=1")
	b.says("Pause live tail")
	b.look("console-requests-refused")
	user := newTab(t, p.BaseURL)
	address, _ := link(p, "s")
	user.open(address)
	user.signIn(p.TestAccount.Email, p.TestAccount.Password)
	user.look("consent-logo")
	user.open(p.AuthURL + "/connections")
	user.look("connections-logo")
	user.open(p.AuthURL + "/connections/" + p.Connection.ID)
	user.look("connection-logo")
	asked := more(t, p, 40_00_000_000, "Your report has 40 more pages.")
	user.open(asked.ApprovalURL)
	user.look("approval-logo")
}

// busy makes the sample app one that was used for weeks: by its totals only, which
// is what analytics read.
func busy(t *testing.T, p *servertest.Process, target string) {
	t.Helper()
	d := dbtest.OpenURL(t, target)
	var picture bytes.Buffer
	m := image.NewNRGBA(image.Rect(0, 0, 200, 200))
	for y := range 200 {
		for x := range 200 {
			m.Set(x, y, color.NRGBA{uint8(40 + x), uint8(90 + y/2), 180, 255})
		}
	}
	if err := png.Encode(&picture, m); err != nil {
		t.Fatal(err)
	}
	if err := apps.NewStore(d, d.Now, true).SetLogo(t.Context(), p.App.ID, picture.Bytes()); err != nil {
		t.Fatal(err)
	}
	exec := func(text string, args ...any) {
		t.Helper()
		if _, err := d.ExecContext(t.Context(), text, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO provider_keys (account_id, provider, sealed, last4, created_us, tested_us)
		SELECT owner_id, 'openai', $1, '4f2a', $2, $2 FROM apps WHERE id = $3`,
		[]byte("sealed"), d.Now().UnixMicro(), p.App.ID) // shown by its last characters, and never opened here
	uses := []struct {
		feature, model string
		spent          int64
	}{
		{"night-summaries", model, 310},
		{"chat", "claude-sonnet-5", 170},
		{"other", model, 45},
		{"", "gemini-3-flash", 20},
		{"a-feature-with-a-very-long-name-of-forty", "gpt-5.6-sol", 90},
	}
	for day := range 45 {
		for i, u := range uses {
			if (day*7+i*3)%5 == 0 {
				continue // quiet days
			}
			calls := int64((day*13+i*29)%17 + 1)
			cost := calls * u.spent * 100_000
			exec(`INSERT INTO daily_totals (day, connection_id, feature, model, app_id, account_id, calls,
				input_tokens, output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
				SELECT $1, id, $2, $3, app_id, account_id, $4, $5, $6, $7, $8, $9, $10 FROM connections WHERE id = $11`,
				d.Now().UTC().AddDate(0, 0, -1-day).Format(time.DateOnly), u.feature, u.model, calls, calls*1200,
				calls*340, cost, cost/10, cost/4, cost+cost/10+cost/4, p.Connection.ID)
		}
	}
	for i, code := range []string{"allocation_exhausted", "rate_limited", "rate_limited", "provider_error",
		"allocation_exhausted", "model_not_allowed", "allocation_exhausted"} {
		exec(`INSERT INTO refusals (request_id, connection_id, app_id, status, code, message, details, created_us) VALUES ($1, $2, $3, 402, $4, 'no', '{}', $5)`,
			id.New(id.Request, d.Now()), p.Connection.ID, p.App.ID, code, d.Now().UnixMicro()-int64(i)*86_400_000_000)
	}
}

// TestAppSwitcher changes from one app to another and back by the menu that the app's name opens.
func TestAppSwitcher(t *testing.T) {
	testkit.Long(t, "its menu is HTML without a script; package ui proves what it lists")
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.SQLite))
	b := newTab(t, p.BaseURL)
	b.open(p.DashboardURL + "/developer/apps/new")
	b.signIn(p.Developer.Email, p.Developer.Password)
	b.fill("Name", "Second App")
	b.write("Redirect URLs", "https://second.example.com/callback")
	b.press("button", "Create app")
	b.press("link", "Continue")
	second := b.at().Path
	for range 2 {
		for name, path := range map[string]string{"Sample app": "/developer/apps/" + p.App.ID, "Second App": second} {
			if b.at().Path == path {
				continue
			}
			run(b, chromedp.Click(`.nav-switch > summary`))
			b.press("link", name)
			if got := b.at().Path; got != path {
				t.Errorf("%s leads to %s, want %s", name, got, path)
			}
		}
	}
	run(b, chromedp.Click(`.nav-switch > summary`))
	b.press("link", "All apps")
	b.says("Second App", "Sample app")
}
